//! Keeps a file of millions of records within bounds without losing its peaks.
//!
//! Steps are grouped into aligned buckets that double in width until the rest fits; of each file, rank, phase and bucket
//! the record with the largest peak stays. What fits is told in records and in bytes.

use rankscope_model::{ArtifactId, Phase, StepRecord, Subject};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Ranks and devices of which records are kept. The largest jobs have some ten thousand.
const MAX_SUBJECTS: usize = 65_536;
/// Bytes of records that are always kept.
const FREE_BYTES: u64 = 32 << 20;
/// Bytes of records that are kept for each byte of the text they come from. A record is larger than a short line of a
/// log, but one long line may hold thousands of records that all quote it.
const BYTES_PER_BYTE: u64 = 3;

/// A record with its position among the records of its subject, which stands in for a missing step.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    pub(crate) record: StepRecord,
    pub(crate) position: u64,
    pub(crate) extra: T,
}

/// What is left after thinning.
#[derive(Debug)]
pub(crate) struct Rest<T> {
    /// In the order of the file.
    pub(crate) kept: Vec<Kept<T>>,
    /// Records that were left out.
    pub(crate) dropped: u64,
    /// Width of a bucket, in steps.
    pub(crate) width: u64,
    /// Records of ranks beyond those that are kept.
    pub(crate) of_others: u64,
}

/// The records, thinned whenever they are more than `limit` or take more bytes than what they come from allows.
#[derive(Debug)]
pub(crate) struct Thinned<T> {
    limit: usize,
    max_bytes: u64,
    kept: Vec<Kept<T>>,
    /// Bytes that `kept` takes.
    held: u64,
    seen: BTreeMap<(ArtifactId, Subject), u64>,
    /// log2 of the bucket width; 0 is one step, every record kept.
    shift: u32,
    dropped: u64,
    of_others: u64,
}

