//! Optimizers and wrapping, sharded initialisation, other engines, growth, streams, pre-allocation.

use super::{Told, place};
use crate::fixes;
use crate::policy::weight;
use rankscope_model::{CauseLabel, Fact, FactKind, Framework, Item, ItemStatus, Kept, ScriptFact, Severity};

pub(super) fn apply(told: &mut Told) {
    wrap_order(told);
    sharded_init(told);
    engines(told);
    growth(told);
    accumulation(told);
    allocator(told);
    preallocation(told);
    structure(told);
}

/// The optimizer of a sharded model must be built from the wrapped parameters.
fn wrap_order(told: &mut Told) {
    let label = CauseLabel::OptimizerOrWrapOrder;
    let optimizers = told.case.scripts.all(FactKind::OptimizerBuilt);
    let sharded = told.case.scripts.all(FactKind::WrapFsdp);
    let before = |wraps: &[&'_ ScriptFact]| {
        wraps.iter().find_map(|wrap| {
            let earlier = optimizers.iter().find(|opt| {
                told.case.scripts.precedes(opt, wrap) == Some(true) && of_same_model(&opt.what, &wrap.what)
            })?;
            Some((earlier.at.clone(), wrap.at.clone()))
        })
    };
    if let Some((opt, wrap)) = before(&sharded) {
        let facts: Vec<&ScriptFact> =
            optimizers.iter().chain(&sharded).copied().filter(|fact| fact.at == opt || fact.at == wrap).collect();
        let at = |index: usize| facts.get(index).map(|fact| place(told.case, fact)).unwrap_or_default();
        let text = format!(
            "The optimizer is built at {} and the model is sharded at {}: it keeps the whole parameters alive.",
            at(0),
            at(1)
        );
        told.certain(&[label], weight::STRONG, &text, &facts);
        told.ledger.status(Item::OptimizerState, ItemStatus::Fail);
        told.claim(Item::OptimizerState, Some(label), Severity::Warning, text, &facts);
        return;
    }
    let wraps: Vec<&ScriptFact> = sharded.into_iter().chain(told.case.scripts.all(FactKind::WrapDdp)).collect();
    let (Some(opt), Some(wrap)) = (optimizers.first().copied(), wraps.first().copied()) else { return };
    if told.case.scripts.precedes(wrap, opt) == Some(true) {
        let text = format!(
            "The optimizer is built ({}) after the model is wrapped ({}).",
            place(told.case, opt),
            place(told.case, wrap)
        );
        told.signal(&[label], -weight::GOOD, &text, &[wrap, opt]);
        told.ledger.status(Item::OptimizerState, ItemStatus::Pass);
        told.claim(Item::OptimizerState, None, Severity::Info, text, &[wrap, opt]);
    }
}

/// The optimizer takes the parameters of the model that is wrapped, as far as names tell.
fn of_same_model(optimizer: &Fact, wrap: &Fact) -> bool {
    let (Fact::OptimizerBuilt { models, sharded, .. }, Fact::WrapFsdp { model, .. }) = (optimizer, wrap) else {
        return false;
    };
    !sharded && (models.is_empty() || models.contains(model))
}

fn sharded_init(told: &mut Told) {
    let label = CauseLabel::ShardedInitAsymmetry;
    let facts = told.case.scripts.all(FactKind::RankDependentInit);
    if let Some(first) = facts.first().copied() {
        let text = format!("Ranks make the model in different ways ({}).", place(told.case, first));
        told.signal(&[label], weight::STRONG, &text, &facts);
        told.ledger.status(Item::OptimizerState, ItemStatus::Suspect);
        told.claim(Item::OptimizerState, Some(label), Severity::Warning, text, &facts);
    }
}

fn engines(told: &mut Told) {
    let label = CauseLabel::ColocatedEngineOrDeviceMap;
    let facts = told.case.scripts.all(FactKind::EngineBuilt);
    if let Some(first) = facts.first().copied() {
        let text = format!("An inference engine is built in the same job ({}).", place(told.case, first));
        told.signal(&[label], weight::GOOD, &text, &facts);
        told.claim(Item::DeviceVisibility, Some(label), Severity::Info, text, &facts);
    }
}

fn growth(told: &mut Told) {
    let label = CauseLabel::PerStepLeak;
    let facts = told.case.scripts.all(FactKind::Accumulation);
    let growing = |reset: bool| {
        facts
            .iter()
            .copied()
            .filter(move |fact| {
                matches!(&fact.what, Fact::Accumulation { training: true, keeps: Kept::Graph, is_reset, .. } if *is_reset == reset)
            })
            .collect::<Vec<_>>()
    };
    let (endless, within_epoch) = (growing(false), growing(true));
    let (found, gain, until) = if endless.is_empty() {
        (within_epoch, weight::FAIR, "until the end of the epoch")
    } else {
        (endless, weight::GOOD, "for the whole run")
    };
    if let Some(first) = found.first().copied()
        && let Fact::Accumulation { target, value, .. } = &first.what
    {
        let text = format!("{target} keeps `{value}` with its graph {until} ({}).", place(told.case, first));
        told.signal(&[label], gain, &text, &found);
        told.ledger.status(Item::MemoryStats, ItemStatus::Suspect);
        told.claim(Item::MemoryStats, Some(label), Severity::Warning, text, &found);
        told.fix(label, fixes::keep_no_graph(told.case.evidence, first));
    }
}

