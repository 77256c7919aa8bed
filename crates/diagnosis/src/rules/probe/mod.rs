//! What the probe saw of the live objects of each rank: loaders and samplers, wrappers, optimizers, buffers, devices.
//!
//! Unlike a script, which says what can happen, these are facts of the run. They still weigh by what memory shows:
//! state that differs by less than noise makes no card fuller. Batches and peaks of the same logs are step records,
//! which the rules of those items read.

mod burden;
mod data;
mod placement;
mod state;

use crate::case::Case;
use crate::combine::{Claim, Ledger};
use rankscope_model::{CauseLabel, EvidenceRef, Item, ProbeEvidence, ProbeFacts, Provenance, Severity};
use std::collections::BTreeMap;

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let ranks = Ranks::new(case);
    if ranks.by_rank.is_empty() {
        return;
    }
    let mut told = Told { case, ledger, ranks };
    placement::apply(&mut told);
    data::apply(&mut told);
    state::apply(&mut told);
    burden::apply(&mut told);
}

/// One process per rank: the latest, where a rank was started again.
struct Ranks<'a> {
    by_rank: BTreeMap<u32, &'a ProbeEvidence>,
    /// Processes of the job, where one of them knows.
    world_size: Option<u32>,
}

impl<'a> Ranks<'a> {
    fn new(case: &Case<'a>) -> Self {
        let mut by_rank: BTreeMap<u32, &'a ProbeEvidence> = BTreeMap::new();
        for probe in &case.evidence.probes {
            by_rank
                .entry(probe.rank.0)
                .and_modify(|known| {
                    if probe.at.time >= known.at.time {
                        *known = probe;
                    }
                })
                .or_insert(probe);
        }
        let group = |probe: &&ProbeEvidence| {
            let of_group = probe.facts.as_ref().and_then(|facts| facts.dist.as_ref()?.world_size);
            of_group.or(probe.start.world_size)
        };
        let world_size = by_rank.values().filter_map(group).max();
        Self { by_rank, world_size }
    }

    /// Ranks whose objects were looked at, with what was found.
    fn facts(&self) -> impl Iterator<Item = (u32, &'a ProbeFacts, &'a Provenance)> {
        self.by_rank.iter().filter_map(|(rank, probe)| Some((*rank, probe.facts.as_ref()?, probe.facts_at.as_ref()?)))
    }

    /// Each rank holds a part of the model on purpose: sharded, or one stage of a pipeline.
    fn is_sharded(&self) -> bool {
        self.facts().any(|(_, facts, _)| {
            facts.wrappers.iter().any(|wrapper| matches!(wrapper.kind.as_str(), "fsdp" | "fsdp2" | "deepspeed"))
                || facts.optimizers.iter().any(|optimizer| optimizer.class.contains("ZeroRedundancy"))
        })
    }
}

/// The ledger as these rules write to it.
struct Told<'c, 'a, 'l> {
    case: &'c Case<'a>,
    ledger: &'l mut Ledger,
    ranks: Ranks<'a>,
}

impl Told<'_, '_, '_> {
    fn claim(
        &mut self,
        item: Item,
        label: Option<CauseLabel>,
        severity: Severity,
        text: String,
        ranks: Vec<u32>,
        refs: Vec<EvidenceRef>,
    ) {
        self.ledger.claim(Claim { item, label, severity, confidence: 0.95, text, ranks, refs });
    }

    fn refs<'p>(&self, places: impl IntoIterator<Item = &'p Provenance>) -> Vec<EvidenceRef> {
        self.case.refs(places)
    }
}

/// The last word of a class name, which is what people call it.
fn short(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}
