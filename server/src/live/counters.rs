//! What the live half counts about itself, as Prometheus text. Counters only go up; nothing here can fail or block.

use super::batch::{Batch, Lines};
use crate::metrics::{Histogram, head};
use rankscope_model::LiveRecord;
use std::{
    fmt::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Upper bounds of the acknowledgement-time histogram, in seconds; 250 ms is what is promised at the 99th percentile.
const ACK_BOUNDS: [f64; 9] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];

/// All counters of the live half.
#[derive(Debug)]
pub struct Counters {
    batches: AtomicU64,
    lines: AtomicU64,
    samples: AtomicU64,
    duplicate_batches: AtomicU64,
    duplicate_lines: AtomicU64,
    gaps: AtomicU64,
    refused: AtomicU64,
    turned_away: AtomicU64,
    impossible: AtomicU64,
    dropped_lines: AtomicU64,
    dropped_samples: AtomicU64,
    acknowledge: Histogram,
    watchers: Arc<AtomicU64>,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            batches: AtomicU64::default(),
            lines: AtomicU64::default(),
            samples: AtomicU64::default(),
            duplicate_batches: AtomicU64::default(),
            duplicate_lines: AtomicU64::default(),
            gaps: AtomicU64::default(),
            refused: AtomicU64::default(),
            turned_away: AtomicU64::default(),
            impossible: AtomicU64::default(),
            dropped_lines: AtomicU64::default(),
            dropped_samples: AtomicU64::default(),
            acknowledge: Histogram::new(&ACK_BOUNDS),
            watchers: Arc::default(),
        }
    }
}

/// What is counted by looking at the state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// Nodes that speak.
    pub connected: u64,
    /// Nodes that are known, silent and ended ones included.
    pub known: u64,
    /// Processes that speak for themselves.
    pub probes: u64,
    /// Runs whose jobs go on.
    pub runs: u64,
}

/// A browser that listens; counted as long as this lives.
#[derive(Debug)]
pub struct Watcher(Arc<AtomicU64>);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Counters {
    /// A batch of which this is new was kept; so many of its lines had been kept before.
    pub fn kept(&self, batch: &Batch, known_lines: usize) {
        let (mut lines, mut samples) = (0, 0);
        match &batch.lines {
            Lines::Agent(found) => {
                for line in found {
                    match &line.record {
                        LiveRecord::Memory(memory) => samples += memory.figures(),
                        LiveRecord::Dropped(dropped) => {
                            let count = dropped.last.saturating_sub(dropped.first).saturating_add(1);
                            self.dropped_lines.fetch_add(count, Relaxed);
                            self.dropped_samples.fetch_add(dropped.samples, Relaxed);
                        }
                        _ => {}
                    }
                }
                lines += found.len() as u64;
            }
            Lines::Probe(found) => lines += found.len() as u64,
        }
        self.batches.fetch_add(1, Relaxed);
        self.lines.fetch_add(lines, Relaxed);
        self.samples.fetch_add(samples, Relaxed);
        self.duplicate_lines.fetch_add(known_lines as u64, Relaxed);
    }

    /// A batch of which everything was kept before.
    pub fn duplicate(&self, lines: usize) {
        self.duplicate_batches.fetch_add(1, Relaxed);
        self.duplicate_lines.fetch_add(lines as u64, Relaxed);
    }

    /// A batch before which lines are missing.
    pub fn gap(&self) {
        self.gaps.fetch_add(1, Relaxed);
    }

    /// A batch that was not kept: not understood, too much at once, or the disk.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// A sender was turned away before its batch was looked at.
    pub fn turned_away(&self) {
        self.turned_away.fetch_add(1, Relaxed);
    }

    /// Readings of kept batches that cannot be, and were left out.
    pub fn impossible(&self, readings: u64) {
        self.impossible.fetch_add(readings, Relaxed);
    }

    /// A batch was acknowledged, so long after it had arrived.
    pub fn acknowledged(&self, took: Duration) {
        self.acknowledge.observe(took);
    }

    /// A browser listens.
    pub fn watch(&self) -> Watcher {
        self.watchers.fetch_add(1, Relaxed);
        Watcher(Arc::clone(&self.watchers))
    }

    /// Prometheus text, version 0.0.4.
    pub fn render(&self, standing: Standing) -> String {
        let mut out = String::new();
        for (name, help, counter) in [
            ("rankscope_live_batches_total", "Batches of agents and probes kept.", &self.batches),
            ("rankscope_live_lines_total", "Lines of those batches.", &self.lines),
            ("rankscope_live_samples_total", "Figures of memory in those lines.", &self.samples),
            (
                "rankscope_live_duplicate_batches_total",
                "Batches that came again and counted once.",
                &self.duplicate_batches,
            ),
            ("rankscope_live_duplicate_lines_total", "Lines that came again and counted once.", &self.duplicate_lines),
            ("rankscope_live_gaps_total", "Batches sent back because lines before them are missing.", &self.gaps),
            ("rankscope_live_refused_total", "Batches that were not kept.", &self.refused),
            (
                "rankscope_live_turned_away_total",
                "Requests of senders that showed no token that counts here.",
                &self.turned_away,
            ),
            (
                "rankscope_live_impossible_readings_total",
                "Readings of kept batches that cannot be, and were left out.",
                &self.impossible,
            ),
            ("rankscope_live_dropped_lines_total", "Lines that agents gave up for want of room.", &self.dropped_lines),
            ("rankscope_live_dropped_samples_total", "Figures of memory in those lines.", &self.dropped_samples),
        ] {
            head(&mut out, name, "counter", help);
            let _ = writeln!(out, "{name} {}", counter.load(Relaxed));
        }
        for (name, help, value) in [
            ("rankscope_live_nodes_connected", "Nodes that speak.", standing.connected),
            ("rankscope_live_nodes", "Nodes that are known, silent ones included.", standing.known),
            ("rankscope_live_probes", "Processes whose probe speaks.", standing.probes),
            ("rankscope_live_runs", "Runs whose jobs go on.", standing.runs),
            ("rankscope_live_watchers", "Event streams that are open.", self.watchers.load(Relaxed)),
        ] {
            head(&mut out, name, "gauge", help);
            let _ = writeln!(out, "{name} {value}");
        }
        let help = "From a batch that has arrived to its acknowledgement, the disk included.";
        self.acknowledge.render(&mut out, "rankscope_live_acknowledge_seconds", help);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_as_prometheus_text() {
        let counters = Counters::default();
        counters.duplicate(3);
        counters.gap();
        counters.impossible(5);
        counters.acknowledged(Duration::from_millis(30));
        let watcher = counters.watch();
        let text = counters.render(Standing { connected: 2, known: 3, probes: 1, runs: 1 });
        for line in [
            "rankscope_live_duplicate_lines_total 3",
            "rankscope_live_gaps_total 1",
            "rankscope_live_impossible_readings_total 5",
            "rankscope_live_nodes_connected 2",
            "rankscope_live_watchers 1",
            "rankscope_live_acknowledge_seconds_bucket{le=\"0.025\"} 0",
            "rankscope_live_acknowledge_seconds_bucket{le=\"0.05\"} 1",
            "rankscope_live_acknowledge_seconds_count 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        drop(watcher);
        assert!(counters.render(Standing::default()).contains("rankscope_live_watchers 0\n"));
    }
}
