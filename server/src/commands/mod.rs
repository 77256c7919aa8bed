//! What each command does, from its arguments to its exit status.

mod advice;
pub mod agent;
pub mod diagnose;
mod folder;
mod front_door;
mod log;
mod nvml;
mod own_gpus;
mod patient;
pub mod serve;
mod stop;
pub mod user;
