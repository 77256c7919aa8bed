//! Item `distributed_init`: nothing is put on a GPU before the process group exists. Memory can only hint at it: one
//! rank that is ahead of the others before the first step.

use crate::case::Case;
use crate::combine::{Claim, Ledger};
use crate::imbalance::{Comparison, Source};
use crate::policy::weight;
use crate::words;
use rankscope_model::{Bytes, CauseLabel, Item, ItemStatus, Phase, Quantity, Rank, Severity, Subject};
use std::collections::BTreeMap;

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    for quantity in [Quantity::Allocated, Quantity::Reserved, Quantity::PeakAllocated] {
        let values = case.steps.peaks(quantity, |key| key.phase == Some(Phase::Init));
        let comparison =
            Comparison { quantity, values, capacities: BTreeMap::new(), left_out: vec![], source: Source::Steps };
        let Some(spread) = comparison.spread(case.policy) else { continue };
        let heavy = spread.heaviest.first().copied();
        if heavy != Some(Subject::Rank(Rank(0))) || spread.is_low_outlier {
            continue;
        }
        let records = case.steps.records().filter(|(key, _)| key.phase == Some(Phase::Init)).map(|(_, row)| row);
        let refs = case.step_refs(records);
        let text = format!(
            "Before the first step rank 0 has {} {} against a median of {} over {} ranks.",
            Bytes(spread.max),
            quantity.title(),
            Bytes(spread.median),
            words::count(comparison.values.len())
        );
        ledger.signal(
            &[CauseLabel::HardcodedOrDefaultDevice, CauseLabel::CkptNoMapLocation],
            weight::FAIR,
            &text,
            &refs,
        );
        ledger.signal(&[CauseLabel::Rank0AuxBuffers], weight::FAIR, &text, &refs);
        ledger.status(Item::DistributedInit, ItemStatus::Suspect);
        ledger.claim(Claim {
            item: Item::DistributedInit,
            label: None,
            severity: Severity::Warning,
            confidence: 0.9,
            text,
            ranks: vec![0],
            refs,
        });
        return;
    }
}
