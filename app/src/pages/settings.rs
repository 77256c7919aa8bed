//! `/settings`: one's own password and tokens. Also what the pages below it share.

use super::message::{Sought, message};
use super::{backend, base_url, head, site};
use crate::accounts::{IdentityLine, ProjectChoice, Said, Settings, ShownOnce, TokenLine, Visitor};
use crate::backend::BackendError;
use crate::document::TopBar;
use crate::report::copy_button;
use crate::words;
use leptos::prelude::*;
use leptos_meta::{Meta, Title};

/// What tokens can be for: slug, and what that means.
const SCOPES: [(&str, &str); 3] = [
    ("samples", "send live samples (agents)"),
    ("upload", "make runs and add files"),
    ("read", "read runs, reports and files"),
];

/// Choices of a token's end: seconds (empty for never) and words.
const ENDS: [(&str, &str); 4] =
    [("2592000", "after 30 days"), ("7776000", "after 90 days"), ("31536000", "after 1 year"), ("", "never")];
const DEFAULT_END: &str = "7776000";

/// One's own settings.
#[component]
pub fn SettingsPage() -> impl IntoView {
    Suspend::new(async move {
        match load().await {
            Ok(settings) => page(&settings),
            Err(error) => message(&error, Sought::Page),
        }
    })
}

async fn load() -> Result<Settings, BackendError> {
    backend()?.settings().await
}

fn page(settings: &Settings) -> AnyView {
    frame(
        "Your settings",
        "/settings",
        view! {
            {shown_once()}
            {password(settings)}
            {identities(settings)}
            {tokens(settings)}
        }
        .into_any(),
    )
}

/// Head, bar, title and the way between the pages of the settings.
pub fn frame(title: &'static str, here: &'static str, content: AnyView) -> AnyView {
    let visitor = use_context::<Visitor>().unwrap_or_default();
    let pages = [
        ("/settings", "Yours", visitor.name.is_some()),
        ("/settings/projects", "Projects", visitor.manages_projects),
        ("/settings/users", "Users", visitor.is_admin),
        ("/settings/audit", "Record", visitor.is_admin),
    ];
    let links = pages
        .into_iter()
        .filter(|(_, _, open)| *open)
        .map(|(address, name, _)| {
            let current = (address == here).then_some("page");
            view! { <a href=address aria-current=current>{name}</a> }
        })
        .collect_view();
    head(view! {
        <Title text=format!("{title} - Rankscope")/>
        <Meta name="robots" content="noindex"/>
    });
    view! {
        <TopBar/>
        <main id="main" class="settings">
            <nav class="settings-nav" aria-label="Settings">{links}</nav>
            <h1>{title}</h1>
            {said()}
            {content}
        </main>
    }
    .into_any()
}

/// Why the form was not taken.
pub fn said() -> Option<AnyView> {
    let Said(text) = use_context::<Said>()?;
    Some(view! { <p class="warning" role="alert">{crate::icons::warning()}<span>{text}</span></p> }.into_any())
}

/// A secret, at the only moment at which it can be shown.
pub fn shown_once() -> Option<AnyView> {
    let (label, text) = match use_context::<Visitor>()?.shown_once? {
        ShownOnce::Token(token) => ("New token, shown only now", token),
        ShownOnce::Link(link) => ("Link to choose a password, shown only now; it works once, within 3 days", link),
    };
    Some(
        view! {
            <div class="new-link">
                <label for="shown-once">{label}</label>
                <div class="row">
                    <input id="shown-once" type="text" readonly value=text.clone()/>
                    {copy_button(&text, "Copy")}
                </div>
            </div>
        }
        .into_any(),
    )
}

/// The field for a new password.
pub fn new_password() -> AnyView {
    view! {
        <div class="field">
            <label for="new-password">"New password"</label>
            <input id="new-password" type="password" name="password" minlength="12" maxlength="1024" required autocomplete="new-password" aria-describedby="password-hint"/>
            <p class="limits" id="password-hint">"At least 12 characters; length counts, odd signs do not."</p>
        </div>
    }
    .into_any()
}

fn password(settings: &Settings) -> Option<AnyView> {
    settings.has_password.then(|| {
        view! {
            <section class="card" aria-labelledby="password-title">
                <h2 id="password-title">"Password"</h2>
                <form class="fields" method="post" action="/settings/password">
                    <div class="field">
                        <label for="current">"Password now"</label>
                        <input id="current" type="password" name="current" maxlength="1024" required autocomplete="current-password"/>
                    </div>
                    {new_password()}
                    <button type="submit" class="button">"Change it and sign out everywhere else"</button>
                </form>
            </section>
        }
        .into_any()
    })
}

