//! The way from a data folder with its database to a database server, and to a bucket: all rows and all objects, counted
//! and compared by their hashes before the move is said to be done.
//!
//! The folder stays as it was. Objects go first and rows last, in one transaction, so that no row ever names an object that
//! is not there; whoever is interrupted begins again and sends only what is missing. Knows no HTTP and no command line.

use super::{
    BucketSettings, Database, DatabaseUrl, OBJECTS, Objects, StoreError, backup,
    database::{FILE, plain},
    hold::Hold,
    lock_folder, replica,
};
use futures_util::TryStreamExt;
use object_store::path::Path as Key;
use sha2::{Digest, Sha256};
use sqlx::{Any, AnyConnection, AssertSqlSafe, Row, any::AnyArguments, query::Query};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
};

/// Rows that one statement writes. Their values stay far below the 65 535 that `PostgreSQL` takes.
const ROWS_AT_ONCE: usize = 256;
/// What the tables of a new database hold already: a project, which the folder has too.
const MADE_WITH_THE_TABLES: (&str, i64) = ("projects", 1);
/// Connections to the server: one writes, one holds.
const CONNECTIONS: u32 = 2;

/// What was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Tables, in the order in which they were written, with their rows.
    pub tables: Vec<(String, u64)>,
    /// Objects that are in the bucket now.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that rows name and that are nowhere: they were lost before.
    pub missing: Vec<String>,
}

/// Moves what a data folder holds. Its objects go to `bucket`, or stay where they are without one. The database at `url`
/// must be empty, and nobody may serve either.
pub async fn move_to(data: &Path, url: &DatabaseUrl, bucket: Option<&BucketSettings>) -> Result<Moved, StoreError> {
    if !data.join(FILE).is_file() {
        let text = format!("{} holds no database; is this the folder of the server?", data.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text).into());
    }
    // What a server wrote meanwhile would be left behind.
    let _lock = lock_folder(data)?;
    let current = Database::in_folder(data, 1).await?;
    current.migrate().await?;
    current.pool().close().await;

    let target = Database::at(url, CONNECTIONS).await?;
    let _hold = Hold::of(&target).await?.ok_or_else(|| StoreError::Served(url.clone()))?;
    target.migrate().await?;
    let bucket = match bucket {
        Some(bucket) => Some(Objects::in_bucket(bucket).await?),
        None => None,
    };

    let held = tempfile::Builder::new().prefix("moving-").tempdir_in(data)?;
    let folder = Objects::in_folder(&data.join(OBJECTS))?;
    let missing = backup::hold_a_moment(data, &folder, held.path()).await?.1;
    let source = Database::in_folder(held.path(), 1).await?;
    let tables = tables(&source).await?;
    refuse_what_is_there(&target, url, &tables).await?;

    let mut moved = Moved { tables: Vec::new(), objects: 0, bytes: 0, missing };
    if let Some(bucket) = &bucket {
        let list = backup::listed(held.path())?;
        backup::send(bucket, held.path(), &list).await?;
        for file in &list {
            let Some(key) = file.key() else { continue };
            if !backup::is_there(bucket, &key, file).await? {
                let text = format!("{} did not arrive in the bucket as it was sent; try again", file.path);
                return Err(io::Error::new(io::ErrorKind::InvalidData, text).into());
            }
        }
        (moved.objects, moved.bytes) = (list.len() as u64, list.iter().map(|file| file.bytes).sum());
        moved.missing = not_in(bucket, moved.missing).await?;
    }
    moved.tables = move_rows(&source, &target, &tables).await?;
    source.pool().close().await;
    Ok(moved)
}

/// Of objects that the folder does not have, those that the bucket does not have either: somebody whose files lie in the
/// bucket already moves the rows alone.
async fn not_in(bucket: &Objects, keys: Vec<String>) -> Result<Vec<String>, StoreError> {
    let mut missing = Vec::new();
    for key in keys {
        match bucket.stream(&Key::from(key.as_str())).await {
            Ok(_) => {}
            Err(StoreError::Missing) => missing.push(key),
            Err(error) => return Err(error),
        }
    }
    Ok(missing)
}

