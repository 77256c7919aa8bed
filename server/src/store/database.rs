//! The database behind the store: `SQLite` in the data folder, or a `PostgreSQL` that somebody else keeps. One text of
//! SQL serves both; what differs between them stands here.

use super::StoreError;
use sqlx::{
    Any, AnyConnection, AnyPool, Transaction,
    any::{AnyConnectOptions, AnyPoolOptions, install_default_drivers},
};
use std::{
    fmt,
    path::Path,
    str::FromStr,
    time::{Duration, Instant},
};
use tokio::sync::Mutex;
use url::Url;

/// A row of an answer.
pub type DbRow = sqlx::any::AnyRow;

/// A server that just ended is forgotten by the database after a moment.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(3);
/// The file of the embedded database in a data folder.
const FILE: &str = "rankscope.sqlite";

/// Where a `PostgreSQL` is. Holds its password, so it is never shown whole.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(Url);

impl FromStr for DatabaseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let url = Url::parse(text).map_err(|error| format!("this is no address of a database: {error}"))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(format!(
                "{}: is no database that is known here; postgres://user:password@host/name is. Without an address the \
                 database is a file in the data folder",
                url.scheme()
            ));
        }
        Ok(Self(url))
    }
}

#[cfg(test)]
impl DatabaseUrl {
    /// The same database, with all tables in a schema of its own.
    pub fn in_schema(mut self, schema: &str) -> Self {
        self.0.query_pairs_mut().append_pair("options[search_path]", schema);
        self
    }
}

/// Without the password, and without the parameters, which may hold one too.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.0.port().map_or_else(String::new, |port| format!(":{port}"));
        write!(f, "{}://{}{port}{}", self.0.scheme(), self.0.host_str().unwrap_or_default(), self.0.path())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// A file in the data folder, written by this process alone.
    Sqlite,
    /// A server.
    Postgres,
}

/// Connections to one of them.
#[derive(Debug, Clone)]
pub struct Database {
    pool: AnyPool,
    engine: Engine,
}

impl Database {
    /// The embedded database of a data folder; made if it is not there.
    pub async fn in_folder(data: &Path, connections: u32) -> Result<Self, StoreError> {
        let file = std::path::absolute(data)?.join(FILE);
        let Some(name) = file.to_str() else {
            return Err(StoreError::Io(std::io::Error::other(format!(
                "the path of the data folder must be UTF-8: {}",
                data.display()
            ))));
        };
        let mut url =
            Url::parse("sqlite:///").map_err(|error| StoreError::Sql(sqlx::Error::Configuration(error.into())))?;
        // As a path, so that whatever a folder's name holds is escaped; a percent sign would pass for an escape.
        url.set_path(&name.replace('%', "%25"));
        url.set_query(Some("mode=rwc"));
        let pool = AnyPoolOptions::new().max_connections(connections).after_connect(|connection, _| {
            Box::pin(async move {
                for pragma in SETTINGS {
                    sqlx::query(pragma).execute(&mut *connection).await?;
                }
                Ok(())
            })
        });
        Self::open(pool, &url, Engine::Sqlite).await
    }

    /// The database at an address.
    pub async fn at(url: &DatabaseUrl, connections: u32) -> Result<Self, StoreError> {
        Self::open(AnyPoolOptions::new().max_connections(connections), &url.0, Engine::Postgres).await
    }

    async fn open(pool: AnyPoolOptions, url: &Url, engine: Engine) -> Result<Self, StoreError> {
        install_default_drivers();
        let options = AnyConnectOptions::from_str(url.as_str())?;
        Ok(Self { pool: pool.connect_with(options).await?, engine })
    }

