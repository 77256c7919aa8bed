//! How far apart the ranks or cards are: which figures can be compared, the one that tells most, and the verdict.
//!
//! A rank or card without a figure is left out and named; it is never taken for zero.

use crate::case::Case;
use crate::policy::Policy;
use crate::stats::{lower_median, mean};
use crate::steps::{CrossSection, Key, is_training};
use crate::tables::{Gpu, by_capacity};
use crate::words;
use rankscope_model::{
    Bytes, Imbalance, OomEvent, OpensAt, Phase, Provenance, Quantity, SnapshotDevice, StepRecord, Subject, UnixMicros,
    Verdict,
};
use std::collections::{BTreeMap, BTreeSet};

/// Figures that may be held side by side: same quantity, same kind of subject, same kind of card.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Comparison {
    /// What is compared.
    pub quantity: Quantity,
    /// One value per subject, in subject order.
    pub values: CrossSection,
    /// Capacity per subject, where known.
    pub capacities: BTreeMap<Subject, u64>,
    /// Subjects of the same kind that have no figure.
    pub left_out: Vec<Subject>,
    /// Where the figures come from.
    pub source: Source,
}

/// Where compared figures come from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    /// Device tables (positions in [`Case::tables`]); with several, the largest value per card.
    Tables(Vec<usize>),
    /// Device tables of several nodes, the largest value of the card of each rank.
    Nodes,
    /// Largest value per rank over the training records, or over all records.
    Steps,
    /// One position of the step records.
    Step(Key),
    /// Snapshots, one per rank.
    Snapshots,
    /// Memory traces of profilers, one per rank.
    Traces,
    /// Out-of-memory messages of several ranks.
    Ooms,
}

impl Source {
    /// Step lines, over the run or at one position.
    pub fn is_steps(&self) -> bool {
        matches!(self, Self::Steps | Self::Step(_))
    }
}

/// The figures of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spread {
    /// Largest value.
    pub max: u64,
    /// Lower median.
    pub median: u64,
    /// Mean.
    pub mean: u64,
    /// Smallest value.
    pub min: u64,
    /// Subjects above the others, heaviest first; empty when nobody stands out.
    pub heaviest: Vec<Subject>,
    /// Most are equal and a few are lower; `heaviest` then holds the many.
    pub is_low_outlier: bool,
}

impl Spread {
    /// Median, mean and who stands out of some figures; `None` for fewer than two.
    pub fn of(figures: &[(Subject, u64)], policy: &Policy) -> Option<Self> {
        let values: Vec<u64> = figures.iter().map(|(_, v)| *v).collect();
        if values.len() < 2 {
            return None;
        }
        let (max, min) = (*values.iter().max()?, *values.iter().min()?);
        let (median, mean) = (lower_median(&values)?, mean(&values)?);
        let is_high = policy.differs(max, median);
        let is_low_outlier = !is_high && policy.differs(median, min);
        let mut standing_out: Vec<(Subject, u64)> = if is_high {
            // Half the gap: of a smooth spread only the upper end stands out, not the whole upper half.
            let line = median.saturating_add(max.saturating_sub(median) / 2);
            figures.iter().filter(|(_, v)| *v > line).copied().collect()
        } else if is_low_outlier {
            let line = min.saturating_add(median.saturating_sub(min) / 2);
            figures.iter().filter(|(_, v)| *v > line).copied().collect()
        } else {
            Vec::new()
        };
        standing_out.sort_by_key(|(subject, v)| (std::cmp::Reverse(*v), *subject));
        let heaviest = standing_out.into_iter().map(|(subject, _)| subject).collect();
        Some(Self { max, median, mean, min, heaviest, is_low_outlier })
    }

    /// Largest minus median.
    pub fn gap(&self) -> u64 {
        if self.is_low_outlier { self.max.saturating_sub(self.min) } else { self.max.saturating_sub(self.median) }
    }

    /// Somebody stands out.
    pub fn stands_out(&self) -> bool {
        !self.heaviest.is_empty()
    }

    /// Largest as a share above the median.
    pub fn above_median(&self) -> f64 {
        if self.median == 0 { f64::INFINITY } else { self.max as f64 / self.median as f64 - 1.0 }
    }
}

impl Comparison {
    /// Median, mean and who stands out.
    pub fn spread(&self, policy: &Policy) -> Option<Spread> {
        Spread::of(&self.values, policy)
    }

