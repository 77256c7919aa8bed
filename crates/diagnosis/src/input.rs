//! Even or uneven input: batch shapes, samples and tokens of all ranks at the same step, and whether peaks follow.
//!
//! Knows shapes and counters; names no cause.

use crate::policy::Policy;
use crate::stats::{pearson, slope};
use crate::steps::{CrossSection, Key, StepView, cross_section, is_training};
use rankscope_model::{ArtifactId, Quantity, StepRecord, Subject};
use std::collections::{BTreeMap, BTreeSet};

/// What is counted of a batch: what the model itself deals out, where that is printed, else tokens, else elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Tokens that a router sends to the rank.
    Routed,
    /// Tokens of the batch as printed.
    Tokens,
    /// The product of the shape.
    Elements,
}

impl Counted {
    /// The most telling that any of the records has.
    pub fn of<'r>(records: impl Iterator<Item = &'r StepRecord>) -> Self {
        let mut found = Self::Elements;
        for row in records {
            if row.routed_tokens.is_some() {
                return Self::Routed;
            }
            if row.batch_tokens.is_some() {
                found = Self::Tokens;
            }
        }
        found
    }

    /// The count of one record.
    pub fn of_row(self, row: &StepRecord) -> Option<u64> {
        match self {
            Self::Routed => row.routed_tokens,
            Self::Tokens => row.batch_tokens,
            Self::Elements => row.elements(),
        }
    }

    /// `tokens`, `elements`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Routed => "routed tokens",
            Self::Tokens => "tokens",
            Self::Elements => "elements",
        }
    }
}

/// What the batches of the ranks look like side by side.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct InputView {
    /// Steps at which at least two ranks, and all that speak of input, have a figure.
    pub steps: usize,
    /// Ranks compared.
    pub ranks: usize,
    /// Steps with unequal samples.
    pub uneven_samples: usize,
    /// Steps with unequal elements (tokens as printed, else the product of the shape).
    pub uneven_elements: usize,
    /// Tokens were printed as such while the shapes are equal: they are dealt inside the model, not by the loader.
    pub uneven_inside: usize,
    /// Largest / smallest elements at one step, the worst step.
    pub worst: Option<Worst>,
    /// Who had most elements, how many steps each.
    pub heavy: BTreeMap<Subject, usize>,
    /// Correlation of the peak with the elements, both freed of what all ranks share at a step.
    pub r: Option<f64>,
    /// Pairs behind it.
    pub pairs: usize,
    /// Bytes per element, from the same pairs.
    pub slope: Option<f64>,
    /// The peaks that were used.
    pub quantity: Option<Quantity>,
    /// Length after which every rank's sequence of batches repeats, within one file.
    pub period: Option<usize>,
    /// Elements change from step to step.
    pub varies: bool,
    /// All ranks have the same varying elements at every step.
    pub identical: bool,
}

/// The step with the largest difference.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Worst {
    /// Where.
    pub key: Key,
    /// Most elements.
    pub most: (Subject, u64),
    /// Fewest elements.
    pub fewest: (Subject, u64),
}

/// Peaks that may follow the input, best first.
const FOLLOWERS: [Quantity; 3] = [Quantity::PeakAllocated, Quantity::Allocated, Quantity::DeviceUsed];

impl InputView {
    /// Holds the batches of all ranks side by side.
    pub fn new(view: &StepView, policy: &Policy) -> Self {
        let counted = Counted::of(view.records().map(|(_, row)| row));
        let prints_tokens = counted != Counted::Elements;
        let elements = |row: &StepRecord| counted.of_row(row);
        let speaks: BTreeSet<Subject> =
            view.records().filter(|(_, row)| elements(row).is_some()).map(|(_, row)| row.subject).collect();
        let mut found = Self { ranks: speaks.len(), ..Self::default() };
        if speaks.len() < 2 {
            return found;
        }
        let mut seen_elements: BTreeSet<u64> = BTreeSet::new();
        for (key, rows) in view.rows.iter().filter(|(key, _)| is_training(key)) {
            let per_rank = cross_section(rows, elements);
            // A step at which a rank is missing is no comparison.
            if per_rank.len() != speaks.len() {
                continue;
            }
            found.steps += 1;
            seen_elements.extend(per_rank.first().map(|(_, n)| *n));
            let samples = cross_section(rows, StepRecord::samples);
            if samples.len() == speaks.len() && !all_equal(&samples) {
                found.uneven_samples += 1;
            }
            if all_equal(&per_rank) {
                continue;
            }
            found.uneven_elements += 1;
            let shapes: BTreeSet<&Option<Vec<u64>>> = rows.iter().map(|row| &row.batch_shape).collect();
            if prints_tokens && shapes.len() == 1 && shapes.iter().all(|shape| shape.is_some()) {
                found.uneven_inside += 1;
            }
            found.count_worst(*key, &per_rank);
        }
        found.varies = seen_elements.len() > 1 || found.uneven_elements > 0;
        found.identical = found.varies && found.uneven_elements == 0;
        found.correlate(view, elements, policy);
        found.period = period(view, &speaks);
        found
    }

