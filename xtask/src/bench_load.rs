//! A team at work against one server, optimised, on this machine: the figures and the bars. The measurement itself is a
//! test of the server; knows nothing of formats.

use crate::layout::Layout;
use crate::{command, say};
use anyhow::Result;

/// Builds the server optimised, without a browser bundle, and measures.
pub fn bench(layout: &Layout) -> Result<()> {
    say::line("a team at work for five minutes; RANKSCOPE_LOAD_SECONDS makes it shorter");
    let mut measure = command::cargo();
    measure.current_dir(&layout.root).args(["test", "--quiet", "--release", "--package", "rankscope"]);
    command::run(measure.args(["--test", "load_bench", "--", "--ignored", "--nocapture"]))
}
