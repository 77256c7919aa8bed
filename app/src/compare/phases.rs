//! The same answer for each phase: training and validation are mended by different means.

use crate::icons;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{ComparedPhase, Comparison, Quantity, SpreadFigures};

/// The table; nothing where no phase is known apart.
pub fn phases(comparison: &Comparison) -> Option<AnyView> {
    if !comparison.phases.iter().any(|phase| phase.phase.is_some()) {
        return None;
    }
    let rows = comparison.phases.iter().map(line).collect_view();
    Some(
        view! {
            <section class="card" aria-labelledby="phases-title">
                <h2 id="phases-title">"By phase" <span>"who is above the others, and by how much"</span></h2>
                <div class="scroll" tabindex="0" role="region" aria-label="By phase">
                    <table class="wordy-cells">
                        <thead>
                            <tr>
                                <th scope="col">"phase"</th>
                                <th scope="col">"before"</th>
                                <th scope="col">"after"</th>
                                <th scope="col">"answer"</th>
                            </tr>
                        </thead>
                        <tbody>{rows}</tbody>
                    </table>
                </div>
            </section>
        }
        .into_any(),
    )
}

fn line(phase: &ComparedPhase) -> AnyView {
    let answer = match phase.outcome {
        Some(_) if phase.base.as_ref().is_some_and(SpreadFigures::is_even) && phase.head.as_ref().is_some_and(SpreadFigures::is_even) => {
            view! { <span class="answer-cell">{icons::outcome(rankscope_model::Outcome::Fixed)}"even in both"</span> }.into_any()
        }
        Some(outcome) => {
            view! { <span class="answer-cell">{icons::outcome(outcome)}{outcome.title().to_lowercase()}</span> }.into_any()
        }
        None => view! { <span class="answer-cell dim">{icons::outcome(rankscope_model::Outcome::CannotTell)}"seen once only"</span> }.into_any(),
    };
    view! {
        <tr>
            <th scope="row">{words::phase(phase.phase)} <span class="dim">{format!(" {}", phase.quantity.title())}</span></th>
            <td>{side(phase.base.as_ref(), phase.quantity)}</td>
            <td>{side(phase.head.as_ref(), phase.quantity)}</td>
            <td>{answer}</td>
        </tr>
    }
    .into_any()
}

fn side(figures: Option<&SpreadFigures>, quantity: Quantity) -> AnyView {
    let Some(figures) = figures else { return view! { <span class="dim">"not shown"</span> }.into_any() };
    let Some(first) = figures.heaviest.first() else {
        let span =
            format!("even, {} to {}", words::value(quantity, figures.min.0), words::value(quantity, figures.max.0));
        return view! { <span>{span}</span> }.into_any();
    };
    let more = match figures.heaviest.len() {
        1 => String::new(),
        n => format!(" and {}", words::count(n - 1, "other")),
    };
    let text = format!("{first}{more} +{}", words::value(quantity, figures.gap.0));
    view! { <span class="hot-cell">{text}</span> }.into_any()
}
