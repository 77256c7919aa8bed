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
    let (base, after) = preselected(runs, base, after);
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

/// What stands in the two fields at first. What the address names stays; for the rest the newest run is the one after,
/// and the one before it in time the one before. Never one run on both sides.
fn preselected<'r>(
    runs: &'r [RunSummary],
    base: Option<&'r str>,
    after: Option<&'r str>,
) -> (Option<&'r str>, Option<&'r str>) {
    let ids = || runs.iter().map(|summary| summary.run.id.as_str());
    // Newest first: whoever comes later in the list was there before.
    let older_than = |run: &str| ids().skip_while(|id| *id != run).nth(1);
    let other_than = |run: &str| ids().find(|id| *id != run);
    match (base, after) {
        (base, Some(after)) => (base.or_else(|| older_than(after).or_else(|| other_than(after))), Some(after)),
        (Some(base), None) => (Some(base), other_than(base)),
        (None, None) => (ids().nth(1), ids().next()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{RunInfo, UnixMicros, Verdict};

    /// Newest first, as the backend lists them.
    fn runs(ids: &[&str]) -> Vec<RunSummary> {
        let run = |id: &&str| RunSummary {
            run: RunInfo { id: (*id).into(), title: (*id).into(), created_at: UnixMicros(0) },
            verdict: Verdict::Balanced,
            summary: String::new(),
            artifacts: 1,
        };
        ids.iter().map(run).collect()
    }

    #[test]
    fn the_newest_run_is_the_one_after_and_never_on_both_sides() {
        let runs = runs(&["c", "b", "a"]);
        assert_eq!(preselected(&runs, None, None), (Some("b"), Some("c")));
        assert_eq!(preselected(&runs, Some("a"), None), (Some("a"), Some("c")));
        assert_eq!(preselected(&runs, Some("c"), None), (Some("c"), Some("b")));
        assert_eq!(preselected(&runs, None, Some("b")), (Some("a"), Some("b")));
        assert_eq!(preselected(&runs, None, Some("a")), (Some("c"), Some("a")), "nothing is older");
    }

    #[test]
    fn a_run_that_is_not_in_the_list_still_gets_another_beside_it() {
        let runs = runs(&["c", "b"]);
        assert_eq!(preselected(&runs, None, Some("old")), (Some("c"), Some("old")));
        assert_eq!(preselected(&runs, Some("old"), None), (Some("old"), Some("c")));
    }
}
