//! Which GPU each rank takes: what it sees, which card its log names, which one it has made current, and what NCCL finds.
//! Shown under `device_visibility`.

use super::{facts, suspect};
use crate::case::Case;
use crate::combine::{Ledger, Mechanism};
use crate::policy::weight;
use crate::words;
use rankscope_model::{CauseLabel, ItemStatus, LaunchFact, LaunchSetting, Rank, Subject};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    one_device_each(case, ledger);
    physical_gpus(case, ledger);
    current_devices(case, ledger);
    shared_gpu(case, ledger);
}

/// Every process sees one GPU only: nobody can stray. Or two see the same.
fn one_device_each(case: &Case, ledger: &mut Ledger) {
    let mut of_rank: BTreeMap<u32, (&LaunchFact, &str)> = BTreeMap::new();
    for fact in facts(case) {
        if let (Some(rank), LaunchSetting::VisibleDevices(list)) = (fact.rank, &fact.what) {
            let [only] = list.as_slice() else { return };
            of_rank.insert(rank.0, (fact, only));
        }
    }
    if of_rank.len() < 2 {
        return;
    }
    let refs = case.refs(of_rank.values().map(|(fact, _)| &fact.at));
    let distinct = tally(of_rank.values().map(|(_, device)| *device));
    let ranks = words::counted(of_rank.len(), "rank", "ranks");
    let nodes = nodes_of(case, of_rank.keys().copied());
    if distinct.len() < of_rank.len() && nodes.is_some_and(|nodes| distinct.values().all(|ranks| *ranks <= nodes)) {
        let text = format!("Each of {ranks} sees one GPU, and no other rank of its node sees it.");
        ledger.signal(&[CauseLabel::RankGpuMapping, CauseLabel::CtxNoSetDevice], -weight::STRONG, &text, &refs);
        suspect(ledger, ItemStatus::Pass, None, text, refs);
    } else if distinct.len() == of_rank.len() {
        let text = format!("Each of {ranks} sees one GPU, and each another one.");
        let strays = [
            CauseLabel::CtxNoSetDevice,
            CauseLabel::HelperThreadOrLibCtx,
            CauseLabel::HardcodedOrDefaultDevice,
            CauseLabel::CkptNoMapLocation,
            CauseLabel::RankGpuMapping,
        ];
        ledger.signal(&strays, -weight::STRONG, &text, &refs);
        suspect(ledger, ItemStatus::Pass, None, text, refs);
    } else if distinct.len() == 1 {
        let device = distinct.keys().next().copied().unwrap_or_default();
        let text = format!("All of {ranks} see GPU {device} and no other; on one node they share it.");
        ledger.signal(&[CauseLabel::RankGpuMapping], weight::GOOD, &text, &refs);
        suspect(ledger, ItemStatus::Suspect, Some(CauseLabel::RankGpuMapping), text, refs);
    }
}

