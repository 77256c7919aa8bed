//! The diagnosis on the reconstructed cases: a table by label, the misses and the totals.
//!
//! The cases stand in `../shared/cases`, beside the checkout. The judge is the test of the diagnosis crate, which also
//! holds the floor; knows nothing of its rules.

use crate::command;
use crate::layout::Layout;
use anyhow::{Result, bail};

/// Runs the judge, optimised, and shows what it prints; an error where the count falls below the floor.
pub fn bench(layout: &Layout) -> Result<()> {
    let cases = layout.root.join("../shared/cases");
    if !cases.is_dir() {
        bail!("the cases are not there ({}): they are no part of this checkout", cases.display());
    }
    let mut judge = command::cargo();
    judge.current_dir(&layout.root).args(["test", "--quiet", "--release", "--package", "rankscope-diagnosis"]);
    command::run(judge.args(["--test", "cases", "the_cases_are_judged_right", "--", "--nocapture"]))
}
