//! How the GPUs of one node are linked with each other and with the CPU.
//!
//! Knows what `nvidia-smi topo -m` prints; knows no figure of memory.

use crate::artifact::Provenance;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One printed matrix of links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The head of the matrix.
    pub at: Provenance,
    /// The GPUs, in printed order.
    pub gpus: Vec<TopologyGpu>,
    /// One per pair of GPUs whose link was printed, the lower index first.
    pub links: Vec<GpuLink>,
}

/// One GPU in a [`Topology`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyGpu {
    /// Index as printed.
    pub device: u32,
    /// CPUs near it as printed, `0-19,40-59`.
    pub cpu_affinity: Option<String>,
    /// NUMA node near it as printed, `0`.
    pub numa_affinity: Option<String>,
}

/// The link of two GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuLink {
    /// The lower index.
    pub a: u32,
    /// The higher index.
    pub b: u32,
    /// How they are linked.
    pub kind: LinkKind,
}

/// The ways in which two GPUs reach each other, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// A bonded set of so many `NVLink`s (`NV4`).
    NvLink(u32),
    /// One `PCIe` bridge at most (`PIX`).
    Pix,
    /// Several `PCIe` bridges (`PXB`).
    Pxb,
    /// A `PCIe` host bridge (`PHB`).
    Phb,
    /// Several host bridges of one NUMA node (`NODE`).
    Node,
    /// The interconnect between NUMA nodes (`SYS`; `SOC` of old drivers).
    Sys,
}

/// As the tool prints it: `NV4`, `PIX`, `SYS`.
impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NvLink(count) => write!(f, "NV{count}"),
            Self::Pix => f.write_str("PIX"),
            Self::Pxb => f.write_str("PXB"),
            Self::Phb => f.write_str("PHB"),
            Self::Node => f.write_str("NODE"),
            Self::Sys => f.write_str("SYS"),
        }
    }
}
