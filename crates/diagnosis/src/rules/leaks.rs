//! Memory that grows with every step. Shown under `memory_stats`; growth in evaluation alone is kept predictions and
//! shown under `rank_only_work`.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::imbalance::Source;
use crate::policy::{Policy, weight};
use crate::steps::{Key, is_training};
use crate::tables::TableView;
use crate::words;
use rankscope_model::{
    Bytes, CauseLabel, EvidenceRef, ItemStatus, Phase, Provenance, Severity, StepRecord, Subject, UnixMicros,
};
use std::collections::{BTreeMap, BTreeSet};

/// Some subject's allocated memory grows steadily, in training or in an evaluation.
pub(super) fn is_seen(case: &Case) -> bool {
    !growing(case, is_training).is_empty() || !growing_evals(case).is_empty()
}

/// One evaluation at a time: what grows in each and is given back before the next is kept predictions.
fn growing_evals<'a>(case: &Case<'a>) -> Vec<Vec<Growth<'a>>> {
    let is_eval = |key: &Key| key.phase == Some(Phase::Eval);
    let passes: BTreeSet<u32> = case.steps.rows.keys().filter(|key| is_eval(key)).map(|key| key.pass).collect();
    passes
        .iter()
        .map(|pass| growing(case, |key| is_eval(key) && key.pass == *pass))
        .filter(|growths| !growths.is_empty())
        .collect()
}

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let training = growing(case, is_training);
    if !training.is_empty() {
        told(case, &training, CauseLabel::PerStepLeak, &[CauseLabel::MetricGatherOnGpu], "training", ledger);
    }
    over_readings(case, ledger);
    let evals = growing_evals(case);
    let Some(eval) = evals.first().filter(|_| training.is_empty()) else { return };
    told(case, eval, CauseLabel::MetricGatherOnGpu, &[CauseLabel::PerStepLeak], "evaluation", ledger);
    let starts: Vec<u64> = evals.iter().flatten().map(|growth| growth.first).collect();
    let (Some(lowest), Some(highest)) = (starts.iter().min(), starts.iter().max()) else { return };
    if evals.len() >= 2 && !case.policy.differs(*highest, *lowest) {
        let reason = format!(
            "It starts low again in each of {} evaluations: what is kept is given back at the end.",
            evals.len()
        );
        ledger.signal(&[CauseLabel::MetricGatherOnGpu], weight::FAIR, reason, &[]);
    }
}

/// Without step records: over a series of readings one card grows steadily, and the others do not. Cards that wave up and
/// down with their steps are held against each other by the lowest that each comes down to.
fn over_readings(case: &Case, ledger: &mut Ledger) {
    let Some((comparison, spread)) = &case.on_cards else { return };
    let (Source::Tables(series), [card]) = (&comparison.source, spread.heaviest.as_slice()) else { return };
    if spread.is_low_outlier {
        return;
    }
    let views = || series.iter().filter_map(|index| Some((*index, case.tables.get(*index)?)));
    let readings = |subject: Subject| -> Vec<(u64, &Provenance)> {
        views().filter_map(|(index, view)| Some((case.use_of(index, subject)?, &view.gpu(subject)?.row.at))).collect()
    };
    // By time, where the tables have one: readings are taken where something changes, and so not evenly.
    let timed = |subject: Subject| -> Vec<(i64, u64)> {
        let place = |(at, (index, view)): (usize, (usize, &TableView))| {
            let time = view.table.time.map_or_else(|| i64::try_from(at).unwrap_or(i64::MAX), |time| time.0);
            Some((time, case.use_of(index, subject)?))
        };
        views().enumerate().filter_map(place).collect()
    };
    let values = |subject: Subject| readings(subject).iter().map(|(used, _)| *used).collect::<Vec<_>>();
    let others = || comparison.values.iter().map(|(subject, _)| *subject).filter(|subject| subject != card);
    let is_steady = |subject: Subject| {
        let values = values(subject);
        matches!((values.iter().min(), values.iter().max()), (Some(min), Some(max)) if !case.policy.differs(*max, *min))
    };
    let own = readings(*card);
    let floors = floors(&timed(*card), case.policy);
    let is_level = |subject: Subject| is_level(&self::floors(&timed(subject), case.policy), case.policy);
    let has_times = views().all(|(_, view)| view.table.time.is_some());
    let kept = || kept_growth(&timed(*card), &others().map(&timed).collect::<Vec<_>>(), case.policy);
    let kept = if has_times { kept() } else { None };
    let label = CauseLabel::PerStepLeak;
    if let Some(growth) = &kept {
        told_kept(*card, growth, case.refs(own.iter().map(|(_, at)| *at)), ledger);
        return;
    }
    let (grown, how, others_do) = if grows_steadily(&values(*card), case.policy) && others().all(is_steady) {
        (values(*card), "", "stay what they were")
    } else if grows_steadily(&floors, case.policy) && others().all(is_level) {
        (floors, ", at its lowest,", "come down to what they were again and again")
    } else {
        return;
    };
    let (Some(first), Some(last)) = (grown.first(), grown.last()) else { return };
    let refs = case.refs(own.iter().map(|(_, at)| *at));
    let text = format!(
        "{card} grows{how} from {} to {} over {} readings while the other cards {others_do}.",
        Bytes(*first),
        Bytes(*last),
        own.len()
    );
    ledger.signal(&[label], weight::GOOD, &text, &refs);
    ledger.signal(&[CauseLabel::MetricGatherOnGpu, CauseLabel::Rank0LoggingOrTrace], weight::FAINT, &text, &refs);
    ledger.caveat(label, "A card's use counts the cache too; allocated memory of that rank tells a leak from a cache.");
    let mechanism = Mechanism {
        because: "memory grows there with time and on no other card".to_owned(),
        alone: text.clone(),
        explained: Some(last.saturating_sub(*first)),
    };
    ledger.mechanism(&[label], &mechanism);
    ledger.status(label.item(), ItemStatus::Suspect);
    let (item, severity) = (label.item(), Severity::Warning);
    ledger.claim(Claim { item, label: Some(label), severity, confidence: 0.9, text, ranks: vec![], refs });
}

