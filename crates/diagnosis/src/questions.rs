//! The second question before the items: uneven input, or uneven burden? (The first, everyone full or one, is the
//! verdict.) It is answered as a finding, and only when somebody stands out.

use crate::case::Case;
use crate::combine::{Claim, Ledger};
use rankscope_model::{Item, Severity, Verdict};

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
    let refs = case.training_refs();
    ledger.claim(Claim { item, label: None, severity: Severity::Info, confidence: 0.85, text, ranks: vec![], refs });
}
