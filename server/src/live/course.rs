//! The course of one figure over time in bounded memory: every sample of the last minutes, smallest, largest and last
//! of each span before that. No spike is ever lost. Knows no clock and no device.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Span of the samples that are kept one by one.
const RECENT: i64 = 300_000_000;
/// And their number: five minutes at 50 Hz.
const RECENT_MOST: usize = 15_000;
/// Width of the spans at first; it doubles when there are too many.
const FIRST_WIDTH: i64 = 5_000_000;
/// Spans kept: an hour of five seconds, later two hours of ten, and so on.
const SPANS_MOST: usize = 720;

/// What a span holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Its number: time divided by the width.
    pub number: i64,
    /// Smallest value.
    pub min: u64,
    /// Largest value.
    pub max: u64,
    /// Last value.
    pub last: u64,
}

/// One figure over time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Course {
    /// Every sample of the last minutes, ascending. Not kept over a restart but for what is read again.
    #[serde(skip)]
    recent: VecDeque<(i64, u64)>,
    spans: VecDeque<Span>,
    /// Width of a span; 0 before the first sample.
    width: i64,
    /// Largest value of the last short spans, for the heat strip: number and value.
    cells: VecDeque<(i64, u64)>,
    last: Option<(i64, u64)>,
}

/// Width and number of the cells of a heat strip.
const CELL: i64 = rankscope_model::DeviceStatus::CELL_SECONDS * 1_000_000;
const CELLS: usize = rankscope_model::DeviceStatus::CELLS;

impl Course {
    /// Adds a sample. One that is older than the last is passed over: time does not run backwards here.
    pub fn push(&mut self, time: i64, value: u64) {
        if self.last.is_some_and(|(last, _)| time < last) {
            return;
        }
        self.last = Some((time, value));
        self.recent.push_back((time, value));
        while self.recent.len() > RECENT_MOST
            || self.recent.front().is_some_and(|(first, _)| time.saturating_sub(*first) > RECENT)
        {
            self.recent.pop_front();
        }
        if self.width == 0 {
            self.width = FIRST_WIDTH;
        }
        let number = time.div_euclid(self.width);
        match self.spans.back_mut() {
            Some(span) if span.number == number => {
                span.min = span.min.min(value);
                span.max = span.max.max(value);
                span.last = value;
            }
            _ => {
                self.spans.push_back(Span { number, min: value, max: value, last: value });
                if self.spans.len() > SPANS_MOST {
                    self.coarsen();
                }
            }
        }
        let cell = time.div_euclid(CELL);
        match self.cells.back_mut() {
            Some((number, largest)) if *number == cell => *largest = (*largest).max(value),
            _ => {
                self.cells.push_back((cell, value));
                if self.cells.len() > CELLS {
                    self.cells.pop_front();
                }
            }
        }
    }

    /// Doubles the width and joins what then falls together.
    fn coarsen(&mut self) {
        self.width = self.width.saturating_mul(2);
        let mut joined: VecDeque<Span> = VecDeque::with_capacity(self.spans.len());
        for span in &self.spans {
            let number = span.number.div_euclid(2);
            match joined.back_mut() {
                Some(before) if before.number == number => {
                    before.min = before.min.min(span.min);
                    before.max = before.max.max(span.max);
                    before.last = span.last;
                }
                _ => joined.push_back(Span { number, ..*span }),
            }
        }
        self.spans = joined;
    }

    /// Every sample from one time to another that is still kept one by one.
    pub fn between(&self, from: i64, to: i64) -> impl Iterator<Item = (i64, u64)> {
        let newest = self.recent.iter().rev().skip_while(move |(time, _)| *time > to);
        newest.take_while(move |(time, _)| *time >= from).copied()
    }

    /// Least and most from one time to another, what held at the first included. `None` for a course that began later.
    pub fn range(&self, from: i64, to: i64) -> Option<(u64, u64)> {
        let mut range: Option<(u64, u64)> = None;
        for (time, value) in self.recent.iter().rev().skip_while(|(time, _)| *time > to) {
            let (least, most) = range.unwrap_or((*value, *value));
            range = Some((least.min(*value), most.max(*value)));
            if *time <= from {
                return range;
            }
        }
        None
    }

    /// The last sample.
    pub fn last(&self) -> Option<(i64, u64)> {
        self.last
    }

