//! From evidence to diagnosis: imbalance figures, rules per checklist item, ranked causes, remedies, and the numbers
//! behind the charts.
//!
//! Pure functions of their arguments: no clock, no file, no global. Knows the words of `rankscope-model` and nothing of
//! formats, HTTP or pages. Where to look first: `case.rs` prepares the evidence, `rules/` reads it, `combine.rs` says
//! how reasons become confidence, `policy.rs` holds every number.

mod after;
mod alike;
mod apart;
mod case;
mod collect;
mod combine;
mod compare;
mod composition;
mod events;
mod facts;
mod failing;
mod figures;
mod fixes;
mod gone;
mod imbalance;
mod input;
mod links;
mod namesakes;
mod nodes;
mod places;
mod plausible;
mod policy;
mod questions;
mod ran_out;
mod readings;
mod refs;
mod remedies;
mod rules;
mod scatter;
mod script;
mod sites;
mod stats;
mod steps;
mod summary;
mod tables;
mod traces;
mod trainers;
mod words;

pub use compare::{Side, compare};
pub use policy::Policy;
pub use remedies::{ItemRemedy, item_remedy};

use case::Case;
use combine::Ledger;
use policy::SETTLED;
use rankscope_model::{
    ArtifactInfo, ArtifactKind, Cause, ChecklistEntry, Collect, DIAGNOSIS_FORMAT, Diagnosis, Evidence, Figures,
    Finding, Item, ItemStatus, Quantity, Verdict,
};

/// Names what the evidence shows: verdict, figures, ranked causes, the state of every checklist item and what to
/// collect next.
pub fn diagnose(evidence: &Evidence, policy: &Policy) -> Diagnosis {
    let case = Case::new(evidence, policy);
    let mut artifacts = evidence.artifacts.clone();
    namesakes::note(&mut artifacts);
    let mut ledger = Ledger::default();
    for rule in rules::ALL {
        rule(&case, &mut ledger);
    }
    apart::hold_apart(&case, &mut ledger);
    let verdict = imbalance::verdict(&case);
    questions::input_or_burden(&case, verdict, &mut ledger);
    questions::where_it_is_read(&case, verdict, &mut ledger);
    after::note(&case, &mut ledger);
    note_left_out(&case, &mut ledger);
    traces::note_traced(&case, &mut ledger);
    plausible::note_impossible(&case, &mut ledger);
    ran_out::note(&case, &mut ledger);

    let mut causes = ledger.causes(policy, &remedies::Setting::new(&case));
    if verdict == Verdict::Balanced {
        causes.retain(|cause| ledger.may_be_on_all(cause.label));
    }
    let explained = causes.first().and_then(|cause| ledger.mechanism_of(cause.label)).and_then(|m| m.explained);
    let by_design = causes.first().is_some_and(|cause| is_settled(cause) && ledger.is_by_design(cause.label));
    let mut imbalance = imbalance::report(&case, explained, by_design);
    if let Some(imbalance) = imbalance.as_mut()
        && causes.first().is_some_and(|cause| ledger.is_in_turns(cause.label))
    {
        imbalance.opens_at = None;
    }
    let opens = imbalance.as_ref().and_then(|imbalance| imbalance.opens_at.as_ref().or(imbalance.at.as_ref()));
    let seen = collect::Seen::of(&case, opens.and_then(|moment| moment.phase));
    places::name_in_causes(&case, &mut causes);
    let mut findings = findings(&ledger);
    places::name_in_findings(&case, &mut findings);
    let first = causes.first();
    let checklist: Vec<ChecklistEntry> =
        Item::ALL.iter().map(|item| entry(&case, *item, (verdict, seen), first, &ledger, &findings)).collect();
    let quantity = imbalance.as_ref().map(|imbalance| imbalance.quantity);
    let next = next_of(verdict, first, &checklist, (quantity, of_one_process(&evidence.artifacts)))
        // What is meant to be needs no fix that could be proven.
        .filter(|_| imbalance.as_ref().is_none_or(|imbalance| !imbalance.by_design));
    Diagnosis {
        format: DIAGNOSIS_FORMAT.to_owned(),
        verdict,
        summary: places::named(&case, summary::summary(&case, verdict, &causes, &ledger, next.as_ref())),
        imbalance,
        checklist,
        causes,
        findings,
        artifacts,
        events: events::events(&case),
    }
}