/// What opens the account beside a password. Also shown where no provider is set any more, as long as there is something
/// to forget.
fn identities(settings: &Settings) -> Option<AnyView> {
    let provider = site().sign_in;
    if provider.is_none() && settings.identities.is_empty() {
        return None;
    }
    let may_sign_out = use_context::<Visitor>().unwrap_or_default().may_sign_out;
    let lines = settings.identities.iter().map(own_identity).collect_view();
    let add = provider.as_ref().filter(|_| may_sign_out).map(|label| {
        let way = format!("{}/login/oidc?link=yes", base_url());
        view! { <p><a class="button" href=way><span>"Add an identity of " <bdi>{label.clone()}</bdi></span></a></p> }
    });
    let label = provider.unwrap_or_else(|| "a provider that is not set any more".to_owned());
    Some(
        view! {
            <section class="card" aria-labelledby="identities-title">
                <h2 id="identities-title">{format!("Sign-in with {label}")}</h2>
                <ul class="shares identities">{lines}</ul>
                {add}
            </section>
        }
        .into_any(),
    )
}

fn own_identity(identity: &IdentityLine) -> AnyView {
    let act = |what: &str, words: &'static str| {
        view! {
            <form method="post" action=format!("/settings/identities/{}/{what}", identity.id)>
                <button type="submit" class="button small">{words}</button>
            </form>
        }
    };
    let (state, acts) = if identity.is_linked {
        ("opens this account", view! { {act("remove", "Remove")} }.into_any())
    } else {
        (
            "opens this account only when you say that it is yours",
            view! { {act("link", "Yes, it is mine")} {act("remove", "No")} }.into_any(),
        )
    };
    view! {
        <li>{identity_name(identity, state)}<span class="acts">{acts}</span></li>
    }
    .into_any()
}

/// Who somebody is at the provider. The name there may be anybody's choice, so what never changes stands beside it.
pub fn identity_name(identity: &IdentityLine, state: &str) -> AnyView {
    view! {
        <span>
            <strong><bdi>{words::shown_line(&identity.shown)}</bdi></strong>
            <span class="dim">
                {format!("{state}; shown {}; there known as ", words::time(identity.seen_at))}
                <bdi>{words::shown_line(&identity.subject)}</bdi>
            </span>
        </span>
    }
    .into_any()
}

fn tokens(settings: &Settings) -> AnyView {
    let lines = settings.tokens.iter().map(token).collect_view();
    let form = if settings.projects.is_empty() {
        view! { <p class="dim">"You are in no project yet. Tokens work in one."</p> }.into_any()
    } else {
        token_form(&settings.projects)
    };
    view! {
        <section class="card" aria-labelledby="tokens-title">
            <h2 id="tokens-title">"Tokens" <span>"for agents and scripts"</span></h2>
            {form}
            <ul class="shares">{lines}</ul>
        </section>
    }
    .into_any()
}

fn token_form(projects: &[ProjectChoice]) -> AnyView {
    let scopes = SCOPES
        .iter()
        .map(|&(slug, what)| {
            view! {
                <label class="tick"><input type="checkbox" name=slug value="yes"/>" " <strong>{slug}</strong> " " {what}</label>
            }
        })
        .collect_view();
    let ends = ENDS
        .iter()
        .map(|&(seconds, words)| view! { <option value=seconds selected={seconds == DEFAULT_END}>{words}</option> })
        .collect_view();
    view! {
        <form class="fields" method="post" action="/settings/tokens">
            <div class="pair-fields">
                <div class="field">
                    <label for="token-name">"Name"</label>
                    <input id="token-name" type="text" name="name" maxlength="80" required placeholder="agents of rack 7" autocomplete="off"/>
                </div>
                <div class="field">
                    <label for="token-project">"Works in"</label>
                    <select id="token-project" name="project">{options(projects)}</select>
                </div>
                <div class="field">
                    <label for="token-ends">"Ends"</label>
                    <select id="token-ends" name="ends">{ends}</select>
                </div>
            </div>
            <fieldset class="ticks">
                <legend>"May"</legend>
                {scopes}
            </fieldset>
            <button type="submit" class="button">"Make a token"</button>
        </form>
    }
    .into_any()
}

/// Projects to choose from.
pub fn options(projects: &[ProjectChoice]) -> AnyView {
    let option = |project: &ProjectChoice| {
        view! { <option value=project.id.clone()>{words::shown_line(&project.name)}</option> }
    };
    projects.iter().map(option).collect_view().into_any()
}

fn token(token: &TokenLine) -> AnyView {
    let state = match (token.revoked_at, token.expires_at) {
        (Some(at), _) => format!("revoked {}", words::time(at)),
        (None, Some(at)) => format!("ends {}", words::time(at)),
        (None, None) => "never ends".to_owned(),
    };
    let used = token.used_at.map_or_else(|| "never used".to_owned(), |at| format!("last used {}", words::time(at)));
    let revoke = token.revoked_at.is_none().then(|| {
        view! {
            <form method="post" action=format!("/settings/tokens/{}/revoke", token.id)>
                <button type="submit" class="button small">"Revoke"</button>
            </form>
        }
    });
    view! {
        <li class:over=token.revoked_at.is_some()>
            <span>
                <strong><bdi>{words::shown_line(&token.name)}</bdi></strong>
                {format!(": {} in ", token.scopes.join(", "))}
                <bdi>{words::shown_line(&token.project)}</bdi>
                <span class="dim">{format!("{state}; {used}; made {}", words::time(token.created_at))}</span>
            </span>
            {revoke}
        </li>
    }
    .into_any()
}
