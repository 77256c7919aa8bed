//! Links with which somebody chooses a password, once: the first administrator, a new user, who has forgotten it. So no
//! administrator ever knows another's password.

use super::{
    Accounts, User, UserName,
    choice::check_choice,
    secret::{hash, new_secret},
    sessions::after,
};
use crate::{
    errors::{Problem, Result},
    passwords,
    store::{StoreError, new_id, now},
};
use sqlx::{AnyConnection, Row};
use std::time::Duration;

/// Time to make the first administrator; a restart gives a new link.
pub const FIRST_LINK: Duration = Duration::from_hours(1);
/// Time for a user to choose a password.
pub const USER_LINK: Duration = Duration::from_hours(3 * 24);

/// What a link is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetUpFor {
    /// The first administrator, who also chooses a name.
    FirstAdmin,
    /// A user that is there already.
    User(User),
}

impl Accounts {
    /// One more link for the first administrator, beside those of other servers on the same database.
    pub async fn one_more_first_link(&self) -> Result<String, StoreError> {
        let (secret, at) = (new_secret(), now());
        sqlx::query(
            "INSERT INTO set_up_links (secret_sha256, user_id, created_at, expires_at) VALUES ($1, NULL, $2, $3)",
        )
        .bind(hash(&secret))
        .bind(at.0)
        .bind(after(at, FIRST_LINK))
        .execute(&self.pool)
        .await?;
        Ok(secret)
    }

    /// A new link for a user, or for the first administrator. Earlier ones for the same end.
    pub async fn new_set_up_link(&self, user: Option<&str>) -> Result<String, StoreError> {
        let (secret, at) = (new_secret(), now());
        let lasts = if user.is_some() { USER_LINK } else { FIRST_LINK };
        let mut transaction = self.database.begin().await?;
        match user {
            Some(user) => sqlx::query("DELETE FROM set_up_links WHERE user_id = $1 OR expires_at <= $2").bind(user),
            None => sqlx::query("DELETE FROM set_up_links WHERE user_id IS NULL OR expires_at <= $1"),
        }
        .bind(at.0)
        .execute(&mut *transaction)
        .await?;
        sqlx::query(
            "INSERT INTO set_up_links (secret_sha256, user_id, created_at, expires_at) VALUES ($1, $2, $3, $4)",
        )
        .bind(hash(&secret))
        .bind(user)
        .bind(at.0)
        .bind(after(at, lasts))
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(secret)
    }

    /// What a link is for, if it still works. Looking at it does not use it up.
    pub async fn set_up_for(&self, secret: &str) -> Result<Option<SetUpFor>, StoreError> {
        let row = sqlx::query("SELECT user_id FROM set_up_links WHERE secret_sha256 = $1 AND expires_at > $2")
            .bind(hash(secret))
            .bind(now().0)
            .fetch_optional(&self.pool)
            .await?;
        let Some(row) = row else { return Ok(None) };
        match row.try_get::<Option<String>, _>("user_id")? {
            Some(user) => Ok(Some(SetUpFor::User(self.user(&user).await?))),
            None if self.is_set_up().await? => Ok(None),
            None => Ok(Some(SetUpFor::FirstAdmin)),
        }
    }

    /// Uses a link up: sets the password, and for the first administrator makes the account under `name`. `None` if the
    /// link does not work (any more).
    pub async fn use_set_up_link(&self, secret: &str, name: &str, password: String) -> Result<Option<User>> {
        let user = match self.set_up_for(secret).await? {
            None => return Ok(None),
            Some(SetUpFor::User(user)) => Some(user),
            Some(SetUpFor::FirstAdmin) => None,
        };
        let name: UserName = user.as_ref().map_or(name, |user| &user.name).parse()?;
        check_choice(name.as_str(), &password)?;
        // Before the link is used up, so that a mistake above costs nobody the link.
        let hashed = passwords::hash(password).await?;
        if !self.take(secret, user.as_ref(), &name, &hashed).await? {
            return Ok(None);
        }
        self.look_again().await;
        Ok(Some(self.user_by_name(&name).await?))
    }

