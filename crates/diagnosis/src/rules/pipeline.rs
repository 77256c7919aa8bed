//! Ranks that differ by position: the ends of a pipeline, or fewer bytes from stage to stage. Shown under
//! `memory_stats`, as an expected difference until someone says otherwise.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::imbalance::Source;
use crate::policy::{Policy, weight};
use crate::steps::CrossSection;
use rankscope_model::{Bytes, CauseLabel, Item, ItemStatus, Severity};

const LABEL: CauseLabel = CauseLabel::PipelineStageImbalance;

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let Some((comparison, spread)) = case.main.as_ref().filter(|(c, s)| c.source == Source::Steps && s.stands_out())
    else {
        return;
    };
    if case.input.uneven_elements > 0 || comparison.values.iter().any(|(s, _)| s.rank().is_none()) {
        return;
    }
    let Some(pattern) = pattern(&comparison.values, case.policy) else { return };
    let refs = case.step_refs(case.steps.records().map(|(_, row)| row));
    let text = format!(
        "Over {} ranks {pattern}, from {} to {} {}.",
        comparison.values.len(),
        Bytes(spread.max),
        Bytes(spread.min),
        comparison.quantity.title()
    );
    ledger.signal(&[LABEL], weight::GOOD, &text, &refs);
    ledger.caveat(
        LABEL,
        "The first and last stage of a pipeline are expected to differ; compare ranks of the same stage.",
    );
    let ranks: Vec<u32> = spread.heaviest.iter().filter_map(|s| s.rank()).collect();
    ledger.ranks(&[LABEL], &ranks);
    ledger.mechanism(
        &[LABEL],
        &Mechanism {
            because: "its pipeline stage holds more".to_owned(),
            alone: "The ranks differ by position, as pipeline stages do.".to_owned(),
            explained: None,
        },
    );
    ledger.status(Item::MemoryStats, ItemStatus::Suspect);
    ledger.claim(Claim {
        item: Item::MemoryStats,
        label: Some(LABEL),
        severity: Severity::Warning,
        confidence: 0.8,
        text,
        ranks,
        refs,
    });
}

/// Stage patterns over ranks in order.
fn pattern(values: &CrossSection, policy: &Policy) -> Option<&'static str> {
    let bytes: Vec<u64> = values.iter().map(|(_, v)| *v).collect();
    let [first, middle @ .., last] = bytes.as_slice() else { return None };
    let top = middle.iter().max()?;
    if policy.differs(*first, *top) && policy.differs(*last, *top) {
        return Some("the first and the last hold more than those between");
    }
    let falls = bytes.windows(2).all(|pair| matches!(pair, [a, b] if a > b));
    (bytes.len() >= 4 && falls && policy.differs(*first, *last)).then_some("each holds less than the one before")
}
