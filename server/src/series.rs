//! The full columns behind a report's charts, and the cut that a window and a pixel budget need.
//!
//! Knows the model only. Reduction keeps the smallest and the largest value of every bucket, so no spike is lost.

use rankscope_model::{Evidence, Quantity, SeriesAxis, StepRecord, Subject, Timeline, TimelineLine};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Quantities that step records may carry.
const STEP_QUANTITIES: [Quantity; 7] = [
    Quantity::Allocated,
    Quantity::PeakAllocated,
    Quantity::Reserved,
    Quantity::PeakReserved,
    Quantity::DeviceUsed,
    Quantity::BatchTokens,
    Quantity::BatchSamples,
];

/// All series of one version of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SeriesSet {
    /// At most one per quantity.
    pub series: Vec<QuantitySeries>,
}

/// One quantity of all ranks or devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuantitySeries {
    /// What is measured.
    pub quantity: Quantity,
    /// Meaning of the x values.
    pub axis: SeriesAxis,
    /// One per rank or device, in their order.
    pub columns: Vec<Column>,
}

/// One rank's or device's values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Whose.
    pub subject: Subject,
    /// Ascending.
    pub x: Vec<i64>,
    /// Bytes, same length as `x`.
    pub y: Vec<u64>,
}

/// A part of the axis, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    /// First x; none for the beginning.
    pub from: Option<i64>,
    /// Last x; none for the end.
    pub to: Option<i64>,
}

impl Window {
    /// Neither end is set.
    pub fn is_whole(self) -> bool {
        self.from.is_none() && self.to.is_none()
    }
}

impl SeriesSet {
    /// Everything in the evidence that has a course: the unreduced timeline first, then what it does not draw. Where
    /// two sources know the same quantity, step records come before device tables, because they name ranks.
    pub fn of(evidence: &Evidence, timeline: Option<Timeline>) -> Self {
        let mut set = Self::default();
        if let Some(timeline) = timeline {
            let lines = timeline.lines.into_iter();
            let columns = lines.map(|line| Column { subject: line.subject, x: line.x, y: line.y }).collect();
            set.add(timeline.quantity, (timeline.axis, columns));
        }
        for quantity in STEP_QUANTITIES {
            set.add(quantity, of_steps(&evidence.steps, quantity));
        }
        set.add(Quantity::DeviceUsed, of_tables(evidence));
        set.add(Quantity::Requested, of_snapshots(evidence));
        for quantity in [Quantity::Allocated, Quantity::Reserved] {
            set.add(quantity, of_traces(evidence, quantity));
        }
        set
    }

    fn add(&mut self, quantity: Quantity, (axis, columns): (SeriesAxis, Vec<Column>)) {
        // A single point is no course.
        if columns.iter().any(|column| column.x.len() > 1) && self.get(quantity).is_none() {
            self.series.push(QuantitySeries { quantity, axis, columns });
        }
    }

    /// The series of a quantity.
    pub fn get(&self, quantity: Quantity) -> Option<&QuantitySeries> {
        self.series.iter().find(|series| series.quantity == quantity)
    }
}

/// Points of each subject, in the order in which they were read.
type Points = BTreeMap<Subject, Vec<(Option<i64>, u64)>>;

fn of_steps(steps: &[StepRecord], quantity: Quantity) -> (SeriesAxis, Vec<Column>) {
    let mut points = Points::new();
    for record in steps {
        let value = match quantity {
            Quantity::BatchTokens => record.elements(),
            Quantity::BatchSamples => record.samples(),
            _ => record.bytes(quantity).map(|bytes| bytes.0),
        };
        if let Some(value) = value {
            let step = record.step.and_then(|step| i64::try_from(step.0).ok());
            points.entry(record.subject).or_default().push((step, value));
        }
    }
    columns(SeriesAxis::Step, points)
}

fn of_tables(evidence: &Evidence) -> (SeriesAxis, Vec<Column>) {
    let mut points = Points::new();
    for table in &evidence.device_tables {
        for row in &table.devices {
            if let Some(used) = row.used {
                points.entry(row.subject).or_default().push((table.time.map(|time| time.0), used.0));
            }
        }
    }
    columns(SeriesAxis::UnixMicros, points)
}

fn of_snapshots(evidence: &Evidence) -> (SeriesAxis, Vec<Column>) {
    let mut axis = SeriesAxis::Index;
    let mut found: Vec<Column> = Vec::new();
    for snapshot in &evidence.snapshots {
        for device in &snapshot.devices {
            let subject = snapshot.rank.map_or(Subject::Device(device.device), Subject::Rank);
            if let Some(live) = &device.live
                && found.iter().all(|column| column.subject != subject)
            {
                axis = live.axis;
                found.push(Column { subject, x: live.x.clone(), y: live.y.clone() });
            }
        }
    }
    found.sort_by_key(|column| column.subject);
    (axis, found)
}

