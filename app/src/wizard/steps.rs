//! The way through the checklist: five steps with the state of each, and how far it has come.

use crate::icons;
use crate::standing::{Checklist, gravest, word};
use leptos::prelude::*;
use rankscope_model::{Item, ItemStatus, Stage};

/// The steps, the current one marked.
pub fn steps(run: &str, checklist: &Checklist<'_>, current: Stage) -> AnyView {
    let steps = Stage::ALL
        .iter()
        .zip(1..)
        .map(|(&stage, n)| {
            let items = checklist.of_stage(stage);
            let settled = items.iter().filter(|item| item.is_settled()).count();
            let status = gravest(items.iter().copied());
            let word = match (stage, status) {
                (Stage::Verify, status) => word(Item::Verified, status).to_owned(),
                (_, ItemStatus::NotApplicable) => ItemStatus::NotApplicable.word().to_owned(),
                _ => format!("{settled} of {} settled", items.len()),
            };
            let here = (stage == current).then_some("step");
            view! {
                <li class:here=stage == current>
                    <a href=format!("/runs/{run}/checklist/{}", stage.slug()) aria-current=here>
                        <span class="step-name">{icons::status(status)}<span class="step-n">{n}</span>{stage.title()}</span>
                        <span class="step-state">
                            <span class="visually-hidden">{format!("{}, ", status.word())}</span>
                            {word}
                        </span>
                    </a>
                </li>
            }
        })
        .collect_view();
    view! { <nav aria-label="Stages"><ol class="steps">{steps}</ol></nav> }.into_any()
}

/// `6 of 9 items settled, 1 does not apply`, with a bar.
pub fn progress(checklist: &Checklist<'_>) -> AnyView {
    let progress = checklist.progress();
    view! {
        <div class="progress-line">
            <progress max=progress.apply.max(1).to_string() value=progress.settled.to_string() aria-label="Items settled"></progress>
            <span>{progress.words()}</span>
        </div>
    }
    .into_any()
}
