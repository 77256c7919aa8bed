//! What weakens or forbids the answer, and what would settle it.

use crate::icons;
use crate::report::code_block;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{Comparison, Outcome};

/// Doubts and what to collect; nothing where there are neither.
pub fn doubts(comparison: &Comparison) -> Option<AnyView> {
    let wanted = comparison.outcome != Outcome::Fixed && !comparison.collect.is_empty();
    if comparison.doubts.is_empty() && !wanted {
        return None;
    }
    let lines = comparison
        .doubts
        .iter()
        .map(|doubt| {
            let text = words::shown_line(&doubt.text);
            let word = if doubt.forbids_proof { "No proof: " } else { "Note: " };
            view! { <li class:grave=doubt.forbids_proof>{icons::warning()}<span><strong>{word}</strong>{text}</span></li> }
        })
        .collect_view();
    let collect = wanted.then(|| {
        let steps = comparison
            .collect
            .iter()
            .take(3)
            .map(|collect| view! { <div class="collect"><p>{words::shown(&collect.what)}</p>{code_block(&collect.command)}</div> })
            .collect_view();
        view! { <h3>"Would settle it"</h3>{steps} }
    });
    let title = if comparison.outcome == Outcome::Fixed { "What the proof does not cover" } else { "What is missing" };
    Some(
        view! {
            <section class="card doubts" aria-labelledby="doubts-title">
                <h2 id="doubts-title">{title}</h2>
                {(!comparison.doubts.is_empty()).then(|| view! { <ul>{lines}</ul> })}
                {collect}
            </section>
        }
        .into_any(),
    )
}
