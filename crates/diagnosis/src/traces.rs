//! Memory traces of profilers: the peak of each rank for comparison, the lines of the chart, and which ranks were traced
//! at all.
//!
//! A trace that is only a lower bound is drawn, but never compared.

use crate::case::Case;
use crate::combine::{Claim, Ledger};
use crate::imbalance::{Comparison, Source};
use crate::words;
use rankscope_model::{
    Band, Bytes, Item, MemoryCurve, MemoryTrace, Quantity, Rank, SeriesAxis, Severity, Subject, TraceSource,
};
use std::collections::{BTreeMap, BTreeSet};

/// Ranks without a trace that are named; of a larger job only their number is said.
const MAX_LEFT_OUT: u32 = 4096;

/// Whose memory a trace tells.
pub(crate) fn subject(trace: &MemoryTrace) -> Option<Subject> {
    trace.rank.map(Subject::Rank).or(trace.device.map(Subject::Device))
}

/// The trace of each subject with the largest peak; a rank may have recorded several devices or several files.
pub(crate) fn fullest<'a>(case: &Case<'a>) -> BTreeMap<Subject, (Bytes, &'a MemoryTrace)> {
    let mut found: BTreeMap<Subject, (Bytes, &MemoryTrace)> = BTreeMap::new();
    for trace in &case.evidence.traces {
        let (Some(subject), Some(peak)) = (subject(trace), &trace.peak) else { continue };
        if found.get(&subject).is_none_or(|(bytes, _)| peak.bytes > *bytes) {
            found.insert(subject, (peak.bytes, trace));
        }
    }
    found
}

/// Peaks of the traced ranks, side by side.
pub(crate) fn comparisons(case: &Case) -> Vec<Comparison> {
    let fullest = fullest(case);
    let mut found = Vec::new();
    for quantity in [Quantity::PeakAllocated, Quantity::PeakReserved] {
        let value = |trace: &MemoryTrace| match quantity {
            Quantity::PeakAllocated => trace.peak.as_ref().map(|peak| peak.bytes.0),
            _ => trace.peak_reserved.map(|bytes| bytes.0),
        };
        let traces = || fullest.iter().filter(|(s, (_, trace))| s.rank().is_some() && !trace.is_lower_bound);
        let values: Vec<(Subject, u64)> = traces().filter_map(|(s, (_, trace))| Some((*s, value(trace)?))).collect();
        if values.len() < 2 {
            continue;
        }
        let has: BTreeSet<Subject> = values.iter().map(|(s, _)| *s).collect();
        let capacities = traces().filter_map(|(s, (_, trace))| Some((*s, trace.capacity?.0)));
        let ranks = (0..world_size(case).unwrap_or(0).min(MAX_LEFT_OUT)).map(|rank| Subject::Rank(Rank(rank)));
        found.push(Comparison {
            quantity,
            capacities: capacities.filter(|(s, _)| has.contains(s)).collect(),
            left_out: ranks.filter(|rank| !has.contains(rank)).collect(),
            values,
            source: Source::Traces,
        });
    }
    found
}

fn world_size(case: &Case) -> Option<u32> {
    case.evidence.traces.iter().filter_map(|trace| trace.world_size).max()
}

/// Says how many of the job's ranks were traced, where it was not all.
pub(crate) fn note_traced(case: &Case, ledger: &mut Ledger) {
    let profiled = || case.evidence.traces.iter().filter(|trace| trace.source == TraceSource::Profiler);
    let ranks: BTreeSet<Rank> = profiled().filter_map(|trace| trace.rank).collect();
    let Some(world) = world_size(case) else { return };
    if ranks.is_empty() || u64::from(world) <= ranks.len() as u64 {
        return;
    }
    let subjects: Vec<Subject> = ranks.iter().copied().map(Subject::Rank).collect();
    let with_memory = profiled().filter(|trace| trace.peak.is_some()).filter_map(|trace| trace.rank);
    let memory = match with_memory.collect::<BTreeSet<Rank>>().len() {
        0 => " None of the traces has memory events of a GPU.".to_owned(),
        n if n < ranks.len() => format!(" {} have memory events of a GPU.", words::capital(&words::count(n))),
        _ => String::new(),
    };
    let text = format!(
        "{} of {world} ranks {} traced ({}); nothing is known of the others from traces.{memory}",
        words::capital(&words::count(ranks.len())),
        if ranks.len() == 1 { "was" } else { "were" },
        words::subjects(&subjects)
    );
    let refs = case.refs(profiled().map(|trace| &trace.at));
    let ranks = ranks.iter().map(|rank| rank.0).collect();
    let severity = Severity::Info;
    ledger.claim(Claim { item: Item::MemoryStats, label: None, severity, confidence: 1.0, text, ranks, refs });
}

/// The lines of one subject each, as x and y.
pub(crate) type Lines = BTreeMap<Subject, (Vec<i64>, Vec<u64>)>;

/// Allocated over time of each traced subject. Lines on different axes cannot share a chart: the axis of most stays.
pub(crate) fn lines(case: &Case) -> Option<(SeriesAxis, Lines)> {
    let fullest = fullest(case);
    let curves: Vec<(Subject, &MemoryCurve, &Band)> = fullest
        .iter()
        .filter_map(|(subject, (_, trace))| {
            let curve = trace.curve.as_ref()?;
            let band = curve.allocated.as_ref()?;
            let is_whole = curve.x.len() >= 2 && curve.x.len() == band.low.len() && curve.x.len() == band.high.len();
            is_whole.then_some((*subject, curve, band))
        })
        .collect();
    let dated = curves.iter().filter(|(_, curve, _)| curve.axis == SeriesAxis::UnixMicros).count();
    let axis = if dated * 2 >= curves.len() { SeriesAxis::UnixMicros } else { SeriesAxis::Index };
    let lines: Lines = curves
        .iter()
        .filter(|(_, curve, _)| curve.axis == axis)
        .map(|(subject, curve, band)| (*subject, points(&curve.x, band)))
        .collect();
    (!lines.is_empty()).then_some((axis, lines))
}

/// Two points of a bucket whose values differ: the lowest where it begins, the highest half-way to the next. Where in
/// the bucket they stood is not kept; that each was reached is.
fn points(x: &[i64], band: &Band) -> (Vec<i64>, Vec<u64>) {
    let mut points: Vec<(i64, u64)> = Vec::with_capacity(x.len().saturating_mul(2));
    let mut push = |at: i64, value: u64| match points.last_mut() {
        // Buckets of one time: the highest of all.
        Some(last) if last.0 >= at => last.1 = last.1.max(value),
        _ => points.push((at, value)),
    };
    for (index, ((at, low), high)) in x.iter().zip(&band.low).zip(&band.high).enumerate() {
        let room = x.get(index + 1).map_or(0, |next| next.saturating_sub(*at));
        if low < high && room >= 2 {
            push(*at, *low);
            push(at.saturating_add(room / 2), *high);
        } else {
            push(*at, *high);
        }
    }
    points.into_iter().unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_extreme_becomes_a_point_and_x_ascends() {
        let band = Band { low: vec![1, 5, 2, 2], high: vec![9, 5, 7, 8] };
        assert_eq!(points(&[0, 10, 20, 21], &band), (vec![0, 5, 10, 20, 21], vec![1, 9, 5, 7, 8]));
        // Of buckets of one time the highest stays; the last of them reaches to the next time.
        assert_eq!(points(&[4, 4, 4, 9], &band), (vec![4, 6, 9], vec![9, 7, 8]));
    }
}
