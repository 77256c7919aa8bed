//! Step records as the rules see them: aligned by step over ranks, split into passes when the count starts again.
//!
//! Knows steps, phases and shapes; knows no cause.

use rankscope_model::{ArtifactId, Phase, Quantity, StepRecord, Subject};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

/// Position of a record in a run: records of different ranks with the same key belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// Counts up each time a rank's step number falls: a new epoch, or a second run.
    pub pass: u32,
    /// Step as printed, or the record's number where none is printed.
    pub step: u64,
    /// What the job did.
    pub phase: Option<Phase>,
}

/// All step records of one kind of subject.
#[derive(Default)]
pub(crate) struct StepView<'a> {
    /// Ranks (or devices), ascending.
    pub subjects: Vec<Subject>,
    /// Records by position.
    pub rows: BTreeMap<Key, Vec<&'a StepRecord>>,
    /// Whether steps were printed; otherwise [`Key::step`] is only a number.
    pub has_steps: bool,
    /// Logs that are there twice, and count once.
    pub copies: Vec<Copied>,
}

/// A file all of whose records another file has too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Copied {
    pub file: ArtifactId,
    pub of: ArtifactId,
    /// The other one has no more than it, so that either may be called the copy.
    pub is_whole: bool,
}

/// Figures of one quantity at one position, one value per subject, in subject order.
pub(crate) type CrossSection = Vec<(Subject, u64)>;

impl<'a> StepView<'a> {
    /// Aligns the records. Where both ranks and devices speak, the kind with more records is taken.
    pub fn new(records: &'a [StepRecord]) -> Self {
        let rank_records = records.iter().filter(|r| r.subject.rank().is_some()).count();
        let takes_ranks = rank_records * 2 >= records.len();
        let mut view = Self { copies: copies(records), ..Self::default() };
        let is_copy = |record: &&StepRecord| view.copies.iter().any(|copy| copy.file == record.at.artifact);
        let counted: Vec<&StepRecord> =
            records.iter().filter(|r| r.subject.rank().is_some() == takes_ranks && !is_copy(r)).collect();
        // Per subject and phase: artifact and step of the last record, and the pass it was in.
        let mut last: BTreeMap<(Subject, Option<Phase>), (u64, u32)> = BTreeMap::new();
        for record in counted {
            let slot = (record.subject, record.phase);
            let (step, pass) = match (record.step, last.get(&slot)) {
                (Some(step), Some((before, pass))) => (step.0, pass.saturating_add(u32::from(step.0 < *before))),
                (Some(step), None) => (step.0, 0),
                (None, Some((before, pass))) => (before.saturating_add(1), *pass),
                (None, None) => (0, 0),
            };
            view.has_steps |= record.step.is_some();
            last.insert(slot, (step, pass));
            view.rows.entry(Key { pass, step, phase: record.phase }).or_default().push(record);
        }
        view.subjects = last.keys().map(|(subject, _)| *subject).collect();
        view.subjects.dedup();
        view
    }

    /// One value per subject at one position; the largest where a subject speaks twice.
    pub fn at(&self, key: &Key, quantity: Quantity) -> CrossSection {
        self.rows.get(key).map(|rows| cross_section(rows, |row| row.bytes(quantity).map(|b| b.0))).unwrap_or_default()
    }

    /// The largest value per subject over the records that `keep` lets through.
    pub fn peaks(&self, quantity: Quantity, keep: impl Fn(&Key) -> bool) -> CrossSection {
        let rows: Vec<&StepRecord> =
            self.rows.iter().filter(|(key, _)| keep(key)).flat_map(|(_, rows)| rows.iter().copied()).collect();
        cross_section(&rows, |row| row.bytes(quantity).map(|b| b.0))
    }

    /// Every record in order of position.
    pub fn records(&self) -> impl Iterator<Item = (&Key, &'a StepRecord)> {
        self.rows.iter().flat_map(|(key, rows)| rows.iter().map(move |row| (key, *row)))
    }

    /// The passes and the artifacts that each comes from.
    pub fn passes(&self) -> BTreeMap<u32, Vec<ArtifactId>> {
        let mut passes: BTreeMap<u32, Vec<ArtifactId>> = BTreeMap::new();
        for (key, row) in self.records() {
            let files = passes.entry(key.pass).or_default();
            if !files.contains(&row.at.artifact) {
                files.push(row.at.artifact);
            }
        }
        passes
    }
}

