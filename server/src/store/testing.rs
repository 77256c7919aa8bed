//! Where the rows of a test are: in its folder, or, for each folder, in a schema of its own of the `PostgreSQL` that
//! `RANKSCOPE_TEST_DATABASE_URL` names. So every test of the store runs on both.
#![allow(clippy::unwrap_used)] // a test that cannot begin should say so at once

use super::database::{Database, DatabaseUrl, Engine};
use sha2::{Digest, Sha256};
use std::{env, path::Path};

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
