//! Phases that only some ranks went through. Where peaks of a phase are known, `rank_only_work` reads them; here it is
//! the phase alone that tells.

use super::Told;
use crate::policy::weight;
use crate::steps::{Key, is_training};
use crate::words;
use rankscope_model::{Bytes, CauseLabel, Item, ItemStatus, Phase, Quantity, Rank, Severity, Subject};

const ITEM: Item = Item::RankOnlyWork;

pub(super) fn apply(told: &mut Told) {
    // Some steps of training on every rank, so that a log that has only begun accuses nobody.
    let long: Vec<u32> = told
        .ranks
        .by_rank
        .iter()
        .filter(|(_, probe)| probe.train_steps >= told.case.policy.even_steps as u64)
        .map(|(rank, _)| *rank)
        .collect();
    if long.len() < 2 {
        return;
    }
    one_sided(told, &long, Phase::Eval);
    one_sided(told, &long, Phase::Save);
}

/// `; the peak there is 12.0 GiB, in training 9.0 GiB`, where the log has both.
fn peak_there(told: &Told, who: &[Subject], phase: Phase) -> String {
    let steps = &told.case.steps;
    let peak = |keep: &dyn Fn(&Key) -> bool| {
        let peaks = steps.peaks(Quantity::PeakAllocated, keep);
        peaks.into_iter().filter(|(subject, _)| who.contains(subject)).map(|(_, peak)| peak).max()
    };
    match (peak(&|key| key.phase == Some(phase)), peak(&is_training)) {
        (Some(there), Some(training)) => {
            format!("; the peak there is {}, in training {}", Bytes(there), Bytes(training))
        }
        _ => String::new(),
    }
}

fn one_sided(told: &mut Told, long: &[u32], phase: Phase) {
    let of = |rank: &u32| told.ranks.by_rank.get(rank).and_then(|p| p.phases.iter().find(|(own, _)| *own == phase));
    let in_it: Vec<u32> = long.iter().copied().filter(|rank| of(rank).is_some()).collect();
    if in_it.is_empty() || in_it.len() == long.len() {
        return;
    }
    let refs = told.refs(in_it.iter().filter_map(|rank| of(rank).map(|(_, at)| at)));
    let who: Vec<Subject> = in_it.iter().map(|rank| Subject::Rank(Rank(*rank))).collect();
    let (label, doing) = match phase {
        Phase::Save => (CauseLabel::CkptStateGather, "saved"),
        _ => (CauseLabel::Rank0Eval, "evaluated"),
    };
    let text = format!(
        "Only {} of {} ranks {doing}: {}{}.",
        words::count(in_it.len()),
        words::count(long.len()),
        words::subjects(&who),
        peak_there(told, &who, phase)
    );
    // One rank usually writes the file; that is a burden only where memory shows it.
    let (gain, status) = match phase {
        Phase::Save => (weight::FAINT, None),
        _ => (weight::FAIR, Some(ItemStatus::Suspect)),
    };
    told.ledger.signal(&[label], gain, &text, &refs);
    told.ledger.ranks(&[label], &in_it);
    if let Some(status) = status {
        told.ledger.status(ITEM, status);
    }
    told.claim(ITEM, Some(label), Severity::Info, text, in_it, refs);
}
