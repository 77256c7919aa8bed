//! The readers of text and traces beside the least that can be done with the same bytes.
//!
//! Runs the example of the readers' crate that makes its own inputs; there is no bar, the figures are for comparing.

use crate::command;
use crate::layout::Layout;
use anyhow::Result;

/// Builds the example, optimised, and shows what it prints.
pub fn bench(layout: &Layout) -> Result<()> {
    let mut speed = command::cargo();
    speed.current_dir(&layout.root).args(["run", "--quiet", "--release", "--package", "rankscope-ingest"]);
    command::run(speed.args(["--example", "read_speed"]))
}
