//! The guided checklist: one stage a page, the most telling step first, with the place for its evidence right there.
//! Knows a report and what people said of it, not where they are kept.

mod guide;
mod item;
mod own;
mod steps;
mod verify;

use crate::backend::ComparedReports;
use crate::icons;
use crate::report::{Places, code_block, copy_button};
use crate::standing::{Checklist, Standing, own_word};
use crate::words;
use leptos::prelude::*;
use rankscope_model::{ItemStatus, Report, RunSummary, Stage};

/// What the wizard shows.
pub struct Wizard<'a> {
    /// The newest report of the run.
    pub report: &'a Report,
    /// The run beside the one after its fix, if one was named.
    pub compared: Option<&'a ComparedReports>,
    /// Runs that may be named as the one after the fix, newest first.
    pub recent: &'a [RunSummary],
    /// The name under which this visitor wrote last.
    pub visitor_name: Option<String>,
    /// For the whole address of a stage.
    pub base_url: String,
    /// Stated beside the places to drop evidence.
    pub max_file_bytes: u64,
    /// Stated beside the places to drop evidence.
    pub max_request_bytes: u64,
}

/// A stage with its items.
pub fn wizard_view(wizard: &Wizard<'_>, checklist: &Checklist<'_>, stage: Stage) -> AnyView {
    let report = wizard.report;
    let run = &report.run.id;
    let words_of_stage = guide::stage(stage);
    let places = Places::of(&report.diagnosis).on_page(format!("/runs/{run}"));
    let (out, items): (Vec<&Standing>, Vec<&Standing>) =
        checklist.of_stage(stage).into_iter().partition(|item| item.is_out());
    let leading = checklist.next().map(Standing::item);
    let cards = items
        .iter()
        .map(|standing| item::item(standing, wizard, &places, leading == Some(standing.item())))
        .collect_view();
    let folded = (!out.is_empty()).then(|| {
        let lines = out.iter().map(|standing| item::folded(standing, wizard)).collect_view();
        view! {
            <section class="card checklist" aria-labelledby="out-title">
                <h2 id="out-title">"Does not apply here"</h2>
                <ul class="items">{lines}</ul>
            </section>
        }
    });
    let main = if stage == Stage::Verify {
        view! { {verify::verify(wizard)}{cards}{folded} }.into_any()
    } else {
        view! { {cards}{folded} }.into_any()
    };
    view! {
        <main id="main" class="wizard">
            <header class="wizard-head">
                <p class="run">
                    <a href=format!("/runs/{run}")><strong><bdi>{words::shown_line(&report.run.title)}</bdi></strong></a>
                    <span>"guided checklist"</span>
                    <span>{format!("diagnosis {}", report.version)}</span>
                </p>
                {steps::steps(run, checklist, stage)}
                <h1>{words_of_stage.question}</h1>
                <p class="lede">{words_of_stage.how}</p>
            </header>
            <div class="cols">
                <div class="main">{main}{pager(run, stage)}</div>
                <div class="side">
                    {summary(report)}
                    {next(wizard, checklist, stage)}
                    {all_items(run, checklist, stage)}
                    {pass_on(wizard, stage)}
                </div>
            </div>
        </main>
    }
    .into_any()
}

fn summary(report: &Report) -> AnyView {
    let summary = words::shown_line(&report.diagnosis.summary);
    let (first, _) = words::first_sentence(&summary);
    view! {
        <section class="card so-far" aria-labelledby="so-far-title">
            <h2 id="so-far-title">"So far"</h2>
            <p class="verdict-word">{icons::verdict(report.diagnosis.verdict)}{report.diagnosis.verdict.title()}</p>
            <p>{first.to_owned()}</p>
            <p><a href=format!("/runs/{}", report.run.id)>"The whole report"</a></p>
        </section>
    }
    .into_any()
}

