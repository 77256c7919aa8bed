//! Rank 0 below all others from the start: the ranks build the sharded model differently. Shown under
//! `optimizer_state`.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::imbalance::Source;
use crate::policy::weight;
use crate::steps::is_training;
use rankscope_model::{Bytes, CauseLabel, Item, ItemStatus, Rank, Severity, StepRecord, Subject};

const LABEL: CauseLabel = CauseLabel::ShardedInitAsymmetry;

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    // Batches that differ make ranks differ, whoever is the lowest.
    if case.input.uneven_elements > 0 && case.input.follows(case.policy) {
        return;
    }
    let zero = Subject::Rank(Rank(0));
    // Any quantity will do: the others may be equal by the time the first step is done.
    let found = case.comparisons.iter().find_map(|comparison| {
        let spread = comparison.spread(case.policy).filter(|s| s.is_low_outlier)?;
        let others = comparison.values.len().checked_sub(1)?;
        let is_zero = comparison.value(zero) == Some(spread.min);
        (comparison.source == Source::Steps && is_zero && others >= 2 && spread.heaviest.len() == others)
            .then_some((comparison, spread))
    });
    let Some((comparison, spread)) = found else { return };
    // The first place in the log at which all of them speak.
    let complete = case.steps.rows.iter().filter_map(|(key, rows)| {
        let values = case.steps.at(key, comparison.quantity);
        let place = rows.iter().map(|row| (row.at.artifact, row.at.place)).min()?;
        (values.len() == comparison.values.len()).then_some((place, key, values))
    });
    let Some((_, key, values)) = complete.min_by_key(|(place, _, _)| *place) else { return };
    let own = values.iter().find(|(s, _)| *s == zero).map_or(0, |(_, v)| *v);
    let least = values.iter().filter(|(s, _)| *s != zero).map(|(_, v)| *v).min().unwrap_or(0);
    if !case.policy.differs(least, own) {
        return;
    }
    let rows: Vec<&StepRecord> = case.steps.rows.get(key).cloned().unwrap_or_default();
    let refs = case.step_refs(rows);
    let text = format!(
        "Rank 0 has {} {} and every other rank at least {}, from the first record on.",
        Bytes(own),
        comparison.quantity.title(),
        Bytes(least)
    );
    ledger.signal(&[LABEL], weight::STRONG, &text, &refs);
    ledger.caveat(LABEL, "Blocks held for another stream on all ranks but one look the same until the split into active and allocated is known.");
    let at_start = !is_training(key) || key.step <= 1;
    if at_start {
        ledger.signal(&[LABEL], weight::FAINT, "The difference is there before training.", &refs);
    }
    let ranks: Vec<u32> = spread.heaviest.iter().filter_map(|s| s.rank()).collect();
    ledger.ranks(&[LABEL], &ranks);
    ledger.mechanism(
        &[LABEL],
        &Mechanism {
            because: "they initialise the sharded model differently".to_owned(),
            alone: "Every rank but rank 0 holds more from the start.".to_owned(),
            explained: Some(spread.gap()),
        },
    );
    ledger.status(Item::OptimizerState, ItemStatus::Suspect);
    ledger.claim(Claim {
        item: Item::OptimizerState,
        label: Some(LABEL),
        severity: Severity::Critical,
        confidence: 0.9,
        text,
        ranks,
        refs,
    });
}
