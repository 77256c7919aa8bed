//! Files on their way in several requests. Each request's bytes are objects of their own (parts), so that any server takes
//! the next one, and what has been kept of a file is what its row counts. Who is quicker with the same part wins; the other
//! one's object goes. What nobody goes on with goes after a day, by a job.

use super::{DbRow, Staged, Store, StoreError, jobs, new_id, now, objects, plain, to_u64};
use bytes::Bytes;
use futures_util::{StreamExt, stream::BoxStream};
use rankscope_model::UnixMicros;
use sqlx::Row;
use std::{io, time::Duration};

/// How long a file is kept of which nothing more arrives, and that nobody uses.
pub const KEPT: Duration = Duration::from_hours(24);
/// Files on their way that one sender may have.
const MOST_OPEN: i64 = 64;
/// Parts of one file.
const MOST_PARTS: i64 = 10_000;

/// A file on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenUpload {
    /// Its id.
    pub id: String,
    /// Name as sent.
    pub name: String,
    /// How long it is.
    pub bytes: u64,
    /// How much of it is kept.
    pub received: u64,
    /// When it goes.
    pub expires_at: UnixMicros,
}

/// Why a part was not kept.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// The file is kept up to here, and the part does not begin there.
    #[error("the file is kept up to byte {0}")]
    Elsewhere(u64),
    /// It is longer than what is left of the file.
    #[error("more than the {0} bytes of the file")]
    TooLong(u64),
    /// There are too many parts.
    #[error("more than {MOST_PARTS} parts")]
    TooMany,
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for PartError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl Store {
    /// Begins a file; `None` if its sender has too many on their way. `kind`: of the job that looks whether it has expired.
    pub async fn begin_upload(
        &self,
        owner: &str,
        name: &str,
        bytes: u64,
        kind: &str,
    ) -> Result<Option<OpenUpload>, StoreError> {
        let expires_at = expiry();
        let mut transaction = self.database.begin().await?;
        let open: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM uploads WHERE owner = $1")
            .bind(owner)
            .fetch_one(&mut *transaction)
            .await?;
        if open >= MOST_OPEN {
            return Ok(None);
        }
        let begun =
            OpenUpload { id: new_id(), name: plain(name), bytes, received: 0, expires_at: UnixMicros(expires_at) };
        sqlx::query(
            "INSERT INTO uploads (id, owner, name, bytes, received, created_at, expires_at) \
             VALUES ($1, $2, $3, $4, 0, $5, $6)",
        )
        .bind(&begun.id)
        .bind(owner)
        .bind(&begun.name)
        .bind(i64::try_from(bytes).map_err(|_| StoreError::Range("bytes"))?)
        .bind(now().0)
        .bind(expires_at)
        .execute(&mut *transaction)
        .await?;
        jobs::add(&mut transaction, kind, &begun.id, jobs::Of::Nothing, expires_at).await?;
        transaction.commit().await?;
        Ok(Some(begun))
    }

    /// A file of this sender.
    pub async fn open_upload(&self, id: &str, owner: &str) -> Result<OpenUpload, StoreError> {
        let row = sqlx::query("SELECT id, name, bytes, received, expires_at FROM uploads WHERE id = $1 AND owner = $2")
            .bind(id)
            .bind(owner)
            .fetch_one(&self.pool)
            .await?;
        open_upload(&row)
    }

    /// When a file expires, whoever sends it; `None` if it is gone.
    pub async fn upload_expires(&self, id: &str) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT expires_at FROM uploads WHERE id = $1";
        Ok(sqlx::query_scalar(sql).bind(id).fetch_optional(&self.pool).await?)
    }

    /// Keeps a part that begins where the file ends so far, and gives the new end. When this returns, it is kept.
    pub async fn add_part(
        &self,
        upload: &OpenUpload,
        position: u64,
        bytes: u64,
        staged: Staged,
    ) -> Result<u64, PartError> {
        let part = new_id();
        let key = objects::part_key(&upload.id, &part);
        self.objects.adopt(&key, staged).await?;
        let kept = self.insert_part(upload, position, bytes, &part).await;
        if kept.is_err()
            && let Err(error) = self.objects.delete_part(&upload.id, key).await
        {
            tracing::warn!(%error, upload = upload.id, "a part that was not kept stays until the file goes");
        }
        kept
    }

    async fn insert_part(&self, upload: &OpenUpload, position: u64, bytes: u64, part: &str) -> Result<u64, PartError> {
        let end = position.saturating_add(bytes);
        if end > upload.bytes {
            return Err(PartError::TooLong(upload.bytes));
        }
        let number = |value: u64| i64::try_from(value).map_err(|_| StoreError::Range("bytes"));
        let mut transaction = self.database.begin().await?;
        let (received, parts): (i64, i64) = {
            let row = sqlx::query(
                "SELECT received, (SELECT COUNT(*) FROM upload_parts p WHERE p.upload_id = u.id) AS parts FROM uploads u \
                 WHERE u.id = $1",
            )
            .bind(&upload.id)
            .fetch_one(&mut *transaction)
            .await?;
            (row.try_get("received")?, row.try_get("parts")?)
        };
        if received != number(position)? {
            return Err(PartError::Elsewhere(to_u64(received, "received")?));
        }
        if parts >= MOST_PARTS {
            return Err(PartError::TooMany);
        }
        sqlx::query("INSERT INTO upload_parts (upload_id, position, bytes, part) VALUES ($1, $2, $3, $4)")
            .bind(&upload.id)
            .bind(received)
            .bind(number(bytes)?)
            .bind(part)
            .execute(&mut *transaction)
            .await?;
        sqlx::query("UPDATE uploads SET received = $1, expires_at = $2 WHERE id = $3")
            .bind(number(end)?)
            .bind(expiry())
            .bind(&upload.id)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(end)
    }

    /// The bytes of a file that are kept, from its beginning.
    pub async fn upload_bytes(&self, id: &str) -> Result<BoxStream<'static, io::Result<Bytes>>, StoreError> {
        let parts: Vec<String> =
            sqlx::query_scalar("SELECT part FROM upload_parts WHERE upload_id = $1 ORDER BY position")
                .bind(id)
                .fetch_all(&self.pool)
                .await?;
        let (objects, id) = (self.objects.clone(), id.to_owned());
        let pieces = futures_util::stream::iter(parts).then(move |part| {
            let (objects, key) = (objects.clone(), objects::part_key(&id, &part));
            async move { objects.stream(&key).await.map(|(_, stream)| stream).map_err(io::Error::other) }
        });
        let flat = pieces.flat_map(|piece| match piece {
            Ok(stream) => stream,
            Err(error) => futures_util::stream::once(async move { Err(error) }).boxed(),
        });
        Ok(flat.boxed())
    }

    /// Ends a file, used or given up. Its objects go first: a row without them is told as lost, objects without a row are
    /// not seen by anybody.
    pub async fn end_upload(&self, id: &str, kind: &str) -> Result<(), StoreError> {
        self.objects.delete_upload(id).await?;
        let mut transaction = self.database.begin().await?;
        sqlx::query("DELETE FROM uploads WHERE id = $1").bind(id).execute(&mut *transaction).await?;
        jobs::remove(&mut transaction, kind, id).await?;
        transaction.commit().await?;
        Ok(())
    }
}