    /// The subject with the largest value; the first of equals.
    pub fn heaviest(&self) -> Option<Subject> {
        self.values.iter().rev().max_by_key(|(_, v)| *v).map(|(subject, _)| *subject)
    }

    /// Value of one subject.
    pub fn value(&self, subject: Subject) -> Option<u64> {
        self.values.iter().find(|(s, _)| *s == subject).map(|(_, v)| *v)
    }

    /// Every compared subject is nearly full; `None` when a capacity is not known.
    pub fn all_full(&self, policy: &Policy) -> Option<bool> {
        let mut all = true;
        for (subject, value) in &self.values {
            let capacity = *self.capacities.get(subject)?;
            all &= *value as f64 >= capacity as f64 * policy.full_share;
        }
        Some(all && !self.values.is_empty())
    }
}

/// Every comparison that the evidence allows, most telling kinds first.
pub(crate) fn comparisons(case: &Case) -> Vec<Comparison> {
    let mut found = from_steps(case);
    found.extend(crate::nodes::comparisons(case));
    found.extend(from_tables(case));
    found.extend(from_snapshots(case));
    found.extend(crate::traces::comparisons(case));
    found.extend(from_ooms(case));
    found
}

/// The comparison to report: one in which somebody stands out, if there is one. Steps are preferred to tables when
/// they show at least half of the widest gap, because they also say when it opens.
pub(crate) fn choose(case: &Case, all: &[Comparison]) -> Option<(Comparison, Spread)> {
    let measured: Vec<(&Comparison, Spread)> =
        all.iter().filter_map(|c| c.spread(case.policy).map(|spread| (c, spread))).collect();
    let widest = measured.iter().filter(|(_, s)| s.stands_out()).map(|(_, s)| s.gap()).max();
    let chosen = if let Some(widest) = widest {
        let at_least = |least: u64, heavy: bool| {
            measured.iter().find(|(_, s)| s.stands_out() && s.gap() >= least && !(heavy && s.is_low_outlier))
        };
        // A heavy rank is what runs out of memory: one light rank is reported only where its gap is far wider.
        at_least(widest / 2, true).or_else(|| at_least(widest / 4, true)).or_else(|| at_least(widest / 2, false))
    } else {
        // Nobody stands out: the comparison of the most subjects, those with a capacity first since they show pressure.
        let most = measured.iter().map(|(c, _)| c.values.len()).max()?;
        let fullest = measured.iter().find(|(c, _)| c.values.len() == most && !c.capacities.is_empty());
        fullest.or_else(|| measured.iter().find(|(c, _)| c.values.len() == most))
    };
    chosen.map(|(comparison, spread)| ((*comparison).clone(), spread.clone()))
}

/// Quantities of step records, the ones that are closest to a cause first.
const STEP_QUANTITIES: [Quantity; 5] =
    [Quantity::PeakAllocated, Quantity::Allocated, Quantity::PeakReserved, Quantity::Reserved, Quantity::DeviceUsed];

fn from_steps(case: &Case) -> Vec<Comparison> {
    let view = &case.steps;
    let capacities = OomCapacities::new(&case.evidence.ooms);
    let make = |quantity, values: CrossSection, source| {
        let has: BTreeSet<Subject> = values.iter().map(|(s, _)| *s).collect();
        Comparison {
            quantity,
            left_out: view.subjects.iter().filter(|s| !has.contains(s)).copied().collect(),
            capacities: values.iter().filter_map(|(s, _)| Some((*s, capacities.of(*s)?))).collect(),
            values,
            source,
        }
    };
    let mut found = Vec::new();
    for quantity in STEP_QUANTITIES {
        let peaks = view.peaks(quantity, |_| true);
        if peaks.len() < 2 {
            continue;
        }
        let overall = make(quantity, peaks, Source::Steps);
        let has_heavy = overall.spread(case.policy).is_some_and(|s| s.stands_out() && !s.is_low_outlier);
        found.push(overall);
        if has_heavy {
            continue;
        }
        // Ranks may take turns: near each other over the run, far apart at one step. Only steps of all ranks count.
        let worst = view
            .rows
            .keys()
            .map(|key| (key, view.at(key, quantity)))
            .filter(|(_, values)| values.len() == view.subjects.len())
            .map(|(key, values)| make(quantity, values, Source::Step(*key)))
            .filter_map(|c| c.spread(case.policy).filter(Spread::stands_out).map(|s| (c, s.gap())))
            .max_by_key(|(_, gap)| *gap);
        found.extend(worst.map(|(comparison, _)| comparison));
    }
    found
}