/// Growth that has come to an end, and what was taken is held.
#[derive(Debug, PartialEq)]
struct KeptGrowth {
    /// When it began and ended.
    from: UnixMicros,
    /// See [`Self::from`].
    until: UnixMicros,
    /// What is never gone below: before and after.
    first: u64,
    /// See [`Self::first`].
    last: u64,
}

/// Growth of one card that has ended and is held, while the others stay level. Looked at is what each never goes below
/// again: so waves do not count, and neither does what is given back.
fn kept_growth(own: &[(i64, u64)], others: &[Vec<(i64, u64)>], policy: &Policy) -> Option<KeptGrowth> {
    // The last stretch tells what is held; before that every wave has come down again.
    let held_in = |curve: &[(i64, u64)]| {
        let ((first, _), (last, _)) = (curve.first()?, curve.last()?);
        let from = last.saturating_sub(last.saturating_sub(*first) / 8).min(last.saturating_sub(policy.held_for));
        let begin = curve.partition_point(|(time, _)| *time < from);
        // What stays as it is gives a reading now and then.
        let begin = begin.min(curve.len().saturating_sub(policy.floor_readings));
        let rest = curve.get(begin..).filter(|rest| rest.len() >= policy.floor_readings)?;
        Some((begin, rest.iter().map(|(_, used)| *used).min()?))
    };
    let never_below = |curve: &[(i64, u64)]| -> Option<Vec<(i64, u64)>> {
        let (begin, held) = held_in(curve)?;
        let mut least = held;
        let mut floor: Vec<(i64, u64)> = curve
            .get(..begin)?
            .iter()
            .rev()
            .map(|(time, used)| {
                least = least.min(*used);
                (*time, least)
            })
            .collect();
        floor.reverse();
        floor.push((curve.get(begin)?.0, held));
        Some(floor)
    };
    let floor = never_below(own)?;
    let (end, held) = floor.last().copied()?;
    // While the cards of a job fill, each grows. What counts is what follows once the others stand.
    let mut stand = floor.first()?.0;
    for other in others {
        let other = never_below(other)?;
        let (_, level) = other.last().copied()?;
        let stands = other.iter().find(|(_, used)| !policy.differs(level, *used))?;
        stand = stand.max(stands.0);
    }
    let course: Vec<(i64, u64)> = floor.into_iter().filter(|(time, _)| *time >= stand).collect();
    let first = course.first()?.1;
    let grown = held.saturating_sub(first);
    let slack = policy.notice.0.max(grown / 50).min(grown / 4);
    let from = course.iter().rev().find(|(_, used)| *used <= first.saturating_add(slack))?.0;
    let until = course.iter().find(|(_, used)| *used >= held.saturating_sub(slack))?.0;
    let is_large = grown >= policy.notice.0 && grown as f64 >= first as f64 * policy.growth_share;
    let lasts = until.saturating_sub(from);
    if !is_large || lasts < policy.growth_lasts || end.saturating_sub(until) < policy.held_for {
        return None;
    }
    // A slope, not a few jumps: something is added in nearly every stretch of it.
    let parts = i64::try_from(policy.growth_points).ok()?;
    let level_at = |part: i64| {
        let time = from.saturating_add(lasts.saturating_mul(part) / parts);
        course.iter().rev().find(|(at, _)| *at <= time).map_or(first, |(_, used)| *used)
    };
    let least = grown / policy.growth_points as u64 / 4;
    let rises = (0..parts).filter(|part| level_at(part + 1).saturating_sub(level_at(*part)) >= least).count();
    let is_steady = rises + 1 >= policy.growth_points;
    is_steady.then_some(KeptGrowth { from: UnixMicros(from), until: UnixMicros(until), first, last: held })
}

