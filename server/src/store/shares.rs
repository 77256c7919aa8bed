//! Sharing by link: a token of 256 random bits, of which only the SHA-256 is stored, and perhaps a password, of which
//! only its argon2 hash is.

use super::{DbRow, Store, StoreError, new_id, now, to_u32};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rankscope_model::{Report, ShareInfo, UnixMicros};
use sha2::{Digest, Sha256};
use sqlx::Row;
use std::time::Duration;

/// A share at the only moment at which its token is known.
#[derive(Debug, Clone)]
pub struct MintedShare {
    /// What its owner sees from now on.
    pub info: ShareInfo,
    /// The secret part of the link.
    pub token: String,
}

/// What the owner of a share decides when it is made.
#[derive(Debug, Clone, Default)]
pub struct ShareOptions {
    /// The newest by default.
    pub version: Option<u32>,
    /// How long it works; `None` for as long as it is not revoked.
    pub expires_in: Option<Duration>,
    /// Hash of its password, see [`crate::passwords`].
    pub password_hash: Option<String>,
    /// Files can be downloaded as they were uploaded.
    pub raw_files: bool,
    /// Host names, user names and paths are replaced.
    pub masked: bool,
}

/// What a valid token opens.
#[derive(Debug, Clone)]
pub struct SharedReport {
    /// The share.
    pub id: String,
    /// The run it belongs to. Not for visitors.
    pub run_id: String,
    /// The version it shows.
    pub version: u32,
    /// Hash of its password; without one the token is enough.
    pub password_hash: Option<String>,
    /// Files can be downloaded as they were uploaded.
    pub raw_files: bool,
    /// Host names, user names and paths are replaced.
    pub masked: bool,
}

impl Store {
    /// Makes a link to a version of a run's report.
    pub async fn create_share(
        &self,
        run: &str,
        version: Option<u32>,
        expires_in: Option<Duration>,
    ) -> Result<MintedShare, StoreError> {
        self.create_share_with(run, ShareOptions { version, expires_in, ..ShareOptions::default() }).await
    }

