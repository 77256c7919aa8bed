//! What is kept of each source: the one place that decides what is new, what came before and what is missing.

use super::batch::Batch;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Sources of which nothing was heard for so long are forgotten.
const FORGET: i64 = 30 * 86_400_000_000;

/// Positions by source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    known: HashMap<String, Known>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    acknowledged: u64,
    heard: i64,
}

/// What a batch is against what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

impl Sources {
    /// Judges a batch. A source that is not known may begin anywhere: what it sent before was kept by a server that
    /// has lost it since, and the source no longer has it.
    pub fn judge(&self, batch: &Batch) -> Judged {
        let Some(Known { acknowledged: known, .. }) = self.known.get(&batch.source).copied() else {
            return Judged::New { known: None };
        };
        if batch.last <= known {
            Judged::Old { known }
        } else if batch.has_gap_after(Some(known)) {
            Judged::Gap { known }
        } else {
            Judged::New { known: Some(known) }
        }
    }

    /// Everything up to `last` is kept now. Returns what was before, for [`Self::restore`].
    pub fn take(&mut self, source: &str, last: u64, now: i64) -> Before {
        let before = self.known.insert(source.to_owned(), Known { acknowledged: last, heard: now });
        Before { source: source.to_owned(), known: before }
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

/// What was known of a source before.
#[derive(Debug)]
pub struct Before {
    source: String,
    known: Option<Known>,
}