fn from_tables(case: &Case) -> Vec<Comparison> {
    let mut found = Vec::new();
    for series in &case.table_series {
        let Some(focus) = case.focus_of(series) else { continue };
        let view = focus.1;
        let in_use = view.in_use(case.policy);
        let make = |gpus: &[&Gpu]| {
            let mut values = CrossSection::new();
            let mut capacities = BTreeMap::new();
            let mut left_out = Vec::new();
            for gpu in gpus {
                let peak = series.iter().filter_map(|index| case.use_of(*index, gpu.subject)).max();
                match peak {
                    Some(peak) => values.push((gpu.subject, peak)),
                    None => left_out.push(gpu.subject),
                }
                if let Some(total) = gpu.total {
                    capacities.insert(gpu.subject, total);
                }
            }
            // A card of which no reading tells the memory is not at rest: nobody knows.
            let is_unknown = |gpu: &&Gpu| series.iter().all(|index| case.use_of(*index, gpu.subject).is_none());
            let unknown = view.gpus.iter().filter(is_unknown).map(|gpu| gpu.subject);
            left_out.extend(unknown.filter(|subject| !gpus.iter().any(|gpu| gpu.subject == *subject)));
            left_out.sort_unstable();
            Comparison {
                quantity: Quantity::DeviceUsed,
                values,
                capacities,
                left_out,
                source: Source::Tables(series.clone()),
            }
        };
        if in_use.len() >= 2 {
            found.extend(by_capacity(&in_use, case.policy).iter().filter(|group| group.len() >= 2).map(|g| make(g)));
        } else if let Some(only) = in_use.first()
            && view.lists_processes()
            && view.residents(only.subject, case.policy).len() >= 2
        {
            // Several processes share the only card in use: hold it against the rest, which they might have used.
            let all: Vec<&Gpu> = view.gpus.iter().collect();
            let groups = by_capacity(&all, case.policy);
            let has_only = |group: &&Vec<&Gpu>| group.len() >= 2 && group.iter().any(|g| g.subject == only.subject);
            found.extend(groups.iter().find(has_only).map(|group| make(group)));
        }
        // Cards on which nobody is at home should be equally empty.
        let mut others: Vec<&Gpu> =
            view.gpus.iter().filter(|g| !in_use.iter().any(|u| u.subject == g.subject)).collect();
        others.retain(|gpu| view.lists_processes() && gpu.used.is_some());
        let is_visited = others.iter().any(|gpu| !view.visitors(gpu.subject, case.policy).is_empty());
        if is_visited && in_use.len() >= 2 {
            found.extend(by_capacity(&others, case.policy).iter().filter(|group| group.len() >= 2).map(|g| make(g)));
        }
    }
    found
}

/// Devices of snapshots whose names say no rank: one process each where no device comes twice, else not to be told
/// apart. Devices on which next to nothing is reserved are in no use.
fn by_device<'a>(case: &Case<'a>) -> Option<BTreeMap<Subject, &'a SnapshotDevice>> {
    let mut found = BTreeMap::new();
    for device in case.evidence.snapshots.iter().flat_map(|snapshot| &snapshot.devices) {
        if device.reserved >= case.policy.idle && found.insert(Subject::Device(device.device), device).is_some() {
            return None;
        }
    }
    Some(found)
}

/// Several snapshots of one device index, none of which says its rank: what to do about it.
pub(crate) fn unnamed_snapshots(case: &Case) -> Option<String> {
    let snapshots = &case.evidence.snapshots;
    let is_nameless = snapshots.iter().all(|snapshot| snapshot.rank.is_none());
    (snapshots.len() >= 2 && is_nameless && by_device(case).is_none()).then(|| {
        format!(
            "{} snapshots are of the same device index and their names say no rank, so they cannot be held side by \
             side: name them snapshot_rank0.pickle, snapshot_rank1.pickle and so on.",
            words::capital(&words::count(snapshots.len()))
        )
    })
}

