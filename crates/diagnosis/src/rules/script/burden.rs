//! Work that only some ranks do: evaluation, gathering, saving, sampling, copies of the weights; and `DataParallel`.

use super::{Told, place};
use crate::fixes;
use crate::policy::weight;
use crate::words;
use rankscope_model::{
    CauseLabel, CopyPlace, Fact, FactKind, Framework, Item, ItemStatus, Kept, RankWork, ScriptFact, Severity,
};
use std::collections::BTreeSet;

const ITEM: Item = Item::RankOnlyWork;

pub(super) fn apply(told: &mut Told) {
    data_parallel(told);
    object_collectives(told);
    let mut heavy = false;
    heavy |= alone(told, FactKind::EvalLoop, CauseLabel::Rank0Eval, weight::GOOD, "evaluates on one rank only");
    heavy |= alone(
        told,
        FactKind::GraphTrace,
        CauseLabel::Rank0LoggingOrTrace,
        weight::GOOD,
        "traces the model on one rank only",
    );
    heavy |= alone(
        told,
        FactKind::Sampling,
        CauseLabel::Rank0LoggingOrTrace,
        weight::GOOD,
        "draws samples on one rank only",
    );
    copies(told);
    heavy |= alone(
        told,
        FactKind::TensorGather,
        CauseLabel::MetricGatherOnGpu,
        weight::FAIR,
        "gathers tensors on one rank only",
    );
    heavy |= buffers(told);
    heavy |= full_state(told);
    heavy |= kept_predictions(told);
    eval_on_all(told);
    nothing_heavy(told, heavy);
}

fn data_parallel(told: &mut Told) {
    let label = CauseLabel::DataparallelMaster;
    let facts = told.case.scripts.all(FactKind::DataParallel);
    let scripts = &told.case.scripts;
    if let Some(first) = facts.first().copied() {
        let text = format!(
            "{} wraps the model in DataParallel: one process, which gathers on its first GPU.",
            place(told.case, first)
        );
        told.signal(&[label], weight::STRONG, &text, &facts);
        told.signal(&[CauseLabel::SingleGpuJobIdleContexts], -weight::FAIR, &text, &facts);
        told.fix(label, fixes::look_at(told.case.evidence, first));
        if !told.case.scripts.has(FactKind::WrapDdp) {
            told.ledger.status(ITEM, ItemStatus::Suspect);
            told.claim(ITEM, Some(label), Severity::Warning, text, &facts);
        }
    } else if scripts.uses(Framework::HfTrainer) {
        if !told.supported.contains(&label) {
            return;
        }
        // Without a launcher the Trainer itself wraps the model when it sees several GPUs.
        let text = "A Hugging Face Trainer that is started as one process wraps the model in DataParallel.";
        told.signal(&[label], weight::FAIR, text, &[]);
    } else if scripts.is_whole() && scripts.uses(Framework::Torch) {
        told.signal(&[label], -weight::GOOD, "The script does not use DataParallel.", &[]);
    }
}

fn object_collectives(told: &mut Told) {
    let label = CauseLabel::ObjectCollectiveDevice;
    let facts = told.case.scripts.all(FactKind::ObjectCollective);
    let on_gpu = |wanted: Option<bool>| {
        facts
            .iter()
            .copied()
            .filter(move |fact| matches!(&fact.what, Fact::ObjectCollective { on_gpu, .. } if *on_gpu == wanted))
            .collect::<Vec<_>>()
    };
    let carried = on_gpu(Some(true));
    let unknown = on_gpu(None);
    if let Some(first) = carried.first().copied() {
        let text = format!(
            "{} sends CUDA tensors through an object collective: every receiver revives them on the sender's GPU.",
            place(told.case, first)
        );
        told.signal(&[label], weight::STRONG, &text, &carried);
        told.signal(&[CauseLabel::MetricGatherOnGpu], weight::FAIR, &text, &carried);
        told.ledger.status(Item::DeviceVisibility, ItemStatus::Suspect);
        told.claim(Item::DeviceVisibility, Some(label), Severity::Warning, text, &carried);
        told.fix(label, fixes::look_at(told.case.evidence, first));
    } else if let Some(first) = unknown.first().copied() {
        let text =
            format!("{} uses an object collective; CUDA tensors in it would open contexts.", place(told.case, first));
        told.signal(&[label], weight::FAIR, &text, &unknown);
        told.fix(label, fixes::look_at(told.case.evidence, first));
    } else if facts.is_empty()
        && told.case.scripts.is_whole()
        && !told.case.scripts.calls_elsewhere(&["gather", "eval", "metric"])
    {
        told.signal(&[label], -weight::GOOD, "The script uses no object collective.", &[]);
    }
}

