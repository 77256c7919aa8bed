//! Everything that outlives a request: rows in a database, bytes in the object store.
//!
//! Order of writes: a marker of what is to come, the objects (each on disk, or taken by the bucket), the rows in one
//! transaction, the marker's end, then the answer. A crash in between leaves objects that the marker names and no row
//! knows, which the next start removes. Objects that neither a row nor a marker knows are left alone: the database may be
//! an older one.
//! Knows no HTTP.

pub mod backup;
mod checklist;
mod database;
mod hold;
pub(crate) mod jobs;
mod live;
mod live_log;
pub mod moving;
mod objects;
mod pending;
mod projects;
mod replica;
mod rereading;
mod retention;
mod runs;
mod shares;
mod staging;
#[cfg(test)]
pub(crate) mod testing;
mod uploads;

pub(crate) use database::{ANSWERS_WITHIN, plain};
pub use database::{Database, DatabaseUrl, DbRow, Engine, FILE as DATABASE_FILE};
use hold::Hold;
pub use jobs::{Job, JobCounts, LEASE};
pub use live::{LiveEvent, LiveFile, LiveRunRow, LiveStep};
pub use live_log::{Entry, EntryKind, LiveLog, LivePlace, OpenRunRow, SegmentRow, SourceRow, in_time};
pub use objects::{BucketSettings, BucketUrl, Endpoint, Fault, Objects, Style};
use pending::{Claim, Marker, Pending};
pub use projects::Sees;
pub use replica::Replica;
pub use rereading::Readable;
pub use retention::{Candidate, Expiring, Keep, MOST_DAYS, Reason, Spared};
#[cfg(test)]
pub(crate) use runs::tests::report as tests_report;
pub use runs::{ArtifactFile, NewArtifact, RunRow};
pub use shares::{MintedShare, ShareOptions, SharedReport};
pub use staging::Staged;
pub use uploads::{OpenUpload, PartError};

use rankscope_model::UnixMicros;
use sqlx::AnyPool;
use std::{
    borrow::Cow,
    collections::HashMap,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{SystemTime, UNIX_EPOCH},
};

/// Why the store could not answer. For logs; visitors get `errors::Problem`.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No such row or object.
    #[error("not found")]
    Missing,
    /// The share was revoked or has expired.
    #[error("the share has ended")]
    Gone,
    /// The database.
    #[error("database: {0}")]
    Sql(sqlx::Error),
    /// A migration does not fit the database, for instance one written by a newer version.
    #[error("database migration: {0}")]
    Migrate(sqlx::migrate::MigrateError),
    /// The object store.
    #[error("object store: {0}")]
    Objects(object_store::Error),
    /// A bucket.
    #[error("{0}")]
    Bucket(Box<Fault>),
    /// The file system.
    #[error("file system: {0}")]
    Io(io::Error),
    /// Something stored does not read as what it should be.
    #[error("stored JSON: {0}")]
    Json(serde_json::Error),
    /// A row knows of an object that is not there.
    #[error("an object of run {run} is missing where the objects are kept")]
    Lost {
        /// The run.
        run: String,
    },
    /// A stored value is out of range.
    #[error("stored value out of range: {0}")]
    Range(&'static str),
    /// Another process serves this database.
    #[error("another rankscope serves the database {0}; stop it or choose another with --database-url")]
    Served(DatabaseUrl),
    /// There is nowhere to make tables.
    #[error("the database has no schema for tables; make the one that the address names, or let the user use `public`")]
    NoSchema,
    /// Another process serves this folder.
    #[error("the data folder {} is in use by another rankscope; stop it or choose another with --data", .0.display())]
    InUse(PathBuf),
    /// Another replica has taken a change over, or leads now.
    #[error("this server was away from the database for too long, and another has taken the change over")]
    TakenOver,
    /// A background task was cancelled or panicked.
    #[error("background task: {0}")]
    Task(String),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        // Rows refer to runs only, so a broken reference means that the run was deleted meanwhile.
        let is_orphan = error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_foreign_key_violation);
        // Everything that is kept is cleaned before, so only what is looked for can hold a sign that no text has.
        let is_no_text = code(&error).is_some_and(|code| code == NO_TEXT_CODE);
        if is_orphan || is_no_text || matches!(error, sqlx::Error::RowNotFound) {
            Self::Missing
        } else {
            Self::Sql(error)
        }
    }
}