fn told_kept(card: Subject, growth: &KeptGrowth, refs: Vec<EvidenceRef>, ledger: &mut Ledger) {
    let label = CauseLabel::PerStepLeak;
    let grown = Bytes(growth.last.saturating_sub(growth.first));
    let when = words::from_to(growth.from, growth.until);
    let text = format!(
        "{card} grew by {grown} {when}, from {} to {}, while the other cards stayed level, and has held it since.",
        Bytes(growth.first),
        Bytes(growth.last)
    );
    ledger.signal(&[label], weight::GOOD, &text, &refs);
    ledger.signal(&[CauseLabel::MetricGatherOnGpu, CauseLabel::Rank0LoggingOrTrace], weight::FAINT, &text, &refs);
    ledger.caveat(label, "A card's use counts the cache too; allocated memory of that rank tells a leak from a cache.");
    ledger.caveat(label, "It no longer grows: a cache or a buffer that has reached its size does that too.");
    let mechanism = Mechanism {
        because: format!("memory grew there {when} and on no other card, and is still held"),
        alone: text.clone(),
        explained: Some(grown.0),
    };
    ledger.mechanism(&[label], &mechanism);
    ledger.status(label.item(), ItemStatus::Suspect);
    let (item, severity) = (label.item(), Severity::Warning);
    ledger.claim(Claim { item, label: Some(label), severity, confidence: 0.9, text, ranks: vec![], refs });
}

/// The lowest of each of some stretches of equal length: where memory waves up and down, what is kept in between. Empty
/// where a stretch has too few readings to have seen a wave come down.
fn floors(readings: &[(i64, u64)], policy: &Policy) -> Vec<u64> {
    let (Some((first, _)), Some((last, _))) = (readings.first(), readings.last()) else { return Vec::new() };
    let span = i128::from(*last) - i128::from(*first) + 1;
    let mut lowest: Vec<(u64, usize)> = vec![(u64::MAX, 0); policy.growth_points];
    for (time, used) in readings {
        let part = (i128::from(*time) - i128::from(*first)).saturating_mul(lowest.len() as i128) / span;
        if let Some((low, count)) = usize::try_from(part).ok().and_then(|part| lowest.get_mut(part)) {
            (*low, *count) = ((*low).min(*used), *count + 1);
        }
    }
    let are_seen = lowest.iter().all(|(_, count)| *count >= policy.floor_readings);
    if are_seen { lowest.into_iter().map(|(low, _)| low).collect() } else { Vec::new() }
}

/// In its second half no higher than in its first: the middle one of each.
fn is_level(floors: &[u64], policy: &Policy) -> bool {
    let (early, late) = floors.split_at(floors.len() / 2);
    let middle = crate::stats::lower_median;
    matches!((middle(early), middle(late)), (Some(early), Some(late)) if !policy.differs(late, early))
}

/// One subject's growth.
struct Growth<'a> {
    subject: Subject,
    first: u64,
    last: u64,
    records: Vec<&'a StepRecord>,
}

fn growing<'a>(case: &Case<'a>, keep: impl Fn(&Key) -> bool) -> Vec<Growth<'a>> {
    let mut per_subject: BTreeMap<Subject, Vec<&StepRecord>> = BTreeMap::new();
    for (_, row) in case.steps.records().filter(|(key, row)| keep(key) && row.allocated.is_some()) {
        per_subject.entry(row.subject).or_default().push(row);
    }
    let grown = per_subject.into_iter().filter_map(|(subject, records)| {
        let values: Vec<u64> = records.iter().filter_map(|row| row.allocated).map(|b| b.0).collect();
        let (first, last) = (*values.first()?, *values.last()?);
        grows_steadily(&values, case.policy).then_some(Growth { subject, first, last, records })
    });
    grown.collect()
}

