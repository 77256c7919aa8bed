//! What every fuzz target does with its bytes: read them, and hold the result to what is promised of any evidence.
//!
//! Knows no format. A panic is a finding; so are evidence that does not survive its own format and evidence that grows
//! far beyond its input.

use rankscope_ingest::{Limits, ReadContext, ReadError, launch as launch_text, read_upload};
use rankscope_model::{ArtifactId, Evidence, LaunchSource};
use std::io::{BufRead, Cursor};

/// A reader of one format.
pub type Reader = fn(&mut dyn BufRead, &ReadContext<'_>) -> Result<Evidence, ReadError>;

/// Gives `bytes` to one reader.
pub fn feed(read: Reader, bytes: &[u8]) {
    let limits = Limits::default();
    let ctx = ReadContext { artifact: ArtifactId(0), name: "rank1", limits: &limits };
    match read(&mut &*bytes, &ctx) {
        Ok(evidence) => {
            assert_eq!(evidence.artifacts.len(), 1, "a reader describes one file");
            check(&evidence, bytes.len());
        }
        Err(error) => assert!(error.to_string().len() < 4096, "an error is a sentence"),
    }
}

/// Gives `bytes` to all of them, as an upload.
pub fn upload(bytes: &[u8]) {
    let evidence = read_upload("upload", &mut Cursor::new(bytes), &Limits::default());
    assert!(!evidence.artifacts.is_empty(), "an upload is at least named");
    let packed = evidence.artifacts.len() > 1 || bytes.starts_with(b"\x1f\x8b") || bytes.starts_with(b"\x28\xb5\x2f\xfd");
    if !packed {
        check(&evidence, bytes.len());
    }
}

/// Gives `bytes` to the readers of launches: as each kind of text, whatever it looks like.
pub fn launch(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let limits = Limits::default();
    let ctx = ReadContext { artifact: ArtifactId(0), name: "rank1", limits: &limits };
    let _ = launch_text::source_of("run.sh", bytes);
    for source in [
        LaunchSource::Environment,
        LaunchSource::Script,
        LaunchSource::AccelerateConfig,
        LaunchSource::DeepspeedConfig,
    ] {
        if let Ok(evidence) = launch_text::read(source, &text, &ctx) {
            check(&evidence, bytes.len());
        }
    }
}

/// Gives `bytes` to the reader of the memory viewer's pages, behind the beginning of such a page.
pub fn page(bytes: &[u8]) {
    let mut page = b"<!DOCTYPE html><script src=\"MemoryViz.js\"></script>".to_vec();
    page.extend_from_slice(bytes);
    let evidence = read_upload("page.html", &mut Cursor::new(page), &Limits::default());
    assert!(!evidence.artifacts.is_empty(), "an upload is at least named");
}

fn check(evidence: &Evidence, input: usize) {
    let json = serde_json::to_string(evidence).expect("evidence can be written");
    let again: Evidence = serde_json::from_str(&json).expect("evidence can be read");
    assert!(again == *evidence, "evidence survives its own format");
    assert!(json.len() < 1000 * input + (64 << 10), "{} bytes of evidence from {input}", json.len());
}