/// Facts of a kind that stand under a condition on the rank.
fn alone(told: &mut Told, kind: FactKind, label: CauseLabel, gain: f64, doing: &str) -> bool {
    let facts: Vec<&ScriptFact> =
        told.case.scripts.all(kind).into_iter().filter(|fact| told.case.scripts.is_rank_only(fact)).collect();
    let Some(first) = facts.first().copied() else { return false };
    let condition = told.case.scripts.guard(first).map(|guard| guard.text.clone()).unwrap_or_default();
    let text = format!("The script {doing} ({}, under `{condition}`).", place(told.case, first));
    told.signal(&[label], gain, &text, &facts);
    told.ledger.status(ITEM, ItemStatus::Suspect);
    told.claim(ITEM, Some(label), Severity::Warning, text, &facts);
    told.fix(label, fixes::look_at(told.case.evidence, first));
    true
}

/// Copies of the weights that one rank alone keeps on its GPU (EMA, a reference model): a buffer without a twin.
fn copies(told: &mut Told) {
    let (label, item) = (CauseLabel::Rank0AuxBuffers, Item::UnsyncedBuffers);
    let at = |wanted: CopyPlace| {
        let is_there =
            move |fact: &&ScriptFact| matches!(&fact.what, Fact::ModelCopy { place, .. } if *place == wanted);
        let all = told.case.scripts.all(FactKind::ModelCopy).into_iter();
        all.filter(is_there).filter(|fact| told.case.scripts.is_rank_only(fact)).collect::<Vec<_>>()
    };
    let (kept, passing) = (at(CopyPlace::WithModel), at(CopyPlace::ThroughGpu));
    let (facts, gain, doing) = if kept.is_empty() {
        (passing, weight::FAIR, "copies the whole model on the GPU of one rank before the copy goes to the host")
    } else {
        (kept, weight::GOOD, "keeps a copy of the weights on one rank only")
    };
    let Some(first) = facts.first().copied() else { return };
    let condition = told.case.scripts.guard(first).map(|guard| guard.text.clone()).unwrap_or_default();
    let text = format!("The script {doing} ({}, under `{condition}`).", place(told.case, first));
    told.signal(&[label], gain, &text, &facts);
    told.ledger.status(item, ItemStatus::Suspect);
    told.claim(item, Some(label), Severity::Warning, text, &facts);
    let fix = fixes::copy_on_host(told.case.evidence, first);
    told.fix(label, fix.or_else(|| fixes::look_at(told.case.evidence, first)));
}

fn buffers(told: &mut Told) -> bool {
    let label = CauseLabel::Rank0AuxBuffers;
    let facts = told.case.scripts.all(FactKind::RegisterBuffer);
    let lone: Vec<&ScriptFact> = facts.iter().copied().filter(|fact| told.case.scripts.is_rank_only(fact)).collect();
    if let Some(first) = lone.first().copied() {
        let text = format!("A buffer is made on one rank only ({}).", place(told.case, first));
        told.signal(&[label], weight::GOOD, &text, &lone);
        told.ledger.status(Item::UnsyncedBuffers, ItemStatus::Suspect);
        told.claim(Item::UnsyncedBuffers, Some(label), Severity::Warning, text, &lone);
        return true;
    }
    let large = |fact: &&ScriptFact| match &fact.what {
        Fact::RegisterBuffer { bytes: Some(bytes), .. } => bytes.0 >= told.case.policy.noise.0,
        _ => false,
    };
    let large: Vec<&ScriptFact> = facts.iter().copied().filter(large).collect();
    if let Some((first, bytes)) = large.first().and_then(|fact| match &fact.what {
        Fact::RegisterBuffer { bytes: Some(bytes), .. } => Some((*fact, *bytes)),
        _ => None,
    }) {
        // Under DataParallel and with a tensor that is no registered buffer, it lies on one GPU.
        let is_plain = matches!(&first.what, Fact::RegisterBuffer { is_plain: true, .. });
        let text = format!("A tensor of {bytes} is kept beside the weights ({}).", place(told.case, first));
        if is_plain || told.case.scripts.has(FactKind::DataParallel) {
            told.signal(&[label], weight::FAIR, &text, &large);
        }
        told.claim(Item::UnsyncedBuffers, None, Severity::Info, text, &large);
    }
    false
}

fn full_state(told: &mut Told) -> bool {
    let label = CauseLabel::CkptStateGather;
    let facts = told.case.scripts.all(FactKind::FullStateDict);
    let Some(first) = facts.first().copied() else {
        let has_saves = told.case.scripts.has(FactKind::SaveState);
        let is_sharded = told.case.scripts.uses(Framework::Fsdp) || told.case.scripts.uses(Framework::DeepSpeed);
        if told.case.scripts.is_whole() && !has_saves && !is_sharded {
            told.signal(&[label], -weight::FAIR, "The script saves no state of a sharded model.", &[]);
        }
        return false;
    };
    let is_offloaded = matches!(&first.what, Fact::FullStateDict { offload_to_cpu: Some(true), rank0_only, .. } if *rank0_only != Some(false));
    let text =
        format!("The full state of the sharded model is gathered when it is saved ({}).", place(told.case, first));
    if is_offloaded {
        told.signal(&[label], -weight::FAIR, "The gathered state is offloaded to the host as it arrives.", &facts);
        return false;
    }
    told.signal(&[label], weight::GOOD, &text, &facts);
    told.ledger.status(ITEM, ItemStatus::Suspect);
    told.claim(ITEM, Some(label), Severity::Warning, text, &facts);
    told.fix(label, fixes::look_at(told.case.evidence, first));
    true
}

