//! `/login`: the way in.

use super::settings::said;
use super::{base_url, head, site};
use crate::document::TopBar;
use crate::words::encoded;
use leptos::prelude::*;
use leptos_meta::{Meta, Title};
use leptos_router::hooks::use_query_map;

/// The sign-in form. `next` of the query says where to go afterwards; the server holds that it is an address of its own.
#[component]
pub fn LoginPage() -> impl IntoView {
    let next = use_query_map().with_untracked(|query| query.get("next")).unwrap_or_default();
    head(view! {
        <Title text="Sign in - Rankscope"/>
        <Meta name="robots" content="noindex"/>
    });
    let provider = provider(&next);
    let is_primary = provider.is_none();
    view! {
        <TopBar runs=false/>
        <main id="main" class="narrow">
            <h1>"Sign in"</h1>
            {said()}
            {provider}
            <form class="card fields" method="post" action="/login">
                <input type="hidden" name="next" value=next/>
                <div class="field">
                    <label for="name">"Name"</label>
                    <input id="name" type="text" name="name" maxlength="64" required autocomplete="username" autocapitalize="none" spellcheck="false"/>
                </div>
                <div class="field">
                    <label for="password">"Password"</label>
                    <input id="password" type="password" name="password" maxlength="1024" required autocomplete="current-password"/>
                </div>
                <button type="submit" class="button" class:primary=is_primary>"Sign in"</button>
            </form>
            <p class="dim">"No account, or no password any more? An administrator gives you a link."</p>
        </main>
    }
}

/// The way through the provider. A link and not a form: what a form leads to has to be an address of this server.
/// Absolute, because the provider knows one address of this server and sends everybody back there.
fn provider(next: &str) -> Option<AnyView> {
    let label = site().sign_in?;
    let way = format!("{}/login/oidc?next={}", base_url(), encoded(next));
    Some(
        view! {
            <p class="with-provider"><a class="button primary" href=way><span>"Sign in with " <bdi>{label}</bdi></span></a></p>
            <p class="or" aria-hidden="true">"or with a password"</p>
        }
        .into_any(),
    )
}
