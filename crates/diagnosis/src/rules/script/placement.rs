//! Where checkpoints, models and tensors are put: revived on the GPU of another, named for all ranks alike, touched by
//! workers.

use super::{Told, place};
use crate::fixes;
use crate::policy::weight;
use crate::script::Binding;
use rankscope_model::{
    CauseLabel, DeviceClass, Fact, FactKind, FlowProcess, Framework, GuardKind, Item, ItemStatus, MapLocation,
    ScriptFact, Severity,
};

const LOADED: CauseLabel = CauseLabel::CkptNoMapLocation;
const NAMED: CauseLabel = CauseLabel::HardcodedOrDefaultDevice;
const WORKERS: CauseLabel = CauseLabel::CtxInWorkerProcesses;

pub(super) fn apply(told: &mut Told) {
    loads(told);
    names(told);
    workers(told);
}

fn is_rank_zero(told: &Told, fact: &ScriptFact) -> bool {
    told.case
        .scripts
        .guard(fact)
        .is_some_and(|guard| matches!(guard.kind, GuardKind::RankZero | GuardKind::LocalRankZero))
}

fn loads(told: &mut Told) {
    let loads = told.case.scripts.all(FactKind::TorchLoad);
    let map = |fact: &ScriptFact| match &fact.what {
        Fact::TorchLoad { map_location, .. } => Some(map_location.clone()),
        _ => None,
    };
    let astray: Vec<&ScriptFact> = loads
        .iter()
        .copied()
        .filter(|fact| !is_rank_zero(told, fact) && told.case.scripts.process(fact) != FlowProcess::Worker)
        .filter(|fact| matches!(map(fact), Some(MapLocation::Absent | MapLocation::Shared(_))))
        .collect();
    if let Some(first) = astray.first().copied() {
        let at = place(told.case, first);
        let text = if matches!(map(first), Some(MapLocation::Absent)) {
            format!("{at} loads a checkpoint without map_location: its tensors return to the GPU that saved them.")
        } else {
            format!("{at} loads a checkpoint onto the same GPU in every process.")
        };
        told.signal(&[LOADED], weight::GOOD, &text, &astray);
        let condition = first.guard.as_ref().filter(|guard| guard.kind == GuardKind::Condition);
        if let Some(guard) = condition {
            told.ledger.caveat(LOADED, format!("It is loaded only if `{}`.", guard.text));
        }
        if told.case.scripts.is_distributed() {
            told.ledger.status(Item::DeviceVisibility, ItemStatus::Suspect);
            told.claim(Item::DeviceVisibility, Some(LOADED), Severity::Warning, text, &astray);
        }
        told.fix(LOADED, fixes::load_on_cpu(told.case.evidence, first));
        return;
    }
    if !loads.is_empty() {
        let is_safe = |fact: &&ScriptFact| matches!(map(fact), Some(MapLocation::Cpu | MapLocation::Rank(_)));
        if loads.iter().all(is_safe) {
            let text = "Every torch.load in the script says where its tensors go: the host or the rank's own GPU.";
            told.signal(&[LOADED], -weight::GOOD, text, &loads);
        }
    } else if told.case.scripts.is_whole() {
        let words = ["load", "resume", "restore", "ckpt", "checkpoint", "pretrain"];
        let gain = if told.case.scripts.calls_elsewhere(&words) { weight::FAINT } else { weight::GOOD };
        told.signal(&[LOADED], -gain, "Nothing in the script loads a checkpoint.", &[]);
    }
}