    fn count_worst(&mut self, key: Key, per_rank: &CrossSection) {
        let most = per_rank.iter().rev().max_by_key(|(_, n)| *n).copied();
        let fewest = per_rank.iter().min_by_key(|(_, n)| *n).copied();
        let (Some(most), Some(fewest)) = (most, fewest) else { return };
        *self.heavy.entry(most.0).or_default() += 1;
        let ratio = |w: &Worst| w.most.1 as f64 / (w.fewest.1.max(1)) as f64;
        let here = Worst { key, most, fewest };
        if self.worst.as_ref().is_none_or(|old| ratio(&here) > ratio(old)) {
            self.worst = Some(here);
        }
    }

    fn correlate(&mut self, view: &StepView, elements: impl Fn(&StepRecord) -> Option<u64>, policy: &Policy) {
        for quantity in FOLLOWERS {
            let cumulative = quantity == Quantity::PeakAllocated && never_falls(view, quantity);
            let mut largest: BTreeMap<Subject, u64> = BTreeMap::new();
            let mut pairs = Vec::new();
            for (_, rows) in view.rows.iter().filter(|(key, _)| is_training(key)) {
                let input = cross_section(rows, &elements);
                let memory: BTreeMap<Subject, u64> =
                    cross_section(rows, |row| row.bytes(quantity).map(|b| b.0)).into_iter().collect();
                let mut here = Vec::new();
                for (subject, n) in input {
                    let top = largest.entry(subject).or_default();
                    *top = (*top).max(n);
                    let n = if cumulative { *top } else { n };
                    if let Some(bytes) = memory.get(&subject) {
                        here.push((n as f64, *bytes as f64));
                    }
                }
                if here.len() >= 2 {
                    pairs.extend(centred(&here));
                }
            }
            if pairs.len() >= policy.follow_points
                && let Some(r) = pearson(&pairs)
            {
                (self.r, self.pairs, self.quantity) = (Some(r), pairs.len(), Some(quantity));
                self.slope = slope(&pairs);
                return;
            }
        }
    }

    /// Peaks follow the input.
    pub fn follows(&self, policy: &Policy) -> bool {
        self.r.is_some_and(|r| r >= policy.follow_r)
    }

    /// The rank with most input is the same at nearly every uneven step.
    pub fn fixed_heavy(&self) -> Option<Subject> {
        let total: usize = self.heavy.values().sum();
        let (subject, n) = self.heavy.iter().max_by_key(|(_, n)| **n)?;
        (total >= 2 && *n * 10 >= total * 9).then_some(*subject)
    }
}

fn all_equal(values: &CrossSection) -> bool {
    values.windows(2).all(|pair| matches!(pair, [a, b] if a.1 == b.1))
}

/// Frees pairs of what they share at one step.
fn centred(pairs: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let n = pairs.len() as f64;
    let x = pairs.iter().map(|p| p.0).sum::<f64>() / n;
    let y = pairs.iter().map(|p| p.1).sum::<f64>() / n;
    pairs.iter().map(|p| (p.0 - x, p.1 - y)).collect()
}

/// A peak that never falls on any rank was most likely never reset: it then follows the largest batch so far.
fn never_falls(view: &StepView, quantity: Quantity) -> bool {
    let mut last: BTreeMap<(Subject, u32), u64> = BTreeMap::new();
    for (key, row) in view.records() {
        let Some(bytes) = row.bytes(quantity) else { continue };
        if last.insert((row.subject, key.pass), bytes.0).is_some_and(|before| bytes.0 < before) {
            return false;
        }
    }
    true
}

