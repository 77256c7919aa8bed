//! The figures of two runs on common ground: which quantity, which phases, who stands out in each.

use super::Side;
use crate::imbalance::Spread;
use crate::policy::Policy;
use rankscope_model::{
    Bytes, ComparedInput, ComparedPhase, ComparedRow, Outcome, Phase, PhasePeaks, Quantity, RunFacts, SpreadFigures,
    Subject,
};
use std::collections::{BTreeMap, BTreeSet};

/// What the two runs share.
pub(super) struct Ground {
    /// The common quantity.
    pub quantity: Option<Quantity>,
    /// Every subject of either run.
    pub rows: Vec<ComparedRow>,
    /// Before, over all phases.
    pub base: Option<SpreadFigures>,
    /// After, over all phases.
    pub head: Option<SpreadFigures>,
    /// By phase.
    pub phases: Vec<ComparedPhase>,
    /// Batches.
    pub input: ComparedInput,
}

impl Ground {
    /// Finds it.
    pub fn new(base: Side, head: Side, policy: &Policy) -> Self {
        let (before, after) = (entries(base), entries(head));
        let quantity = common_quantity(base, &before, &after, policy);
        let input = input(&base.figures.facts, &head.figures.facts, policy);
        let Some(quantity) = quantity else {
            return Self { quantity: None, rows: Vec::new(), base: None, head: None, phases: Vec::new(), input };
        };
        let (base_all, head_all) = (over_phases(&before, quantity), over_phases(&after, quantity));
        let (base, head) = (figures(&base_all, policy), figures(&head_all, policy));
        Self {
            quantity: Some(quantity),
            rows: rows(&base_all, &head_all, base.as_ref(), head.as_ref()),
            phases: phases(&before, &after, quantity, policy),
            base,
            head,
            input,
        }
    }

    /// The run before was fed unevenly.
    pub fn input_was_uneven(&self, policy: &Policy) -> bool {
        self.input.base_ratio.is_some_and(|ratio| ratio > policy.even_tokens)
    }
}

/// The entries of a run. A report from before the facts were kept has only the peaks that its chart shows.
pub(super) fn entries(side: Side) -> Vec<PhasePeaks> {
    if !side.figures.facts.peaks.is_empty() {
        return side.figures.facts.peaks.clone();
    }
    let of_chart = side.figures.peaks.iter().map(|peaks| PhasePeaks {
        quantity: peaks.quantity,
        phase: None,
        moments: 1,
        peaks: peaks.bars.iter().map(|bar| (bar.subject, bar.peak)).collect(),
        widest: None,
    });
    of_chart.collect()
}

/// The quantity that the run before was judged by, if the run after has it for the same kind of subject; else one in
/// which the run before is uneven; else any that both have.
fn common_quantity(base: Side, before: &[PhasePeaks], after: &[PhasePeaks], policy: &Policy) -> Option<Quantity> {
    let judged = base.diagnosis.imbalance.as_ref().map(|imbalance| imbalance.quantity);
    let shared: Vec<&PhasePeaks> = before
        .iter()
        .filter(|entry| entry.peaks.len() >= 2)
        .filter(|entry| {
            after.iter().any(|other| {
                other.quantity == entry.quantity && other.peaks.len() >= 2 && kind(&other.peaks) == kind(&entry.peaks)
            })
        })
        .collect();
    let is_judged = shared.iter().find(|entry| Some(entry.quantity) == judged);
    let uneven = || shared.iter().find(|entry| figures(entry, policy).is_some_and(|figures| !figures.is_even()));
    is_judged.or_else(uneven).or_else(|| shared.first()).map(|entry| entry.quantity)
}

/// Whether the subjects are ranks, cards or slices.
pub(super) fn kind(values: &[(Subject, Bytes)]) -> Option<std::mem::Discriminant<Subject>> {
    values.first().map(|(subject, _)| std::mem::discriminant(subject))
}

/// One quantity over all phases: the largest peak of each subject, and the moment that is furthest apart.
fn over_phases(entries: &[PhasePeaks], quantity: Quantity) -> PhasePeaks {
    let mut peaks: BTreeMap<Subject, Bytes> = BTreeMap::new();
    let mut all = PhasePeaks { quantity, phase: None, moments: 0, peaks: Vec::new(), widest: None };
    for entry in entries.iter().filter(|entry| entry.quantity == quantity) {
        all.moments = all.moments.saturating_add(entry.moments);
        for (subject, bytes) in &entry.peaks {
            let peak = peaks.entry(*subject).or_default();
            *peak = (*peak).max(*bytes);
        }
        let width = |moment: &Option<rankscope_model::Moment>| {
            let bytes = moment.iter().flat_map(|moment| moment.values.iter().map(|(_, bytes)| bytes.0));
            bytes.clone().max().unwrap_or_default().saturating_sub(bytes.min().unwrap_or_default())
        };
        if width(&entry.widest) > width(&all.widest) {
            all.widest.clone_from(&entry.widest);
        }
    }
    all.peaks = peaks.into_iter().collect();
    all
}