/// Predictions that stay on the GPU while evaluation goes on.
fn kept_predictions(told: &mut Told) -> bool {
    let label = CauseLabel::MetricGatherOnGpu;
    let facts: Vec<&ScriptFact> = told
        .case
        .scripts
        .all(FactKind::Accumulation)
        .into_iter()
        .filter(|fact| {
            matches!(&fact.what, Fact::Accumulation { training: false, keeps: Kept::GpuTensors | Kept::Graph, .. })
        })
        .collect();
    let Some(first) = facts.first().copied() else {
        let gathers = [FactKind::TensorGather, FactKind::ObjectCollective, FactKind::EvalLoop];
        if told.case.scripts.is_whole() && gathers.iter().all(|kind| !told.case.scripts.has(*kind)) {
            told.signal(&[label], -weight::FAIR, "The script neither keeps nor gathers predictions.", &[]);
        }
        return false;
    };
    let text = format!("Predictions are kept on the GPU over the whole evaluation ({}).", place(told.case, first));
    told.signal(&[label], weight::GOOD, &text, &facts);
    let is_lone = facts.iter().any(|fact| told.case.scripts.is_rank_only(fact));
    told.claim(ITEM, Some(label), Severity::Warning, text, &facts);
    let fix = fixes::keep_on_host(told.case.evidence, &facts);
    told.fix(label, fix.or_else(|| fixes::look_at(told.case.evidence, first)));
    if is_lone {
        told.ledger.status(ITEM, ItemStatus::Suspect);
    }
    is_lone
}

/// All ranks evaluate: then evaluation is not what makes one heavier.
fn eval_on_all(told: &mut Told) {
    let evals = told.case.scripts.all(FactKind::EvalLoop);
    let label = CauseLabel::Rank0Eval;
    if !evals.is_empty() && evals.iter().all(|fact| !told.case.scripts.is_rank_only(fact)) {
        told.signal(&[label], -weight::FAIR, "All ranks evaluate, as far as the script tells.", &evals);
    } else if evals.is_empty()
        && told.case.scripts.is_whole()
        && !told.case.scripts.calls_elsewhere(&["eval", "valid", "test"])
    {
        let trainer = told.case.scripts.has(FactKind::TrainerBuilt);
        if !trainer {
            told.signal(&[label], -weight::FAIR, "The script does not evaluate.", &[]);
        }
    }
}

/// Branches for one rank that do nothing heavy speak for the item; what they do beyond saving and printing leaves it open.
fn nothing_heavy(told: &mut Told, heavy: bool) {
    if heavy || !told.case.scripts.is_whole() {
        return;
    }
    let branches = told.case.scripts.all(FactKind::RankBranch);
    let work: BTreeSet<RankWork> = branches
        .iter()
        .filter_map(|fact| if let Fact::RankBranch { work } = &fact.what { Some(work.clone()) } else { None })
        .flatten()
        .collect();
    let (light, open): (Vec<RankWork>, Vec<RankWork>) =
        work.into_iter().partition(|work| matches!(work, RankWork::Save | RankWork::HostCopy));
    let titles = |list: &[RankWork]| list.iter().map(|work| work.title()).collect::<Vec<_>>();
    if branches.is_empty() {
        return;
    }
    if open.is_empty() {
        let text = match titles(&light).as_slice() {
            [] => "What one rank does alone in the script is printing and the like.".to_owned(),
            some => format!("What one rank does alone in the script is {} and printing.", some.join(", ")),
        };
        told.ledger.status(ITEM, ItemStatus::Pass);
        told.claim(ITEM, None, Severity::Info, text, &branches);
    } else {
        let does_more = |fact: &&ScriptFact| match &fact.what {
            Fact::RankBranch { work } => work.iter().any(|work| open.contains(work)),
            _ => false,
        };
        let facts: Vec<&ScriptFact> = branches.iter().copied().filter(does_more).collect();
        let first = facts.first().map(|fact| place(told.case, fact)).unwrap_or_default();
        let text = format!(
            "A branch on the rank does more than saving and printing ({first}): {}. Whether that takes memory on one rank only, the script alone does not tell.",
            words::join_words(&titles(&open))
        );
        told.claim(ITEM, None, Severity::Info, text, &facts);
    }
}
