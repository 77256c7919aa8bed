//! Item `optimizer_state`: every rank holds the same optimizer state. Decided by call sites in the snapshots of
//! several ranks.

use crate::case::Case;
use crate::combine::{Claim, Ledger};
use crate::sites;
use rankscope_model::{CauseLabel, Item, ItemStatus, Severity};

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let Some(sites) = sites::compare(case.evidence, case.policy) else { return };
    let is_uneven = sites.lone.iter().any(|site| site.label == CauseLabel::OptimizerOrWrapOrder);
    if is_uneven || !sites.has_optimizer {
        return; // Uneven sites are told by `unsynced_buffers`, which looks at all of them.
    }
    ledger.status(Item::OptimizerState, ItemStatus::Pass);
    ledger.claim(Claim {
        item: Item::OptimizerState,
        label: None,
        severity: Severity::Info,
        confidence: 0.8,
        text: format!(
            "Optimizer state is among the largest call sites of all {} ranks, with equal bytes.",
            sites.ranks.len()
        ),
        ranks: sites.ranks.clone(),
        refs: case.refs(sites.places.iter().copied()),
    });
}
