//! What the integration tests share.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses its own part, and fails at once")]

use rankscope_ingest::{Limits, read_upload};
use rankscope_model::{ArtifactKind, Evidence, ProcessListing};
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

/// What holds for every upload.
pub fn check(name: &str, evidence: &Evidence) {
    assert!(!evidence.artifacts.is_empty());
    let known = u32::try_from(evidence.artifacts.len()).unwrap();
    for artifact in &evidence.artifacts {
        assert!(!artifact.name.chars().any(char::is_control), "{name}");
        assert!(artifact.kind != ArtifactKind::Unreadable || !artifact.warnings.is_empty());
        assert!(artifact.ranks.is_sorted() && artifact.devices.is_sorted());
    }
    for table in &evidence.device_tables {
        assert!(table.at.artifact.0 < known);
        assert!(!table.devices.is_empty() || !table.processes.is_empty() || table.listing == ProcessListing::NoneFound);
    }
    assert!(evidence.steps.iter().all(|s| s.at.artifact.0 < known));
    assert!(evidence.ooms.iter().all(|o| o.at.artifact.0 < known && !o.family.is_empty()));
    // The evidence must survive its own format.
    let json = serde_json::to_string(evidence).unwrap();
    assert_eq!(&serde_json::from_str::<Evidence>(&json).unwrap(), evidence);
}
