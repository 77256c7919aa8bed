//! `/r/{token}`: a report behind a share, read-only.

use super::message::{Sought, message};
use super::{backend, base_url, head};
use crate::backend::BackendError;
use crate::document::TopBar;
use crate::report::{Access, report_view};
use crate::words;
use leptos::prelude::*;
use leptos_meta::{Meta, Title};
use leptos_router::hooks::use_params_map;
use rankscope_model::Report;

/// The same report view, without anything that writes, and with a preview for chats.
#[component]
pub fn SharedPage() -> impl IntoView {
    let token = use_params_map().with_untracked(|params| params.get("token").unwrap_or_default());
    Suspend::new(async move {
        match load(token.clone()).await {
            Ok(report) => page(&report, token),
            Err(error) => message(&error, Sought::Share),
        }
    })
}

async fn load(token: String) -> Result<Report, BackendError> {
    backend()?.shared_report(token).await
}

fn page(report: &Report, token: String) -> AnyView {
    let title = words::shown_line(&report.run.title);
    let summary = words::shown_line(&report.diagnosis.summary);
    let address = format!("{}/r/{}", base_url(), encoded(&token));
    head(view! {
        <Title text=format!("{} - Rankscope", words::title_text(&report.run.title))/>
        <Meta name="description" content=summary.clone()/>
        <Meta name="robots" content="noindex, nofollow"/>
        // The address is the key: it must not travel in the Referer header of an outgoing link.
        <Meta name="referrer" content="no-referrer"/>
        <Meta property="og:type" content="article"/>
        <Meta property="og:site_name" content="Rankscope"/>
        <Meta property="og:title" content=title/>
        <Meta property="og:description" content=summary.clone()/>
        <Meta property="og:url" content=address.clone()/>
        <Meta property="og:image" content=format!("{address}/preview.png")/>
        <Meta property="og:image:type" content="image/png"/>
        <Meta property="og:image:width" content="1200"/>
        <Meta property="og:image:height" content="630"/>
        <Meta property="og:image:alt" content=summary/>
        <Meta name="twitter:card" content="summary_large_image"/>
    });
    view! {
        <TopBar runs=false>
            <span class="read-only">"Shared report, read-only"</span>
        </TopBar>
        {report_view(report, &Access::Shared { token })}
    }
    .into_any()
}

/// Percent-encodes what may not stand in a path segment.
fn encoded(segment: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