// The words of these errors are part of ours, so they are no separate sources: whoever prints the chain reads them once.
impl From<sqlx::migrate::MigrateError> for StoreError {
    fn from(error: sqlx::migrate::MigrateError) -> Self {
        Self::Migrate(error)
    }
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<serde_json::Error> for StoreError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}

impl From<object_store::Error> for StoreError {
    fn from(error: object_store::Error) -> Self {
        if matches!(error, object_store::Error::NotFound { .. }) { Self::Missing } else { Self::Objects(error) }
    }
}

/// Folder of the objects in a data folder, and in a backup.
const OBJECTS: &str = "objects";

/// Most connections to the database at once.
const MAX_CONNECTIONS: u32 = 8;

/// Codes for a full disk: `SQLite`'s result code, and `PostgreSQL`'s `disk_full`.
const FULL_CODES: [&str; 2] = ["13", "53100"];

/// Codes of a `PostgreSQL` that ends, begins, has no room for another connection, or is a copy that takes no changes:
/// `admin_shutdown`, `crash_shutdown`, `cannot_connect_now`, `too_many_connections`, `read_only_sql_transaction`.
const AWAY_CODES: [&str; 5] = ["57P01", "57P02", "57P03", "53300", "25006"];

/// `PostgreSQL`'s code for a NUL in a text, which it cannot hold: `character_not_in_repertoire`.
const NO_TEXT_CODE: &str = "22021";

fn code(error: &sqlx::Error) -> Option<Cow<'_, str>> {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code)
}

impl StoreError {
    /// Whether the database or the bucket cannot be reached at the moment, as far as the error tells.
    pub fn is_away(&self) -> bool {
        match self {
            Self::Sql(
                sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::Io(_) | sqlx::Error::Tls(_),
            ) => true,
            // Class 08 is what goes wrong with a connection.
            Self::Sql(error) => {
                code(error).is_some_and(|code| code.starts_with("08") || AWAY_CODES.contains(&code.as_ref()))
            }
            Self::Bucket(fault) => fault.is_away(),
            _ => false,
        }
    }

    /// Whether the disk is full, as far as the error tells.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Sql(error) => code(error).is_some_and(|code| FULL_CODES.contains(&code.as_ref())),
            Self::Io(error) => is_full(error),
            Self::Bucket(fault) => fault.is_full(),
            Self::Objects(error) => {
                let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
                while let Some(error) = cause {
                    if error.downcast_ref::<io::Error>().is_some_and(is_full) {
                        return true;
                    }
                    cause = error.source();
                }
                false
            }
            _ => false,
        }
    }

    pub(super) fn bucket(fault: Fault) -> Self {
        Self::Bucket(Box::new(fault))
    }

    #[allow(clippy::needless_pass_by_value)] // for map_err
    pub(crate) fn task(error: tokio::task::JoinError) -> Self {
        Self::Task(error.to_string())
    }
}

/// Whether the disk, or the owner's part of it, is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Holds a data folder until the file is dropped.
fn lock_folder(data: &Path) -> Result<File, StoreError> {
    let lock = File::options().create(true).truncate(false).write(true).open(data.join("lock"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse(data.to_path_buf())),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// One data folder, held by this process alone.
#[derive(Debug)]
pub struct Store {
    database: Database,
    /// Those of `database`.
    pool: AnyPool,
    objects: Objects,
    pending: Pending,
    incoming: PathBuf,
    /// What could not be cleared up yet.
    unfinished: Mutex<Vec<(Claim, Option<Marker>)>>,
    /// Whose turn it is to write rows.
    writer: tokio::sync::Mutex<()>,
    /// Changes to one run happen one after the other, so that each new version sees all evidence before it.
    run_locks: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
    /// Held while the store is open.
    _lock: File,
    /// The same of the database, where it is a server.
    standing: Standing,
}

/// Who else may be on the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    /// Nobody.
    None,
    /// Others, and it is a server as they are.
    Servers,
    /// Others, and it only works for them.
    Workers,
}

/// How a server stands to others on its database.
#[derive(Debug)]
enum Standing {
    /// There is none.
    Alone(Hold),
    /// It is one of several.
    Replica(Replica, LiveLog),
}

/// The turn at a run; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct RunLock {
    _here: tokio::sync::OwnedMutexGuard<()>,
    /// Among replicas.
    _everywhere: Option<replica::Turn>,
}

impl Store {
    /// Opens (and creates) a data folder with the database in it, brings that up to date, and removes what a crash has
    /// left behind.
    pub async fn open(data: &Path) -> Result<Self, StoreError> {
        Self::open_with(data, None, None).await
    }

