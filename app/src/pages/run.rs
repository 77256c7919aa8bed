//! `/runs/{id}`: the report of a run, for its owner.

use super::message::{Sought, message};
use super::{backend, base_url, head, site};
use crate::backend::{BackendError, RequestFacts};
use crate::document::TopBar;
use crate::report::{Access, Owned, report_view};
use crate::words;
use leptos::prelude::*;
use leptos_meta::{Meta, Title};
use leptos_router::hooks::use_params_map;
use rankscope_model::{Report, ShareInfo};

/// The report with everything that its owner can do.
#[component]
pub fn RunPage() -> impl IntoView {
    let id = use_params_map().with_untracked(|params| params.get("id").unwrap_or_default());
    Suspend::new(async move {
        match load(id).await {
            Ok((report, shares)) => page(&report, shares),
            Err(error) => message(&error, Sought::Run),
        }
    })
}

async fn load(id: String) -> Result<(Report, Vec<ShareInfo>), BackendError> {
    let backend = backend()?;
    let report = backend.report(id.clone(), None).await?;
    let shares = backend.shares(id).await?;
    Ok((report, shares))
}

fn page(report: &Report, shares: Vec<ShareInfo>) -> AnyView {
    let facts = use_context::<RequestFacts>();
    let site = site();
    let access = Access::Owner(Owned {
        shares,
        new_share: facts.and_then(|facts| facts.new_share),
        base_url: base_url(),
        max_file_bytes: site.max_file_bytes,
        max_request_bytes: site.max_request_bytes,
    });
    head(view! {
        <Title text=format!("{} - Rankscope", words::title_text(&report.run.title))/>
        <Meta name="description" content=words::shown_line(&report.diagnosis.summary)/>
        <Meta name="robots" content="noindex"/>
    });
    view! {
        <TopBar>
            <a class="button" href="#next">"Add evidence"</a>
            <a class="button primary" href="#share">"Share"</a>
        </TopBar>
        {report_view(report, &access)}
    }
    .into_any()
}
