//! What became of each cause.

use crate::icons;
use leptos::prelude::*;
use rankscope_model::{CauseFate, ComparedCause, Comparison};

/// The list; nothing where neither run names a cause.
pub fn causes(comparison: &Comparison) -> Option<AnyView> {
    if comparison.causes.is_empty() {
        return None;
    }
    let lines = comparison.causes.iter().map(line).collect_view();
    Some(
        view! {
            <section class="card fates" aria-labelledby="fates-title">
                <h2 id="fates-title">"Causes" <span>"with the confidence of each run"</span></h2>
                <ul>{lines}</ul>
            </section>
        }
        .into_any(),
    )
}

fn line(cause: &ComparedCause) -> AnyView {
    let figure = |confidence: f64| if confidence > 0.0 { format!("{confidence:.2}") } else { "not named".to_owned() };
    let note = (cause.fate == CauseFate::NotSeen)
        .then(|| view! { <span class="dim">" the run after has no evidence of it either way"</span> });
    view! {
        <li class:hot={matches!(cause.fate, CauseFate::Remains | CauseFate::New)}>
            {icons::fate(cause.fate)}
            <strong class="fate">{cause.fate.title()}</strong>
            <span>{cause.label.title()}{note}</span>
            <span class="num dim">{format!("{} \u{2192} {}", figure(cause.base_confidence), figure(cause.head_confidence))}</span>
        </li>
    }
    .into_any()
}
