//! Item `batch_divisibility`: batches are even over ranks, in samples and in tokens. Decided by shapes at the same
//! step, and by whether the peaks follow them.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::imbalance::{Comparison, Source};
use crate::input::{Counted, InputView};
use crate::policy::weight;
use crate::stats::lower_median;
use crate::steps::is_training;
use crate::words;
use rankscope_model::{CauseLabel, Item, ItemStatus, Severity, StepRecord, Subject};
use std::collections::BTreeMap;

const ITEM: Item = Item::BatchDivisibility;
const INPUT_CAUSES: [CauseLabel; 3] =
    [CauseLabel::VariableShapeBatches, CauseLabel::UnevenBatchSplit, CauseLabel::MoeRoutingImbalance];

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let input = &case.input;
    if input.steps == 0 {
        smooth_spread(case, ledger);
        changing_heavy_rank(case, ledger);
    } else if input.uneven_elements == 0 && input.uneven_samples == 0 {
        even(case, ledger);
    } else if !nearly_even(case, ledger) {
        uneven(case, ledger);
    }
    padding(case, ledger);
}

/// Share of each rank's tokens that is padding. Where shapes are uneven and the real tokens are not, one long sample in a
/// batch is what makes it large.
fn padding(case: &Case, ledger: &mut Ledger) {
    let mut sums: BTreeMap<Subject, (u64, u64, usize)> = BTreeMap::new();
    let rows = training_rows(case);
    for row in &rows {
        if let (Some(all), Some(real)) = (row.batch_tokens, row.batch_tokens_unpadded.filter(|real| *real > 0)) {
            let sum = sums.entry(row.subject).or_default();
            *sum = (sum.0.saturating_add(all), sum.1.saturating_add(real.min(all)), sum.2 + 1);
        }
    }
    let share = |(all, real, _): &(u64, u64, usize)| 1.0 - *real as f64 / (*all).max(1) as f64;
    let shares: Vec<(Subject, f64)> = sums.iter().map(|(subject, sum)| (*subject, share(sum))).collect();
    let most = shares.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let least = shares.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let (Some(most), Some(least)) = (most, least) else { return };
    let is_long = sums.values().all(|(_, _, rows)| *rows >= case.policy.even_steps);
    if shares.len() < 2 || !is_long || most.1 - least.1 < case.policy.notice_share {
        return;
    }
    let reals: Vec<u64> = sums.values().map(|(_, real, _)| *real).collect();
    let is_even = matches!((reals.iter().min(), reals.iter().max()), (Some(min), Some(max)) if *max as f64 <= *min as f64 * case.policy.even_tokens);
    let tail = if is_even { "; without it the ranks are near each other" } else { "" };
    let text = format!(
        "Padding is uneven: {} of the tokens of {}, {} of those of {}{tail}.",
        words::percent(most.1),
        most.0,
        words::percent(least.1),
        least.0
    );
    let label = CauseLabel::VariableShapeBatches;
    let is_uneven = case.input.uneven_elements > 0;
    let refs = case.step_refs(rows.iter().copied().filter(|row| row.subject == most.0));
    if is_uneven {
        ledger.signal(&[label], weight::FAINT, &text, &refs);
    }
    let ranks: Vec<u32> = most.0.rank().into_iter().collect();
    let severity = if is_uneven { Severity::Warning } else { Severity::Info };
    let label = is_uneven.then_some(label);
    ledger.claim(Claim { item: ITEM, label, severity, confidence: 0.95, text, ranks, refs });
}

fn training_rows<'a>(case: &Case<'a>) -> Vec<&'a StepRecord> {
    case.steps.records().filter(|(key, _)| is_training(key)).map(|(_, row)| row).collect()
}

fn even(case: &Case, ledger: &mut Ledger) {
    let input = &case.input;
    if input.steps < case.policy.even_steps {
        return;
    }
    let refs = case.batch_refs();
    let text = format!(
        "{} have equal batches at each of {} steps.",
        words::capital(&words::all_of(input.ranks, "ranks")),
        input.steps
    );
    // Equal batches say nothing of what a router inside the model deals, unless that is what was counted.
    let is_routed = Counted::of(case.steps.records().map(|(_, row)| row)) == Counted::Routed;
    let spoken_against =
        INPUT_CAUSES.into_iter().filter(|label| is_routed || *label != CauseLabel::MoeRoutingImbalance);
    ledger.signal(&spoken_against.collect::<Vec<_>>(), -weight::GOOD, &text, &refs);
    ledger.status(ITEM, ItemStatus::Pass);
    ledger.claim(Claim {
        item: ITEM,
        label: None,
        severity: Severity::Info,
        confidence: 0.95,
        text,
        ranks: vec![],
        refs,
    });
}

