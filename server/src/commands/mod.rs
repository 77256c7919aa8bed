//! What each command does, from its arguments to its exit status.

mod advice;
pub mod agent;
pub mod backup;
pub mod config;
pub mod diagnose;
mod folder;
mod front_door;
mod log;
pub mod migrate_data;
mod nvml;
mod own_gpus;
mod patient;
pub mod serve;
mod stop;
pub mod user;
pub mod worker;

use crate::store::DatabaseUrl;
use std::path::Path;

/// What a command was about when it failed: the folder, and the database where it is another.
fn opening(data: &Path, url: Option<&DatabaseUrl>) -> String {
    match url {
        Some(url) => format!("opening {} with {url}", data.display()),
        None => format!("opening {}", data.display()),
    }
}

/// `1 run`, `3 runs`.
fn counted(n: u64, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

/// Says on standard error which objects rows name although they were lost before: the first few by their keys.
fn tell_missing(keys: &[String]) {
    const NAMED: usize = 8;
    for key in keys.iter().take(NAMED) {
        eprintln!("  missing already: objects/{key}");
    }
    if keys.len() > NAMED {
        eprintln!("  and {} more objects", keys.len() - NAMED);
    }
}
