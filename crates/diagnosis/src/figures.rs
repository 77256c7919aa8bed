//! The numbers behind the charts: memory over time and peak per rank or card; what fills each card is `composition.rs`.
//!
//! Reduced to what a page can draw, with every spike kept. Knows evidence and the diagnosis; draws nothing.

use crate::case::Case;
use crate::imbalance::{Comparison, Source};
use crate::traces::Lines;
use rankscope_model::{
    ArtifactId, Bytes, Diagnosis, EvidenceRef, Figures, Finding, LaunchSetting, OomEvent, PeakBar, Peaks, Phase,
    PhaseMark, PhaseSpan, Place, Provenance, Quantity, SeriesAxis, Severity, StepRecord, Subject, Timeline,
    TimelineLine, TimelineMark, UnixMicros,
};
use std::collections::{BTreeMap, BTreeSet};

/// Phase spans kept; a log that changes phase at every step would otherwise shade each of them.
const MAX_PHASES: usize = 512;
/// Marks kept.
const MAX_MARKS: usize = 64;
/// Marks of findings: more would hide the lines.
const MAX_FINDING_MARKS: usize = 4;
/// Ranks on one node, at most; a launch file that says more means something else.
const MAX_PER_NODE: u32 = 128;

/// All charts.
pub(crate) fn figures(case: &Case, diagnosis: &Diagnosis) -> Figures {
    // Where cards take turns none of them is the heavy one.
    let accuses = !crate::rules::takes_turns(case);
    let accusing = diagnosis.imbalance.iter().filter(|imbalance| accuses && !imbalance.by_design);
    let accused: BTreeSet<Subject> = accusing.flat_map(|imbalance| imbalance.heaviest.iter().copied()).collect();
    Figures {
        timeline: timeline(case, diagnosis, &accused),
        peaks: peaks(case, &accused),
        composition: crate::composition::composition(case, &accused),
        scatter: crate::scatter::scatter(case, &accused),
        facts: crate::facts::facts(case),
    }
}

// ---- timeline ----

fn timeline(case: &Case, diagnosis: &Diagnosis, accused: &BTreeSet<Subject>) -> Option<Timeline> {
    let mut timeline = steps_timeline(case, diagnosis, accused)
        .or_else(|| nodes_timeline(case, diagnosis, accused))
        .or_else(|| tables_timeline(case, diagnosis, accused))
        .or_else(|| recorded_timeline(case, accused))?;
    crate::events::mark(case, &mut timeline);
    Some(timeline)
}

/// What to draw of the step records: the compared quantity if it has an axis, else the one of most ranks.
fn step_quantity(case: &Case, diagnosis: &Diagnosis) -> Option<Quantity> {
    // A claim about growth is shown by what grows.
    let first = diagnosis.causes.first().map(|cause| cause.label);
    if first.is_some_and(|label| crate::rules::rests_on_growth(case, label)) {
        return Some(Quantity::Allocated);
    }
    let order = [
        Quantity::Allocated,
        Quantity::PeakAllocated,
        Quantity::Reserved,
        Quantity::PeakReserved,
        Quantity::DeviceUsed,
    ];
    let drawable = |quantity: Quantity| {
        // Subject, first position seen, and whether there is a second one.
        let mut seen: BTreeMap<Subject, (&crate::steps::Key, bool)> = BTreeMap::new();
        for (key, row) in case.steps.records().filter(|(_, row)| row.bytes(quantity).is_some()) {
            let entry = seen.entry(row.subject).or_insert((key, false));
            entry.1 |= entry.0 != key;
        }
        seen.values().filter(|(_, again)| *again).count()
    };
    let compared = case.main.as_ref().map(|(c, _)| c).filter(|c| c.source.is_steps());
    if let Some(quantity) = compared.map(|c| c.quantity).filter(|q| drawable(*q) > 0) {
        return Some(quantity);
    }
    let counted = order.map(|quantity| (quantity, drawable(quantity)));
    let best = counted.iter().map(|(_, n)| *n).max().filter(|n| *n > 0)?;
    counted.into_iter().find(|(_, n)| *n == best).map(|(quantity, _)| quantity)
}

