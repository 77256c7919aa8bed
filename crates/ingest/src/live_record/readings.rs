//! Readings of a live run's memory, kept small: a day of them is thinned, and tables are made only of those that stay.
//!
//! A reading refers to the node and to the list of processes that it shares with its neighbours, because a line of a
//! hundred bytes may stand behind a list of a thousand processes.

use rankscope_model::{
    Bytes, DeviceRow, DeviceTable, LiveNode, ProcessListing, ProcessRow, Provenance, Subject, UnixMicros,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// What the cards used at one moment.
pub(super) struct Reading {
    pub(super) at: Provenance,
    pub(super) time: UnixMicros,
    pub(super) used: BTreeMap<Subject, Bytes>,
    pub(super) node: Rc<LiveNode>,
    pub(super) processes: Rc<[ProcessRow]>,
    pub(super) listing: ProcessListing,
}

impl Reading {
    /// Rows of its table, the head counted as one.
    fn cost(&self) -> usize {
        let devices = self.node.devices.len().saturating_add(self.used.len());
        devices.saturating_add(self.processes.len()).saturating_add(1)
    }

    fn fullest(&self) -> Bytes {
        self.used.values().copied().max().unwrap_or_default()
    }

    fn into_table(self) -> DeviceTable {
        let mut table = DeviceTable::new(self.at);
        table.time = Some(self.time);
        table.time_text = Some(super::clock(self.time));
        table.driver_version.clone_from(&self.node.driver_version);
        table.cuda_version.clone_from(&self.node.cuda_version);
        let known: BTreeSet<Subject> = self.node.devices.iter().map(|device| device.subject).collect();
        let unnamed = self.used.keys().filter(|subject| !known.contains(subject));
        let rows = self.node.devices.iter().map(|device| super::row_of(device, &table.at));
        table.devices = rows.chain(unnamed.map(|subject| DeviceRow::new(table.at.clone(), *subject))).collect();
        for row in &mut table.devices {
            if let Some(used) = self.used.get(&row.subject) {
                row.used = Some(*used);
                row.at.quote = format!("{}: {used} used", row.subject);
            }
        }
        table.processes = self.processes.to_vec();
        table.listing = self.listing;
        table
    }
}

/// The readings of one record, within the rows that one file may have.
pub(super) struct Readings {
    max_rows: usize,
    max_tables: usize,
    /// With the position among all that came.
    kept: Vec<(u64, Reading)>,
    rows: usize,
    seen: u64,
    /// log2 of the width of a bucket of readings; 0 keeps every one.
    shift: u32,
}

impl Readings {
    pub(super) fn new(max_rows: usize, max_tables: usize) -> Self {
        Self { max_rows: max_rows.max(1), max_tables: max_tables.max(1), kept: Vec::new(), rows: 0, seen: 0, shift: 0 }
    }

    pub(super) fn push(&mut self, reading: Reading) {
        self.rows = self.rows.saturating_add(reading.cost());
        self.kept.push((self.seen, reading));
        self.seen = self.seen.saturating_add(1);
        // Half as much again as room, so that thinning is rare and its cost stays linear.
        if self.rows / 3 > self.max_rows / 2 || self.kept.len() / 3 > self.max_tables / 2 {
            self.thin();
        }
    }

    /// The tables, and how many readings were left out of buckets of which width.
    pub(super) fn finish(mut self) -> (Vec<DeviceTable>, Option<(u64, u64)>) {
        if self.is_over() {
            self.thin();
        }
        let dropped = self.seen.saturating_sub(self.kept.len() as u64);
        let left_out = (dropped > 0).then(|| (dropped, 1u64 << self.shift.min(63)));
        (self.kept.into_iter().map(|(_, reading)| reading.into_table()).collect(), left_out)
    }

    fn is_over(&self) -> bool {
        self.rows > self.max_rows || self.kept.len() > self.max_tables
    }

    /// Keeps of every bucket the fullest reading, and of every card the reading at its peak.
    fn thin(&mut self) {
        let mut peaks: BTreeMap<Subject, (Bytes, u64)> = BTreeMap::new();
        for (position, reading) in &self.kept {
            for (subject, used) in &reading.used {
                let peak = peaks.entry(*subject).or_insert((*used, *position));
                if *used > peak.0 {
                    *peak = (*used, *position);
                }
            }
        }
        let at_peak: BTreeSet<u64> = peaks.into_values().map(|(_, position)| position).collect();
        self.merge_buckets(&at_peak);
        while self.is_over() && self.shift < 63 {
            self.shift = self.shift.saturating_add(1);
            self.merge_buckets(&at_peak);
        }
        // More cards than room: no bucket can help.
        while self.is_over() && self.kept.len() > 1 {
            if let Some((_, reading)) = self.kept.pop() {
                self.rows = self.rows.saturating_sub(reading.cost());
            }
        }
    }

    fn merge_buckets(&mut self, at_peak: &BTreeSet<u64>) {
        let shift = self.shift;
        let mut best: BTreeMap<u64, (Bytes, u64)> = BTreeMap::new();
        for (position, reading) in &self.kept {
            let fullest = reading.fullest();
            let entry = best.entry(position >> shift).or_insert((fullest, *position));
            if fullest > entry.0 {
                *entry = (fullest, *position);
            }
        }
        self.kept.retain(|(position, _)| {
            at_peak.contains(position) || best.get(&(position >> shift)).is_some_and(|(_, best)| best == position)
        });
        self.rows = self.kept.iter().fold(0, |rows: usize, (_, reading)| rows.saturating_add(reading.cost()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::ArtifactId;

    fn reading(line: u64, used: &[u64]) -> Reading {
        let used = used.iter().zip(0..).map(|(used, index)| (Subject::Device(index), Bytes(*used))).collect();
        Reading {
            at: Provenance::line(ArtifactId(0), line, ""),
            time: UnixMicros(0),
            used,
            node: Rc::default(),
            processes: Rc::default(),
            listing: ProcessListing::Missing,
        }
    }

    #[test]
    fn a_long_record_keeps_the_peak_of_every_card() {
        let mut readings = Readings::new(300, 20_000);
        for line in 0..10_000 {
            let first = if line == 4_321 { 70 } else { 50 + line % 3 };
            let second = if line == 77 { 9 } else { 1 };
            readings.push(reading(line, &[first, second]));
        }
        let (tables, left_out) = readings.finish();
        let rows: usize = tables.iter().map(|table| table.devices.len() + 1).sum();
        assert!((150..=300).contains(&rows), "{rows}");
        let peak = |index: usize| tables.iter().filter_map(|table| table.devices[index].used).max();
        assert_eq!((peak(0), peak(1)), (Some(Bytes(70)), Some(Bytes(9))));
        let (dropped, width) = left_out.unwrap();
        assert_eq!(dropped, 10_000 - tables.len() as u64);
        assert!(width >= 64, "{width}");
        assert!(tables.is_sorted_by_key(|table| table.at.place));
    }

    #[test]
    fn a_reading_that_is_too_large_alone_is_kept() {
        let mut readings = Readings::new(10, 1);
        for line in 0..50 {
            readings.push(reading(line, &[1; 100]));
        }
        assert_eq!(readings.finish().0.len(), 1);
        assert!(Readings::new(10, 1).finish().0.is_empty());
    }
}
