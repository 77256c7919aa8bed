//! Whether the script binds each process to a GPU of its own, and in which order it starts.

use super::{Told, place};
use crate::fixes;
use crate::policy::weight;
use crate::script::Binding;
use rankscope_model::{
    CauseLabel, DeviceClass, Fact, FactKind, FlowProcess, Framework, Item, ItemStatus, Launcher, ScriptFact,
    SetDeviceHow, Severity,
};

const UNBOUND: CauseLabel = CauseLabel::CtxNoSetDevice;
const HELPER: CauseLabel = CauseLabel::HelperThreadOrLibCtx;
const MAPPING: CauseLabel = CauseLabel::RankGpuMapping;

pub(super) fn apply(told: &mut Told) {
    match told.case.scripts.binding() {
        Binding::First { set } => bound(told, set),
        Binding::Late { set, touch } => late(told, set, touch),
        Binding::Shared { set } => shared(told, set),
        Binding::Missing { at } => missing(told, at),
        Binding::Unknown => beyond_the_first(told),
        Binding::Framework => {}
    }
    order(told);
    mapping(told);
}

fn bound(told: &mut Told, set: &ScriptFact) {
    let at = place(told.case, set);
    let text = format!("The script binds each process to its GPU before anything touches CUDA ({at}).");
    told.signal(&[UNBOUND], -weight::STRONG, &text, &[set]);
    if told.supported.contains(&HELPER) {
        let reason =
            "The main thread is bound first, so what opens these contexts runs elsewhere: a thread, a library, a hook.";
        told.signal(&[HELPER], weight::FAIR, reason, &[set]);
    }
    told.ledger.status(Item::DeviceVisibility, ItemStatus::Pass);
    told.claim(Item::DeviceVisibility, None, Severity::Info, text, &[set]);
    in_threads(told);
}

/// One process that works on a later GPU and never makes it current: what a library does on the current device, a compile,
/// a pinned copy, a stream, opens a context on GPU 0.
fn beyond_the_first(told: &mut Told) {
    let scripts = &told.case.scripts;
    if scripts.is_distributed() || scripts.is_empty() {
        return;
    }
    let kinds = [FactKind::ModelToDevice, FactKind::NamedDevice];
    let placed: Vec<&ScriptFact> = kinds.iter().flat_map(|kind| scripts.all(*kind)).collect();
    let is_later = |fact: &&ScriptFact| match &fact.what {
        Fact::ModelToDevice { device, .. } | Fact::NamedDevice { device, .. } => {
            matches!(device.class, DeviceClass::Literal(index) if index > 0)
        }
        _ => false,
    };
    let later: Vec<&ScriptFact> = placed.iter().copied().filter(is_later).collect();
    let Some(first) = later.first().copied().filter(|_| later.len() == placed.len()) else { return };
    let text = format!(
        "The script works on a later GPU by name ({}) while GPU 0 stays the current device: libraries that use the current one open a context there.",
        place(told.case, first)
    );
    told.signal(&[UNBOUND], weight::FAIR, &text, &later);
    told.signal(&[HELPER], weight::FAIR, &text, &later);
    told.claim(Item::DeviceVisibility, Some(UNBOUND), Severity::Info, text, &later);
}

/// A thread begins with GPU 0 as its current device, whatever the main thread has set.
fn in_threads(told: &mut Told) {
    let kinds = [FactKind::NamedDevice, FactKind::ModelToDevice, FactKind::CudaCall];
    let facts: Vec<&ScriptFact> = kinds
        .iter()
        .flat_map(|kind| told.case.scripts.all(*kind))
        .filter(|fact| told.case.scripts.process(fact) == FlowProcess::Thread)
        .collect();
    if let Some(first) = facts.first() {
        let at = place(told.case, first);
        let text = format!("A thread of its own uses the current device ({at}); in a new thread that is GPU 0.");
        told.signal(&[HELPER], weight::GOOD, &text, &facts);
        told.ledger.status(Item::DeviceVisibility, ItemStatus::Suspect);
        told.claim(Item::DeviceVisibility, Some(HELPER), Severity::Warning, text, &facts);
    }
}

fn late(told: &mut Told, set: &ScriptFact, touch: &ScriptFact) {
    let what = match &touch.what {
        Fact::CudaCall { call, .. } => format!("{call} initialises CUDA"),
        Fact::ModelToDevice { model, device } => format!("{model} goes to {device}"),
        Fact::NamedDevice { object, device, .. } => format!("{object} goes to {device}"),
        _ => "the model is wrapped".to_owned(),
    };
    let text = format!(
        "The GPU is chosen too late: {what} at {}, set_device comes at {}.",
        place(told.case, touch),
        place(told.case, set)
    );
    told.signal(&[UNBOUND], weight::GOOD, &text, &[touch, set]);
    if matches!(&set.what, Fact::SetDevice { how: SetDeviceHow::VisibleDevices, .. }) {
        let reason = "CUDA_VISIBLE_DEVICES is ignored once CUDA is initialised: every process keeps seeing all GPUs.";
        told.signal(&[MAPPING], weight::GOOD, reason, &[touch, set]);
    }
    told.ledger.status(Item::DeviceVisibility, ItemStatus::Suspect);
    told.claim(Item::DeviceVisibility, Some(UNBOUND), Severity::Warning, text, &[touch, set]);
    told.fix(UNBOUND, fixes::bind_earlier(told.case.evidence, set, touch));
}