fn accumulation(told: &mut Told) {
    let label = CauseLabel::GradAccumOrCkptInconsistent;
    let item = Item::AccumulationCheckpointing;
    let facts: Vec<&ScriptFact> = [FactKind::NoSync, FactKind::Checkpointing, FactKind::GradAccumulation]
        .iter()
        .flat_map(|kind| told.case.scripts.all(*kind))
        .collect();
    let lone: Vec<&ScriptFact> = facts.iter().copied().filter(|fact| told.case.scripts.is_rank_only(fact)).collect();
    if let Some(first) = lone.first().copied() {
        let text = format!("Accumulation or checkpointing depends on the rank ({}).", place(told.case, first));
        told.signal(&[label], weight::GOOD, &text, &lone);
        told.ledger.status(item, ItemStatus::Suspect);
        told.claim(item, Some(label), Severity::Warning, text, &lone);
        return;
    }
    let no_sync = told.case.scripts.all(FactKind::NoSync);
    if !no_sync.is_empty() && told.case.scripts.uses(Framework::Fsdp) {
        let text = "no_sync on a sharded model keeps whole gradients on every rank while it accumulates.";
        told.signal(&[label], weight::GOOD, text, &no_sync);
    }
    if let Some(first) = facts.first().copied() {
        let text = format!("Accumulation and checkpointing are the same on all ranks ({}).", place(told.case, first));
        told.ledger.status(item, ItemStatus::Pass);
        told.claim(item, None, Severity::Info, text, &facts);
    } else if told.case.scripts.is_whole() {
        let text = "The script neither accumulates gradients nor checkpoints activations.";
        told.signal(&[label], -weight::FAIR, text, &[]);
    }
}

fn allocator(told: &mut Told) {
    let streams = told.case.scripts.all(FactKind::SideStream);
    if !streams.is_empty() {
        let text = "The script uses streams beside the default one.";
        told.signal(&[CauseLabel::StreamHeldBlocks], weight::FAIR, text, &streams);
    }
    let benchmark = told.case.scripts.all(FactKind::CudnnBenchmark);
    if !benchmark.is_empty() {
        let text = "cudnn.benchmark tries algorithms with large workspaces on every new shape.";
        told.signal(&[CauseLabel::CudnnWorkspace], weight::GOOD, text, &benchmark);
    }
}

fn preallocation(told: &mut Told) {
    let label = CauseLabel::FrameworkPrealloc;
    let scripts = &told.case.scripts;
    let takes_all = scripts.uses(Framework::TensorFlow) || scripts.uses(Framework::Jax);
    let settings = scripts.all(FactKind::MemoryGrowth);
    let on_demand: Vec<&ScriptFact> = settings
        .iter()
        .copied()
        .filter(|fact| matches!(&fact.what, Fact::MemoryGrowth { on_demand: true, .. }))
        .collect();
    let is_mirrored = |fact: &&ScriptFact| matches!(&fact.what, Fact::TrainerBuilt { class, .. } if class.ends_with("MirroredStrategy"));
    let mirrored: Vec<&ScriptFact> = scripts.all(FactKind::TrainerBuilt).into_iter().filter(is_mirrored).collect();
    if !mirrored.is_empty() {
        let text =
            "A mirrored strategy keeps equal replicas and reduces between all of them: no card gathers for the rest.";
        told.signal(&[CauseLabel::DataparallelMaster], -weight::GOOD, text, &mirrored);
    }
    if !on_demand.is_empty() {
        told.signal(&[label], -weight::GOOD, "The script lets the framework grow on demand.", &on_demand);
    } else if takes_all {
        let text = "TensorFlow and JAX take nearly the whole card at start unless they are told not to.";
        told.signal(&[label], weight::GOOD, text, &[]);
    } else if scripts.is_whole() && scripts.uses(Framework::Torch) {
        told.signal(&[label], -weight::FAIR, "PyTorch takes memory as it needs it.", &[]);
    }
}

/// Structures that make ranks differ by design. They are rare, so where one is there and ranks differ though their
/// batches do not, it is the first thing to look at.
fn structure(told: &mut Told) {
    let differ = told.case.main.as_ref().is_some_and(|(_, spread)| spread.stands_out());
    let is_steady = told.case.input.uneven_elements == 0;
    for (framework, label, text) in [
        (Framework::Pipeline, CauseLabel::PipelineStageImbalance, "The model is cut into pipeline stages."),
        (
            Framework::MixtureOfExperts,
            CauseLabel::MoeRoutingImbalance,
            "The model routes tokens to experts on other ranks.",
        ),
        (Framework::TorchRec, CauseLabel::EmbeddingTableSharding, "Embedding tables are dealt over the ranks."),
    ] {
        if !told.case.scripts.uses(framework) {
            continue;
        }
        let refs = told.case.refs(told.case.scripts.using(framework).map(|script| &script.at));
        let gain = match (label, differ && is_steady) {
            // Tables are dealt once and stay; routed tokens change with the batch.
            (CauseLabel::EmbeddingTableSharding, true) => weight::STRONG,
            (_, true) => weight::GOOD,
            (_, false) => weight::FAIR,
        };
        told.held_down(&[label], gain, (gain, weight::FAINT), text, &refs);
    }
}
