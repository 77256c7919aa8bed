//! `rankscope migrate-data`: what a data folder holds goes to a database server, and to a bucket.

use super::{counted, opening, tell_missing};
use crate::{
    cli::MigrateDataArgs,
    store::moving::{self, Moved},
};
use anyhow::Context;
use rankscope_model::Bytes;

/// Moves, and says what.
pub fn run(args: &MigrateDataArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (url, bucket) = (&args.database_url, args.objects.bucket());
    let moved = runtime
        .block_on(moving::move_to(&args.data, url, bucket.as_ref()))
        .with_context(|| opening(&args.data, Some(url)))?;
    for (table, rows) in moved.tables.iter().filter(|(_, rows)| *rows > 0) {
        println!("  {table:<16}{rows:>8}");
    }
    println!("{}", words(&moved, &args.data.display().to_string(), bucket.is_some()));
    tell_missing(&moved.missing);
    Ok(())
}

fn words(moved: &Moved, data: &str, to_bucket: bool) -> String {
    let rows: u64 = moved.tables.iter().map(|(_, rows)| rows).sum();
    let objects = if to_bucket {
        format!("{}, {}, are in the bucket", counted(moved.objects, "object"), Bytes(moved.bytes))
    } else {
        format!("objects stay in {data}")
    };
    format!(
        "Moved {}, the same on both sides; {objects}. {data} is as it was: from now on give `serve` the same settings, \
         and keep the folder until you have seen that all is there.",
        counted(rows, "row")
    )
}
