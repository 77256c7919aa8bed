//! What the server counts about itself, as Prometheus text. Counters only go up; nothing here can fail or block.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Upper bounds of the reading-time histogram, in seconds.
const READ_BOUNDS: [f64; 7] = [0.01, 0.05, 0.25, 1.0, 5.0, 30.0, 120.0];
/// Status classes `1xx` to `5xx`.
const CLASSES: usize = 5;

/// All counters of one server.
#[derive(Debug)]
pub struct Metrics {
    requests: [AtomicU64; CLASSES],
    uploads: AtomicU64,
    files: AtomicU64,
    files_refused: AtomicU64,
    bytes: AtomicU64,
    diagnoses: AtomicU64,
    reader_panics: AtomicU64,
    read: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: <[AtomicU64; CLASSES]>::default(),
            uploads: AtomicU64::default(),
            files: AtomicU64::default(),
            files_refused: AtomicU64::default(),
            bytes: AtomicU64::default(),
            diagnoses: AtomicU64::default(),
            reader_panics: AtomicU64::default(),
            read: Histogram::new(&READ_BOUNDS),
        }
    }
}

/// How long something took, in buckets.
#[derive(Debug)]
pub(crate) struct Histogram {
    /// Upper bounds in seconds, and how often it took no longer.
    buckets: Vec<(f64, AtomicU64)>,
    count: AtomicU64,
    micros: AtomicU64,
}

impl Histogram {
    /// Nothing was seen yet; `bounds` are in seconds, ascending.
    pub(crate) fn new(bounds: &[f64]) -> Self {
        let buckets = bounds.iter().map(|bound| (*bound, AtomicU64::default())).collect();
        Self { buckets, count: AtomicU64::default(), micros: AtomicU64::default() }
    }

    /// It took so long.
    pub(crate) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        for (_, bucket) in self.buckets.iter().filter(|(bound, _)| seconds <= *bound) {
            bucket.fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Prometheus text.
    pub(crate) fn render(&self, out: &mut String, name: &str, help: &str) {
        head(out, name, "histogram", help);
        for (bound, bucket) in &self.buckets {
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {}", bucket.load(Relaxed));
        }
        let count = self.count.load(Relaxed);
        let seconds = Duration::from_micros(self.micros.load(Relaxed)).as_secs_f64();
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {seconds}\n{name}_count {count}");
    }
}

impl Metrics {
    /// A request was answered.
    pub fn request(&self, status: u16) {
        if let Some(counter) = usize::from(status / 100).checked_sub(1).and_then(|class| self.requests.get(class)) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// An upload was taken in whole.
    pub fn upload(&self, files: u64, bytes: u64) {
        self.uploads.fetch_add(1, Relaxed);
        self.files.fetch_add(files, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// A file was refused.
    pub fn file_refused(&self) {
        self.files_refused.fetch_add(1, Relaxed);
    }

    /// A file was read.
    pub fn read(&self, took: Duration) {
        self.read.observe(took);
    }

    /// A reader panicked: a defect of ours, contained.
    pub fn reader_panic(&self) {
        self.reader_panics.fetch_add(1, Relaxed);
    }

    /// A diagnosis was made.
    pub fn diagnosis(&self) {
        self.diagnoses.fetch_add(1, Relaxed);
    }

    /// Prometheus text, version 0.0.4.
    pub fn render(&self) -> String {
        let mut out = String::new();
        head(&mut out, "rankscope_http_requests_total", "counter", "Answered requests by class of status.");
        for (class, counter) in self.requests.iter().enumerate() {
            let value = counter.load(Relaxed);
            let _ = writeln!(out, "rankscope_http_requests_total{{class=\"{}xx\"}} {value}", class + 1);
        }
        for (name, help, counter) in [
            ("rankscope_uploads_total", "Uploads taken in.", &self.uploads),
            ("rankscope_upload_files_total", "Files taken in.", &self.files),
            ("rankscope_upload_files_refused_total", "Files refused for their size.", &self.files_refused),
            ("rankscope_upload_bytes_total", "Bytes of files taken in.", &self.bytes),
            ("rankscope_diagnoses_total", "Diagnoses made.", &self.diagnoses),
            ("rankscope_reader_panics_total", "Readers that failed on a file; each is a defect.", &self.reader_panics),
        ] {
            head(&mut out, name, "counter", help);
            let _ = writeln!(out, "{name} {}", counter.load(Relaxed));
        }
        self.read.render(&mut out, "rankscope_read_seconds", "Time to read one file.");
        out
    }
}

/// Name, kind and meaning of what follows.
pub(crate) fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_as_prometheus_text() {
        let metrics = Metrics::default();
        metrics.request(201);
        metrics.request(503);
        metrics.upload(2, 300);
        metrics.read(Duration::from_millis(40));
        let text = metrics.render();
        for line in [
            "rankscope_http_requests_total{class=\"2xx\"} 1",
            "rankscope_upload_bytes_total 300",
            "rankscope_read_seconds_bucket{le=\"0.01\"} 0",
            "rankscope_read_seconds_bucket{le=\"0.05\"} 1",
            "rankscope_read_seconds_sum 0.04",
            "rankscope_read_seconds_count 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
