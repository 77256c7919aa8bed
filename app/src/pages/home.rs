//! `/`: what the product is for, the place to drop evidence, and the runs so far.

use super::message::{Sought, message};
use super::{backend, head, site};
use crate::accounts::{ProjectChoice, Visitor};
use crate::backend::{BackendError, SiteFacts};
use crate::document::TopBar;
use crate::evidence_form::{EvidenceForm, evidence_form};
use crate::icons;
use crate::prometheus_form::prometheus_form;
use crate::report::code_block;
use crate::words;
use leptos::prelude::*;
use leptos_meta::{Meta, Title};
use leptos_router::hooks::use_query_map;
use rankscope_model::RunSummary;

/// Runs that the list shows; older ones are found by searching.
const LISTED: u32 = 50;

/// What can be dropped, and the command or line that makes it.
const SOURCES: [(&str, &str, &str); 5] = [
    (
        "nvidia-smi table",
        "Which process holds how much on which GPU. Take it while the job runs.",
        "nvidia-smi > smi.txt",
    ),
    (
        "Per-rank step log",
        "One line per rank and step; shows when the gap opens.",
        r#"print(f"rank={rank} step={step} allocated={torch.cuda.memory_allocated()/2**20:.0f}MiB reserved={torch.cuda.memory_reserved()/2**20:.0f}MiB peak={torch.cuda.max_memory_allocated()/2**20:.0f}MiB", flush=True)"#,
    ),
    (
        "Memory snapshot",
        "What holds the memory, with call sites. One file per rank.",
        "torch.cuda.memory._record_memory_history()\n# after some steps:\ntorch.cuda.memory._dump_snapshot(f\"snap_rank{rank}.pickle\")",
    ),
    ("Out-of-memory message", "The whole text, from every rank that printed one.", "torchrun ... 2>&1 | tee job.log"),
    ("Training script", "Read as text, never run. Turns a likely cause into a certain one.", "train.py"),
];

/// The start page.
#[component]
pub fn HomePage() -> impl IntoView {
    let query = use_query_map().with_untracked(|query| query.get("query"));
    let query = query.map(|query| query.trim().to_owned()).filter(|query| !query.is_empty());
    Suspend::new(async move {
        match load(query.clone()).await {
            Ok((runs, projects)) => page(runs, projects, query.as_deref()),
            Err(error) => message(&error, Sought::Runs),
        }
    })
}

async fn load(query: Option<String>) -> Result<(Vec<RunSummary>, Vec<ProjectChoice>), BackendError> {
    let backend = backend()?;
    Ok((backend.recent_runs(query, LISTED).await?, backend.upload_projects().await?))
}

fn page(runs: Vec<RunSummary>, projects: Vec<ProjectChoice>, query: Option<&str>) -> AnyView {
    let SiteFacts { max_file_bytes, max_request_bytes, prometheus, .. } = site();
    let from_prometheus = prometheus_form(&prometheus, &projects);
    let form = evidence_form(EvidenceForm {
        action: "/runs".into(),
        api: "/api/v1/runs".into(),
        back: None,
        button: "Find the cause",
        id: "new",
        new_run: true,
        projects,
        max_file_bytes,
        max_request_bytes,
    });
    head(view! {
        <Title text="Rankscope"/>
        <Meta name="description" content="Finds out why one GPU of a distributed training job uses more memory than the others."/>
    });
    view! {
        <TopBar/>
        <main id="main" class="home">
            <section class="intro">
                <h1>"Why does one GPU use more memory than the others?"</h1>
                <p>
                    "Drop what the job left behind. Rankscope lines the ranks up side by side, names the cause with its "
                    "evidence, and says how to prove the fix."
                </p>
            </section>
            <div class="home-cols">
                <section class="card" aria-label="New run">{form}{from_prometheus}</section>
                {sources()}
            </div>
            {runs_section(runs, query)}
        </main>
    }
    .into_any()
}

fn sources() -> AnyView {
    let items = SOURCES
        .iter()
        .map(|&(name, what, command)| {
            view! {
                <li>
                    <details>
                        <summary><span><strong>{name}</strong>" "<span class="dim">{what}</span></span></summary>
                        {code_block(command)}
                    </details>
                </li>
            }
        })
        .collect_view();
    view! {
        <section class="sources" aria-labelledby="sources-title">
            <h2 id="sources-title">"What helps, most telling first"</h2>
            <ol>{items}</ol>
            <p class="dim">"One is enough to start. Two that cross-check each other settle most cases: the table and the script, or a log of all ranks."</p>
        </section>
    }
    .into_any()
}

fn runs_section(runs: Vec<RunSummary>, query: Option<&str>) -> AnyView {
    let found = runs.len();
    let list = if runs.is_empty() {
        empty(query)
    } else {
        view! { <ul class="runs">{runs.into_iter().map(run_line).collect_view()}</ul> }.into_any()
    };
    // With accounts the way leads through the projects.
    let kept_for = (found > 0 && use_context::<Visitor>().is_none()).then(|| {
        view! { <p class="dim"><a href="/settings/projects/default/retention">"How long runs are kept"</a></p> }
    });
    let searchable = found > 0 || query.is_some();
    view! {
        <section class="recent" id="runs" aria-labelledby="runs-title">
            <div class="recent-head">
                <h2 id="runs-title">{if query.is_some() { "Runs found" } else { "Recent runs" }}</h2>
                {searchable
                    .then(|| {
                        view! {
                            <form class="search" method="get" action="/" role="search">
                                <label class="visually-hidden" for="query">"Words in title or summary"</label>
                                <input id="query" type="search" name="query" value=query.unwrap_or_default().to_owned() placeholder="Words in title or summary"/>
                                <button class="button" type="submit">"Search"</button>
                                {query.is_some().then(|| view! { <a href="/#runs">"Show all"</a> })}
                            </form>
                        }
                    })}
            </div>
            {list}
            {kept_for}
        </section>
    }
    .into_any()
}

fn empty(query: Option<&str>) -> AnyView {
    match query {
        Some(query) => view! {
            <p class="empty">"No run speaks of " <q>{words::shown_line(query)}</q> ". Titles and summaries are searched."</p>
        }
        .into_any(),
        None => view! {
            <div class="empty">
                <p><strong>"No runs yet."</strong>" Start with the file that takes ten seconds: while the job runs, or right before it dies,"</p>
                {code_block("nvidia-smi > smi.txt")}
                <p>"and drop it above. The report says what it shows, and which file would settle the rest."</p>
            </div>
        }
        .into_any(),
    }
}

fn run_line(summary: RunSummary) -> impl IntoView {
    let RunSummary { run, verdict, summary, artifacts } = summary;
    let files = words::count(usize::try_from(artifacts).unwrap_or(usize::MAX), "file");
    view! {
        <li>
            <a href=format!("/runs/{}", run.id)>
                <span class="run-verdict">{icons::verdict(verdict)}{verdict.title()}</span>
                <span class="run-text">
                    <strong><bdi>{words::shown_line(&run.title)}</bdi></strong>
                    <span>{words::shown_line(&summary)}</span>
                </span>
                <span class="run-when">
                    <time datetime=words::time_iso(run.created_at)>{words::time(run.created_at)}</time>
                    <span>{files}</span>
                </span>
            </a>
        </li>
    }
}
