//! Snapshots of ranks that use alike and reserve apart: what one has above the others is its cache. Shown under
//! `memory_stats`.

use crate::case::Case;
use crate::combine::{Claim, Ledger};
use crate::imbalance::Source;
use crate::stats::lower_median;
use crate::words;
use rankscope_model::{Bytes, Item, ItemStatus, Quantity, Rank, Severity, SnapshotDevice, Subject};
use std::collections::BTreeMap;

const ITEM: Item = Item::MemoryStats;

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let of_snapshots = case.main.as_ref().filter(|(comparison, spread)| {
        comparison.source == Source::Snapshots
            && comparison.quantity == Quantity::Reserved
            && spread.stands_out()
            && !spread.is_low_outlier
    });
    let Some((comparison, spread)) = of_snapshots else { return };
    // Told already, where it is a large part of what the rank reserves.
    if ledger.status_of(ITEM) != ItemStatus::Unknown {
        return;
    }
    let Some(heavy) = spread.heaviest.first().copied() else { return };
    let in_use = in_use(case);
    let others: Vec<u64> = comparison
        .values
        .iter()
        .filter(|(subject, _)| *subject != heavy)
        .filter_map(|(subject, _)| in_use.get(subject).copied())
        .collect();
    let (Some(own), Some(usual)) = (in_use.get(&heavy), lower_median(&others)) else { return };
    let in_cache = spread.gap().saturating_sub(own.saturating_sub(usual));
    if (in_cache as f64) < spread.gap() as f64 * case.policy.explains_most {
        return;
    }
    let text = format!(
        "{} reserves {} more than {}, and {} of that are cached: what is in use is alike.",
        words::capital(&heavy.to_string()),
        Bytes(spread.gap()),
        if others.len() == 1 { "the other one" } else { "the median" },
        Bytes(in_cache)
    );
    ledger.status(ITEM, ItemStatus::Suspect);
    ledger.collect(ITEM, &[], crate::collect::snapshots());
    ledger.claim(Claim {
        item: ITEM,
        label: None,
        severity: Severity::Warning,
        confidence: 0.9,
        text,
        ranks: heavy.rank().into_iter().collect(),
        refs: case.refs(case.evidence.snapshots.iter().map(|snapshot| &snapshot.at)),
    });
}

/// Active bytes of each subject, of the device on which it reserves most.
fn in_use(case: &Case) -> BTreeMap<Subject, u64> {
    let mut found: BTreeMap<Subject, (u64, u64)> = BTreeMap::new();
    let mut add = |rank: Option<Rank>, device: &SnapshotDevice| {
        let subject = rank.map_or(Subject::Device(device.device), Subject::Rank);
        let new = (device.reserved.0, device.active.max(device.allocated).0);
        found.entry(subject).and_modify(|old| *old = new.max(*old)).or_insert(new);
    };
    for snapshot in &case.evidence.snapshots {
        snapshot.devices.iter().for_each(|device| add(snapshot.rank, device));
    }
    found.into_iter().map(|(subject, (_, in_use))| (subject, in_use)).collect()
}
