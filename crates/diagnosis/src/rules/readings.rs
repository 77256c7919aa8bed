//! What readings of the cards over time tell without any log of steps: a spike at the start that is given back, caches
//! that grow at other moments on other cards, a heavy card that changes. Shown under `memory_stats` and
//! `batch_divisibility`.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::policy::{Policy, weight};
use crate::readings::Readings;
use crate::stats::lower_median;
use crate::words;
use rankscope_model::{Bytes, CauseLabel, EvidenceRef, ItemStatus, Severity, Subject};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let Some(readings) = Readings::new(case, case.policy.growth_points) else { return };
    if let Some(spike) = spike(&readings, case.policy) {
        told_spike(case, &readings, &spike, ledger);
    } else if let Some(turns) = turns(&readings, case.policy) {
        told_turns(case, &readings, &turns, ledger);
    } else if let Some(stairs) = staircase(&readings, case.policy) {
        told_staircase(case, &readings, &stairs, ledger);
    }
}

/// At the readings of the cards, one or the other is far above the rest, and it is not the same one.
pub(crate) fn takes_turns(case: &Case) -> bool {
    let readings = Readings::new(case, case.policy.growth_points);
    readings.is_some_and(|all| spike(&all, case.policy).is_none() && turns(&all, case.policy).is_some())
}

fn refs(case: &Case, readings: &Readings) -> Vec<EvidenceRef> {
    case.refs(readings.places.iter().copied())
}

fn claim(ledger: &mut Ledger, label: CauseLabel, text: &str, refs: &[EvidenceRef]) {
    let item = label.item();
    ledger.status(item, ItemStatus::Suspect);
    ledger.claim(Claim {
        item,
        label: Some(label),
        severity: Severity::Warning,
        confidence: 0.9,
        text: text.to_owned(),
        ranks: vec![],
        refs: refs.to_vec(),
    });
}

fn mechanism(ledger: &mut Ledger, label: CauseLabel, because: &str, text: &str) {
    let mechanism = Mechanism { because: because.to_owned(), alone: text.to_owned(), explained: None };
    ledger.mechanism(&[label], &mechanism);
}

// ---- a spike that is given back ----

/// All cards peak near the start and then hold far less.
struct Spike {
    /// The highest peak.
    peak: u64,
    /// The highest level afterwards.
    settled: u64,
    /// Readings until the last card has given it back.
    until: usize,
}

/// A cache keeps what it once took. Memory that is taken and given back while the job goes on was a workspace, or
/// something released it on purpose.
fn spike(readings: &Readings, policy: &Policy) -> Option<Spike> {
    let mut found = Spike { peak: 0, settled: 0, until: 0 };
    for (_, values) in &readings.curves {
        let peak = *values.iter().max()?;
        // As long as less than a tenth is missing the card is still at its peak.
        let at_peak = |value: &u64| *value as f64 >= peak as f64 * (1.0 - policy.notice_share);
        let until = values.iter().rposition(at_peak)?.saturating_add(1);
        let after = values.get(until..)?;
        let (low, high) = (*after.iter().min()?, *after.iter().max()?);
        let is_early = until * 2 <= values.len();
        let is_given_back =
            peak.saturating_sub(high) >= policy.cached_min.0 && high as f64 <= peak as f64 * policy.spike_left;
        let is_steady = (high.saturating_sub(low)) as f64 <= high as f64 * policy.notice_share;
        if !(is_early && is_given_back && is_steady) {
            return None;
        }
        found = Spike { peak: found.peak.max(peak), settled: found.settled.max(high), until: found.until.max(until) };
    }
    Some(found)
}

fn told_spike(case: &Case, readings: &Readings, spike: &Spike, ledger: &mut Ledger) {
    let label = CauseLabel::CudnnWorkspace;
    let refs = refs(case, readings);
    let text = format!(
        "{} reach {} within the first {} and hold {} from then on: what was taken at the start is given back.",
        words::capital(&words::all_of(readings.curves.len(), "cards")),
        Bytes(spike.peak),
        words::counted(spike.until, "reading", "readings"),
        Bytes(spike.settled)
    );
    ledger.signal(&[label], weight::GOOD, &text, &refs);
    ledger.signal(
        &[CauseLabel::PerStepLeak, CauseLabel::AllocatorFragmentation],
        -weight::FAIR,
        "Memory falls after the start and stays low.",
        &refs,
    );
    ledger.caveat(
        label,
        "A validation before training, or a model that is loaded twice and released, leaves the same curve.",
    );
    mechanism(ledger, label, "the first iterations take workspaces that are given back", &text);
    claim(ledger, label, &text, &refs);
}

