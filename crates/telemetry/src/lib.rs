//! What this machine's driver says: one NVML reading as evidence, or samples as long as it runs, and which rank a process
//! is.
//!
//! Nothing here creates a CUDA context or holds memory on a device. A machine without a driver is a state with a
//! sentence for people, not an error. This crate must not know HTTP, storage, or any rule of the diagnosis.

mod devices;
mod job;
mod memory;
mod nvml;
mod process_list;
mod rank;
mod reading;
pub mod sampler;

pub use job::JobKey;
pub use nvml::{Nvml, NvmlState};
pub use rank::{ProcFs, ProcessBirth, ProcessIdentity, RankIdentity};
pub use reading::Reading;
