//! What became of each cause.

use crate::policy::Policy;
use rankscope_model::{CauseFate, CauseLabel, ComparedCause, Diagnosis, ItemStatus};
use std::collections::BTreeSet;

/// Causes that either run names with some confidence: what remains and what is new first. `even_now`: the ranks are fed
/// nearly alike after the fix. Then what is left of uneven batches is what packing leaves, and no cause.
pub(super) fn compared(base: &Diagnosis, head: &Diagnosis, even_now: bool, policy: &Policy) -> Vec<ComparedCause> {
    let confidence = |diagnosis: &Diagnosis, label: CauseLabel| {
        diagnosis.causes.iter().find(|cause| cause.label == label).map_or(0.0, |cause| cause.confidence)
    };
    let labels: BTreeSet<CauseLabel> =
        base.causes.iter().chain(&head.causes).filter(|c| c.confidence > 0.0).map(|cause| cause.label).collect();
    let mut found: Vec<ComparedCause> = labels
        .into_iter()
        .filter_map(|label| {
            let (before, after) = (confidence(base, label), confidence(head, label));
            let fate = match (before >= policy.followed_cause, after >= policy.followed_cause) {
                (false, false) => return None,
                (true, true) if even_now && is_about_batches(label) => CauseFate::Gone,
                (false, true) if even_now && is_about_batches(label) => return None,
                (true, true) => CauseFate::Remains,
                (false, true) => CauseFate::New,
                (true, false) if speaks_of(head, label) => CauseFate::Gone,
                (true, false) => CauseFate::NotSeen,
            };
            Some(ComparedCause { label, fate, base_confidence: before, head_confidence: after })
        })
        .collect();
    found.sort_by(|a, b| {
        let weight = |cause: &ComparedCause| cause.base_confidence.max(cause.head_confidence);
        a.fate.cmp(&b.fate).then(weight(b).total_cmp(&weight(a)))
    });
    found
}

fn is_about_batches(label: CauseLabel) -> bool {
    matches!(label, CauseLabel::VariableShapeBatches | CauseLabel::UnevenBatchSplit)
}

/// The run has evidence about the item under which the cause stands.
fn speaks_of(diagnosis: &Diagnosis, label: CauseLabel) -> bool {
    let entry = diagnosis.checklist.iter().find(|entry| entry.item == label.item());
    entry.is_some_and(|entry| entry.status != ItemStatus::Unknown)
}
