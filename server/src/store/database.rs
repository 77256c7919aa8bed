//! The database behind the store: `SQLite` in the data folder, or a `PostgreSQL` that somebody else keeps. One text of
//! SQL serves both; what differs between them stands here.

use super::StoreError;
use sqlx::{
    Any, AnyPool, ConnectOptions, Connection, Transaction,
    any::{AnyConnectOptions, AnyPoolOptions, install_default_drivers},
};
use std::{fmt, path::Path, str::FromStr, time::Duration};
use tokio::time::timeout;
use url::Url;

/// A row of an answer.
pub type DbRow = sqlx::any::AnyRow;

/// A server that does not answer within this is not there.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// So that the database notices within a minute when the machine of a connection is gone, and does not keep for it what
/// others wait for. Of no effect on a local socket.
pub(super) const NOTICE: &str = "SELECT set_config('tcp_keepalives_idle', '20', false), \
    set_config('tcp_keepalives_interval', '10', false), set_config('tcp_keepalives_count', '3', false)";
/// The file of the embedded database in a data folder.
pub const FILE: &str = "rankscope.sqlite";

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

impl DatabaseUrl {
    /// As it was given, with the password.
    pub(super) fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

#[cfg(test)]
impl DatabaseUrl {
    /// The same database, with all tables in a schema of its own.
    #[must_use]
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
        let mut url = Url::parse("sqlite:///").map_err(|error| sqlx::Error::Configuration(error.into()))?;
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
        Ok(Self { pool: pool.connect_with(options(&url)?).await?, engine: Engine::Sqlite })
    }

    /// The database at an address.
    pub async fn at(url: &DatabaseUrl, connections: u32) -> Result<Self, StoreError> {
        let options = options(&url.0)?;
        // One connection before the pool, which tries again and in the end knows only that it has waited.
        let connection = timeout(ANSWERS_WITHIN, options.connect()).await;
        connection.map_err(|_| sqlx::Error::PoolTimedOut)??.close().await?;
        let pool = AnyPoolOptions::new().max_connections(connections).acquire_timeout(ANSWERS_WITHIN);
        let pool = pool.after_connect(|connection, _| {
            Box::pin(async move { sqlx::query(NOTICE).execute(connection).await.map(drop) })
        });
        Ok(Self { pool: pool.connect_lazy_with(options), engine: Engine::Postgres })
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

    /// Begins a change of several rows, or of one that depends on others. No other begins before it has ended, as far as
    /// they begin here, so what it reads stays true. Who only reads waits for none.
    pub async fn begin(&self) -> Result<Transaction<'static, Any>, StoreError> {
        match self.engine {
            // Immediate: a transaction that read first and then found another writer could not go on.
            Engine::Sqlite => Ok(self.pool.begin_with("BEGIN IMMEDIATE").await?),
            Engine::Postgres => {
                let mut transaction = self.pool.begin().await?;
                sqlx::query("SELECT pg_advisory_xact_lock(hashtext('rankscope writes ' || current_schema()))")
                    .execute(&mut *transaction)
                    .await?;
                Ok(transaction)
            }
        }
    }
}

fn options(url: &Url) -> Result<AnyConnectOptions, StoreError> {
    install_default_drivers();
    Ok(AnyConnectOptions::from_str(url.as_str())?)
}

/// What each connection to the embedded database begins with.
const SETTINGS: [&str; 4] = [
    "PRAGMA busy_timeout = 10000",
    "PRAGMA journal_mode = WAL",
    // Full: a transaction is on disk when it is acknowledged, also if the power fails.
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
];

