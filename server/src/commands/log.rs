//! The log of the commands that run for long, on standard error.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Begins it. `RUST_LOG` says what is written.
pub fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,rankscope=info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