/// Batches of one period looked at; longer ones are not searched for.
const LONGEST_PERIOD: usize = 4096;

/// The shortest length after which every rank's shapes repeat exactly over at least one whole further period. A
/// reshuffled epoch does not repeat. Files are looked at one by one: a second run may well repeat the first.
fn period(view: &StepView, speaks: &BTreeSet<Subject>) -> Option<usize> {
    let mut per_file: BTreeMap<ArtifactId, BTreeMap<Subject, Vec<u64>>> = BTreeMap::new();
    for (_, row) in view.records().filter(|(key, _)| is_training(key)) {
        if let Some(n) = row.elements() {
            per_file.entry(row.at.artifact).or_default().entry(row.subject).or_default().push(n);
        }
    }
    // With one file per rank each file has one sequence, and all must agree on the period.
    let sequences: Vec<&Vec<u64>> = per_file.values().flat_map(BTreeMap::values).collect();
    if sequences.len() != speaks.len() {
        return None;
    }
    let shortest = sequences.iter().map(|s| s.len()).min()?.min(2 * LONGEST_PERIOD);
    // Four different batches at least: fewer repeat by chance.
    let distinct = |s: &[u64]| s.iter().collect::<BTreeSet<_>>().len() >= 4;
    // Fixed shapes are the ordinary case and match at every period: comparing them all would take minutes on a long log.
    if !sequences.iter().all(|s| distinct(s)) {
        return None;
    }
    (4..=shortest / 2).find(|period| {
        sequences.iter().all(|s| s.iter().zip(s.iter().skip(*period)).all(|(a, b)| a == b))
            && sequences.iter().all(|s| s.get(..*period).is_some_and(distinct))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{Bytes, MIB, Provenance, Rank, Step};

    fn log(lengths: &[&[u64]]) -> Vec<StepRecord> {
        let mut line = 0;
        let mut records = Vec::new();
        for (step, ranks) in lengths.iter().enumerate() {
            for (rank, length) in ranks.iter().enumerate() {
                line += 1;
                records.push(StepRecord {
                    step: Some(Step(step as u64)),
                    batch_shape: Some(vec![8, *length]),
                    peak_allocated: Some(Bytes((10_000 + 10 * length) * MIB)),
                    ..StepRecord::new(
                        Provenance::line(ArtifactId(0), line, "x"),
                        Subject::Rank(Rank(u32::try_from(rank).unwrap())),
                    )
                });
            }
        }
        records
    }

    #[test]
    fn peaks_that_follow_lengths_correlate() {
        let records = log(&[&[512, 934], &[700, 480], &[600, 601], &[300, 900], &[512, 512]]);
        let input = InputView::new(&StepView::new(&records), &Policy::default());
        assert_eq!((input.steps, input.uneven_elements, input.uneven_samples), (5, 4, 0));
        assert!(input.follows(&Policy::default()));
        assert_eq!(input.fixed_heavy(), None);
    }

    #[test]
    fn a_missing_rank_is_no_even_step() {
        let mut records = log(&[&[512, 512], &[512, 512]]);
        records.pop();
        let input = InputView::new(&StepView::new(&records), &Policy::default());
        assert_eq!(input.steps, 1);
    }

    #[test]
    fn epochs_in_the_same_order_are_found() {
        let epoch: Vec<&[u64]> = vec![&[1, 9], &[2, 7], &[3, 8], &[4, 6], &[5, 1]];
        let twice: Vec<&[u64]> = epoch.iter().chain(&epoch).copied().collect();
        assert_eq!(InputView::new(&StepView::new(&log(&twice)), &Policy::default()).period, Some(5));
        let other: Vec<&[u64]> = vec![&[2, 9], &[1, 7], &[3, 8], &[4, 6], &[5, 1]];
        let reshuffled: Vec<&[u64]> = epoch.iter().chain(&other).copied().collect();
        assert_eq!(InputView::new(&StepView::new(&log(&reshuffled)), &Policy::default()).period, None);
    }
}
