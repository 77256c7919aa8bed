//! What other processes hold on a card is no part of what one rank's own allocator holds: it cannot be why that rank has
//! allocated more than the others, however true it is. It stays a finding, and is no cause of this gap.
//!
//! Knows what the labels mean (causes.md), and which quantity is compared.

use crate::case::Case;
use crate::combine::{Claim, Ledger};
use rankscope_model::{Bytes, CauseLabel, Item, Quantity, Severity};

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
fn is_beside(case: &Case, label: CauseLabel) -> bool {
    let Some(gap) = gap_of_allocator(case) else { return false };
    match label {
        CauseLabel::HardcodedOrDefaultDevice => strays(case).is_some_and(|strays| is_too_little(case, strays, gap)),
        label => BY_OTHERS.contains(&label),
    }
}

/// The gap, where it is one of figures that a rank's own allocator tells.
fn gap_of_allocator(case: &Case) -> Option<u64> {
    let (comparison, spread) = case.main.as_ref()?;
    (is_of_allocator(comparison.quantity) && spread.stands_out()).then(|| spread.gap())
}

fn is_of_allocator(quantity: Quantity) -> bool {
    matches!(
        quantity,
        Quantity::Allocated
            | Quantity::PeakAllocated
            | Quantity::Reserved
            | Quantity::PeakReserved
            | Quantity::Active
            | Quantity::Requested
    )
}

/// What code that names one device would put there in every process, the rank at home on it included: no more than one
/// process that is at home elsewhere holds there besides its context. `None` where no such row has a size.
fn strays(case: &Case) -> Option<u64> {
    let (_, view) = case.focus()?;
    let rows = view.gpus.iter().flat_map(|gpu| view.visitors(gpu.subject, case.policy));
    let most = rows.filter_map(|row| row.used).max()?;
    Some(most.0.saturating_sub(case.policy.context_least.0))
}

/// Rows that may well be nothing but contexts would have to be most of the gap; tensors have to be a part of it.
fn is_too_little(case: &Case, strays: u64, gap: u64) -> bool {
    let could_be_contexts = strays <= case.policy.context_max.0.saturating_sub(case.policy.context_least.0);
    let least = if could_be_contexts { case.policy.explains_most } else { case.policy.explains_little };
    (strays as f64) < gap as f64 * least
}

/// How much of the gap rows of visitors explain that hold `sum` together. What others hold fills the card; of what the
/// rank's own allocator holds they only show how much the same code put there in each process.
pub(crate) fn explained_by_visitors(case: &Case, sum: Option<u64>) -> Option<u64> {
    if gap_of_allocator(case).is_some() { strays(case) } else { sum }
}

/// What is asked of this item tells who else is on a card: never why a gap of this quantity is there.
pub(crate) fn tells_only_of_others(quantity: Quantity, item: Item) -> bool {
    is_of_allocator(quantity) && item == Item::DeviceVisibility
}

/// Sets every such label aside for which anything speaks, and says why, once.
pub(crate) fn hold_apart(case: &Case, ledger: &mut Ledger) {
    let mut labels = ledger.supported(f64::MIN_POSITIVE);
    labels.retain(|label| is_beside(case, *label));
    let Some(first) = labels.first() else { return };
    let item = first.item();
    let strays = strays(case).filter(|_| labels.contains(&CauseLabel::HardcodedOrDefaultDevice));
    let end = strays.map_or_else(
        || ": it cannot be this gap.".to_owned(),
        |strays| {
            let strays = Bytes(strays);
            format!(". The same code would put no more than {strays} there in each process, which cannot be this gap.")
        },
    );
    for label in labels {
        ledger.set_aside(label);
    }
    ledger.claim(Claim {
        item,
        label: None,
        severity: Severity::Info,
        confidence: 1.0,
        text: format!("What other processes hold on the card is no part of what PyTorch holds in this one{end}"),
        ranks: vec![],
        refs: vec![],
    });
}
