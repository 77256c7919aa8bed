//! Item `distributed_sampler`: each rank draws its own shard and reshuffles it. Batch sizes show when it does not:
//! they repeat from epoch to epoch, or are the same on all ranks.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::policy::weight;
use crate::words;
use rankscope_model::{CauseLabel, Item, ItemStatus, Severity};

const ITEM: Item = Item::DistributedSampler;
const LABEL: CauseLabel = CauseLabel::SamplerMissingOrNoSetEpoch;

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let input = &case.input;
    let refs = || case.batch_refs();
    if let Some(period) = input.period {
        let text = format!(
            "The batch sizes of {} repeat exactly every {period} batches.",
            words::all_of(input.ranks, "ranks")
        );
        let refs = refs();
        ledger.signal(&[LABEL], weight::DECISIVE, &text, &refs);
        ledger.signal(&[LABEL], weight::FAIR, "A reshuffled epoch would not repeat: set_epoch is missing.", &refs);
        ledger.caveat(LABEL, "A data set that is walked in a fixed order on purpose looks the same.");
        if input.follows(case.policy) && input.uneven_elements > 0 {
            let reason = "So the same rank is the heavy one at the same step of every epoch.";
            ledger.signal(&[LABEL], weight::FAIR, reason, &refs);
            let against =
                "Under a reshuffled sampler the long batches would move from epoch to epoch; here they return.";
            ledger.signal(&[CauseLabel::VariableShapeBatches], -weight::FAIR, against, &refs);
            ledger.mechanism(
                &[LABEL],
                &Mechanism {
                    because: "every epoch deals the same large batches".to_owned(),
                    alone: "Every epoch deals the same batches to the same ranks.".to_owned(),
                    explained: None,
                },
            );
        }
        ledger.status(ITEM, ItemStatus::Fail);
        claim(ledger, Severity::Warning, 0.9, text, refs);
    } else if input.identical && input.steps >= case.policy.follow_points {
        let text = format!(
            "All {} ranks have batches of the same changing size at each of {} steps: they may draw the same data.",
            input.ranks, input.steps
        );
        ledger.status(ITEM, ItemStatus::Suspect);
        claim(ledger, Severity::Warning, 0.5, text, refs());
    } else if input.varies && !input.identical && case.steps.passes().len() >= 2 {
        let files: std::collections::BTreeSet<_> = case.steps.records().map(|(_, row)| row.at.artifact).collect();
        // Passes from several files may be several runs; they say nothing of epochs.
        if files.len() == 1 {
            let text = format!(
                "Batch sizes differ between ranks and between {} passes: shards are separate and reshuffled.",
                case.steps.passes().len()
            );
            ledger.status(ITEM, ItemStatus::Pass);
            claim(ledger, Severity::Info, 0.8, text, refs());
        }
    }
}

fn claim(
    ledger: &mut Ledger,
    severity: Severity,
    confidence: f64,
    text: String,
    refs: Vec<rankscope_model::EvidenceRef>,
) {
    let label = (severity != Severity::Info).then_some(LABEL);
    ledger.claim(Claim { item: ITEM, label, severity, confidence, text, ranks: vec![], refs });
}
