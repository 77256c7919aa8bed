//! Where the rows of a test are: in its folder, or, for each folder, in a schema of its own of the PostgreSQL that
//! `RANKSCOPE_TEST_DATABASE_URL` names. So every test of the store runs on both.
#![allow(clippy::unwrap_used)] // a test that cannot begin should say so at once

use super::database::{Database, DatabaseUrl};
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