fn from_snapshots(case: &Case) -> Vec<Comparison> {
    let of = |quantity: Quantity, device: &SnapshotDevice| {
        if quantity == Quantity::Allocated { device.allocated.0 } else { device.reserved.0 }
    };
    let has_ranks = case.evidence.snapshots.iter().any(|snapshot| snapshot.rank.is_some());
    let mut found = Vec::new();
    for quantity in [Quantity::Allocated, Quantity::Reserved] {
        let mut values: BTreeMap<Subject, u64> = BTreeMap::new();
        for snapshot in &case.evidence.snapshots {
            let Some(rank) = snapshot.rank else { continue };
            let largest = snapshot.devices.iter().map(|device| of(quantity, device)).max();
            if let Some(bytes) = largest {
                values.entry(Subject::Rank(rank)).and_modify(|old| *old = (*old).max(bytes)).or_insert(bytes);
            }
        }
        if !has_ranks {
            let devices = by_device(case).unwrap_or_default();
            values.extend(devices.into_iter().map(|(subject, device)| (subject, of(quantity, device))));
        }
        if values.len() >= 2 {
            found.push(Comparison {
                quantity,
                values: values.into_iter().collect(),
                capacities: BTreeMap::new(),
                left_out: Vec::new(),
                source: Source::Snapshots,
            });
        }
    }
    found
}

/// Ranks that ran out of memory, side by side. They say nothing of the ranks that did not.
fn from_ooms(case: &Case) -> Vec<Comparison> {
    let mut values: BTreeMap<Subject, u64> = BTreeMap::new();
    let mut capacities = BTreeMap::new();
    for oom in case.evidence.ooms.iter().filter(|oom| !oom.host_memory) {
        let Some(rank) = oom.rank else { continue };
        let Some(used) = oom.this_process else { continue };
        values.entry(Subject::Rank(rank)).and_modify(|old| *old = (*old).max(used.0)).or_insert(used.0);
        if let Some(total) = oom.total.filter(|t| t.0 > 0) {
            capacities.insert(Subject::Rank(rank), total.0);
        }
    }
    if values.len() < 2 {
        return Vec::new();
    }
    let known: BTreeSet<Subject> = case.steps.subjects.iter().copied().filter(|s| s.rank().is_some()).collect();
    vec![Comparison {
        quantity: Quantity::ProcessUsed,
        left_out: known.into_iter().filter(|s| !values.contains_key(s)).collect(),
        values: values.into_iter().collect(),
        capacities,
        source: Source::Ooms,
    }]
}

/// Capacities as out-of-memory messages tell them.
struct OomCapacities {
    by_rank: BTreeMap<Subject, u64>,
    /// The one capacity that all messages name: the cards of one job are then taken to be alike.
    common: Option<u64>,
}

impl OomCapacities {
    fn new(ooms: &[OomEvent]) -> Self {
        let totals = |oom: &OomEvent| oom.total.map(|t| t.0).filter(|t| *t > 0 && !oom.host_memory);
        let distinct: BTreeSet<u64> = ooms.iter().filter_map(totals).collect();
        Self {
            by_rank: ooms.iter().filter_map(|oom| Some((Subject::Rank(oom.rank?), totals(oom)?))).collect(),
            common: if distinct.len() == 1 { distinct.first().copied() } else { None },
        }
    }

    fn of(&self, subject: Subject) -> Option<u64> {
        self.by_rank.get(&subject).copied().or(self.common)
    }
}

/// Everyone full, or one card full?
pub(crate) fn verdict(case: &Case) -> Verdict {
    let Some((comparison, spread)) = &case.main else { return Verdict::Inconclusive };
    if spread.stands_out() {
        let is_one_job = is_known_to_be_one_job(case, comparison, spread);
        return if is_one_job { Verdict::Imbalance } else { Verdict::Inconclusive };
    }
    // Messages of the ranks that failed are no view of the whole job unless every known rank is among them.
    if comparison.source == Source::Ooms && (case.steps.subjects.is_empty() || !comparison.left_out.is_empty()) {
        return Verdict::Inconclusive;
    }
    match comparison.all_full(case.policy) {
        Some(true) => Verdict::UniformPressure,
        // Equal and not full, or not known how full, and yet memory ran out: at a moment that was not seen.
        Some(false) | None if case.ran_out_of_memory() => Verdict::Inconclusive,
        Some(false) | None => Verdict::Balanced,
    }
}

