//! Users: a name, perhaps a password, perhaps the right to do everything.

use super::{
    Accounts,
    choice::{LONGEST_BYTES, check_choice},
};
use crate::{
    errors::{Problem, Result},
    passwords,
    store::{DbRow, StoreError, new_id, now},
};
use rankscope_model::UnixMicros;
use sqlx::Row;

/// Longest name.
const MAX_NAME: usize = 64;

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Stays the same for ever.
    pub id: String,
    /// To sign in with.
    pub name: String,
    /// May do everything, in every project.
    pub is_admin: bool,
    /// Has chosen a password.
    pub has_password: bool,
    /// When the account was made.
    pub created_at: UnixMicros,
    /// Since when nobody can sign in with it.
    pub disabled_at: Option<UnixMicros>,
}

/// A name that may stand in an address, a header and a page: letters and digits of ASCII, and `. _ - @ +`, in lower case.
/// Two names that look the same are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserName(String);

impl std::str::FromStr for UserName {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self> {
        let name = text.trim().to_ascii_lowercase();
        let is_plain = name.bytes().all(|sign| sign.is_ascii_alphanumeric() || b"._-@+".contains(&sign));
        if name.is_empty() || name.len() > MAX_NAME || !is_plain || !name.as_bytes()[0].is_ascii_alphanumeric() {
            return Err(Problem::invalid(format!(
                "A name has 1 to {MAX_NAME} letters, digits or . _ - @ +, and begins with a letter or digit."
            )));
        }
        Ok(Self(name))
    }
}

impl UserName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A query for users `u`, beginning behind their columns.
macro_rules! select_user {
    ($rest:literal) => {
        concat!(
            "SELECT u.id, u.name, u.is_admin, CASE WHEN u.password_hash IS NULL THEN 0 ELSE 1 END AS has_password, \
             u.created_at, u.disabled_at",
            $rest
        )
    };
}
pub(super) use select_user;

pub(super) fn user(row: &DbRow) -> Result<User, StoreError> {
    Ok(User {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        is_admin: row.try_get::<i64, _>("is_admin")? != 0,
        has_password: row.try_get::<i64, _>("has_password")? != 0,
        created_at: UnixMicros(row.try_get("created_at")?),
        disabled_at: row.try_get::<Option<i64>, _>("disabled_at")?.map(UnixMicros),
    })
}

impl Accounts {
    /// Makes a user without a password.
    pub async fn add_user(&self, name: &UserName, is_admin: bool) -> Result<User> {
        let made = User {
            id: new_id(),
            name: name.as_str().to_owned(),
            is_admin,
            has_password: false,
            created_at: now(),
            disabled_at: None,
        };
        let inserted = sqlx::query(
            "INSERT INTO users (id, name, is_admin, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO NOTHING",
        )
        .bind(&made.id)
        .bind(&made.name)
        .bind(i64::from(is_admin))
        .bind(made.created_at.0)
        .execute(&self.pool)
        .await
        .map_err(StoreError::from)?;
        if inserted.rows_affected() == 0 {
            return Err(Problem::invalid(format!("There is a user {} already.", name.as_str())));
        }
        self.look_again().await;
        Ok(made)
    }

    /// All users by name.
    pub async fn users(&self) -> Result<Vec<User>, StoreError> {
        let rows = sqlx::query(select_user!(" FROM users u ORDER BY u.name")).fetch_all(&self.pool).await?;
        rows.iter().map(user).collect()
    }

    /// One user.
    pub async fn user(&self, id: &str) -> Result<User, StoreError> {
        user(&sqlx::query(select_user!(" FROM users u WHERE u.id = $1")).bind(id).fetch_one(&self.pool).await?)
    }

    /// The user of a name.
    pub async fn user_by_name(&self, name: &UserName) -> Result<User, StoreError> {
        user(
            &sqlx::query(select_user!(" FROM users u WHERE u.name = $1"))
                .bind(name.as_str())
                .fetch_one(&self.pool)
                .await?,
        )
    }

    /// The user whom somebody names: that there is none is what they should read.
    pub async fn named_user(&self, name: &UserName) -> Result<User> {
        self.user_by_name(name).await.map_err(|error| match error {
            StoreError::Missing => Problem::invalid(format!("There is no user {}.", name.as_str())),
            error => error.into(),
        })
    }

    /// The user whose name a trusted proxy gives; made if there is none, without rights in any project. `None` if the
    /// account is disabled.
    pub async fn user_of_proxy(&self, name: &UserName) -> Result<Option<User>> {
        let user = match self.user_by_name(name).await {
            Err(StoreError::Missing) => match self.add_user(name, false).await {
                Ok(user) => user,
                // Two of its requests at once.
                Err(_) => self.user_by_name(name).await?,
            },
            known => known?,
        };
        Ok(Some(user).filter(|user| user.disabled_at.is_none()))
    }

    /// The user, if the password is right. Takes as long for a name that nobody has.
    pub async fn user_of_password(&self, name: &UserName, password: String) -> Result<Option<User>> {
        if password.len() > LONGEST_BYTES {
            return Ok(None);
        }
        let sql = select_user!(", u.password_hash FROM users u WHERE u.name = $1 AND u.disabled_at IS NULL");
        let row = sqlx::query(sql).bind(name.as_str()).fetch_optional(&self.pool).await;
        let row = row.map_err(StoreError::from)?;
        let stored = match &row {
            Some(row) => row.try_get::<Option<String>, _>("password_hash").map_err(StoreError::from)?,
            None => None,
        };
        let is_right = passwords::is_right(stored, password).await?;
        match row {
            Some(row) if is_right => Ok(Some(user(&row)?)),
            _ => Ok(None),
        }
    }

