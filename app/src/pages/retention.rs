//! `/settings/projects/{project}/retention`: how long the runs of a project are kept, and what that deletes. Limits are
//! seen before they are set: the first form only asks, the second one holds what was asked.

use super::message::{Sought, message};
use super::settings::frame;
use super::{backend, head};
use crate::backend::BackendError;
use crate::icons;
use crate::retention::{AskedLimits, Consequences, ExpiringRun, KeptFor, Retention};
use crate::words;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::{use_params_map, use_query_map};
use rankscope_model::Bytes;

/// Runs of a list that are shown; a longer one says how many more there are.
const LISTED: usize = 200;

/// The limits of a project.
#[component]
pub fn RetentionPage() -> impl IntoView {
    let project = use_params_map().with_untracked(|params| params.get("project").unwrap_or_default());
    let asked = use_query_map().with_untracked(|query| {
        let (days, size) = (query.get("days"), query.get("size"));
        let is_asked = days.is_some() || size.is_some();
        is_asked.then(|| AskedLimits { days: days.unwrap_or_default(), size: size.unwrap_or_default() })
    });
    Suspend::new(async move {
        match load(project, asked).await {
            Ok(retention) => page(&retention),
            Err(error) => message(&error, Sought::Page),
        }
    })
}

async fn load(project: String, asked: Option<AskedLimits>) -> Result<Retention, BackendError> {
    backend()?.retention(project, asked).await
}

fn page(retention: &Retention) -> AnyView {
    let name = words::shown_line(&retention.project.name);
    head(
        view! { <Title text=format!("How long runs are kept: {} - Rankscope", words::title_text(&retention.project.name))/> },
    );
    let address = format!("/settings/projects/{}/retention", words::encoded(&retention.project.id));
    let written = match &retention.asked {
        Some((asked, _)) => asked.clone(),
        None => as_written(retention.kept),
    };
    let fault = retention.asked.as_ref().and_then(|(_, read)| read.as_ref().err().cloned());
    let asked = retention.asked.as_ref().and_then(|(asked, read)| read.as_ref().ok().map(|kept| (asked, *kept)));
    let fault = fault.map(|fault| view! { <p class="warning" role="alert">{icons::warning()}<span>{fault}</span></p> });
    let answer = match asked {
        Some((asked, kept)) => preview(retention, asked, kept, &address),
        None => standing(retention),
    };
    let content = view! {
        <section class="card fields" aria-labelledby="limits-title">
            <h2 id="limits-title"><bdi>{format!("Limits of {name}")}</bdi> <span>{held(retention.kept)}</span></h2>
            {fault}
            <form class="inline" method="get" action=address>
                <div class="field">
                    <label for="days">"Days since a run's last change"</label>
                    <input id="days" type="text" inputmode="numeric" name="days" value=written.days placeholder="no limit" maxlength="6" autocomplete="off"/>
                </div>
                <div class="field">
                    <label for="size">"Room for all files"</label>
                    <input id="size" type="text" name="size" value=written.size placeholder="no limit, or 20GiB" maxlength="24" autocomplete="off"/>
                </div>
                <button type="submit" class="button">"See what that deletes"</button>
            </form>
            <p class="dim">"Empty fields set no limit. A change is a new diagnosis or a note. Beyond the room those runs go that were changed longest ago. Runs whose job goes on, and runs to which a link still works, always stay."</p>
        </section>
        {answer}
    };
    frame("How long runs are kept", "/settings/projects", content.into_any())
}

fn as_written(kept: KeptFor) -> AskedLimits {
    let whole = |bytes: u64| {
        let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let unit = units.into_iter().find(|(unit, _)| bytes.is_multiple_of(*unit));
        unit.map_or_else(|| bytes.to_string(), |(unit, name)| format!("{}{name}", bytes / unit))
    };
    AskedLimits {
        days: kept.days.map(|days| days.to_string()).unwrap_or_default(),
        size: kept.bytes.map(whole).unwrap_or_default(),
    }
}