fn steps_timeline(case: &Case, diagnosis: &Diagnosis, accused: &BTreeSet<Subject>) -> Option<Timeline> {
    let quantity = step_quantity(case, diagnosis)?;
    // One pass, one counter: the printed step is the axis. Otherwise the records are counted in file order.
    let phases: BTreeSet<Option<Phase>> = case.steps.rows.keys().map(|key| key.phase).collect();
    let is_one_count = case.steps.has_steps && case.steps.passes().len() == 1 && phases.len() == 1;
    let mut ordered: Vec<(&crate::steps::Key, &Vec<&StepRecord>)> = case.steps.rows.iter().collect();
    if !is_one_count {
        ordered.sort_by_key(|(_, rows)| rows.iter().map(|row| (row.at.artifact, row.at.place)).min());
    }
    let mut lines = Lines::new();
    let mut spans: Vec<PhaseSpan> = Vec::new();
    let mut places: Vec<(&Provenance, i64)> = Vec::new();
    let mut opens = None;
    let widest = case.main.as_ref().and_then(|(comparison, spread)| {
        crate::imbalance::single_moment(case, comparison).filter(|_| spread.stands_out())
    });
    let mut widest_at = None;
    for (index, (key, rows)) in ordered.iter().enumerate() {
        let x = if is_one_count { i64::try_from(key.step) } else { i64::try_from(index) }.unwrap_or(i64::MAX);
        for (subject, value) in case.steps.at(key, quantity) {
            let line = lines.entry(subject).or_default();
            line.0.push(x);
            line.1.push(value);
        }
        places.extend(rows.iter().map(|row| (&row.at, x)));
        extend_span(&mut spans, key.phase, x);
        let opening = diagnosis.imbalance.as_ref().and_then(|i| i.opens_at.as_ref());
        if opens.is_none() && opening.is_some_and(|o| o.step == Some(key.step) && o.phase == key.phase) {
            opens = Some(x);
        }
        if widest == Some(**key) {
            widest_at = Some(x);
        }
    }
    let lines = drawable(lines)?;
    let mut marks: Vec<TimelineMark> =
        opens.map(|x| TimelineMark { x, text: "gap opens".to_owned() }).into_iter().collect();
    // Of ranks that take turns there is no opening, only the step at which they are furthest apart.
    marks.extend(widest_at.map(|x| TimelineMark { x, text: "widest gap".to_owned() }));
    marks.extend(case.evidence.ooms.iter().filter(|oom| !oom.host_memory).filter_map(|oom| oom_mark(oom, &places)));
    marks.truncate(MAX_MARKS);
    marks.extend(finding_marks(case, diagnosis, &places, &marks));
    if phases.iter().all(Option::is_none) {
        spans = marked_phases(case, &places);
    }
    spans.truncate(MAX_PHASES);
    let capacity = case.main.as_ref().and_then(|(c, _)| common_capacity(c));
    Some(Timeline {
        quantity,
        axis: if is_one_count { SeriesAxis::Step } else { SeriesAxis::Index },
        lines: reduced(lines, accused, case),
        capacity,
        phases: spans,
        marks,
    })
}

/// Findings that speak of a moment on the axis, the worst first, each at its earliest; not where a mark stands already.
fn finding_marks(
    case: &Case,
    diagnosis: &Diagnosis,
    places: &[(&Provenance, i64)],
    marks: &[TimelineMark],
) -> Vec<TimelineMark> {
    let moment = |reference: &EvidenceRef| {
        // Several lines are no moment.
        let line = reference.line.filter(|line| reference.line_end.is_none_or(|end| end == *line))?;
        let at_line = |at: &&(&Provenance, i64)| {
            at.0.place == Place::Line(line) && case.evidence.artifact_name(at.0.artifact) == reference.artifact
        };
        places.iter().find(at_line).map(|(_, x)| *x)
    };
    let mut taken: Vec<i64> = marks.iter().map(|mark| mark.x).collect();
    let mut found = Vec::new();
    let mut findings: Vec<&Finding> = diagnosis.findings.iter().filter(|f| f.severity >= Severity::Warning).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    for finding in findings {
        let Some(x) = finding.evidence.iter().filter_map(moment).min() else { continue };
        if found.len() < MAX_FINDING_MARKS && !taken.contains(&x) {
            taken.push(x);
            // What all ranks do is not called by the name of the item, which is about one of them.
            let of_all = diagnosis.causes.first().filter(|cause| {
                cause.label.item() == finding.item
                    && cause.ranks.len() > 1
                    && cause.ranks.len() == case.steps.subjects.len()
            });
            let text = match of_all {
                Some(cause) => crate::words::lower_first(cause.label.title()),
                None => finding.item.short_title().to_lowercase(),
            };
            found.push(TimelineMark { x, text });
        }
    }
    found
}

