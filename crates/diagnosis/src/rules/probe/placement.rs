//! Devices: does a process hold tensors on one card of its own, and is it one process per card?

use super::Told;
use crate::policy::weight;
use crate::words;
use rankscope_model::{Bytes, CauseLabel, Item, ItemStatus, ProbeDevice, ProbeEvidence, Rank, Severity, Subject};
use std::collections::BTreeMap;

pub(super) fn apply(told: &mut Told) {
    data_parallel(told);
    several_cards(told);
    shared_card(told);
}

/// One process that replicates its model over cards.
fn data_parallel(told: &mut Told) {
    let found = told.ranks.facts().find_map(|(rank, facts, at)| {
        let wrapper = facts.wrappers.iter().find(|wrapper| wrapper.kind == "data_parallel")?;
        let cards = wrapper.device_ids.as_ref().map_or(0, Vec::len);
        (cards > 1).then(|| (rank, cards, wrapper.output_device.unwrap_or(0), at))
    });
    let Some((rank, cards, output, at)) = found else { return };
    let label = CauseLabel::DataparallelMaster;
    let refs = told.refs([at]);
    let text = format!(
        "The model is wrapped in DataParallel over {cards} cards: outputs, gradients and the master copy gather on GPU {output}."
    );
    told.ledger.signal(&[label], weight::DECISIVE, &text, &refs);
    told.ledger.ranks(&[label], &[rank]);
    told.ledger.status(Item::RankOnlyWork, ItemStatus::Fail);
    told.claim(Item::RankOnlyWork, Some(label), Severity::Critical, text, vec![rank], refs);
    if told.ranks.world_size.unwrap_or(1) == 1 {
        // There are no ranks whose start or shards could be wrong.
        told.ledger.status(Item::DistributedInit, ItemStatus::NotApplicable);
        told.ledger.status(Item::DistributedSampler, ItemStatus::NotApplicable);
    }
}

/// Tensors of one rank on several cards, where nothing replicates it there on purpose.
fn several_cards(told: &mut Told) {
    let strays: Vec<_> = told
        .ranks
        .facts()
        .filter(|(_, facts, _)| facts.devices.len() > 1 && !facts.wrappers.iter().any(|w| w.kind == "data_parallel"))
        .collect();
    let Some((rank, facts, _)) = strays.first() else { return };
    let home = facts.devices.iter().max_by_key(|device| device.reserved);
    let away: Vec<&ProbeDevice> = facts.devices.iter().filter(|device| Some(*device) != home).collect();
    let Some((home, first)) = home.zip(away.first()) else { return };
    let text = format!(
        "Rank {rank} works on GPU {} and also holds {} of tensors on GPU {} (as it numbers them).",
        home.index,
        first.reserved.unwrap_or(Bytes(0)),
        first.index
    );
    let ranks: Vec<u32> = strays.iter().map(|(rank, _, _)| *rank).collect();
    let refs = told.refs(strays.iter().map(|(_, _, at)| *at));
    let labels = [CauseLabel::HardcodedOrDefaultDevice, CauseLabel::CkptNoMapLocation];
    told.ledger.signal(&labels, weight::GOOD, &text, &refs);
    for label in labels {
        told.ledger.caveat(label, "A model that is split over cards on purpose looks the same.");
    }
    told.ledger.ranks(&labels, &ranks);
    told.ledger.status(Item::DeviceVisibility, ItemStatus::Fail);
    told.claim(Item::DeviceVisibility, Some(labels[0]), Severity::Critical, text, ranks, refs);
}

/// Two ranks of a host with the same card as their largest.
fn shared_card(told: &mut Told) {
    let mut cards: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (rank, probe) in &told.ranks.by_rank {
        if let Some(card) = card_of(probe) {
            cards.entry(card).or_default().push(*rank);
        }
    }
    let Some(ranks) = cards.into_values().find(|ranks| ranks.len() > 1) else { return };
    let label = CauseLabel::RankGpuMapping;
    let list: Vec<Subject> = ranks.iter().map(|rank| Subject::Rank(Rank(*rank))).collect();
    let text = format!("{} hold their tensors on the same card.", words::capital(&words::subjects(&list)));
    let places: Vec<_> = told.ranks.facts().filter(|(rank, _, _)| ranks.contains(rank)).map(|(_, _, at)| at).collect();
    let refs = told.refs(places);
    told.ledger.signal(&[label], weight::DECISIVE, &text, &refs);
    told.ledger.ranks(&[label], &ranks);
    told.ledger.status(Item::DeviceVisibility, ItemStatus::Fail);
    told.claim(Item::DeviceVisibility, Some(label), Severity::Critical, text, ranks, refs);
}

/// Which physical card a rank works on: by UUID, else by host, visible list and ordinal.
fn card_of(probe: &ProbeEvidence) -> Option<String> {
    let device = probe.facts.as_ref()?.devices.iter().max_by_key(|device| device.reserved)?;
    if let Some(uuid) = &device.uuid {
        return Some(uuid.clone());
    }
    let host = probe.start.host.as_ref()?;
    let visible = probe.start.environment.get("CUDA_VISIBLE_DEVICES").map(String::as_str).unwrap_or_default();
    Some(format!("{host} {visible} {}", device.index))
}
