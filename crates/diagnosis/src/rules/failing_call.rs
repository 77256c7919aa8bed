//! The call in which memory ran out: the traceback in front of the message, or the phase that the log had announced.
//! Shown under `rank_only_work`, for loading under `device_visibility`.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::failing::{self, Doing, Failing};
use crate::policy::weight;
use crate::words;
use rankscope_model::{CauseLabel, EvidenceRef, Item, ItemStatus, OomEvent, Phase, Rank, Severity, Subject};
use std::collections::{BTreeMap, BTreeSet};

/// Work beside the training step.
const BESIDE: [CauseLabel; 4] = [
    CauseLabel::Rank0Eval,
    CauseLabel::CkptStateGather,
    CauseLabel::MetricGatherOnGpu,
    CauseLabel::Rank0LoggingOrTrace,
];

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let mut groups: BTreeMap<Doing, Vec<(&OomEvent, Failing)>> = BTreeMap::new();
    for oom in case.evidence.ooms.iter().filter(|oom| is_of_the_allocator(oom)) {
        if let Some(failing) = failing::of_stack(&oom.frames) {
            groups.entry(failing.doing).or_default().push((oom, failing));
        }
    }
    if groups.is_empty() {
        announced(case, ledger);
        return;
    }
    // Several ranks fail in turn; the one that fails in an ordinary step may only have been last.
    let told: Vec<_> = groups.iter().filter(|(doing, _)| **doing != Doing::Training || groups.len() == 1).collect();
    for (doing, group) in told {
        let Some((_, first)) = group.first() else { continue };
        let refs = case.refs(group.iter().map(|(oom, _)| &oom.at));
        let text = sentence(*doing, group, first);
        tell(case, *doing, group, &text, &refs, ledger);
    }
}

/// Libraries that fail on their own account are told by their family; behind them the stack only says who waited.
fn is_of_the_allocator(oom: &OomEvent) -> bool {
    let of_library = ["nccl", "cublas", "cudnn"].contains(&oom.family.as_str());
    !oom.host_memory && !of_library
}

/// Who failed, in the words of the messages: ranks where known, else devices.
fn who(group: &[(&OomEvent, Failing)]) -> String {
    let ranks: BTreeSet<Subject> = group.iter().filter_map(|(oom, _)| oom.rank.map(Subject::Rank)).collect();
    let devices: BTreeSet<Subject> = group.iter().filter_map(|(oom, _)| oom.device.map(Subject::Device)).collect();
    let list: Vec<Subject> = if ranks.is_empty() { devices } else { ranks }.into_iter().collect();
    if list.is_empty() { "a process".to_owned() } else { words::subjects(&list) }
}

fn sentence(doing: Doing, group: &[(&OomEvent, Failing)], first: &Failing) -> String {
    let what = match doing {
        Doing::RestoringToGpu => "while tensors of a checkpoint were put back on the GPU they were saved from",
        Doing::Placing => "while weights were put on a GPU",
        Doing::GatheringState => "while the whole state was gathered",
        Doing::Saving => "while a checkpoint was saved",
        Doing::Logging => "while samples, images or a graph were made for the log",
        Doing::GatheringMetrics => "while predictions or metrics of all ranks were gathered",
        Doing::Evaluating => "in evaluation",
        Doing::Replicating => "inside DataParallel",
        Doing::Training => "in an ordinary training step",
    };
    let led = first.own.map(|own| format!(", called from {}", failing::place(own))).unwrap_or_default();
    format!("Memory ran out on {} {what}: in {}{led}.", who(group), failing::place(first.sign))
}

