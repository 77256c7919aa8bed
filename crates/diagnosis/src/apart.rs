//! What other processes hold on a card is no part of what one rank's own allocator holds: it cannot be why that rank has
//! allocated more than the others, however true it is.
//!
//! Knows what the labels mean (causes.md), and which quantity is compared.

use crate::case::Case;
use crate::combine::Ledger;
use crate::policy::weight;
use rankscope_model::{CauseLabel, Quantity};

/// Causes that fill a card with memory of other processes than the one at home there.
const BY_OTHERS: [CauseLabel; 9] = [
    CauseLabel::CtxNoSetDevice,
    CauseLabel::CkptNoMapLocation,
    CauseLabel::HelperThreadOrLibCtx,
    CauseLabel::SingleGpuJobIdleContexts,
    CauseLabel::RankGpuMapping,
    CauseLabel::CtxInWorkerProcesses,
    CauseLabel::OtherTenant,
    CauseLabel::ZombieLeftover,
    CauseLabel::ColocatedEngineOrDeviceMap,
];

/// The label stands beside the gap that is compared, and cannot explain it.
pub(crate) fn is_beside(case: &Case, label: CauseLabel) -> bool {
    let of_allocator = |quantity| {
        matches!(
            quantity,
            Quantity::Allocated
                | Quantity::PeakAllocated
                | Quantity::Reserved
                | Quantity::PeakReserved
                | Quantity::Active
                | Quantity::Requested
        )
    };
    let is_compared = |(comparison, spread): &(crate::imbalance::Comparison, crate::imbalance::Spread)| {
        spread.stands_out() && of_allocator(comparison.quantity)
    };
    BY_OTHERS.contains(&label) && case.main.as_ref().is_some_and(is_compared)
}

/// Says so against every such label that anything speaks for.
pub(crate) fn hold_apart(case: &Case, ledger: &mut Ledger) {
    for label in ledger.supported(f64::MIN_POSITIVE).into_iter().filter(|label| is_beside(case, *label)) {
        let text = "What other processes hold on the card is no part of what PyTorch holds in this one: it cannot be this gap.";
        ledger.signal(&[label], -weight::STRONG, text, &[]);
    }
}
