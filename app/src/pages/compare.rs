//! `/compare?base=&head=`: two runs side by side; without both of them, the place to choose them.

use super::message::{Sought, message};
use super::{backend, head};
use crate::backend::{BackendError, ComparedReports};
use crate::compare::{Stand, answer, details};
use crate::document::TopBar;
use crate::words;
use leptos::prelude::*;
use leptos_meta::{Meta, Title};
use leptos_router::hooks::use_query_map;
use rankscope_model::RunSummary;

/// Runs that are offered.
const OFFERED: u32 = 100;

/// The comparison, or the choice.
#[component]
pub fn ComparePage() -> impl IntoView {
    let query = use_query_map();
    let given = |key: &str| {
        let value = query.with_untracked(|query| query.get(key)).unwrap_or_default();
        Some(value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    let (base, after) = (given("base"), given("head"));
    Suspend::new(async move {
        match (base, after) {
            (Some(base), Some(after)) => match compared(base, after).await {
                Ok(compared) => page(&compared),
                Err(error) => message(&error, Sought::Comparison),
            },
            (base, after) => match recent().await {
                Ok(runs) => choice(&runs, base.as_deref(), after.as_deref()),
                Err(error) => message(&error, Sought::Runs),
            },
        }
    })
}

async fn compared(base: String, after: String) -> Result<ComparedReports, BackendError> {
    backend()?.compared(base, after).await
}

async fn recent() -> Result<Vec<RunSummary>, BackendError> {
    backend()?.recent_runs(None, OFFERED).await
}

fn page(compared: &ComparedReports) -> AnyView {
    let ComparedReports { base, head: after, comparison } = compared;
    head(view! {
        <Title text=format!("{}: {} - Rankscope", comparison.outcome.title(), words::title_text(&base.run.title))/>
        <Meta name="description" content=words::shown_line(&comparison.sentence)/>
        <Meta name="robots" content="noindex"/>
    });
    let swapped = format!("/compare?base={}&head={}", after.run.id, base.run.id);
    let checklist = format!("/runs/{}/checklist", base.run.id);
    view! {
        <TopBar>
            <a class="button" href=swapped>"Swap"</a>
            <a class="button" href=checklist>"To the checklist"</a>
        </TopBar>
        <main id="main" class="compare">
            {answer(compared, Stand::Page)}
            <div class="main">{details(compared)}</div>
        </main>
    }
    .into_any()
}

fn choice(runs: &[RunSummary], base: Option<&str>, after: Option<&str>) -> AnyView {
    head(view! {
        <Title text="Compare two runs - Rankscope"/>
        <Meta name="robots" content="noindex"/>
    });
    let options = |chosen: Option<&str>| {
        runs.iter()
            .map(|summary| {
                let text =
                    format!("{}, {}", words::shown_line(&summary.run.title), words::time(summary.run.created_at));
                let selected = chosen == Some(summary.run.id.as_str());
                view! { <option value=summary.run.id.clone() selected=selected>{text}</option> }
            })
            .collect_view()
    };
    let form = if runs.len() < 2 {
        view! { <p>"Two runs are needed. " <a href="/">"Add the files of one"</a> "."</p> }.into_any()
    } else {
        view! {
            <form class="card choose" method="get" action="/compare">
                <div class="field">
                    <label for="base">"The run before"</label>
                    <select id="base" name="base">{options(base)}</select>
                </div>
                <div class="field">
                    <label for="head">"The run after"</label>
                    <select id="head" name="head">{options(after)}</select>
                </div>
                <button type="submit" class="button primary">"Compare"</button>
            </form>
        }
        .into_any()
    };
    view! {
        <TopBar/>
        <main id="main" class="compare">
            <header class="headline">
                <h1>"Is the difference gone?"</h1>
                <p class="lede">"Two runs of one job side by side: peaks of each rank, phases, batches and causes."</p>
            </header>
            {form}
        </main>
    }
    .into_any()
}