// ---- a heavy card that changes ----

/// Readings at which some card is far above the others, and how often each was it.
fn turns(readings: &Readings, policy: &Policy) -> Option<BTreeMap<Subject, usize>> {
    let mut heavy: BTreeMap<Subject, usize> = BTreeMap::new();
    for index in 0..readings.len() {
        let values = readings.at(index);
        let median = lower_median(&values.iter().map(|(_, value)| *value).collect::<Vec<_>>())?;
        let (subject, most) =
            values.into_iter().max_by_key(|(subject, value)| (*value, std::cmp::Reverse(*subject)))?;
        if most as f64 >= median as f64 * policy.far_above && policy.differs(most, median) {
            *heavy.entry(subject).or_default() += 1;
        }
    }
    let total: usize = heavy.values().sum();
    let most = heavy.values().max().copied()?;
    (heavy.len() >= 3 && most * 2 <= total).then_some(heavy)
}

fn told_turns(case: &Case, readings: &Readings, heavy: &BTreeMap<Subject, usize>, ledger: &mut Ledger) {
    let label = CauseLabel::VariableShapeBatches;
    let refs = refs(case, readings);
    let times: usize = heavy.values().sum();
    let text = format!(
        "At {times} of {} readings one card is far above the others, and it is not the same one: {} cards take turns.",
        readings.len(),
        words::count(heavy.len())
    );
    ledger.signal(&[label], weight::GOOD, &text, &refs);
    ledger.shows_over_time(label);
    ledger.signal(
        &[CauseLabel::CtxNoSetDevice, CauseLabel::Rank0Eval, CauseLabel::Rank0AuxBuffers],
        -weight::FAIR,
        "What one rank does alone, or what strays onto one card, stays on that card.",
        &refs,
    );
    ledger.caveat(label, "Readings have no batch shapes; the step lines of all ranks would show whether peaks follow.");
    mechanism(ledger, label, "batches differ in size", &text);
    ledger.collect(label.item(), &[label], crate::collect::step_line());
    claim(ledger, label, &text, &refs);
}

// ---- caches that grow at other moments ----

/// Jumps to a new plateau that few cards make at a time.
struct Stairs {
    lone: usize,
    cards: BTreeSet<Subject>,
}

/// Cards that begin alike and only ever grow, by jumps that come at other readings on other cards. Ranks that do the same
/// work on batches of one shape jump together; the cache of each keeps the largest batch that it has met.
fn staircase(readings: &Readings, policy: &Policy) -> Option<Stairs> {
    let first: Vec<u64> = readings.curves.iter().filter_map(|(_, values)| values.first().copied()).collect();
    let (least, most) = (*first.iter().min()?, *first.iter().max()?);
    if (most.saturating_sub(least)) as f64 > least as f64 * policy.begin_alike {
        return None;
    }
    let mut jumps: BTreeMap<usize, Vec<Subject>> = BTreeMap::new();
    for (subject, values) in &readings.curves {
        let last = *values.last()?;
        let mut still = 0;
        for (index, pair) in values.windows(2).enumerate() {
            let [before, after] = pair else { continue };
            if before.saturating_sub(*after) >= policy.notice.0 {
                return None;
            }
            let rises = after.saturating_sub(*before) >= policy.notice.0;
            still += usize::from(!rises);
            // Below half of what it will hold the card is still being loaded.
            if rises && *before as f64 >= last as f64 * policy.visit_share {
                jumps.entry(index).or_default().push(*subject);
            }
        }
        // Plateaus: growth at every other reading is a leak or a ramp.
        if still * 2 < values.len() {
            return None;
        }
    }
    let lone = jumps.values().filter(|who| who.len() * 2 <= readings.curves.len());
    let stairs = Stairs { lone: lone.clone().map(Vec::len).sum(), cards: lone.flatten().copied().collect() };
    (stairs.lone >= policy.lone_jumps && stairs.cards.len() >= 2).then_some(stairs)
}