    /// The same with the rows in another database, or the objects in a bucket. No other server may be on that database.
    pub async fn open_with(
        data: &Path,
        url: Option<&DatabaseUrl>,
        bucket: Option<&BucketSettings>,
    ) -> Result<Self, StoreError> {
        Self::open_as(data, url, bucket, Company::None).await
    }

    /// As one of several servers on the same database and the same bucket, each with a data folder of its own.
    pub async fn open_replica(data: &Path, url: &DatabaseUrl, bucket: &BucketSettings) -> Result<Self, StoreError> {
        Self::open_as(data, Some(url), Some(bucket), Company::Servers).await
    }

    /// As one that only works for such servers, and never leads them.
    pub async fn open_worker(data: &Path, url: &DatabaseUrl, bucket: &BucketSettings) -> Result<Self, StoreError> {
        Self::open_as(data, Some(url), Some(bucket), Company::Workers).await
    }

    async fn open_as(
        data: &Path,
        url: Option<&DatabaseUrl>,
        bucket: Option<&BucketSettings>,
        company: Company,
    ) -> Result<Self, StoreError> {
        create_private(data)?;
        let lock = lock_folder(data)?;

        let incoming = data.join("incoming");
        fs::create_dir_all(&incoming)?;
        for left_over in fs::read_dir(&incoming)? {
            fs::remove_file(left_over?.path())?;
        }

        #[cfg(test)]
        let (given, tests) = (url, testing::url_for(data).await);
        #[cfg(test)]
        let url = given.or(tests.as_ref());
        #[cfg(test)]
        let (given, tests) = (bucket, testing::bucket_for(data));
        #[cfg(test)]
        let bucket = given.or(tests.as_ref());
        let objects = match bucket {
            Some(settings) => Objects::in_bucket(settings).await?,
            None => Objects::in_folder(&data.join(OBJECTS))?,
        };
        let database = connect(data, url, MAX_CONNECTIONS).await?;
        let is_taken = || url.cloned().map_or_else(|| StoreError::InUse(data.to_path_buf()), StoreError::Served);
        let (standing, pending) = if let Some(url) = url.filter(|_| company != Company::None) {
            let replica = Replica::join(&database).await?.ok_or_else(is_taken)?;
            let pending = Pending::Rows { pool: database.pool().clone(), owner: replica.id().to_owned() };
            (Standing::Replica(replica, LiveLog::open(url).await?), pending)
        } else {
            let hold = Hold::of(&database).await?.ok_or_else(is_taken)?;
            (Standing::Alone(hold), Pending::open(data.join("pending"))?)
        };
        database.migrate().await?;

        let store = Self {
            pool: database.pool().clone(),
            database,
            objects,
            pending,
            incoming,
            unfinished: Mutex::default(),
            writer: tokio::sync::Mutex::default(),
            run_locks: Mutex::default(),
            _lock: lock,
            standing,
        };
        if company == Company::Servers
            && let Some(replica) = store.replica()
        {
            replica.stand();
        }
        store.clear_left_overs().await?;
        store.name_strangers().await?;
        if bucket.is_some() && fs::read_dir(data.join(OBJECTS).join("runs")).is_ok_and(|mut runs| runs.next().is_some())
        {
            tracing::warn!(
                objects = %store.objects,
                "the folder objects of {} holds objects too, which are not used: whoever changes from a folder to a bucket \
                 brings them over with `rankscope backup` and `rankscope restore --objects`",
                data.display()
            );
        }
        Ok(store)
    }

    /// The database of a data folder alone, also while a server holds the folder: for short changes of accounts from the
    /// command line. Whoever holds the folder has brought the database up to date; otherwise it is done here.
    pub async fn database_beside(data: &Path, url: Option<&DatabaseUrl>) -> Result<Database, StoreError> {
        if let Some(url) = url {
            let database = Database::at(url, 1).await?;
            database.migrate().await?;
            return Ok(database);
        }
        create_private(data)?;
        let lock = File::options().create(true).truncate(false).write(true).open(data.join("lock"))?;
        let is_held = match lock.try_lock() {
            Ok(()) => false,
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(error)) => return Err(error.into()),
        };
        let database = connect(data, None, 1).await?;
        if !is_held {
            database.migrate().await?;
        }
        Ok(database)
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// Ends what an earlier process had begun and not acknowledged.
    async fn clear_left_overs(&self) -> Result<(), StoreError> {
        for (marker, claim) in self.pending.left_over()? {
            let Some(claim) = claim else {
                tracing::warn!(%marker, "a marker of an upload cannot be read; it was left alone");
                continue;
            };
            self.clear(&claim).await?;
            marker.remove().await?;
            tracing::info!(?claim, "cleared up a change that was never acknowledged");
        }
        Ok(())
    }