/// Batches that are packed by tokens are near each other, not equal: as good as it gets, where memory is even too.
fn nearly_even(case: &Case, ledger: &mut Ledger) -> bool {
    let input = &case.input;
    let stands_out = case.main.as_ref().is_some_and(|(_, spread)| spread.stands_out());
    let Some(worst) = input.worst.as_ref().filter(|_| !stands_out && input.steps >= case.policy.even_steps) else {
        return false;
    };
    let ratio = worst.most.1 as f64 / worst.fewest.1.max(1) as f64;
    if ratio > case.policy.even_tokens {
        return false;
    }
    let what = Counted::of(case.steps.records().map(|(_, row)| row)).word();
    let text = format!(
        "{} are within {} of each other in {what} at each of {} steps.",
        words::capital(&words::all_of(input.ranks, "ranks")),
        words::percent(ratio - 1.0),
        input.steps
    );
    let refs = case.batch_refs();
    ledger.status(ITEM, ItemStatus::Pass);
    ledger.claim(Claim {
        item: ITEM,
        label: None,
        severity: Severity::Info,
        confidence: 0.95,
        text,
        ranks: vec![],
        refs,
    });
    true
}

fn uneven(case: &Case, ledger: &mut Ledger) {
    let input = &case.input;
    let Some(worst) = &input.worst else { return };
    let what = Counted::of(case.steps.records().map(|(_, row)| row)).word();
    let worst_rows: Vec<&StepRecord> = case.steps.rows.get(&worst.key).cloned().unwrap_or_default();
    let refs = case.step_refs(worst_rows);
    let text = format!(
        "Batches differ between ranks at {} of {} steps; at step {} {} has {} {what}, {} has {}.",
        input.uneven_elements, input.steps, worst.key.step, worst.most.0, worst.most.1, worst.fewest.0, worst.fewest.1
    );
    let label = kind(input);
    let stands_out = case.main.as_ref().is_some_and(|(_, spread)| spread.stands_out());
    let ranks: Vec<u32> = input.heavy.keys().filter_map(|subject| subject.rank()).collect();
    match input.r {
        Some(r) if r >= case.policy.follow_r => {
            let followed = case.batch_refs();
            let quantity = input.quantity.map_or("memory", |q| q.title());
            let reason = format!(
                "{} follows the batch: r = {r:.2} over {} pairs of rank and step.",
                words::capital(quantity),
                input.pairs
            );
            // Without a difference in memory the batches are no problem, even though memory follows them.
            let gain = if stands_out { weight::DECISIVE } else { weight::FAIR };
            ledger.signal(&[label], gain, reason, &followed);
            ledger.signal(&[label], weight::FAINT, &text, &refs);
            explain_kind(case, label, ledger);
            if label != CauseLabel::VariableShapeBatches {
                ledger.signal(&[CauseLabel::VariableShapeBatches], weight::FAIR, &text, &refs);
            }
            ledger.mechanism(&[label], &mechanism(case, label, worst.most.0));
            ledger.ranks(&[label], &ranks);
            ledger.status(ITEM, if stands_out { ItemStatus::Fail } else { ItemStatus::Suspect });
        }
        Some(r) => {
            let reason =
                format!("Memory does not follow the batch: r = {r:.2} over {} pairs of rank and step.", input.pairs);
            ledger.signal(&INPUT_CAUSES, -weight::FAIR, reason, &refs);
            ledger.status(ITEM, ItemStatus::Suspect);
            // The shape may miss what counts, such as the number of objects in an image.
            changing_heavy_rank(case, ledger);
        }
        None => {
            ledger.signal(&[label], weight::FAIR, &text, &refs);
            ledger.mechanism(&[label], &mechanism(case, label, worst.most.0));
            ledger.status(ITEM, ItemStatus::Suspect);
        }
    }
    let severity = if stands_out { Severity::Critical } else { Severity::Info };
    ledger.claim(Claim { item: ITEM, label: Some(label), severity, confidence: 0.97, text, ranks, refs });
}