/// The numbers behind the charts of a report.
pub fn figures(evidence: &Evidence, diagnosis: &Diagnosis, policy: &Policy) -> Figures {
    figures::figures(&Case::new(evidence, policy), diagnosis)
}

/// The one next step: what separates the leading causes while none is sure, else the proof of the fix. The headline
/// names the same one.
pub fn next_step(diagnosis: &Diagnosis) -> Option<(Item, Collect)> {
    let quantity = diagnosis.imbalance.as_ref().map(|imbalance| imbalance.quantity);
    if diagnosis.is_by_design() {
        return None;
    }
    next_of(
        diagnosis.verdict,
        diagnosis.causes.first(),
        &diagnosis.checklist,
        (quantity, of_one_process(&diagnosis.artifacts)),
    )
}

/// Where files tell what processes say of themselves and nothing of the cards, what is missing is the same of the other
/// ranks; the item that asks for it.
fn of_one_process(artifacts: &[ArtifactInfo]) -> Option<Item> {
    use ArtifactKind::{MemoryStats, MemoryTimeline, ProbeLog, ProfilerTrace, StepLog, TorchSnapshot};
    let has = |kinds: &[ArtifactKind]| artifacts.iter().any(|artifact| kinds.contains(&artifact.kind));
    let is_of_cards = artifacts.iter().any(|artifact| artifact.kind.is_of_cards());
    match () {
        () if is_of_cards => None,
        () if has(&[TorchSnapshot, ProfilerTrace, MemoryTimeline]) => Some(Item::MemoryStats),
        () if has(&[StepLog, MemoryStats, ProbeLog]) => Some(Item::BatchDivisibility),
        () => None,
    }
}

/// Sure enough that the next step is to prove its fix.
pub(crate) fn is_settled(cause: &Cause) -> bool {
    cause.confidence >= SETTLED
}

/// Where a gap lies inside the processes: is it the batch, a phase, or what a rank holds.
const INSIDE: [Item; 5] =
    [Item::BatchDivisibility, Item::RankOnlyWork, Item::MemoryStats, Item::OptimizerState, Item::UnsyncedBuffers];

fn next_of(
    verdict: Verdict,
    first: Option<&Cause>,
    checklist: &[ChecklistEntry],
    (quantity, of_one_process): (Option<Quantity>, Option<Item>),
) -> Option<(Item, Collect)> {
    let wanted_of =
        |item: Item| checklist.iter().find(|entry| entry.item == item).and_then(|entry| entry.collect.first()).cloned();
    let with_item = |item: Item| wanted_of(item).map(|collect| (item, collect));
    let is_shown = wanted_of(Item::Verified).is_some_and(|wanted| after::asks_for_proof(&wanted));
    match (verdict, first) {
        _ if is_shown => with_item(Item::Verified),
        (_, Some(cause)) if is_settled(cause) => with_item(Item::Verified),
        (_, Some(cause)) => with_item(cause.label.item()).or_else(|| with_item(Item::Verified)),
        (Verdict::Balanced | Verdict::UniformPressure, None) => with_item(Item::Verified),
        (Verdict::Imbalance | Verdict::Inconclusive, None) => {
            let first = |status| checklist.iter().find(|entry| entry.status == status);
            let tells_nothing = |item| quantity.is_some_and(|quantity| apart::tells_only_of_others(quantity, item));
            let suspect = || {
                let mut suspects = checklist.iter().filter(|entry| entry.status == ItemStatus::Suspect);
                suspects.find(|entry| verdict != Verdict::Imbalance || !tells_nothing(entry.item))
            };
            let status = |item: Item| checklist.iter().find(|entry| entry.item == item).map(|entry| entry.status);
            // Other processes are no question where each card has its own, or where the figures are one process's.
            let is_inside = quantity.is_some_and(|quantity| quantity != Quantity::DeviceUsed)
                || (verdict == Verdict::Imbalance && status(Item::DeviceVisibility) == Some(ItemStatus::Pass));
            let inside = || {
                let item = INSIDE.into_iter().find(|item| status(*item) == Some(ItemStatus::Unknown))?;
                checklist.iter().find(|entry| entry.item == item)
            };
            let asked = of_one_process.filter(|_| verdict == Verdict::Inconclusive && quantity.is_none());
            let of_others = || {
                let item = asked.filter(|item| status(*item) == Some(ItemStatus::Unknown))?;
                checklist.iter().find(|entry| entry.item == item)
            };
            let open = suspect()
                .or_else(of_others)
                .or_else(|| inside().filter(|_| is_inside))
                .or_else(|| first(ItemStatus::Unknown));
            open.and_then(|entry| with_item(entry.item)).or_else(|| with_item(Item::Verified))
        }
    }
}

