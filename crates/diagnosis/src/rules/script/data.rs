//! Samplers and loaders: does each rank draw its own shard, and a new one each epoch?

use super::{Told, place};
use crate::fixes;
use crate::policy::weight;
use rankscope_model::{
    CauseLabel, Fact, FactKind, Framework, Item, ItemStatus, LoaderRole, SamplerUse, ScriptFact, Severity,
};

const ITEM: Item = Item::DistributedSampler;
const LABEL: CauseLabel = CauseLabel::SamplerMissingOrNoSetEpoch;

pub(super) fn apply(told: &mut Told) {
    let scripts = &told.case.scripts;
    let owns_loop = !(scripts.uses(Framework::Lightning) || scripts.uses(Framework::HfTrainer));
    if !scripts.is_distributed() || !owns_loop {
        return;
    }
    let loaders: Vec<&ScriptFact> = scripts
        .all(FactKind::DataLoader)
        .into_iter()
        .filter(|fact| matches!(&fact.what, Fact::DataLoader { role, .. } if *role != LoaderRole::Eval))
        .collect();
    let deals = |fact: &ScriptFact| match &fact.what {
        Fact::DataLoader { sampler, .. } => Some(*sampler),
        _ => None,
    };
    let undealt: Vec<&ScriptFact> = loaders
        .iter()
        .copied()
        .filter(|fact| matches!(deals(fact), Some(SamplerUse::Absent | SamplerUse::NotDistributed)))
        // A role that is not told, beside a loader that is dealt, is most likely not the training loader.
        .filter(|fact| is_training(fact) || loaders.len() == 1)
        .collect();
    let samplers = scripts.all(FactKind::DistributedSampler);
    if let Some(first) = undealt.first().copied()
        && scripts.is_whole()
        && !(scripts.uses(Framework::Accelerate) || scripts.uses(Framework::LightningFabric))
    {
        let lost =
            samplers.iter().any(|fact| matches!(&fact.what, Fact::DistributedSampler { reaches_loader: false, .. }));
        let text = if lost {
            format!("A DistributedSampler is made but does not reach the loader at {}.", place(told.case, first))
        } else {
            format!(
                "The training loader at {} has no distributed sampler: every rank walks the whole data set.",
                place(told.case, first)
            )
        };
        told.signal(&[LABEL], weight::GOOD, &text, &undealt);
        told.ledger.status(ITEM, ItemStatus::Fail);
        told.claim(ITEM, Some(LABEL), Severity::Warning, text, &undealt);
        return;
    }
    epochs(told, &samplers);
}

fn is_training(fact: &ScriptFact) -> bool {
    matches!(&fact.what, Fact::DataLoader { role: LoaderRole::Train, .. })
}

/// A sampler that is never told the epoch deals the same order each time.
fn epochs(told: &mut Told, samplers: &[&ScriptFact]) {
    let reaching: Vec<&ScriptFact> = samplers
        .iter()
        .copied()
        .filter(|fact| matches!(&fact.what, Fact::DistributedSampler { reaches_loader: true, shuffle, .. } if *shuffle != Some(false)))
        .collect();
    let loops = told.case.scripts.all(FactKind::EpochLoop);
    let (Some(sampler), Some(epochs)) = (reaching.first().copied(), loops.first().copied()) else { return };
    let tells_epoch = |fact: &&ScriptFact| matches!(&fact.what, Fact::DistributedSampler { has_set_epoch: true, .. });
    if reaching.iter().any(tells_epoch) || told.case.scripts.has(FactKind::SetEpoch) {
        let text =
            format!("Each rank draws its own shard ({}) and reshuffles it each epoch.", place(told.case, sampler));
        let mut facts = vec![sampler];
        facts.extend(told.case.scripts.all(FactKind::SetEpoch).into_iter().take(1));
        told.signal(&[LABEL], -weight::GOOD, &text, &facts);
        told.ledger.status(ITEM, ItemStatus::Pass);
        told.claim(ITEM, None, Severity::Info, text, &facts);
    } else if told.case.scripts.is_whole() {
        let text = format!(
            "set_epoch is never called: the sampler at {} deals the same order in every epoch of the loop at {}.",
            place(told.case, sampler),
            place(told.case, epochs)
        );
        told.signal(&[LABEL], weight::GOOD, &text, &[sampler, epochs]);
        told.ledger.status(ITEM, ItemStatus::Fail);
        told.claim(ITEM, Some(LABEL), Severity::Warning, text, &[sampler, epochs]);
        told.fix(LABEL, fixes::set_epoch(told.case.evidence, epochs, sampler));
    }
}