    /// Ends what replicas had begun that are no more. For a server that is alone there is nothing to do.
    pub async fn clear_after_others(&self) -> Result<(), StoreError> {
        let Standing::Replica(replica, _) = &self.standing else { return Ok(()) };
        let others = self.pending.others().await?;
        replica.miss_only(&others);
        for other in others {
            if !replica.is_gone(&other).await? {
                continue;
            }
            self.clear_taken(self.pending.take_over_from(&other).await?, false).await;
        }
        Ok(())
    }

    /// Clears up what was taken over from replicas that are no more; `has_turn`: the caller has the turn at the run.
    async fn clear_taken(&self, taken: Vec<(Marker, Option<Claim>)>, has_turn: bool) {
        for (marker, claim) in taken {
            let Some(claim) = claim else {
                tracing::warn!(%marker, "a marker of an upload cannot be read; it was left alone");
                continue;
            };
            let turn = if has_turn { Ok(None) } else { self.take_turn(claim.run()).await.map(Some) };
            match turn {
                Ok(_turn) => {
                    tracing::info!(?claim, "clears up a change that another server had begun and never acknowledged");
                    self.undo(&claim, Some(marker)).await;
                }
                Err(error) => {
                    tracing::warn!(%error, ?claim, "objects that no row knows stay until they can be removed");
                    self.postpone(claim, Some(marker));
                }
            }
        }
    }

    /// Says which objects the database does not know. They stay: it may be a new or an older database.
    async fn name_strangers(&self) -> Result<(), StoreError> {
        const NAMED: usize = 5;
        let mut known = self.run_ids().await?;
        known.extend(self.pending.runs().await?);
        let unknown: Vec<String> = self.objects.runs().await?.into_iter().filter(|run| !known.contains(run)).collect();
        if !unknown.is_empty() {
            let runs = unknown.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            tracing::warn!(
                count = unknown.len(),
                runs,
                objects = %self.objects,
                "there are objects of runs that the database does not know; they were left alone. If the database was lost, \
                 stop the server and put it back; if they are not needed, remove what stands under runs/ of these runs"
            );
        }
        Ok(())
    }

    /// Whether database and object store answer.
    pub async fn check(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(&self.pool).await?;
        self.objects.check().await
    }

    /// Resolves when another process has taken the database, which can happen while it was away from this one.
    pub async fn lost(&self) {
        match &self.standing {
            Standing::Alone(hold) => hold.lost().await,
            Standing::Replica(replica, _) => replica.lost().await,
        }
    }

    /// This server among others on the same database, if it may have any.
    pub fn replica(&self) -> Option<&Replica> {
        match &self.standing {
            Standing::Alone(_) => None,
            Standing::Replica(replica, _) => Some(replica),
        }
    }

    /// Where the live data of replicas are, if this is one.
    pub fn live_place(&self) -> Option<LivePlace> {
        let Standing::Replica(replica, log) = &self.standing else { return None };
        Some(LivePlace { log: log.clone(), leads: replica.leads(), objects: self.objects.clone() })
    }

    /// Closes the database; open requests must have ended.
    pub async fn close(&self) {
        if let Standing::Replica(_, log) = &self.standing {
            log.close().await;
        }
        self.pool.close().await;
    }

    /// The right to change one run. What a replica that is no more had begun with it is cleared up by then: the next
    /// version bears the number that it had taken.
    pub(crate) async fn lock_run(&self, run: &str) -> Result<RunLock, StoreError> {
        let turn = self.take_turn(run).await?;
        self.clear_taken(self.pending.take_over_of_run(run).await?, true).await;
        Ok(turn)
    }

    async fn take_turn(&self, run: &str) -> Result<RunLock, StoreError> {
        let lock = {
            let mut locks = self.run_locks.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| lock.strong_count() > 0);
            let known = locks.get(run).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let lock = Arc::default();
                locks.insert(run.to_owned(), Arc::downgrade(&lock));
                lock
            })
        };
        let here = lock.lock_owned().await;
        let everywhere = match &self.standing {
            Standing::Alone(_) => None,
            Standing::Replica(replica, _) => Some(replica.turn(run).await?),
        };
        Ok(RunLock { _here: here, _everywhere: everywhere })
    }
}