/// How far apart the subjects are: over the run, or at one moment where they take turns.
pub(super) fn figures(entry: &PhasePeaks, policy: &Policy) -> Option<SpreadFigures> {
    let plain = |values: &[(Subject, Bytes)]| -> Vec<(Subject, u64)> {
        values.iter().map(|(subject, bytes)| (*subject, bytes.0)).collect()
    };
    let peaks = Spread::of(&plain(&entry.peaks), policy)?;
    let moment = entry.widest.as_ref().filter(|_| !peaks.stands_out());
    let turns = moment.and_then(|m| Spread::of(&plain(&m.values), policy)).filter(Spread::stands_out);
    let at_one_moment = turns.is_some();
    let spread = turns.unwrap_or(peaks);
    Some(SpreadFigures {
        max: Bytes(spread.max),
        median: Bytes(spread.median),
        min: Bytes(spread.min),
        gap: Bytes(spread.gap()),
        compared: u32::try_from(entry.peaks.len()).unwrap_or(u32::MAX),
        moments: entry.moments,
        heaviest: spread.heaviest,
        at_one_moment,
    })
}

fn rows(
    before: &PhasePeaks,
    after: &PhasePeaks,
    base: Option<&SpreadFigures>,
    head: Option<&SpreadFigures>,
) -> Vec<ComparedRow> {
    let value = |entry: &PhasePeaks, subject: Subject| {
        entry.peaks.binary_search_by_key(&subject, |(s, _)| *s).ok().and_then(|at| entry.peaks.get(at)).map(|(_, b)| *b)
    };
    let accused = |side: Option<&SpreadFigures>, subject: Subject| side.is_some_and(|s| s.heaviest.contains(&subject));
    let subjects: BTreeSet<Subject> = before.peaks.iter().chain(&after.peaks).map(|(subject, _)| *subject).collect();
    subjects
        .into_iter()
        .map(|subject| ComparedRow {
            subject,
            base: value(before, subject),
            head: value(after, subject),
            base_accused: accused(base, subject),
            head_accused: accused(head, subject),
        })
        .collect()
}

/// The entry for a phase. Logs that name no phase are of training.
fn in_phase(entries: &[PhasePeaks], quantity: Quantity, phase: Option<Phase>) -> Option<&PhasePeaks> {
    let exact = |phase: Option<Phase>| {
        entries.iter().find(|entry| entry.quantity == quantity && entry.phase == phase && entry.peaks.len() >= 2)
    };
    exact(phase).or_else(|| match phase {
        None => exact(Some(Phase::Train)),
        Some(Phase::Train) => exact(None),
        Some(_) => None,
    })
}

fn phases(before: &[PhasePeaks], after: &[PhasePeaks], quantity: Quantity, policy: &Policy) -> Vec<ComparedPhase> {
    let mut named: BTreeSet<Option<Phase>> =
        before.iter().chain(after).filter(|entry| entry.peaks.len() >= 2).map(|entry| entry.phase).collect();
    if named.contains(&Some(Phase::Train)) {
        named.remove(&None);
    }
    let mut found = Vec::new();
    for phase in named {
        // A phase may print another quantity than training does.
        let others = before.iter().filter(|entry| entry.phase == phase).map(|entry| entry.quantity);
        let candidates: Vec<Quantity> = std::iter::once(quantity).chain(others).collect();
        let has = |entries: &[PhasePeaks], quantity: Quantity| in_phase(entries, quantity, phase).is_some();
        let both = candidates.iter().copied().find(|q| has(before, *q) && has(after, *q));
        let either = || candidates.iter().copied().find(|q| has(before, *q) || has(after, *q));
        let Some(quantity) = both.or_else(either) else { continue };
        let side = |entries: &[PhasePeaks]| in_phase(entries, quantity, phase).and_then(|entry| figures(entry, policy));
        let (base, head) = (side(before), side(after));
        let outcome = base.as_ref().zip(head.as_ref()).map(|(base, head)| outcome_of(base, head, policy));
        found.push(ComparedPhase { phase, quantity, base, head, outcome });
    }
    found
}

/// One of the runs is uneven in this phase.
pub(super) fn is_telling(phase: &ComparedPhase) -> bool {
    [&phase.base, &phase.head].into_iter().flatten().any(|figures| !figures.is_even())
}

/// The answer of the figures alone: even now, smaller, or as it was. Both the bytes and their share of the median must
/// shrink: a smaller batch shrinks only the bytes.
pub(super) fn outcome_of(base: &SpreadFigures, head: &SpreadFigures, policy: &Policy) -> Outcome {
    if head.is_even() {
        return Outcome::Fixed;
    }
    if base.is_even() {
        return Outcome::NotFixed;
    }
    let share = |figures: &SpreadFigures| figures.gap.0 as f64 / figures.median.0.max(1) as f64;
    let bytes = head.gap.0 as f64 / base.gap.0.max(1) as f64;
    let relative = share(head) / share(base).max(f64::MIN_POSITIVE);
    if bytes.max(relative) < policy.remains_share { Outcome::Partly } else { Outcome::NotFixed }
}

fn input(base: &RunFacts, head: &RunFacts, policy: &Policy) -> ComparedInput {
    let ratio = |facts: &RunFacts| {
        let input = facts.input.as_ref().filter(|input| input.steps > 0)?;
        // Six decimals survive a trip through JSON.
        Some((input.worst_ratio() * 1e6).round() / 1e6)
    };
    let steps = |facts: &RunFacts| facts.input.as_ref().map_or(0, |input| input.steps);
    let head_ratio = ratio(head);
    ComparedInput {
        base_ratio: ratio(base),
        head_ratio,
        base_steps: steps(base),
        head_steps: steps(head),
        is_even_now: head_ratio.map(|ratio| ratio <= policy.even_tokens),
    }
}
