//! What torch.profiler's `export_memory_timeline` writes: `.raw.json.gz` with each change, and `.json` with the bytes of
//! each category over time. (Its `.html` is a picture, see [`crate::viewer_page`].)
//!
//! Both are one list of lists of numbers, read as a stream. Neither says its rank or its device.

use crate::buckets::Buckets;
use crate::lines::counted;
use crate::{ReadContext, ReadError, json, rank_from_name};
use json::Scalar;
use rankscope_model::{
    ArtifactKind, Bytes, CategoryBytes, Evidence, MemoryCategory, MemoryCurve, MemoryTrace, Provenance, SeriesAxis,
    TracePeak, TraceSource,
};
use serde::Deserializer;
use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use std::cmp::Reverse;
use std::fmt;
use std::io::BufRead;

/// A time in microseconds from here on is a date: September 2001.
const FIRST_DATE: i64 = 1_000_000_000_000_000;
/// Categories of the format.
const CATEGORIES: usize = MemoryCategory::ALL.len();
/// Times that are held until their sizes come; each of the later sizes is put at the last of them.
const MAX_TIMES: usize = 4 << 20;

/// Whether a text that begins with `head` is a memory timeline: a list whose first member is a list of four numbers that
/// fit a change, or a list of dates in microseconds.
pub fn looks_like(head: &str) -> bool {
    let text = head.trim_start_matches('\u{feff}').trim_start();
    let inner = text.strip_prefix('[').map(str::trim_start).and_then(|rest| rest.strip_prefix('['));
    let Some(inner) = inner else { return false };
    let end = inner.find(|c: char| !(c.is_ascii_digit() || c.is_ascii_whitespace() || matches!(c, ',' | '-')));
    let (list, after) = inner.split_at(end.unwrap_or(inner.len()));
    // The last number of a cut list may be cut as well.
    let is_cut = after.is_empty();
    let mut numbers: Vec<i64> = Vec::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()).take(64) {
        let Ok(number) = part.parse() else { return false };
        numbers.push(number);
    }
    if !is_cut && !after.starts_with(']') {
        return false;
    }
    match numbers.as_slice() {
        [_, 1..=4, _, 0..=7] if !is_cut => true,
        [.., _] => {
            let sure = if is_cut { numbers.len().saturating_sub(1) } else { numbers.len() };
            sure > 0
                && numbers.iter().take(sure).all(|time| *time >= FIRST_DATE && *time < FIRST_DATE.saturating_mul(1000))
        }
        [] => false,
    }
}

/// Reads one memory timeline. A file that breaks off is used up to there.
///
/// Errors: [`ReadError::NotThisFormat`] if it is no JSON or holds something else, [`ReadError::Io`].
pub fn read(input: &mut dyn BufRead, ctx: &ReadContext<'_>) -> Result<Evidence, ReadError> {
    let mut timeline = Timeline::new();
    let mut stream = json::stream(input);
    let ended = stream.deserialize_seq(Whole(&mut timeline));
    let mut warnings = Vec::new();
    match ended {
        Err(error) if timeline.samples == 0 => return Err(json::not_readable(error, "a memory timeline")),
        Err(error) => warnings.push(json::what_is_missing(&error)),
        Ok(()) => {}
    }
    timeline.start();
    if timeline.samples == 0 {
        return Err(ReadError::NotThisFormat {
            why: "lists of numbers, but none that export_memory_timeline writes".to_owned(),
        });
    }
    if timeline.left_out > 0 {
        warnings.push(format!(
            "{} left out: no part of a memory timeline",
            counted(timeline.left_out, "row was", "rows were")
        ));
    }
    if timeline.times_left_out > 0 {
        warnings.push(format!(
            "{} left out beyond the first {MAX_TIMES}",
            counted(timeline.times_left_out, "time was", "times were")
        ));
    }
    let rank = rank_from_name(ctx.name);
    if rank.is_none() {
        warnings.push(
            "a memory timeline does not say its rank or device; name the file after its rank, \
             memory_rank3.raw.json.gz"
                .to_owned(),
        );
    }
    let mut info = ctx.info(ArtifactKind::MemoryTimeline);
    info.ranks.extend(rank.map(|rank| rank.0));
    warnings.truncate(ctx.limits.max_warnings);
    info.warnings = warnings;
    let (x, [allocated]) = timeline.buckets.finish();
    let trace = MemoryTrace {
        at: Provenance::offset(ctx.artifact, 0),
        source: TraceSource::MemoryTimeline,
        rank,
        world_size: None,
        backend: None,
        device: None,
        device_name: None,
        capacity: None,
        events: timeline.samples,
        curve: Some(MemoryCurve {
            axis: if timeline.dated { SeriesAxis::UnixMicros } else { SeriesAxis::Index },
            x,
            allocated: Some(allocated),
            active: None,
            reserved: None,
            requested: None,
            unused: None,
        }),
        peak: timeline.peak,
        peak_reserved: None,
        is_lower_bound: false,
    };
    Ok(Evidence { artifacts: vec![info], traces: vec![trace], ..Evidence::default() })
}

