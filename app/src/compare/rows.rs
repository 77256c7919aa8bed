//! Every rank or card in both runs.

use crate::words;
use leptos::prelude::*;
use rankscope_model::{ComparedRow, Comparison, Quantity};

/// With more rows than this the even ones are folded.
const MOST_ROWS: usize = 32;

/// The table; nothing where the runs share no figures.
pub fn rows(comparison: &Comparison) -> Option<AnyView> {
    let quantity = comparison.quantity?;
    if comparison.rows.is_empty() {
        return None;
    }
    let accused = |row: &&ComparedRow| row.base_accused || row.head_accused;
    let of = |rows: Vec<&ComparedRow>| rows.into_iter().map(|row| line(row, quantity)).collect_view();
    let is_long = comparison.rows.len() > MOST_ROWS;
    let shown: Vec<&ComparedRow> =
        if is_long { comparison.rows.iter().filter(accused).collect() } else { comparison.rows.iter().collect() };
    let rest = is_long.then(|| {
        let all = of(comparison.rows.iter().collect());
        view! {
            <details class="exact">
                <summary>{format!("All {}", comparison.rows.len())}</summary>
                {table("Every rank or card before and after", all.into_any())}
            </details>
        }
    });
    Some(
        view! {
            <section class="card" aria-labelledby="rows-title">
                <h2 id="rows-title">"Side by side" <span>{of_each(quantity)}</span></h2>
                {table("Peaks before and after", of(shown).into_any())}
                {rest}
            </section>
        }
        .into_any(),
    )
}

/// `peak allocated of each`, `device used, peak of each`.
fn of_each(quantity: Quantity) -> String {
    let title = quantity.title();
    if title.starts_with("peak") { format!("{title} of each") } else { format!("{title}, peak of each") }
}

fn table(name: &'static str, rows: AnyView) -> AnyView {
    view! {
        <div class="scroll" tabindex="0" role="region" aria-label=name>
            <table>
                <thead>
                    <tr>
                        <th scope="col">"subject"</th>
                        <th scope="col">"before"</th>
                        <th scope="col">"after"</th>
                        <th scope="col">"difference"</th>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
    .into_any()
}

fn line(row: &ComparedRow, quantity: Quantity) -> AnyView {
    let value = |bytes: Option<rankscope_model::Bytes>| {
        bytes.map_or_else(|| "\u{2013}".to_owned(), |bytes| words::value(quantity, bytes.0))
    };
    let word = match (row.base_accused, row.head_accused) {
        (true, true) => " \u{25c6} still stands out",
        (true, false) => " \u{2713} no longer stands out",
        (false, true) => " \u{25c6} stands out now",
        (false, false) => "",
    };
    let difference = row.difference().map_or_else(|| "\u{2013}".to_owned(), |n| words::difference(quantity, n));
    view! {
        <tr class:hot=row.head_accused class:was=row.base_accused && !row.head_accused>
            <th scope="row">{row.subject.to_string()}{word}</th>
            <td>{value(row.base)}</td>
            <td>{value(row.head)}</td>
            <td>{difference}</td>
        </tr>
    }
    .into_any()
}
