//! Item `rank_only_work`: no rank evaluates, gathers or saves alone on its GPU. Decided by the peaks per phase; a
//! surplus in one card's own process only hints at it.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::imbalance::{Comparison, Source, Spread};
use crate::policy::weight;
use crate::stats::lower_median;
use crate::steps::is_training;
use crate::words;
use rankscope_model::{Bytes, CauseLabel, Item, ItemStatus, OomEvent, Phase, Quantity, Severity, StepRecord, Subject};
use std::collections::BTreeMap;

const ITEM: Item = Item::RankOnlyWork;

/// Most telling first.
const QUANTITIES: [Quantity; 4] =
    [Quantity::PeakAllocated, Quantity::Allocated, Quantity::PeakReserved, Quantity::Reserved];

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let eval = phase(case, Phase::Eval, ledger);
    let save = phase(case, Phase::Save, ledger);
    if eval == Seen::Even && save == Seen::Even {
        ledger.status(ITEM, ItemStatus::Pass);
    }
    own_surplus(case, ledger);
    beyond_the_log(case, ledger);
}

/// What the records of a phase show.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Even,
    Uneven,
}

/// The causes that a phase speaks for: the plain one, and those that look alike.
fn labels(phase: Phase) -> (CauseLabel, &'static [CauseLabel]) {
    match phase {
        Phase::Save => (CauseLabel::CkptStateGather, &[CauseLabel::Rank0LoggingOrTrace]),
        _ => (CauseLabel::Rank0Eval, &[CauseLabel::MetricGatherOnGpu, CauseLabel::Rank0LoggingOrTrace]),
    }
}

fn phase(case: &Case, phase: Phase, ledger: &mut Ledger) -> Seen {
    let mut seen = Seen::Nothing;
    for quantity in QUANTITIES {
        let values = case.steps.peaks(quantity, |key| key.phase == Some(phase));
        let training = case.steps.peaks(quantity, is_training);
        let in_training = |subject: Subject| training.iter().find(|(s, _)| *s == subject).map(|(_, v)| *v);
        if values.is_empty() {
            continue;
        }
        let comparison = |values| Comparison {
            quantity,
            values,
            capacities: BTreeMap::new(),
            left_out: vec![],
            source: Source::Steps,
        };
        let spread = comparison(values.clone()).spread(case.policy);
        let training_spread = comparison(training.clone()).spread(case.policy);
        match (values.as_slice(), spread) {
            // One rank alone speaks of the phase: hold it against its own training peak.
            ([(subject, peak)], _) if training.len() >= 2 => {
                let Some(own) = in_training(*subject).filter(|own| case.policy.differs(*peak, *own)) else { continue };
                let text = format!(
                    "{} alone reports {}, and its {} there is {} against {} in training.",
                    words::capital(&subject.to_string()),
                    phase.word(),
                    quantity.title(),
                    Bytes(*peak),
                    Bytes(own)
                );
                told(case, phase, *subject, weight::GOOD, text, Some(peak.saturating_sub(own)), ledger);
                return Seen::Uneven;
            }
            (_, Some(spread)) if spread.stands_out() && !spread.is_low_outlier => {
                let Some(subject) = spread.heaviest.first().copied() else { continue };
                // A rank that is as far ahead in training does not owe it to this phase.
                if training_spread.as_ref().is_some_and(|t| t.stands_out() && t.gap() >= spread.gap() / 2) {
                    continue;
                }
                let text = format!(
                    "In {} {} has {} {} against a median of {}; in training the ranks are equal.",
                    phase.word(),
                    subject,
                    Bytes(spread.max),
                    quantity.title(),
                    Bytes(spread.median)
                );
                told(case, phase, subject, weight::STRONG, text, Some(spread.gap()), ledger);
                return Seen::Uneven;
            }
            (_, Some(spread)) if values.len() == case.steps.subjects.len() && !spread.stands_out() => {
                if seen == Seen::Nothing {
                    even(case, phase, &comparison(values), &spread, ledger);
                }
                seen = Seen::Even;
            }
            _ => {}
        }
    }
    seen
}

fn records<'a>(case: &Case<'a>, phase: Phase, subject: Option<Subject>) -> Vec<&'a StepRecord> {
    let is_meant = |row: &&StepRecord| subject.is_none_or(|s| row.subject == s);
    case.steps.records().filter(|(key, _)| key.phase == Some(phase)).map(|(_, row)| row).filter(is_meant).collect()
}

