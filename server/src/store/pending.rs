//! Which objects are on their way: a marker says what an upload is about to write, or which run is about to go.
//!
//! A marker is kept before the first of its objects is touched and goes before the change is acknowledged. So what
//! a crash has left can be told from what a lost or older database merely does not know: only what a marker names may
//! ever be removed. A server that is alone has them as files in its data folder, also where the objects are in a bucket:
//! it clears up what it had begun itself, and no other's. Replicas have them as rows, each with the replica that has
//! begun the change: what one leaves that is no more, another takes over. A change ends together with its marker in one
//! transaction, so one that was taken over can no longer end. Knows no HTTP.

use super::{StoreError, new_id, now, objects::sync_folder};
use serde::{Deserialize, Serialize};
use sqlx::{AnyConnection, AnyPool, Row};
use std::{
    fmt, fs, io,
    io::Write,
    path::{Path, PathBuf},
};

/// Names of markers that are still being written begin so.
const HALF_WRITTEN: &str = "new-";

/// What is about to happen to a run's objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "change")]
pub enum Claim {
    /// Artifacts and a version are being added.
    Add {
        /// The run.
        run: String,
        /// Ids of the artifacts.
        artifacts: Vec<String>,
        /// The version that counts them in.
        version: u32,
    },
    /// The run is being deleted.
    Delete {
        /// The run.
        run: String,
    },
}

impl Claim {
    /// The run that it is about.
    pub fn run(&self) -> &str {
        match self {
            Self::Add { run, .. } | Self::Delete { run } => run,
        }
    }
}

/// The markers.
#[derive(Debug, Clone)]
pub enum Pending {
    /// Of a server that is alone: the folder of their files.
    Files(PathBuf),
    /// Of replicas.
    Rows {
        /// The database.
        pool: AnyPool,
        /// This replica.
        owner: String,
    },
}

/// A marker that is kept. It stays when this is dropped: only [`Marker::remove`] says that the change has ended.
#[derive(Debug)]
pub enum Marker {
    /// Its file.
    File(PathBuf),
    /// Its row.
    Row {
        /// The database.
        pool: AnyPool,
        /// Which row.
        id: String,
        /// This replica.
        owner: String,
    },
}

impl Pending {
    /// Opens (and creates) the folder. Markers that were never finished go: nothing was written under them.
    pub fn open(folder: PathBuf) -> Result<Self, StoreError> {
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(HALF_WRITTEN) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(Self::Files(folder))
    }

    /// Keeps a marker; when this returns, it outlives the process.
    pub async fn mark(&self, claim: Claim) -> Result<Marker, StoreError> {
        match self {
            Self::Files(folder) => write(folder, claim).await,
            Self::Rows { pool, owner } => {
                let id = new_id();
                sqlx::query("INSERT INTO pending (id, owner, run_id, claim, created_at) VALUES ($1, $2, $3, $4, $5)")
                    .bind(&id)
                    .bind(owner)
                    .bind(claim.run())
                    .bind(serde_json::to_string(&claim)?)
                    .bind(now().0)
                    .execute(pool)
                    .await?;
                Ok(Marker::Row { pool: pool.clone(), id, owner: owner.clone() })
            }
        }
    }