/// A table, as the embedded database tells of it.
#[derive(Debug)]
struct Table {
    name: String,
    columns: Vec<(String, Kind)>,
}

/// What a column holds. The tables know no more than these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
}

#[derive(Debug)]
enum Value {
    Text(Option<String>),
    Number(Option<i64>),
}

impl Table {
    /// `"id", "title"`: names come from our own tables, and are quoted so that no word of SQL is taken for one.
    fn names(&self) -> String {
        self.columns.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
    }

    fn select(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!("SELECT {} FROM \"{}\"", self.names(), self.name))
    }

    /// The statement that writes so many rows.
    fn insert(&self, rows: usize) -> AssertSqlSafe<String> {
        let width = self.columns.len();
        let of_row = |row: usize| {
            let places = (0..width)
                .map(|column| format!("${}", row.saturating_mul(width).saturating_add(column).saturating_add(1)));
            format!("({})", places.collect::<Vec<_>>().join(", "))
        };
        let rows = (0..rows).map(of_row).collect::<Vec<_>>().join(", ");
        AssertSqlSafe(format!("INSERT INTO \"{}\" ({}) VALUES {rows}", self.name, self.names()))
    }

    fn values(&self, row: &super::DbRow) -> Result<Vec<Value>, StoreError> {
        let of = |(index, (_, kind)): (usize, &(String, Kind))| {
            Ok(match kind {
                // Texts from before a NUL was left out of them.
                Kind::Text => Value::Text(row.try_get::<Option<String>, _>(index)?.map(|text| plain(&text))),
                Kind::Number => Value::Number(row.try_get(index)?),
            })
        };
        self.columns.iter().enumerate().map(of).collect()
    }
}

/// All tables, each after those that it refers to.
async fn tables(source: &Database) -> Result<Vec<Table>, StoreError> {
    let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '\\_sqlx%' ESCAPE '\\' \
        AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name";
    let mut names: Vec<String> = sqlx::query_scalar(sql).fetch_all(source.pool()).await?;
    // These hold nothing in a folder, and on the server what they begin with.
    names.retain(|name| !replica::TABLES.contains(&name.as_str()));
    let mut waiting = BTreeMap::new();
    for name in names {
        let columns = sqlx::query("SELECT name, type FROM pragma_table_info($1) ORDER BY cid");
        let columns = columns.bind(&name).fetch_all(source.pool()).await?;
        let columns = columns.iter().map(|row| {
            let kind = match row.try_get::<String, _>(1)?.as_str() {
                "TEXT" => Kind::Text,
                "BIGINT" | "INTEGER" => Kind::Number,
                _ => return Err(StoreError::Range("the type of a column")),
            };
            Ok((row.try_get(0)?, kind))
        });
        let columns = columns.collect::<Result<Vec<_>, StoreError>>()?;
        let others: Vec<String> = sqlx::query_scalar("SELECT \"table\" FROM pragma_foreign_key_list($1)")
            .bind(&name)
            .fetch_all(source.pool())
            .await?;
        let others: BTreeSet<String> = others.into_iter().filter(|other| *other != name).collect();
        waiting.insert(name.clone(), (Table { name, columns }, others));
    }
    let mut sorted: Vec<Table> = Vec::new();
    while !waiting.is_empty() {
        let is_free = |others: &BTreeSet<String>| others.iter().all(|other| !waiting.contains_key(other));
        let free: Vec<String> =
            waiting.iter().filter(|(_, (_, others))| is_free(others)).map(|(name, _)| name.clone()).collect();
        if free.is_empty() {
            return Err(StoreError::Range("tables that refer to each other in a circle"));
        }
        sorted.extend(free.iter().filter_map(|name| waiting.remove(name)).map(|(table, _)| table));
    }
    Ok(sorted)
}

