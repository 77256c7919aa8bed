//! `/setup/{token}`: the first administrator, a new user, or who has forgotten the password chooses one.

use super::message::{Sought, message};
use super::settings::{new_password, said};
use super::{backend, head};
use crate::accounts::SetUp;
use crate::backend::BackendError;
use crate::document::TopBar;
use leptos::prelude::*;
use leptos_meta::{Meta, Title};
use leptos_router::hooks::use_params_map;

/// The form, as long as the link works.
#[component]
pub fn SetUpPage() -> impl IntoView {
    let token = use_params_map().with_untracked(|params| params.get("token")).unwrap_or_default();
    Suspend::new(async move {
        match load(token.clone()).await {
            Ok(set_up) => page(&set_up, &token),
            Err(error) => message(&error, Sought::SetUp),
        }
    })
}

async fn load(token: String) -> Result<SetUp, BackendError> {
    backend()?.set_up(token).await
}

fn page(set_up: &SetUp, token: &str) -> AnyView {
    let title = if set_up.name.is_some() { "Choose a password" } else { "The first administrator" };
    let lede = if set_up.name.is_some() {
        "The link works once. Whoever is signed in to this account is signed out."
    } else {
        "This account may do everything here: add users and projects, and see every run."
    };
    let name = match &set_up.name {
        Some(name) => view! {
            <p>"Account " <strong>{name.clone()}</strong></p>
            // For password managers.
            <input type="hidden" name="name" value=name.clone() autocomplete="username"/>
        }
        .into_any(),
        None => view! {
            <div class="field">
                <label for="name">"Name"</label>
                <input id="name" type="text" name="name" maxlength="64" required autocomplete="username" autocapitalize="none" spellcheck="false"/>
            </div>
        }
        .into_any(),
    };
    head(view! {
        <Title text=format!("{title} - Rankscope")/>
        <Meta name="robots" content="noindex"/>
    });
    view! {
        <TopBar runs=false/>
        <main id="main" class="narrow">
            <h1>{title}</h1>
            <p class="lede">{lede}</p>
            {said()}
            <form class="card fields" method="post" action=format!("/setup/{token}")>
                {name}
                {new_password()}
                <button type="submit" class="button primary">"Save and sign in"</button>
            </form>
        </main>
    }
    .into_any()
}
