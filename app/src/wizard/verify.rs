//! The closing step: name the run after the fix, and see whether it proves the fix.

use super::{Wizard, guide};
use crate::accounts::may_edit;
use crate::compare::{Stand, answer, details};
use crate::evidence_form::{EvidenceForm, evidence_form};
use crate::report::code_block;
use crate::standing::has_something_to_prove;
use crate::words;
use leptos::prelude::*;
use rankscope_model::Verdict;

/// The comparison where there is one, and the forms that name the run after the fix.
pub fn verify(wizard: &Wizard<'_>) -> AnyView {
    match wizard.compared {
        Some(compared) => {
            let address = format!("/compare?base={}&head={}", compared.base.run.id, compared.head.run.id);
            view! {
                <section class="verified-part" aria-label="Before and after">
                    {answer(compared, Stand::Part)}
                    <p class="dim"><a href=address>"Open the comparison as a page of its own"</a></p>
                    <div class="main">{details(compared)}</div>
                </section>
                <details class="card exact another-after">
                    <summary>"Take another run as the proof"</summary>
                    {attach(wizard)}
                </details>
            }
            .into_any()
        }
        None => view! {
            {needs(wizard)}
            <section class="card" aria-labelledby="after-title">
                <h2 id="after-title">"Add the run after the fix" <span>"its files, or a run that is here already"</span></h2>
                {attach(wizard)}
            </section>
        }
        .into_any(),
    }
}

fn needs(wizard: &Wizard<'_>) -> AnyView {
    let lines = guide::PROOF_NEEDS
        .iter()
        .map(|(what, how)| view! { <li><strong>{*what}</strong>{format!(": {how}")}</li> })
        .collect_view();
    let nothing = (!has_something_to_prove(wizard.report)).then(|| {
        view! { <p class="nothing-said">"This run shows no imbalance, so there is no fix to prove. A later run can still be held against it."</p> }
    });
    let entry = wizard.report.diagnosis.checklist.iter().find(|entry| entry.item == rankscope_model::Item::Verified);
    let collect = entry.and_then(|entry| entry.collect.first()).map(|collect| {
        view! { <div class="collect"><p>{words::shown(&collect.what)}</p>{code_block(&collect.command)}</div> }
    });
    view! {
        <section class="next" aria-labelledby="needs-title">
            <h2 id="needs-title">"What a proof needs"</h2>
            {nothing}
            <ul class="needs">{lines}</ul>
            {collect}
        </section>
    }
    .into_any()
}

fn attach(wizard: &Wizard<'_>) -> AnyView {
    let run = &wizard.report.run.id;
    let form = evidence_form(EvidenceForm {
        action: format!("/runs/{run}/after/files"),
        api: format!("/api/v1/runs/{run}/after/files"),
        back: None,
        button: "Compare",
        id: "after",
        new_run: false,
        projects: Vec::new(),
        max_file_bytes: wizard.max_file_bytes,
        max_request_bytes: wizard.max_request_bytes,
    });
    // The first one is chosen beforehand: a run of which nothing can be compared proves nothing. The newest come first.
    let (telling, others): (Vec<_>, Vec<_>) = wizard
        .recent
        .iter()
        .filter(|summary| summary.run.id != *run)
        .partition(|summary| summary.verdict != Verdict::Inconclusive);
    let options = telling
        .into_iter()
        .chain(others)
        .map(|summary| {
            let text = format!("{}, {}", words::shown_line(&summary.run.title), words::time(summary.run.created_at));
            view! { <option value=summary.run.id.clone()>{text}</option> }
        })
        .collect_view();
    let has_others = wizard.recent.iter().any(|summary| summary.run.id != *run);
    let choose = (has_others && may_edit()).then(|| {
        view! {
            <form class="choose-after" method="post" action=format!("/runs/{run}/after")>
                <div class="field">
                    <label for="after-run">"Or choose a run that is here already"</label>
                    <select id="after-run" name="run">{options}</select>
                </div>
                <button type="submit" class="button">"Compare with it"</button>
            </form>
        }
    });
    let live = view! {
        <p class="dim">
            "Or start the job again while "<a href="/docs/agent">"an agent"</a>
            " watches its nodes: its run stands in the list of runs from its first minute on, and the comparison follows it."
        </p>
    };
    view! { <div class="attach">{form}{choose}{live}</div> }.into_any()
}
