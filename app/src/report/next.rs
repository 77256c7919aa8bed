//! The one next step: what it would show, the command, and the place for its output.

use super::Owned;
use super::code::code_block;
use crate::evidence_form::{EvidenceForm, evidence_form};
use crate::standing::Checklist;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{Item, ItemStatus, Report};

/// The next step; for the owner with the form that takes its output.
pub fn next(report: &Report, checklist: &Checklist<'_>, owned: Option<&Owned>) -> AnyView {
    // Once the fix is proven nothing is left to collect.
    let wanted = report.next.as_ref().filter(|_| !checklist.is_proven());
    if wanted.is_none() && owned.is_none() {
        return ().into_any();
    }
    let step = wanted.map(|(item, collect)| {
        view! {
            <p>{words::shown(&collect.what)}</p>
            {code_block(&collect.command)}
            <p class="dim">"Decides: "<a href=format!("#item-{}", item.slug())>{item.short_title()}</a></p>
        }
    });
    // Where something fails, the next step is its remedy: what comes here is what follows it.
    let to_mend = checklist.next().filter(|standing| standing.status() == ItemStatus::Fail);
    let proves = wanted.is_some_and(|(item, _)| *item == Item::Verified);
    let title = match (&step, to_mend) {
        (None, _) => "Add evidence",
        (Some(_), Some(_)) if proves => "Then, with the remedy applied",
        (Some(_), _) => "Next, most telling",
    };
    let form = owned.map(|owned| {
        evidence_form(EvidenceForm {
            action: format!("/runs/{}/files", report.run.id),
            api: format!("/api/v1/runs/{}/files", report.run.id),
            back: None,
            button: "Add and diagnose again",
            id: "more",
            new_run: false,
            projects: Vec::new(),
            max_file_bytes: owned.max_file_bytes,
            max_request_bytes: owned.max_request_bytes,
        })
    });
    view! { <section class="next" id="next" aria-labelledby="next-title"><h2 id="next-title">{title}</h2>{step}{form}</section> }
        .into_any()
}
