//! `/r/{token}`: a report behind a share, read-only.

use super::message::{Sought, message};
use super::preview::preview;
use super::{backend, base_url, head, set_status};
use crate::backend::{BackendError, RequestFacts, SharedView};
use crate::document::TopBar;
use crate::icons;
use crate::report::{Access, Shown, report_view};
use crate::words;
use leptos::prelude::*;
use leptos_meta::{Meta, Title};
use leptos_router::hooks::{use_params_map, use_query_map};

/// The same report view, without anything that writes, and with a preview for chats.
#[component]
pub fn SharedPage() -> impl IntoView {
    let token = use_params_map().with_untracked(|params| params.get("token").unwrap_or_default());
    let (shown, wrong) = (Shown::by_address(), use_query_map().with_untracked(|query| query.get("wrong").is_some()));
    Suspend::new(async move {
        match load(token.clone()).await {
            Ok(view) => page(&view, token, shown),
            Err(BackendError::Locked) => locked(&token, wrong),
            Err(error) => message(&error, Sought::Share),
        }
    })
}

async fn load(token: String) -> Result<SharedView, BackendError> {
    let proof = use_context::<RequestFacts>().and_then(|facts| facts.share_proof);
    backend()?.shared_report(token, proof).await
}

/// Asks for the password. Says nothing of the report, not even its title.
fn locked(token: &str, wrong: bool) -> AnyView {
    set_status(401);
    head(view! {
        <Title text="Password - Rankscope"/>
        <Meta name="robots" content="noindex, nofollow"/>
    });
    let said = wrong.then(
        || view! { <p class="warning" role="alert">{icons::warning()}<span>"That was not the password."</span></p> },
    );
    view! {
        <TopBar runs=false>
            <span class="read-only">"Shared report, read-only"</span>
        </TopBar>
        <main id="main" class="message">
            <h1>"This report asks for a password"</h1>
            <p>"The person who sent you the link knows it."</p>
            {said}
            <form method="post" action=format!("/r/{}/unlock", words::encoded(token)) class="field unlock">
                <label for="password">"Password"</label>
                <input id="password" type="password" name="password" required autocomplete="current-password"/>
                <button type="submit" class="button primary">"Open the report"</button>
            </form>
        </main>
    }
    .into_any()
}

fn page(view: &SharedView, token: String, shown: Shown) -> AnyView {
    let SharedView { report, raw_files, masked } = view;
    let address = format!("{}/r/{}", base_url(), words::encoded(&token));
    head(view! {
        <Title text=format!("{} - Rankscope", words::title_text(&report.run.title))/>
        <Meta name="description" content=words::shown_line(&report.diagnosis.summary)/>
        <Meta name="robots" content="noindex, nofollow"/>
        // The address is the key: it must not travel in the Referer header of an outgoing link.
        <Meta name="referrer" content="no-referrer"/>
    });
    preview(report, address);
    let read_only = if *masked { "Shared report, read-only, names masked" } else { "Shared report, read-only" };
    view! {
        <TopBar runs=false>
            <span class="read-only">{read_only}</span>
        </TopBar>
        {report_view(report, &Access::Shared { token, raw_files: *raw_files, shown })}
    }
    .into_any()
}