fn names(told: &mut Told) {
    let is_one_job = told.case.scripts.is_distributed() || told.case.scripts.uses(Framework::HfTrainer);
    if !is_one_job || told.case.scripts.sees_one_gpu() {
        return;
    }
    let placed: Vec<&ScriptFact> = [FactKind::ModelToDevice, FactKind::NamedDevice]
        .iter()
        .flat_map(|kind| told.case.scripts.all(*kind))
        .filter(|fact| !is_rank_zero(told, fact) && told.case.scripts.process(fact) != FlowProcess::Worker)
        .collect();
    let class = |fact: &ScriptFact| match &fact.what {
        Fact::ModelToDevice { device, .. } | Fact::NamedDevice { device, .. } => device.class,
        _ => DeviceClass::Unknown,
    };
    let groups = told.case.scripts.all(FactKind::InitProcessGroup);
    let spawns = groups.iter().any(|group| told.case.scripts.process(group) == FlowProcess::Spawned);
    let in_parent =
        |fact: &&ScriptFact| told.case.scripts.process(fact) == FlowProcess::Main && class(fact).is_shared_default();
    let parent: Vec<&ScriptFact> = placed.iter().copied().filter(|fact| spawns && in_parent(fact)).collect();
    if let Some(first) = parent.first().copied() {
        let text = format!(
            "The parent process puts something on its GPU at {} before it starts the ranks.",
            place(told.case, first)
        );
        named(told, weight::STRONG, text, &parent);
        return;
    }
    let literal: Vec<&ScriptFact> =
        placed.iter().copied().filter(|fact| matches!(class(fact), DeviceClass::Literal(_))).collect();
    if let Some(first) = literal.first().copied() {
        let what = match &first.what {
            Fact::ModelToDevice { model, device } => format!("{model} goes to {}", device.text),
            Fact::NamedDevice { object, device, .. } => format!("{object} goes to {}", device.text),
            _ => "a device is written out".to_owned(),
        };
        let text = format!("{} names one GPU for all ranks: {what}.", place(told.case, first));
        named(told, weight::GOOD, text, &literal);
        return;
    }
    let current: Vec<&ScriptFact> = placed.iter().copied().filter(|fact| class(fact) == DeviceClass::Current).collect();
    if let Some((early, binder)) = before_framework(told, &current) {
        let text = format!(
            "{} uses the current GPU before the framework has chosen one for the process ({}).",
            place(told.case, early),
            place(told.case, binder)
        );
        named(told, weight::GOOD, text, &[early, binder]);
        return;
    }
    let auto: Vec<&ScriptFact> = placed.iter().copied().filter(|fact| class(fact) == DeviceClass::Auto).collect();
    match told.case.scripts.binding() {
        Binding::Missing { .. } if !current.is_empty() => {
            let text = format!(
                "{} uses the current GPU, which no process has chosen: it is GPU 0 for all.",
                current.first().map(|fact| place(told.case, fact)).unwrap_or_default()
            );
            named(told, weight::GOOD, text, &current);
        }
        _ if !auto.is_empty() => {
            let text = "device_map spreads the model over all visible GPUs in every process.".to_owned();
            named(told, weight::FAIR, text.clone(), &auto);
            told.signal(&[CauseLabel::ColocatedEngineOrDeviceMap], weight::FAIR, &text, &auto);
        }
        _ if told.case.scripts.is_whole() => {
            let text = "Nothing in the script names one device for all ranks.";
            told.signal(&[NAMED], -weight::GOOD, text, &[]);
        }
        _ => {}
    }
}

/// Something on the current GPU, and the object of a framework behind it that would have chosen that GPU.
fn before_framework<'f>(
    told: &Told<'_, 'f, '_>,
    current: &[&'f ScriptFact],
) -> Option<(&'f ScriptFact, &'f ScriptFact)> {
    if !matches!(told.case.scripts.binding(), Binding::Framework) {
        return None;
    }
    let groups = told.case.scripts.all(FactKind::InitProcessGroup);
    let binder =
        groups.into_iter().chain(told.case.scripts.all(FactKind::TrainerBuilt)).min_by_key(|fact| fact.flow.order)?;
    let early = current.iter().find(|fact| told.case.scripts.precedes(fact, binder) == Some(true))?;
    Some((*early, binder))
}

fn named(told: &mut Told, gain: f64, text: String, facts: &[&ScriptFact]) {
    told.signal(&[NAMED], gain, &text, facts);
    told.ledger.status(Item::DeviceVisibility, ItemStatus::Suspect);
    told.claim(Item::DeviceVisibility, Some(NAMED), Severity::Warning, text, facts);
    let first = facts.first().copied();
    let own = first.and_then(|fact| fixes::own_device(told.case.evidence, fact));
    told.fix(NAMED, own.or_else(|| fixes::look_at(told.case.evidence, first?)));
}

fn workers(told: &mut Told) {
    let facts = told.case.scripts.all(FactKind::WorkerCuda);
    if let Some(Fact::WorkerCuda { worker, call }) = facts.first().map(|fact| &fact.what) {
        let at = facts.first().map(|fact| place(told.case, fact)).unwrap_or_default();
        let text =
            format!("{worker} runs in worker processes and touches CUDA ({call}, {at}): each worker opens a context.");
        told.signal(&[WORKERS], weight::STRONG, &text, &facts);
        told.ledger.status(Item::DeviceVisibility, ItemStatus::Suspect);
        told.claim(Item::DeviceVisibility, Some(WORKERS), Severity::Warning, text, &facts);
    } else if told.case.scripts.is_whole() && !told.case.scripts.has(FactKind::DataLoader) {
        let no_workers = !told.case.scripts.has(FactKind::Spawn);
        if no_workers && !told.case.scripts.calls_elsewhere(&["load", "data"]) {
            told.signal(&[WORKERS], -weight::FAIR, "The script starts no worker processes.", &[]);
        }
    }
}