fn shared(told: &mut Told, set: &ScriptFact) {
    let text = format!("Every process binds itself to the same GPU ({}).", place(told.case, set));
    told.signal(&[MAPPING], weight::STRONG, &text, &[set]);
    told.signal(&[CauseLabel::HardcodedOrDefaultDevice], weight::STRONG, &text, &[set]);
    told.ledger.status(Item::DeviceVisibility, ItemStatus::Suspect);
    told.claim(Item::DeviceVisibility, Some(CauseLabel::HardcodedOrDefaultDevice), Severity::Warning, text, &[set]);
    told.fix(CauseLabel::HardcodedOrDefaultDevice, fixes::look_at(told.case.evidence, set));
    told.fix(MAPPING, fixes::look_at(told.case.evidence, set));
}

fn missing(told: &mut Told, at: &ScriptFact) {
    let text = format!(
        "Nothing in the script makes a GPU current for its process, neither before nor after {}.",
        place(told.case, at)
    );
    told.signal(&[UNBOUND], weight::GOOD, &text, &[at]);
    let against = "The script never calls set_device, which alone explains the rows.";
    told.signal(&[HELPER], -weight::FAIR, against, &[at]);
    told.ledger.status(Item::DeviceVisibility, ItemStatus::Suspect);
    told.claim(Item::DeviceVisibility, Some(UNBOUND), Severity::Warning, text, &[at]);
    told.fix(UNBOUND, fixes::bind_before(told.case.evidence, at));
}

/// Item `distributed_init`: model and data work stand behind the process group.
fn order(told: &mut Told) {
    let scripts = &told.case.scripts;
    let groups = scripts.all(FactKind::InitProcessGroup);
    let Some(group) = groups.first().copied() else { return };
    let placed: Vec<&ScriptFact> = [FactKind::ModelToDevice, FactKind::NamedDevice]
        .iter()
        .flat_map(|kind| scripts.all(*kind))
        .filter(|fact| !matches!(scripts.process(fact), FlowProcess::Worker | FlowProcess::Uncalled))
        .filter(|fact| match &fact.what {
            Fact::ModelToDevice { device, .. } | Fact::NamedDevice { device, .. } => device.class != DeviceClass::Cpu,
            _ => false,
        })
        .collect();
    let early: Vec<&ScriptFact> =
        placed.iter().copied().filter(|fact| scripts.precedes(fact, group) == Some(true)).collect();
    let parent: Vec<&ScriptFact> = placed
        .iter()
        .copied()
        .filter(|fact| scripts.process(fact) == FlowProcess::Main && scripts.process(group) == FlowProcess::Spawned)
        .collect();
    let item = Item::DistributedInit;
    if let Some(first) = early.first().or(parent.first()).copied() {
        let text = format!(
            "Something goes to a GPU at {}, before the process group exists ({}).",
            place(told.case, first),
            place(told.case, group)
        );
        // What the parent does may be cleaned up before the ranks start; within one flow the order is plain.
        told.ledger.status(item, if early.is_empty() { ItemStatus::Suspect } else { ItemStatus::Fail });
        told.claim(item, None, Severity::Warning, text, &[first, group]);
    } else if told.case.scripts.is_whole() {
        let text = format!("The process group is made at {}, before anything goes to a GPU.", place(told.case, group));
        told.ledger.status(item, ItemStatus::Pass);
        told.claim(item, None, Severity::Info, text, &[group]);
    }
}

/// Ranks that cannot find a GPU of their own.
fn mapping(told: &mut Told) {
    let scripts = &told.case.scripts;
    // One MPI or Horovod process for each GPU, and TensorFlow, which takes the first GPU that it sees.
    let tells_apart = scripts.has(FactKind::SetDevice);
    let is_mpi = scripts.starts_by(Launcher::Mpi) || scripts.starts_by(Launcher::Horovod);
    if scripts.uses(Framework::TensorFlow) && is_mpi && !tells_apart && scripts.is_whole() {
        let text = "The processes are started by MPI, and nothing in the script gives each its own visible GPU.";
        told.signal(&[MAPPING], weight::GOOD, text, &[]);
        told.ledger.status(Item::DeviceVisibility, ItemStatus::Suspect);
        told.claim(Item::DeviceVisibility, Some(MAPPING), Severity::Warning, text.to_owned(), &[]);
    }
    let by_global: Vec<&ScriptFact> = told
        .case
        .scripts
        .all(FactKind::SetDevice)
        .into_iter()
        .filter(|fact| matches!(&fact.what, Fact::SetDevice { device, .. } if device.class == DeviceClass::Rank))
        .collect();
    if !by_global.is_empty() {
        let text = "The GPU is chosen by the global rank, which is right on a single node only.";
        told.signal(&[MAPPING], weight::FAINT, text, &by_global);
    }
}