fn tell(
    case: &Case,
    doing: Doing,
    group: &[(&OomEvent, Failing)],
    text: &str,
    refs: &[EvidenceRef],
    ledger: &mut Ledger,
) {
    use CauseLabel::{
        CkptNoMapLocation, CkptStateGather, DataparallelMaster, HardcodedOrDefaultDevice, MetricGatherOnGpu, Rank0Eval,
        Rank0LoggingOrTrace, RankGpuMapping,
    };
    let ranks: Vec<u32> =
        group.iter().filter_map(|(oom, _)| oom.rank).map(|rank| rank.0).collect::<BTreeSet<_>>().into_iter().collect();
    let others = |label: CauseLabel| BESIDE.into_iter().filter(|other| *other != label).collect::<Vec<_>>();
    match doing {
        Doing::RestoringToGpu => {
            let label = CkptNoMapLocation;
            ledger.signal(&[label], weight::STRONG, text, refs);
            if let Some(crowd) = on_one_card(group) {
                ledger.signal(&[label], weight::FAIR, crowd, refs);
            }
            let against = "The failing call restores tensors; that many processes share the card need not be meant.";
            ledger.signal(
                &[RankGpuMapping, CauseLabel::OtherTenant, HardcodedOrDefaultDevice],
                -weight::FAIR,
                against,
                refs,
            );
            mechanism(ledger, label, "checkpoints are loaded onto it", text);
            claim(ledger, Item::DeviceVisibility, label, text, &ranks, refs);
        }
        Doing::Placing => {
            if let Some(crowd) = on_one_card(group) {
                ledger.signal(&[HardcodedOrDefaultDevice], weight::GOOD, format!("{text} {crowd}"), refs);
                ledger.signal(&[CkptNoMapLocation], weight::FAIR, format!("{text} {crowd}"), refs);
                claim(ledger, Item::DeviceVisibility, HardcodedOrDefaultDevice, text, &ranks, refs);
            }
            ledger.signal(&BESIDE, -weight::FAIR, text, refs);
        }
        Doing::GatheringState | Doing::Saving => {
            let gain = if doing == Doing::GatheringState { weight::STRONG } else { weight::GOOD };
            ledger.signal(&[CkptStateGather], gain, text, refs);
            ledger.signal(&others(CkptStateGather), -weight::GOOD, text, refs);
            beside(case, CkptStateGather, "the full state is gathered for saving", text, &ranks, refs, ledger);
        }
        Doing::Logging => {
            ledger.signal(&[Rank0LoggingOrTrace], weight::STRONG, text, refs);
            ledger.signal(&others(Rank0LoggingOrTrace), -weight::GOOD, text, refs);
            beside(case, Rank0LoggingOrTrace, "it makes samples or traces for the log", text, &ranks, refs, ledger);
        }
        Doing::GatheringMetrics => {
            ledger.signal(&[MetricGatherOnGpu], weight::STRONG, text, refs);
            ledger.signal(&[Rank0Eval, CkptStateGather, Rank0LoggingOrTrace], -weight::GOOD, text, refs);
            beside(case, MetricGatherOnGpu, "predictions of all ranks are gathered there", text, &ranks, refs, ledger);
        }
        Doing::Evaluating => {
            ledger.signal(&[Rank0Eval], weight::GOOD, text, refs);
            if let [only] = ranks.as_slice() {
                let reason = format!("No other rank than {only} says that it ran out of memory.");
                ledger.signal(&[Rank0Eval], weight::FAIR, reason, refs);
            }
            ledger.signal(&[MetricGatherOnGpu], weight::FAIR, text, refs);
            ledger.signal(&[CkptStateGather, Rank0LoggingOrTrace], -weight::GOOD, text, refs);
            beside(case, Rank0Eval, "it evaluates on top of what training left", text, &ranks, refs, ledger);
        }
        Doing::Replicating if group.iter().any(|(oom, _)| oom.device.is_some_and(|device| device > 0)) => {
            let reason = format!(
                "{text} It is not the first GPU, where DataParallel gathers: this card is smaller, or somebody else is on it."
            );
            ledger.signal(&[DataparallelMaster], -weight::FAIR, &reason, refs);
            ledger.signal(
                &[CauseLabel::HeterogeneousOrDisplayGpu, CauseLabel::OtherTenant],
                weight::FAIR,
                &reason,
                refs,
            );
        }
        Doing::Replicating => {
            // Gathering fills the first GPU. Where another one runs out, copies are made there and something else is
            // in the way.
            let elsewhere = group.iter().filter_map(|(oom, _)| oom.device).find(|device| *device > 0);
            if let Some(device) = elsewhere {
                ledger.signal(&[DataparallelMaster], weight::FAIR, text, refs);
                let against = format!("GPU {device} ran out, and DataParallel gathers on the first one.");
                ledger.signal(&[DataparallelMaster], -weight::GOOD, against, refs);
                return;
            }
            ledger.signal(&[DataparallelMaster], weight::STRONG, text, refs);
            mechanism(
                ledger,
                DataparallelMaster,
                "one process copies the model to all cards and gathers on the first",
                text,
            );
            claim(ledger, Item::RankOnlyWork, DataparallelMaster, text, &ranks, refs);
        }
        Doing::Training => ledger.signal(&BESIDE, -weight::FAIR, text, refs),
    }
}