fn told(
    case: &Case,
    phase: Phase,
    subject: Subject,
    gain: f64,
    text: String,
    explained: Option<u64>,
    ledger: &mut Ledger,
) {
    let refs = case.step_refs(records(case, phase, Some(subject)));
    let (label, alike) = labels(phase);
    ledger.signal(&[label], gain, &text, &refs);
    ledger.signal(alike, gain / 2.0, &text, &refs);
    ledger.caveat(
        label,
        "Which call in that phase takes the memory is not in the log; a snapshot of this rank names it.",
    );
    let ranks: Vec<u32> = subject.rank().into_iter().collect();
    ledger.ranks(&[label], &ranks);
    ledger.ranks(alike, &ranks);
    let doing = if phase == Phase::Save { "saves" } else { "evaluates" };
    let mechanism = Mechanism {
        because: format!("it alone {doing}, on top of what training left"),
        alone: format!("{} alone {doing}, on top of what training left.", words::capital(&subject.to_string())),
        explained,
    };
    ledger.mechanism(&[label], &mechanism);
    ledger.mechanism(alike, &mechanism);
    ledger.status(ITEM, ItemStatus::Fail);
    ledger.collect(ITEM, &[], crate::collect::snapshots());
    ledger.claim(Claim {
        item: ITEM,
        label: Some(label),
        severity: Severity::Critical,
        confidence: 0.9,
        text,
        ranks,
        refs,
    });
}

fn even(case: &Case, phase: Phase, comparison: &Comparison, spread: &Spread, ledger: &mut Ledger) {
    ledger.claim(Claim {
        item: ITEM,
        label: None,
        severity: Severity::Info,
        confidence: 0.9,
        text: format!(
            "In {} {} are {} {}.",
            phase.word(),
            words::all_of(comparison.values.len(), "ranks"),
            words::span(spread.min, spread.max),
            comparison.quantity.title()
        ),
        ranks: vec![],
        refs: case.step_refs(records(case, phase, None)),
    });
}

/// In one table: the surplus of the first card is in its own process. Duties of rank 0 look like this; one table cannot
/// say which.
fn own_surplus(case: &Case, ledger: &mut Ledger) {
    let Some((comparison, spread)) = &case.on_cards else { return };
    let (Source::Tables(_), [card]) = (&comparison.source, spread.heaviest.as_slice()) else { return };
    let Some((_, view)) = case.focus().filter(|(_, view)| view.lists_processes()) else { return };
    if crate::tables::is_one_process_job(view, case.policy) {
        return;
    }
    let one_process = |subject: Subject| match view.gpu(subject)?.compute.as_slice() {
        [row] => row.used.map(|b| (*row, b.0)),
        _ => None,
    };
    let Some((row, own)) = one_process(*card) else { return };
    let others: Vec<u64> = comparison
        .values
        .iter()
        .filter(|(subject, _)| subject != card)
        .filter_map(|(subject, _)| one_process(*subject).map(|(_, bytes)| bytes))
        .collect();
    let Some(usual) = lower_median(&others).filter(|_| others.len() + 1 == comparison.values.len()) else { return };
    let surplus = own.saturating_sub(usual);
    // The gap in this very table: over a whole series it may be wider by then.
    let used: Vec<u64> = comparison.values.iter().filter_map(|(subject, _)| view.gpu(*subject)?.used).collect();
    let (Some(full), Some(median)) = (view.gpu(*card).and_then(|gpu| gpu.used), lower_median(&used)) else { return };
    let explains = surplus as f64 >= full.saturating_sub(median) as f64 * case.policy.explains_most;
    if spread.is_low_outlier || !case.policy.differs(full, median) || !explains {
        return;
    }
    let refs = case.refs([&row.at]);
    let text =
        format!("The surplus is in {card}'s own process: {} against {} on the other cards.", Bytes(own), Bytes(usual));
    let is_first = comparison.values.first().is_some_and(|(subject, _)| subject == card);
    if is_first {
        ledger.signal(
            &[
                CauseLabel::Rank0Eval,
                CauseLabel::CkptStateGather,
                CauseLabel::Rank0LoggingOrTrace,
                CauseLabel::Rank0AuxBuffers,
                CauseLabel::PerStepLeak,
            ],
            weight::FAINT,
            format!("{text} It is the first GPU, where rank 0 usually runs."),
            &refs,
        );
        ledger.status(ITEM, ItemStatus::Suspect);
    }
    ledger.collect(ITEM, &[], crate::collect::phase_line());
    ledger.claim(Claim {
        item: ITEM,
        label: None,
        severity: Severity::Warning,
        confidence: 0.95,
        text,
        ranks: vec![],
        refs,
    });
}