/// Phases as log lines announce them, where the records themselves name none: each lasts until its file announces the
/// next. Of several files the one that announces most is taken, since all ranks do the same.
fn marked_phases(case: &Case, places: &[(&Provenance, i64)]) -> Vec<PhaseSpan> {
    let mut by_file: BTreeMap<ArtifactId, Vec<&PhaseMark>> = BTreeMap::new();
    for mark in &case.evidence.phases {
        by_file.entry(mark.at.artifact).or_default().push(mark);
    }
    let mut best: Vec<PhaseSpan> = Vec::new();
    for (artifact, marks) in by_file {
        let mut here: Vec<(Place, i64)> =
            places.iter().filter(|(at, _)| at.artifact == artifact).map(|(at, x)| (at.place, *x)).collect();
        here.sort_by_key(|(place, _)| *place);
        let (Some(first), Some(last)) = (here.first().map(|(_, x)| *x), here.last().map(|(_, x)| *x)) else { continue };
        // A phase that is announced after a record begins there: memory was read before it.
        let x_of = |place: Place| {
            let after = here.partition_point(|(other, _)| *other <= place);
            after.checked_sub(1).and_then(|before| here.get(before)).map_or(first, |(_, x)| *x)
        };
        let mut spans: Vec<PhaseSpan> = Vec::new();
        for mark in marks {
            let x = x_of(mark.at.place);
            if let Some(open) = spans.last_mut() {
                open.to = open.to.min(x).max(open.from);
            }
            spans.push(PhaseSpan { phase: mark.phase, from: x, to: last.max(x) });
        }
        // Phases between two records have no place on the axis.
        spans.retain(|span| span.from < span.to);
        if spans.len() > best.len() {
            best = spans;
        }
    }
    best
}

/// An out-of-memory message stands after the last record above it in its file.
fn oom_mark(oom: &OomEvent, places: &[(&Provenance, i64)]) -> Option<TimelineMark> {
    let before = places.iter().filter(|(at, _)| at.artifact == oom.at.artifact && at.place <= oom.at.place);
    let x = before.max_by_key(|(at, _)| at.place).map(|(_, x)| *x)?;
    Some(TimelineMark { x, text: oom_text(oom) })
}

fn oom_text(oom: &OomEvent) -> String {
    match (oom.rank, oom.device) {
        (Some(rank), _) => format!("out of memory, rank {}", rank.0),
        (None, Some(device)) => format!("out of memory, GPU {device}"),
        (None, None) => "out of memory".to_owned(),
    }
}

fn extend_span(spans: &mut Vec<PhaseSpan>, phase: Option<Phase>, x: i64) {
    let Some(phase) = phase else { return };
    match spans.last_mut() {
        Some(last) if last.phase == phase => last.to = last.to.max(x),
        _ => spans.push(PhaseSpan { phase, from: x, to: x }),
    }
}

/// The ranks of a job on several nodes, each by the use of its card.
fn nodes_timeline(case: &Case, diagnosis: &Diagnosis, accused: &BTreeSet<Subject>) -> Option<Timeline> {
    let mut lines = Lines::new();
    for (time, _, used) in crate::nodes::moments(case, |index, card| case.tables.get(index)?.gpu(card)?.used)? {
        for (rank, used) in used {
            let line = lines.entry(rank).or_default();
            line.0.push(time);
            line.1.push(used);
        }
    }
    let lines = drawable(lines)?;
    let of_nodes = case.comparisons.iter().find(|comparison| comparison.source == Source::Nodes);
    let marks = if diagnosis.imbalance.as_ref().is_some_and(|imbalance| imbalance.opens_at.is_some()) {
        first_apart(&lines, accused, case)
    } else {
        None
    };
    Some(Timeline {
        quantity: Quantity::DeviceUsed,
        axis: SeriesAxis::UnixMicros,
        lines: reduced(lines, accused, case),
        capacity: of_nodes.and_then(common_capacity),
        phases: vec![],
        marks: marks.map(|x| TimelineMark { x, text: "gap opens".to_owned() }).into_iter().collect(),
    })
}

