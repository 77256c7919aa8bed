//! One of several servers on one database and one bucket: that it is there, which of them leads, and whose turn it is at a
//! run. Each of these is a lock of a session, so it ends with its connection, whatever becomes of the process.
//!
//! A replica keeps one connection. On it stand the lock that keeps servers out which must be alone (`hold`), a lock of its
//! own by which the others see that it lives, and of one of them the lock of the leader. The leader does what must be done
//! once: runs of live jobs, what is told of them, and room in the live log. A session can end while its process goes on, so
//! a leader also writes its name into the database, and changes that only the leader may make look at that name.

use super::{
    StoreError,
    database::{ANSWERS_WITHIN, Database},
    hold::session,
    new_id,
};
use sqlx::{AnyConnection, AnyPool, Connection, any::AnyConnectOptions};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

/// Tables that only replicas use. A server that is alone leaves them as they are made.
pub(super) const TABLES: [&str; 9] = [
    "pending",
    "live_lease",
    "live_head",
    "live_batches",
    "live_sources",
    "live_segments",
    "live_segment_owners",
    "live_checkpoints",
    "live_ticks",
];

/// How long is waited at a start for a server that must be alone and has just ended.
const START: Duration = Duration::from_secs(3);
/// Time between two looks at the connection, and between tries to lead.
const LOOK: Duration = Duration::from_secs(1);
/// Until a replica gives up because a server that must be alone has the database.
const GIVE_UP: Duration = Duration::from_mins(1);
/// Runs of which one replica has the turn at once; each takes a connection.
const TURNS: usize = 4;
/// Whoever has not got the turn at a run within this is sent away: the other one may stand still.
const TURN_WITHIN: Duration = Duration::from_mins(2);
/// A replica is gone when it was not there for so long: its connection may have broken and come back.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// Ends when it is dropped.
#[derive(Debug)]
pub struct Replica {
    id: String,
    pool: AnyPool,
    options: Arc<AnyConnectOptions>,
    keeper: JoinHandle<()>,
    is_lost: watch::Receiver<bool>,
    leads: watch::Receiver<bool>,
    may_lead: watch::Sender<bool>,
    turns: Arc<Semaphore>,
    /// Since when others are not there.
    missed: Mutex<HashMap<String, Instant>>,
}

/// The turn at a run among all replicas; ends when it is dropped.
#[derive(Debug)]
pub struct Turn {
    _session: AnyConnection,
    _permit: OwnedSemaphorePermit,
}

impl Replica {
    /// Joins the replicas of a database; `None` if a server has it that must be alone.
    pub async fn join(database: &Database) -> Result<Option<Self>, StoreError> {
        let options = database.pool().connect_options();
        let id = new_id();
        let until = Instant::now() + START;
        let connection = loop {
            match enter(&options, &id).await? {
                Some(connection) => break connection,
                None if Instant::now() >= until => return Ok(None),
                None => sleep(Duration::from_millis(100)).await,
            }
        };
        let (lost, is_lost) = watch::channel(false);
        let (tell, leads) = watch::channel(false);
        let (may_lead, may) = watch::channel(false);
        let keeper =
            Keeper { id: id.clone(), database: database.clone(), options: Arc::clone(&options), lost, tell, may };
        Ok(Some(Self {
            id,
            pool: database.pool().clone(),
            options,
            keeper: tokio::spawn(keeper.keep(connection)),
            is_lost,
            leads,
            may_lead,
            turns: Arc::new(Semaphore::new(TURNS)),
            missed: Mutex::default(),
        }))
    }

    /// Its name; another at each start.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// From now on it may lead: the tables are up to date.
    pub fn stand(&self) {
        self.may_lead.send_replace(true);
    }

    /// Whether it leads.
    pub fn leads(&self) -> watch::Receiver<bool> {
        self.leads.clone()
    }

    /// Resolves when a server that must be alone has taken the database after it was away.
    pub async fn lost(&self) {
        let mut is_lost = self.is_lost.clone();
        if is_lost.wait_for(|lost| *lost).await.is_err() {
            // Nobody keeps it, so nobody loses it.
            std::future::pending::<()>().await;
        }
    }

    /// The turn at a run. A connection of its own holds it, so it ends with the process, and whoever waits here keeps no
    /// connection from others.
    pub async fn turn(&self, run: &str) -> Result<Turn, StoreError> {
        let taking = async {
            let permit = Arc::clone(&self.turns).acquire_owned().await;
            let permit = permit.map_err(|error| StoreError::Task(error.to_string()))?;
            let mut session = session(&self.options).await?;
            sqlx::query("SELECT pg_advisory_lock(hashtext('rankscope run ' || current_schema()), hashtext($1))")
                .bind(run)
                .execute(&mut session)
                .await?;
            Ok(Turn { _session: session, _permit: permit })
        };
        timeout(TURN_WITHIN, taking).await.unwrap_or(Err(StoreError::Sql(sqlx::Error::PoolTimedOut)))
    }

