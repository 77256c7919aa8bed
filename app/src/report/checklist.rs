//! The four stages and the closing proof, each item with a shape, a word, its findings and what would decide it.

use super::code::code_block;
use super::places::Places;
use crate::icons;
use crate::standing::{Checklist, Standing, own_word};
use crate::words;
use leptos::prelude::*;
use rankscope_model::{Finding, ItemStatus, Stage};

/// The checklist; its owner is led to the guided one.
pub fn checklist(run: &str, checklist: &Checklist<'_>, places: &Places<'_>, owned: bool) -> AnyView {
    let stages = Stage::ALL
        .iter()
        .filter_map(|&stage| {
            let items: Vec<&Standing> = checklist.items.iter().filter(|item| item.item().stage() == stage).collect();
            (!items.is_empty()).then(|| stage_view(stage, &items, places))
        })
        .collect_view();
    view! {
        <section class="card checklist" id="checklist" aria-labelledby="checklist-title">
            <h2 id="checklist-title">"Checklist" <span>{checklist.progress().words()}</span></h2>
            {stages}
            {owned.then(|| ways(run))}
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

fn stage_view(stage: Stage, items: &[&Standing<'_>], places: &Places<'_>) -> AnyView {
    let heading = match stage {
        Stage::Verify => stage.title().to_owned(),
        _ => format!("{} {}", stage.number(), stage.title()),
    };
    let items = items.iter().map(|standing| item(standing, places)).collect_view();
    view! { <h3>{heading}</h3><ul class="items">{items}</ul> }.into_any()
}

fn item(standing: &Standing<'_>, places: &Places<'_>) -> AnyView {
    let entry = standing.entry;
    let findings = &standing.findings;
    // What a person said stands beside the machine's word, which stays.
    let own = standing.own().and_then(|note| Some((note, note.status?)));
    let own_mark = own.map(|(note, status)| {
        let who = words::shown_line(&note.author);
        view! { <span class="item-own">{icons::own(status)}{format!("{who}: {}", own_word(status))}</span> }
    });
    let line = view! {
        {icons::status(entry.status)}
        <span class="item-title">{entry.item.short_title()}{own_mark}</span>
        <span class="item-word">{standing.word()}</span>
    };
    if findings.is_empty() && entry.collect.is_empty() {
        return view! { <li><div class="item">{line}</div></li> }.into_any();
    }
    let findings = findings.iter().map(|finding| finding_view(finding, places)).collect_view();
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
                    <p class="full">{standing.heading()}</p>
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
        <div class="finding">
            {icons::severity(finding.severity)}
            <div>
                {words::shown_line(&finding.claim)}
                <span class="num">{format!(" confidence {:.2}", finding.confidence)}</span>
                {places.links(&finding.evidence)}
            </div>
        </div>
    }
}
