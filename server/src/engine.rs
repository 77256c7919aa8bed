//! Bytes to report: the one way from a file to a diagnosis, shared by the command line, uploads and later versions.
//!
//! Knows no HTTP, no store and no clock.

use crate::series::SeriesSet;
use rankscope_diagnosis::{Policy, diagnose, figures, next_step};
use rankscope_ingest::{Limits, ReadSeek, read_upload};
use rankscope_model::{ArtifactInfo, ArtifactKind, Evidence, Report, RunInfo, UnixMicros};
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// What came out of reading one file.
#[derive(Debug)]
pub struct Reading {
    /// What was understood; always names the file.
    pub evidence: Evidence,
    /// A reader panicked. The evidence then says so, and the file counts as not readable.
    pub panicked: bool,
}

/// Reads one file or archive. Never fails: what cannot be read is named with its reason.
pub fn read(name: &str, bytes: u64, input: &mut dyn ReadSeek) -> Reading {
    read_with(name, bytes, || read_upload(name, input, &Limits::default()))
}

/// The last line of defence: readers are written not to panic, but a defect in one must not cost the other files.
fn read_with(name: &str, bytes: u64, reader: impl FnOnce() -> Evidence) -> Reading {
    if let Ok(evidence) = catch_unwind(AssertUnwindSafe(reader)) {
        return Reading { evidence, panicked: false };
    }
    let reason = "reading failed because of a defect in Rankscope; the file is kept, please report it";
    Reading { evidence: unreadable(name, bytes, reason), panicked: true }
}

/// Evidence that names a file and says why nothing was read of it.
pub fn unreadable(name: &str, bytes: u64, reason: impl Into<String>) -> Evidence {
    let info = ArtifactInfo {
        name: name.to_owned(),
        kind: ArtifactKind::Unreadable,
        ranks: vec![],
        devices: vec![],
        bytes,
        warnings: vec![reason.into()],
    };
    Evidence { artifacts: vec![info], ..Evidence::default() }
}

/// Evidence for a file that could not be opened or read from disk.
pub fn unreadable_io(name: &str, bytes: u64, error: &io::Error) -> Evidence {
    unreadable(name, bytes, format!("could not be opened: {error}"))
}

/// Diagnoses evidence and draws up the numbers of its charts.
pub fn report(run: RunInfo, version: u32, diagnosed_at: UnixMicros, evidence: &Evidence) -> Report {
    let policy = Policy::default();
    let diagnosis = diagnose(evidence, &policy);
    let figures = figures(evidence, &diagnosis, &policy);
    let next = next_step(&diagnosis);
    Report { run, version, diagnosed_at, diagnosis, figures, next }
}

/// The full columns behind the charts. Those of the timeline stand on the timeline's own axis, point for point, so
/// that a window of one is a window of the other.
pub fn series(report: &Report, evidence: &Evidence) -> SeriesSet {
    let unreduced = Policy { timeline_points: usize::MAX, timeline_lines: usize::MAX, ..Policy::default() };
    SeriesSet::of(evidence, figures(evidence, &report.diagnosis, &unreduced).timeline)
}

/// A title made from the names of the files, for runs that nobody has named.
pub fn title_from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names = names.into_iter();
    match (names.next(), names.count()) {
        (None, _) => "Untitled run".to_owned(),
        (Some(only), 0) => only.to_owned(),
        (Some(first), 1) => format!("{first} and 1 more file"),
        (Some(first), more) => format!("{first} and {more} more files"),
    }
}

/// Whether there is anything to diagnose. Text without memory figures counts: the honest answer to it is
/// `inconclusive`, with what to collect. Only bytes that no reader could make sense of are no input at all.
pub fn is_usable(evidence: &Evidence) -> bool {
    evidence.artifacts.iter().any(|artifact| !matches!(artifact.kind, ArtifactKind::Unreadable | ArtifactKind::Archive))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_costs_only_its_own_file() {
        let reading = read_with("a.bin", 7, || panic!("defect"));
        assert!(reading.panicked);
        let info = &reading.evidence.artifacts[0];
        assert_eq!((info.name.as_str(), info.kind, info.bytes), ("a.bin", ArtifactKind::Unreadable, 7));
        assert!(!is_usable(&reading.evidence));
    }

    #[test]
    fn titles_say_what_was_uploaded() {
        assert_eq!(title_from_names([]), "Untitled run");
        assert_eq!(title_from_names(["a"]), "a");
        assert_eq!(title_from_names(["a", "b"]), "a and 1 more file");
        assert_eq!(title_from_names(["a", "b", "c"]), "a and 2 more files");
    }
}