    /// Whether a replica has gone for good: nobody has its lock, and nobody had it for a while.
    pub(super) async fn is_gone(&self, other: &str) -> Result<bool, StoreError> {
        let is_free: bool = sqlx::query_scalar(
            "SELECT pg_try_advisory_xact_lock(hashtext('rankscope replica ' || current_schema()), hashtext($1))",
        )
        .bind(other)
        .fetch_one(&self.pool)
        .await?;
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_free {
            missed.remove(other);
            return Ok(false);
        }
        Ok(missed.entry(other.to_owned()).or_insert_with(Instant::now).elapsed() >= GONE_AFTER)
    }

    /// Forgets since when others are missed who have left nothing behind.
    pub(super) fn miss_only(&self, owners: &[String]) {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        missed.retain(|other, _| owners.contains(other));
    }

    /// Refuses a change that only the leader may make, if this is not the one. Whoever leads next waits until this change
    /// has ended.
    pub(super) async fn must_lead(&self, transaction: &mut AnyConnection) -> Result<(), StoreError> {
        let sql = "SELECT COUNT(*) FROM live_lease WHERE holder = $1";
        let is_it: i64 = sqlx::query_scalar(sql).bind(&self.id).fetch_one(transaction).await?;
        if is_it > 0 { Ok(()) } else { Err(StoreError::TakenOver) }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// A connection with the locks of a replica, unless a server has the database that must be alone.
async fn enter(options: &AnyConnectOptions, id: &str) -> Result<Option<AnyConnection>, StoreError> {
    let entering = async {
        let mut connection = session(options).await?;
        let sql = "SELECT pg_try_advisory_lock_shared(hashtext('rankscope ' || current_schema()))";
        let may: Option<bool> = sqlx::query_scalar(sql).fetch_one(&mut connection).await?;
        match may {
            Some(true) => {}
            Some(false) => {
                connection.close().await?;
                return Ok(None);
            }
            None => return Err(StoreError::NoSchema),
        }
        // Shared, and waited for: others look for a moment whether it is free.
        sqlx::query("SELECT pg_advisory_lock_shared(hashtext('rankscope replica ' || current_schema()), hashtext($1))")
            .bind(id)
            .execute(&mut connection)
            .await?;
        Ok(Some(connection))
    };
    timeout(ANSWERS_WITHIN, entering).await.unwrap_or(Err(StoreError::Sql(sqlx::Error::PoolTimedOut)))
}

/// Keeps the connection, and takes its locks again when the database was away.
struct Keeper {
    id: String,
    database: Database,
    options: Arc<AnyConnectOptions>,
    lost: watch::Sender<bool>,
    tell: watch::Sender<bool>,
    may: watch::Receiver<bool>,
}

impl Keeper {
    async fn keep(self, connection: AnyConnection) {
        let mut held = Some(connection);
        let mut refused_since: Option<Instant> = None;
        loop {
            if let Some(connection) = &mut held {
                match timeout(ANSWERS_WITHIN, self.look(connection)).await {
                    Ok(Ok(())) => {
                        sleep(LOOK).await;
                        continue;
                    }
                    Ok(Err(error)) => {
                        tracing::warn!(%error, "the database is away; requests are refused until it answers");
                    }
                    Err(_) => tracing::warn!("the database does not answer; requests are refused until it does"),
                }
                // The locks went with the session, or will.
                self.tell.send_replace(false);
                held = None;
            }
            match enter(&self.options, &self.id).await {
                Ok(Some(connection)) => {
                    tracing::info!("the database answers again");
                    held = Some(connection);
                    refused_since = None;
                    continue;
                }
                Ok(None) if refused_since.get_or_insert_with(Instant::now).elapsed() >= GIVE_UP => {
                    self.lost.send_replace(true);
                    return;
                }
                Ok(None) => {}
                Err(_) => refused_since = None,
            }
            sleep(LOOK).await;
        }
    }

    /// Sees that the connection is there, and takes the lead if nobody has it.
    async fn look(&self, connection: &mut AnyConnection) -> Result<(), StoreError> {
        if *self.tell.borrow() || !*self.may.borrow() {
            return Ok(connection.ping().await?);
        }
        // A session may take its own lock again, as after a lead that could not be written down.
        let sql = "SELECT pg_try_advisory_lock(hashtext('rankscope leader ' || current_schema()))";
        let is_mine: bool = sqlx::query_scalar(sql).fetch_one(&mut *connection).await?;
        if is_mine {
            // Waits for changes of the one before, which look at this name.
            let mut transaction = self.database.begin().await?;
            sqlx::query("UPDATE live_lease SET holder = $1").bind(&self.id).execute(&mut *transaction).await?;
            transaction.commit().await?;
            tracing::info!(replica = self.id, "this server leads: it makes the runs of live jobs");
            self.tell.send_replace(true);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{hold::Hold, testing::url_for};

    /// A database of its own for a test; `None` where no `PostgreSQL` is named.
    async fn database() -> Option<Database> {
        let folder = tempfile::tempdir().unwrap();
        let Some(url) = url_for(folder.path()).await else {
            println!("passed over: the embedded database has no replicas");
            return None;
        };
        let database = Database::at(&url, 4).await.unwrap();
        database.migrate().await.unwrap();
        Some(database)
    }

    async fn leads(replica: &Replica) {
        let mut leads = replica.leads();
        timeout(Duration::from_secs(20), leads.wait_for(|leads| *leads)).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn one_leads_until_it_ends_and_none_is_let_in_that_must_be_alone() {
        let Some(database) = database().await else { return };
        let first = Replica::join(&database).await.unwrap().unwrap();
        first.stand();
        leads(&first).await;
        let second = Replica::join(&database).await.unwrap().unwrap();
        second.stand();
        assert!(Hold::of(&database).await.unwrap().is_none(), "a server alone would know half");
        assert!(!*second.leads().borrow());
        let mut change = database.begin().await.unwrap();
        first.must_lead(&mut change).await.unwrap();
        assert!(matches!(second.must_lead(&mut change).await, Err(StoreError::TakenOver)));
        change.rollback().await.unwrap();
        assert!(!second.is_gone(first.id()).await.unwrap());

        let gone = first.id().to_owned();
        drop(first);
        leads(&second).await;
        assert!(!second.is_gone(&gone).await.unwrap(), "it may be back in a moment");
        drop(second);
        let alone = Hold::of(&database).await.unwrap();
        assert!(alone.is_some());
        assert!(Replica::join(&database).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_session_that_ends_is_taken_up_again_and_never_do_two_lead() {
        let Some(database) = database().await else { return };
        let replicas =
            [Replica::join(&database).await.unwrap().unwrap(), Replica::join(&database).await.unwrap().unwrap()];
        for replica in &replicas {
            replica.stand();
        }
        let allowed = async || {
            // In one change: between two of them the lease may go from one to the other.
            let mut change = database.begin().await.unwrap();
            let mut allowed = 0;
            for replica in &replicas {
                allowed += u32::from(replica.must_lead(&mut change).await.is_ok());
            }
            change.rollback().await.unwrap();
            allowed
        };
        let one_leads = async || {
            let until = Instant::now() + Duration::from_secs(30);
            while replicas.iter().filter(|replica| *replica.leads().borrow()).count() != 1 {
                assert!(allowed().await <= 1 && Instant::now() < until);
                sleep(Duration::from_millis(50)).await;
            }
        };
        one_leads().await;
        for _ in 0..3 {
            // Ends the session of whoever leads, as a database does that ends.
            let sql = "SELECT COUNT(pg_terminate_backend(l.pid)) FROM pg_locks l WHERE l.locktype = 'advisory' \
                AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                AND l.objid = CAST(CAST(hashtext('rankscope leader ' || current_schema()) AS BIT(32)) AS BIGINT)::oid";
            let ended: i64 = sqlx::query_scalar(sql).fetch_one(database.pool()).await.unwrap();
            assert_eq!(ended, 1);
            // It goes on to believe that it leads until it looks.
            sleep(Duration::from_millis(300)).await;
            assert_eq!(allowed().await, 1);
            sleep(3 * LOOK).await;
            one_leads().await;
            for replica in &replicas {
                let mut change = database.begin().await.unwrap();
                assert_eq!(replica.must_lead(&mut change).await.is_ok(), *replica.leads().borrow());
                change.rollback().await.unwrap();
                let id = replica.id();
                assert!(!replicas[0].is_gone(id).await.unwrap() && !replicas[1].is_gone(id).await.unwrap());
            }
        }
    }

    #[tokio::test]
    async fn a_run_is_changed_by_one_replica_at_a_time() {
        let Some(database) = database().await else { return };
        let first = Replica::join(&database).await.unwrap().unwrap();
        let second = Replica::join(&database).await.unwrap().unwrap();
        let turn = first.turn("a").await.unwrap();
        let _other = second.turn("b").await.unwrap();
        assert!(timeout(Duration::from_millis(200), second.turn("a")).await.is_err());
        drop(turn);
        second.turn("a").await.unwrap();
    }
}
