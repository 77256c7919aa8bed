//! The steps of a check, each timed, and what became of them.

use crate::say;
use anyhow::{Result, bail};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// With the reason.
    Skipped(String),
}

/// Steps in order. A failed one does not stop those that do not need it: one run tells all that is wrong.
#[derive(Debug, Default)]
pub struct Summary {
    steps: Vec<(&'static str, Duration, Outcome)>,
}

impl Summary {
    /// Runs a step; its result where it passed.
    pub fn step<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T>) -> Option<T> {
        say::line(format!("== {name}"));
        let started = Instant::now();
        let result = work();
        let outcome = if result.is_ok() { Outcome::Passed } else { Outcome::Failed };
        self.steps.push((name, started.elapsed(), outcome));
        result.inspect_err(say::error).ok()
    }

    /// Notes a step that did not run.
    pub fn skip(&mut self, name: &'static str, reason: impl Into<String>) {
        self.steps.push((name, Duration::ZERO, Outcome::Skipped(reason.into())));
    }

    /// Prints the table; an error when any step failed.
    pub fn finish(self) -> Result<()> {
        eprint!("{}", self.table());
        let failed: Vec<_> =
            self.steps.iter().filter(|(_, _, outcome)| *outcome == Outcome::Failed).map(|(name, ..)| *name).collect();
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        Ok(())
    }

    fn table(&self) -> String {
        let mut text = String::from("\n");
        for (name, took, outcome) in &self.steps {
            // Writing to a String does not fail.
            let _ = match outcome {
                Outcome::Passed => writeln!(text, "  passed   {:>7}  {name}", minutes(*took)),
                Outcome::Failed => writeln!(text, "  FAILED   {:>7}  {name}", minutes(*took)),
                Outcome::Skipped(reason) => writeln!(text, "  left out {:>7}  {name}: {reason}", ""),
            };
        }
        let count = |wanted: fn(&Outcome) -> bool| self.steps.iter().filter(|(_, _, outcome)| wanted(outcome)).count();
        let all: Duration = self.steps.iter().map(|(_, took, _)| *took).sum();
        let _ = writeln!(
            text,
            "  in all   {:>7}\nsteps: {} passed, {} failed, {} skipped",
            minutes(all),
            count(|outcome| *outcome == Outcome::Passed),
            count(|outcome| *outcome == Outcome::Failed),
            count(|outcome| matches!(outcome, Outcome::Skipped(_))),
        );
        text
    }
}

/// `1:05`, minutes and seconds.
fn minutes(took: Duration) -> String {
    let seconds = took.as_secs_f64().round();
    format!("{}:{:02}", (seconds / 60.0).floor(), seconds % 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn times_are_minutes_and_seconds() {
        assert_eq!(minutes(Duration::from_millis(400)), "0:00");
        assert_eq!(minutes(Duration::from_secs(65)), "1:05");
        assert_eq!(minutes(Duration::from_millis(119_700)), "2:00");
    }

    #[test]
    fn a_failed_step_fails_the_whole_and_does_not_stop_the_rest() {
        let mut summary = Summary::default();
        assert_eq!(summary.step("one", || Ok(1)), Some(1));
        assert_eq!(summary.step::<()>("two", || Err(anyhow!("broken"))), None);
        summary.skip("three", "two failed");
        assert_eq!(summary.step("four", || Ok(4)), Some(4));
        let table = summary.table();
        assert!(table.contains("FAILED      0:00  two"), "{table}");
        assert!(table.contains("three: two failed"), "{table}");
        assert!(table.ends_with("steps: 2 passed, 1 failed, 1 skipped\n"), "{table}");
        assert_eq!(summary.finish().unwrap_err().to_string(), "failed: two");
    }

    #[test]
    fn all_passed_is_no_error() {
        let mut summary = Summary::default();
        summary.step("one", || Ok(()));
        summary.skip("two", "--quick");
        assert!(summary.finish().is_ok());
    }
}
