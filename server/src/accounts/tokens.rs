//! Tokens for agents and scripts: of one user, in one project, for what their scopes say. Shown once, stored hashed.

use super::{
    Accounts, Role, Scopes,
    secret::{hash, new_secret},
    sessions::after,
};
use crate::{
    errors::{Problem, Result},
    intake::clean_line,
    store::{DbRow, StoreError, new_id, now},
};
use rankscope_model::UnixMicros;
use sqlx::Row;
use std::time::Duration;

/// What every token begins with, so that people and scanners know one when they see it.
const PREFIX: &str = "rks_";
/// Longest name, in characters.
const MAX_NAME: usize = 80;
/// Tokens of one user that work at the same time.
const MOST: i64 = 100;
/// That a token is used is written down at most so often.
const USED_EVERY: Duration = Duration::from_mins(1);

/// A token as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenInfo {
    /// For revoking.
    pub id: String,
    /// What its owner calls it.
    pub name: String,
    /// What it is for.
    pub scopes: Scopes,
    /// The project in which it works.
    pub project: String,
    /// That project's name.
    pub project_name: String,
    /// When it was made.
    pub created_at: UnixMicros,
    /// When it ends by itself.
    pub expires_at: Option<UnixMicros>,
    /// When it was revoked.
    pub revoked_at: Option<UnixMicros>,
    /// When it was used last, to the minute.
    pub used_at: Option<UnixMicros>,
}

/// A token at the only moment at which it is known.
#[derive(Debug)]
pub struct NewToken {
    /// For revoking.
    pub id: String,
    /// What whoever uses it must show.
    pub token: String,
}

/// What a valid token stands for at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenHolder {
    /// The token.
    pub id: String,
    /// What its owner calls it.
    pub name: String,
    /// Its owner's name.
    pub user_name: String,
    /// The only project in which it works.
    pub project: String,
    /// What it is for.
    pub scopes: Scopes,
    /// What its owner is in that project.
    pub role: Role,
}

impl Accounts {
    /// Makes a token. The caller has checked that the user may in that project what the scopes say.
    pub async fn add_token(
        &self,
        user: &str,
        project: &str,
        name: &str,
        scopes: &Scopes,
        lasts: Option<Duration>,
    ) -> Result<NewToken> {
        let name = clean_line(name, MAX_NAME).ok_or_else(|| Problem::invalid("A token needs a name."))?;
        if scopes.is_empty() {
            return Err(Problem::invalid("Choose what the token is for."));
        }
        let at = now();
        let working: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM tokens WHERE user_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)",
        )
        .bind(user)
        .bind(at.0)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::from)?;
        if working >= MOST {
            return Err(Problem::invalid(format!("A user has at most {MOST} tokens. Revoke one that is not used.")));
        }
        let made = NewToken { id: new_id(), token: format!("{PREFIX}{}", new_secret()) };
        sqlx::query(
            "INSERT INTO tokens (id, user_id, project_id, name, scopes, token_sha256, created_at, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(&made.id)
        .bind(user)
        .bind(project)
        .bind(name)
        .bind(scopes.to_string())
        .bind(hash(&made.token))
        .bind(at.0)
        .bind(lasts.map(|lasts| after(at, lasts)))
        .execute(&self.pool)
        .await
        .map_err(StoreError::from)?;
        Ok(made)
    }

    /// The tokens of a user, newest first, ended ones included.
    pub async fn tokens_of(&self, user: &str) -> Result<Vec<TokenInfo>, StoreError> {
        let rows = sqlx::query(
            "SELECT t.id, t.name, t.scopes, t.project_id, p.name AS project_name, t.created_at, t.expires_at, \
             t.revoked_at, t.used_at FROM tokens t JOIN projects p ON p.id = t.project_id WHERE t.user_id = $1 \
             ORDER BY t.created_at DESC, t.id DESC",
        )
        .bind(user)
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(token_info).collect()
    }

    /// Ends a token of a user; ending it twice is no error.
    pub async fn revoke_token(&self, token: &str, user: &str) -> Result<String, StoreError> {
        let name: String = sqlx::query_scalar(
            "UPDATE tokens SET revoked_at = COALESCE(revoked_at, $1) WHERE id = $2 AND user_id = $3 RETURNING name",
        )
        .bind(now().0)
        .bind(token)
        .bind(user)
        .fetch_one(&self.pool)
        .await?;
        Ok(name)
    }

    /// What a token stands for: nothing if it has ended, its owner is disabled or no longer a member.
    pub async fn token_holder(&self, token: &str) -> Result<Option<TokenHolder>, StoreError> {
        let at = now();
        let row = sqlx::query(
            "SELECT t.id, t.name, t.scopes, t.project_id, t.used_at, u.name AS user_name, u.is_admin, m.role \
             FROM tokens t JOIN users u ON u.id = t.user_id \
             LEFT JOIN memberships m ON m.user_id = t.user_id AND m.project_id = t.project_id \
             WHERE t.token_sha256 = $1 AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > $2) \
             AND u.disabled_at IS NULL",
        )
        .bind(hash(token))
        .bind(at.0)
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let role = if row.try_get::<i64, _>("is_admin")? != 0 {
            Some(Role::Admin)
        } else {
            row.try_get::<Option<String>, _>("role")?.as_deref().and_then(Role::from_slug)
        };
        let Some(role) = role else { return Ok(None) };
        let id: String = row.try_get("id")?;
        let used_at = row.try_get::<Option<i64>, _>("used_at")?.unwrap_or_default();
        if used_at <= at.0.saturating_sub(i64::try_from(USED_EVERY.as_micros()).unwrap_or(i64::MAX)) {
            sqlx::query("UPDATE tokens SET used_at = $1 WHERE id = $2")
                .bind(at.0)
                .bind(&id)
                .execute(&self.pool)
                .await?;
        }
        Ok(Some(TokenHolder {
            id,
            name: row.try_get("name")?,
            user_name: row.try_get("user_name")?,
            project: row.try_get("project_id")?,
            scopes: Scopes::from_text(row.try_get("scopes")?),
            role,
        }))
    }
}

