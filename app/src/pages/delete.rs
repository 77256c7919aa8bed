//! `/runs/{id}/delete`: says what goes with a run, and asks.

use super::message::{Sought, message};
use super::{backend, head};
use crate::backend::BackendError;
use crate::document::TopBar;
use crate::words;
use leptos::prelude::*;
use leptos_meta::{Meta, Title};
use leptos_router::hooks::use_params_map;
use rankscope_model::{Report, ShareInfo};

/// The question before a run is deleted.
#[component]
pub fn DeletePage() -> impl IntoView {
    let id = use_params_map().with_untracked(|params| params.get("id").unwrap_or_default());
    Suspend::new(async move {
        match load(id).await {
            Ok((report, shares)) => page(&report, &shares),
            Err(error) => message(&error, Sought::Run),
        }
    })
}

async fn load(id: String) -> Result<(Report, Vec<ShareInfo>), BackendError> {
    let backend = backend()?;
    Ok((backend.report(id.clone(), None).await?, backend.shares(id).await?))
}

fn page(report: &Report, shares: &[ShareInfo]) -> AnyView {
    head(view! {
        <Title text=format!("Delete {} - Rankscope", words::title_text(&report.run.title))/>
        <Meta name="robots" content="noindex"/>
    });
    let run = &report.run.id;
    let open = shares.iter().filter(|share| share.revoked_at.is_none()).count();
    let links = match open {
        0 => String::new(),
        1 => " The link that was shared stops working.".to_owned(),
        n => format!(" The {n} links that were shared stop working."),
    };
    let goes = format!(
        "{} and {} go with it, and what people wrote in its checklist.{links} This cannot be undone.",
        words::sentence(&words::count(report.diagnosis.artifacts.len(), "file")).trim_end_matches('.'),
        words::count(usize::try_from(report.version).unwrap_or(1), "diagnosis").replace("diagnosiss", "diagnoses"),
    );
    view! {
        <TopBar/>
        <main id="main" class="message">
            <h1>"Delete "<bdi>{words::shown_line(&report.run.title)}</bdi>"?"</h1>
            <p>{goes}</p>
            <form method="post" action=format!("/runs/{run}/delete") class="row-form">
                <button type="submit" class="button danger">"Delete the run"</button>
                <a class="button" href=format!("/runs/{run}")>"Keep it"</a>
            </form>
        </main>
    }
    .into_any()
}
