//! What every fuzz target does with its bytes: read them, and hold the result to what is promised of any evidence.
//!
//! Knows no format. A panic is a finding; so are evidence that does not survive its own format and evidence that grows
//! far beyond its input.

use rankscope_ingest::{Limits, ReadContext, ReadError, launch as launch_text, python_script, read_upload};
use rankscope_model::{ArtifactId, Evidence, LaunchSource};
use std::io::{BufRead, Cursor, Write};

/// A reader of one format.
pub type Reader = fn(&mut dyn BufRead, &ReadContext<'_>) -> Result<Evidence, ReadError>;

/// Gives `bytes` to one reader.
pub fn feed(read: Reader, bytes: &[u8]) {
    feed_as("rank1", read, bytes);
}

/// Gives `bytes` to one reader, behind a text that wakes it: the first byte picks one of `beginnings`.
pub fn feed_behind(beginnings: &[&str], read: Reader, bytes: &[u8]) {
    let Some((pick, rest)) = bytes.split_first() else { return };
    let beginning = beginnings[usize::from(*pick) % beginnings.len()];
    feed(read, &[beginning.as_bytes(), rest].concat());
}

/// Gives `bytes` to the reader of notebooks: as they are, and as the source of a cell.
pub fn notebook(bytes: &[u8]) {
    feed_as("train.ipynb", python_script::read, bytes);
    let cell = serde_json::json!({ "cell_type": "code", "source": String::from_utf8_lossy(bytes) });
    let whole = serde_json::json!({ "cells": [cell], "nbformat": 4 }).to_string();
    feed_as("train.ipynb", python_script::read, whole.as_bytes());
}

fn feed_as(name: &str, read: Reader, bytes: &[u8]) {
    let limits = Limits::default();
    let ctx = ReadContext { artifact: ArtifactId(0), name, limits: &limits };
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
    let packed =
        evidence.artifacts.len() > 1 || bytes.starts_with(b"\x1f\x8b") || bytes.starts_with(b"\x28\xb5\x2f\xfd");
    if !packed {
        check(&evidence, bytes.len());
    }
}

/// Gives `bytes` to all readers of text at once, as a log whose first line says that it is one.
pub fn job_log(bytes: &[u8]) {
    let log = [b"rank=0 step=1 cur=1MB\n", bytes].concat();
    let evidence = read_upload("job.log", &mut Cursor::new(&log), &Limits::default());
    check(&evidence, log.len());
}

/// Gives `bytes` to the unpackers. Checksums are put right where that is cheap: no fuzzer guesses them.
pub fn archive(bytes: &[u8]) {
    // What a bomb may unpack to: enough to meet the bound, and little enough to be read in no time.
    let limits = Limits { max_ratio: 16, ratio_free_bytes: 1 << 20, ..Limits::default() };
    let as_tar = with_tar_checksums(bytes);
    let packed = gzip(bytes);
    let packed_tar = gzip(&as_tar);
    for upload in [bytes, &as_tar, &packed, &packed_tar] {
        let evidence = read_upload("upload", &mut Cursor::new(upload), &limits);
        assert!(!evidence.artifacts.is_empty(), "an upload is at least named");
        check(&evidence, upload.len() * 16 + (1 << 20));
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).and_then(|()| packer.finish()).expect("memory can be written")
}

/// Every block of 512 bytes that looks like the head of a member gets the sum that it needs.
fn with_tar_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(512).filter(|block| block.get(257..262) == Some(b"ustar")) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    bytes
}

/// Gives `bytes` to the readers of text behind the head of a process list: the first byte picks which.
pub fn process_list(bytes: &[u8]) {
    let heads = [
        "USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\n",
        "UID          PID    PPID  C STIME TTY          TIME CMD\n",
        "    PID    PPID                  STARTED     ELAPSED STAT CMD\n",
        "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n",
    ];
    let Some((pick, rest)) = bytes.split_first() else { return };
    let list = [heads[usize::from(*pick) % heads.len()].as_bytes(), rest].concat();
    check(&read_upload("ps.txt", &mut Cursor::new(&list), &Limits::default()), list.len());
}

/// Gives `bytes` to the readers of launches: as each kind of text, whatever it looks like.
pub fn launch(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let limits = Limits::default();
    let ctx = ReadContext { artifact: ArtifactId(0), name: "rank1", limits: &limits };
    let _ = launch_text::source_of("run.sh", bytes);
    for source in
        [LaunchSource::Environment, LaunchSource::Script, LaunchSource::AccelerateConfig, LaunchSource::DeepspeedConfig]
    {
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