fn tables_timeline(case: &Case, diagnosis: &Diagnosis, accused: &BTreeSet<Subject>) -> Option<Timeline> {
    // Readings without the use of cards (a monitor of processes) have nothing to draw, however many they are.
    let with_memory = |series: &&Vec<usize>| {
        series.iter().any(|index| case.tables.get(*index).is_some_and(|view| view.max_used().is_some()))
    };
    let series = case.table_series.iter().filter(with_memory).max_by_key(|series| series.len());
    let series = series.filter(|series| series.len() >= 2)?;
    let times: Option<Vec<UnixMicros>> =
        series.iter().map(|index| case.tables.get(*index).and_then(|view| view.table.time)).collect();
    // Two tables of the same second would fall on one place.
    let times = times.filter(|times| times.is_sorted_by(|a, b| a < b));
    let axis = if times.is_some() { SeriesAxis::UnixMicros } else { SeriesAxis::Index };
    let mut lines = Lines::new();
    let mut capacities: BTreeSet<u64> = BTreeSet::new();
    for (position, index) in series.iter().enumerate() {
        let Some(view) = case.tables.get(*index) else { continue };
        let time = times.as_ref().and_then(|times| times.get(position)).map(|t| t.0);
        let x = time.unwrap_or_else(|| i64::try_from(position).unwrap_or(i64::MAX));
        for gpu in &view.gpus {
            capacities.extend(gpu.total);
            if let Some(used) = gpu.used {
                let line = lines.entry(gpu.subject).or_default();
                line.0.push(x);
                line.1.push(used);
            }
        }
    }
    let lines = drawable(lines)?;
    let capacity = if capacities.len() == 1 { capacities.first().map(|c| Bytes(*c)) } else { None };
    let mut marks = Vec::new();
    if axis == SeriesAxis::UnixMicros {
        let timed = case.evidence.ooms.iter().filter_map(|oom| Some((oom, oom.at.time?)));
        marks.extend(timed.map(|(oom, time)| TimelineMark { x: time.0, text: oom_text(oom) }).take(MAX_MARKS));
    }
    if diagnosis.imbalance.as_ref().is_some_and(|i| i.opens_at.is_some())
        && let Some(x) = first_apart(&lines, accused, case)
    {
        marks.push(TimelineMark { x, text: "gap opens".to_owned() });
    }
    Some(Timeline {
        quantity: Quantity::DeviceUsed,
        axis,
        lines: reduced(lines, accused, case),
        capacity,
        phases: vec![],
        marks,
    })
}

/// The position at which an accused line leaves the others for good.
fn first_apart(lines: &Lines, accused: &BTreeSet<Subject>, case: &Case) -> Option<i64> {
    let heavy = *lines.keys().find(|subject| accused.contains(*subject))?;
    let mut sections: BTreeMap<i64, Vec<(Subject, u64)>> = BTreeMap::new();
    for (subject, (xs, ys)) in lines {
        for (x, y) in xs.iter().zip(ys) {
            sections.entry(*x).or_default().push((*subject, *y));
        }
    }
    let is_low = case.main.as_ref().is_some_and(|(_, spread)| spread.is_low_outlier);
    let at = crate::imbalance::opening(case.policy, sections.values().map(Vec::as_slice), &[heavy], is_low)?;
    sections.keys().nth(at).copied()
}

/// Of snapshots and traces what shows more ranks; snapshots at a tie.
fn recorded_timeline(case: &Case, accused: &BTreeSet<Subject>) -> Option<Timeline> {
    let (snapshots, traces) = (snapshots_timeline(case, accused), traces_timeline(case, accused));
    let lines = |timeline: &Option<Timeline>| timeline.as_ref().map_or(0, |timeline| timeline.lines.len());
    let recorded = if lines(&traces) > lines(&snapshots) { traces } else { snapshots };
    recorded.map(on_one_axis)
}

/// Recordings that were not made at the same time would stand far apart on one clock, most of it empty: each is drawn
/// from its own start then.
fn on_one_axis(mut timeline: Timeline) -> Timeline {
    let ends = |line: &TimelineLine| Some((*line.x.first()?, *line.x.last()?));
    let mut spans: Vec<(i64, i64)> = timeline.lines.iter().filter_map(ends).collect();
    spans.sort_unstable();
    let (mut covered, mut end) = (0i64, i64::MIN);
    for (from, to) in &spans {
        covered = covered.saturating_add(to.saturating_sub((*from).max(end)).max(0));
        end = end.max(*to);
    }
    let whole = spans.first().map_or(0, |(from, _)| end.saturating_sub(*from));
    if timeline.axis != SeriesAxis::UnixMicros || covered.saturating_mul(2) >= whole {
        return timeline;
    }
    timeline.axis = SeriesAxis::SinceStart;
    // They stand on the clock.
    timeline.marks.clear();
    for line in &mut timeline.lines {
        let start = line.x.first().copied().unwrap_or_default();
        line.x.iter_mut().for_each(|x| *x = x.saturating_sub(start));
    }
    timeline
}

