//! What the integration tests share.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses its own part, and fails at once")]

use rankscope_ingest::{Limits, read_upload};
use rankscope_model::Evidence;
use std::io::Cursor;
use std::path::PathBuf;

/// Reads an upload from memory.
pub fn read_bytes(name: &str, bytes: &[u8]) -> Evidence {
    read_upload(name, &mut Cursor::new(bytes), &Limits::default())
}

/// A folder of real public files beside the workspace. They are not ours to pass on, so they may be absent; the test
/// then says that it skips.
pub fn shared(folder: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(folder);
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: {folder} of the real files is not here");
    None
}

/// Files in `folder` and below whose name `wanted` accepts, sorted.
pub fn files(folder: &std::path::Path, wanted: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| wanted(&name.to_string_lossy())) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