/// The most telling step, where it is not on this page already.
fn next(wizard: &Wizard<'_>, checklist: &Checklist<'_>, stage: Stage) -> Option<AnyView> {
    let next = checklist.next()?;
    let item = next.item();
    if item.stage() == stage {
        return None;
    }
    let run = &wizard.report.run.id;
    let is_known = next.status() == ItemStatus::Fail;
    // What is known to fail is to be mended; only what is open has something to collect.
    let (title, step) = if is_known {
        (
            "First, mend what fails",
            view! { <p>"The files show it. Its remedy, in your own lines where they are here, stands there."</p> }
                .into_any(),
        )
    } else {
        let step = next.entry.collect.first().map(|collect| {
            view! { <p>{words::shown(&collect.what)}</p>{code_block(&collect.command)} }
        });
        ("Next, most telling", step.into_any())
    };
    Some(
        view! {
            <section class="next" aria-labelledby="next-title">
                <h2 id="next-title">{title}</h2>
                <p><strong>{item.short_title()}</strong></p>
                {step}
                <p class="go"><a class="button primary" href=format!("/runs/{run}/checklist/{}#item-{}", item.stage().slug(), item.slug())>"Go there"</a></p>
            </section>
        }
        .into_any(),
    )
}

fn all_items(run: &str, checklist: &Checklist<'_>, current: Stage) -> AnyView {
    let stages = Stage::ALL
        .iter()
        .map(|&stage| {
            let lines = checklist
                .items
                .iter()
                .filter(|item| item.item().stage() == stage)
                .map(|standing| {
                    let item = standing.item();
                    let word = match standing.own_status() {
                        Some(own) => own_word(own),
                        None => standing.word(),
                    };
                    let sign = match standing.own_status() {
                        Some(own) => icons::own(own).into_any(),
                        None => icons::status(standing.entry.status).into_any(),
                    };
                    view! {
                        <li>
                            <a class="item" href=format!("/runs/{run}/checklist/{}#item-{}", stage.slug(), item.slug())>
                                {sign}
                                <span class="item-title">{item.short_title()}</span>
                                <span class="item-word">{word}</span>
                            </a>
                        </li>
                    }
                })
                .collect_view();
            view! {
                <h3 class:here=stage == current>{stage.title()}</h3>
                <ul class="items">{lines}</ul>
            }
        })
        .collect_view();
    view! {
        <section class="card checklist all-items" aria-labelledby="all-title">
            <h2 id="all-title">"All items"</h2>
            {steps::progress(checklist)}
            {stages}
        </section>
    }
    .into_any()
}

fn pass_on(wizard: &Wizard<'_>, stage: Stage) -> AnyView {
    let address = format!("{}/runs/{}/checklist/{}", wizard.base_url, wizard.report.run.id, stage.slug());
    view! {
        <section class="card pass-on" aria-labelledby="pass-title">
            <h2 id="pass-title">"Pass this stage on"</h2>
            <p class="dim">"Everything here is kept. Whoever reaches this server can go on from this address."</p>
            <p class="row"><code>{address.clone()}</code>{copy_button(&address, "Copy address")}</p>
        </section>
    }
    .into_any()
}

/// The stages before and after.
fn pager(run: &str, stage: Stage) -> AnyView {
    let at = Stage::ALL.iter().position(|known| *known == stage).unwrap_or_default();
    let link = |stage: Option<&Stage>, word: &'static str, class: &'static str| {
        stage.map(|stage| {
            view! {
                <a class=format!("button {class}") href=format!("/runs/{run}/checklist/{}", stage.slug())>
                    {format!("{word}: {}", stage.title())}
                </a>
            }
        })
    };
    let before = at.checked_sub(1).and_then(|at| Stage::ALL.get(at));
    let after = Stage::ALL.get(at + 1);
    view! { <nav class="pager" aria-label="Stages before and after">{link(before, "Back", "back")}{link(after, "On", "on")}</nav> }.into_any()
}