/// A log that was uploaded twice, on its own and in an archive, or once more with its end.
fn copies(records: &[StepRecord]) -> Vec<Copied> {
    if records.windows(2).all(|pair| matches!(pair, [a, b] if a.at.artifact == b.at.artifact)) {
        return Vec::new();
    }
    let mut files: BTreeMap<ArtifactId, Vec<u64>> = BTreeMap::new();
    let hasher = RandomState::new();
    for record in records {
        let figures =
            [record.allocated, record.peak_allocated, record.reserved, record.peak_reserved, record.device_used];
        let input = (&record.batch_shape, record.batch_samples, record.batch_tokens, record.routed_tokens);
        let said = hasher.hash_one((record.subject, record.step, record.phase, input, figures));
        files.entry(record.at.artifact).or_default().push(said);
    }
    let mut files: Vec<(ArtifactId, Vec<u64>)> = files.into_iter().collect();
    // The longest first: the others may be parts of it.
    files.sort_by_key(|(file, said)| (std::cmp::Reverse(said.len()), *file));
    let mut known: HashMap<u64, ArtifactId> = HashMap::new();
    let lengths: BTreeMap<ArtifactId, usize> = files.iter().map(|(file, said)| (*file, said.len())).collect();
    let mut copies = Vec::new();
    for (file, said) in files {
        let whole = said.first().and_then(|first| known.get(first)).copied();
        match whole.filter(|whole| said.iter().all(|said| known.get(said) == Some(whole))) {
            Some(of) => copies.push(Copied { file, of, is_whole: lengths.get(&of) == Some(&said.len()) }),
            None => said.into_iter().for_each(|said| {
                known.entry(said).or_insert(file);
            }),
        }
    }
    copies.sort();
    copies
}

/// One value per subject, the largest where there are several, in subject order.
pub(crate) fn cross_section(rows: &[&StepRecord], value: impl Fn(&StepRecord) -> Option<u64>) -> CrossSection {
    let mut values: CrossSection = rows.iter().filter_map(|row| Some((row.subject, value(row)?))).collect();
    // Largest first within a subject, of which the first is kept.
    values.sort_unstable_by_key(|(subject, value)| (*subject, std::cmp::Reverse(*value)));
    values.dedup_by_key(|(subject, _)| *subject);
    values
}

/// Training, or not said.
pub(crate) fn is_training(key: &Key) -> bool {
    matches!(key.phase, None | Some(Phase::Train))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{Bytes, MIB, Provenance, Rank, Step};

    fn record(line: u64, rank: u32, step: Option<u64>, mib: u64) -> StepRecord {
        StepRecord {
            step: step.map(Step),
            allocated: Some(Bytes(mib * MIB)),
            ..StepRecord::new(Provenance::line(ArtifactId(0), line, "x"), Subject::Rank(Rank(rank)))
        }
    }

    #[test]
    fn a_falling_step_opens_a_new_pass() {
        let records: Vec<_> = (0..12).map(|n| record(n, 0, Some(n % 4), n)).collect();
        let view = StepView::new(&records);
        assert_eq!(view.passes().len(), 3);
        assert_eq!(view.subjects, [Subject::Rank(Rank(0))]);
    }

    #[test]
    fn a_copy_of_a_log_counts_once() {
        let of = |file: u32, steps: std::ops::Range<u64>| {
            steps.map(move |step| {
                let mut record = record(step, 0, Some(step), 7 + step % 3);
                record.at.artifact = ArtifactId(file);
                record
            })
        };
        let records: Vec<_> = of(0, 0..5).chain(of(1, 0..9)).chain(of(2, 0..9)).collect();
        let view = StepView::new(&records);
        let copies: Vec<_> = view.copies.iter().map(|copy| (copy.file, copy.of)).collect();
        assert_eq!(copies, [(ArtifactId(0), ArtifactId(1)), (ArtifactId(2), ArtifactId(1))]);
        assert_eq!((view.passes().len(), view.records().count()), (1, 9));
        let differs: Vec<_> = of(0, 0..5).chain(of(1, 1..9)).collect();
        assert_eq!(StepView::new(&differs).copies, []);
    }

    #[test]
    fn records_without_step_are_numbered_per_rank() {
        let records = [record(1, 0, None, 5), record(2, 1, None, 6), record(3, 0, None, 7), record(4, 1, None, 8)];
        let view = StepView::new(&records);
        assert!(!view.has_steps);
        let last = view.rows.keys().last().copied().unwrap();
        assert_eq!(view.at(&last, Quantity::Allocated).len(), 2);
        assert_eq!(view.peaks(Quantity::Allocated, |_| true)[1].1, 8 * MIB);
        assert!(view.at(&last, Quantity::Reserved).is_empty(), "missing is not zero");
    }
}
