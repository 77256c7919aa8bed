//! `/runs/{id}/snapshots`: the memory snapshots of a run, side by side.

use super::message::{Sought, message};
use super::{backend, head};
use crate::backend::{BackendError, NamedSnapshot};
use crate::document::TopBar;
use crate::snapshots::{Wanted, snapshots_view};
use crate::words;
use leptos::prelude::*;
use leptos_meta::{Meta, Title};
use leptos_router::hooks::{use_params_map, use_query_map};
use rankscope_model::Report;
use std::sync::Arc;

/// The comparison by call site.
#[component]
pub fn SnapshotsPage() -> impl IntoView {
    let id = use_params_map().with_untracked(|params| params.get("id").unwrap_or_default());
    let wanted = use_query_map().with_untracked(|query| Wanted::from_query(|key| query.get(key)));
    Suspend::new(async move {
        match load(id).await {
            Ok((report, snapshots)) => page(&report, &snapshots, &wanted),
            Err(error) => message(&error, Sought::Run),
        }
    })
}

async fn load(id: String) -> Result<(Report, Arc<Vec<NamedSnapshot>>), BackendError> {
    let backend = backend()?;
    let report = backend.report(id.clone(), None).await?;
    Ok((report, backend.snapshots(id).await?))
}

fn page(report: &Report, snapshots: &[NamedSnapshot], wanted: &Wanted) -> AnyView {
    head(view! {
        <Title text=format!("Snapshots of {} - Rankscope", words::title_text(&report.run.title))/>
        <Meta name="robots" content="noindex"/>
    });
    let back = format!("/runs/{}", report.run.id);
    view! {
        <TopBar>
            <a class="button" href=back>"Report"</a>
        </TopBar>
        {snapshots_view(report, snapshots, wanted)}
    }
    .into_any()
}