/// The highest value of each bucket of the profilers' traces: what was reached is never lost.
fn of_traces(evidence: &Evidence, quantity: Quantity) -> (SeriesAxis, Vec<Column>) {
    let mut axis = None;
    let mut found: Vec<Column> = Vec::new();
    for trace in &evidence.traces {
        let subject = trace.rank.map(Subject::Rank).or(trace.device.map(Subject::Device));
        let (Some(subject), Some(curve)) = (subject, &trace.curve) else { continue };
        let band = if quantity == Quantity::Reserved { &curve.reserved } else { &curve.allocated };
        if let Some(band) = band
            && *axis.get_or_insert(curve.axis) == curve.axis
            && found.iter().all(|column| column.subject != subject)
        {
            found.push(Column { subject, x: curve.x.clone(), y: band.high.clone() });
        }
    }
    found.sort_by_key(|column| column.subject);
    (axis.unwrap_or(SeriesAxis::Index), found)
}

/// Columns over `axis` where every point has its place on it and none goes back; else over the order of reading.
fn columns(axis: SeriesAxis, points: Points) -> (SeriesAxis, Vec<Column>) {
    let is_placed =
        points.values().all(|points| points.iter().all(|(x, _)| x.is_some()) && points.is_sorted_by_key(|(x, _)| *x));
    let columns = points.into_iter().map(|(subject, points)| {
        let x = (0..).zip(&points).map(|(index, (x, _))| if is_placed { x.unwrap_or(index) } else { index }).collect();
        Column { subject, x, y: points.iter().map(|(_, y)| *y).collect() }
    });
    (if is_placed { axis } else { SeriesAxis::Index }, columns.collect())
}

impl QuantitySeries {
    /// Only what lies in the window, at most about `points` points for each column.
    #[must_use]
    pub fn cut(&self, window: Window, points: usize) -> Self {
        let columns = self.columns.iter().map(|column| column.cut(window, points)).collect();
        Self { quantity: self.quantity, axis: self.axis, columns }
    }
}

impl Column {
    fn cut(&self, window: Window, points: usize) -> Self {
        let len = self.x.len().min(self.y.len());
        let all_x = self.x.get(..len).unwrap_or_default();
        let start = window.from.map_or(0, |from| all_x.partition_point(|x| *x < from));
        let end = window.to.map_or(len, |to| all_x.partition_point(|x| *x <= to)).max(start);
        let x = all_x.get(start..end).unwrap_or_default();
        let y = self.y.get(start..end).unwrap_or_default();
        let (x, y) = min_max(x, y, points);
        Self { subject: self.subject, x, y }
    }
}

/// First, last, smallest and largest point of each bucket, in order. At most `points` (at least 4) in all.
fn min_max(x: &[i64], y: &[u64], points: usize) -> (Vec<i64>, Vec<u64>) {
    let points = points.max(4);
    let (Some(first), Some(last)) = (x.first(), x.last()) else { return (vec![], vec![]) };
    if x.len() <= points {
        return (x.to_vec(), y.to_vec());
    }
    // Two points a bucket, and one each for both ends of the whole.
    let buckets = (points - 2) / 2;
    let span = last.abs_diff(*first).max(1);
    let bucket_of = |at: i64| {
        let share = u128::from(at.abs_diff(*first)) * buckets as u128 / (u128::from(span) + 1);
        usize::try_from(share).unwrap_or(buckets)
    };
    let mut kept = vec![0];
    let mut rest = x.iter().zip(y).enumerate().peekable();
    while let Some((index, (at, value))) = rest.next() {
        let bucket = bucket_of(*at);
        let (mut lowest, mut highest) = ((index, *value), (index, *value));
        while let Some((index, (_, value))) = rest.next_if(|(_, (at, _))| bucket_of(**at) == bucket) {
            if *value < lowest.1 {
                lowest = (index, *value);
            }
            if *value > highest.1 {
                highest = (index, *value);
            }
        }
        kept.extend([lowest.0.min(highest.0), lowest.0.max(highest.0)]);
    }
    kept.push(x.len() - 1);
    kept.dedup();
    kept.iter().filter_map(|index| Some((*x.get(*index)?, *y.get(*index)?))).unzip()
}