/// Nothing is written over, and nothing is mixed.
async fn refuse_what_is_there(target: &Database, url: &DatabaseUrl, tables: &[Table]) -> Result<(), StoreError> {
    for table in tables {
        let count = AssertSqlSafe(format!("SELECT COUNT(*) FROM \"{}\"", table.name));
        let rows: i64 = sqlx::query_scalar(count).fetch_one(target.pool()).await?;
        let expected = if table.name == MADE_WITH_THE_TABLES.0 { MADE_WITH_THE_TABLES.1 } else { 0 };
        if rows > expected {
            let text = format!(
                "the database {url} is in use: its table {} has {rows} rows already; name an empty one",
                table.name
            );
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text).into());
        }
    }
    Ok(())
}

/// How many rows a table has, and what they hold, whatever their order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    rows: u64,
    hash: [u8; 32],
}

impl Sum {
    fn add(&mut self, values: &[Value]) {
        let mut hash = Sha256::new();
        for value in values {
            match value {
                Value::Text(None) | Value::Number(None) => hash.update([0]),
                Value::Text(Some(text)) => {
                    hash.update([1]);
                    hash.update((text.len() as u64).to_le_bytes());
                    hash.update(text.as_bytes());
                }
                Value::Number(Some(number)) => {
                    hash.update([2]);
                    hash.update(number.to_le_bytes());
                }
            }
        }
        // Every row has a key of its own, so no two are alike and cancel each other.
        for (sum, byte) in self.hash.iter_mut().zip(hash.finalize()) {
            *sum ^= byte;
        }
        self.rows = self.rows.saturating_add(1);
    }
}

/// Writes all rows and reads them again; nothing stays unless every table is the same on both sides.
async fn move_rows(source: &Database, target: &Database, tables: &[Table]) -> Result<Vec<(String, u64)>, StoreError> {
    let mut transaction = target.begin().await?;
    let made = AssertSqlSafe(format!("DELETE FROM \"{}\"", MADE_WITH_THE_TABLES.0));
    sqlx::query(made).execute(&mut *transaction).await?;
    let mut moved = Vec::new();
    for table in tables {
        let (mut sum, mut block) = (Sum::default(), Vec::with_capacity(ROWS_AT_ONCE));
        let mut rows = sqlx::query(table.select()).fetch(source.pool());
        while let Some(row) = rows.try_next().await? {
            let values = table.values(&row)?;
            sum.add(&values);
            block.push(values);
            if block.len() == ROWS_AT_ONCE {
                write(&mut transaction, table, &mut block).await?;
            }
        }
        drop(rows);
        write(&mut transaction, table, &mut block).await?;
        if sum_of(&mut transaction, table).await? != sum {
            let text = format!("the table {} is another after it was copied; nothing was moved", table.name);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text).into());
        }
        moved.push((table.name.clone(), sum.rows));
    }
    transaction.commit().await?;
    Ok(moved)
}

async fn write(to: &mut AnyConnection, table: &Table, block: &mut Vec<Vec<Value>>) -> Result<(), StoreError> {
    if block.is_empty() {
        return Ok(());
    }
    let mut insert: Query<'_, Any, AnyArguments> = sqlx::query(table.insert(block.len()));
    for value in block.drain(..).flatten() {
        insert = match value {
            Value::Text(text) => insert.bind(text),
            Value::Number(number) => insert.bind(number),
        };
    }
    insert.execute(to).await?;
    Ok(())
}

async fn sum_of(from: &mut AnyConnection, table: &Table) -> Result<Sum, StoreError> {
    let mut sum = Sum::default();
    let mut rows = sqlx::query(table.select()).fetch(from);
    while let Some(row) = rows.try_next().await? {
        sum.add(&table.values(&row)?);
    }
    Ok(sum)
}