/// A process that ran out of memory held far more than it ever did in the records or in the table: something outside
/// the logged steps took it. Work of one rank is the usual reason; the message does not say which.
fn beyond_the_log(case: &Case, ledger: &mut Ledger) {
    let training = case.steps.peaks(Quantity::PeakAllocated, |_| true);
    let highest = training.iter().map(|(_, peak)| *peak).max();
    let usual_of = |oom: &OomEvent| -> Option<(u64, u64, &str)> {
        let by_rank = oom.rank.and_then(|rank| training.iter().find(|(s, _)| *s == Subject::Rank(rank)));
        if let (Some((_, peak)), Some(allocated)) = (by_rank, oom.allocated) {
            return Some((allocated.0, *peak, "than it peaked at in the log"));
        }
        if let (None, Some(highest), Some(allocated)) = (oom.rank, highest, oom.allocated) {
            return Some((allocated.0, highest, "than any rank peaked at in the log"));
        }
        let (_, view) = case.focus().filter(|(_, view)| view.lists_processes())?;
        match view.gpu(Subject::Device(oom.device?))?.compute.as_slice() {
            [row] => Some((oom.this_process?.0, row.used?.0, "than it held in the table")),
            _ => None,
        }
    };
    let events = case.evidence.ooms.iter().filter(|oom| !oom.host_memory);
    let beyond = events.filter_map(|oom| {
        let (held, usual, when) = usual_of(oom)?;
        case.policy.differs(held, usual).then_some((oom, held, usual, when))
    });
    let Some((oom, held, usual, when)) = beyond.max_by_key(|(_, held, usual, _)| held.saturating_sub(*usual)) else {
        return;
    };
    let refs = case.refs([&oom.at]);
    let who = match (oom.rank, oom.device) {
        (Some(rank), _) => format!("rank {}", rank.0),
        (None, Some(device)) => format!("the process on GPU {device}"),
        (None, None) => "the process".to_owned(),
    };
    let text =
        format!("When memory ran out {who} held {}, {} more {when}.", Bytes(held), Bytes(held.saturating_sub(usual)));
    let labels = [
        CauseLabel::CkptStateGather,
        CauseLabel::Rank0Eval,
        CauseLabel::MetricGatherOnGpu,
        CauseLabel::Rank0LoggingOrTrace,
    ];
    // Where the stack names the call, the rule that reads stacks says what it was.
    let doing = crate::failing::of_stack(&oom.frames).map(|failing| failing.doing);
    let (is_told, is_step) = (doing.is_some(), doing == Some(crate::failing::Doing::Training));
    if !is_step {
        ledger.signal(&labels, weight::FAIR, &text, &refs);
    }
    if let Some((low, high)) = swing(case).filter(|_| !is_told || is_step) {
        let reason =
            format!("{text} Peaks swing between {} and {} from step to step as it is.", Bytes(low), Bytes(high));
        let label = CauseLabel::VariableShapeBatches;
        ledger.signal(&[label], weight::FAIR, reason, &refs);
        ledger.mechanism(
            &[label],
            &Mechanism {
                because: "batches differ in size".to_owned(),
                alone: format!("{text} A larger batch than those in the log would do."),
                explained: None,
            },
        );
    }
    let ranks: Vec<u32> = oom.rank.map(|rank| rank.0).into_iter().collect();
    ledger.ranks(&labels, &ranks);
    if !is_told {
        let which = if oom.frames.is_empty() {
            "the traceback tells which it was"
        } else {
            "the calls in the traceback do not tell which it was"
        };
        for label in labels {
            ledger
                .caveat(label, format!("Evaluation, saving, tracing and a larger batch all look like this; {which}."));
        }
        ledger.mechanism(
            &labels,
            &Mechanism {
                because: "something outside the logged steps took memory".to_owned(),
                alone: format!("{text} Something outside the logged steps took it."),
                explained: None,
            },
        );
    }
    ledger.status(ITEM, ItemStatus::Suspect);
    ledger.collect(ITEM, &labels, crate::collect::phase_line());
    ledger.claim(Claim { item: ITEM, label: None, severity: Severity::Warning, confidence: 0.9, text, ranks, refs });
}

/// Lowest and highest training peak of the rank that swings most, where peaks are read anew at each step: they fall
/// as well as rise, and by more than a tenth.
fn swing(case: &Case) -> Option<(u64, u64)> {
    let mut per_rank: BTreeMap<Subject, Vec<u64>> = BTreeMap::new();
    for (_, row) in case.steps.records().filter(|(key, _)| is_training(key)) {
        if let Some(peak) = row.peak_allocated {
            per_rank.entry(row.subject).or_default().push(peak.0);
        }
    }
    let swings = per_rank.into_values().filter_map(|peaks| {
        let falls = peaks.windows(2).any(|pair| matches!(pair, [a, b] if case.policy.differs(*a, *b)));
        let (low, high) = (*peaks.iter().min()?, *peaks.iter().max()?);
        let is_wide = high.saturating_sub(low) as f64 >= low as f64 * case.policy.notice_share;
        (peaks.len() >= case.policy.follow_points && falls && is_wide).then_some((low, high))
    });
    swings.max_by_key(|(low, high)| high.saturating_sub(*low))
}
