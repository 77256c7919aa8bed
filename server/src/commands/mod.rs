//! What each command does, from its arguments to its exit status.

pub mod diagnose;
mod folder;
mod nvml;
pub mod serve;
