//! Who is who at a provider of sign-ins: an issuer and a subject open one account. Never a name or an e-mail address by
//! itself: those go from one person to another, and not every provider checks them.
//!
//! An identity that opens no account yet waits for somebody to say whose it is: an administrator, or the person who has
//! shown it while signed in.

use super::{Accounts, DEFAULT_PROJECT, Role, User, UserName, sessions::before};
use crate::{
    errors::{Problem, ProblemKind, Result},
    store::{DbRow, StoreError, new_id, now, plain},
};
use clap::ValueEnum;
use rankscope_model::UnixMicros;
use sqlx::{AnyConnection, Row};
use std::time::Duration;

/// Identities that wait at most; beyond that those are forgotten that were not shown for longest.
const WAITING_MOST: i64 = 200;
/// One that is not shown for so long waits no more.
const WAITING_LONGEST: Duration = Duration::from_hours(30 * 24);

/// What becomes of somebody who comes for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum NewUsers {
    /// An administrator decides; until then nobody is let in.
    #[default]
    Ask,
    /// Gets an account without rights in any project.
    Account,
    /// Gets an account that may look at the runs of the project Default.
    Viewer,
}

/// Somebody as a provider knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Which provider.
    pub issuer: String,
    /// Stays the same for ever.
    pub subject: String,
    /// For people to read.
    pub shown: String,
    /// The name that an account would get.
    pub name: Option<UserName>,
}

/// An identity that was shown here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its row.
    pub id: String,
    /// Which provider.
    pub issuer: String,
    /// Who there.
    pub subject: String,
    /// What the provider calls this person.
    pub shown: String,
    /// Whose account it opens.
    pub user_id: Option<String>,
    /// Who has shown it while signed in, and has not taken it yet.
    pub wanted_by: Option<String>,
    /// When it was shown last.
    pub seen_at: UnixMicros,
}

/// What comes of showing an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entrance {
    /// It opens this account.
    Open(User),
    /// It opens this account, which was made for it just now.
    New(User),
    /// It opens an account with which nobody may sign in.
    Disabled(User),
    /// It opens none yet.
    Waits,
}

const COLUMNS: &str = "SELECT id, issuer, subject, name, user_id, wanted_by, seen_at FROM identities";

fn identity(row: &DbRow) -> Result<Identity, StoreError> {
    Ok(Identity {
        id: row.try_get("id")?,
        issuer: row.try_get("issuer")?,
        subject: row.try_get("subject")?,
        shown: row.try_get("name")?,
        user_id: row.try_get("user_id")?,
        wanted_by: row.try_get("wanted_by")?,
        seen_at: UnixMicros(row.try_get("seen_at")?),
    })
}

impl Accounts {
    /// Whom an identity lets in.
    pub async fn enter(&self, claimed: &Claimed, new_users: NewUsers) -> Result<Entrance> {
        let mut transaction = self.database.begin().await?;
        let known = keep(&mut transaction, claimed, None).await?;
        let entrance = match known.user_id {
            Some(user) => Some((user, false)),
            None if new_users == NewUsers::Ask => None,
            None => make_user(&mut transaction, &known.id, claimed, new_users).await?.map(|user| (user, true)),
        };
        transaction.commit().await.map_err(StoreError::from)?;
        let Some((user, is_new)) = entrance else { return Ok(Entrance::Waits) };
        let user = self.user(&user).await?;
        if is_new {
            self.look_again().await;
            return Ok(Entrance::New(user));
        }
        Ok(if user.disabled_at.is_some() { Entrance::Disabled(user) } else { Entrance::Open(user) })
    }

    /// Notes that somebody who is signed in has shown an identity and may take it. Whose it is already, if it is somebody's.
    pub async fn want(&self, claimed: &Claimed, user: &str) -> Result<Option<String>> {
        let mut transaction = self.database.begin().await?;
        let known = keep(&mut transaction, claimed, Some(user)).await?;
        transaction.commit().await.map_err(StoreError::from)?;
        Ok(known.user_id)
    }

    /// Lets an identity that waits open an account; for its owner only one that this owner has shown.
    pub async fn link(&self, id: &str, user: &str, is_own_wish: bool) -> Result<Identity> {
        let sql = "UPDATE identities SET user_id = $1, wanted_by = NULL WHERE id = $2 AND user_id IS NULL \
            AND ($3 = 0 OR wanted_by = $1) RETURNING id, issuer, subject, name, user_id, wanted_by, seen_at";
        let rows = sqlx::query(sql).bind(user).bind(id).bind(i64::from(is_own_wish)).fetch_all(&self.pool).await;
        let rows = rows.map_err(StoreError::from)?;
        Ok(identity(rows.first().ok_or_else(no_longer)?)?)
    }