/// A text as both databases hold it: `PostgreSQL` takes no NUL. For what others have written; ids and hashes are our own.
pub(crate) fn plain(text: &str) -> String {
    text.replace('\0', "")
}

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

    /// Tables with their columns, and indices, as each database tells of them.
    async fn shape(database: &Database) -> Vec<String> {
        let sql = match database.engine() {
            Engine::Sqlite => {
                "SELECT t.name || '.' || c.name || ' ' || c.type || \
                 CASE WHEN c.\"notnull\" = 1 OR c.pk > 0 THEN ' NOT NULL' ELSE '' END || \
                 CASE WHEN c.pk > 0 THEN ' KEY' ELSE '' END \
                 FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table' AND t.name <> '_sqlx_migrations' \
                 UNION ALL SELECT t.tbl_name || ' INDEX ' || t.name FROM sqlite_master t \
                 WHERE t.type = 'index' AND t.sql IS NOT NULL \
                 UNION ALL SELECT t.name || '.' || f.\"from\" || ' -> ' || f.\"table\" || '.' || f.\"to\" || ' ' || f.on_delete \
                 FROM sqlite_master t, pragma_foreign_key_list(t.name) f WHERE t.type = 'table'"
            }
            Engine::Postgres => {
                "SELECT CAST(t.relname || '.' || a.attname || ' ' || UPPER(format_type(a.atttypid, a.atttypmod)) || \
                 CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END || \
                 CASE WHEN a.attnum = ANY (k.conkey) THEN ' KEY' ELSE '' END AS TEXT) \
                 FROM pg_class t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped \
                 LEFT JOIN pg_constraint k ON k.conrelid = t.oid AND k.contype = 'p' \
                 WHERE t.relkind = 'r' AND t.relnamespace = current_schema()::regnamespace \
                 AND t.relname <> '_sqlx_migrations' \
                 UNION ALL SELECT CAST(i.tablename || ' INDEX ' || i.indexname AS TEXT) FROM pg_indexes i \
                 WHERE i.schemaname = current_schema() AND NOT EXISTS \
                 (SELECT 1 FROM pg_constraint k WHERE k.conname = i.indexname \
                 AND k.connamespace = current_schema()::regnamespace) \
                 UNION ALL SELECT CAST(t.relname || '.' || a.attname || ' -> ' || o.relname || '.' || b.attname || \
                 CASE k.confdeltype WHEN 'c' THEN ' CASCADE' ELSE ' NO ACTION' END AS TEXT) \
                 FROM pg_constraint k JOIN pg_class t ON t.oid = k.conrelid JOIN pg_class o ON o.oid = k.confrelid \
                 JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.conkey[1] \
                 JOIN pg_attribute b ON b.attrelid = o.oid AND b.attnum = k.confkey[1] \
                 WHERE k.contype = 'f' AND k.connamespace = current_schema()::regnamespace"
            }
        };
        let mut shape: Vec<String> = sqlx::query_scalar(sql).fetch_all(database.pool()).await.unwrap();
        shape.sort();
        shape
    }

    #[tokio::test]
    async fn both_databases_get_the_same_tables() {
        let folder = tempfile::tempdir().unwrap();
        let embedded = Database::in_folder(folder.path(), 1).await.unwrap();
        embedded.migrate().await.unwrap();
        let tables = shape(&embedded).await;
        for known in [
            "runs.id TEXT NOT NULL KEY",
            "users.disabled_at BIGINT",
            "audit INDEX audit_by_time",
            "shares.run_id -> runs.id CASCADE",
        ] {
            assert!(tables.iter().any(|line| line == known), "{known}: {tables:#?}");
        }
        let Some(url) = crate::store::testing::url_for(folder.path()).await else {
            println!("passed over: no PostgreSQL is named to compare with");
            return;
        };
        let server = Database::at(&url, 1).await.unwrap();
        server.migrate().await.unwrap();
        assert_eq!(shape(&server).await, tables);
        // A second start finds nothing to do.
        server.migrate().await.unwrap();
    }

    #[tokio::test]
    async fn changes_wait_for_each_other_and_readers_for_none() {
        let folder = tempfile::tempdir().unwrap();
        let url = crate::store::testing::url_for(folder.path()).await;
        let database = crate::store::connect(folder.path(), url.as_ref(), 3).await.unwrap();
        database.migrate().await.unwrap();
        let count = || sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM projects").fetch_one(database.pool());
        let mut first = database.begin().await.unwrap();
        sqlx::query("DELETE FROM projects").execute(&mut *first).await.unwrap();
        assert!(timeout(Duration::from_millis(100), database.begin()).await.is_err());
        assert_eq!(count().await.unwrap(), 1);
        first.commit().await.unwrap();
        database.begin().await.unwrap().rollback().await.unwrap();
        assert_eq!(count().await.unwrap(), 0);
    }
}