impl<T> Thinned<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            max_bytes: FREE_BYTES,
            kept: Vec::new(),
            held: 0,
            seen: BTreeMap::new(),
            shift: 0,
            dropped: 0,
            of_others: 0,
        }
    }

    /// Text was read: what comes of it may take so much more.
    pub(crate) fn read(&mut self, bytes: usize) {
        self.max_bytes = self.max_bytes.saturating_add((bytes as u64).saturating_mul(BYTES_PER_BYTE));
    }

    pub(crate) fn push(&mut self, record: StepRecord, extra: T) {
        let subject = (record.at.artifact, record.subject);
        // A text may invent a rank on every line.
        if self.seen.len() >= MAX_SUBJECTS && !self.seen.contains_key(&subject) {
            self.of_others = self.of_others.saturating_add(1);
            return;
        }
        let seen = self.seen.entry(subject).or_default();
        *seen = (*seen).saturating_add(1);
        let kept = Kept { record, position: *seen, extra };
        self.held = self.held.saturating_add(kept.bytes());
        // Growth by an eighth, so that the unused tail stays small beside the text.
        if self.kept.len() == self.kept.capacity() {
            self.kept.reserve_exact((self.kept.len() / 8).max(1024));
        }
        self.kept.push(kept);
        // Half as much again as room, so that thinning is rare and its cost stays linear.
        let is_many = self.kept.len() >= self.limit.saturating_add(self.limit / 2).max(self.limit.saturating_add(1));
        if is_many || self.held > self.max_bytes {
            self.thin();
        }
    }

    pub(crate) fn finish(mut self) -> Rest<T> {
        if self.kept.len() > self.limit {
            self.thin();
        }
        let Self { kept, dropped, shift, of_others, .. } = self;
        Rest { kept, dropped, width: 1 << shift.min(63), of_others }
    }

    fn thin(&mut self) {
        let before = self.kept.len();
        // Bytes are thinned to below what is allowed, so that the next record does not thin again.
        let max_bytes =
            if self.held > self.max_bytes { (self.max_bytes / 3).saturating_mul(2) } else { self.max_bytes };
        // What came since the last time is first brought to the width of the rest.
        self.merge_buckets();
        while (self.kept.len() > self.limit || self.held > max_bytes) && self.shift < 63 {
            self.shift = self.shift.saturating_add(1);
            self.merge_buckets();
        }
        // More ranks than room: no bucket can help.
        self.kept.truncate(self.limit);
        let mut room = max_bytes;
        let fits = self.kept.iter().take_while(|kept| {
            let left = room.checked_sub(kept.bytes());
            room = left.unwrap_or(0);
            left.is_some()
        });
        let fits = fits.count();
        self.kept.truncate(fits);
        self.kept.shrink_to(self.kept.len().saturating_add(self.kept.len() / 8));
        self.held = self.kept.iter().map(Kept::bytes).sum();
        self.dropped = self.dropped.saturating_add(before.saturating_sub(self.kept.len()) as u64);
    }

    fn merge_buckets(&mut self) {
        let mut best: BTreeMap<(ArtifactId, Subject, Option<Phase>, u64), usize> = BTreeMap::new();
        for (index, kept) in self.kept.iter().enumerate() {
            let at = kept.record.step.map_or(kept.position, |step| step.0);
            let record = &kept.record;
            match best.entry((record.at.artifact, record.subject, record.phase, at >> self.shift)) {
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
        self.held = self.kept.iter().map(Kept::bytes).sum();
    }
}

impl<T> Kept<T> {
    /// Memory that it takes.
    fn bytes(&self) -> u64 {
        let shape = self.record.batch_shape.as_ref().map_or(0, Vec::capacity);
        let held = size_of::<Self>().saturating_add(self.record.at.quote.capacity());
        held.saturating_add(shape.saturating_mul(size_of::<u64>())) as u64
    }
}

/// Thins the records of all files of one upload together, so that every file keeps its share. Gives the number of
/// records that were left out, and the width of a bucket in steps. `width` is that of the last time, or 1.
pub(crate) fn thin_together(records: &mut Vec<StepRecord>, limit: usize, width: u64) -> (u64, u64) {
    let mut thinned = Thinned::new(limit);
    thinned.shift = width.max(1).ilog2();
    thinned.max_bytes = u64::MAX;
    for record in std::mem::take(records) {
        thinned.push(record, ());
    }
    let rest = thinned.finish();
    *records = rest.kept.into_iter().map(|kept| kept.record).collect();
    (rest.dropped.saturating_add(rest.of_others), rest.width)
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
        let Rest { kept, dropped, width, .. } = thinned.finish();
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
        assert_eq!(thinned.finish().kept.len(), 10);
    }

    #[test]
    fn a_new_rank_on_every_line_stays_bounded() {
        let mut thinned = Thinned::new(10);
        (0..10_000).for_each(|rank| thinned.push(record(rank, 0, 1), ()));
        assert_eq!(thinned.finish().kept.len(), 10);
        let mut thinned = Thinned::new(200_000);
        (0..70_000).for_each(|rank| thinned.push(record(rank, 0, 1), ()));
        assert_eq!(thinned.seen.len(), MAX_SUBJECTS);
        let rest = thinned.finish();
        assert_eq!((rest.kept.len(), rest.of_others), (MAX_SUBJECTS, 70_000 - 65_536));
    }

    #[test]
    fn bytes_are_bounded_by_what_was_read() {
        let mut thinned = Thinned::new(200_000);
        let quote = "x".repeat(240);
        let mut most = 0;
        for step in 0..180_000 {
            let mut record = record(0, step, step);
            record.at.quote.clone_from(&quote);
            thinned.read(16);
            thinned.push(record, ());
            most = most.max(thinned.held);
            assert!(thinned.held <= thinned.max_bytes);
        }
        assert!(most > FREE_BYTES / 2);
        let rest = thinned.finish();
        assert!(rest.dropped > 0 && rest.kept.iter().any(|kept| kept.record.peak_allocated == Some(Bytes(179_999))));
    }

    #[test]
    fn files_are_thinned_together_and_each_keeps_its_share() {
        let mut records = Vec::new();
        for file in 0..8 {
            for step in 0..1000 {
                let mut record = record(0, step, step);
                record.at.artifact = ArtifactId(file);
                records.push(record);
            }
        }
        let (dropped, width) = thin_together(&mut records, 1000, 1);
        assert_eq!(records.len() as u64 + dropped, 8000);
        assert!(records.len() <= 1000 && width >= 8);
        for file in 0..8 {
            let own: Vec<_> = records.iter().filter(|record| record.at.artifact == ArtifactId(file)).collect();
            assert!(own.len() > 50 && own.iter().any(|record| record.peak_allocated == Some(Bytes(999))), "{file}");
        }
    }
}
