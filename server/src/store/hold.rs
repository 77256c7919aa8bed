//! The hold of one server on a database that several could reach. Without a bucket files, live data and markers stand
//! beside the server, so two on one database would each know half. An embedded database needs none, because its folder has
//! a lock. Servers that share a bucket too have `replica` instead, which keeps this lock together with others.
//!
//! It is a lock of a session, so it ends with its connection, whatever becomes of the process. A task keeps that
//! connection, and takes the hold again when the database was away.

use super::{
    StoreError,
    database::{ANSWERS_WITHIN, Database, Engine, NOTICE},
};
use sqlx::{AnyConnection, ConnectOptions, Connection, any::AnyConnectOptions};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

/// How long is waited for others.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// At the start: a server that just ended is forgotten by the database after a moment.
    start: Duration,
    /// Between two looks at the connection.
    look: Duration,
    /// Until a hold that another has is given up: our own old session may have it, until the database notices its end.
    give_up: Duration,
}

const PATIENCE: Patience =
    Patience { start: Duration::from_secs(3), look: Duration::from_secs(2), give_up: Duration::from_mins(1) };

/// Ends when it is dropped.
#[derive(Debug)]
pub struct Hold {
    keeper: Option<JoinHandle<()>>,
    is_lost: watch::Receiver<bool>,
}

impl Hold {
    /// Holds a database; `None` if another does.
    pub async fn of(database: &Database) -> Result<Option<Self>, StoreError> {
        Self::with_patience(database, PATIENCE).await
    }

    async fn with_patience(database: &Database, patience: Patience) -> Result<Option<Self>, StoreError> {
        let (lost, is_lost) = watch::channel(false);
        if database.engine() == Engine::Sqlite {
            return Ok(Some(Self { keeper: None, is_lost }));
        }
        let options = database.pool().connect_options();
        let until = Instant::now() + patience.start;
        loop {
            if let Some(connection) = take(&options).await? {
                let keeper = tokio::spawn(keep(options, connection, lost, patience));
                return Ok(Some(Self { keeper: Some(keeper), is_lost }));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Resolves when another server has taken the database after it was away.
    pub async fn lost(&self) {
        let mut is_lost = self.is_lost.clone();
        if is_lost.wait_for(|lost| *lost).await.is_err() {
            // Nobody keeps it, so nobody loses it.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
    }
}

/// A connection of its own, for locks that end with it.
pub(super) async fn session(options: &AnyConnectOptions) -> Result<AnyConnection, StoreError> {
    let mut connection = options.connect().await?;
    sqlx::query(NOTICE).execute(&mut connection).await?;
    Ok(connection)
}

/// A connection that has the hold, if no other has it.
async fn take(options: &AnyConnectOptions) -> Result<Option<AnyConnection>, StoreError> {
    let taking = async {
        let mut connection = session(options).await?;
        let sql = "SELECT pg_try_advisory_lock(hashtext('rankscope ' || current_schema()))";
        let is_mine: Option<bool> = sqlx::query_scalar(sql).fetch_one(&mut connection).await?;
        match is_mine {
            Some(true) => Ok(Some(connection)),
            Some(false) => connection.close().await.map(|()| None).map_err(StoreError::from),
            None => Err(StoreError::NoSchema),
        }
    };
    timeout(ANSWERS_WITHIN, taking).await.unwrap_or(Err(StoreError::Sql(sqlx::Error::PoolTimedOut)))
}

async fn keep(
    options: Arc<AnyConnectOptions>,
    connection: AnyConnection,
    lost: watch::Sender<bool>,
    patience: Patience,
) {
    let mut held = Some(connection);
    let mut refused_since: Option<Instant> = None;
    loop {
        sleep(patience.look).await;
        if let Some(connection) = &mut held {
            if matches!(timeout(ANSWERS_WITHIN, connection.ping()).await, Ok(Ok(()))) {
                continue;
            }
            tracing::warn!("the database is away; requests are refused until it answers");
            held = None;
        }
        match take(&options).await {
            Ok(Some(connection)) => {
                tracing::info!("the database answers again");
                held = Some(connection);
                refused_since = None;
            }
            Ok(None) if refused_since.get_or_insert_with(Instant::now).elapsed() >= patience.give_up => {
                lost.send_replace(true);
                return;
            }
            Ok(None) => {}
            Err(_) => refused_since = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::url_for;

    const SHORT: Patience = Patience {
        start: Duration::from_millis(200),
        look: Duration::from_millis(50),
        give_up: Duration::from_millis(300),
    };

    /// Ends the session that has the hold, as a database does that ends.
    async fn cut(database: &Database) {
        let sql = "SELECT COUNT(pg_terminate_backend(l.pid)) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted \
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
            AND l.objid = CAST(CAST(hashtext('rankscope ' || current_schema()) AS BIT(32)) AS BIGINT)::oid";
        let ended: i64 = sqlx::query_scalar(sql).fetch_one(database.pool()).await.unwrap();
        assert_eq!(ended, 1);
    }

    #[tokio::test]
    async fn one_server_holds_a_database_and_takes_it_again_when_it_was_away() {
        let folder = tempfile::tempdir().unwrap();
        let Some(url) = url_for(folder.path()).await else {
            println!("passed over: the embedded database has no hold");
            return;
        };
        let database = Database::at(&url, 2).await.unwrap();
        let first = Hold::with_patience(&database, SHORT).await.unwrap().unwrap();
        assert!(Hold::with_patience(&database, SHORT).await.unwrap().is_none());

        cut(&database).await;
        sleep(Duration::from_secs(1)).await;
        assert!(Hold::with_patience(&database, SHORT).await.unwrap().is_none(), "it was taken again");
        assert!(timeout(Duration::from_millis(50), first.lost()).await.is_err());

        drop(first);
        let second = Hold::with_patience(&database, PATIENCE).await.unwrap();
        assert!(second.is_some(), "the first has ended");
    }

    #[tokio::test]
    async fn a_server_whose_database_another_has_taken_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let Some(url) = url_for(folder.path()).await else {
            println!("passed over: the embedded database has no hold");
            return;
        };
        let database = Database::at(&url, 2).await.unwrap();
        let slow = Patience { look: Duration::from_secs(2), ..SHORT };
        let first = Hold::with_patience(&database, slow).await.unwrap().unwrap();
        cut(&database).await;
        let _second = Hold::with_patience(&database, SHORT).await.unwrap().unwrap();
        timeout(Duration::from_secs(20), first.lost()).await.unwrap();
    }

    #[tokio::test]
    async fn a_database_without_a_schema_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let Some(url) = url_for(folder.path()).await else {
            println!("passed over: the embedded database has no schemas");
            return;
        };
        let database = Database::at(&url.in_schema("nowhere_at_all"), 1).await.unwrap();
        let error = Hold::of(&database).await.unwrap_err();
        assert!(matches!(error, StoreError::NoSchema), "{error}");
    }
}
