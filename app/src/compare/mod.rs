//! Two runs side by side: the answer, the figures behind it, causes, and what is still in doubt. One view for the
//! page, the wizard's closing step and the exported file. Knows a comparison, not where the runs are kept.

mod beside;
mod causes;
mod charts;
mod doubts;
mod export;
mod input;
mod phases;
mod rows;
mod stretches;
#[cfg(test)]
mod testing;

pub use export::standalone_comparison_html;

use crate::backend::ComparedReports;
use crate::icons;
use crate::report::copy_button;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{Comparison, Quantity, Report, SpreadFigures};

/// An answer longer than this is set smaller.
const LONG_ANSWER: usize = 120;

/// Where a comparison stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    /// It is the page: its answer is the first-level heading.
    Page,
    /// It is part of a page.
    Part,
    /// It is part of a file, which has no other page to lead to.
    File,
}

/// The answer large, with the figures that carry it.
pub fn answer(compared: &ComparedReports, stand: Stand) -> AnyView {
    let ComparedReports { base, head, comparison } = compared;
    let sentence = words::shown_line(&comparison.sentence);
    let (first, rest) = words::first_sentence(&sentence);
    let (first, rest) = (first.to_owned(), rest.to_owned());
    let heading = if stand == Stand::Page {
        let is_long = first.chars().count() > LONG_ANSWER;
        view! { <h1 class:long=is_long>{first}</h1> }.into_any()
    } else {
        view! { <h2 class="answer">{first}</h2> }.into_any()
    };
    view! {
        <header class="headline compared">
            <p class="run pair">
                {run_link("before", base, stand)}
                <span class="to" aria-hidden="true">"\u{2192}"</span>
                {run_link("after", head, stand)}
            </p>
            <p class="verdict-word">{icons::outcome(comparison.outcome)}{comparison.outcome.title()}</p>
            {heading}
            {(!rest.is_empty()).then(|| view! { <p class="lede">{rest}</p> })}
            {copy_button(&sentence, "Copy this sentence")}
            {facts(comparison)}
        </header>
    }
    .into_any()
}

/// Everything below the answer.
pub fn details(compared: &ComparedReports) -> AnyView {
    let comparison = &compared.comparison;
    view! {
        {doubts::doubts(comparison)}
        {charts::charts(compared)}
        {rows::rows(comparison)}
        {phases::phases(comparison)}
        {stretches::stretches(compared)}
        {input::input(compared)}
        {causes::causes(comparison)}
    }
    .into_any()
}

fn run_link(word: &'static str, report: &Report, stand: Stand) -> AnyView {
    let title = words::shown_line(&report.run.title);
    let title = if stand == Stand::File {
        view! { <strong><bdi>{title}</bdi></strong> }.into_any()
    } else {
        view! { <a href=format!("/runs/{}", report.run.id)><bdi>{title}</bdi></a> }.into_any()
    };
    view! {
        <span class="pair-run">
            <span class="dim">{word}</span>
            {title}
            <time datetime=words::time_iso(report.run.created_at)>{words::time(report.run.created_at)}</time>
        </span>
    }
    .into_any()
}

fn facts(comparison: &Comparison) -> Option<AnyView> {
    let (quantity, base, head) = (comparison.quantity?, comparison.base.as_ref()?, comparison.head.as_ref()?);
    let figure = |n: u64| words::value(quantity, n);
    let step = |figures: &SpreadFigures| if figures.at_one_moment { "at one step" } else { "at the peak" };
    // A world that changed is worth a figure; one that did not is not.
    let compared = (base.compared != head.compared).then(|| {
        let more = format!("over {} and {}", moments(base.moments), moments(head.moments));
        fact("ranks or cards", &base.compared.to_string(), &head.compared.to_string(), more, false)
    });
    let tokens = match (comparison.input.base_ratio, comparison.input.head_ratio) {
        (before, None) if before.is_none_or(|ratio| ratio <= 1.0) => None,
        (before, after) => {
            let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "not shown".to_owned(), |r| format!("{r:.2}\u{d7}"));
            Some(fact(
                "tokens, most to fewest",
                &ratio(before),
                &ratio(after),
                "in one step, over ranks".to_owned(),
                false,
            ))
        }
    };
    Some(
        view! {
            <dl class="facts">
                {fact(
                    "above the others",
                    &gap(quantity, base),
                    &gap(quantity, head),
                    format!("{}, {}", quantity.title(), step(base)),
                    !head.is_even(),
                )}
                {fact("highest", &figure(base.max.0), &figure(head.max.0), String::new(), false)}
                {fact("median", &figure(base.median.0), &figure(head.median.0), String::new(), false)}
                {tokens}
                {compared}
            </dl>
        }
        .into_any(),
    )
}

fn moments(n: u64) -> String {
    if n == 1 { "1 moment".to_owned() } else { format!("{} moments", words::grouped(n)) }
}

/// The gap of those who stand out; none where nobody does.
fn gap(quantity: Quantity, figures: &SpreadFigures) -> String {
    if figures.is_even() { "none".to_owned() } else { words::value(quantity, figures.gap.0) }
}

fn fact(name: &'static str, before: &str, after: &str, more: String, hot: bool) -> AnyView {
    let (before, after) = (before.to_owned(), after.to_owned());
    view! {
        <div class:hot=hot>
            <dt>{name}</dt>
            <dd class="from-to">
                <span class="visually-hidden">"before "</span>
                <span class="from">{before}</span>
                <span aria-hidden="true">" \u{2192} "</span>
                <span class="visually-hidden">", after "</span>
                <span>{after}</span>
            </dd>
            <dd class="more">{more}</dd>
        </div>
    }
    .into_any()
}
