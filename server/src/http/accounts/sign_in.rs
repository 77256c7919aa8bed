//! Signing in and out.

use super::{again, fields};
use crate::{
    access::{Who, bucket_of, end_session_cookie, session_cookie, session_secret, too_many_tries},
    accounts::{Action, LONGEST, LONGEST_BY_PROVIDER, User, UserName},
    errors::{Problem, ProblemKind, Result},
    http::AppState,
};
use axum::{
    Form,
    extract::{State, rejection::FormRejection},
    http::{header, request::Parts},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

/// The sign-in form.
#[derive(Debug, Default, Deserialize)]
pub struct SignInForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    next: String,
}

/// Begins a session for whoever knows the password. Says the same, after the same time, whether the name exists or not.
pub async fn sign_in(
    State(state): State<AppState>,
    parts: Parts,
    form: Result<Form<SignInForm>, FormRejection>,
) -> Response {
    let form = match fields(form) {
        Ok(form) => form,
        Err(problem) => return again(&state, parts, "/login", problem).await,
    };
    let next = own_address(&form.next).to_owned();
    let who = Who::of(&parts.extensions);
    let begun = async {
        let user = check(&state, &form.name, form.password, who.from).await?;
        begin(&state, &parts, &user, &next, &How::Password).await
    };
    match begun.await {
        Ok(response) => response,
        Err(problem) => again(&state, parts, &login_page(&next), problem).await,
    }
}

/// The user of a name and a password, within the number of tries.
pub async fn check(state: &AppState, name: &str, password: String, from: Option<IpAddr>) -> Result<User> {
    let gate = &state.gate;
    let address = bucket_of(from.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
    gate.by_address.take(&address).map_err(too_many_tries)?;
    let wrong = || Problem::new(ProblemKind::SignInNeeded, "The name or the password is not right.");
    let Ok(name) = name.parse::<UserName>() else { return Err(wrong()) };
    let account = name.as_str().to_owned();
    gate.by_account.check(&account).map_err(too_many_tries)?;
    if let Some(user) = gate.accounts.user_of_password(&name, password).await? {
        gate.by_address.give_back(&address);
        return Ok(user);
    }
    // Counted whether the account exists or not, so that the limit tells nothing either.
    let _ = gate.by_account.take(&account);
    // A password typed into the wrong field must not stay in the record.
    let known = gate.accounts.user_by_name(&name).await.is_ok();
    let subject = if known { account.as_str() } else { "an unknown name" };
    gate.accounts.record("", Action::SignInFailed, subject, from).await;
    Err(wrong())
}

/// How somebody has shown who comes.
#[derive(Debug)]
pub enum How {
    /// With a password.
    Password,
    /// With a link that makes one.
    Link,
    /// With a provider.
    Provider(String),
}

impl How {
    fn words(&self) -> String {
        match self {
            Self::Password => "with a password".to_owned(),
            Self::Link => "with a set-up link".to_owned(),
            Self::Provider(label) => format!("with {label}"),
        }
    }

    fn longest(&self) -> Duration {
        match self {
            Self::Password | Self::Link => LONGEST,
            Self::Provider(_) => LONGEST_BY_PROVIDER,
        }
    }
}

/// Begins a session: always a new one. What the browser had before ends.
pub async fn begin(state: &AppState, parts: &Parts, user: &User, next: &str, how: &How) -> Result<Response> {
    let accounts = &state.gate.accounts;
    let is_https = state.front.is_https();
    if let Some(old) = session_secret(&parts.headers, is_https) {
        accounts.end_session(old).await?;
    }
    let session = accounts.start_session_for(&user.id, how.longest()).await?;
    accounts.record(&user.name, Action::SignedIn, &how.words(), Who::of(&parts.extensions).from).await;
    let cookie = session_cookie(&session.secret, is_https).map_err(Problem::internal)?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(next)).into_response())
}

/// Ends the session.
pub async fn sign_out(State(state): State<AppState>, parts: Parts) -> Response {
    let is_https = state.front.is_https();
    let ended = async {
        if let Some(secret) = session_secret(&parts.headers, is_https) {
            state.gate.accounts.end_session(secret).await?;
            let who = Who::of(&parts.extensions);
            if let crate::access::Principal::User(_) = &who.principal {
                state.record(&who.principal, who.from, Action::SignedOut, "").await;
            }
        }
        let cookie = end_session_cookie(is_https).map_err(Problem::internal)?;
        Ok::<_, Problem>(([(header::SET_COOKIE, cookie)], Redirect::to("/login")).into_response())
    };
    ended.await.unwrap_or_else(Problem::into_page)
}

/// An address of this server, or its first page: no form leads elsewhere.
pub fn own_address(next: &str) -> &str {
    let is_plain = next.bytes().all(|sign| sign.is_ascii_graphic() && sign != b'\\');
    if next.starts_with('/') && !next.starts_with("//") && is_plain { next } else { "/" }
}

/// The sign-in page that leads to this address of this server.
pub fn login_page(next: &str) -> String {
    if next == "/" { "/login".to_owned() } else { format!("/login?next={}", escaped(next)) }
}

fn escaped(next: &str) -> String {
    next.replace('%', "%25").replace('&', "%26").replace('#', "%23").replace('+', "%2B").replace('?', "%3F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_led_elsewhere() {
        assert_eq!(own_address("/runs/1?version=2"), "/runs/1?version=2");
        for elsewhere in
            ["", "https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/a\r\nX: y", "/ä"]
        {
            assert_eq!(own_address(elsewhere), "/", "{elsewhere:?}");
        }
    }
}
