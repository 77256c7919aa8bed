//! The diagnosis on the reconstructed cases: a table by label, the misses, the totals, and how well stated confidence is
//! kept; and how long it takes on a pasted table with a script, and on many ranks over a long run.
//!
//! The cases stand in `../shared/cases`, beside the checkout. The judge is the test of the diagnosis crate, which also
//! holds the floor; knows nothing of its rules.

use crate::command;
use crate::layout::Layout;
use anyhow::{Result, bail};

/// Runs judge and clock, optimised, and shows what they print; an error where the count falls below the floor or a time above
/// its bar.
pub fn bench(layout: &Layout) -> Result<()> {
    let cases = layout.root.join("../shared/cases");
    if !cases.is_dir() {
        bail!("the cases are not there ({}): they are no part of this checkout", cases.display());
    }
    for (file, only) in [("cases", &["the_cases_are_judged_right", "stated_confidence_is_kept"][..]), ("speed", &[])] {
        let mut judge = command::cargo();
        judge.current_dir(&layout.root).args(["test", "--quiet", "--release", "--package", "rankscope-diagnosis"]);
        // One at a time, so that no clock measures its neighbour.
        command::run(judge.args(["--test", file, "--", "--nocapture", "--test-threads=1"]).args(only))?;
    }
    Ok(())
}