    /// Gives a user a password and ends all sessions of that user.
    pub async fn set_password(&self, user: &User, password: String) -> Result<()> {
        check_choice(&user.name, &password)?;
        let hash = passwords::hash(password).await?;
        let updated = sqlx::query("UPDATE users SET password_hash = $1 WHERE id = $2")
            .bind(hash)
            .bind(&user.id)
            .execute(&self.pool)
            .await
            .map_err(StoreError::from)?;
        if updated.rows_affected() == 0 {
            return Err(StoreError::Missing.into());
        }
        Ok(self.end_sessions_of(&user.id).await?)
    }

    /// Makes a user an administrator, or no longer one.
    pub async fn set_admin(&self, id: &str, is_admin: bool) -> Result<()> {
        let sql = "UPDATE users SET is_admin = $1 WHERE id = $2 AND ($1 = 1 OR is_admin = 0 OR EXISTS \
            (SELECT 1 FROM users o WHERE o.is_admin = 1 AND o.disabled_at IS NULL AND o.id <> $2))";
        let changed = self.change(sqlx::query(sql).bind(i64::from(is_admin)).bind(id)).await?;
        self.unless_last(id, changed).await
    }

    /// Keeps a user from signing in, and ends what is signed in; or lets the user back in.
    pub async fn set_disabled(&self, id: &str, is_disabled: bool) -> Result<()> {
        let at = is_disabled.then(|| now().0);
        let sql = "UPDATE users SET disabled_at = $1 WHERE id = $2 AND ($3 = 0 OR is_admin = 0 OR EXISTS \
            (SELECT 1 FROM users o WHERE o.is_admin = 1 AND o.disabled_at IS NULL AND o.id <> $2))";
        let changed = self.change(sqlx::query(sql).bind(at).bind(id).bind(i64::from(is_disabled))).await?;
        self.unless_last(id, changed).await?;
        if is_disabled {
            self.end_sessions_of(id).await?;
        }
        Ok(())
    }

    async fn unless_last(&self, id: &str, changed: u64) -> Result<()> {
        if changed > 0 {
            return Ok(());
        }
        self.user(id).await?;
        Err(Problem::invalid("This is the last administrator. Make another one first."))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::store::Store;
    use tempfile::TempDir;

    pub async fn accounts() -> (TempDir, Accounts) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        (folder, Accounts::of(&store))
    }

    #[test]
    fn names_are_plain_and_without_case() {
        assert_eq!(" Ada.L@example.org ".parse::<UserName>().unwrap().as_str(), "ada.l@example.org");
        for wrong in ["", " ", "a b", "<b>", "аda", "a/b", "-a", "a\nb", &"a".repeat(65), "a'--"] {
            assert!(wrong.parse::<UserName>().is_err(), "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn passwords_open_accounts_until_they_are_disabled() {
        let (_folder, accounts) = accounts().await;
        assert!(!accounts.is_set_up().await.unwrap());
        let name: UserName = "ada".parse().unwrap();
        let ada = accounts.add_user(&name, true).await.unwrap();
        assert!(accounts.is_set_up().await.unwrap());
        assert!(accounts.add_user(&name, false).await.unwrap_err().detail().contains("already"));
        let enter = async |password: &str| accounts.user_of_password(&name, password.into()).await.unwrap();
        assert_eq!(enter("").await, None, "without a password nobody enters");

        accounts.set_password(&ada, "correct horse battery".into()).await.unwrap();
        assert_eq!(enter("correct horse battery").await.map(|user| user.id), Some(ada.id.clone()));
        assert_eq!(enter("wrong horse battery").await, None);
        let nobody = "nobody".parse().unwrap();
        assert_eq!(accounts.user_of_password(&nobody, "correct horse battery".into()).await.unwrap(), None);
        assert!(accounts.set_password(&ada, "short".into()).await.is_err());

        assert!(accounts.set_disabled(&ada.id, true).await.unwrap_err().detail().contains("last administrator"));
        assert!(accounts.set_admin(&ada.id, false).await.unwrap_err().detail().contains("last administrator"));
        let bo = accounts.add_user(&"bo".parse().unwrap(), true).await.unwrap();
        accounts.set_disabled(&ada.id, true).await.unwrap();
        assert_eq!(enter("correct horse battery").await, None);
        assert!(accounts.set_admin(&bo.id, false).await.is_err());
        accounts.set_disabled(&ada.id, false).await.unwrap();
        accounts.set_admin(&bo.id, false).await.unwrap();
        assert!(enter("correct horse battery").await.is_some());
    }

    #[tokio::test]
    async fn who_comes_through_a_proxy_gets_an_account_without_rights() {
        let (_folder, accounts) = accounts().await;
        let name: UserName = "cy@example.org".parse().unwrap();
        let first = accounts.user_of_proxy(&name).await.unwrap().unwrap();
        assert!(!first.is_admin && !first.has_password);
        assert_eq!(accounts.user_of_proxy(&name).await.unwrap(), Some(first.clone()));
        assert!(!accounts.is_set_up().await.unwrap());
        accounts.set_disabled(&first.id, true).await.unwrap();
        assert_eq!(accounts.user_of_proxy(&name).await.unwrap(), None);
    }
}
