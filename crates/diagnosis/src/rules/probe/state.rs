//! What ranks hold for good: optimizer state, buffers, and modules that others do not have.

use super::{Ranks, Told, short};
use crate::combine::Mechanism;
use crate::policy::weight;
use crate::stats::lower_median;
use rankscope_model::{Bytes, CauseLabel, EvidenceRef, Item, ItemStatus, ProbeFacts, Severity};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn apply(told: &mut Told) {
    optimizer(told);
    stray_parameters(told);
    buffers(told);
    twins(told);
}

/// `(rank, bytes)` of every rank whose objects were seen whole.
fn per_rank(ranks: &Ranks, bytes: impl Fn(&ProbeFacts) -> u64) -> Vec<(u32, u64)> {
    ranks.facts().filter(|(_, facts, _)| !facts.partial).map(|(rank, facts, _)| (rank, bytes(facts))).collect()
}

/// The rank with most, if it differs from the median: (rank, bytes, median).
fn heaviest(told: &Told, values: &[(u32, u64)]) -> Option<(u32, u64, u64)> {
    let bytes: Vec<u64> = values.iter().map(|(_, bytes)| *bytes).collect();
    let median = lower_median(&bytes)?;
    let (rank, most) = values.iter().copied().max_by_key(|(rank, bytes)| (*bytes, std::cmp::Reverse(*rank)))?;
    (values.len() >= 2 && told.case.policy.differs(most, median)).then_some((rank, most, median))
}

/// One rank holds that many bytes of something beyond the median rank: `text` says so, and the item fails.
fn holds_more(
    told: &mut Told,
    (item, label): (Item, CauseLabel),
    rank: u32,
    (more, what): (u64, &str),
    text: String,
    refs: Vec<EvidenceRef>,
) {
    told.ledger.signal(&[label], weight::STRONG, &text, &refs);
    told.ledger.ranks(&[label], &[rank]);
    let because = format!("it holds {} more {what}", Bytes(more));
    told.ledger.mechanism(&[label], &Mechanism { because, alone: text.clone(), explained: Some(more) });
    told.ledger.status(item, ItemStatus::Fail);
    told.claim(item, Some(label), Severity::Critical, text, vec![rank], refs);
}

fn optimizer(told: &mut Told) {
    let on_devices = per_rank(&told.ranks, |facts| {
        facts.optimizers.iter().fold(0, |sum, one| sum.saturating_add(one.state_on_devices()))
    });
    let all =
        per_rank(&told.ranks, |facts| facts.optimizers.iter().fold(0, |sum, one| sum.saturating_add(one.state())));
    let label = CauseLabel::OptimizerOrWrapOrder;
    if let Some((rank, most, median)) = heaviest(told, &on_devices) {
        let refs = refs_of(told, &[rank]);
        let text = format!(
            "Rank {rank} holds {} of optimizer state on its card, the median rank {}.",
            Bytes(most),
            Bytes(median)
        );
        holds_more(told, (Item::OptimizerState, label), rank, (most - median, "optimizer state"), text, refs);
    } else if let [(_, first), rest @ ..] = all.as_slice()
        && *first > 0
        && !rest.is_empty()
        && rest.iter().all(|(_, bytes)| bytes == first)
    {
        let ranks: Vec<u32> = all.iter().map(|(rank, _)| *rank).collect();
        let refs = refs_of(told, &ranks);
        let text = format!("All {} ranks hold the same {} of optimizer state.", ranks.len(), Bytes(*first));
        told.ledger.signal(&[label], -weight::FAIR, &text, &refs);
        told.ledger.status(Item::OptimizerState, ItemStatus::Pass);
        told.claim(Item::OptimizerState, None, Severity::Info, text, ranks, refs);
    }
}

/// An optimizer that was built before the model was wrapped or made anew updates tensors that no module has, and keeps
/// state for them.
fn stray_parameters(told: &mut Told) {
    /// The probe describes this many modules: with as many, a parameter may be of one it left out.
    const DESCRIBED: usize = 8;
    let found = told.ranks.facts().find_map(|(rank, facts, at)| {
        let whole = !facts.partial && !facts.modules.is_empty() && facts.modules.len() < DESCRIBED;
        let is_stray = |one: &&rankscope_model::ProbeOptimizer| one.stray.saturating_mul(2) > one.parameters;
        let optimizer = facts.optimizers.iter().find(is_stray).filter(|_| whole)?;
        Some((rank, optimizer, at))
    });
    let Some((rank, optimizer, at)) = found else { return };
    let label = CauseLabel::OptimizerOrWrapOrder;
    let refs = told.refs([at]);
    let text = format!(
        "{} of the {} parameters in {} of rank {rank} are in no module: it was built before the model was wrapped or made anew.",
        optimizer.stray,
        optimizer.parameters,
        short(&optimizer.class)
    );
    told.ledger.signal(&[label], weight::FAIR, &text, &refs);
    told.ledger.status(Item::OptimizerState, ItemStatus::Suspect);
    told.claim(Item::OptimizerState, Some(label), Severity::Warning, text, vec![rank], refs);
}

