//! What each rank was fed, before and after: shapes and tokens. Even memory is proof of a fix only if the input was
//! what it was before.

use crate::backend::ComparedReports;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{InputFacts, RankInput, Subject};

/// Rows that are shown.
const MOST_ROWS: usize = 32;

/// The table; nothing where neither run tells what its ranks were fed.
pub fn input(compared: &ComparedReports) -> Option<AnyView> {
    let (before, after) = (&compared.base.figures.facts.input, &compared.head.figures.facts.input);
    let of = |facts: &Option<InputFacts>| facts.as_ref().map(|facts| facts.ranks.clone()).unwrap_or_default();
    let (before, after) = (of(before), of(after));
    let mut subjects: Vec<Subject> = before.iter().chain(&after).map(|rank| rank.subject).collect();
    subjects.sort_unstable();
    subjects.dedup();
    if subjects.is_empty() {
        return None;
    }
    let left_out = subjects.len().saturating_sub(MOST_ROWS);
    let rows = subjects
        .iter()
        .take(MOST_ROWS)
        .map(|subject| {
            let find = |side: &[RankInput]| {
                side.iter().find(|rank| rank.subject == *subject).map_or_else(|| "not shown".to_owned(), fed)
            };
            view! {
                <tr>
                    <th scope="row">{subject.to_string()}</th>
                    <td>{find(&before)}</td>
                    <td>{find(&after)}</td>
                </tr>
            }
        })
        .collect_view();
    let cut = (left_out > 0).then(|| {
        view! { <p class="cut dim">{format!("{} not shown; the JSON of the reports has them.", words::count(left_out, "rank"))}</p> }
    });
    Some(
        view! {
            <section class="card" aria-labelledby="input-title">
                <h2 id="input-title">"What each rank was fed" <span>"batches, their largest shape, tokens"</span></h2>
                <div class="scroll" tabindex="0" role="region" aria-label="What each rank was fed">
                    <table class="wordy-cells">
                        <thead><tr><th scope="col">"subject"</th><th scope="col">"before"</th><th scope="col">"after"</th></tr></thead>
                        <tbody>{rows}</tbody>
                    </table>
                </div>
                {cut}
            </section>
        }
        .into_any(),
    )
}

/// `60 batches, largest 8 × 512, 245,760 tokens`.
fn fed(rank: &RankInput) -> String {
    let batches =
        words::count(usize::try_from(rank.batches).unwrap_or(usize::MAX), "batch").replace("batchs", "batches");
    let shape = rank.shape.as_ref().map(|shape| {
        let sides: Vec<String> = shape.iter().map(ToString::to_string).collect();
        format!("largest {}", sides.join(" \u{d7} "))
    });
    let tokens = (rank.tokens > 0).then(|| format!("{} tokens", words::grouped(rank.tokens)));
    [Some(batches), shape, tokens].into_iter().flatten().collect::<Vec<_>>().join(", ")
}