/// Which of the three: dealt inside the model, a fixed remainder of samples, or sizes that vary.
fn kind(input: &InputView) -> CauseLabel {
    if input.uneven_inside > 0 && input.uneven_inside == input.uneven_elements {
        CauseLabel::MoeRoutingImbalance
    } else if input.uneven_samples == input.uneven_elements && input.uneven_samples > 0 && input.fixed_heavy().is_some()
    {
        CauseLabel::UnevenBatchSplit
    } else {
        CauseLabel::VariableShapeBatches
    }
}

fn explain_kind(case: &Case, label: CauseLabel, ledger: &mut Ledger) {
    let input = &case.input;
    match (label, input.fixed_heavy()) {
        (CauseLabel::MoeRoutingImbalance, _) => {
            ledger.signal(
                &[label],
                weight::FAIR,
                "The input shapes are equal on all ranks: the tokens are dealt inside the model.",
                &[],
            );
            ledger
                .caveat(label, "Real tokens without padding, where memory follows the padded shape, would look alike.");
        }
        (CauseLabel::UnevenBatchSplit, Some(heavy)) => {
            ledger.signal(
                &[label],
                weight::FAIR,
                format!("{} has the most samples at every uneven step.", words::capital(&heavy.to_string())),
                &[],
            );
        }
        (CauseLabel::VariableShapeBatches, None) if input.heavy.len() > 1 => {
            let total: usize = input.heavy.values().sum();
            let most = input.heavy.iter().max_by_key(|(_, n)| **n);
            if let Some((often, n)) = most.filter(|(_, n)| **n * input.heavy.len() > total * 2) {
                // More than twice its share: neither fixed nor by turns. Told, and held for nothing.
                let often = words::capital(&often.to_string());
                ledger.caveat(
                    label,
                    format!("{often} has the largest batch at {n} of {total} uneven steps, more often than chance would deal it."),
                );
                return;
            }
            let reason = format!(
                "The largest batch is not always the same rank's: {} ranks have it in turn.",
                words::count(input.heavy.len())
            );
            ledger.signal(&[label], weight::FAINT, reason, &[]);
        }
        (CauseLabel::VariableShapeBatches, Some(heavy)) => {
            ledger.caveat(
                label,
                format!(
                    "{} is the heavy one at nearly every step; lengths that vary by chance would move.",
                    words::capital(&heavy.to_string())
                ),
            );
        }
        _ => {}
    }
}

fn mechanism(case: &Case, label: CauseLabel, heavy: Subject) -> Mechanism {
    let because = match label {
        CauseLabel::MoeRoutingImbalance => "experts receive unequal numbers of tokens",
        CauseLabel::UnevenBatchSplit => "samples are dealt unevenly",
        _ => "batches differ in size",
    };
    Mechanism {
        because: because.to_owned(),
        alone: format!("Batches are uneven over ranks; {heavy} has the largest."),
        explained: explained(case),
    }
}

/// Bytes per element times the elements that the heaviest had above the median (or above the lightest, where that one
/// stands out), each rank at its own peak.
fn explained(case: &Case) -> Option<u64> {
    let (comparison, spread) = case.main.as_ref()?;
    let slope = case.input.slope.filter(|slope| *slope > 0.0)?;
    if case.input.quantity != Some(comparison.quantity) {
        return None;
    }
    let heaviest = *spread.heaviest.first()?;
    let rows: Vec<&StepRecord> = match comparison.source {
        Source::Step(key) => case.steps.rows.get(&key)?.clone(),
        Source::Steps => training_rows(case),
        _ => return None,
    };
    let counted = Counted::of(rows.iter().copied());
    let elements = |row: &StepRecord| counted.of_row(row);
    let at_peak: Vec<(Subject, u64)> = comparison
        .values
        .iter()
        .filter_map(|(subject, _)| {
            let own = rows.iter().filter(|row| row.subject == *subject && elements(row).is_some());
            own.max_by_key(|row| row.bytes(comparison.quantity)).and_then(|row| Some((*subject, elements(row)?)))
        })
        .collect();
    let others: Vec<u64> = at_peak.iter().map(|(_, n)| *n).collect();
    let own = at_peak.iter().find(|(subject, _)| *subject == heaviest)?.1;
    let lightest = comparison.values.iter().min_by_key(|(_, v)| *v).map(|(subject, _)| *subject)?;
    let base = if spread.is_low_outlier {
        at_peak.iter().find(|(subject, _)| *subject == lightest)?.1
    } else {
        lower_median(&others)?
    };
    let more = own.saturating_sub(base);
    rankscope_model::Bytes::from_float(more as f64 * slope, 1).map(|b| b.0)
}