fn traces_timeline(case: &Case, accused: &BTreeSet<Subject>) -> Option<Timeline> {
    let (axis, lines) = crate::traces::lines(case)?;
    let lines = drawable(lines)?;
    let traces = case.evidence.traces.iter();
    let capacities: BTreeSet<u64> = traces.filter_map(|trace| trace.capacity).map(|bytes| bytes.0).collect();
    let mut marks = Vec::new();
    if axis == SeriesAxis::UnixMicros {
        let timed = case.evidence.ooms.iter().filter_map(|oom| Some((oom, oom.at.time?)));
        marks.extend(timed.map(|(oom, time)| TimelineMark { x: time.0, text: oom_text(oom) }).take(MAX_MARKS));
    }
    Some(Timeline {
        quantity: Quantity::Allocated,
        axis,
        lines: reduced(lines, accused, case),
        capacity: if capacities.len() == 1 { capacities.first().map(|c| Bytes(*c)) } else { None },
        phases: vec![],
        marks,
    })
}

fn snapshots_timeline(case: &Case, accused: &BTreeSet<Subject>) -> Option<Timeline> {
    let mut lines = Lines::new();
    let mut axis = None;
    for snapshot in &case.evidence.snapshots {
        for device in &snapshot.devices {
            let Some(live) = device.live.as_ref().filter(|live| live.x.len() >= 2 && live.x.len() == live.y.len())
            else {
                continue;
            };
            // Lines on different axes cannot share a chart; the first one decides.
            if *axis.get_or_insert(live.axis) != live.axis {
                continue;
            }
            let subject = snapshot.rank.map_or(Subject::Device(device.device), Subject::Rank);
            let line = lines.entry(subject).or_default();
            if line.0.is_empty() {
                *line = (live.x.clone(), live.y.clone());
            }
        }
    }
    let (axis, lines) = (axis?, drawable(lines)?);
    Some(Timeline {
        quantity: Quantity::Requested,
        axis,
        lines: reduced(lines, accused, case),
        capacity: None,
        phases: vec![],
        marks: vec![],
    })
}

/// Lines with at least two places on the axis; one point is no course. `None` when none is left.
fn drawable(mut lines: Lines) -> Option<Lines> {
    lines.retain(|_, (x, _)| x.first() != x.last());
    (!lines.is_empty()).then_some(lines)
}

/// At most the allowed number of lines and points. The accused stay first; of each bucket of points the lowest and the
/// highest stay, so that no spike is lost.
fn reduced(lines: Lines, accused: &BTreeSet<Subject>, case: &Case) -> Vec<TimelineLine> {
    let mut kept: Vec<TimelineLine> = lines
        .into_iter()
        .map(|(subject, (x, y))| {
            let (x, y) = thinned(x, y, case.policy.timeline_points);
            TimelineLine { subject, x, y, accused: accused.contains(&subject) }
        })
        .collect();
    if kept.len() > case.policy.timeline_lines {
        kept.sort_by_key(|line| (!line.accused, line.subject));
        kept.truncate(case.policy.timeline_lines);
        kept.sort_by_key(|line| line.subject);
    }
    kept
}

fn thinned(x: Vec<i64>, y: Vec<u64>, limit: usize) -> (Vec<i64>, Vec<u64>) {
    if x.len() <= limit || limit < 4 {
        return (x, y);
    }
    // First and last point, and two of each bucket between.
    let buckets = (limit - 2) / 2;
    let points: Vec<(i64, u64)> = x.into_iter().zip(y).collect();
    let size = points.len().div_ceil(buckets).max(1);
    // By position, not by x: points of one time may differ, and each of them may be the spike.
    let mut kept: BTreeSet<usize> = BTreeSet::from([0, points.len().saturating_sub(1)]);
    for (number, bucket) in points.chunks(size).enumerate() {
        let numbered = || bucket.iter().enumerate();
        let low = numbered().min_by_key(|(_, (_, y))| *y);
        let high = numbered().max_by_key(|(_, (_, y))| *y);
        kept.extend([low, high].into_iter().flatten().map(|(at, _)| number * size + at));
    }
    kept.into_iter().filter_map(|at| points.get(at)).copied().unzip()
}