/// The timeline of a report, cut to a window with the full columns where there are some.
#[must_use]
pub fn cut_timeline(timeline: &Timeline, full: Option<&QuantitySeries>, window: Window, points: usize) -> Timeline {
    let mut cut = timeline.clone();
    for line in &mut cut.lines {
        let column = full
            .filter(|full| full.axis == timeline.axis)
            .and_then(|full| full.columns.iter().find(|column| column.subject == line.subject));
        let own;
        let column = if let Some(column) = column {
            column
        } else {
            own = Column { subject: line.subject, x: line.x.clone(), y: line.y.clone() };
            &own
        };
        let reduced = column.cut(window, points);
        *line = TimelineLine { subject: line.subject, accused: line.accused, x: reduced.x, y: reduced.y };
    }
    let from = window.from.unwrap_or(i64::MIN);
    let to = window.to.unwrap_or(i64::MAX);
    cut.phases.retain(|span| span.to >= from && span.from <= to);
    for span in &mut cut.phases {
        span.from = span.from.max(from);
        span.to = span.to.min(to);
    }
    cut.marks.retain(|mark| (from..=to).contains(&mark.x));
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{Phase, PhaseSpan, Rank, TimelineMark};

    fn column(y: Vec<u64>) -> Column {
        Column { subject: Subject::Rank(Rank(0)), x: (0..).take(y.len()).collect(), y }
    }

    #[test]
    fn a_single_spike_survives_any_reduction() {
        let mut y = vec![100; 1_000_000];
        y[765_432] = 900;
        y[765_433] = 1;
        let cut = column(y).cut(Window::default(), 200);
        assert!(cut.x.len() <= 200, "{}", cut.x.len());
        assert!(cut.x.is_sorted());
        assert!(cut.y.contains(&900) && cut.y.contains(&1));
        assert_eq!((cut.x.first(), cut.x.last()), (Some(&0), Some(&999_999)));
    }

    #[test]
    fn steps_that_start_again_are_counted_instead() {
        use rankscope_model::{ArtifactId, Bytes, Provenance, Step};
        let record = |rank, step| StepRecord {
            step: Some(Step(step)),
            allocated: Some(Bytes(step)),
            ..StepRecord::new(Provenance::line(ArtifactId(0), 1, ""), Subject::Rank(Rank(rank)))
        };
        let of = |steps: &[(u32, u64)]| {
            let steps = steps.iter().map(|(rank, step)| record(*rank, *step)).collect();
            SeriesSet::of(&Evidence { steps, ..Evidence::default() }, None)
        };
        let set = of(&[(1, 5), (0, 5), (0, 6), (1, 6)]);
        let series = set.get(Quantity::Allocated).unwrap();
        assert_eq!((series.axis, series.columns[1].x.as_slice()), (SeriesAxis::Step, &[5, 6][..]));
        let set = of(&[(0, 5), (0, 6), (0, 5)]);
        let series = set.get(Quantity::Allocated).unwrap();
        assert_eq!((series.axis, series.columns[0].x.as_slice()), (SeriesAxis::Index, &[0, 1, 2][..]));
        assert_eq!(of(&[(0, 5), (1, 5)]), SeriesSet::default());
    }

    #[test]
    fn windows_include_both_ends_and_tolerate_nonsense() {
        let whole = column((0..100).collect());
        let cut = |from, to| whole.cut(Window { from, to }, 1000).x;
        assert_eq!(cut(Some(10), Some(12)), [10, 11, 12]);
        assert_eq!(cut(Some(98), None), [98, 99]);
        assert!(cut(Some(12), Some(10)).is_empty());
        assert!(cut(Some(i64::MAX), Some(i64::MIN)).is_empty());
        assert_eq!(whole.cut(Window { from: Some(i64::MIN), to: Some(i64::MAX) }, 0).y.last(), Some(&99));
        let extreme = Column { subject: Subject::Device(0), x: vec![i64::MIN, 0, 1, 2, 3, i64::MAX], y: vec![1; 6] };
        assert!(extreme.cut(Window::default(), 4).x.len() <= 4);
    }

    #[test]
    fn the_cut_timeline_takes_the_full_columns_and_clips_what_lies_around() {
        let timeline = Timeline {
            quantity: Quantity::Allocated,
            axis: SeriesAxis::Step,
            lines: vec![TimelineLine {
                subject: Subject::Rank(Rank(0)),
                x: vec![0, 99],
                y: vec![0, 99],
                accused: true,
            }],
            capacity: None,
            phases: vec![PhaseSpan { phase: Phase::Train, from: 0, to: 99 }],
            marks: vec![TimelineMark { x: 50, text: "gap opens".into() }, TimelineMark { x: 5, text: "early".into() }],
        };
        let full = QuantitySeries {
            quantity: Quantity::Allocated,
            axis: SeriesAxis::Step,
            columns: vec![column((0..100).collect())],
        };
        let cut = cut_timeline(&timeline, Some(&full), Window { from: Some(48), to: Some(52) }, 100);
        assert_eq!(cut.lines[0].x, [48, 49, 50, 51, 52]);
        assert!(cut.lines[0].accused);
        assert_eq!((cut.phases[0].from, cut.phases[0].to), (48, 52));
        assert_eq!(cut.marks.len(), 1);
        assert!(cut_timeline(&timeline, None, Window { from: Some(48), to: Some(52) }, 100).lines[0].x.is_empty());
    }
}
