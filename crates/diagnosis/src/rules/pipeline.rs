//! Ranks that differ by position: the ends of a pipeline, or fewer bytes from stage to stage. Shown under
//! `memory_stats`, as an expected difference until someone says otherwise.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::imbalance::{Comparison, Source, Spread};
use crate::policy::{Policy, weight};
use crate::steps::CrossSection;
use crate::words;
use rankscope_model::{Bytes, CauseLabel, Item, ItemStatus, LaunchSetting, Severity, StepRecord};

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
    if by_design(case, comparison, spread, ledger) {
        return;
    }
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
            because: "the stages of the pipeline hold different parts of the model".to_owned(),
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

/// The launch names the stages, the ranks of each are alike, and only the ends hold more: they carry the embedding and the
/// output layer.
fn by_design(case: &Case, comparison: &Comparison, spread: &Spread, ledger: &mut Ledger) -> bool {
    let facts = || case.evidence.launches.iter().flat_map(|launch| &launch.facts);
    let told = facts().find_map(|fact| match fact.what {
        LaunchSetting::PipelineParallel(stages) if stages >= 2 => Some((usize::try_from(stages).ok()?, fact)),
        _ => None,
    });
    let Some((stages, fact)) = told else { return false };
    let values: Vec<u64> = comparison.values.iter().map(|(_, value)| *value).collect();
    let width = values.len() / stages;
    if width == 0 || width * stages != values.len() || !comparison.left_out.is_empty() {
        return false;
    }
    let are_alike = |stage: &[u64]| match (stage.iter().min(), stage.iter().max()) {
        (Some(min), Some(max)) => !case.policy.differs(*max, *min),
        _ => false,
    };
    let between = values.get(width..values.len().saturating_sub(width)).unwrap_or_default();
    if !values.chunks(width).all(are_alike) || !are_alike(between) {
        return false;
    }
    // The line of each end that holds most.
    let ends = [comparison.values.first(), comparison.values.last()];
    let records = ends.into_iter().flatten().filter_map(|(subject, most)| {
        let is_it = |row: &&StepRecord| row.subject == *subject && row.bytes(comparison.quantity) == Some(Bytes(*most));
        case.steps.records().map(|(_, row)| row).find(is_it).map(|row| &row.at)
    });
    let refs = case.refs(std::iter::once(&fact.at).chain(records));
    let each = if width == 1 { "rank".to_owned() } else { format!("{} ranks", words::count(width)) };
    let text = format!(
        "The job runs in {} pipeline stages of {each}: the ranks of a stage are alike, and only the first and the last \
         stage hold more, up to {} against {} {}. They carry the embedding and the output layer, so that is by design.",
        words::count(stages),
        Bytes(spread.max),
        Bytes(spread.median),
        comparison.quantity.title()
    );
    let ranks: Vec<u32> = spread.heaviest.iter().filter_map(|s| s.rank()).collect();
    ledger.signal(&[LABEL], weight::DECISIVE, &text, &refs);
    ledger.ranks(&[LABEL], &ranks);
    let because = format!("the ends of its {} pipeline stages hold more by design", words::count(stages));
    ledger.mechanism(&[LABEL], &Mechanism { because, alone: text.clone(), explained: None });
    ledger.is_meant(
        LABEL,
        "Nothing is wrong here, and nothing has to be done. Only if the cards at the ends are too full: give the first and \
         the last stage fewer layers than those between.",
    );
    let (item, label) = (Item::MemoryStats, Some(LABEL));
    ledger.claim(Claim { item, label, severity: Severity::Info, confidence: 0.95, text, ranks, refs });
    true
}

/// Stage patterns over ranks in order. A stage may be several ranks wide.
fn pattern(values: &CrossSection, policy: &Policy) -> Option<String> {
    let bytes: Vec<u64> = values.iter().map(|(_, v)| *v).collect();
    let (min, max) = (*bytes.iter().min()?, *bytes.iter().max()?);
    if bytes.len() < 3 || !policy.differs(max, min) {
        return None;
    }
    // Heavy ends: above the middle between the extremes at both ends, and nowhere else.
    let line = min.saturating_add(max.saturating_sub(min) / 2);
    let first = bytes.iter().take_while(|b| **b > line).count();
    let last = bytes.iter().rev().take_while(|b| **b > line).count();
    let heavy = bytes.iter().filter(|b| **b > line).count();
    if first > 0 && last > 0 && heavy == first + last && heavy < bytes.len() {
        let ranks = |n: usize| if n == 1 { "rank".to_owned() } else { format!("{} ranks", words::count(n)) };
        return Some(format!("the first {} and the last {} hold more than those between", ranks(first), ranks(last)));
    }
    // By more than jitter from each to the next: one heavy first rank before others that happen to fall is no pipeline.
    let falls = bytes.windows(2).all(|pair| matches!(pair, [a, b] if a.saturating_sub(*b) >= policy.notice.0));
    (bytes.len() >= 4 && falls).then(|| "each holds less than the one before".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{MIB, Rank, Subject};

    fn told(mib: &[u64]) -> Option<String> {
        let values = (0..).zip(mib).map(|(rank, mib)| (Subject::Rank(Rank(rank)), mib * MIB)).collect();
        pattern(&values, &Policy::default())
    }

    #[test]
    fn heavy_ends_and_falling_stages_are_patterns_and_one_heavy_rank_is_none() {
        assert!(told(&[10824, 8041, 10980]).unwrap().starts_with("the first rank and the last rank"));
        assert!(told(&[24761, 24762, 22106, 22106, 22015, 24358, 24356]).unwrap().contains("first two ranks"));
        assert!(told(&[40000, 36000, 32000, 28000]).is_some());
        assert_eq!(told(&[30000, 20000, 20000, 20000]), None);
        assert_eq!(told(&[20000, 20000, 20000]), None);
        assert_eq!(told(&[30000, 20030, 20020, 20010]), None, "one heavy rank, and jitter");
    }
}