/// Cards in a table that lists no process may belong to several jobs. That at least two others are equal says that they
/// do the same work, and that the heavy one should.
pub(crate) fn is_known_to_be_one_job(case: &Case, comparison: &Comparison, spread: &Spread) -> bool {
    let Source::Tables(series) = &comparison.source else { return true };
    if case.focus_of(series).is_some_and(|(_, view)| view.lists_processes()) {
        return true;
    }
    let others: Vec<u64> =
        comparison.values.iter().filter(|(s, _)| !spread.heaviest.contains(s)).map(|(_, v)| *v).collect();
    match (others.iter().min(), others.iter().max()) {
        (Some(min), Some(max)) => others.len() >= 2 && !case.policy.differs(*max, *min) && !spread.is_low_outlier,
        _ => false,
    }
}

/// The public figures.
pub(crate) fn report(case: &Case, explained: Option<u64>, by_design: bool) -> Option<Imbalance> {
    let (comparison, spread) = case.main.as_ref()?;
    let ratio = if spread.mean == 0 { 0.0 } else { (spread.max as f64 / spread.mean as f64 - 1.0).max(0.0) };
    // Six decimals: more than the evidence has, and the same number after a trip through JSON.
    let ratio = (ratio * 1e6).round() / 1e6;
    let top = spread.heaviest.first().copied().or_else(|| comparison.heaviest());
    Some(Imbalance {
        quantity: comparison.quantity,
        ratio,
        max_bytes: Bytes(spread.max),
        median_bytes: Bytes(spread.median),
        mean_bytes: Bytes(spread.mean),
        heaviest: spread.heaviest.clone(),
        compared: u32::try_from(comparison.values.len()).unwrap_or(u32::MAX),
        capacity_bytes: top.and_then(|s| comparison.capacities.get(&s)).map(|c| Bytes(*c)),
        opens_at: if spread.stands_out() { opens_at(case, comparison, spread) } else { None },
        at: single_moment(case, comparison).map(|key| at_step(case, &key)),
        explained_bytes: explained.filter(|_| spread.stands_out()).map(|b| Bytes(b.min(spread.gap()))),
        by_design,
    })
}

/// The position from which on the heaviest is above the others by more than noise.
fn opens_at(case: &Case, comparison: &Comparison, spread: &Spread) -> Option<OpensAt> {
    let heaviest = *spread.heaviest.first()?;
    if single_moment(case, comparison).is_some() {
        return None;
    }
    match &comparison.source {
        Source::Steps | Source::Step(_) => opens_at_step(case, comparison, &spread.heaviest, spread.is_low_outlier),
        Source::Tables(series) => opens_at_table(case, series, comparison, heaviest, spread.is_low_outlier),
        Source::Nodes => opens_at_moment(case, comparison, heaviest, spread.is_low_outlier),
        Source::Snapshots | Source::Traces | Source::Ooms => None,
    }
}

/// The one step that figures of step records are of. It carries no more than itself: no peak over the record, and
/// nothing that opens there.
pub(crate) fn single_moment(case: &Case, comparison: &Comparison) -> Option<Key> {
    match comparison.source {
        Source::Step(key) => Some(key),
        Source::Steps => {
            let has_figure = |rows: &[&StepRecord]| rows.iter().any(|row| row.bytes(comparison.quantity).is_some());
            let mut keys = case.steps.rows.iter().filter(|(_, rows)| has_figure(rows)).map(|(key, _)| *key);
            let first = keys.next()?;
            keys.next().is_none().then_some(first)
        }
        _ => None,
    }
}

/// `at step 3`, `at step 3 of pass 2 (eval)`, `at record 5`.
pub(crate) fn at_step(case: &Case, key: &Key) -> OpensAt {
    let phase = phase_beside(key);
    OpensAt {
        step: case.steps.has_steps.then_some(key.step),
        phase: key.phase,
        text: format!("at {}{phase}", place_of(case, key)),
    }
}

fn place_of(case: &Case, key: &Key) -> String {
    match (case.steps.has_steps, key.pass) {
        (true, 0) => format!("step {}", key.step),
        (true, pass) => format!("step {} of pass {}", key.step, u64::from(pass) + 1),
        (false, _) => format!("record {}", key.step.saturating_add(1)),
    }
}

