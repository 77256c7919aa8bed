//! Bytes to evidence: one module per format, one [`sniff`] that picks by content.
//!
//! Everything here reads files of strangers. Nothing panics on them, nothing in them is run, memory and time are
//! bounded by [`Limits`], and what could not be understood ends as a warning of the artifact. Knows no rule about
//! causes and no page.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
// In tests an overflow is a failed test, which is what it should be.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod buckets;
mod clock;
pub mod container;
mod context;
mod device_tools;
mod json;
pub mod launch;
mod lines;
pub mod live_record;
pub mod memory_timeline;
pub mod nvidia_smi;
pub mod oom;
mod phases;
pub mod probe_log;
pub mod profiler_trace;
pub mod python_script;
mod rank_name;
pub mod sniff;
pub mod step_log;
mod text;
pub mod torch_snapshot;
mod upload;
pub mod viewer_page;

pub use context::{Limits, ReadContext, ReadError};
pub use device_tools::query_range;
pub use rank_name::rank_from_name;
pub use upload::{ReadSeek, read_upload};
