//! Memory over time of one rank and device, as profilers and snapshots record it.
//!
//! Reduced where it is read: a recording has millions of events, a page some hundred points. Every bucket keeps its
//! smallest and its largest value, so no spike is lost.

use crate::artifact::Provenance;
use crate::evidence::{CallSite, Frame, SeriesAxis};
use crate::units::{Bytes, Rank};
use serde::{Deserialize, Serialize};

/// Smallest and largest value of one quantity in each bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Band {
    /// Smallest, in bytes.
    pub low: Vec<u64>,
    /// Largest, in bytes.
    pub high: Vec<u64>,
}

impl Band {
    /// The largest value of all buckets.
    pub fn max(&self) -> Option<Bytes> {
        self.high.iter().max().map(|bytes| Bytes(*bytes))
    }
}

/// Several quantities over the same buckets. A quantity that the file does not know is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryCurve {
    /// Meaning of `x`.
    pub axis: SeriesAxis,
    /// Where each bucket begins, ascending (equal times may repeat). Each holds the same number of events, the last
    /// one perhaps fewer.
    pub x: Vec<i64>,
    /// Rounded bytes of blocks in use.
    pub allocated: Option<Band>,
    /// Allocated, and blocks that wait for another stream.
    pub active: Option<Band>,
    /// Everything that the allocator took from the driver.
    pub reserved: Option<Band>,
    /// Bytes as asked for, before rounding.
    pub requested: Option<Band>,
    /// Reserved but not active: the cache, and in it what fragmentation holds.
    pub unused: Option<Band>,
}

/// What a [`MemoryTrace`] was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceSource {
    /// `[memory]` events of a torch.profiler trace.
    Profiler,
    /// `export_memory_timeline`: bytes by category.
    MemoryTimeline,
}

/// What memory was used for, as the memory profiler tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryCategory {
    /// Weights.
    Parameter,
    /// State of the optimizer.
    OptimizerState,
    /// The batch.
    Input,
    /// Needed within one operation.
    Temporary,
    /// Kept for the backward pass.
    Activation,
    /// Gradients.
    Gradient,
    /// Details of autograd.
    AutogradDetail,
    /// Not known.
    Unknown,
}

impl MemoryCategory {
    /// In the order in which `export_memory_timeline` numbers them.
    pub const ALL: [Self; 8] = [
        Self::Parameter,
        Self::OptimizerState,
        Self::Input,
        Self::Temporary,
        Self::Activation,
        Self::Gradient,
        Self::AutogradDetail,
        Self::Unknown,
    ];

    /// The words for readers.
    pub fn title(self) -> &'static str {
        match self {
            Self::Parameter => "parameters",
            Self::OptimizerState => "optimizer state",
            Self::Input => "input",
            Self::Temporary => "temporary",
            Self::Activation => "activations",
            Self::Gradient => "gradients",
            Self::AutogradDetail => "autograd detail",
            Self::Unknown => "unknown",
        }
    }
}

/// Bytes of one category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CategoryBytes {
    /// Which.
    pub category: MemoryCategory,
    /// How much.
    pub bytes: Bytes,
}

/// The moment at which most was allocated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracePeak {
    /// Allocated then.
    pub bytes: Bytes,
    /// When, on the axis of the curve.
    pub x: i64,
    /// What it consisted of, largest first, where the file tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<CategoryBytes>,
}

