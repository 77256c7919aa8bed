//! Samplers: does each rank draw its own shard, and a new order each epoch?

use super::{Told, short};
use crate::policy::weight;
use crate::words;
use rankscope_model::{CauseLabel, Item, ItemStatus, ProbeFacts, ProbeLoader, ProbeSampler, Provenance, Severity};
use std::collections::{BTreeMap, BTreeSet};

const ITEM: Item = Item::DistributedSampler;
const LABEL: CauseLabel = CauseLabel::SamplerMissingOrNoSetEpoch;

/// Loaders that deal shards themselves, whatever their sampler.
const DEALERS: [&str; 3] = ["DataLoaderShard", "DataLoaderDispatcher", "DeepSpeedDataLoader"];

pub(super) fn apply(told: &mut Told) {
    let Some(world_size) = told.ranks.world_size.filter(|size| *size > 1) else { return };
    let facts: Vec<_> = told.ranks.facts().filter(|(_, facts, _)| !facts.loaders.is_empty()).collect();
    if facts.is_empty() {
        return;
    }
    let missing: Vec<_> = facts.iter().filter(|(_, facts, _)| draws_everything(facts)).copied().collect();
    if !missing.is_empty() {
        no_shards(told, &missing, world_size);
        return;
    }
    let dealt: Vec<Dealt> = facts.iter().filter_map(|(rank, facts, at)| Dealt::of(*rank, facts, at)).collect();
    if dealt.is_empty() {
        return;
    }
    if !wrong_shards(told, &dealt, world_size) {
        epochs(told, &dealt, world_size);
    }
}

/// No loader of the rank deals shards, and one has a sampler to tell it by.
fn draws_everything(facts: &ProbeFacts) -> bool {
    let deals = |loader: &ProbeLoader| {
        loader.iterable
            || loader.error.is_some()
            || DEALERS.contains(&short(&loader.class))
            || loader.samplers.iter().any(|sampler| sampler.num_replicas.is_some())
    };
    !facts.partial && !facts.loaders.iter().any(deals)
}

fn no_shards(told: &mut Told, missing: &[(u32, &ProbeFacts, &Provenance)], world_size: u32) {
    let ranks: Vec<u32> = missing.iter().map(|(rank, _, _)| *rank).collect();
    let refs = told.refs(missing.iter().map(|(_, _, at)| *at));
    let samples = missing.iter().flat_map(|(_, facts, _)| &facts.loaders).filter_map(|loader| loader.dataset_len).max();
    let what = samples.map_or_else(|| "the whole data set".to_owned(), |n| format!("all {n} samples"));
    let text = format!(
        "No loader of {} has a distributed sampler: each walks {what}, in a job of {world_size} ranks.",
        words::subjects(&subjects(&ranks))
    );
    told.ledger.signal(&[LABEL], weight::GOOD, &text, &refs);
    told.ledger.caveat(LABEL, "Ranks of one tensor-parallel or pipeline group are meant to draw the same data.");
    told.ledger.ranks(&[LABEL], &ranks);
    told.ledger.status(ITEM, ItemStatus::Fail);
    told.claim(ITEM, Some(LABEL), Severity::Warning, text, ranks, refs);
}

/// The training sampler of one rank: of those that deal shards the one that shuffles, else the first.
struct Dealt<'a> {
    rank: u32,
    loader: &'a ProbeLoader,
    sampler: &'a ProbeSampler,
    replicas: i64,
    shard: Option<i64>,
    train_steps: u64,
    at: &'a Provenance,
}

impl<'a> Dealt<'a> {
    fn of(rank: u32, facts: &'a ProbeFacts, at: &'a Provenance) -> Option<Self> {
        let pairs =
            facts.loaders.iter().flat_map(|loader| loader.samplers.iter().map(move |sampler| (loader, sampler)));
        let (loader, sampler) = pairs
            .filter(|(_, sampler)| sampler.num_replicas.is_some())
            .max_by_key(|(loader, sampler)| (sampler.shuffle == Some(true), loader.dataset_len))?;
        let replicas = sampler.num_replicas?;
        Some(Self { rank, loader, sampler, replicas, shard: sampler.rank, train_steps: facts.train_steps, at })
    }

    /// In its second pass or later, as far as the calls of `step` tell.
    fn is_past_first_pass(&self) -> bool {
        self.loader.batches.is_some_and(|batches| batches > 0 && self.train_steps > batches.saturating_add(1))
    }

    fn is_untold(&self) -> bool {
        self.sampler.shuffle == Some(true) && self.sampler.has_set_epoch && self.sampler.epoch == Some(0)
    }
}