/// Which of the two forms it is, told by the first member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    NotYet,
    /// A change in each member.
    Raw,
    /// Times, then sizes.
    Sizes,
}

/// What is known so far.
#[derive(Debug)]
struct Timeline {
    form: Form,
    /// Bytes of each category now.
    now: [i64; CATEGORIES],
    /// Changes came before the first time; they are what was there before.
    has_base: bool,
    started: bool,
    dated: bool,
    last_x: i64,
    times: Vec<i64>,
    times_left_out: u64,
    /// Position of the next row of sizes.
    row: usize,
    buckets: Buckets<1>,
    peak: Option<TracePeak>,
    samples: u64,
    left_out: u64,
}

impl Timeline {
    fn new() -> Self {
        Self {
            form: Form::NotYet,
            now: [0; CATEGORIES],
            has_base: false,
            started: false,
            dated: false,
            last_x: 0,
            times: Vec::new(),
            times_left_out: 0,
            row: 0,
            buckets: Buckets::new(),
            peak: None,
            samples: 0,
            left_out: 0,
        }
    }

    /// One change of the raw form: time in nanoseconds or -1, action, bytes, category.
    fn change(&mut self, time: i64, action: i64, bytes: i64, category: i64) {
        let slot = usize::try_from(category).ok().and_then(|index| self.now.get_mut(index));
        let (Some(slot), 1..=4) = (slot, action) else {
            self.left_out = self.left_out.saturating_add(1);
            return;
        };
        if time < 0 {
            *slot = slot.saturating_add(bytes);
            self.has_base = true;
            return;
        }
        let micros = time.div_euclid(1000);
        if !self.started {
            self.dated = micros >= FIRST_DATE;
            self.last_x = if self.dated { micros } else { 0 };
            self.start();
        }
        if let Some(slot) = usize::try_from(category).ok().and_then(|index| self.now.get_mut(index)) {
            *slot = slot.saturating_add(bytes);
        }
        // A new version of a tensor is two rows, out of the old category and into the new one: no moment between them.
        if action == INCREMENT_VERSION && bytes < 0 {
            return;
        }
        self.sample(micros);
    }

    /// What was there before the first change with a time is the first point.
    fn start(&mut self) {
        if !self.started {
            self.started = true;
            if self.has_base {
                self.sample(self.last_x);
            }
        }
    }

    /// One row of the other form: a constant 0, then the categories.
    fn sizes(&mut self, row: &[i64]) {
        let time = self.times.get(self.row).or(self.times.last()).copied();
        self.row = self.row.saturating_add(1);
        let (Some(time), Some((0, categories))) = (time, row.split_first()) else {
            self.left_out = self.left_out.saturating_add(1);
            return;
        };
        if categories.len() != CATEGORIES {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        self.now.copy_from_slice(categories);
        if !self.started {
            self.started = true;
            self.dated = time >= FIRST_DATE;
        }
        self.sample(time);
    }

    fn sample(&mut self, micros: i64) {
        let index = i64::try_from(self.samples).unwrap_or(i64::MAX);
        let x = if self.dated { micros.max(self.last_x) } else { index };
        self.last_x = x;
        self.samples = self.samples.saturating_add(1);
        let total = self.now.iter().fold(0i64, |sum, bytes| sum.saturating_add(*bytes));
        let total = u64::try_from(total).unwrap_or(0);
        self.buckets.push(x, [total]);
        if self.peak.as_ref().is_none_or(|peak| total > peak.bytes.0) {
            let filled = MemoryCategory::ALL.iter().zip(self.now).filter_map(|(category, bytes)| {
                let bytes = u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)?;
                Some(CategoryBytes { category: *category, bytes: Bytes(bytes) })
            });
            let mut categories: Vec<CategoryBytes> = filled.collect();
            categories.sort_by_key(|found| Reverse(found.bytes));
            self.peak = Some(TracePeak { bytes: Bytes(total), x, categories });
        }
    }