/// Each rank's log names the card that it works on: several on one, or each on all.
fn physical_gpus(case: &Case, ledger: &mut Ledger) {
    let mut of_rank: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    let mut places: Vec<&LaunchFact> = Vec::new();
    for fact in facts(case) {
        if let (Some(rank), LaunchSetting::PhysicalGpu(bus)) = (fact.rank, &fact.what) {
            of_rank.entry(rank.0).or_default().insert(bus);
            places.push(fact);
        }
    }
    let cards: BTreeSet<&str> = of_rank.values().flatten().copied().collect();
    if of_rank.len() < 2 {
        return;
    }
    let refs = case.refs(places.iter().map(|fact| &fact.at));
    let ranks = words::counted(of_rank.len(), "rank", "ranks");
    if cards.len() >= 2 && of_rank.values().all(|own| *own == cards) {
        let text = format!("Each of {ranks} opens all {} GPUs in its log.", words::count(cards.len()));
        ledger.signal(&[CauseLabel::FrameworkPrealloc], weight::GOOD, &text, &refs);
        ledger.signal(&[CauseLabel::RankGpuMapping], weight::FAIR, &text, &refs);
        suspect(ledger, ItemStatus::Suspect, None, text, refs);
        return;
    }
    let alone = tally(of_rank.values().filter(|own| own.len() == 1).flatten().copied());
    let crowd: Vec<(usize, &str)> = cards.iter().map(|card| (alone.get(card).copied().unwrap_or(0), *card)).collect();
    let (Some(most), Some(least)) = (crowd.iter().max(), crowd.iter().min()) else { return };
    let label = CauseLabel::RankGpuMapping;
    if most.0 < 2 {
        let text = format!("Each of {ranks} names another GPU as its own in the log.");
        ledger.signal(&[label], -weight::STRONG, &text, &refs);
        suspect(ledger, ItemStatus::Pass, None, text, refs);
        return;
    }
    // Bus ids are the same on equal nodes: as many ranks on each card may be as many nodes, unless the host is told.
    let tells_hosts = cards.iter().all(|card| card.contains('@'));
    if cards.len() >= 2 && most.0 == least.0 && !tells_hosts {
        return;
    }
    let many = most.0 >= 3;
    let text = format!(
        "{} work on the GPU with bus id {}, as their logs say{}.",
        words::capital(&words::counted(most.0, "rank", "ranks")),
        bus_id(most.1),
        if cards.len() == 1 { ", and none on another" } else { "" }
    );
    ledger.signal(&[label], if many { weight::STRONG } else { weight::GOOD }, &text, &refs);
    if !tells_hosts {
        ledger.caveat(label, "Nodes with one GPU each show the same bus id; the host names in the log tell.");
    }
    let because = "several ranks work on it".to_owned();
    ledger.mechanism(&[label], &Mechanism { because, alone: text.clone(), explained: None });
    suspect(ledger, if many { ItemStatus::Fail } else { ItemStatus::Suspect }, Some(label), text, refs);
}

/// `1a000` of `1a000@node7`.
fn bus_id(gpu: &str) -> &str {
    gpu.split('@').next().unwrap_or(gpu)
}

/// On how many nodes these ranks are, by the numbers that they have on their nodes; `None` where one has none. As many
/// ranks as share a number are on as many nodes.
fn nodes_of(case: &Case, ranks: impl Iterator<Item = u32>) -> Option<usize> {
    let mut local: BTreeMap<u32, u32> = BTreeMap::new();
    for fact in facts(case) {
        if let (Some(rank), LaunchSetting::LocalRank(number)) = (fact.rank, &fact.what) {
            local.insert(rank.0, *number);
        }
    }
    let numbers: Option<Vec<u32>> = ranks.map(|rank| local.get(&rank).copied()).collect();
    tally(numbers?.into_iter()).values().copied().max()
}

/// How often each comes.
fn tally<K: Ord>(all: impl Iterator<Item = K>) -> BTreeMap<K, usize> {
    let mut counts = BTreeMap::new();
    for one in all {
        *counts.entry(one).or_default() += 1;
    }
    counts
}