fn told_staircase(case: &Case, readings: &Readings, stairs: &Stairs, ledger: &mut Ledger) {
    let label = CauseLabel::VariableShapeBatches;
    let refs = refs(case, readings);
    let text = format!(
        "The cards grow by jumps that come at different readings: {} on {}, each to a plateau that is kept.",
        words::counted(stairs.lone, "jump", "jumps"),
        words::subjects(&stairs.cards.iter().copied().collect::<Vec<_>>())
    );
    let gain = if stairs.cards.len() >= 3 { weight::GOOD } else { weight::FAIR };
    ledger.signal(&[label], gain, &text, &refs);
    ledger.shows_over_time(label);
    ledger.signal(&[CauseLabel::AllocatorFragmentation], weight::FAINT, &text, &refs);
    ledger.signal(
        &[CauseLabel::PerStepLeak],
        -weight::FAIR,
        "Memory stays on plateaus between the jumps; a leak grows all the time.",
        &refs,
    );
    ledger.caveat(label, "A card's use counts the cache; the step lines of all ranks would show whether peaks follow.");
    let text = format!("{text} Batches whose largest comes at another moment on each rank do that.");
    mechanism(ledger, label, "batches differ in size, and each rank's cache keeps the largest", &text);
    ledger.collect(label.item(), &[label], crate::collect::step_line());
    claim(ledger, label, &text, &refs);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{ArtifactId, MIB, Provenance};

    fn with<T>(curves: &[&[u64]], ask: impl Fn(&Readings) -> T) -> T {
        let places: Vec<Provenance> =
            (0..curves[0].len()).map(|line| Provenance::line(ArtifactId(0), line as u64 + 1, "x")).collect();
        let curve = |values: &&[u64]| values.iter().map(|mib| mib * MIB).collect();
        let curves = (0..).map(Subject::Device).zip(curves.iter().map(curve)).collect();
        ask(&Readings { curves, places: places.iter().collect() })
    }

    #[test]
    fn a_spike_is_early_large_and_given_back_on_all_cards() {
        let policy = Policy::default();
        let told = |curves: &[&[u64]]| with(curves, |readings| spike(readings, &policy).is_some());
        let own = [2000, 12000, 12000, 4600, 4600, 4610, 4600, 4600, 4600];
        assert!(told(&[&own, &own]));
        let one = [2000, 4600, 4600, 4600, 4600, 4610, 4600, 4600, 4600];
        assert!(!told(&[&own, &one]), "one card alone");
        let late = [2000, 4600, 4600, 4600, 4600, 4600, 12000, 12000, 4600];
        assert!(!told(&[&late, &late]), "an evaluation in the middle");
        let kept = [2000, 12000, 12000, 12000, 12000, 12000, 12000, 12000, 12000];
        assert!(!told(&[&kept, &kept]), "an ordinary cache");
        let ends = [2000, 12000, 12000, 4600, 4600, 4600, 12000, 12000, 4600];
        assert!(!told(&[&ends, &ends]), "phases that come again");
    }

    #[test]
    fn jumps_of_one_card_or_of_all_are_no_staircase() {
        let policy = Policy::default();
        let told = |curves: &[&[u64]]| with(curves, |readings| staircase(readings, &policy).is_some());
        let a = [5000, 5600, 5600, 5600, 6200, 6200, 6200, 6200, 6200, 6200];
        let b = [5000, 5000, 5500, 5500, 5500, 5500, 6300, 6300, 6300, 6300];
        let c = [5000, 5000, 5000, 5400, 5400, 5400, 5400, 5400, 6000, 6000];
        assert!(told(&[&a, &b, &c]));
        assert!(!told(&[&a, &a, &a]), "all at once");
        let flat = [5000; 10];
        assert!(!told(&[&a, &flat, &flat]), "one card alone");
        let leak: Vec<u64> = (0..10).map(|n| 5000 + 100 * n).collect();
        assert!(!told(&[&leak, &b, &c]), "one card leaks");
        let far = [1000, 1000, 1000, 1500, 1500, 1500, 1500, 2100, 2100, 2100];
        assert!(!told(&[&far, &b, &c]), "cards that begin apart are of several jobs");
    }

    #[test]
    fn turns_need_three_cards_far_above() {
        let policy = Policy::default();
        let told = |curves: &[&[u64]]| with(curves, |readings| turns(readings, &policy).is_some());
        let a = [5000, 9900, 5000, 5000, 5000, 5000, 9000, 5000];
        let b = [5000, 5000, 9900, 5000, 5000, 5000, 5000, 5000];
        let c = [5000, 5000, 5000, 5000, 9900, 5000, 5000, 5000];
        let flat = [5000; 8];
        assert!(told(&[&a, &b, &c, &flat]));
        assert!(!told(&[&a, &flat, &flat, &flat]), "always the same card");
        let jitter = [5000, 5600, 5000, 5000, 5000, 5000, 5600, 5000];
        let other = [5000, 5000, 5700, 5000, 5600, 5000, 5000, 5000];
        assert!(!told(&[&jitter, &other, &flat, &flat]), "a tenth is not far");
    }
}