/// ` (eval)`; nothing for training, which is the ordinary case.
fn phase_beside(key: &Key) -> String {
    key.phase.filter(|_| !is_training(key)).map_or_else(String::new, |phase| format!(" ({})", phase.word()))
}

/// The first position from which on one of `heaviest` stays above the others. Compared are peaks, so what counts at a
/// position is the largest value of each so far: a rank that is ahead for one step and then overtaken has not opened the
/// gap. `is_low`: the others are the one that is lower, instead of the median.
pub(crate) fn opening<'s>(
    policy: &Policy,
    sections: impl Iterator<Item = &'s [(Subject, u64)]>,
    heaviest: &[Subject],
    is_low: bool,
) -> Option<usize> {
    let mut so_far: BTreeMap<Subject, u64> = BTreeMap::new();
    let mut opened = vec![None; heaviest.len()];
    for (at, section) in sections.enumerate() {
        for (subject, value) in section {
            so_far.entry(*subject).and_modify(|old| *old = (*old).max(*value)).or_insert(*value);
        }
        let values: Vec<u64> = so_far.values().copied().collect();
        let base = if is_low { values.iter().min().copied() } else { lower_median(&values) };
        for (heavy, opened) in heaviest.iter().zip(&mut opened) {
            let is_apart = so_far.get(heavy).zip(base).is_some_and(|(own, base)| policy.differs(*own, base));
            *opened = if is_apart { opened.or(Some(at)) } else { None };
        }
    }
    opened.into_iter().flatten().min()
}

fn opens_at_step(case: &Case, comparison: &Comparison, heaviest: &[Subject], is_low: bool) -> Option<OpensAt> {
    let view = &case.steps;
    let (keys, sections): (Vec<&Key>, Vec<CrossSection>) = view
        .rows
        .keys()
        .map(|key| (key, view.at(key, comparison.quantity)))
        .filter(|(_, section)| !section.is_empty())
        .unzip();
    let key = **keys.get(opening(case.policy, sections.iter().map(Vec::as_slice), heaviest, is_low)?)?;
    let is_first = keys.first().is_some_and(|first| **first == key);
    let place = place_of(case, &key);
    let text = match (key.phase, is_first) {
        (Some(Phase::Init), _) => "before the first step".to_owned(),
        (phase, true) => format!("from the first record on ({place}{})", phase_word(phase)),
        (_, false) => format!("at {place}{}", phase_beside(&key)),
    };
    Some(OpensAt { step: case.steps.has_steps.then_some(key.step), phase: key.phase, text })
}

fn phase_word(phase: Option<Phase>) -> String {
    phase.map(|p| format!(", {}", p.word())).unwrap_or_default()
}

fn opens_at_table(
    case: &Case,
    series: &[usize],
    comparison: &Comparison,
    heaviest: Subject,
    is_low: bool,
) -> Option<OpensAt> {
    if series.len() < 2 {
        return None;
    }
    let compared: BTreeSet<Subject> = comparison.values.iter().map(|(s, _)| *s).collect();
    let used = |index: &usize| -> CrossSection {
        let of_card = |card: &Subject| Some((*card, case.use_of(*index, *card)?));
        compared.iter().filter_map(of_card).collect()
    };
    let sections: Vec<CrossSection> = series.iter().map(used).collect();
    let position = opening(case.policy, sections.iter().map(Vec::as_slice), &[heaviest], is_low)?;
    let name = |at: usize| {
        series
            .get(at)
            .and_then(|i| case.tables.get(*i))
            .map(|view| table_name(case, &view.table.at, view.table.time_text.as_deref()))
    };
    let text = match position.checked_sub(1).and_then(&name) {
        Some(before) => between(&before, &name(position)?),
        None => format!("in the first table ({})", name(position)?),
    };
    Some(OpensAt { step: None, phase: None, text })
}