// ---- peaks ----

fn peaks(case: &Case, accused: &BTreeSet<Subject>) -> Option<Peaks> {
    let (quantity, values, capacity) = if let Some((comparison, _)) = &case.main {
        (comparison.quantity, comparison.values.clone(), common_capacity(comparison))
    } else if let Some(view) = case.focus_with_memory() {
        let values: Vec<(Subject, u64)> = view.gpus.iter().filter_map(|gpu| Some((gpu.subject, gpu.used?))).collect();
        let totals: BTreeSet<u64> = view.gpus.iter().filter_map(|gpu| gpu.total).collect();
        let capacity = if totals.len() == 1 { totals.first().map(|t| Bytes(*t)) } else { None };
        (Quantity::DeviceUsed, values, capacity)
    } else {
        let fullest = crate::traces::fullest(case);
        let capacities: BTreeSet<Option<Bytes>> = fullest.values().map(|(_, trace)| trace.capacity).collect();
        let capacity = if capacities.len() == 1 { capacities.first().copied().flatten() } else { None };
        (Quantity::PeakAllocated, fullest.into_iter().map(|(s, (peak, _))| (s, peak.0)).collect(), capacity)
    };
    let numbers: Vec<u64> = values.iter().map(|(_, v)| *v).collect();
    let median = crate::stats::lower_median(&numbers)?;
    let bars = values
        .into_iter()
        .map(|(subject, peak)| PeakBar { subject, peak: Bytes(peak), accused: accused.contains(&subject) })
        .collect();
    let moment = case.main.as_ref().and_then(|(comparison, _)| crate::imbalance::single_moment(case, comparison));
    let at = moment.map(|key| crate::imbalance::at_step(case, &key).text);
    Some(Peaks { quantity, bars, median: Bytes(median), capacity, per_node: per_node(case), at })
}

/// Ranks on each node, where the nodes' records show it or the job's launch says it.
fn per_node(case: &Case) -> Option<u32> {
    if !case.homes.is_empty() {
        let series: Vec<usize> = case.homes.values().map(|home| home.series).collect();
        let runs: BTreeSet<usize> = series.chunk_by(|a, b| a == b).map(<[usize]>::len).collect();
        let are_even = runs.len() == 1;
        return runs.first().filter(|_| are_even).and_then(|n| u32::try_from(*n).ok()).filter(|n| *n >= 2);
    }
    let facts = case.evidence.launches.iter().flat_map(|launch| &launch.facts);
    let said = facts.filter_map(|fact| match fact.what {
        LaunchSetting::ProcessesPerNode(n) | LaunchSetting::GpusPerNode(n) => Some(n),
        _ => None,
    });
    let distinct: BTreeSet<u32> = said.filter(|n| (2..=MAX_PER_NODE).contains(n)).collect();
    if distinct.len() == 1 { distinct.first().copied() } else { None }
}

pub(crate) fn common_capacity(comparison: &Comparison) -> Option<Bytes> {
    let distinct: BTreeSet<u64> = comparison.capacities.values().copied().collect();
    let all_known = comparison.values.iter().all(|(s, _)| comparison.capacities.contains_key(s));
    if distinct.len() == 1 && all_known { distinct.first().map(|c| Bytes(*c)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_every_spike_and_both_ends() {
        let x: Vec<i64> = (0..100_000).collect();
        let mut y = vec![10u64; 100_000];
        y[54_321] = 99;
        y[70_001] = 1;
        let (tx, ty) = thinned(x, y, 2000);
        assert!(tx.len() <= 2000);
        assert!(ty.contains(&99) && ty.contains(&1));
        assert_eq!((tx.first(), tx.last()), (Some(&0), Some(&99_999)));
        assert!(tx.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn thinning_keeps_spikes_and_the_last_point_among_equal_times() {
        let mut x: Vec<i64> = (0..10_000).map(|n| n / 100).collect();
        let mut y = vec![10u64; 10_000];
        (y[5_050], y[7_070]) = (99, 1);
        (x[9_998], x[9_999], y[9_999]) = (200, 200, 50);
        let (tx, ty) = thinned(x, y, 100);
        assert!(tx.len() <= 100 && tx.is_sorted());
        assert!(ty.contains(&99) && ty.contains(&1));
        assert_eq!((tx.last(), ty.last()), (Some(&200), Some(&50)));
    }
}