/// `30 days, at most 20.0 GiB`.
fn held(kept: KeptFor) -> String {
    let days = kept.days.map(|days| words::count(usize::try_from(days).unwrap_or(usize::MAX), "day"));
    let bytes = kept.bytes.map(|bytes| format!("at most {}", Bytes(bytes)));
    match (days, bytes) {
        (None, None) => "kept until somebody deletes them".to_owned(),
        (days, bytes) => days.into_iter().chain(bytes).collect::<Vec<_>>().join(", "),
    }
}

/// What holds now.
fn standing(retention: &Retention) -> AnyView {
    let Consequences { all: (runs, bytes), going, spared } = &retention.consequences;
    let all = format!(
        "{} with {} of files.",
        words::count(usize::try_from(*runs).unwrap_or(usize::MAX), "run"),
        Bytes(*bytes)
    );
    let next = retention.next_look.map(|at| {
        let goes = if going.is_empty() {
            "Nothing is past the limits now; they are looked at next ".to_owned()
        } else {
            format!(
                "{} past the limits and {} deleted ",
                words::counted(going.len(), "run is", "runs are"),
                if going.len() == 1 { "is" } else { "are" }
            )
        };
        view! { " "{goes}<time datetime=words::time_iso(at)>{words::time(at)}</time>"." }
    });
    view! {
        <section class="card" aria-labelledby="now-title">
            <h2 id="now-title">"As it is"</h2>
            <p>{all}{next}</p>
            {list("These go", going)}
            {list("These stay, although they are past the limits", spared)}
        </section>
    }
    .into_any()
}

/// What the limits that were asked about would do, and the button that sets them.
fn preview(retention: &Retention, asked: &AskedLimits, kept: KeptFor, address: &str) -> AnyView {
    let Consequences { all: (runs, bytes), going, spared } = &retention.consequences;
    let freed: u64 = going.iter().map(|run| run.bytes).sum();
    let says = if kept == KeptFor::default() {
        "Without a limit nothing is ever deleted by itself.".to_owned()
    } else if going.is_empty() {
        format!(
            "Nothing of the {} would be deleted now.",
            words::count(usize::try_from(*runs).unwrap_or(usize::MAX), "run")
        )
    } else {
        format!(
            "{} of {runs} would be deleted, {} of {}, with their files, reports and notes. The first time an hour from now; \
             until then you can set other limits. It cannot be undone.",
            words::count(going.len(), "run"),
            Bytes(freed),
            Bytes(*bytes),
        )
    };
    let is_danger = !going.is_empty();
    view! {
        <section class="card" aria-labelledby="preview-title">
            <h2 id="preview-title">"With these limits" <span>{held(kept)}</span></h2>
            <p>{says}</p>
            {list("These go", going)}
            {list("These stay, although they are past the limits", spared)}
            <form method="post" action=address.to_owned() class="row-form">
                <input type="hidden" name="days" value=asked.days.clone()/>
                <input type="hidden" name="size" value=asked.size.clone()/>
                <button type="submit" class="button" class:danger=is_danger>"Set these limits"</button>
                <a class="button" href=address.to_owned()>"Leave it as it is"</a>
            </form>
        </section>
    }
    .into_any()
}

fn list(title: &'static str, runs: &[ExpiringRun]) -> Option<AnyView> {
    if runs.is_empty() {
        return None;
    }
    let rows = runs.iter().take(LISTED).map(|run| {
        view! {
            <tr>
                <td><a href=format!("/runs/{}", words::encoded(&run.run))><bdi>{words::shown_line(&run.title)}</bdi></a></td>
                <td><time datetime=words::time_iso(run.changed_at)>{words::time(run.changed_at)}</time></td>
                <td class="num">{Bytes(run.bytes).to_string()}</td>
                <td>{run.why}</td>
            </tr>
        }
    });
    let more = runs.len().saturating_sub(LISTED);
    let more = (more > 0).then(|| view! { <p class="dim">{format!("And {more} more.")}</p> });
    Some(
        view! {
            <h3>{title}</h3>
            <div class="scroll" tabindex="0" role="region" aria-label=title>
                <table class="record">
                    <thead><tr><th>"Run"</th><th>"Last change"</th><th class="num">"Files"</th><th>"Why"</th></tr></thead>
                    <tbody>{rows.collect_view()}</tbody>
                </table>
            </div>
            {more}
        }
        .into_any(),
    )
}
