//! Prints what the readers understand of files, as the JSON of `Evidence`.
//!
//! ```text
//! cargo run -p rankscope-ingest --example read -- nvidia-smi.txt logs.tar.gz snapshot.pickle
//! ```
//! `--short` prints one line per artifact and its warnings instead.

use rankscope_ingest::{Limits, read_upload};
use rankscope_model::Evidence;
use std::error::Error;
use std::fs::File;

fn main() -> Result<(), Box<dyn Error>> {
    let (flags, files): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let short = flags.iter().any(|flag| flag == "--short");
    if files.is_empty() {
        return Err("usage: read [--short] FILE...".into());
    }
    let mut all = Evidence::default();
    for name in &files {
        let mut file = File::open(name).map_err(|e| format!("{name}: {e}"))?;
        all.merge(read_upload(name, &mut file, &Limits::default()));
    }
    if !short {
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(());
    }
    for artifact in &all.artifacts {
        println!(
            "{}: {}, ranks {:?}, GPUs {:?}",
            artifact.name,
            artifact.kind.title(),
            artifact.ranks,
            artifact.devices
        );
        artifact.warnings.iter().for_each(|warning| println!("    {warning}"));
    }
    println!(
        "{} tables, {} step records, {} out-of-memory messages, {} snapshots",
        all.device_tables.len(),
        all.steps.len(),
        all.ooms.len(),
        all.snapshots.len()
    );
    Ok(())
}
