//! The lines of one probe in bounded memory, so that a reader can be given them again: all that are no steps, and of
//! the steps as many as fit, evenly over the run, with the newest whole. Knows no meaning of a line beyond its type.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Bytes kept of one process: some 800 steps. A job of 512 ranks then has 128 MiB.
const MOST_BYTES: usize = 256 << 10;
/// The newest steps are always kept.
const NEWEST: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// Call of `step`, for lines that are steps.
    step: Option<u64>,
    /// Of these only the last is kept.
    is_facts: bool,
    text: String,
}

/// Lines of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeLines {
    kept: Vec<Kept>,
    bytes: usize,
    /// Every how many steps one is kept, with the one after it, which holds its memory.
    stride: u64,
    /// Lines that were left out.
    left_out: u64,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    n: Option<u64>,
}

impl ProbeLines {
    /// Adds a line.
    pub fn push(&mut self, text: &str) {
        let Ok(head) = serde_json::from_str::<Head<'_>>(text) else { return };
        self.stride = self.stride.max(2); // pairs: a step and the one after it, which holds its peak
        let is_facts = head.kind == "facts";
        let step = if head.kind == "step" { head.n.or(Some(0)) } else { None };
        if is_facts {
            // Lists that were empty by then stand in an earlier one; two are enough to know both.
            let known = self.kept.iter().filter(|kept| kept.is_facts).count();
            if known >= 2
                && let Some(at) = self.kept.iter().rposition(|kept| kept.is_facts)
            {
                self.bytes -= self.kept.remove(at).text.len();
            }
        }
        self.bytes += text.len();
        self.kept.push(Kept { step, is_facts, text: text.to_owned() });
        while self.bytes > MOST_BYTES && self.thin() {}
    }

    /// Makes room; `false` when nothing more can go.
    fn thin(&mut self) -> bool {
        let before = self.kept.len();
        let steps = self.kept.iter().filter(|kept| kept.step.is_some()).count();
        if steps > 2 * NEWEST {
            self.stride = self.stride.saturating_mul(2);
            let (stride, mut number) = (self.stride, 0);
            self.kept.retain(|kept| {
                let Some(n) = kept.step else { return true };
                number += 1;
                number + NEWEST > steps || n % stride < 2
            });
        }
        if self.kept.len() == before {
            // Many phases, or long lines: the oldest go, but never the first line, which says who speaks.
            let oldest = self.kept.iter().enumerate().skip(1).find(|(_, kept)| !kept.is_facts).map(|(at, _)| at);
            let Some(oldest) = oldest.filter(|at| at + 1 < before) else { return false };
            self.kept.remove(oldest);
        }
        self.left_out += (before - self.kept.len()) as u64;
        self.bytes = self.kept.iter().map(|kept| kept.text.len()).sum();
        true
    }

    /// The lines as the text of a log.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.bytes + self.kept.len());
        for kept in &self.kept {
            text.push_str(&kept.text);
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(n: u64) -> String {
        format!(r#"{{"type":"step","seq":{n},"t":1,"n":{n},"step":{n},"phase":"train","mem":{{"allocated":{n}}}}}"#)
    }

    #[test]
    fn a_long_run_fits_and_keeps_pairs_ends_and_what_is_no_step() {
        let mut lines = ProbeLines::default();
        lines.push(r#"{"type":"start","seq":0,"t":0,"rank":3}"#);
        for n in 0..100_000 {
            lines.push(&step(n));
            if n == 70 {
                lines.push(r#"{"type":"oom","seq":71,"t":1,"n":70}"#);
            }
        }
        let text = lines.text();
        assert!(text.len() <= MOST_BYTES + 1000, "{}", text.len());
        assert!(text.starts_with("{\"type\":\"start\"") && text.contains("\"oom\""));
        let steps: Vec<u64> = text
            .lines()
            .filter(|line| line.contains("\"step\",\"seq\""))
            .map(|line| line.split("\"n\":").nth(1).unwrap().split(',').next().unwrap().parse().unwrap())
            .collect();
        assert!(steps.is_sorted() && steps.len() > 300);
        assert_eq!(&steps[steps.len() - NEWEST..], (100_000 - NEWEST as u64..100_000).collect::<Vec<_>>());
        assert!(steps.contains(&0) && steps.contains(&1), "each step that is kept has the one after it");
    }

    #[test]
    fn long_lines_do_not_grow_without_bound() {
        let mut lines = ProbeLines::default();
        lines.push(r#"{"type":"start","seq":0}"#);
        for n in 0..200 {
            lines.push(&format!(r#"{{"type":"facts","seq":{n},"x":"{}"}}"#, "y".repeat(40_000)));
            lines.push(&format!(r#"{{"type":"phase","seq":{n},"x":"{}"}}"#, "y".repeat(4_000)));
        }
        lines.push("not json");
        let text = lines.text();
        assert!(text.len() <= MOST_BYTES + 50_000);
        assert!(text.starts_with("{\"type\":\"start\""));
        assert_eq!(text.matches("\"facts\"").count(), 2);
    }
}
