//! Where the rows of a test are: in its folder, or, for each folder, in a schema of its own of the `PostgreSQL` that
//! `RANKSCOPE_TEST_DATABASE_URL` names. And its objects: in its folder, or, where `RANKSCOPE_TEST_BUCKET` is set, in a
//! bucket of a server that speaks as S3 does. So every test of the store runs on all of them.
#![allow(clippy::unwrap_used)] // a test that cannot begin should say so at once

#[path = "../../tests/common/bucket.rs"]
pub mod bucket;

use super::{
    BucketSettings, OBJECTS,
    database::{Database, DatabaseUrl, Engine},
};
use bucket::{BUCKET, BucketServer};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    env, fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// The database of a test's folder, if it is not a file in there.
pub async fn url_for(data: &Path) -> Option<DatabaseUrl> {
    let url: DatabaseUrl = env::var("RANKSCOPE_TEST_DATABASE_URL").ok()?.parse().unwrap();
    let path = std::path::absolute(data).unwrap();
    let schema = format!("t_{}", &crate::hex(&Sha256::digest(path.as_os_str().as_encoded_bytes()))[..32]);
    let database = Database::at(&url, 1).await.unwrap();
    let make = sqlx::AssertSqlSafe(format!("CREATE SCHEMA IF NOT EXISTS {schema}"));
    sqlx::query(make).execute(database.pool()).await.unwrap();
    database.pool().close().await;
    Some(url.in_schema(&schema))
}

/// Whether a text stands anywhere in a test's database, or in the files of one in its folder.
pub async fn holds(database: &Database, data: &Path, text: &str) -> bool {
    let mut stored: Vec<Vec<u8>> = Vec::new();
    match database.engine() {
        Engine::Sqlite => {
            for file in ["rankscope.sqlite", "rankscope.sqlite-wal"] {
                stored.push(std::fs::read(data.join(file)).unwrap_or_default());
            }
        }
        Engine::Postgres => {
            let sql = "SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = current_schema()";
            let tables: Vec<String> = sqlx::query_scalar(sql).fetch_all(database.pool()).await.unwrap();
            for table in tables {
                let sql = sqlx::AssertSqlSafe(format!("SELECT CAST(t AS TEXT) FROM {table} t"));
                let rows: Vec<String> = sqlx::query_scalar(sql).fetch_all(database.pool()).await.unwrap();
                stored.extend(rows.into_iter().map(String::into_bytes));
            }
        }
    }
    stored.iter().any(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}

/// The servers of this process, by the folders of their tests: a folder that is opened again finds its bucket.
static SERVERS: Mutex<Option<HashMap<PathBuf, BucketServer>>> = Mutex::new(None);

/// The bucket of a test's folder, if its objects are not in there. Its server keeps what is in it in the very folder
/// that would hold the objects otherwise, so that tests see and touch them in the same way.
pub fn bucket_for(data: &Path) -> Option<BucketSettings> {
    env::var_os("RANKSCOPE_TEST_BUCKET")?;
    let data = data.canonicalize().unwrap();
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    let server = servers.get_or_insert_default().entry(data.clone()).or_insert_with(|| {
        let (root, objects) = (data.join("bucket-server"), data.join(OBJECTS));
        fs::create_dir_all(&objects).unwrap();
        fs::create_dir_all(&root).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(&objects, root.join(BUCKET)).unwrap();
        BucketServer::start(&root)
    });
    Some(settings(server, ""))
}

/// How a test's bucket is reached.
pub fn settings(server: &BucketServer, prefix: &str) -> BucketSettings {
    BucketSettings {
        url: format!("s3://{BUCKET}/{prefix}").parse().unwrap(),
        endpoint: Some(server.endpoint().parse().unwrap()),
        region: None,
        style: None,
        plain_http: true,
        credentials_file: Some(server.credentials()),
        ca_file: None,
    }
}