    /// A member that is a list of numbers.
    fn member(&mut self, numbers: &[i64]) {
        match (self.form, numbers) {
            (Form::NotYet | Form::Raw, [time, action @ 1..=4, bytes, category @ 0..=7]) => {
                self.form = Form::Raw;
                self.change(*time, *action, *bytes, *category);
            }
            _ => self.left_out = self.left_out.saturating_add(1),
        }
    }

    fn time(&mut self, time: i64) {
        if self.times.len() >= MAX_TIMES {
            self.times_left_out = self.times_left_out.saturating_add(1);
            return;
        }
        if self.times.len() == self.times.capacity() {
            self.times.reserve_exact((self.times.len() / 4).max(1024));
        }
        self.times.push(time);
    }
}

/// `Action.INCREMENT_VERSION` of torch.
const INCREMENT_VERSION: i64 = 3;
/// Numbers of a row that are held; the longest that means something has nine.
const MAX_ROW: usize = 16;

/// The outer list.
struct Whole<'t>(&'t mut Timeline);

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of lists of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while members.next_element_seed(Member(self.0))?.is_some() {}
        Ok(())
    }
}

/// A member of the outer list: a change, the times, or the list of sizes.
struct Member<'t>(&'t mut Timeline);

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let timeline = self.0;
        if timeline.form == Form::Sizes {
            while let Some(row) = items.next_element_seed(Row)? {
                timeline.sizes(&row);
            }
            return Ok(());
        }
        let is_first = timeline.form == Form::NotYet;
        let mut row = Vec::with_capacity(CATEGORIES);
        let mut count = 0usize;
        while let Some(item) = items.next_element::<Scalar>()? {
            let number = item.as_i64();
            if row.len() < MAX_ROW {
                row.push(number.unwrap_or(i64::MIN));
            }
            if is_first {
                timeline.time(number.unwrap_or(0));
            }
            count = count.saturating_add(1);
        }
        if is_first && !matches!(row.as_slice(), [_, 1..=4, _, 0..=7]) {
            timeline.form = Form::Sizes;
        } else if count == row.len() {
            timeline.member(&row);
        } else {
            timeline.left_out = timeline.left_out.saturating_add(1);
        }
        Ok(())
    }
}

/// A row of sizes.
struct Row;

impl<'de> DeserializeSeed<'de> for Row {
    type Value = Vec<i64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<i64>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Row {
    type Value = Vec<i64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of sizes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<i64>, A::Error> {
        let mut row = Vec::with_capacity(MAX_ROW);
        while let Some(item) = items.next_element::<Scalar>()? {
            if row.len() < MAX_ROW {
                row.push(item.as_i64().unwrap_or(i64::MIN));
            }
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_told_by_their_first_numbers() {
        assert!(looks_like("[[-1, 1, 37888, 7], [-1, 1, 512, 7]"));
        assert!(looks_like("\n[ [1696966047096061874, 4, -37888, 7] ]"));
        assert!(looks_like("[[1696966047096061, 1696966047096102, 16969"));
        assert!(looks_like("[[1696966047096061], [[0, 1, 2, 3, 4, 5, 6, 7, 8]]]"));
        assert!(!looks_like("[[1, 2], [3, 4]]"));
        assert!(!looks_like("[[1, 2, 3, 4, 5]]"));
        assert!(!looks_like("[[\"a\", 1, 2, 3]]"));
        assert!(!looks_like("[rank3]: [[1, 2"));
        assert!(!looks_like("[[]]"));
        assert!(!looks_like(""));
    }
}
