//! The `rankscope` binary: `serve`, `agent`, `diagnose` and what belongs to them.
//!
//! Where to look first: [`commands`] for what the commands do, [`engine`] for the way from bytes to a report,
//! [`http`] for addresses, [`store`] for what outlives a request, [`agent`] for the way of samples to a server. The diagnosis itself is the crate
//! `rankscope-diagnosis`, the pages are the crate `rankscope-app`.
#![deny(clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod access;
pub mod accounts;
pub mod agent;
pub mod backend;
mod certificates;
pub mod checklist;
pub mod cli;
pub mod commands;
pub mod configuration;
pub mod engine;
pub mod errors;
pub mod http;
pub mod intake;
pub mod jobs;
mod likeness;
pub mod limits;
pub mod listener;
pub mod live;
pub mod masking;
pub mod metrics;
pub mod multipart;
pub mod oidc;
pub mod paced;
pub mod passwords;
pub mod prometheus;
pub mod render;
pub mod retention;
pub mod series;
pub mod service;
pub mod share_lock;
pub mod store;
pub mod visible;

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing into a String cannot fail
        text
    })
}