    /// The same with everything that can be decided.
    pub async fn create_share_with(&self, run: &str, options: ShareOptions) -> Result<MintedShare, StoreError> {
        let row = self.run(run).await?;
        let version = options.version.unwrap_or(row.version);
        if version == 0 || version > row.version {
            return Err(StoreError::Missing);
        }
        let token = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        let created_at = now();
        let expires_at = options.expires_in.map(|span| {
            let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
            UnixMicros(created_at.0.saturating_add(micros))
        });
        let info = ShareInfo {
            id: new_id(),
            version,
            created_at,
            expires_at,
            revoked_at: None,
            password: options.password_hash.is_some(),
            raw_files: options.raw_files,
            masked: options.masked,
            last_seen_at: None,
        };
        sqlx::query(
            "INSERT INTO shares (id, run_id, version, token_sha256, created_at, expires_at, password_hash, raw_files, \
             masked) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(&info.id)
        .bind(run)
        .bind(i64::from(version))
        .bind(token_hash(&token))
        .bind(created_at.0)
        .bind(expires_at.map(|at| at.0))
        .bind(options.password_hash)
        .bind(i64::from(options.raw_files))
        .bind(i64::from(options.masked))
        .execute(&self.pool)
        .await?;
        Ok(MintedShare { info, token })
    }

    /// The shares of a run, newest first, revoked ones included.
    pub async fn shares(&self, run: &str) -> Result<Vec<ShareInfo>, StoreError> {
        self.run(run).await?;
        let rows = sqlx::query(
            "SELECT id, version, created_at, expires_at, revoked_at, password_hash, raw_files, masked, last_seen_at \
             FROM shares WHERE run_id = $1 ORDER BY created_at DESC, id DESC",
        )
        .bind(run)
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(share_info).collect()
    }

    /// Ends a share; ending it twice is no error. With `run`, only if it belongs to that run.
    pub async fn revoke_share(&self, share: &str, run: Option<&str>) -> Result<(), StoreError> {
        let updated = sqlx::query(
            "UPDATE shares SET revoked_at = COALESCE(revoked_at, $1) WHERE id = $2 AND ($3 IS NULL OR run_id = $3)",
        )
        .bind(now().0)
        .bind(share)
        .bind(run)
        .execute(&self.pool)
        .await?;
        if updated.rows_affected() == 0 { Err(StoreError::Missing) } else { Ok(()) }
    }

    /// What a token opens: [`StoreError::Missing`] if it never existed, [`StoreError::Gone`] if it has ended.
    pub async fn open_share(&self, token: &str) -> Result<SharedReport, StoreError> {
        let sql = "SELECT id, run_id, version, expires_at, revoked_at, password_hash, raw_files, masked FROM shares \
                   WHERE token_sha256 = $1";
        let row = sqlx::query(sql).bind(token_hash(token)).fetch_one(&self.pool).await?;
        let revoked = row.try_get::<Option<i64>, _>("revoked_at")?.is_some();
        let expired = row.try_get::<Option<i64>, _>("expires_at")?.is_some_and(|at| at <= now().0);
        if revoked || expired {
            return Err(StoreError::Gone);
        }
        Ok(SharedReport {
            id: row.try_get("id")?,
            run_id: row.try_get("run_id")?,
            version: to_u32(row.try_get("version")?, "version")?,
            password_hash: row.try_get("password_hash")?,
            raw_files: row.try_get::<i64, _>("raw_files")? != 0,
            masked: row.try_get::<i64, _>("masked")? != 0,
        })
    }

    /// Notes that somebody has looked at a share now.
    pub async fn share_seen(&self, share: &str) -> Result<(), StoreError> {
        sqlx::query("UPDATE shares SET last_seen_at = $1 WHERE id = $2")
            .bind(now().0)
            .bind(share)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// The report that a token opens, as it is kept. Whether it may be shown, and how, [`SharedReport`] tells.
    pub async fn shared_report(&self, token: &str) -> Result<Report, StoreError> {
        let shared = self.open_share(token).await?;
        self.report(&shared.run_id, Some(shared.version)).await
    }
}

fn share_info(row: &DbRow) -> Result<ShareInfo, StoreError> {
    Ok(ShareInfo {
        id: row.try_get("id")?,
        version: to_u32(row.try_get("version")?, "version")?,
        created_at: UnixMicros(row.try_get("created_at")?),
        expires_at: row.try_get::<Option<i64>, _>("expires_at")?.map(UnixMicros),
        revoked_at: row.try_get::<Option<i64>, _>("revoked_at")?.map(UnixMicros),
        password: row.try_get::<Option<String>, _>("password_hash")?.is_some(),
        raw_files: row.try_get::<i64, _>("raw_files")? != 0,
        masked: row.try_get::<i64, _>("masked")? != 0,
        last_seen_at: row.try_get::<Option<i64>, _>("last_seen_at")?.map(UnixMicros),
    })
}

/// The lookup compares hashes inside the database's index, so its timing tells nothing about the token.
fn token_hash(token: &str) -> String {
    crate::hex(&Sha256::digest(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{runs::tests::report, testing::holds};
    use std::sync::Arc;

    #[tokio::test]
    async fn links_open_their_version_until_they_end() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        store.create_run(vec![], report("r", "t", 1, "one"), Arc::default()).await.unwrap();
        let share = store.create_share("r", None, None).await.unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(&share.token).unwrap().len(), 32);
        store.append_version(vec![], report("r", "t", 2, "two"), Arc::default()).await.unwrap();
        assert_eq!(store.shared_report(&share.token).await.unwrap().diagnosis.summary, "one");

        assert!(matches!(store.revoke_share(&share.info.id, Some("other")).await, Err(StoreError::Missing)));
        store.revoke_share(&share.info.id, Some("r")).await.unwrap();
        let revoked_at = store.shares("r").await.unwrap()[0].revoked_at;
        store.revoke_share(&share.info.id, None).await.unwrap();
        assert!(revoked_at.is_some());
        assert_eq!(store.shares("r").await.unwrap()[0].revoked_at, revoked_at);
        assert!(matches!(store.shared_report(&share.token).await, Err(StoreError::Gone)));

        let expired = store.create_share("r", None, Some(Duration::ZERO)).await.unwrap();
        assert!(matches!(store.open_share(&expired.token).await, Err(StoreError::Gone)));
        assert!(matches!(store.open_share("guess").await, Err(StoreError::Missing)));
        assert!(matches!(store.create_share("nobody", None, None).await, Err(StoreError::Missing)));
        assert!(matches!(store.create_share("r", Some(9), None).await, Err(StoreError::Missing)));
    }

    #[tokio::test]
    async fn the_token_is_nowhere_in_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        store.create_run(vec![], report("r", "t", 1, "one"), Arc::default()).await.unwrap();
        let token = store.create_share("r", None, None).await.unwrap().token;
        assert!(holds(store.database(), folder.path(), &token_hash(&token)).await);
        assert!(!holds(store.database(), folder.path(), &token).await);
    }
}