    /// Makes an account for an identity that waits.
    pub async fn add_user_of(&self, id: &str, name: &UserName) -> Result<(User, Identity)> {
        let mut transaction = self.database.begin().await?;
        let found =
            sqlx::query("SELECT user_id FROM identities WHERE id = $1").bind(id).fetch_optional(&mut *transaction);
        let found = found.await.map_err(StoreError::from)?.ok_or_else(no_longer)?;
        if found.try_get::<Option<String>, _>("user_id").map_err(StoreError::from)?.is_some() {
            return Err(no_longer());
        }
        let Some(user) = insert_user(&mut transaction, name).await? else {
            return Err(Problem::invalid(format!(
                "There is a user {} already. Choose another name, or let this identity open that account.",
                name.as_str()
            )));
        };
        open(&mut transaction, id, &user).await?;
        transaction.commit().await.map_err(StoreError::from)?;
        self.look_again().await;
        Ok((self.user(&user).await?, self.identity(id).await?))
    }

    /// Forgets an identity of a user, or one that this user has shown. Not the last way in.
    pub async fn remove_own_identity(&self, id: &str, user: &User) -> Result<Identity> {
        let found = self.identity(id).await?;
        if found.user_id.as_deref() == Some(&user.id) {
            let others =
                self.identities_of(&user.id).await?.into_iter().filter(|other| other.user_id.is_some()).count();
            if !user.has_password && others < 2 {
                return Err(Problem::invalid(
                    "This is your only way in. Ask an administrator for a link to choose a password first.",
                ));
            }
        } else if found.wanted_by.as_deref() != Some(&user.id) {
            return Err(no_longer());
        }
        self.remove_identity(id).await?;
        Ok(found)
    }

    /// Forgets an identity. Whoever shows it again comes for the first time.
    pub async fn remove_identity(&self, id: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM identities WHERE id = $1").bind(id).execute(&self.pool).await?;
        Ok(())
    }

    /// One identity.
    pub async fn identity(&self, id: &str) -> Result<Identity> {
        let sql = sqlx::AssertSqlSafe(format!("{COLUMNS} WHERE id = $1"));
        let row = sqlx::query(sql).bind(id).fetch_optional(&self.pool).await.map_err(StoreError::from)?;
        Ok(identity(&row.ok_or_else(no_longer)?)?)
    }

    /// What opens a user's account, and what this user has shown and not taken yet.
    pub async fn identities_of(&self, user: &str) -> Result<Vec<Identity>, StoreError> {
        let sql = format!("{COLUMNS} WHERE user_id = $1 OR (user_id IS NULL AND wanted_by = $1) ORDER BY name, id");
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(user).fetch_all(&self.pool).await?;
        rows.iter().map(identity).collect()
    }

    /// All that were shown here and not forgotten.
    pub async fn identities(&self) -> Result<Vec<Identity>, StoreError> {
        let sql = format!("{COLUMNS} ORDER BY name, id");
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(&self.pool).await?;
        rows.iter().map(identity).collect()
    }
}

fn no_longer() -> Problem {
    Problem::new(
        ProblemKind::InvalidRequest,
        "This identity was forgotten, or opens an account already. Load the page again.",
    )
}

/// The row of an identity, as it is shown now.
async fn keep(
    connection: &mut AnyConnection,
    claimed: &Claimed,
    wanted_by: Option<&str>,
) -> Result<Identity, StoreError> {
    let at = now();
    sqlx::query(
        "INSERT INTO identities (id, issuer, subject, name, wanted_by, created_at, seen_at) VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT (issuer, subject) DO UPDATE SET name = excluded.name, seen_at = excluded.seen_at, \
         wanted_by = COALESCE(excluded.wanted_by, identities.wanted_by)",
    )
    .bind(new_id())
    .bind(&claimed.issuer)
    .bind(plain(&claimed.subject))
    .bind(plain(&claimed.shown))
    .bind(wanted_by)
    .bind(at.0)
    .bind(at.0)
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "DELETE FROM identities WHERE user_id IS NULL AND (seen_at <= $1 OR id NOT IN \
         (SELECT id FROM identities WHERE user_id IS NULL ORDER BY seen_at DESC, id DESC LIMIT $2))",
    )
    .bind(before(at, WAITING_LONGEST))
    .bind(WAITING_MOST)
    .execute(&mut *connection)
    .await?;
    let sql = format!("{COLUMNS} WHERE issuer = $1 AND subject = $2");
    let row = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(&claimed.issuer)
        .bind(plain(&claimed.subject))
        .fetch_one(&mut *connection)
        .await?;
    identity(&row)
}

