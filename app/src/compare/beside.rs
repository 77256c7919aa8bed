//! A table of words with what was before beside what is after. Knows no figures.

use leptos::prelude::*;

/// What a table is about.
pub struct Beside {
    /// Start of the ids in it, unique in the page.
    pub id: &'static str,
    /// The heading, and the name of the box that scrolls.
    pub title: &'static str,
    /// What is beside the heading.
    pub subtitle: String,
    /// The head of the first column.
    pub of: &'static str,
    /// What is not shown, and where it is.
    pub cut: Option<String>,
}

/// The card with its table; each row is its name, before and after.
pub fn beside(about: Beside, rows: impl IntoIterator<Item = (String, AnyView, AnyView)>) -> AnyView {
    let Beside { id, title, subtitle, of, cut } = about;
    let title_id = format!("{id}-title");
    let rows = rows
        .into_iter()
        .map(|(name, before, after)| view! { <tr><th scope="row">{name}</th><td>{before}</td><td>{after}</td></tr> })
        .collect_view();
    view! {
        <section class="card" aria-labelledby=title_id.clone()>
            <h2 id=title_id.clone()>{title} <span>{subtitle}</span></h2>
            <div class="scroll" tabindex="0" role="region" aria-label=title>
                <table class="wordy-cells">
                    <thead><tr><th scope="col">{of}</th><th scope="col">"before"</th><th scope="col">"after"</th></tr></thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
            {cut.map(|cut| view! { <p class="cut dim">{cut}</p> })}
        </section>
    }
    .into_any()
}

/// The cell of a run that says nothing of it.
pub fn not_shown() -> AnyView {
    view! { <span class="dim">"not shown"</span> }.into_any()
}
