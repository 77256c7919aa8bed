//! What is kept of each source: the one place that decides what is new, what came before and what is missing.

use super::batch::{Batch, Sender};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Sources of which nothing was heard for so long are forgotten.
const FORGET: i64 = 30 * 86_400_000_000;
/// Sources that are known at once. Of more the quarter that was silent for longest is forgotten.
const MOST: usize = 65_536;

/// Positions by source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    known: HashMap<String, Known>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    acknowledged: u64,
    heard: i64,
    /// The node of an agent; what an older version has kept does not say it.
    #[serde(default)]
    node: Option<String>,
}

/// What a batch is against what is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// It has lines after `known`, and nothing is missing before them.
    New {
        /// The last line that is kept already.
        known: Option<u64>,
    },
    /// All of it is kept already.
    Old {
        /// The last line that is kept.
        known: u64,
    },
    /// Lines before it are missing, and it does not say why.
    Gap {
        /// The last line that is kept.
        known: u64,
    },
    /// It names another node than the batches of its source before it did.
    Elsewhere {
        /// The node that they named.
        node: String,
    },
}

/// A source, the last line that is kept of it, when it was heard of, and the node of an agent.
pub type Kept = (String, u64, i64, Option<String>);

impl Sources {
    /// Of sources that are kept elsewhere.
    pub fn of(kept: impl Iterator<Item = Kept>) -> Self {
        let known = |(source, acknowledged, heard, node)| (source, Known { acknowledged, heard, node });
        Self { known: kept.map(known).collect() }
    }

    /// The same the other way round.
    pub fn into_kept(self) -> impl Iterator<Item = Kept> {
        self.known.into_iter().map(|(source, known)| (source, known.acknowledged, known.heard, known.node))
    }

    /// Judges a batch. A source that is not known may begin anywhere: what it sent before was kept by a server that
    /// has lost it since, and the source no longer has it.
    pub fn judge(&self, batch: &Batch) -> Judged {
        let Some(Known { acknowledged: known, node, .. }) = self.known.get(&batch.source) else {
            return Judged::New { known: None };
        };
        let known = *known;
        // A source is one run of one agent, which has one node: its lines would fall into the state of another.
        if let Some(node) = node.as_deref().filter(|node| Some(*node) != node_of(batch)) {
            return Judged::Elsewhere { node: node.to_owned() };
        }
        if batch.last <= known {
            Judged::Old { known }
        } else if batch.has_gap_after(Some(known)) {
            Judged::Gap { known }
        } else {
            Judged::New { known: Some(known) }
        }
    }

    /// Everything up to the end of a batch is kept now. Returns what was before, for [`Self::restore`].
    pub fn take(&mut self, batch: &Batch, now: i64) -> Before {
        if self.known.len() >= MOST && !self.known.contains_key(&batch.source) {
            self.forget_some();
        }
        let known = Known { acknowledged: batch.last, heard: now, node: node_of(batch).map(str::to_owned) };
        let before = self.known.insert(batch.source.clone(), known);
        Before { source: batch.source.clone(), known: before }
    }

    fn forget_some(&mut self) {
        let mut heard: Vec<i64> = self.known.values().map(|known| known.heard).collect();
        let (_, limit, _) = heard.select_nth_unstable(MOST / 4);
        let limit = *limit;
        let mut surplus = self.known.len() / 4;
        self.known.retain(|_, known| {
            let goes = surplus > 0 && known.heard <= limit;
            surplus -= usize::from(goes);
            !goes
        });
    }

    /// Undoes a [`Self::take`] whose lines could not be kept; the last one first.
    pub fn restore(&mut self, before: Before) {
        match before.known {
            Some(known) => self.known.insert(before.source, known),
            None => self.known.remove(&before.source),
        };
    }

    /// Forgets sources that were not heard of for long.
    pub fn forget(&mut self, now: i64) {
        self.known.retain(|_, known| now.saturating_sub(known.heard) < FORGET);
    }
}

fn node_of(batch: &Batch) -> Option<&str> {
    match &batch.sender {
        Sender::Agent(node) => Some(node),
        Sender::Probe(_) => None,
    }
}

/// What was known of a source before.
#[derive(Debug)]
pub struct Before {
    source: String,
    known: Option<Known>,
}

#[cfg(test)]
mod tests {
    use super::super::batch::Lines;
    use super::*;

    #[test]
    fn however_many_sources_come_the_newest_are_known_and_no_more_than_fit() {
        let batch = |n: usize| Batch {
            source: format!("s{n}"),
            sender: Sender::Agent("a".into()),
            first: 0,
            last: 7,
            lines: Lines::Agent(Vec::new()),
        };
        let mut sources = Sources::default();
        for n in 0..MOST + 10 {
            sources.take(&batch(n), i64::try_from(n).unwrap());
        }
        assert!(sources.known.len() <= MOST && sources.known.len() > MOST / 2);
        assert_eq!(sources.judge(&batch(MOST + 9)), Judged::Old { known: 7 });
        assert_eq!(sources.judge(&batch(0)), Judged::New { known: None });
        let moved = Batch { sender: Sender::Agent("b".into()), ..batch(MOST + 9) };
        assert_eq!(sources.judge(&moved), Judged::Elsewhere { node: "a".into() });
    }
}