/// An account for somebody new. None where the name is no name here, or somebody's: who looks like somebody else waits for
/// an administrator.
async fn make_user(
    connection: &mut AnyConnection,
    identity: &str,
    claimed: &Claimed,
    new_users: NewUsers,
) -> Result<Option<String>, StoreError> {
    let Some(name) = &claimed.name else { return Ok(None) };
    let Some(user) = insert_user(connection, name).await? else { return Ok(None) };
    open(connection, identity, &user).await?;
    if new_users == NewUsers::Viewer {
        sqlx::query("INSERT INTO memberships (project_id, user_id, role, created_at) VALUES ($1, $2, $3, $4)")
            .bind(DEFAULT_PROJECT)
            .bind(&user)
            .bind(Role::Viewer.slug())
            .bind(now().0)
            .execute(&mut *connection)
            .await?;
    }
    Ok(Some(user))
}

/// A user without rights; `None` if the name is taken.
async fn insert_user(connection: &mut AnyConnection, name: &UserName) -> Result<Option<String>, StoreError> {
    let id = new_id();
    let inserted = sqlx::query(
        "INSERT INTO users (id, name, is_admin, created_at) VALUES ($1, $2, 0, $3) ON CONFLICT (name) DO NOTHING",
    )
    .bind(&id)
    .bind(name.as_str())
    .bind(now().0)
    .execute(&mut *connection)
    .await?;
    Ok((inserted.rows_affected() > 0).then_some(id))
}