/// Shards of another number of ranks, or one shard twice.
fn wrong_shards(told: &mut Told, dealt: &[Dealt], world_size: u32) -> bool {
    let mut drawn: BTreeMap<i64, Vec<&Dealt>> = BTreeMap::new();
    for one in dealt {
        drawn.entry(one.shard.unwrap_or(-1)).or_default().push(one);
    }
    let odd: Vec<&Dealt> = dealt.iter().filter(|one| one.replicas != i64::from(world_size)).collect();
    let twice =
        drawn.iter().find(|(shard, ranks)| **shard >= 0 && ranks.len() > 1).map(|(shard, ranks)| (*shard, ranks));
    let (text, involved, gain, status) = match (odd.first(), twice) {
        // Data-parallel groups are smaller than the job where the model is split as well.
        (Some(first), _) if first.replicas > 1 && i64::from(world_size) % first.replicas == 0 => {
            let text = format!(
                "Samplers deal to {} ranks in a job of {world_size}: right only if the model is split over the rest.",
                first.replicas
            );
            (text, odd.iter().map(|one| one.rank).collect::<Vec<_>>(), weight::FAINT, ItemStatus::Suspect)
        }
        (Some(first), _) => {
            let text = format!(
                "The sampler of rank {} deals to {} in a job of {world_size} ranks: it was made before the process group, or with a fixed number.",
                first.rank,
                words::counted(usize::try_from(first.replicas).unwrap_or(0), "rank", "ranks")
            );
            (text, odd.iter().map(|one| one.rank).collect(), weight::GOOD, ItemStatus::Fail)
        }
        (None, Some((shard, ranks))) => {
            let ranks: Vec<u32> = ranks.iter().map(|one| one.rank).collect();
            let text =
                format!("{} draw the same shard, number {shard}.", words::capital(&words::subjects(&subjects(&ranks))));
            (text, ranks, weight::GOOD, ItemStatus::Fail)
        }
        (None, None) => return false,
    };
    let refs = told.refs(dealt.iter().filter(|one| involved.contains(&one.rank)).map(|one| one.at));
    told.ledger.signal(&[LABEL], gain, &text, &refs);
    told.ledger.ranks(&[LABEL], &involved);
    told.ledger.status(ITEM, status);
    told.claim(ITEM, Some(LABEL), Severity::Warning, text, involved, refs);
    true
}

fn epochs(told: &mut Told, dealt: &[Dealt], world_size: u32) {
    let untold: Vec<&Dealt> = dealt.iter().filter(|one| one.is_past_first_pass() && one.is_untold()).collect();
    if let Some(first) = untold.first() {
        let ranks: Vec<u32> = untold.iter().map(|one| one.rank).collect();
        let refs = told.refs(untold.iter().map(|one| one.at));
        let text = format!(
            "set_epoch is never called: after {} steps of {} batches per pass the sampler of rank {} still deals epoch 0.",
            first.train_steps,
            first.loader.batches.unwrap_or(0),
            first.rank
        );
        told.ledger.signal(&[LABEL], weight::GOOD, &text, &refs);
        told.ledger.ranks(&[LABEL], &ranks);
        told.ledger.status(ITEM, ItemStatus::Fail);
        told.claim(ITEM, Some(LABEL), Severity::Warning, text, ranks, refs);
        return;
    }
    let Some(first) = dealt.first() else { return };
    let shards: BTreeSet<Option<i64>> = dealt.iter().map(|one| one.shard).collect();
    let is_complete = shards.len() == dealt.len() && dealt.len() >= 2;
    let is_told = dealt.iter().all(|one| one.sampler.shuffle != Some(true) || one.sampler.epoch.is_some_and(|e| e > 0));
    if !is_complete {
        return;
    }
    let refs = told.refs(dealt.iter().map(|one| one.at));
    let mut text = format!("Each of {} ranks draws a shard of its own ({})", dealt.len(), short(&first.sampler.class));
    text.push_str(if is_told {
        ", reshuffled each epoch."
    } else {
        "; only one pass was seen, so set_epoch is not shown."
    });
    text.push_str(&tail(first, world_size));
    told.ledger.signal(&[LABEL], if is_told { -weight::GOOD } else { -weight::FAIR }, &text, &refs);
    if is_told {
        told.ledger.status(ITEM, ItemStatus::Pass);
    }
    told.claim(ITEM, None, Severity::Info, text, dealt.iter().map(|one| one.rank).collect(), refs);
}

/// What becomes of samples that do not divide by the number of ranks.
fn tail(one: &Dealt, world_size: u32) -> String {
    let Some(rest) = one.loader.dataset_len.map(|samples| samples % u64::from(world_size)).filter(|rest| *rest > 0)
    else {
        return String::new();
    };
    match one.sampler.drop_last {
        Some(true) => format!(" The last {rest} samples are dropped."),
        _ => format!(" {} samples are dealt twice to fill the last round.", u64::from(world_size) - rest),
    }
}

fn subjects(ranks: &[u32]) -> Vec<rankscope_model::Subject> {
    ranks.iter().map(|rank| rankscope_model::Subject::Rank(rankscope_model::Rank(*rank))).collect()
}