/// Two ranks or more that fail on one and the same device index, which is not theirs.
fn on_one_card(group: &[(&OomEvent, Failing)]) -> Option<String> {
    let ranks: BTreeMap<Rank, u32> = group.iter().filter_map(|(oom, _)| Some((oom.rank?, oom.device?))).collect();
    let devices: BTreeSet<u32> = ranks.values().copied().collect();
    let (Some(device), 1) = (devices.first(), devices.len()) else { return None };
    let foreign: Vec<Subject> =
        ranks.keys().filter(|rank| rank.0 != *device).map(|rank| Subject::Rank(*rank)).collect();
    let is_crowd = ranks.len() >= 2 || !foreign.is_empty();
    is_crowd.then(|| {
        format!(
            "It is GPU {device} for {}.",
            words::subjects(&ranks.keys().map(|r| Subject::Rank(*r)).collect::<Vec<_>>())
        )
    })
}

fn mechanism(ledger: &mut Ledger, label: CauseLabel, because: &str, text: &str) {
    let mechanism = Mechanism { because: because.to_owned(), alone: text.to_owned(), explained: None };
    ledger.mechanism(&[label], &mechanism);
}

fn beside(
    case: &Case,
    label: CauseLabel,
    because: &str,
    text: &str,
    ranks: &[u32],
    refs: &[EvidenceRef],
    ledger: &mut Ledger,
) {
    mechanism(ledger, label, because, text);
    ledger.ranks(&[label], ranks);
    let known: BTreeSet<Subject> = case.steps.subjects.iter().copied().collect();
    let all_failed = known.len() >= 2 && known.iter().all(|s| s.rank().is_some_and(|rank| ranks.contains(&rank)));
    if all_failed {
        ledger.caveat(label, "All ranks of the log ran out there: the work itself is too large, on whichever rank.");
    }
    ledger.collect(Item::RankOnlyWork, &[label], crate::collect::phase_line());
    claim(ledger, Item::RankOnlyWork, label, text, ranks, refs);
}

fn claim(ledger: &mut Ledger, item: Item, label: CauseLabel, text: &str, ranks: &[u32], refs: &[EvidenceRef]) {
    ledger.status(item, ItemStatus::Suspect);
    ledger.claim(Claim {
        item,
        label: Some(label),
        severity: Severity::Critical,
        confidence: 0.9,
        text: text.to_owned(),
        ranks: ranks.to_vec(),
        refs: refs.to_vec(),
    });
}

/// Without a stack the log may still have said what it was about to do.
fn announced(case: &Case, ledger: &mut Ledger) {
    let events = case.evidence.ooms.iter().filter(|oom| is_of_the_allocator(oom) && oom.frames.is_empty());
    let phases: BTreeMap<Phase, &OomEvent> =
        events.filter_map(|oom| Some((failing::phase_before(case.evidence, oom)?, oom))).collect();
    for (phase, oom) in phases {
        let labels: &[CauseLabel] = match phase {
            Phase::Eval => &[CauseLabel::Rank0Eval, CauseLabel::MetricGatherOnGpu],
            Phase::Save => &[CauseLabel::CkptStateGather],
            Phase::Resume => &[CauseLabel::CkptNoMapLocation],
            Phase::Init | Phase::Train => continue,
        };
        let doing = match phase {
            Phase::Eval => "evaluating",
            Phase::Save => "saving",
            _ => "loading a checkpoint",
        };
        let text = format!("Before memory ran out the log says that it is {doing}.");
        ledger.signal(labels, weight::FAIR, text, &case.refs([&oom.at]));
    }
}
