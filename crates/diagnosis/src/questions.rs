//! The second question before the items: uneven input, or uneven burden? (The first, everyone full or one, is the
//! verdict.) It is answered as a finding, and only when somebody stands out.

use crate::case::Case;
use crate::combine::{Claim, Ledger};
use crate::words;
use rankscope_model::{Bytes, Item, Severity, StepRecord, Subject, Verdict};

/// Writes the answer.
pub(crate) fn input_or_burden(case: &Case, verdict: Verdict, ledger: &mut Ledger) {
    if verdict != Verdict::Imbalance || case.input.steps == 0 {
        return;
    }
    let input = &case.input;
    let is_input = input.uneven_elements > 0 && input.follows(case.policy);
    let is_even = input.uneven_elements == 0 && input.steps >= case.policy.even_steps;
    let (item, text) = if is_input {
        (
            Item::BatchDivisibility,
            "Uneven input, not uneven burden: memory differs where the batches differ.".to_owned(),
        )
    } else if is_even {
        (
            Item::RankOnlyWork,
            format!(
                "Uneven burden, not uneven input: batches are equal on all ranks at {} steps, memory is not.",
                input.steps
            ),
        )
    } else {
        return;
    };
    let refs = case.batch_refs();
    ledger.claim(Claim { item, label: None, severity: Severity::Info, confidence: 0.85, text, ranks: vec![], refs });
}

/// Ranks whose highest lines are shown.
const SHOWN: usize = 3;

/// Where nothing speaks for any cause, the lines that tell the difference are all that there is to show.
pub(crate) fn where_it_is_read(case: &Case, verdict: Verdict, ledger: &mut Ledger) {
    let Some((comparison, spread)) = case.main.as_ref().filter(|_| verdict == Verdict::Imbalance) else { return };
    if !comparison.source.is_steps() || !ledger.supported(f64::MIN_POSITIVE).is_empty() {
        return;
    }
    let of = |record: &StepRecord| record.bytes(comparison.quantity).map(|bytes| bytes.0);
    let highest = |subject: Subject| {
        let own = case.steps.records().map(|(_, record)| record).filter(move |record| record.subject == subject);
        own.filter(|record| of(record).is_some()).max_by_key(|record| of(record))
    };
    let heavy: Vec<&StepRecord> = spread.heaviest.iter().take(SHOWN).filter_map(|subject| highest(*subject)).collect();
    let near = |(subject, value): &&(Subject, u64)| (value.abs_diff(spread.median), *subject);
    let median = comparison.values.iter().min_by_key(near).and_then(|(subject, _)| highest(*subject));
    let told = |record: &&StepRecord| {
        let step = record.step.map(|step| format!(" at step {}", step.0)).unwrap_or_default();
        of(record).map(|bytes| format!("{} {}{step}", record.subject, Bytes(bytes)))
    };
    let figures: Vec<String> = heavy.iter().chain(&median).filter_map(told).collect();
    if heavy.is_empty() || median.is_none() {
        return;
    }
    let text = format!("The highest lines of {}: {}.", comparison.quantity.title(), words::join(&figures));
    let ranks = heavy.iter().filter_map(|record| record.subject.rank()).collect();
    let refs = case.step_refs(heavy.into_iter().chain(median));
    let item = Item::BatchDivisibility;
    ledger.claim(Claim { item, label: None, severity: Severity::Info, confidence: 0.95, text, ranks, refs });
}