/// Hardly ever falls, grows in both halves, and by more than a drift. A start-up ramp that levels off is no leak, nor
/// are a few jumps to new plateaus.
fn grows_steadily(values: &[u64], policy: &Policy) -> bool {
    let (Some(first), Some(last), Some(middle)) = (values.first(), values.last(), values.get(values.len() / 2)) else {
        return false;
    };
    if values.len() < policy.growth_points {
        return false;
    }
    let grown = last.saturating_sub(*first);
    // A part of the usual rise at least: the noise on a level stretch between jumps goes up by chance too.
    let least = (grown / (values.len() as u64 - 1) / 4).max(1);
    let rises = values.windows(2).filter(|pair| matches!(pair, [a, b] if b.saturating_sub(*a) >= least)).count();
    let steady = rises as f64 >= (values.len() - 1) as f64 * policy.growth_steady;
    let early = middle.saturating_sub(*first);
    let late = last.saturating_sub(*middle);
    // Given back in the middle: kept for an epoch or so, and no leak of the run.
    let is_given_back = values.windows(2).any(|pair| matches!(pair, [a, b] if a.saturating_sub(*b) > grown / 2));
    let both_halves = early >= grown / 4 && late >= grown / 4;
    steady
        && !is_given_back
        && both_halves
        && grown >= policy.notice.0
        && grown as f64 >= *first as f64 * policy.growth_share
}

fn told(case: &Case, growing: &[Growth], label: CauseLabel, alike: &[CauseLabel], when: &str, ledger: &mut Ledger) {
    let Some(most) = growing.iter().max_by_key(|g| g.last.saturating_sub(g.first)) else { return };
    let refs = case.step_refs(most.records.iter().copied());
    let grown = most.last.saturating_sub(most.first);
    let increments = u64::try_from(most.records.len().saturating_sub(1)).unwrap_or(1).max(1);
    let subjects: Vec<Subject> = growing.iter().map(|g| g.subject).collect();
    let all = growing.len() == case.steps.subjects.len();
    let kind = if most.subject.rank().is_some() { "ranks" } else { "GPUs" };
    let who = if all { words::all_of(subjects.len(), kind) } else { words::subjects(&subjects) };
    let (who, on) = match subjects.as_slice() {
        [only] => (only.to_string(), String::new()),
        _ => (who, format!(", on {}", most.subject)),
    };
    let text = format!(
        "Allocated memory of {who} grows in {when}{on} from {} to {} over {} records, {} each.",
        Bytes(most.first),
        Bytes(most.last),
        most.records.len(),
        Bytes(grown / increments)
    );
    ledger.signal(&[label], weight::STRONG, &text, &refs);
    ledger.signal(alike, weight::FAIR, &text, &refs);
    let scope = if all {
        "All ranks grow: the code that all run keeps tensors.".to_owned()
    } else {
        format!(
            "Only {} of {} grow: code that only these run keeps tensors.",
            words::subjects(&subjects),
            case.steps.subjects.len()
        )
    };
    ledger.signal(&[label], weight::FAINT, scope, &[]);
    if case.input.follows(case.policy) {
        ledger.caveat(label, "Longer batches towards the end raise memory in steps, not with every record.");
    }
    let ranks: Vec<u32> = subjects.iter().filter_map(|s| s.rank()).collect();
    ledger.ranks(&[label], &ranks);
    ledger.mechanism(
        &[label],
        &Mechanism {
            because: format!("memory grows with every record of {when}"),
            alone: text.clone(),
            explained: None,
        },
    );
    let item = label.item();
    ledger.status(item, ItemStatus::Fail);
    ledger.claim(Claim { item, label: Some(label), severity: Severity::Critical, confidence: 0.9, text, ranks, refs });
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::MIB;

    #[test]
    fn ramps_and_noise_are_no_leaks() {
        let policy = Policy::default();
        let leak: Vec<u64> = (0..10).map(|n| (2000 + 300 * n) * MIB).collect();
        assert!(grows_steadily(&leak, &policy));
        let ramp = [5000, 13000, 13001, 13002, 13003, 13004, 13005, 13006, 13007].map(|n| n * MIB);
        assert!(!grows_steadily(&ramp, &policy));
        let noise: Vec<u64> = (0..10).map(|n| (2000 + (n % 2) * 500) * MIB).collect();
        assert!(!grows_steadily(&noise, &policy));
        assert!(!grows_steadily(&leak[..4], &policy));
        let waves: Vec<(i64, u64)> = (0..80).map(|n: i64| (n, (4096 + n.unsigned_abs() % 4 * 2000) * MIB)).collect();
        let low = floors(&waves, &policy);
        assert!(is_level(&low, &policy) && !grows_steadily(&low, &policy));
        let lifted: Vec<(i64, u64)> = waves.iter().map(|(n, used)| (*n, used + n.unsigned_abs() * 40 * MIB)).collect();
        let low = floors(&lifted, &policy);
        assert!(grows_steadily(&low, &policy) && !is_level(&low, &policy));
        assert!(floors(&waves[..12], &policy).is_empty(), "too few to tell");
        let saw: Vec<u64> = (0..60).map(|n| (4096 + n % 20 * 200) * MIB).collect();
        assert!(!grows_steadily(&saw, &policy));
    }
}