/// Each rank printed the GPU that it has made current: one for each, or one for several.
fn current_devices(case: &Case, ledger: &mut Ledger) {
    let mut current: BTreeMap<u32, (&LaunchFact, u32)> = BTreeMap::new();
    let mut visible: BTreeMap<u32, &[String]> = BTreeMap::new();
    let mut contradiction: Option<[&LaunchFact; 2]> = None;
    for fact in facts(case) {
        let Some(rank) = fact.rank.map(|rank| rank.0) else { continue };
        // The last one counts: a program may print before it chooses, and again after.
        match &fact.what {
            LaunchSetting::CurrentDevice(device) => {
                let before = current.insert(rank, (fact, *device));
                let differs = before.filter(|(old, was)| was != device && old.at.artifact != fact.at.artifact);
                contradiction = contradiction.or(differs.map(|(old, _)| [old, fact]));
            }
            LaunchSetting::VisibleDevices(list) => drop(visible.insert(rank, list)),
            _ => {}
        }
    }
    // Which of two files is the older nobody says.
    if let Some([one, other]) = contradiction {
        let name = |fact: &LaunchFact| case.evidence.artifact_name(fact.at.artifact);
        let (one, other, refs) = (name(one), name(other), case.refs([&one.at, &other.at]));
        let text = format!(
            "{} and {} tell different current devices of the same ranks: if they are of two runs, upload each as its own.",
            one.min(other),
            one.max(other)
        );
        suspect(ledger, ItemStatus::Unknown, None, text, refs);
        return;
    }
    // A process that sees one GPU has no choice: what it sees was judged above.
    let has_choice = |rank: &u32| visible.get(rank).is_none_or(|list| list.len() != 1);
    if current.len() < 2 || !current.keys().all(has_choice) {
        return;
    }
    // The number among the visible GPUs, or the name of the GPU where all ranks tell what they see.
    let all_see = current.keys().all(|rank| visible.contains_key(rank));
    let name = |rank: u32, device: u32| {
        let seen = visible.get(&rank).filter(|_| all_see);
        seen.and_then(|list| list.get(usize::try_from(device).ok()?).cloned()).unwrap_or_else(|| device.to_string())
    };
    let mut on: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (rank, (_, device)) in &current {
        on.entry(name(*rank, *device)).or_default().push(*rank);
    }
    let nodes = nodes_of(case, current.keys().copied());
    let Some((gpu, crowd)) = on.iter().max_by_key(|(_, ranks)| ranks.len()) else { return };
    let refs = case.refs(current.values().map(|(fact, _)| &fact.at));
    let ranks = words::counted(current.len(), "rank", "ranks");
    let strays = [CauseLabel::CtxNoSetDevice, CauseLabel::HardcodedOrDefaultDevice];
    if crowd.len() == 1 || nodes.is_some_and(|nodes| crowd.len() <= nodes) {
        let text = format!("Each of {ranks} has a GPU of its own as its current device.");
        ledger.signal(&[CauseLabel::RankGpuMapping], -weight::STRONG, &text, &refs);
        ledger.signal(&strays, -weight::GOOD, &text, &refs);
        suspect(ledger, ItemStatus::Pass, None, text, refs);
        return;
    }
    // As many ranks on each GPU may be as many nodes.
    let fewest = on.values().map(Vec::len).min();
    if nodes.is_none() && on.len() >= 2 && fewest == Some(crowd.len()) {
        return;
    }
    let is_all = crowd.len() == current.len();
    let who = if is_all {
        format!("All of {ranks}")
    } else {
        words::capital(&words::subjects(&crowd.iter().map(|rank| Subject::Rank(Rank(*rank))).collect::<Vec<_>>()))
    };
    let text = format!("{who} have GPU {gpu} as their current device.");
    ledger.signal(&strays, weight::GOOD, &text, &refs);
    ledger.signal(&[CauseLabel::RankGpuMapping], weight::GOOD, &text, &refs);
    let labels = [CauseLabel::CtxNoSetDevice, CauseLabel::HardcodedOrDefaultDevice, CauseLabel::RankGpuMapping];
    if nodes.is_none() {
        for label in labels {
            ledger.caveat(label, "Nodes with one GPU each print the same number; the host names in the log tell.");
        }
    }
    let because = format!("{} have it as their current device", words::counted(crowd.len(), "rank", "ranks"));
    ledger.mechanism(&labels, &Mechanism { because, alone: text.clone(), explained: None });
    suspect(ledger, ItemStatus::Suspect, None, text, refs);
}

/// NCCL says it outright.
fn shared_gpu(case: &Case, ledger: &mut Ledger) {
    let told = facts(case).find_map(|fact| match fact.what {
        LaunchSetting::SharedGpu { one, other } => Some((fact, one.min(other), one.max(other))),
        _ => None,
    });
    let Some((fact, one, other)) = told else { return };
    let refs = case.refs([&fact.at]);
    let text = format!("NCCL finds ranks {one} and {other} on the same GPU.");
    let label = CauseLabel::RankGpuMapping;
    ledger.signal(&[label], weight::DECISIVE, &text, &refs);
    ledger.ranks(&[label], &[one, other]);
    let because = "two ranks are on it".to_owned();
    ledger.mechanism(&[label], &Mechanism { because, alone: text.clone(), explained: None });
    suspect(ledger, ItemStatus::Fail, Some(label), text, refs);
}
