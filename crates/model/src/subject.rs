//! What a figure is about: a rank, a device or a MIG slice; which quantity; in which phase.

use crate::units::Rank;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The rank or device that a figure belongs to. In JSON `{"rank":0}`, `{"device":3}`,
/// `{"mig_slice":{"device":0,"gpu_instance":2,"compute_instance":0}}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// One process of the job, by global rank.
    Rank(Rank),
    /// One physical GPU, by the index that the tool printed.
    Device(u32),
    /// One MIG slice of a GPU.
    MigSlice {
        /// Index of the physical GPU.
        device: u32,
        /// GPU instance id (`GI ID`).
        gpu_instance: u32,
        /// Compute instance id (`CI ID`).
        compute_instance: u32,
    },
}

impl Subject {
    /// The rank's number, if this is a rank.
    pub fn rank(self) -> Option<u32> {
        match self {
            Self::Rank(rank) => Some(rank.0),
            _ => None,
        }
    }

    /// Index of the physical GPU, if this is a device or a slice of one.
    pub fn device(self) -> Option<u32> {
        match self {
            Self::Rank(_) => None,
            Self::Device(device) | Self::MigSlice { device, .. } => Some(device),
        }
    }
}

/// `rank 0`, `GPU 3`, `GPU 0 MIG 2/0`.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank(rank) => write!(f, "rank {}", rank.0),
            Self::Device(device) => write!(f, "GPU {device}"),
            Self::MigSlice { device, gpu_instance, compute_instance } => {
                write!(f, "GPU {device} MIG {gpu_instance}/{compute_instance}")
            }
        }
    }
}

/// What is measured. Figures of different quantities are never compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Used memory of the whole device, all processes (NVML, `nvidia-smi`).
    DeviceUsed,
    /// Memory of one process on the device as the driver counts it: allocator + context + libraries.
    ProcessUsed,
    /// `torch.cuda.memory_allocated()`: rounded bytes of blocks in use.
    Allocated,
    /// Allocated plus blocks that wait for another stream.
    Active,
    /// `torch.cuda.memory_reserved()`: everything the caching allocator took from the driver.
    Reserved,
    /// Bytes as requested, before rounding.
    Requested,
    /// `torch.cuda.max_memory_allocated()`.
    PeakAllocated,
    /// `torch.cuda.max_memory_reserved()`.
    PeakReserved,
    /// Tokens in the batch, not bytes.
    BatchTokens,
    /// Samples in the batch, not bytes.
    BatchSamples,
}

impl Quantity {
    /// The words for readers: `device used`, `peak allocated`, ...
    pub fn title(self) -> &'static str {
        match self {
            Self::DeviceUsed => "device used",
            Self::ProcessUsed => "process used",
            Self::Allocated => "allocated",
            Self::Active => "active",
            Self::Reserved => "reserved",
            Self::Requested => "requested",
            Self::PeakAllocated => "peak allocated",
            Self::PeakReserved => "peak reserved",
            Self::BatchTokens => "batch tokens",
            Self::BatchSamples => "batch samples",
        }
    }
}

/// What the job was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before the first step: imports, process group, model build, wrap.
    Init,
    /// Training steps.
    Train,
    /// Evaluation, validation, test, sampling.
    Eval,
    /// Saving a checkpoint.
    Save,
    /// Loading a checkpoint.
    Resume,
}

impl Phase {
    /// One lower-case word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Train => "train",
            Self::Eval => "eval",
            Self::Save => "save",
            Self::Resume => "resume",
        }
    }
}
