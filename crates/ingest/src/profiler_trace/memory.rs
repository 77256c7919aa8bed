//! Memory events of one device, put in order and reduced to a curve and a peak.
//!
//! From torch 1.10 each event tells the totals after it; before, only what it added or took, so that what was allocated
//! before the recording stays unknown. Knows no JSON.

use crate::buckets::Buckets;
use rankscope_model::{Bytes, MemoryCurve, MemoryTrace, SeriesAxis, TracePeak};

/// A time in nanoseconds before this is no date: an event's clock then counts from the start of the machine.
const FIRST_DATE_NANOS: i64 = 1_000_000_000_000_000_000; // September 2001

/// One event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) nanos: i64,
    /// Position among the events of the file, for equal times.
    pub(super) order: u32,
    /// What it added, or took.
    pub(super) bytes: i64,
    /// Allocated and reserved after it.
    pub(super) totals: Option<(u64, u64)>,
}

/// How times of events become dates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    base_nanos: Option<i64>,
}

impl Clock {
    /// The zero point that the file names, or none if its times are dates already.
    pub(super) fn new(base_nanos: Option<i64>, devices: &[DeviceRows]) -> Self {
        let first = devices.iter().filter_map(|rows| rows.rows.first()).map(|row| row.nanos).min();
        let are_dates = first.is_some_and(|nanos| nanos >= FIRST_DATE_NANOS);
        Self { base_nanos: base_nanos.filter(|base| *base > 0).or(are_dates.then_some(0)) }
    }

    /// Microseconds since the Unix epoch; `None` if the file has no zero point.
    pub(super) fn unix_micros(self, nanos: i64) -> Option<i64> {
        Some(self.base_nanos?.checked_add(nanos)?.div_euclid(1000))
    }
}

/// The events of one device.
#[derive(Debug)]
pub(super) struct DeviceRows {
    pub(super) device: u32,
    rows: Vec<Row>,
}

impl DeviceRows {
    pub(super) fn new(device: u32) -> Self {
        Self { device, rows: Vec::new() }
    }

    pub(super) fn push(&mut self, row: Row) {
        // Growth by a quarter, so that the unused tail stays small beside the file.
        if self.rows.len() == self.rows.capacity() {
            self.rows.reserve_exact((self.rows.len() / 4).max(256));
        }
        self.rows.push(row);
    }

    /// Puts the curve and the peaks into `found`.
    pub(super) fn fill(mut self, found: &mut MemoryTrace, clock: Clock, warnings: &mut Vec<String>) {
        self.rows.sort_unstable_by_key(|row| (row.nanos, row.order));
        let has_totals = self.rows.iter().all(|row| row.totals.is_some());
        // Without totals the sum of what was added and taken, lifted so that it is nowhere below nothing.
        let sum_to = |sum: &mut i128, row: &Row| {
            *sum = sum.saturating_add(row.bytes.into());
            *sum
        };
        let mut sum = 0;
        let lowest = self.rows.iter().map(|row| sum_to(&mut sum, row)).min().unwrap_or(0).min(0);
        let (mut sum, mut breaks) = (0, 0u64);
        let mut before: Option<u64> = None;
        let mut buckets = Buckets::<2>::new();
        let (mut peak, mut peak_reserved): (Option<(u64, i64)>, u64) = (None, 0);
        let dated = self.rows.iter().all(|row| clock.unix_micros(row.nanos).is_some());
        for (index, row) in (0i64..).zip(&self.rows) {
            let summed = sum_to(&mut sum, row).saturating_sub(lowest);
            let (allocated, reserved) = match row.totals {
                Some(totals) if has_totals => totals,
                _ => (u64::try_from(summed).unwrap_or(u64::MAX), 0),
            };
            let expected = before.and_then(|before| before.checked_add_signed(row.bytes));
            breaks = breaks.saturating_add(u64::from(has_totals && before.is_some() && expected != Some(allocated)));
            before = Some(allocated);
            let x = clock.unix_micros(row.nanos).filter(|_| dated).unwrap_or(index);
            buckets.push(x, [allocated, reserved]);
            if peak.is_none_or(|(most, _)| allocated > most) {
                peak = Some((allocated, x));
            }
            peak_reserved = peak_reserved.max(reserved);
        }
        let count = self.rows.len() as u64;
        if breaks > count / NOISE {
            warnings.push(format!(
                "GPU {}: {breaks} of {count} memory events do not add up with the ones before them, as if events were \
                 missing; their own totals are used",
                self.device
            ));
        }
        if !has_totals {
            warnings.push(format!(
                "GPU {}: the memory events tell no totals (torch before 1.10), so what was allocated before the \
                 recording is not known and all figures are lower bounds",
                self.device
            ));
        }
        let axis = if dated { SeriesAxis::UnixMicros } else { SeriesAxis::Index };
        let (x, [allocated, reserved]) = buckets.finish();
        found.events = count;
        found.curve = Some(MemoryCurve {
            axis,
            x,
            allocated: Some(allocated),
            active: None,
            reserved: has_totals.then_some(reserved),
            requested: None,
            unused: None,
        });
        found.peak = peak.map(|(bytes, x)| TracePeak { bytes: Bytes(bytes), x, categories: Vec::new() });
        found.peak_reserved = has_totals.then_some(Bytes(peak_reserved));
        found.is_lower_bound = !has_totals;
    }
}

/// Share of events that do not add up which is noise: threads may record in another order than they allocate.
const NOISE: u64 = 50;
