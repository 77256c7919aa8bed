//! `/settings/audit`: the record of sign-ins, shares, deletions and grants, for administrators.

use super::backend;
use super::message::{Sought, message};
use super::settings::frame;
use crate::accounts::AuditLine;
use crate::backend::BackendError;
use crate::words;
use leptos::prelude::*;

/// The newest lines.
#[component]
pub fn AuditPage() -> impl IntoView {
    Suspend::new(async move {
        match load().await {
            Ok(lines) => page(&lines),
            Err(error) => message(&error, Sought::Page),
        }
    })
}

async fn load() -> Result<Vec<AuditLine>, BackendError> {
    backend()?.audit().await
}

fn page(lines: &[AuditLine]) -> AnyView {
    let rows = lines.iter().map(row).collect_view();
    let content = view! {
        <div class="card scroll" tabindex="0" role="region" aria-label="Record">
            <table class="record">
                <thead><tr><th>"When"</th><th>"Who"</th><th>"What"</th><th>"To what"</th><th>"From"</th></tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    };
    frame("Record", "/settings/audit", content.into_any())
}

fn row(line: &AuditLine) -> AnyView {
    view! {
        <tr>
            <td><time datetime=words::time_iso(line.at)>{words::time(line.at)}</time></td>
            <td><bdi>{words::shown_line(&line.who)}</bdi></td>
            <td>{words::shown_line(&line.what)}</td>
            <td><bdi>{words::shown_line(&line.subject)}</bdi></td>
            <td>{line.address.clone()}</td>
        </tr>
    }
    .into_any()
}
