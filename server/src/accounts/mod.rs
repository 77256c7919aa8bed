//! Who is who: users with passwords, their sessions, tokens and identities at a provider, projects with members, and the record of what was done.
//!
//! Knows no route and no cookie; what a role may do stands in `access`.

mod audit;
mod choice;
mod identities;
mod pending;
mod projects;
mod roles;
mod secret;
mod sessions;
mod set_up;
mod throttle;
mod tokens;
mod users;

pub use audit::{Action, AuditEntry};
pub use choice::check_choice;
pub use identities::{Claimed, Entrance, Identity, NewUsers};
pub use pending::{PENDING, Pending};
pub use projects::{DEFAULT_PROJECT, Member, Membership, Project};
pub use roles::{Role, Scope, Scopes};
pub use sessions::{IDLE, LONGEST, LONGEST_BY_PROVIDER, NewSession};
pub use set_up::{FIRST_LINK, SetUpFor, USER_LINK};
pub use throttle::Throttle;
pub use tokens::{NewToken, TokenHolder, TokenInfo};
pub use users::{User, UserName};

use crate::store::{ANSWERS_WITHIN, Database, Store, StoreError};
use sqlx::{Any, AnyPool, any::AnyArguments, query::Query};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};
use tokio::{sync::Mutex, time::timeout};

/// Another process may make the first administrator (`rankscope user add`); it is seen after this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Users and what belongs to them, in the store's database.
#[derive(Debug)]
pub struct Accounts {
    database: Database,
    /// Of `database`, for what reads or changes one row.
    pool: AnyPool,
    /// There is an administrator. The last one cannot be removed, so this never turns back.
    is_set_up: AtomicBool,
    looked_at: Mutex<Option<Instant>>,
}

impl Accounts {
    /// The accounts of an open store.
    pub fn of(store: &Store) -> Self {
        Self::over(store.database().clone())
    }

    /// The accounts in a database whose migrations have run.
    pub fn over(database: Database) -> Self {
        Self { pool: database.pool().clone(), database, is_set_up: AtomicBool::new(false), looked_at: Mutex::default() }
    }

    /// Whether there is an administrator. Until then nobody can sign in.
    pub async fn is_set_up(&self) -> Result<bool, StoreError> {
        if self.is_set_up.load(Ordering::Relaxed) {
            return Ok(true);
        }
        // Held while the database answers: nobody may take "not looked yet" for "no". Who waits for one that does not
        // answer need not wait once more behind each of the others.
        let looked_at = timeout(ANSWERS_WITHIN, self.looked_at.lock()).await;
        let mut looked_at = looked_at.map_err(|_| sqlx::Error::PoolTimedOut)?;
        if looked_at.is_some_and(|at| at.elapsed() < LOOK_AGAIN) {
            return Ok(self.is_set_up.load(Ordering::Relaxed));
        }
        let admins: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM users WHERE is_admin = 1").fetch_one(&self.pool).await?;
        *looked_at = Some(Instant::now());
        if admins > 0 {
            self.is_set_up.store(true, Ordering::Relaxed);
        }
        Ok(admins > 0)
    }

    /// Makes a change whose condition looks at other rows, so that none of them changes in between. Gives how many rows it
    /// has changed.
    async fn change(&self, query: Query<'_, Any, AnyArguments>) -> Result<u64, StoreError> {
        let mut transaction = self.database.begin().await?;
        let done = query.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(done.rows_affected())
    }

    /// A user was made here: the next request looks at once.
    async fn look_again(&self) {
        *self.looked_at.lock().await = None;
    }
}
