//! Sign-ins that are on their way through a provider. Each ends once, in the browser that began it, within some minutes, at
//! any server of the same database.

use super::{
    Accounts,
    secret::{hash, new_secret},
    sessions::after,
};
use crate::store::{StoreError, now};
use sqlx::Row;
use std::time::Duration;

/// Time for somebody to sign in at the provider.
pub const PENDING: Duration = Duration::from_mins(10);
/// Sign-ins on their way; beyond that no more begin.
const MOST: i64 = 10_000;

/// What is kept of a sign-in while it is on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// What the ID token must hold.
    pub nonce: String,
    /// What proves to the provider that the same server asks.
    pub verifier: String,
    /// Where to go afterwards.
    pub next: String,
    /// Who adds the identity to the own account; `None` for a sign-in.
    pub user_id: Option<String>,
}

impl Accounts {
    /// Keeps a sign-in that begins, and gives the secret by which its browser is known when it comes back. `None` if too
    /// many are on their way.
    pub async fn keep_pending(&self, state: &str, pending: &Pending) -> Result<Option<String>, StoreError> {
        let (browser, at) = (new_secret(), now());
        sqlx::query("DELETE FROM pending_sign_ins WHERE expires_at <= $1").bind(at.0).execute(&self.pool).await?;
        let kept = sqlx::query(
            "INSERT INTO pending_sign_ins (state_sha256, browser_sha256, nonce, verifier, next, user_id, expires_at) \
             SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT), \
             CAST($6 AS TEXT), CAST($7 AS BIGINT) WHERE (SELECT COUNT(*) FROM pending_sign_ins) < $8",
        )
        .bind(hash(state))
        .bind(hash(&browser))
        .bind(&pending.nonce)
        .bind(&pending.verifier)
        .bind(&pending.next)
        .bind(&pending.user_id)
        .bind(after(at, PENDING))
        .bind(MOST)
        .execute(&self.pool)
        .await?;
        Ok((kept.rows_affected() > 0).then_some(browser))
    }

    /// The sign-in that comes back, once: whoever comes with the same again finds nothing. Another browser finds nothing
    /// either, and takes nothing away.
    pub async fn take_pending(&self, state: &str, browser: &str) -> Result<Option<Pending>, StoreError> {
        let rows = sqlx::query(
            "DELETE FROM pending_sign_ins WHERE state_sha256 = $1 AND browser_sha256 = $2 AND expires_at > $3 \
             RETURNING nonce, verifier, next, user_id",
        )
        .bind(hash(state))
        .bind(hash(browser))
        .bind(now().0)
        .fetch_all(&self.pool)
        .await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(Pending {
            nonce: row.try_get("nonce")?,
            verifier: row.try_get("verifier")?,
            next: row.try_get("next")?,
            user_id: row.try_get("user_id")?,
        }))
    }

    /// Moves all sign-ins that are on their way into the past, for tests of how they end.
    #[doc(hidden)]
    pub async fn age_pending(&self) -> Result<(), StoreError> {
        sqlx::query("UPDATE pending_sign_ins SET expires_at = 1").execute(&self.pool).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{accounts::users::tests::accounts, store::testing::holds};

    fn pending() -> Pending {
        Pending { nonce: "n".into(), verifier: "v".into(), next: "/runs/1".into(), user_id: None }
    }

    #[tokio::test]
    async fn a_sign_in_ends_once_and_in_its_own_browser() {
        let (folder, accounts) = accounts().await;
        let browser = accounts.keep_pending("state", &pending()).await.unwrap().unwrap();
        assert_eq!(accounts.take_pending("state", "another").await.unwrap(), None);
        assert_eq!(accounts.take_pending("another", &browser).await.unwrap(), None);
        assert_eq!(accounts.take_pending("state", &browser).await.unwrap(), Some(pending()));
        assert_eq!(accounts.take_pending("state", &browser).await.unwrap(), None, "once");

        let late = accounts.keep_pending("a secret state", &pending()).await.unwrap().unwrap();
        for secret in [late.as_str(), "a secret state"] {
            assert!(!holds(&accounts.database, folder.path(), secret).await);
        }
        accounts.age_pending().await.unwrap();
        assert_eq!(accounts.take_pending("a secret state", &late).await.unwrap(), None);
        let ada = accounts.add_user(&"ada".parse().unwrap(), true).await.unwrap();
        let own = Pending { user_id: Some(ada.id), ..pending() };
        let browser = accounts.keep_pending("state", &own).await.unwrap().unwrap();
        assert_eq!(accounts.take_pending("state", &browser).await.unwrap(), Some(own));
    }

    #[tokio::test]
    async fn those_on_their_way_are_bounded_and_the_late_ones_make_room() {
        let (_folder, accounts) = accounts().await;
        sqlx::query(
            "INSERT INTO pending_sign_ins (state_sha256, browser_sha256, nonce, verifier, next, expires_at) \
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) \
             SELECT 's' || i, 'b', 'n', 'v', '/', $2 FROM n",
        )
        .bind(MOST)
        .bind(i64::MAX)
        .execute(&accounts.pool)
        .await
        .unwrap();
        assert_eq!(accounts.keep_pending("one more", &pending()).await.unwrap(), None);
        accounts.age_pending().await.unwrap();
        assert!(accounts.keep_pending("one more", &pending()).await.unwrap().is_some());
    }
}