/// Buffers, by name, that lie on the card of some ranks only.
fn buffers(told: &mut Told) {
    let totals = per_rank(&told.ranks, |facts| {
        facts.modules.iter().fold(0, |sum, module| sum.saturating_add(module.buffers.on_devices()))
    });
    let label = CauseLabel::Rank0AuxBuffers;
    if let Some((rank, most, median)) = heaviest(told, &totals) {
        let own = told.ranks.facts().find(|(r, _, _)| *r == rank).and_then(|(_, facts, _)| {
            let largest =
                facts.modules.iter().flat_map(|module| module.buffers.largest.iter().map(move |b| (module, b)));
            largest.filter(|(_, buffer)| buffer.device != "cpu").max_by_key(|(_, buffer)| buffer.bytes)
        });
        let named = own.map_or_else(String::new, |(module, buffer)| {
            format!("; the largest is {} of {}, {}", buffer.name, short(&module.class), Bytes(buffer.bytes))
        });
        let refs = refs_of(told, &[rank]);
        let text = format!(
            "Rank {rank} holds {} of buffers on its card, the median rank {}{named}.",
            Bytes(most),
            Bytes(median)
        );
        holds_more(told, (Item::UnsyncedBuffers, label), rank, (most - median, "buffers"), text, refs);
    }
}

/// Modules compared by the digests of their parameters and buffers.
fn twins(told: &mut Told) {
    let whole: Vec<_> =
        told.ranks.facts().filter(|(_, facts, _)| !facts.partial && !facts.modules.is_empty()).collect();
    if whole.len() < 2 {
        return;
    }
    let print = |facts: &ProbeFacts| -> Vec<(String, Option<String>, Option<String>)> {
        let of = |module: &rankscope_model::ProbeModule| {
            (module.class.clone(), module.parameters.digest.clone(), module.buffers.digest.clone())
        };
        let mut list: Vec<_> = facts.modules.iter().map(of).collect();
        list.sort();
        list
    };
    let prints: BTreeSet<_> = whole.iter().map(|(_, facts, _)| print(facts)).collect();
    let ranks: Vec<u32> = whole.iter().map(|(rank, _, _)| *rank).collect();
    let refs = refs_of(told, &ranks);
    if prints.len() == 1 {
        let text = format!("Modules, parameters and buffers are the same on all {} ranks.", ranks.len());
        told.ledger.signal(
            &[CauseLabel::Rank0AuxBuffers, CauseLabel::ShardedInitAsymmetry],
            -weight::FAIR,
            &text,
            &refs,
        );
        told.ledger.status(Item::UnsyncedBuffers, ItemStatus::Pass);
        told.claim(Item::UnsyncedBuffers, None, Severity::Info, text, ranks, refs);
        return;
    }
    if told.ranks.is_sharded() || prints.len() * 2 > whole.len() && whole.len() > 2 {
        // Parts that differ on purpose: shards, or stages of a pipeline.
        return;
    }
    let held: Vec<(u32, BTreeMap<String, u64>)> =
        whole.iter().map(|(rank, facts, _)| (*rank, by_class(facts))).collect();
    let lone = held.iter().flat_map(|(rank, own)| own.iter().map(move |(class, bytes)| (*rank, class, *bytes)));
    let lone = lone
        .filter(|(rank, class, _)| {
            held.iter().filter(|(other, _)| other != rank).all(|(_, own)| !own.contains_key(*class))
        })
        .max_by_key(|(_, _, bytes)| *bytes);
    let label = CauseLabel::Rank0AuxBuffers;
    if let Some((rank, class, bytes)) = lone {
        let refs = refs_of(told, &[rank]);
        let text = format!("Only rank {rank} has {} ({} on its card).", short(class), Bytes(bytes));
        let weighs = told.case.policy.differs(bytes, 0);
        told.ledger.signal(&[label], if weighs { weight::GOOD } else { weight::FAINT }, &text, &refs);
        told.ledger.ranks(&[label], &[rank]);
        told.ledger.status(Item::UnsyncedBuffers, if weighs { ItemStatus::Fail } else { ItemStatus::Suspect });
        let severity = if weighs { Severity::Critical } else { Severity::Info };
        told.claim(Item::UnsyncedBuffers, Some(label), severity, text, vec![rank], refs);
    } else {
        let text = different_groups(&whole).unwrap_or_else(|| {
            "Modules, parameters or buffers differ between ranks in names, shapes or types.".to_owned()
        });
        told.ledger.status(Item::UnsyncedBuffers, ItemStatus::Suspect);
        told.claim(Item::UnsyncedBuffers, None, Severity::Warning, text, ranks, refs);
    }
}

/// Bytes on devices by class of module.
fn by_class(facts: &ProbeFacts) -> BTreeMap<String, u64> {
    let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
    for module in &facts.modules {
        let own = module.parameters.on_devices().saturating_add(module.buffers.on_devices());
        let sum = bytes.entry(module.class.clone()).or_default();
        *sum = sum.saturating_add(own);
    }
    bytes
}

/// The first submodule whose parameters have no twin on the first rank.
fn different_groups(whole: &[(u32, &ProbeFacts, &rankscope_model::Provenance)]) -> Option<String> {
    let (base, rest) = whole.split_first()?;
    let groups = |facts: &ProbeFacts| -> BTreeMap<String, (String, u64)> {
        let all = facts.modules.iter().flat_map(|module| module.groups.iter().map(move |group| (module, group)));
        all.map(|(module, group)| {
            (format!("{} {}", short(&module.class), group.name), (group.digest.clone(), group.bytes))
        })
        .collect()
    };
    let known = groups(base.1);
    for (rank, facts, _) in rest {
        for (name, (digest, bytes)) in groups(facts) {
            if known.get(&name).is_none_or(|(of_base, _)| *of_base != digest) {
                return Some(format!(
                    "Parameters of {} ({}) on rank {rank} have no twin on rank {}.",
                    name.trim_end(),
                    Bytes(bytes),
                    base.0
                ));
            }
        }
    }
    None
}

fn refs_of(told: &Told, ranks: &[u32]) -> Vec<EvidenceRef> {
    let places: Vec<_> = told.ranks.facts().filter(|(rank, _, _)| ranks.contains(rank)).map(|(_, _, at)| at).collect();
    told.refs(places)
}