/// Memory over time of one rank and device.
///
/// A profiler trace without memory events of a GPU gives one of these without device and curve: it still tells that
/// this rank was traced, and of how many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryTrace {
    /// Offset 0 of the file.
    pub at: Provenance,
    /// What it was read from.
    pub source: TraceSource,
    /// From the file's `distributedInfo`, else from its name.
    pub rank: Option<Rank>,
    /// Ranks of the job, from `distributedInfo`.
    #[serde(default)]
    pub world_size: Option<u32>,
    /// Communication backend as written, `nccl`.
    #[serde(default)]
    pub backend: Option<String>,
    /// CUDA or HIP ordinal as that process sees it; `None` where the file does not say.
    pub device: Option<u32>,
    /// Name of the device.
    #[serde(default)]
    pub device_name: Option<String>,
    /// Memory of the device.
    #[serde(default)]
    pub capacity: Option<Bytes>,
    /// Events that changed memory.
    pub events: u64,
    /// Allocated, and reserved where the file has it.
    pub curve: Option<MemoryCurve>,
    /// The peak of allocated within the recording.
    pub peak: Option<TracePeak>,
    /// The peak of reserved within the recording.
    #[serde(default)]
    pub peak_reserved: Option<Bytes>,
    /// What was allocated before the recording began is not known, so every figure is a lower bound.
    #[serde(default)]
    pub is_lower_bound: bool,
}

/// The moment of a snapshot's recording at which most was live, and what was live then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotPeak {
    /// Index of the event after which it was reached; `None` before the first event.
    pub event: Option<u64>,
    /// The same on the axis of the curve.
    pub x: Option<i64>,
    /// Requested bytes live then.
    pub requested: Bytes,
    /// Their rounded sizes: exact for blocks that the snapshot still holds, a lower bound for others.
    pub active: Bytes,
    /// Reserved then.
    pub reserved: Bytes,
    /// The largest call sites then, biggest first, in requested bytes.
    pub sites: Vec<CallSite>,
}

/// Blocks that were allocated within the recording and are still live at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeverFreed {
    /// Their requested bytes.
    pub bytes: Bytes,
    /// How many.
    pub blocks: u64,
    /// Of these, bytes allocated in the second half of the recorded events: what grows does so there too, what is
    /// built once does not.
    pub late_bytes: Bytes,
    /// The largest call sites, biggest first, in requested bytes.
    pub sites: Vec<CallSite>,
}

/// Live requested bytes over the recorded events, by the line of code that asked for them.
///
/// The events are cut into buckets of equal count; each bucket is told by the moment at which most was live in it, so
/// the sum of all lines never hides a spike.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SiteBands {
    /// Meaning of `x`; `None` without a bucket.
    pub axis: Option<SeriesAxis>,
    /// The moment of each bucket, ascending.
    pub x: Vec<i64>,
    /// The lines that held most at any of the moments, largest first.
    pub sites: Vec<SiteBand>,
    /// All other lines together, same length as `x`.
    pub rest: Vec<u64>,
}

/// One line of code over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteBand {
    /// The innermost frame of the user's own code, else the innermost one; `None` where no stack was recorded.
    pub frame: Option<Frame>,
    /// Bytes at each moment.
    pub bytes: Vec<u64>,
}

/// How the allocator's segments are filled: where its cache lies, and in how many pieces.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SegmentMap {
    /// Free bytes inside segments, without those of private pools.
    pub free: Bytes,
    /// In how many pieces they lie.
    pub pieces: u64,
    /// The largest of them: a larger request needs a new segment.
    pub largest_free: Bytes,
    /// Of the free bytes, those in segments that hold nothing else: `empty_cache()` gives them back.
    pub releasable: Bytes,
    /// The segments with most free bytes, most first.
    pub segments: Vec<SegmentFill>,
    /// Segments that are not listed.
    pub left_out: u64,
}

/// One segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentFill {
    /// Its size.
    pub size: Bytes,
    /// In use, or waiting for another stream.
    pub active: Bytes,
    /// Its largest free piece.
    pub largest_free: Bytes,
    /// It belongs to a private pool, as CUDA graphs do.
    pub private: bool,
    /// How full each of [`SegmentFill::PARTS`] equal parts is, in percent, from its beginning to its end.
    pub parts: Vec<u8>,
}

impl SegmentFill {
    /// Parts of a segment.
    pub const PARTS: usize = 64;
}