    /// The markers that an earlier process has left in the folder, with what they say; `None` for one that cannot be
    /// understood. Of replicas none: these live, or are taken over one by one.
    pub fn left_over(&self) -> Result<Vec<(Marker, Option<Claim>)>, StoreError> {
        let Self::Files(folder) = self else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let claim = serde_json::from_slice(&fs::read(&path)?).ok();
            found.push((Marker::File(path), claim));
        }
        Ok(found)
    }

    /// Runs that replicas are about to add to.
    pub async fn runs(&self) -> Result<Vec<String>, StoreError> {
        let Self::Rows { pool, .. } = self else { return Ok(Vec::new()) };
        Ok(sqlx::query_scalar("SELECT DISTINCT run_id FROM pending").fetch_all(pool).await?)
    }

    /// Other replicas that have something on its way.
    pub async fn others(&self) -> Result<Vec<String>, StoreError> {
        let Self::Rows { pool, owner } = self else { return Ok(Vec::new()) };
        let sql = "SELECT DISTINCT owner FROM pending WHERE owner <> $1";
        Ok(sqlx::query_scalar(sql).bind(owner).fetch_all(pool).await?)
    }

    /// Takes over what another replica had begun; from then on it can no longer end it.
    pub async fn take_over_from(&self, other: &str) -> Result<Vec<(Marker, Option<Claim>)>, StoreError> {
        self.take_over("UPDATE pending SET owner = $1 WHERE owner = $2 RETURNING id, claim", other).await
    }

    /// Takes over what others had begun with a run. For whoever has the turn at the run: another that still worked on it
    /// would have the turn.
    pub async fn take_over_of_run(&self, run: &str) -> Result<Vec<(Marker, Option<Claim>)>, StoreError> {
        self.take_over("UPDATE pending SET owner = $1 WHERE owner <> $1 AND run_id = $2 RETURNING id, claim", run).await
    }

    async fn take_over(&self, sql: &'static str, of: &str) -> Result<Vec<(Marker, Option<Claim>)>, StoreError> {
        let Self::Rows { pool, owner } = self else { return Ok(Vec::new()) };
        let rows = sqlx::query(sql).bind(owner).bind(of).fetch_all(pool).await?;
        rows.iter()
            .map(|row| {
                let claim: String = row.try_get("claim")?;
                let marker = Marker::Row { pool: pool.clone(), id: row.try_get("id")?, owner: owner.clone() };
                Ok((marker, serde_json::from_str(&claim).ok()))
            })
            .collect()
    }
}

async fn write(folder: &Path, claim: Claim) -> Result<Marker, StoreError> {
    let folder = folder.to_path_buf();
    let path = folder.join(format!("{}.json", new_id()));
    let marker = Marker::File(path.clone());
    blocking(move || {
        let mut file = tempfile::Builder::new().prefix(HALF_WRITTEN).tempfile_in(&folder)?;
        file.write_all(&serde_json::to_vec(&claim)?)?;
        file.as_file().sync_all()?;
        file.persist(&path).map_err(|error| error.error)?;
        sync_folder(&folder)
    })
    .await?;
    Ok(marker)
}

impl Marker {
    /// Ends the change together with the rows of the same transaction. A file outlives these rows: see [`Self::remove`].
    pub async fn settle(&self, transaction: &mut AnyConnection) -> Result<(), StoreError> {
        let Self::Row { id, owner, .. } = self else { return Ok(()) };
        let ended = sqlx::query("DELETE FROM pending WHERE id = $1 AND owner = $2")
            .bind(id)
            .bind(owner)
            .execute(transaction)
            .await?;
        if ended.rows_affected() == 0 { Err(StoreError::TakenOver) } else { Ok(()) }
    }

    /// Ends the change. Also this is kept when it returns: a marker must not come back after the acknowledgement.
    pub async fn remove(self) -> Result<(), StoreError> {
        match self {
            Self::File(path) => {
                blocking(move || {
                    fs::remove_file(&path)?;
                    path.parent().map_or(Ok(()), sync_folder)
                })
                .await
            }
            Self::Row { pool, id, owner } => {
                sqlx::query("DELETE FROM pending WHERE id = $1 AND owner = $2")
                    .bind(id)
                    .bind(owner)
                    .execute(&pool)
                    .await?;
                Ok(())
            }
        }
    }
}

/// For the log.
impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Row { id, .. } => write!(f, "row {id} of pending"),
        }
    }
}

async fn blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<(), StoreError> {
    Ok(tokio::task::spawn_blocking(work).await.map_err(StoreError::task)??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn markers_stay_until_they_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let pending = Pending::open(folder.path().to_path_buf()).unwrap();
        let claim = Claim::Add { run: "r".into(), artifacts: vec!["a".into()], version: 2 };
        drop(pending.mark(claim.clone()).await.unwrap());
        fs::write(folder.path().join("new-x"), b"{").unwrap();

        let pending = Pending::open(folder.path().to_path_buf()).unwrap();
        let mut found = pending.left_over().unwrap();
        assert_eq!(found.len(), 1, "the half-written one went");
        let (marker, said) = found.remove(0);
        assert_eq!(said, Some(claim));
        marker.remove().await.unwrap();
        assert!(pending.left_over().unwrap().is_empty());
    }
}
