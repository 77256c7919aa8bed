//! Figures that cannot be: a rank that reserves more than any card of the job has.
//!
//! Such a figure is damage or belongs to another machine, and is said rather than explained.

use crate::case::Case;
use crate::combine::{Claim, Ledger};
use rankscope_model::{Bytes, Item, MOST_BYTES, Severity};

/// Holds the snapshots against the largest capacity that any other evidence tells, or against what any machine has.
pub(crate) fn note_impossible(case: &Case, ledger: &mut Ledger) {
    let tables = case.tables.iter().flat_map(|view| &view.gpus).filter_map(|gpu| gpu.total).map(Bytes);
    let messages = case.evidence.ooms.iter().filter(|oom| !oom.host_memory).filter_map(|oom| oom.total);
    let traces = case.evidence.traces.iter().filter_map(|trace| trace.capacity);
    let known = tables.chain(messages).chain(traces).filter(|bytes| bytes.0 > 0).max();
    let capacity = known.unwrap_or(MOST_BYTES);
    let whose = if known.is_some() { "the largest known card has" } else { "any machine has" };
    for snapshot in &case.evidence.snapshots {
        for device in snapshot.devices.iter().filter(|device| device.reserved > capacity) {
            let who = snapshot
                .rank
                .map_or_else(|| format!("device {} of a snapshot", device.device), |rank| format!("rank {}", rank.0));
            let text = format!(
                "{} reserved on {who} is more than {whose} ({capacity}), which is not possible: the snapshot is damaged, \
                 or of another machine than the rest.",
                device.reserved
            );
            ledger.claim(Claim {
                item: Item::MemoryStats,
                label: None,
                severity: Severity::Warning,
                confidence: 1.0,
                text,
                ranks: snapshot.rank.map(|rank| rank.0).into_iter().collect(),
                refs: case.refs([&snapshot.at]),
            });
        }
    }
}
