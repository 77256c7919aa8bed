//! Uploaded files, and where in them a fact was read.

use crate::units::UnixMicros;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Position of an artifact in [`crate::Evidence::artifacts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ArtifactId(pub u32);

/// What an artifact was taken for, decided by content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactKind {
    /// The plain `nvidia-smi` table, one or several.
    NvidiaSmi,
    /// Rows of `nvidia-smi --query-gpu` or `--query-compute-apps`.
    NvidiaSmiCsv,
    /// `nvidia-smi -q`, as text or XML.
    NvidiaSmiQuery,
    /// `nvidia-smi dmon` or `pmon`.
    NvidiaSmiMonitor,
    /// `nvidia-smi -L`: names and UUIDs.
    NvidiaSmiList,
    /// `nvidia-smi topo -m`.
    GpuTopology,
    /// `gpustat`, as text or JSON.
    Gpustat,
    /// The screen of `nvitop`.
    Nvitop,
    /// Metrics of GPUs in the text format of Prometheus.
    Prometheus,
    /// `rocm-smi` or `amd-smi`, as text or JSON.
    RocmSmi,
    /// A reading of this machine's devices through NVML.
    Nvml,
    /// A log with memory figures per rank or device and step.
    StepLog,
    /// What `memory_stats()` or `memory_summary()` printed.
    MemoryStats,
    /// Text with an out-of-memory message.
    OomMessage,
    /// A PyTorch CUDA memory snapshot pickle.
    TorchSnapshot,
    /// A torch.profiler trace in the Chrome format.
    ProfilerTrace,
    /// What `export_memory_timeline` wrote.
    MemoryTimeline,
    /// A Python source file.
    PythonScript,
    /// A log that says what the job did, without memory figures.
    JobLog,
    /// Environment variables of a process.
    Environment,
    /// Processes and their command lines, as `ps` and `top` list them.
    ProcessList,
    /// A shell or batch script that starts a job.
    LaunchScript,
    /// A configuration file of accelerate.
    AccelerateConfig,
    /// A configuration file of DeepSpeed.
    DeepspeedConfig,
    /// What the probe wrote of one rank.
    ProbeLog,
    /// What an agent saw of one node while a job ran.
    LiveRecord,
    /// Readable text in which no reader found memory evidence.
    Text,
    /// An archive; its members are artifacts of their own.
    Archive,
    /// Nothing could be read; the warnings say why. The file is kept.
    Unreadable,
}

impl ArtifactKind {
    /// Whether a file of this kind says how full cards are, rather than what one process says of itself.
    pub fn is_of_cards(self) -> bool {
        matches!(
            self,
            Self::NvidiaSmi
                | Self::NvidiaSmiCsv
                | Self::NvidiaSmiQuery
                | Self::NvidiaSmiMonitor
                | Self::Gpustat
                | Self::Nvitop
                | Self::Prometheus
                | Self::RocmSmi
                | Self::Nvml
                | Self::LiveRecord
        )
    }

    /// The words for readers.
    pub fn title(self) -> &'static str {
        match self {
            Self::NvidiaSmi => "nvidia-smi table",
            Self::NvidiaSmiCsv => "nvidia-smi CSV",
            Self::NvidiaSmiQuery => "nvidia-smi -q report",
            Self::NvidiaSmiMonitor => "nvidia-smi monitor",
            Self::NvidiaSmiList => "nvidia-smi list",
            Self::GpuTopology => "GPU topology",
            Self::Gpustat => "gpustat",
            Self::Nvitop => "nvitop",
            Self::Prometheus => "Prometheus metrics",
            Self::RocmSmi => "rocm-smi",
            Self::Nvml => "NVML reading",
            Self::StepLog => "step log",
            Self::MemoryStats => "PyTorch memory statistics",
            Self::OomMessage => "out-of-memory message",
            Self::TorchSnapshot => "PyTorch memory snapshot",
            Self::ProfilerTrace => "PyTorch profiler trace",
            Self::MemoryTimeline => "PyTorch memory timeline",
            Self::PythonScript => "Python script",
            Self::JobLog => "job log",
            Self::Environment => "environment",
            Self::ProcessList => "process list",
            Self::LaunchScript => "launch script",
            Self::AccelerateConfig => "accelerate config",
            Self::DeepspeedConfig => "DeepSpeed config",
            Self::ProbeLog => "Rankscope probe log",
            Self::LiveRecord => "live record",
            Self::Text => "text without evidence",
            Self::Archive => "archive",
            Self::Unreadable => "not readable",
        }
    }
}

/// Something a reader skipped or doubts, in a sentence that says where, why and what to do.
pub type Warning = String;

/// One line of what was understood of a file (`artifacts[]` of the diagnosis JSON).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactInfo {
    /// Display name: the uploaded name, or `archive.zip/member` for members. Never used as a path.
    pub name: String,
    /// What it was taken for.
    pub kind: ArtifactKind,
    /// Global ranks it speaks of, ascending.
    pub ranks: Vec<u32>,
    /// GPU indices it speaks of, ascending.
    #[serde(default)]
    pub devices: Vec<u32>,
    /// Size as uploaded, in bytes.
    pub bytes: u64,
    /// What was skipped or could not be read.
    pub warnings: Vec<Warning>,
}

/// A place inside an artifact; in order of where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// 1-based line.
    Line(u64),
    /// 1-based lines, both ends included.
    Lines(u64, u64),
    /// Byte offset of the decompressed content.
    Offset(u64),
}

impl Place {
    /// Lines before offsets; by first line, then by last; one line before a range of that line.
    fn order(self) -> (u8, u64, u64, u8) {
        match self {
            Self::Line(line) => (0, line, line, 0),
            Self::Lines(first, last) => (0, first, last, 1),
            Self::Offset(offset) => (1, offset, offset, 0),
        }
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

/// Where a fact was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The artifact.
    pub artifact: ArtifactId,
    /// The place in it.
    pub place: Place,
    /// The time printed beside the fact, if it could be read as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<UnixMicros>,
    /// The text itself, cut to [`Provenance::QUOTE_CHARS`] characters; empty for binary formats.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub quote: String,
}

impl Provenance {
    /// Longest quote kept with a fact.
    pub const QUOTE_CHARS: usize = 240;

    /// A line with its text (trimmed at the end and cut to size on a character boundary).
    pub fn line(artifact: ArtifactId, line: u64, text: &str) -> Self {
        Self { artifact, place: Place::Line(line), time: None, quote: Self::cut(text) }
    }

    /// `text` without the blanks at its end, cut to [`Self::QUOTE_CHARS`] on a character boundary.
    pub fn cut(text: &str) -> String {
        let text = text.trim_end();
        match text.char_indices().nth(Self::QUOTE_CHARS) {
            Some((end, _)) => {
                let mut short = text.get(..end).unwrap_or_default().to_owned();
                short.push('…');
                short
            }
            None => text.to_owned(),
        }
    }

    /// A byte offset of a binary format.
    pub fn offset(artifact: ArtifactId, offset: u64) -> Self {
        Self { artifact, place: Place::Offset(offset), time: None, quote: String::new() }
    }
}

/// A reference that a reader can open (`evidence[]` of the diagnosis JSON).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct EvidenceRef {
    /// Name of the artifact.
    pub artifact: String,
    /// First line, 1-based.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Last line where it spans several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_end: Option<u64>,
    /// Byte offset in binary artifacts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Microseconds since the Unix epoch, where the fact has a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<i64>,
    /// Training step, where the fact has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// The text at that place.
    pub quote: String,
    /// Lines of the script just above, in their order: for the reader, no part of what was concluded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<String>,
    /// Lines of the script just below.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<String>,
    /// In a cause: which of its reasons this supports, `why.0`, `against.1`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `nvidia-smi.txt:41-47`, `train.py:56`, `snap.pickle@4096`.
impl fmt::Display for EvidenceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.artifact)?;
        match (self.line, self.line_end, self.offset) {
            (Some(line), Some(end), _) if end > line => write!(f, ":{line}-{end}"),
            (Some(line), _, _) => write!(f, ":{line}"),
            (None, _, Some(offset)) => write!(f, "@{offset}"),
            _ => match self.step {
                Some(step) => write!(f, " step {step}"),
                None => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_read_as_people_write_them() {
        let at = |line, line_end, offset| EvidenceRef {
            artifact: "a.txt".into(),
            line,
            line_end,
            offset,
            ..Default::default()
        };
        assert_eq!(at(Some(41), Some(47), None).to_string(), "a.txt:41-47");
        assert_eq!(at(Some(41), Some(41), None).to_string(), "a.txt:41");
        assert_eq!(at(None, None, Some(4096)).to_string(), "a.txt@4096");
    }

    #[test]
    fn places_stand_in_the_order_of_their_beginning() {
        let places = [Place::Line(2), Place::Lines(3, 5), Place::Lines(3, 9), Place::Line(4), Place::Offset(1)];
        assert!(places.is_sorted());
        assert!(Place::Line(3) < Place::Lines(3, 3));
    }

    #[test]
    fn quotes_are_cut_on_a_character_boundary() {
        let long = "显".repeat(500);
        let quote = Provenance::line(ArtifactId(0), 1, &long).quote;
        assert_eq!(quote.chars().count(), Provenance::QUOTE_CHARS + 1);
    }
}