fn expiry() -> i64 {
    now().0.saturating_add(i64::try_from(KEPT.as_micros()).unwrap_or(i64::MAX))
}

fn open_upload(row: &DbRow) -> Result<OpenUpload, StoreError> {
    Ok(OpenUpload {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        bytes: to_u64(row.try_get("bytes")?, "bytes")?,
        received: to_u64(row.try_get("received")?, "received")?,
        expires_at: UnixMicros(row.try_get("expires_at")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::TryStreamExt;
    use std::io::Write;

    fn staged(store: &Store, bytes: &[u8]) -> Staged {
        let (mut file, staged) = store.staging_file().unwrap();
        file.write_all(bytes).unwrap();
        staged
    }

    async fn whole(store: &Store, id: &str) -> Vec<u8> {
        let pieces: Vec<Bytes> = store.upload_bytes(id).await.unwrap().try_collect().await.unwrap();
        pieces.concat()
    }

    #[tokio::test]
    async fn parts_stand_behind_each_other_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let upload = store.begin_upload("user:a", "a.log", 10, "expire").await.unwrap().unwrap();
        assert_eq!(store.open_upload(&upload.id, "user:a").await.unwrap(), upload);
        assert!(matches!(store.open_upload(&upload.id, "user:b").await, Err(StoreError::Missing)));
        let add = async |position: u64, bytes: &[u8]| {
            store.add_part(&upload, position, bytes.len() as u64, staged(&store, bytes)).await
        };
        assert_eq!(add(0, b"0123").await.unwrap(), 4);
        assert!(matches!(add(0, b"xxxx").await, Err(PartError::Elsewhere(4))));
        assert!(matches!(add(5, b"x").await, Err(PartError::Elsewhere(4))));
        assert!(matches!(add(4, b"4567890").await, Err(PartError::TooLong(10))));
        // The same part twice at once: one is kept.
        let (one, other) = tokio::join!(add(4, b"456789"), add(4, b"456789"));
        assert_eq!(u8::from(one.is_ok()) + u8::from(other.is_ok()), 1, "{one:?} {other:?}");
        assert_eq!(store.open_upload(&upload.id, "user:a").await.unwrap().received, 10);
        assert_eq!(whole(&store, &upload.id).await, b"0123456789");
        assert_eq!(store.objects.parts(&upload.id).await.unwrap(), 2, "those that were not kept are gone");

        store.end_upload(&upload.id, "expire").await.unwrap();
        assert!(matches!(add(10, b"").await, Err(PartError::Store(StoreError::Missing))));
        assert_eq!(store.objects.parts(&upload.id).await.unwrap(), 0);
        assert_eq!(store.job_due("expire", &upload.id).await.unwrap(), None);
        store.end_upload(&upload.id, "expire").await.unwrap();
    }

    #[tokio::test]
    async fn nobody_has_more_on_the_way_than_is_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        for _ in 0..MOST_OPEN {
            assert!(store.begin_upload("", "a", 1, "expire").await.unwrap().is_some());
        }
        assert_eq!(store.begin_upload("", "a", 1, "expire").await.unwrap(), None);
        assert!(store.begin_upload("user:b", "a", 1, "expire").await.unwrap().is_some());
    }
}