/// Without shapes: cards that all differ, one process each. Input of different size looks like this, and so do other
/// things.
fn smooth_spread(case: &Case, ledger: &mut Ledger) {
    let Some((comparison, _)) = &case.on_cards else { return };
    let Source::Tables(_) = comparison.source else { return };
    let Some((_, view)) = case.focus().filter(|(_, view)| view.lists_processes()) else { return };
    // The cards as this one table shows them, whatever they reached over a series.
    let values = comparison.values.iter().filter_map(|(subject, _)| Some((*subject, view.gpu(*subject)?.used?)));
    let here = Comparison { values: values.collect(), ..comparison.clone() };
    let Some(spread) = here.spread(case.policy) else { return };
    let alone = comparison.values.iter().all(|(s, _)| view.gpu(*s).is_some_and(|gpu| gpu.compute.len() == 1));
    let stay_home = view.processes.values().all(|process| process.rows.len() == 1);
    let are_apart = case.policy.differs(spread.max, spread.median) && case.policy.differs(spread.median, spread.min);
    if comparison.values.len() < 4 || !alone || !stay_home || !are_apart {
        return;
    }
    let refs = case.refs(view.gpus.iter().map(|gpu| &gpu.row.at));
    let text = format!(
        "The cards spread from {} to {} with one process each; no single card stands apart.",
        rankscope_model::Bytes(spread.min),
        rankscope_model::Bytes(spread.max)
    );
    ledger.signal(&[CauseLabel::VariableShapeBatches], weight::FAINT, &text, &refs);
    ledger.caveat(
        CauseLabel::VariableShapeBatches,
        "One table has no batch shapes; caches that grew differently look the same.",
    );
    ledger.collect(ITEM, &[], crate::collect::step_line());
    ledger.status(ITEM, ItemStatus::Suspect);
    ledger.claim(Claim {
        item: ITEM,
        label: Some(CauseLabel::VariableShapeBatches),
        severity: Severity::Warning,
        confidence: 0.5,
        text,
        ranks: vec![],
        refs,
    });
}

/// Without shapes: peaks that are read anew at each step, and a heavy rank that changes from step to step. Duties of
/// one rank and foreign rows stay where they are; input does not.
fn changing_heavy_rank(case: &Case, ledger: &mut Ledger) {
    let Some((comparison, _)) = &case.main else { return };
    if !comparison.source.is_steps() {
        return;
    }
    let mut heaviest: BTreeMap<Subject, usize> = BTreeMap::new();
    for key in case.steps.rows.keys().filter(|key| is_training(key)) {
        let values = case.steps.at(key, comparison.quantity);
        let here = Comparison { values, source: Source::Step(*key), ..comparison.clone() };
        if here.values.len() == comparison.values.len()
            && let Some(first) =
                here.spread(case.policy).filter(|s| !s.is_low_outlier).and_then(|s| s.heaviest.first().copied())
        {
            *heaviest.entry(first).or_default() += 1;
        }
    }
    let steps: usize = heaviest.values().sum();
    let most = heaviest.values().max().copied().unwrap_or(0);
    if steps < case.policy.follow_points || heaviest.len() < 3 || most * 2 > steps {
        return;
    }
    let label = CauseLabel::VariableShapeBatches;
    let refs = case.batch_refs();
    let text = format!(
        "At {steps} steps one rank stands out, and it is not the same one: {} ranks take turns.",
        words::count(heaviest.len())
    );
    ledger.signal(&[label], weight::GOOD, &text, &refs);
    ledger.takes_turns(label);
    if case.input.steps == 0 {
        // Not so sure that the fix could be next: what would be seen of the batches comes first.
        let inferred = "Nothing of the batches is printed: that they differ is inferred from the turns.";
        ledger.signal(&[label], -weight::FAIR, inferred, &[]);
    }
    ledger.caveat(
        label,
        "No printed figure of the batch follows the peak; object counts or lengths that are not printed would show it.",
    );
    let ranks: Vec<u32> = heaviest.keys().filter_map(|subject| subject.rank()).collect();
    ledger.ranks(&[label], &ranks);
    ledger.mechanism(
        &[label],
        &Mechanism { because: "batches differ in size".to_owned(), alone: text.clone(), explained: None },
    );
    ledger.status(ITEM, ItemStatus::Suspect);
    ledger.collect(ITEM, &[label], crate::collect::step_line());
    ledger.claim(Claim {
        item: ITEM,
        label: Some(label),
        severity: Severity::Warning,
        confidence: 0.9,
        text,
        ranks,
        refs,
    });
}