async fn connect(data: &Path, url: Option<&DatabaseUrl>, connections: u32) -> Result<Database, StoreError> {
    match url {
        Some(url) => Database::at(url, connections).await,
        None => Database::in_folder(data, connections).await,
    }
}

/// Creates a folder that its owner alone can enter: logs and scripts are nobody else's business on a shared machine. One
/// that is there already stays as its owner made it.
fn create_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// A new id: sorts by age, tells nothing else.
pub fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Now.
pub fn now() -> UnixMicros {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMicros(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
}

pub(crate) fn to_u64(value: i64, what: &'static str) -> Result<u64, StoreError> {
    u64::try_from(value).map_err(|_| StoreError::Range(what))
}

fn to_u32(value: i64, what: &'static str) -> Result<u32, StoreError> {
    u32::try_from(value).map_err(|_| StoreError::Range(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_folder_is_served_once_and_left_overs_go() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        assert!(matches!(Store::open(folder.path()).await, Err(StoreError::InUse(_))));
        store.check().await.unwrap();
        let is_bucket = folder.path().join("bucket-server").exists();
        assert_eq!(
            is_bucket,
            std::env::var_os("RANKSCOPE_TEST_BUCKET").is_some(),
            "objects lie where the run wants them"
        );
        store.close().await;
        drop(store);

        let left_over = folder.path().join("incoming/upload-x");
        fs::write(&left_over, b"half a file").unwrap();
        Store::open(folder.path()).await.unwrap();
        assert!(!left_over.exists());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_new_folder_is_its_owners_alone_and_an_old_one_is_left_as_it_is() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let new = folder.path().join("data");
        Store::open(&new).await.unwrap();
        assert_eq!(mode(&new), 0o700);
        let old = folder.path().join("shared");
        fs::create_dir(&old).unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o750)).unwrap();
        Store::open(&old).await.unwrap();
        assert_eq!(mode(&old), 0o750);
    }

    #[tokio::test]
    async fn a_new_database_takes_nothing_from_the_objects_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let object = folder.path().join("objects/runs/r/raw");
        fs::create_dir_all(object.parent().unwrap()).unwrap();
        fs::write(&object, b"kept").unwrap();
        Store::open(folder.path()).await.unwrap();
        assert!(object.exists());
    }

    #[tokio::test]
    async fn what_a_replica_leaves_is_cleared_up_by_another_and_can_no_longer_end() {
        let folder = tempfile::tempdir().unwrap();
        let Some(url) = testing::url_for(folder.path()).await else {
            println!("passed over: the embedded database has no replicas");
            return;
        };
        let server = testing::bucket::BucketServer::start(&folder.path().join("server"));
        let bucket = testing::settings(&server, "x");
        let open = async |name: &str| Store::open_replica(&folder.path().join(name), &url, &bucket).await.unwrap();
        let (first, second) = (open("a").await, open("b").await);
        let begin = async |run: &str| {
            let claim = Claim::Add { run: run.into(), artifacts: vec!["a".into()], version: 1 };
            let marker = first.pending.mark(claim).await.unwrap();
            let evidence = Arc::new(rankscope_model::Evidence::default());
            first.objects.put_json(&objects::evidence_key(run, "a"), evidence).await.unwrap();
            marker
        };
        let objects = || server.keys().into_iter().filter(|key| key.contains("/runs/")).count();

        // Whoever has the turn at a run knows that nobody else works on it.
        let marker = begin("r").await;
        second.clear_after_others().await.unwrap();
        assert_eq!(objects(), 1, "the first one lives");
        drop(second.lock_run("r").await.unwrap());
        assert_eq!(objects(), 0);
        let mut change = first.database.begin().await.unwrap();
        assert!(matches!(marker.settle(&mut change).await, Err(StoreError::TakenOver)));
        change.rollback().await.unwrap();

        // As after kill -9.
        let _left = begin("s").await;
        drop(first);
        let until = std::time::Instant::now() + Duration::from_mins(1);
        while objects() > 0 {
            assert!(std::time::Instant::now() < until, "it stays");
            second.clear_after_others().await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert_eq!(second.pending.runs().await.unwrap(), [""; 0]);
    }

    #[tokio::test]
    async fn changes_to_one_run_wait_for_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let held = store.lock_run("a").await.unwrap();
        let _other = store.lock_run("b").await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(20), store.lock_run("a")).await.is_err());
        drop(held);
        store.lock_run("a").await.unwrap();
    }
}
