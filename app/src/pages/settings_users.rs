//! `/settings/users`: who has an account, for administrators.

use super::backend;
use super::message::{Sought, message};
use super::settings::{frame, identity_name, shown_once};
use super::site;
use crate::accounts::{IdentityLine, UserLine};
use crate::backend::BackendError;
use crate::words;
use leptos::prelude::*;

/// All users.
#[component]
pub fn UsersPage() -> impl IntoView {
    Suspend::new(async move {
        match load().await {
            Ok((users, waiting)) => page(&users, &waiting),
            Err(error) => message(&error, Sought::Page),
        }
    })
}

async fn load() -> Result<(Vec<UserLine>, Vec<IdentityLine>), BackendError> {
    let backend = backend()?;
    Ok((backend.users().await?, backend.waiting().await?))
}

fn page(users: &[UserLine], waiting: &[IdentityLine]) -> AnyView {
    let lines = users.iter().map(line).collect_view();
    let content = view! {
        {shown_once()}
        {those_who_wait(waiting)}
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
        facts.push(if user.identities.is_empty() { "no password yet" } else { "no password" });
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
        {user.identities.iter().map(linked).collect_view()}
    }
    .into_any()
}

/// An identity under the account that it opens.
fn linked(identity: &IdentityLine) -> AnyView {
    view! {
        <li class="under">
            {identity_name(identity, "opens this account")}
            <form method="post" action=format!("/settings/users/identities/{}/remove", identity.id)>
                <button type="submit" class="button small">"Remove"</button>
            </form>
        </li>
    }
    .into_any()
}

/// Who came from the provider and has no account: an administrator says whose account it is.
fn those_who_wait(waiting: &[IdentityLine]) -> Option<AnyView> {
    let label = site().sign_in.unwrap_or_else(|| "the provider".to_owned());
    let lines = waiting.iter().map(one_who_waits).collect_view();
    (!waiting.is_empty()).then(|| {
        view! {
            <section class="card" aria-labelledby="waiting-title">
                <h2 id="waiting-title">"Waiting" <span>{format!("came with {label} and {} no account", if waiting.len() == 1 { "has" } else { "have" })}</span></h2>
                <ul class="shares">{lines}</ul>
            </section>
        }
        .into_any()
    })
}

fn one_who_waits(identity: &IdentityLine) -> AnyView {
    let at = |what: &str| format!("/settings/users/identities/{}/{what}", identity.id);
    let field = format!("account-{}", identity.id);
    view! {
        <li class="waits">
            {identity_name(identity, "waits")}
            <form class="inline" method="post" action=at("add")>
                <div class="field">
                    <label for=field.clone()>"Account"</label>
                    <input id=field type="text" name="name" maxlength="64" required value=identity.shown.clone() autocomplete="off" autocapitalize="none" spellcheck="false"/>
                </div>
                <button type="submit" class="button small">"Add this user"</button>
                <button type="submit" class="button small" formaction=at("link")>"It is this user's"</button>
            </form>
            <form method="post" action=at("remove")>
                <button type="submit" class="button small">"Forget"</button>
            </form>
        </li>
    }
    .into_any()
}
