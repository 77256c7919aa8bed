//! What the charts show: plain numbers, reduced to what a page needs, and frozen with the report.

use crate::SeriesAxis;
use crate::facts::RunFacts;
use crate::subject::{Phase, Quantity, Subject};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// The charts of a report. `None` where the evidence has nothing for one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Memory over time per rank or device.
    pub timeline: Option<Timeline>,
    /// Peak per rank or device.
    pub peaks: Option<Peaks>,
    /// What fills each device, heaviest first or in index order.
    pub composition: Vec<Composition>,
    /// What each rank was fed against what it used, step by step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scatter: Option<Scatter>,
    /// What the run is held against another by. Absent in reports that were frozen before it was kept.
    #[serde(default, skip_serializing_if = "RunFacts::is_empty")]
    pub facts: RunFacts,
}

/// Memory over time, all subjects on one axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// What is drawn.
    pub quantity: Quantity,
    /// Meaning of the x values.
    pub axis: SeriesAxis,
    /// One line per subject, in subject order.
    pub lines: Vec<TimelineLine>,
    /// Capacity line, where known.
    pub capacity: Option<Bytes>,
    /// Shaded phases.
    pub phases: Vec<PhaseSpan>,
    /// Vertical marks (gap opens, OOM).
    pub marks: Vec<TimelineMark>,
}

/// One subject's line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimelineLine {
    /// Whose.
    pub subject: Subject,
    /// Ascending.
    pub x: Vec<i64>,
    /// Bytes, same length as `x`.
    pub y: Vec<u64>,
    /// This subject stands out and is drawn in the accusing colour.
    pub accused: bool,
}

/// A phase on the time axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseSpan {
    /// Which.
    pub phase: Phase,
    /// First x.
    pub from: i64,
    /// Last x.
    pub to: i64,
}

/// A moment worth pointing at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineMark {
    /// Where.
    pub x: i64,
    /// A few words: `gap opens`, `out of memory, rank 3`.
    pub text: String,
}

/// Peak per subject with the median line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    /// What is compared.
    pub quantity: Quantity,
    /// In subject order.
    pub bars: Vec<PeakBar>,
    /// Median of the bars; of an even count the lower of the two middle ones, so that it is a value some bar has.
    pub median: Bytes,
    /// Capacity line, where known and equal for all.
    pub capacity: Option<Bytes>,
    /// How many neighbours share a node, where the evidence says; ranks are numbered node by node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_node: Option<u32>,
    /// The one moment that the bars are of, in words (`at step 3`): then they are no peaks over the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// One bar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeakBar {
    /// Whose.
    pub subject: Subject,
    /// Its peak.
    pub peak: Bytes,
    /// Stands out.
    pub accused: bool,
}

/// The size of each batch against the memory of its step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scatter {
    /// What is counted of a batch: tokens or samples.
    pub input: Quantity,
    /// What is measured.
    pub quantity: Quantity,
    /// One per subject, in subject order.
    pub clouds: Vec<ScatterCloud>,
    /// Capacity line, where known and equal for all.
    pub capacity: Option<Bytes>,
    /// The straight line through all steps, where there is one.
    pub fit: Option<ScatterFit>,
}

/// One subject's steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScatterCloud {
    /// Whose.
    pub subject: Subject,
    /// Tokens or samples.
    pub x: Vec<u64>,
    /// Bytes at the same step, same length as `x`.
    pub y: Vec<u64>,
    /// Stands out.
    pub accused: bool,
}

/// A straight line through points, least squares.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ScatterFit {
    /// Pearson's correlation, -1 to 1.
    pub r: f64,
    /// Bytes at no input.
    pub intercept: f64,
    /// Bytes per token or sample.
    pub slope: f64,
}

/// What fills one device at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Composition {
    /// The device, or the rank where only that is known.
    pub subject: Subject,
    /// Capacity, where known.
    pub capacity: Option<Bytes>,
    /// Parts in the order of [`PartKind`]; free space is the rest up to capacity and not listed.
    pub parts: Vec<Part>,
    /// Where these figures come from, `nvidia-smi.txt:9-45`.
    pub source: String,
    /// Stands out.
    pub accused: bool,
}

impl Composition {
    /// Sum of the parts.
    pub fn used(&self) -> Bytes {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

/// One part of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Which.
    pub kind: PartKind,
    /// How much.
    pub bytes: Bytes,
}

/// The parts that are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// Allocated by PyTorch.
    Allocated,
    /// Freed by the program but still active: the allocator waits until another stream is done with it.
    Waiting,
    /// Reserved by PyTorch's cache and neither allocated nor waiting.
    Cached,
    /// The device's own process, where it cannot be split further.
    OwnProcess,
    /// This process outside PyTorch's allocator: context, NCCL, libraries.
    OutsidePytorch,
    /// Processes of the same job that belong to other devices.
    OtherRanks,
    /// Processes that are not of this job, or not known to be.
    OtherProcesses,
    /// Used by processes that are listed without a size; what no listed process uses is in it too.
    UnsizedProcesses,
    /// Used by the device but by no listed process.
    Unaccounted,
    /// Used by the device, and nothing lists the processes.
    Untold,
}

impl PartKind {
    /// All, in their order.
    pub const ALL: [Self; 10] = [
        Self::Allocated,
        Self::Waiting,
        Self::Cached,
        Self::OwnProcess,
        Self::OutsidePytorch,
        Self::OtherRanks,
        Self::OtherProcesses,
        Self::UnsizedProcesses,
        Self::Unaccounted,
        Self::Untold,
    ];

    /// Words for the key.
    pub fn title(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Waiting => "waiting on a stream",
            Self::Cached => "cached",
            Self::OwnProcess => "own process",
            Self::OutsidePytorch => "outside PyTorch (context, NCCL)",
            Self::OtherRanks => "other ranks",
            Self::OtherProcesses => "other processes",
            Self::UnsizedProcesses => "listed processes, size not printed",
            Self::Unaccounted => "no listed process",
            Self::Untold => "not told whose (no list of processes)",
        }
    }

    /// Belongs in the accusing colour.
    pub fn accused(self) -> bool {
        matches!(self, Self::OtherRanks | Self::OtherProcesses)
    }
}