/// Of a job that is watched: when the heaviest was above the others last, and when it was read last.
pub(crate) fn last_apart(
    case: &Case,
    comparison: &Comparison,
    spread: &Spread,
) -> Option<(UnixMicros, UnixMicros, UnixMicros)> {
    let heaviest = *spread.heaviest.first()?;
    let sections: Vec<(UnixMicros, CrossSection)> = match &comparison.source {
        Source::Tables(series) if crate::gone::is_watched(case.evidence, &case.tables, series) => {
            let compared = || comparison.values.iter().map(|(subject, _)| *subject);
            let section = |index: &usize| {
                let used = compared().filter_map(|card| Some((card, case.use_of(*index, card)?))).collect();
                Some((case.tables.get(*index)?.table.time?, used))
            };
            series.iter().filter_map(section).collect()
        }
        Source::Nodes => {
            let moments = crate::nodes::moments(case, |index, card| case.use_of(index, card))?;
            moments.into_iter().map(|(time, _, used)| (UnixMicros(time), used)).collect()
        }
        _ => return None,
    };
    // Nodes are read at moments of their own: of each card counts what was read last.
    let mut now: BTreeMap<Subject, u64> = BTreeMap::new();
    let mut last = None;
    for (time, section) in &sections {
        now.extend(section.iter().copied());
        let values: Vec<u64> = now.values().copied().collect();
        let base = if spread.is_low_outlier { values.iter().min().copied() } else { lower_median(&values) };
        let is_apart = now.get(&heaviest).zip(base).is_some_and(|(own, base)| case.policy.differs(*own, base));
        if is_apart && values.len() >= 2 {
            last = Some(*time);
        }
    }
    let last = last?;
    let after = sections.iter().map(|(time, _)| *time).find(|time| *time > last).unwrap_or(last);
    Some((last, after, sections.last()?.0))
}

/// `between 17:42:05 and 17:42:06`; `at 17:42:06` where the clock shows no difference.
pub(crate) fn between(before: &str, then: &str) -> String {
    if before == then { format!("at {then}") } else { format!("between {before} and {then}") }
}

fn opens_at_moment(case: &Case, comparison: &Comparison, heaviest: Subject, is_low: bool) -> Option<OpensAt> {
    let moments = crate::nodes::moments(case, |index, card| case.use_of(index, card))?;
    // What counts is the largest so far: before each rank was read once, nobody is ahead.
    let mut missing: BTreeSet<Subject> = comparison.values.iter().map(|(subject, _)| *subject).collect();
    let all_read = moments.iter().position(|(.., section)| {
        missing.retain(|subject| !section.iter().any(|(read, _)| read == subject));
        missing.is_empty()
    })?;
    let (begin, later) = moments.split_at_checked(all_read.checked_add(1)?)?;
    let first: CrossSection = begin.iter().flat_map(|(.., section)| section.clone()).collect();
    let sections = std::iter::once(first.as_slice()).chain(later.iter().map(|(.., section)| section.as_slice()));
    let position = opening(case.policy, sections, &[heaviest], is_low)?.checked_add(all_read)?;
    let name = |at: usize| {
        moments.get(at).map(|(_, view, _)| table_name(case, &view.table.at, view.table.time_text.as_deref()))
    };
    let text = if position == all_read {
        format!("in the first reading of all ({})", name(position)?)
    } else {
        format!("at {}", name(position)?)
    };
    Some(OpensAt { step: None, phase: None, text })
}

/// `16:41:07` where a time is printed, else the file and line.
pub(crate) fn table_name(case: &Case, at: &Provenance, time_text: Option<&str>) -> String {
    let clock = time_text.and_then(|text| text.split_whitespace().find(|word| word.matches(':').count() == 2));
    match clock {
        Some(clock) => clock.to_owned(),
        None => crate::refs::refs(case.evidence, [at], 1)
            .first()
            .map_or_else(|| "the table".to_owned(), ToString::to_string),
    }
}

/// `GPU 0 and GPU 3 have no figure and are left out.`
pub(crate) fn left_out_text(comparison: &Comparison) -> Option<String> {
    let list = &comparison.left_out;
    if list.is_empty() {
        return None;
    }
    let (verb, are) = if list.len() == 1 { ("has", "is") } else { ("have", "are") };
    Some(format!(
        "{} {verb} no figure for {} and {are} left out of the comparison.",
        words::capital(&words::subjects(list)),
        comparison.quantity.title()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_readings_of_one_second_have_nothing_between_them() {
        assert_eq!(between("17:42:06", "17:42:06"), "at 17:42:06");
        assert_eq!(between("17:42:05", "17:42:06"), "between 17:42:05 and 17:42:06");
    }
}
