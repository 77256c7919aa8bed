//! `/login`: the way in.

use super::head;
use super::settings::said;
use crate::document::TopBar;
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
    view! {
        <TopBar runs=false/>
        <main id="main" class="narrow">
            <h1>"Sign in"</h1>
            {said()}
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
                <button type="submit" class="button primary">"Sign in"</button>
            </form>
            <p class="dim">"No account, or no password any more? An administrator gives you a link."</p>
        </main>
    }
}
