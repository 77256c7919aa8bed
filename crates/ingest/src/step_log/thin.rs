//! Keeps a file of millions of records within bounds without losing its peaks.
//!
//! Steps are grouped into aligned buckets that double in width until the rest fits; of each rank, phase and bucket
//! the record with the largest peak stays.

use rankscope_model::{Phase, StepRecord, Subject};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A record with its position among the records of its subject, which stands in for a missing step.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    pub(crate) record: StepRecord,
    pub(crate) position: u64,
    pub(crate) extra: T,
}

/// The records, thinned whenever they are more than `limit`.
#[derive(Debug)]
pub(crate) struct Thinned<T> {
    limit: usize,
    kept: Vec<Kept<T>>,
    seen: BTreeMap<Subject, u64>,
    /// log2 of the bucket width; 0 is one step, every record kept.
    shift: u32,
    dropped: u64,
}

impl<T> Thinned<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), kept: Vec::new(), seen: BTreeMap::new(), shift: 0, dropped: 0 }
    }

    pub(crate) fn push(&mut self, record: StepRecord, extra: T) {
        // Subjects are bounded too: a text may invent a rank on every line.
        let position = if self.seen.len() < self.limit || self.seen.contains_key(&record.subject) {
            let seen = self.seen.entry(record.subject).or_default();
            *seen += 1;
            *seen
        } else {
            0
        };
        self.kept.push(Kept { record, position, extra });
        // Half as much again as room, so that thinning is rare and its cost stays linear.
        if self.kept.len() >= self.limit.saturating_add(self.limit / 2).max(self.limit + 1) {
            self.thin();
        }
    }

    /// The records in the order of the file, how many were left out, and the width of a bucket in steps.
    pub(crate) fn finish(mut self) -> (Vec<Kept<T>>, u64, u64) {
        if self.kept.len() > self.limit {
            self.thin();
        }
        (self.kept, self.dropped, 1 << self.shift.min(63))
    }

    fn thin(&mut self) {
        let before = self.kept.len();
        // What came since the last time is first brought to the width of the rest.
        self.merge_buckets();
        while self.kept.len() > self.limit && self.shift < 63 {
            self.shift += 1;
            self.merge_buckets();
        }
        // More ranks than room: no bucket can help.
        self.kept.truncate(self.limit);
        self.dropped += (before - self.kept.len()) as u64;
    }

    fn merge_buckets(&mut self) {
        let mut best: BTreeMap<(Subject, Option<Phase>, u64), usize> = BTreeMap::new();
        for (index, kept) in self.kept.iter().enumerate() {
            let at = kept.record.step.map_or(kept.position, |step| step.0);
            match best.entry((kept.record.subject, kept.record.phase, at >> self.shift)) {
                Entry::Vacant(free) => {
                    free.insert(index);
                }
                Entry::Occupied(mut taken) => {
                    if self.kept.get(*taken.get()).is_some_and(|old| peak(&kept.record) > peak(&old.record)) {
                        taken.insert(index);
                    }
                }
            }
        }
        let mut stays = vec![false; self.kept.len()];
        for index in best.into_values() {
            if let Some(stay) = stays.get_mut(index) {
                *stay = true;
            }
        }
        let mut stays = stays.into_iter();
        self.kept.retain(|_| stays.next().unwrap_or(false));
    }
}

/// The figure by which records of one file are ranked: a file prints the same figures on every line.
fn peak(record: &StepRecord) -> u64 {
    let figures = [record.peak_allocated, record.peak_reserved, record.device_used, record.reserved, record.allocated];
    figures.into_iter().flatten().map(|b| b.0).next().or(record.elements()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{ArtifactId, Bytes, Provenance, Rank, Step};

    fn record(rank: u32, step: u64, peak: u64) -> StepRecord {
        let mut record = StepRecord::new(Provenance::line(ArtifactId(0), step, ""), Subject::Rank(Rank(rank)));
        record.step = Some(Step(step));
        record.peak_allocated = Some(Bytes(peak));
        record
    }

    #[test]
    fn peaks_survive_and_every_rank_keeps_its_share() {
        let mut thinned = Thinned::new(100);
        for step in 0..1000 {
            for rank in 0..4 {
                let peak = if step == 777 && rank == 2 { 99_999 } else { 1000 + (step * 7 + u64::from(rank)) % 50 };
                thinned.push(record(rank, step, peak), ());
            }
        }
        let (kept, dropped, width) = thinned.finish();
        assert!(kept.len() <= 100 && kept.len() > 40, "{}", kept.len());
        assert_eq!(kept.len() as u64 + dropped, 4000);
        assert!(width >= 40);
        assert!(kept.iter().any(|k| k.record.peak_allocated == Some(Bytes(99_999))));
        for rank in 0..4 {
            assert!(kept.iter().filter(|k| k.record.subject == Subject::Rank(Rank(rank))).count() >= 10);
        }
        assert!(kept.is_sorted_by_key(|k| k.record.step));
    }

    #[test]
    fn below_the_limit_nothing_is_lost() {
        let mut thinned = Thinned::new(10);
        (0..10).for_each(|step| thinned.push(record(0, step, 1), ()));
        assert_eq!(thinned.finish().0.len(), 10);
    }

    #[test]
    fn a_new_rank_on_every_line_stays_bounded() {
        let mut thinned = Thinned::new(10);
        (0..10_000).for_each(|rank| thinned.push(record(rank, 0, 1), ()));
        assert_eq!(thinned.finish().0.len(), 10);
    }
}