    /// In one transaction, so that of two who come with the same link one finds it used.
    async fn take(&self, secret: &str, user: Option<&User>, name: &UserName, hashed: &str) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin().await?;
        let taken = sqlx::query("DELETE FROM set_up_links WHERE secret_sha256 = $1")
            .bind(hash(secret))
            .execute(&mut *transaction)
            .await?;
        if taken.rows_affected() == 0 {
            return Ok(false);
        }
        let is_made = match user {
            Some(user) => give_password(&mut transaction, &user.id, hashed).await.map(|()| true),
            None => make_first(&mut transaction, name, hashed).await,
        };
        if !is_made? {
            return Ok(false);
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// The words for a link that does not work.
    pub fn no_such_link() -> Problem {
        Problem::new(
            crate::errors::ProblemKind::NotFound,
            "The link was used, has ended or is not complete. Ask an administrator for a new one.",
        )
    }
}

async fn give_password(connection: &mut AnyConnection, user: &str, hashed: &str) -> Result<(), StoreError> {
    sqlx::query("UPDATE users SET password_hash = $1 WHERE id = $2")
        .bind(hashed)
        .bind(user)
        .execute(&mut *connection)
        .await?;
    sqlx::query("DELETE FROM sessions WHERE user_id = $1").bind(user).execute(&mut *connection).await?;
    Ok(())
}

/// Makes the first administrator; `false` if somebody was quicker.
async fn make_first(connection: &mut AnyConnection, name: &UserName, hashed: &str) -> Result<bool, StoreError> {
    let admins: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM users WHERE is_admin = 1").fetch_one(&mut *connection).await?;
    if admins > 0 {
        return Ok(false);
    }
    // The name may be there without rights, from a trusted proxy.
    sqlx::query(
        "INSERT INTO users (id, name, password_hash, is_admin, created_at) VALUES ($1, $2, $3, 1, $4) \
         ON CONFLICT (name) DO UPDATE SET password_hash = excluded.password_hash, is_admin = 1",
    )
    .bind(new_id())
    .bind(name.as_str())
    .bind(hashed)
    .bind(now().0)
    .execute(&mut *connection)
    .await?;
    sqlx::query("DELETE FROM set_up_links WHERE user_id IS NULL").execute(&mut *connection).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::users::tests::accounts;

    const PASSWORD: &str = "correct horse battery";

    #[tokio::test]
    async fn the_first_link_makes_one_administrator_and_no_second() {
        let (_folder, accounts) = accounts().await;
        let (old, link) =
            (accounts.new_set_up_link(None).await.unwrap(), accounts.new_set_up_link(None).await.unwrap());
        assert_eq!(accounts.set_up_for(&old).await.unwrap(), None, "a new link ends the old one");
        assert_eq!(accounts.set_up_for(&link).await.unwrap(), Some(SetUpFor::FirstAdmin));
        assert!(accounts.use_set_up_link(&link, "ada", "short".into()).await.is_err());
        assert!(accounts.use_set_up_link(&link, "<b>", PASSWORD.into()).await.is_err());
        let used = |name| accounts.use_set_up_link(&link, name, PASSWORD.into());
        let (one, other) = tokio::join!(used("ada"), used("mallory"));
        let made: Vec<User> = [one.unwrap(), other.unwrap()].into_iter().flatten().collect();
        assert_eq!(made.len(), 1, "{made:?}");
        assert!(made[0].is_admin && made[0].has_password);
        assert_eq!(used("mallory").await.unwrap(), None);
        let late = accounts.new_set_up_link(None).await.unwrap();
        assert_eq!(accounts.use_set_up_link(&late, "mallory", PASSWORD.into()).await.unwrap(), None);
        assert_eq!(accounts.users().await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn each_server_has_a_first_link_and_together_they_make_one_administrator() {
        let (_folder, accounts) = accounts().await;
        let one = accounts.one_more_first_link().await.unwrap();
        let other = accounts.one_more_first_link().await.unwrap();
        assert_eq!(accounts.set_up_for(&one).await.unwrap(), Some(SetUpFor::FirstAdmin));
        assert!(accounts.use_set_up_link(&other, "ada", PASSWORD.into()).await.unwrap().is_some());
        assert_eq!(accounts.use_set_up_link(&one, "mallory", PASSWORD.into()).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_users_link_sets_the_password_once_and_ends_sessions() {
        let (_folder, accounts) = accounts().await;
        let ada = accounts.add_user(&"ada".parse().unwrap(), true).await.unwrap();
        let session = accounts.start_session(&ada.id).await.unwrap().secret;
        let link = accounts.new_set_up_link(Some(&ada.id)).await.unwrap();
        let done = accounts.use_set_up_link(&link, "someone-else", PASSWORD.into()).await.unwrap().unwrap();
        assert_eq!(done.name, "ada");
        assert_eq!(accounts.user_of_session(&session).await.unwrap(), None);
        assert_eq!(accounts.use_set_up_link(&link, "", PASSWORD.into()).await.unwrap(), None);

        let link = accounts.new_set_up_link(Some(&ada.id)).await.unwrap();
        sqlx::query("UPDATE set_up_links SET expires_at = 1").execute(&accounts.pool).await.unwrap();
        assert_eq!(accounts.set_up_for(&link).await.unwrap(), None);
    }
}
