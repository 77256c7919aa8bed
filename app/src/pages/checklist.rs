//! `/runs/{id}/checklist` leads to the stage of the most telling step; `/runs/{id}/checklist/{stage}` shows a stage.

use super::message::{Sought, message};
use super::{after, backend, base_url, head, site};
use crate::backend::{BackendError, ComparedReports, RequestFacts};
use crate::document::TopBar;
use crate::standing::Checklist;
use crate::wizard::{Wizard, wizard_view};
use crate::words;
use leptos::prelude::*;
use leptos_meta::{Meta, Title};
use leptos_router::hooks::use_params_map;
use rankscope_model::{ItemNote, Report, RunSummary, Stage};

/// Runs that are offered as the one after the fix.
const OFFERED: u32 = 50;

/// What the page is made of.
struct Loaded {
    report: Report,
    notes: Vec<ItemNote>,
    compared: Option<ComparedReports>,
    recent: Vec<RunSummary>,
}

/// A stage of the checklist, or the way to the one that matters.
#[component]
pub fn ChecklistPage() -> impl IntoView {
    let params = use_params_map();
    let id = params.with_untracked(|params| params.get("id").unwrap_or_default());
    let stage = params.with_untracked(|params| params.get("stage"));
    Suspend::new(async move {
        let wanted = match stage.as_deref().map(|slug| (slug, Stage::from_slug(slug))) {
            Some((_, None)) => return message(&BackendError::NotFound, Sought::Page),
            Some((_, stage)) => stage,
            None => None,
        };
        match load(id, wanted).await {
            Ok(loaded) => page(&loaded, wanted),
            Err(error) => message(&error, Sought::Run),
        }
    })
}

async fn load(id: String, stage: Option<Stage>) -> Result<Loaded, BackendError> {
    let backend = backend()?;
    let report = backend.report(id.clone(), None).await?;
    let notes = backend.notes(id.clone()).await?;
    let compared = after(&backend, &id).await?;
    let recent = if stage == Some(Stage::Verify) { backend.recent_runs(None, OFFERED).await? } else { Vec::new() };
    Ok(Loaded { report, notes, compared, recent })
}

fn page(loaded: &Loaded, stage: Option<Stage>) -> AnyView {
    let Loaded { report, notes, compared, recent } = loaded;
    let proof = compared.as_ref().map(|compared| compared.comparison.verified());
    let checklist = Checklist::new(report, notes, proof.as_ref());
    let facts = use_context::<RequestFacts>();
    let Some(stage) = stage else {
        let address = format!("/runs/{}/checklist/{}", report.run.id, checklist.leading_stage().slug());
        if let Some(facts) = facts {
            (facts.redirect)(&address);
        }
        return view! { <main id="main" class="message"><p><a href=address>"To the checklist"</a></p></main> }
            .into_any();
    };
    let site = site();
    let wizard = Wizard {
        report,
        compared: compared.as_ref(),
        recent,
        visitor_name: facts.and_then(|facts| facts.visitor_name),
        base_url: base_url(),
        max_file_bytes: site.max_file_bytes,
        max_request_bytes: site.max_request_bytes,
    };
    head(view! {
        <Title text=format!("{}: {} - Rankscope", stage.title(), words::title_text(&report.run.title))/>
        <Meta name="description" content=words::shown_line(&report.diagnosis.summary)/>
        <Meta name="robots" content="noindex"/>
    });
    let address = format!("/runs/{}", report.run.id);
    view! {
        <TopBar>
            <a class="button" href=address>"To the report"</a>
        </TopBar>
        {wizard_view(&wizard, &checklist, stage)}
    }
    .into_any()
}