fn token_info(row: &DbRow) -> Result<TokenInfo, StoreError> {
    let time = |column: &str| row.try_get::<Option<i64>, _>(column).map(|at| at.map(UnixMicros));
    Ok(TokenInfo {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        scopes: Scopes::from_text(row.try_get("scopes")?),
        project: row.try_get("project_id")?,
        project_name: row.try_get("project_name")?,
        created_at: UnixMicros(row.try_get("created_at")?),
        expires_at: time("expires_at")?,
        revoked_at: time("revoked_at")?,
        used_at: time("used_at")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        accounts::{DEFAULT_PROJECT, Scope, users::tests::accounts},
        store::testing::holds,
    };

    #[tokio::test]
    async fn tokens_work_until_they_are_revoked_expire_or_their_owner_leaves() {
        let (folder, accounts) = accounts().await;
        let bo_name = "bo".parse().unwrap();
        let bo = accounts.add_user(&bo_name, false).await.unwrap();
        let scopes = Scopes::new(&[Scope::Upload]);
        let make = async |lasts| accounts.add_token(&bo.id, DEFAULT_PROJECT, "node 7", &scopes, lasts).await.unwrap();
        let holder = async |token: &str| accounts.token_holder(token).await.unwrap();
        let token = make(None).await;
        assert!(token.token.starts_with("rks_") && token.token.len() == 47);
        assert_eq!(holder(&token.token).await, None, "its owner is no member");
        accounts.set_member(DEFAULT_PROJECT, &bo_name, Some(Role::Editor)).await.unwrap();
        assert_eq!(accounts.tokens_of(&bo.id).await.unwrap()[0].used_at, None);
        let found = holder(&token.token).await.unwrap();
        assert_eq!((found.role, found.project.as_str(), found.user_name.as_str()), (Role::Editor, "default", "bo"));
        let used_at = accounts.tokens_of(&bo.id).await.unwrap()[0].used_at;
        assert!(used_at.is_some());
        holder(&token.token).await.unwrap();
        assert_eq!(accounts.tokens_of(&bo.id).await.unwrap()[0].used_at, used_at, "written once a minute");

        assert!(matches!(accounts.revoke_token(&token.id, "somebody").await, Err(StoreError::Missing)));
        assert_eq!(accounts.revoke_token(&token.id, &bo.id).await.unwrap(), "node 7");
        accounts.revoke_token(&token.id, &bo.id).await.unwrap();
        assert_eq!(holder(&token.token).await, None);
        assert_eq!(holder(&make(Some(Duration::ZERO)).await.token).await, None);
        assert_eq!(holder("rks_guess").await, None);
        let other = make(None).await;
        accounts.set_disabled(&bo.id, true).await.unwrap();
        assert_eq!(holder(&other.token).await, None);
        assert!(holds(&accounts.database, folder.path(), &hash(&other.token)).await);
        assert!(!holds(&accounts.database, folder.path(), &other.token).await);
        let nothing = accounts.add_token(&bo.id, DEFAULT_PROJECT, "x", &Scopes::default(), None).await;
        assert!(nothing.is_err());
    }
}
