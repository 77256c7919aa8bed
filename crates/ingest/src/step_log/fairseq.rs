//! fairseq, which prints what is left of the card: `gb_free=20.1` is its capacity less the peak since the last line.
//!
//! The capacity stands in the list of workers at the start, and only rank 0 prints steps. Without the list nothing is
//! said: what is free of an unknown card is no figure.

use super::records::Draft;
use rankscope_model::{Bytes, GIB, Rank, Step};
use std::collections::BTreeMap;

/// Ranks whose card is remembered.
const MAX_RANKS: usize = 4096;

/// The cards of the workers.
#[derive(Debug, Default)]
pub(super) struct Fairseq {
    totals: BTreeMap<u32, Bytes>,
}

impl Fairseq {
    /// Takes a line; a record if it is a step of a worker whose card is known. `named` is the rank that the line or the
    /// file names.
    pub(super) fn line(&mut self, body: &str, named: Option<Rank>) -> Option<Draft> {
        if let Some((rank, total)) = worker(body) {
            if self.totals.len() < MAX_RANKS {
                self.totals.insert(rank.0, total);
            }
            return None;
        }
        if self.totals.is_empty() {
            return None;
        }
        let rank = named.unwrap_or(Rank(0));
        let total = *self.totals.get(&rank.0)?;
        let free = Bytes::from_float(decimal(value(body, "gb_free")?)?, GIB)?;
        if free > total {
            return None;
        }
        let mut draft = Draft::default();
        // What the line or the file names is checked where all prefixes are.
        draft.rank = named.is_none().then_some(rank);
        draft.step = value(body, "num_updates").and_then(|number| number.parse().ok()).map(Step);
        draft.peak_allocated = Some(total.saturating_sub(free));
        Some(draft)
    }
}

/// `rank   0: capabilities =  7.0  ; total memory = 31.749 GB ; name = Tesla V100-SXM2-32GB`
fn worker(body: &str) -> Option<(Rank, Bytes)> {
    let (before, after) = body.split_once(": capabilities = ")?;
    let (_, rank) = before.rsplit_once("rank")?;
    let (_, total) = after.split_once("total memory = ")?;
    let (total, _) = total.split_once(" GB")?;
    Some((Rank(rank.trim().parse().ok()?), Bytes::from_float(decimal(total)?, GIB)?))
}

/// `gb_free=20.1,` or `"gb_free": "20.1",`.
fn value<'b>(body: &'b str, key: &str) -> Option<&'b str> {
    let (_, after) = body.split_once(key)?;
    let number = after.trim_start_matches(['"', ':', '=', ' ']);
    let end = number.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(number.len());
    number.get(..end).filter(|number| !number.is_empty())
}

/// A plain decimal of a size that a card can have.
fn decimal(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|gib: &f64| (0.0..10_000.0).contains(gib))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: &str = "2020-07-01 12:00:00 | INFO | fairseq.utils | rank   0: capabilities =  7.0  ; total memory = 31.749 GB ; name = Tesla V100-SXM2-32GB";
    const STEP: &str = "2020-07-01 12:01:00 | INFO | train_inner | epoch 001:    100 / 1000 loss=10.5, bsz=32, num_updates=100, lr=1e-05, gb_free=20.1, wall=20";

    #[test]
    fn the_peak_is_what_is_not_free() {
        let mut fairseq = Fairseq::default();
        assert_eq!(fairseq.line(STEP, None), None);
        assert_eq!(fairseq.line(WORKER, None), None);
        let peak = Bytes::from_float(31.749, GIB).unwrap().saturating_sub(Bytes::from_float(20.1, GIB).unwrap());
        let record = fairseq.line(STEP, None).unwrap();
        assert_eq!((record.rank, record.step, record.peak_allocated), (Some(Rank(0)), Some(Step(100)), Some(peak)));
        let json = "{\"epoch\": 1, \"loss\": \"10.5\", \"num_updates\": \"100\", \"gb_free\": \"20.1\"}";
        assert_eq!(fairseq.line(json, None), Some(record));
        // A worker whose card was not listed.
        assert_eq!(fairseq.line(STEP, Some(Rank(3))), None);
        assert_eq!(fairseq.line("gb_free=99.0", None), None);
        assert_eq!(fairseq.line("gb_free=", None), None);
    }
}
