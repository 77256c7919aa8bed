//! Item `accumulation_checkpointing`: the same accumulation and checkpointing everywhere. Between ranks only the script
//! tells; between two runs, equal batches with peaks that all ranks raise alike do.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::policy::weight;
use crate::stats::lower_median;
use crate::steps::is_training;
use rankscope_model::{ArtifactId, Bytes, CauseLabel, Item, ItemStatus, Severity, StepRecord, Subject};
use std::collections::{BTreeMap, BTreeSet};

const ITEM: Item = Item::AccumulationCheckpointing;
const LABEL: CauseLabel = CauseLabel::GradAccumOrCkptInconsistent;

/// One file with records of all ranks.
struct Run<'a> {
    peaks: BTreeMap<Subject, u64>,
    standing: Vec<u64>,
    shapes: BTreeSet<&'a Vec<u64>>,
    records: Vec<&'a StepRecord>,
}

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let mut runs: BTreeMap<ArtifactId, Run> = BTreeMap::new();
    for (_, row) in case.steps.records().filter(|(key, _)| is_training(key)) {
        let run = runs.entry(row.at.artifact).or_insert_with(|| Run {
            peaks: BTreeMap::new(),
            standing: Vec::new(),
            shapes: BTreeSet::new(),
            records: Vec::new(),
        });
        if let Some(peak) = row.peak_allocated {
            let old = run.peaks.entry(row.subject).or_insert(0);
            *old = (*old).max(peak.0);
        }
        run.standing.extend(row.allocated.map(|b| b.0));
        run.shapes.extend(&row.batch_shape);
        run.records.push(row);
    }
    let whole: Vec<Run> =
        runs.into_values().filter(|r| r.peaks.len() >= 2 && r.peaks.len() == case.steps.subjects.len()).collect();
    let [a, b] = whole.as_slice() else { return };
    let (low, high) = if a.peaks.values().max() <= b.peaks.values().max() { (a, b) } else { (b, a) };
    let raised = low
        .peaks
        .iter()
        .all(|(subject, peak)| high.peaks.get(subject).is_some_and(|other| case.policy.differs(*other, *peak)));
    let same_input = !low.shapes.is_empty() && low.shapes == high.shapes;
    let same_standing = match (lower_median(&low.standing), lower_median(&high.standing)) {
        (Some(a), Some(b)) => !case.policy.differs(a.max(b), a.min(b)),
        _ => false,
    };
    if !raised || !same_input || !same_standing {
        return;
    }
    let top = |run: &Run| Bytes(run.peaks.values().max().copied().unwrap_or(0));
    let refs = case.step_refs(high.records.iter().chain(&low.records).copied());
    let text = format!(
        "Two runs with equal batches and equal memory between steps peak at {} and {} on all ranks.",
        top(low),
        top(high)
    );
    ledger.signal(&[LABEL], weight::STRONG, &text, &refs);
    ledger
        .caveat(LABEL, "All ranks rise alike, so this is no imbalance; another model or precision could do the same.");
    ledger.mechanism(
        &[LABEL],
        &Mechanism {
            because: "gradients or activations are kept differently".to_owned(),
            alone: format!("{text} Gradients or activations are kept differently."),
            explained: None,
        },
    );
    ledger.status(ITEM, ItemStatus::Suspect);
    ledger.claim(Claim {
        item: ITEM,
        label: Some(LABEL),
        severity: Severity::Warning,
        confidence: 0.8,
        text,
        ranks: vec![],
        refs,
    });
}