async fn open(connection: &mut AnyConnection, identity: &str, user: &str) -> Result<(), StoreError> {
    sqlx::query("UPDATE identities SET user_id = $1, wanted_by = NULL WHERE id = $2")
        .bind(user)
        .bind(identity)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::users::tests::accounts;

    fn claimed(subject: &str, name: &str) -> Claimed {
        Claimed {
            issuer: "https://id.example.org".into(),
            subject: subject.into(),
            shown: name.into(),
            name: name.parse().ok(),
        }
    }

    #[tokio::test]
    async fn who_is_new_waits_or_gets_an_account_as_it_was_set() {
        let (_folder, accounts) = accounts().await;
        let ada = claimed("1", "ada@example.org");
        assert_eq!(accounts.enter(&ada, NewUsers::Ask).await.unwrap(), Entrance::Waits);
        assert_eq!(accounts.enter(&ada, NewUsers::Ask).await.unwrap(), Entrance::Waits);
        assert_eq!(accounts.identities().await.unwrap().len(), 1, "shown twice, one row");

        let Entrance::New(user) = accounts.enter(&ada, NewUsers::Account).await.unwrap() else { panic!() };
        assert_eq!((user.name.as_str(), user.is_admin, user.has_password), ("ada@example.org", false, false));
        assert!(accounts.memberships(&user).await.unwrap().is_empty());
        assert_eq!(accounts.enter(&ada, NewUsers::Ask).await.unwrap(), Entrance::Open(user.clone()));
        // Another name at the provider is still the same person, and the same name there may be another one.
        assert_eq!(accounts.enter(&claimed("1", "x"), NewUsers::Ask).await.unwrap(), Entrance::Open(user));
        let elsewhere = Claimed { issuer: "https://other.example".into(), ..claimed("1", "ada@example.org") };
        assert_eq!(accounts.enter(&elsewhere, NewUsers::Account).await.unwrap(), Entrance::Waits);

        let Entrance::New(bo) = accounts.enter(&claimed("2", "bo"), NewUsers::Viewer).await.unwrap() else { panic!() };
        let memberships = accounts.memberships(&bo).await.unwrap();
        assert_eq!((memberships.len(), memberships[0].role), (1, Role::Viewer));
        accounts.add_user(&"root".parse().unwrap(), true).await.unwrap();
        accounts.set_disabled(&bo.id, true).await.unwrap();
        let shut = accounts.enter(&claimed("2", "bo"), NewUsers::Viewer).await.unwrap();
        assert!(matches!(shut, Entrance::Disabled(user) if user.id == bo.id));
    }

    #[tokio::test]
    async fn a_name_that_is_taken_opens_nothing() {
        let (_folder, accounts) = accounts().await;
        let root = accounts.add_user(&"root".parse().unwrap(), true).await.unwrap();
        for new_users in [NewUsers::Ask, NewUsers::Account, NewUsers::Viewer] {
            assert_eq!(accounts.enter(&claimed("7", "root"), new_users).await.unwrap(), Entrance::Waits);
            let nameless = claimed("8", "with space");
            assert_eq!(accounts.enter(&nameless, new_users).await.unwrap(), Entrance::Waits);
        }
        assert_eq!(accounts.users().await.unwrap().len(), 1);
        assert!(accounts.identities_of(&root.id).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn administrators_say_whose_an_identity_is() {
        let (_folder, accounts) = accounts().await;
        let root = accounts.add_user(&"root".parse().unwrap(), true).await.unwrap();
        for (subject, name) in [("1", "ada"), ("2", "bo")] {
            accounts.enter(&claimed(subject, name), NewUsers::Ask).await.unwrap();
        }
        let [ada, bo] = &accounts.identities().await.unwrap()[..] else { panic!() };
        let name = |name: &str| name.parse::<UserName>().unwrap();
        assert!(accounts.add_user_of(&ada.id, &name("root")).await.unwrap_err().detail().contains("already"));
        let (user, _) = accounts.add_user_of(&ada.id, &name("ada.l")).await.unwrap();
        assert_eq!(accounts.enter(&claimed("1", "ada"), NewUsers::Ask).await.unwrap(), Entrance::Open(user.clone()));
        // Not twice, not by somebody who was quicker, and not by who has not shown it.
        assert!(accounts.add_user_of(&ada.id, &name("ada.k")).await.is_err());
        assert!(accounts.link(&ada.id, &root.id, false).await.is_err());
        assert!(accounts.link(&bo.id, &root.id, true).await.is_err());
        assert_eq!(accounts.link(&bo.id, &root.id, false).await.unwrap().user_id, Some(root.id.clone()));
        assert!(accounts.user_by_name(&name("ada.k")).await.is_err(), "a change that fails leaves nothing");

        assert!(accounts.remove_own_identity(&ada.id, &user).await.unwrap_err().detail().contains("only way in"));
        assert!(accounts.remove_own_identity(&bo.id, &user).await.is_err(), "somebody else's");
        accounts.remove_identity(&ada.id).await.unwrap();
        assert_eq!(accounts.enter(&claimed("1", "ada"), NewUsers::Ask).await.unwrap(), Entrance::Waits);
    }

    #[tokio::test]
    async fn who_is_signed_in_takes_only_what_was_shown_in_that_session() {
        let (_folder, accounts) = accounts().await;
        let ada = accounts.add_user(&"ada".parse().unwrap(), true).await.unwrap();
        let bo = accounts.add_user(&"bo".parse().unwrap(), false).await.unwrap();
        assert_eq!(accounts.want(&claimed("1", "ada at home"), &ada.id).await.unwrap(), None);
        let shown = accounts.identities_of(&ada.id).await.unwrap().remove(0);
        assert_eq!((shown.user_id, shown.wanted_by.as_deref()), (None, Some(ada.id.as_str())));
        assert_eq!(accounts.enter(&claimed("1", "ada"), NewUsers::Ask).await.unwrap(), Entrance::Waits, "not yet");
        assert!(accounts.link(&shown.id, &bo.id, true).await.is_err());
        accounts.link(&shown.id, &ada.id, true).await.unwrap();
        assert!(matches!(accounts.enter(&claimed("1", "ada"), NewUsers::Ask).await.unwrap(), Entrance::Open(_)));
        assert_eq!(accounts.want(&claimed("1", "ada"), &bo.id).await.unwrap(), Some(ada.id.clone()));
        assert!(accounts.identities_of(&bo.id).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn those_who_wait_are_bounded() {
        let (_folder, accounts) = accounts().await;
        for n in 0..WAITING_MOST + 5 {
            accounts.enter(&claimed(&n.to_string(), "x"), NewUsers::Ask).await.unwrap();
        }
        let waiting = accounts.identities().await.unwrap();
        assert_eq!(waiting.len(), usize::try_from(WAITING_MOST).unwrap());
        assert!(waiting.iter().all(|identity| identity.subject != "0"), "the oldest went first");
        let long_ago = before(now(), WAITING_LONGEST);
        sqlx::query("UPDATE identities SET seen_at = $1").bind(long_ago).execute(&accounts.pool).await.unwrap();
        accounts.enter(&claimed("new", "x"), NewUsers::Ask).await.unwrap();
        assert_eq!(accounts.identities().await.unwrap().len(), 1);
    }
}
