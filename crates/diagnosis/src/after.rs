//! A later reading of the same cards in which the gap is gone: most likely the job after a fix, put beside the evidence
//! of the job before it.
//!
//! Says so and asks for a run of its own. Scripts that came no earlier than that reading are not held against the
//! older one: they may be the mended ones.

use crate::case::Case;
use crate::combine::{Claim, Ledger};
use crate::imbalance::{Source, table_name};
use rankscope_model::{ArtifactId, Bytes, Collect, Item, Severity};

/// Two readings of the same cards: with a gap, and later without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct After {
    /// The older table (position in [`Case::tables`]).
    before: usize,
    /// The later one.
    later: usize,
    gap_before: u64,
    gap_later: u64,
}

/// Finds the later reading.
pub(crate) fn find(case: &Case) -> Option<After> {
    let (comparison, spread) = case.main.as_ref()?;
    let Source::Tables(series) = &comparison.source else { return None };
    if !spread.stands_out() || spread.is_low_outlier {
        return None;
    }
    let (before, view) = case.focus_of(series)?;
    let cards = |index: usize| {
        let gpus = case.tables.get(index).into_iter().flat_map(|view| &view.gpus);
        gpus.map(|gpu| (gpu.subject, gpu.total)).collect::<Vec<_>>()
    };
    let working = view.in_use(case.policy).len();
    let later = case.comparisons.iter().filter_map(|other| {
        let Source::Tables(other_series) = &other.source else { return None };
        let spread = other.spread(case.policy).filter(|spread| !spread.stands_out())?;
        let (later, view) = case.focus_of(other_series)?;
        // As many cards at work: a smaller job shows nothing of this one.
        let is_same_job = cards(later) == cards(before)
            && view.in_use(case.policy).len() >= working
            && other.values.len() >= comparison.values.len();
        let gap_later = spread.max.saturating_sub(spread.median);
        (is_same_job && is_later(case, series, other_series)).then_some((later, gap_later))
    });
    let (later, gap_later) = later.max_by_key(|(later, _)| *later)?;
    Some(After { before, later, gap_before: spread.gap(), gap_later })
}

/// By the printed times where both have them, else in the order in which they were added.
fn is_later(case: &Case, before: &[usize], later: &[usize]) -> bool {
    let time = |index: &usize| case.tables.get(*index).and_then(|view| view.table.time);
    let last = before.iter().map(time).collect::<Option<Vec<_>>>().and_then(|times| times.into_iter().max());
    let first = later.iter().map(time).collect::<Option<Vec<_>>>().and_then(|times| times.into_iter().min());
    match (last, first) {
        (Some(last), Some(first)) => last < first,
        _ => before.iter().max() < later.iter().min(),
    }
}

impl After {
    /// The file of the later table.
    pub fn artifact(&self, case: &Case) -> Option<ArtifactId> {
        case.tables.get(self.later).map(|view| view.table.at.artifact)
    }

    /// `nvidia-smi-after.txt`, or the time where both tables are in one file.
    fn names(&self, case: &Case) -> Option<(String, String)> {
        let (before, later) = (case.tables.get(self.before)?.table, case.tables.get(self.later)?.table);
        let name = |table: &rankscope_model::DeviceTable| {
            if before.at.artifact == later.at.artifact {
                table_name(case, &table.at, table.time_text.as_deref())
            } else {
                case.evidence.artifact_name(table.at.artifact).to_owned()
            }
        };
        Some((name(before), name(later)))
    }

    /// For the end of the headline.
    pub fn sentence(&self, case: &Case) -> Option<String> {
        let (before, later) = self.names(case)?;
        let (now, was) = (Bytes(self.gap_later), Bytes(self.gap_before));
        Some(format!("That is {before}; in {later} the gap is {now}, was {was}: make it a new run to compare."))
    }
}

/// How what is asked for begins where a later reading shows the gap gone.
const COMPARISON: &str = "The comparison of both runs";

/// A later reading showed the gap gone, and the proof is asked for. The reading is none: one moment of another run says
/// nothing of its phases, its load, or how long it was watched; [`crate::compare`] decides.
pub(crate) fn asks_for_proof(wanted: &Collect) -> bool {
    wanted.what.starts_with(COMPARISON)
}

/// Writes what the later table shows under the closing item.
pub(crate) fn note(case: &Case, ledger: &mut Ledger) {
    for (later, earlier) in case.scripts.later_versions() {
        let name = |at: &rankscope_model::Provenance| case.evidence.artifact_name(at.artifact);
        let text = format!(
            "{} is a later version of {} and is not held against this evidence: it belongs in a new run.",
            name(&later.at),
            name(&earlier.at)
        );
        claim(ledger, text, case.refs([&later.at]));
    }
    let Some((after, (_, later))) = case.after.as_ref().and_then(|after| Some((after, after.names(case)?))) else {
        return;
    };
    let (now, was) = (Bytes(after.gap_later), Bytes(after.gap_before));
    let tables = [after.before, after.later].into_iter().filter_map(|index| case.tables.get(index));
    let refs = case.refs(tables.map(|view| &view.table.at));
    claim(ledger, format!("{later}: gap {now}, was {was}; make it a new run to compare."), refs);
    let what = format!("{COMPARISON}: put {later} and what belongs to it into a run of its own.");
    ledger.collect(Item::Verified, &[], Collect { what, command: format!("rankscope diagnose {later}") });
}

fn claim(ledger: &mut Ledger, text: String, refs: Vec<rankscope_model::EvidenceRef>) {
    ledger.claim(Claim {
        item: Item::Verified,
        label: None,
        severity: Severity::Info,
        confidence: 0.9,
        text,
        ranks: vec![],
        refs,
    });
}
