//! Sessions: made at sign-in, ended at sign-out, on a new password, when unused for long, and in any case after a while.
//!
//! A session's secret is always made here; what a browser brings along is only ever looked up, so nobody can be given a
//! session that somebody else knows.

use super::{
    Accounts,
    secret::{hash, new_secret},
    users::{User, select_user, user},
};
use crate::store::{StoreError, now};
use rankscope_model::UnixMicros;
use sqlx::Row;
use std::time::Duration;

/// A session that is not used for so long has ended.
pub const IDLE: Duration = Duration::from_hours(7 * 24);
/// No session lasts longer.
pub const LONGEST: Duration = Duration::from_hours(30 * 24);
/// Nor one that a provider has opened: it knows who has left, and is asked again after this.
pub const LONGEST_BY_PROVIDER: Duration = Duration::from_hours(24);
/// That a session is used is written down at most so often.
const SEEN_EVERY: Duration = Duration::from_mins(5);

/// A session at the only moment at which its secret is known.
#[derive(Debug)]
pub struct NewSession {
    /// What the browser keeps.
    pub secret: String,
}

pub(super) fn after(at: UnixMicros, span: Duration) -> i64 {
    at.0.saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX))
}

pub(super) fn before(at: UnixMicros, span: Duration) -> i64 {
    at.0.saturating_sub(i64::try_from(span.as_micros()).unwrap_or(i64::MAX))
}

impl Accounts {
    /// Begins a session, and forgets all that have ended.
    pub async fn start_session(&self, user: &str) -> Result<NewSession, StoreError> {
        self.start_session_for(user, LONGEST).await
    }

    /// The same, for at most so long.
    pub async fn start_session_for(&self, user: &str, longest: Duration) -> Result<NewSession, StoreError> {
        let (secret, at) = (new_secret(), now());
        sqlx::query("DELETE FROM sessions WHERE expires_at <= $1 OR seen_at <= $2")
            .bind(at.0)
            .bind(before(at, IDLE))
            .execute(&self.pool)
            .await?;
        sqlx::query(
            "INSERT INTO sessions (secret_sha256, user_id, created_at, seen_at, expires_at) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(hash(&secret))
        .bind(user)
        .bind(at.0)
        .bind(at.0)
        .bind(after(at, longest.min(LONGEST)))
        .execute(&self.pool)
        .await?;
        Ok(NewSession { secret })
    }

    /// Whose session this is, if it goes on.
    pub async fn user_of_session(&self, secret: &str) -> Result<Option<User>, StoreError> {
        let at = now();
        let sql = select_user!(
            ", s.seen_at FROM sessions s JOIN users u ON u.id = s.user_id WHERE s.secret_sha256 = $1 \
            AND s.expires_at > $2 AND s.seen_at > $3 AND u.disabled_at IS NULL"
        );
        let hash = hash(secret);
        let row = sqlx::query(sql).bind(&hash).bind(at.0).bind(before(at, IDLE)).fetch_optional(&self.pool).await?;
        let Some(row) = row else { return Ok(None) };
        if row.try_get::<i64, _>("seen_at")? <= before(at, SEEN_EVERY) {
            sqlx::query("UPDATE sessions SET seen_at = $1 WHERE secret_sha256 = $2")
                .bind(at.0)
                .bind(&hash)
                .execute(&self.pool)
                .await?;
        }
        user(&row).map(Some)
    }

    /// Ends a session, if there is one.
    pub async fn end_session(&self, secret: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM sessions WHERE secret_sha256 = $1").bind(hash(secret)).execute(&self.pool).await?;
        Ok(())
    }

    /// Ends every session of a user.
    pub async fn end_sessions_of(&self, user: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM sessions WHERE user_id = $1").bind(user).execute(&self.pool).await?;
        Ok(())
    }

    /// Moves a user's sessions into the past, for tests of how they end.
    #[doc(hidden)]
    pub async fn age_sessions(&self, user: &str, by: Duration) -> Result<(), StoreError> {
        let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        sqlx::query("UPDATE sessions SET seen_at = seen_at - $1, expires_at = expires_at - $1 WHERE user_id = $2")
            .bind(by)
            .bind(user)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{accounts::users::tests::accounts, store::testing::holds};

    #[tokio::test]
    async fn sessions_end_in_each_of_their_ways() {
        let (_folder, accounts) = accounts().await;
        let ada = accounts.add_user(&"ada".parse().unwrap(), true).await.unwrap();
        let start = async || accounts.start_session(&ada.id).await.unwrap().secret;
        let is_in = async |secret: &str| accounts.user_of_session(secret).await.unwrap().is_some();
        let (a, b) = (start().await, start().await);
        assert!(is_in(&a).await && is_in(&b).await && !is_in("guess").await);
        accounts.end_session(&a).await.unwrap();
        assert!(!is_in(&a).await && is_in(&b).await);

        accounts.set_password(&ada, "correct horse battery".into()).await.unwrap();
        assert!(!is_in(&b).await, "a new password ends what was signed in with the old one");

        let nearly_idle = IDLE.checked_sub(Duration::from_mins(1)).unwrap();
        let idle = start().await;
        accounts.age_sessions(&ada.id, nearly_idle).await.unwrap();
        assert!(is_in(&idle).await);
        // Its use was written down, so it has all its time again.
        accounts.age_sessions(&ada.id, nearly_idle).await.unwrap();
        assert!(is_in(&idle).await);
        accounts.age_sessions(&ada.id, IDLE).await.unwrap();
        assert!(!is_in(&idle).await);

        let long = start().await;
        for _ in 0..5 {
            accounts.age_sessions(&ada.id, nearly_idle).await.unwrap();
            is_in(&long).await;
        }
        assert!(!is_in(&long).await, "used or not, 30 days are the end");

        let disabled = start().await;
        accounts.add_user(&"bo".parse().unwrap(), true).await.unwrap();
        accounts.set_disabled(&ada.id, true).await.unwrap();
        accounts.set_disabled(&ada.id, false).await.unwrap();
        assert!(!is_in(&disabled).await);
    }

    #[tokio::test]
    async fn secrets_are_nowhere_in_the_database() {
        let (folder, accounts) = accounts().await;
        let ada = accounts.add_user(&"ada".parse().unwrap(), true).await.unwrap();
        accounts.set_password(&ada, "correct horse battery".into()).await.unwrap();
        let session = accounts.start_session(&ada.id).await.unwrap().secret;
        let link = accounts.new_set_up_link(Some(&ada.id)).await.unwrap();
        for hashed in [hash(&session), hash(&link)] {
            assert!(holds(&accounts.database, folder.path(), &hashed).await);
        }
        for secret in [session.as_str(), link.as_str(), "correct horse battery"] {
            assert!(!holds(&accounts.database, folder.path(), secret).await);
        }
    }
}