/// Says which ranks or cards had no figure.
fn note_left_out(case: &Case, ledger: &mut Ledger) {
    if let Some(text) = imbalance::unnamed_snapshots(case) {
        ledger.claim(combine::Claim {
            item: Item::MemoryStats,
            label: None,
            severity: rankscope_model::Severity::Info,
            confidence: 1.0,
            text,
            ranks: vec![],
            refs: case.refs(case.evidence.snapshots.iter().map(|snapshot| &snapshot.at)),
        });
    }
    for copy in &case.steps.copies {
        let (file, of) = (case.evidence.artifact_name(copy.file), case.evidence.artifact_name(copy.of));
        // Of equal ones neither is the copy, whichever came first.
        let text = if copy.is_whole {
            format!("{} and {} hold the same records, which count once.", file.min(of), file.max(of))
        } else {
            format!("All records of {file} stand in {of} too, and count once.")
        };
        ledger.claim(combine::Claim {
            item: Item::MemoryStats,
            label: None,
            severity: rankscope_model::Severity::Info,
            confidence: 1.0,
            text,
            ranks: vec![],
            refs: vec![],
        });
    }
    let Some(text) = case.main.as_ref().and_then(|(comparison, _)| imbalance::left_out_text(comparison)) else {
        return;
    };
    let item = match case.main.as_ref().map(|(comparison, _)| &comparison.source) {
        Some(imbalance::Source::Tables(_) | imbalance::Source::Nodes) => Item::DeviceVisibility,
        _ => Item::BatchDivisibility,
    };
    ledger.claim(combine::Claim {
        item,
        label: None,
        severity: rankscope_model::Severity::Info,
        confidence: 1.0,
        text,
        ranks: case
            .main
            .iter()
            .flat_map(|(comparison, _)| &comparison.left_out)
            .filter_map(|subject| subject.rank())
            .collect(),
        refs: vec![],
    });
}

fn findings(ledger: &Ledger) -> Vec<Finding> {
    let mut claims: Vec<&combine::Claim> = ledger.claims.iter().collect();
    // By item, then the worst first, so that f1 is what a reader should see first.
    claims.sort_by_key(|claim| (claim.item, std::cmp::Reverse(claim.severity)));
    let numbered = claims.into_iter().enumerate().map(|(index, claim)| {
        let mut ranks = claim.ranks.clone();
        ranks.sort_unstable();
        ranks.dedup();
        Finding {
            id: format!("f{}", index + 1),
            item: claim.item,
            label: claim.label,
            severity: claim.severity,
            confidence: claim.confidence,
            claim: claim.text.clone(),
            ranks,
            evidence: claim.refs.clone(),
        }
    });
    numbered.collect()
}

fn entry(
    case: &Case,
    item: Item,
    (verdict, seen): (Verdict, collect::Seen),
    first: Option<&Cause>,
    ledger: &Ledger,
    findings: &[Finding],
) -> ChecklistEntry {
    let status = ledger.status_of(item);
    let mut collect = ledger.collects_of(item, first.map(|cause| cause.label));
    // A leading cause that is not settled always has something that would settle it.
    let leads = first.is_some_and(|cause| !is_settled(cause) && cause.label.item() == item);
    if leads || matches!(status, ItemStatus::Unknown | ItemStatus::Suspect) {
        // Once a cause is settled, what is left to prove is its fix, even where the cards are equal.
        let towards = if first.is_some_and(is_settled) { Verdict::Imbalance } else { verdict };
        for wanted in collect::for_item(item, towards, seen) {
            if !collect.contains(&wanted) {
                collect.push(wanted);
            }
        }
    }
    // What was given already is not asked for, as long as anything else would tell more.
    if collect.iter().any(|wanted| !collect::is_given(case, wanted)) {
        collect.retain(|wanted| !collect::is_given(case, wanted));
    }
    for wanted in &mut collect {
        collect::ask_for_the_rest(case, wanted);
    }
    ChecklistEntry {
        stage: item.stage().number(),
        item,
        status,
        findings: findings.iter().filter(|f| f.item == item).map(|f| f.id.clone()).collect(),
        collect,
    }
}
