//! `/settings/users`: who has an account, for administrators.

use super::backend;
use super::message::{Sought, message};
use super::settings::{frame, shown_once};
use crate::accounts::UserLine;
use crate::backend::BackendError;
use crate::words;
use leptos::prelude::*;

/// All users.
#[component]
pub fn UsersPage() -> impl IntoView {
    Suspend::new(async move {
        match load().await {
            Ok(users) => page(&users),
            Err(error) => message(&error, Sought::Page),
        }
    })
}

async fn load() -> Result<Vec<UserLine>, BackendError> {
    backend()?.users().await
}

fn page(users: &[UserLine]) -> AnyView {
    let lines = users.iter().map(line).collect_view();
    let content = view! {
        {shown_once()}
        <section class="card" aria-labelledby="add-title">
            <h2 id="add-title">"Add a user" <span>"who chooses a password by link"</span></h2>
            <form class="inline" method="post" action="/settings/users">
                <div class="field">
                    <label for="name">"Name"</label>
                    <input id="name" type="text" name="name" maxlength="64" required autocomplete="off" autocapitalize="none" spellcheck="false"/>
                </div>
                <label class="tick"><input type="checkbox" name="administrator" value="yes"/>" administrator"</label>
                <button type="submit" class="button">"Add"</button>
            </form>
        </section>
        <section class="card" aria-labelledby="users-title">
            <h2 id="users-title">"Users" <span>{words::count(users.len(), "account")}</span></h2>
            <ul class="shares">{lines}</ul>
        </section>
    };
    frame("Users", "/settings/users", content.into_any())
}

fn line(user: &UserLine) -> AnyView {
    let mut facts = Vec::new();
    if user.is_admin {
        facts.push("administrator");
    }
    if user.is_disabled {
        facts.push("disabled");
    }
    if !user.has_password {
        facts.push("no password yet");
    }
    let act = |what: &str, value: &'static str, words: &'static str| {
        view! {
            <form method="post" action=format!("/settings/users/{}/{what}", user.id)>
                <input type="hidden" name="to" value=value/>
                <button type="submit" class="button small">{words}</button>
            </form>
        }
    };
    let link = act("link", "", "New password link");
    let admin = if user.is_admin {
        act("administrator", "no", "End administrator")
    } else {
        act("administrator", "yes", "Make administrator")
    };
    let disabled =
        if user.is_disabled { act("disabled", "no", "Let in again") } else { act("disabled", "yes", "Disable") };
    view! {
        <li class:over=user.is_disabled>
            <span><strong>{user.name.clone()}</strong><span class="dim">{facts.join(", ")}</span></span>
            <span class="acts">{link}{admin}{disabled}</span>
        </li>
    }
    .into_any()
}
