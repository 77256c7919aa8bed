//! One process on several cards: `DataParallel`, or a job that is not distributed at all. Shown under
//! `rank_only_work` and `device_visibility`.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::policy::weight;
use crate::stats::lower_median;
use crate::tables::is_one_process_job;
use crate::words;
use rankscope_model::{CauseLabel, Item, ItemStatus, Severity, Subject};

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let Some((_, view)) = case.focus().filter(|(_, view)| view.lists_processes()) else { return };
    if !is_one_process_job(view, case.policy) {
        return;
    }
    let Some((pid, process)) = view.processes.iter().next() else { return };
    let (Some(home), Some(home_bytes)) = (process.home, process.home_bytes()) else { return };
    let others: Vec<(Subject, u64)> = process
        .rows
        .iter()
        .filter(|row| row.subject != home)
        .filter_map(|row| Some((row.subject, row.used?.0)))
        .collect();
    let sizes: Vec<u64> = others.iter().map(|(_, bytes)| *bytes).collect();
    let Some(typical) = lower_median(&sizes) else { return };
    let refs = case.refs(process.rows.iter().map(|row| &row.at));
    let only_contexts = sizes.iter().all(|bytes| *bytes <= case.policy.context_max.0);
    let utilisation: Vec<u8> = others.iter().filter_map(|(s, _)| view.gpu(*s)?.row.utilization_percent).collect();
    let others_idle = !utilisation.is_empty() && utilisation.iter().all(|percent| *percent == 0);
    let places: Vec<Subject> = process.rows.iter().map(|row| row.subject).collect();
    let text = format!(
        "One process (PID {pid}) is on {}: {} on {home}, {} on the others.",
        words::subjects(&places),
        rankscope_model::Bytes(home_bytes),
        words::sizes(&sizes)
    );

    if only_contexts && others_idle {
        let label = CauseLabel::SingleGpuJobIdleContexts;
        ledger.signal(&[label], weight::DECISIVE, &text, &refs);
        ledger.signal(&[label], weight::FAIR, "The other GPUs hold a context and are at 0 % utilisation.", &refs);
        ledger.signal(&[CauseLabel::DataparallelMaster], weight::FAINT, &text, &refs);
        ledger.signal(
            &[CauseLabel::DataparallelMaster],
            -weight::FAIR,
            "Replicas would compute; the others are at 0 % utilisation.",
            &refs,
        );
        ledger.mechanism(
            &[label],
            &Mechanism {
                because: "one process does all the work there and only opened contexts on the others".to_owned(),
                alone: format!("One process works on {home} alone and only opened contexts on the other GPUs."),
                explained: Some(home_bytes.saturating_sub(typical)),
            },
        );
        ledger.status(Item::DeviceVisibility, ItemStatus::Fail);
        claim(ledger, Item::DeviceVisibility, label, text, refs);
    } else if case.policy.differs(home_bytes, typical) {
        let label = CauseLabel::DataparallelMaster;
        let unequal = places.iter().filter_map(|s| view.gpu(*s)?.total).collect::<Vec<_>>();
        let is_unequal = !crate::tables::all_same_capacity(&unequal, case.policy);
        let gain = if is_unequal { weight::GOOD } else { weight::DECISIVE };
        ledger.signal(&[label], gain, &text, &refs);
        if is_unequal {
            ledger.caveat(label, "The cards differ in size, so a fuller card alone does not show a master.");
        }
        if !others_idle && !utilisation.is_empty() {
            ledger.signal(&[label], weight::FAINT, "The other GPUs compute as well: replicas of one process.", &refs);
        }
        if places.iter().any(|place| *place < home) {
            ledger.signal(
                &[label],
                -weight::FAIR,
                format!("{home} is not the first GPU; the master usually is."),
                &refs,
            );
        }
        ledger.signal(&[CauseLabel::Rank0AuxBuffers], weight::FAIR, &text, &refs);
        ledger.mechanism(
            &[label],
            &Mechanism {
                because: format!(
                    "one process works on {} and gathers outputs and gradients there",
                    words::all_of(places.len(), "cards")
                ),
                alone: format!("One process works on {} and gathers on {home}.", words::subjects(&places)),
                explained: Some(home_bytes.saturating_sub(typical)),
            },
        );
        ledger.status(Item::RankOnlyWork, ItemStatus::Fail);
        claim(ledger, Item::RankOnlyWork, label, text, refs);
    } else {
        return;
    }
    // There are no ranks whose start or shards could be wrong.
    ledger.status(Item::DistributedInit, ItemStatus::NotApplicable);
    ledger.status(Item::DistributedSampler, ItemStatus::NotApplicable);
}

fn claim(ledger: &mut Ledger, item: Item, label: CauseLabel, text: String, refs: Vec<rankscope_model::EvidenceRef>) {
    ledger.claim(Claim {
        item,
        label: Some(label),
        severity: Severity::Critical,
        confidence: 0.95,
        text,
        ranks: vec![],
        refs,
    });
}
