//! The four stages and the closing proof, each item with a shape, a word, its findings and what would decide it.

use super::code::code_block;
use super::places::Places;
use crate::icons;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{ChecklistEntry, Diagnosis, Finding, ItemStatus, Report, Stage};

/// The checklist; its owner is led to the guided one.
pub fn checklist(report: &Report, places: &Places<'_>, owned: bool) -> AnyView {
    let diagnosis = &report.diagnosis;
    let entries = &diagnosis.checklist;
    let decided = entries.iter().filter(|entry| entry.status != ItemStatus::Unknown).count();
    let stages = Stage::ALL
        .iter()
        .filter_map(|&stage| {
            let items: Vec<&ChecklistEntry> = entries.iter().filter(|entry| entry.item.stage() == stage).collect();
            (!items.is_empty()).then(|| stage_view(stage, &items, diagnosis, places))
        })
        .collect_view();
    view! {
        <section class="card checklist" id="checklist" aria-labelledby="checklist-title">
            <h2 id="checklist-title">"Checklist" <span>{format!("{decided} of {} decided", entries.len())}</span></h2>
            {stages}
            {owned.then(|| ways(&report.run.id))}
        </section>
    }
    .into_any()
}

fn ways(run: &str) -> AnyView {
    view! {
        <p class="ways">
            <a class="button" href=format!("/runs/{run}/checklist")>"Go through it step by step"</a>
            <a class="button" href=format!("/runs/{run}/checklist/verify")>"Verify a fix"</a>
        </p>
    }
    .into_any()
}

fn stage_view(stage: Stage, entries: &[&ChecklistEntry], diagnosis: &Diagnosis, places: &Places<'_>) -> AnyView {
    let heading = match stage {
        Stage::Verify => stage.title().to_owned(),
        _ => format!("{} {}", stage.number(), stage.title()),
    };
    let items = entries.iter().map(|entry| item(entry, diagnosis, places)).collect_view();
    view! { <h3>{heading}</h3><ul class="items">{items}</ul> }.into_any()
}

fn item(entry: &ChecklistEntry, diagnosis: &Diagnosis, places: &Places<'_>) -> AnyView {
    // Until a second run exists, the proof is not missing: it is still to come.
    let word = match (entry.item.stage(), entry.status) {
        (Stage::Verify, ItemStatus::Unknown) => "not yet",
        (_, status) => status.word(),
    };
    let findings: Vec<&Finding> =
        diagnosis.findings.iter().filter(|finding| entry.findings.contains(&finding.id)).collect();
    let line = view! {
        {icons::status(entry.status)}
        <span class="item-title">{entry.item.short_title()}</span>
        <span class="item-word">{word}</span>
    };
    if findings.is_empty() && entry.collect.is_empty() {
        return view! { <li><div class="item">{line}</div></li> }.into_any();
    }
    let findings = findings.into_iter().map(|finding| finding_view(finding, places)).collect_view();
    let collect = entry
        .collect
        .iter()
        .map(|collect| view! { <div class="collect"><p>{words::shown(&collect.what)}</p>{code_block(&collect.command)}</div> })
        .collect_view();
    let decides = (!entry.collect.is_empty()).then(|| {
        let start = if entry.status == ItemStatus::Unknown { "Would decide it" } else { "Would make it certain" };
        view! { <h4>{start}</h4> }
    });
    view! {
        <li>
            <details id=format!("item-{}", entry.item.slug())>
                <summary class="item">{line}</summary>
                <div class="item-body">
                    <p class="full">{entry.item.title()}</p>
                    {findings}
                    {decides}
                    {collect}
                </div>
            </details>
        </li>
    }
    .into_any()
}

fn finding_view(finding: &Finding, places: &Places<'_>) -> impl IntoView {
    view! {
        <p class="finding">
            {icons::severity(finding.severity)}
            <span>
                {words::shown_line(&finding.claim)}
                <span class="num">{format!(" confidence {:.2}", finding.confidence)}</span>
                {places.links(&finding.evidence)}
            </span>
        </p>
    }
}
