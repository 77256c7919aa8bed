//! What operators write or copy, and the binary reads: configuration files, units, manifests.

#![allow(clippy::unwrap_used)] // a helper that fails should stop the test

mod configuration;
mod deploy;