    /// The course as points, ascending: of each span its largest value (at its beginning), and every recent sample. A
    /// span of which only the end is recent is told as long as its largest value is not among those samples.
    pub fn points(&self) -> Vec<(i64, u64)> {
        let from = self.recent.front().map_or(i64::MAX, |(time, _)| *time);
        let begin = |span: &Span| span.number.saturating_mul(self.width);
        let is_told = |span: &&Span| {
            let end = begin(span).saturating_add(self.width);
            let of_span = || self.recent.iter().take_while(|(time, _)| *time < end).map(|(_, value)| *value);
            end <= from || (begin(span) < from && of_span().max() < Some(span.max))
        };
        let before = self.spans.iter().filter(is_told);
        before.map(|span| (begin(span), span.max)).chain(self.recent.iter().copied()).collect()
    }

    /// Largest value of each of the last cells that end with the one of `until`; `None` where nothing is known.
    pub fn cells(&self, until: i64) -> [Option<u64>; CELLS] {
        let mut cells = [None; CELLS];
        let last = until.div_euclid(CELL);
        for (number, largest) in &self.cells {
            let back = usize::try_from(last.saturating_sub(*number)).ok();
            let at = back.and_then(|back| CELLS.checked_sub(1)?.checked_sub(back));
            if let Some(cell) = at.and_then(|at| cells.get_mut(at)) {
                *cell = Some(*largest);
            }
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_lost_and_everything_is_bounded(
            steps in proptest::collection::vec((0i64..40_000_000, 0u64..1000), 1..3000),
        ) {
            let mut course = Course::default();
            let mut time = -7_000_000;
            let mut largest = 0;
            for (step, value) in &steps {
                time += step;
                largest = largest.max(*value);
                course.push(time, *value);
            }
            prop_assert!(course.spans.len() <= SPANS_MOST && course.recent.len() <= RECENT_MOST);
            prop_assert_eq!(course.spans.iter().map(|span| span.max).max(), Some(largest));
            let points = course.points();
            prop_assert!(points.is_sorted_by_key(|(time, _)| *time));
            prop_assert_eq!(points.iter().map(|(_, value)| *value).max(), Some(largest));
            prop_assert_eq!(points.last().copied(), course.last());
            // What is kept over a restart still knows the largest value.
            let kept: Course = serde_json::from_str(&serde_json::to_string(&course).unwrap()).unwrap();
            prop_assert_eq!(kept.points().iter().map(|(_, value)| *value).max(), Some(largest));
        }

        #[test]
        fn any_time_is_taken(times in proptest::collection::vec((any::<i64>(), any::<u64>()), 1..200)) {
            let mut course = Course::default();
            for (time, value) in times {
                course.push(time, value);
            }
            prop_assert!(course.points().is_sorted_by_key(|(time, _)| *time));
            prop_assert_eq!(course.cells(i64::MIN).len(), CELLS);
        }
    }

    #[test]
    fn a_spike_that_has_just_left_the_recent_samples_stands_in_its_span() {
        let mut course = Course::default();
        // The spike and the first sample that stays are of one span.
        for (second, value) in [(0, 9), (3, 1), (302, 1)] {
            course.push(second * 1_000_000, value);
        }
        assert_eq!(course.points(), [(0, 9), (3_000_000, 1), (302_000_000, 1)]);
    }

    #[test]
    fn a_range_holds_what_stood_at_its_beginning() {
        let mut course = Course::default();
        for (second, value) in [(0, 9), (4, 3), (8, 5), (12, 7)] {
            course.push(second * 1_000_000, value);
        }
        let range = |from: i64, to: i64| course.range(from * 1_000_000, to * 1_000_000);
        assert_eq!(range(2, 8), Some((3, 9)));
        assert_eq!(range(4, 8), Some((3, 5)));
        assert_eq!(range(-1, 8), None, "it was not there yet");
    }

    #[test]
    fn cells_end_now_and_have_gaps_where_nothing_was_heard() {
        let mut course = Course::default();
        for (second, value) in [(0, 1), (1, 9), (11, 3)] {
            course.push(second * 1_000_000, value);
        }
        let cells = course.cells(12_000_000);
        assert_eq!(&cells[CELLS - 3..], [Some(9), None, Some(3)]);
        assert!(cells[..CELLS - 3].iter().all(Option::is_none));
        assert_eq!(course.cells(1_000_000_000), [None; CELLS]);
    }
}
