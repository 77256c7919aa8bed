//! What the server takes in of live data, optimised, on this machine: the figures and the bars. The measurement itself
//! is a test of the server; knows nothing of formats.

use crate::command;
use crate::layout::Layout;
use anyhow::Result;

/// Builds the server optimised, without a browser bundle, and measures.
pub fn bench(layout: &Layout) -> Result<()> {
    let mut measure = command::cargo();
    measure.current_dir(&layout.root).args(["test", "--quiet", "--release", "--package", "rankscope"]);
    command::run(measure.args(["--test", "live_bench", "--", "--ignored", "--nocapture"]))
}