    /// Brings the tables up to date. On a server one process does it and others wait.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        Ok(sqlx::migrate!().run(&self.pool).await?)
    }

    /// All connections.
    pub fn pool(&self) -> &AnyPool {
        &self.pool
    }

    /// Which one it is.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Begins a change of several rows.
    pub async fn begin(&self) -> Result<Transaction<'static, Any>, StoreError> {
        Ok(match self.engine {
            // Immediate: a transaction that read first and then found another writer could not go on.
            Engine::Sqlite => self.pool.begin_with("BEGIN IMMEDIATE").await?,
            Engine::Postgres => self.pool.begin().await?,
        })
    }

    /// Holds the database for one server. Files and what is live stand beside each server, so two on one database would
    /// each know half. `None` if another has it; a file needs no such hold, because its folder has one.
    pub async fn hold(&self) -> Result<Option<Hold>, StoreError> {
        if self.engine == Engine::Sqlite {
            return Ok(Some(Hold { _connection: None }));
        }
        let mut connection = self.pool.acquire().await?.detach();
        let until = Instant::now() + HANDED_OVER_WITHIN;
        loop {
            let sql = "SELECT pg_try_advisory_lock(hashtext('rankscope ' || current_schema()))";
            let is_mine: bool = sqlx::query_scalar(sql).fetch_one(&mut connection).await?;
            if is_mine {
                return Ok(Some(Hold { _connection: Some(Mutex::new(connection)) }));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Ends with the connection that has it, whatever becomes of the process.
#[derive(Debug)]
pub struct Hold {
    // Behind a lock only so that it may be shared between threads.
    _connection: Option<Mutex<AnyConnection>>,
}

/// What each connection to the embedded database begins with.
const SETTINGS: [&str; 4] = [
    "PRAGMA busy_timeout = 10000",
    "PRAGMA journal_mode = WAL",
    // Full: a transaction is on disk when it is acknowledged, also if the power fails.
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
];

/// Text of SQL that is put together, with values apart from it. Numbered, because both databases take `$1`.
#[derive(Debug)]
pub(crate) struct Sql {
    text: String,
    values: Vec<Value>,
}

#[derive(Debug)]
enum Value {
    Text(String),
    Number(i64),
}

impl Sql {
    pub(crate) fn new(text: &'static str) -> Self {
        Self { text: text.to_owned(), values: Vec::new() }
    }

    /// More of the text. Only what is written in the program: values go another way.
    pub(crate) fn push(&mut self, text: &'static str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    pub(crate) fn bind(&mut self, value: &str) -> &mut Self {
        self.value(Value::Text(value.to_owned()))
    }

    pub(crate) fn bind_number(&mut self, value: i64) -> &mut Self {
        self.value(Value::Number(value))
    }

    fn value(&mut self, value: Value) -> &mut Self {
        self.values.push(value);
        self.text.push('$');
        self.text.push_str(&self.values.len().to_string());
        self
    }

    pub(crate) async fn fetch_all(self, pool: &AnyPool) -> Result<Vec<DbRow>, StoreError> {
        // Its parts are all of the program's own text.
        let mut query = sqlx::query(sqlx::AssertSqlSafe(self.text));
        for value in self.values {
            query = match value {
                Value::Text(text) => query.bind(text),
                Value::Number(number) => query.bind(number),
            };
        }
        Ok(query.fetch_all(pool).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart_and_their_passwords_are_never_shown() {
        let url: DatabaseUrl = "postgres://ada:se%20cret@db.example:6432/scope?sslpassword=x".parse().unwrap();
        assert_eq!(format!("{url} {url:?}"), "postgres://db.example:6432/scope postgres://db.example:6432/scope");
        for wrong in ["mysql://a/b", "rankscope.sqlite", "", "sqlite://x"] {
            let why = wrong.parse::<DatabaseUrl>().unwrap_err();
            assert!(why.contains("database"), "{why}");
        }
    }

    #[test]
    fn values_are_numbered_as_they_come() {
        let mut sql = Sql::new("SELECT a FROM t WHERE b = ");
        sql.bind("x' OR 1=1 --").push(" AND c < ").bind_number(7);
        assert_eq!(sql.text, "SELECT a FROM t WHERE b = $1 AND c < $2");
        assert_eq!(sql.values.len(), 2);
    }

    #[tokio::test]
    async fn a_folder_may_have_any_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["plain", "with space", "100% #1? &c", "显存"] {
            let data = folder.path().join(name);
            std::fs::create_dir(&data).unwrap();
            let database = Database::in_folder(&data, 1).await.unwrap();
            database.migrate().await.unwrap();
            assert!(data.join(FILE).exists(), "{name}");
            let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(database.pool()).await.unwrap();
            let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(database.pool()).await.unwrap();
            let keys: i64 = sqlx::query_scalar("PRAGMA foreign_keys").fetch_one(database.pool()).await.unwrap();
            assert_eq!((mode.as_str(), synchronous, keys), ("wal", 2, 1), "{name}");
        }
    }
}
