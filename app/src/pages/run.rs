//! `/runs/{id}`: the report of a run, for its owner.

use super::message::{Sought, message, message_with_way};
use super::preview::preview;
use super::settings::options;
use super::{after, backend, base_url, head, site};
use crate::accounts::{RunProject, may_edit};
use crate::backend::{BackendError, RequestFacts};
use crate::document::TopBar;
use crate::islands::LiveRun;
use crate::live::run_word;
use crate::report::{Access, Owned, Shown, report_view};
use crate::words;
use leptos::prelude::*;
use leptos_meta::{Meta, Title};
use leptos_router::hooks::use_params_map;
use rankscope_model::{ChecklistEntry, Finding, ItemNote, Report, RunStanding, ShareInfo};

/// The report with everything that its owner can do.
#[component]
pub fn RunPage() -> impl IntoView {
    let id = use_params_map().with_untracked(|params| params.get("id").unwrap_or_default());
    let shown = Shown::by_address();
    Suspend::new(async move {
        // What is no number is no version of a run either.
        let version = shown.version.as_ref().map(|version| version.parse::<u32>().unwrap_or(0));
        match load(id.clone(), version).await {
            Ok(loaded) => page(loaded, shown),
            Err(BackendError::NotFound) if version.is_some() && is_there(&id).await => {
                let newest = format!("/runs/{}", words::encoded(&id));
                message_with_way(&BackendError::NotFound, Sought::Version, (&newest, "The newest diagnosis"))
            }
            Err(error) => message(&error, Sought::Run),
        }
    })
}

/// The run itself exists, whatever version of it was asked for.
async fn is_there(id: &str) -> bool {
    let Ok(backend) = backend() else { return false };
    backend.report(id.to_owned(), None).await.is_ok()
}

/// What the page is made of.
struct Loaded {
    /// In the version asked for.
    report: Report,
    shares: Vec<ShareInfo>,
    newest: u32,
    /// Of the newest version only: an old one is shown as it was made.
    notes: Vec<ItemNote>,
    proof: Option<Box<(ChecklistEntry, Finding)>>,
    /// The job goes on.
    standing: Option<RunStanding>,
    /// Jobs that will still change it.
    being_read: u64,
    project: Option<RunProject>,
}

async fn load(id: String, version: Option<u32>) -> Result<Loaded, BackendError> {
    let backend = backend()?;
    let report = backend.report(id.clone(), version).await?;
    let newest = match version {
        None => report.version,
        Some(_) => backend.report(id.clone(), None).await?.version,
    };
    let shares = backend.shares(id.clone()).await?;
    let standing = backend.goes_on(id.clone()).await?;
    let being_read = if report.version == newest { backend.being_read(id.clone()).await? } else { 0 };
    let (notes, proof) = if report.version == newest {
        let compared = after(&backend, &id).await?;
        (backend.notes(id.clone()).await?, compared.map(|compared| Box::new(compared.comparison.verified())))
    } else {
        (Vec::new(), None)
    };
    let project = backend.run_project(id).await?;
    Ok(Loaded { report, shares, newest, notes, proof, standing, being_read, project })
}

fn page(loaded: Loaded, shown: Shown) -> AnyView {
    let Loaded { report, shares, newest, notes, proof, standing, being_read, project } = loaded;
    let report = &report;
    let facts = use_context::<RequestFacts>();
    let site = site();
    let access = Access::Owner(Owned {
        shares,
        newest,
        notes,
        proof,
        new_share: facts.and_then(|facts| facts.new_share),
        base_url: base_url(),
        shown,
        max_file_bytes: site.max_file_bytes,
        max_request_bytes: site.max_request_bytes,
    });
    head(view! {
        <Title text=format!("{} - Rankscope", words::title_text(&report.run.title))/>
        <Meta name="description" content=words::shown_line(&report.diagnosis.summary)/>
        <Meta name="robots" content="noindex"/>
    });
    preview(report, format!("{}/runs/{}", base_url(), report.run.id));
    let checklist = format!("/runs/{}/checklist", report.run.id);
    view! {
        <TopBar>
            <a class="button" href=checklist>"Checklist"</a>
            {may_edit().then(|| view! {
                <a class="button" href="#next">"Add evidence"</a>
                <a class="button primary" href="#share">"Share"</a>
            })}
        </TopBar>
        {standing.filter(|_| report.version == newest).map(|standing| live_bar(report, &standing))}
        {(being_read > 0).then(reading_bar)}
        {project.as_ref().map(|project| project_bar(report, project))}
        {report_view(report, &access)}
    }
    .into_any()
}

/// Says that the job goes on, or who of it is silent. Without a script the page is right as of now.
fn live_bar(report: &Report, standing: &RunStanding) -> AnyView {
    let (word, silent, still) = (run_word(standing), !standing.silent.is_empty(), standing.is_still());
    let (run, diagnosed) = (report.run.id.clone(), report.diagnosed_at.0.to_string());
    view! {
        <aside class="live-bar" aria-label="Live">
            <LiveRun>
                <strong class="live-word" class:silent=silent data-run=run data-diagnosed=diagnosed data-still=still.then_some("")>{word}</strong>
                " "
                <a href="/live">"Its nodes"</a>
            </LiveRun>
        </aside>
    }
    .into_any()
}

/// Seconds after which a page looks again whose files are still being read.
const LOOKS_AGAIN: u32 = 5;

/// Says that the report will change. The page looks again by itself, also without a script.
fn reading_bar() -> AnyView {
    head(view! { <Meta http_equiv="refresh" content=LOOKS_AGAIN.to_string()/> });
    view! {
        <aside class="run-project" aria-label="In the background">
            <span role="status"><strong>"Files are being read in the background."</strong>" This page looks again by itself; what was read becomes a new version of the report."</span>
        </aside>
    }
    .into_any()
}

/// The run's project, and the way to another one.
fn project_bar(report: &Report, project: &RunProject) -> AnyView {
    let move_to = (!project.others.is_empty()).then(|| {
        view! {
            <form method="post" action=format!("/runs/{}/project", report.run.id)>
                <label class="visually-hidden" for="move-to">"Move to"</label>
                <select id="move-to" name="project">{options(&project.others)}</select>
                <button type="submit" class="button small">"Move there"</button>
            </form>
        }
    });
    view! {
        <aside class="run-project" aria-label="Project">
            <span>"Project " <strong><bdi>{words::shown_line(&project.current.name)}</bdi></strong></span>
            {move_to}
        </aside>
    }
    .into_any()
}
