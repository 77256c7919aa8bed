//! The way through a provider and back. It begins with a link and not with a form, because what a form leads to must be an
//! address of this server (`form-action`), also for the provider's own redirects.
//!
//! What comes back counts once, and only in the browser that went: it brings the cookie that it was given (`SameSite=Lax`,
//! because it comes from another site), so nobody can be signed in as somebody else by a link.

use super::{again, person, sign_in};
use crate::{
    access::{
        Principal, SignedIn, Via, Who, begin_sign_in_cookie, bucket_of, end_sign_in_cookie, sign_in_secret,
        too_many_tries,
    },
    accounts::{Action, Entrance, Pending},
    errors::{Problem, ProblemKind, Result},
    http::{AppState, SignIn},
    oidc::{Failure, Person},
};
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderValue, header, request::Parts},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr};

/// Where people add an identity to their account.
const SETTINGS: &str = "/settings";
/// Longest error code of a provider that is told.
const LONGEST_ERROR: usize = 64;

/// What the link says.
#[derive(Debug, Default, Deserialize)]
pub struct Wish {
    #[serde(default)]
    next: String,
    /// `yes` adds the identity to the account that is signed in.
    #[serde(default)]
    link: String,
}

/// What the provider sends back.
#[derive(Debug, Default, Deserialize)]
pub struct Return {
    state: Option<String>,
    code: Option<String>,
    error: Option<String>,
    iss: Option<String>,
}

/// Sends the browser to the provider.
pub async fn begin(State(state): State<AppState>, parts: Parts, wish: Result<Query<Wish>, QueryRejection>) -> Response {
    let Some(with) = state.sign_in.clone() else { return Problem::not_found().into_page() };
    let wish = wish.map(|Query(wish)| wish).unwrap_or_default();
    let next = sign_in::own_address(&wish.next).to_owned();
    if !is_own_wish(&parts) {
        // Another site's link or picture: here a person presses the button.
        return Redirect::to(&sign_in::login_page(&next)).into_response();
    }
    let who = Who::of(&parts.extensions);
    let adds = wish.link == "yes";
    let begun = async {
        let user_id = if adds { Some(with_session(&who.principal)?.user.id.clone()) } else { None };
        state.gate.by_address.take(&address_of(who.from)).map_err(too_many_tries)?;
        let begun = with.provider.begin().await.map_err(|failure| told(&with, &failure))?;
        let pending = Pending { nonce: begun.nonce, verifier: begun.verifier, next: next.clone(), user_id };
        let browser = state.gate.accounts.keep_pending(&begun.state, &pending).await?;
        let browser = browser.ok_or_else(|| told(&with, &Failure::Busy))?;
        let cookie = begin_sign_in_cookie(&browser, state.front.is_https()).map_err(Problem::internal)?;
        Ok::<_, Problem>(([(header::SET_COOKIE, cookie)], Redirect::to(&begun.address)).into_response())
    };
    match begun.await {
        Ok(response) => response,
        Err(problem) => again(&state, parts, &page(&who.principal, adds, &next), problem).await,
    }
}

/// Where it is told why nothing came of it.
fn page(who: &Principal, adds: bool, next: &str) -> String {
    match (adds, with_session(who)) {
        (true, Ok(_)) => SETTINGS.to_owned(),
        (true, Err(_)) => sign_in::login_page(SETTINGS),
        (false, _) => sign_in::login_page(next),
    }
}

/// Takes back who has been there.
pub async fn come_back(
    State(state): State<AppState>,
    parts: Parts,
    answer: Result<Query<Return>, QueryRejection>,
) -> Response {
    let Some(with) = state.sign_in.clone() else { return Problem::not_found().into_page() };
    let answer = answer.map(|Query(answer)| answer).unwrap_or_default();
    let pending = match pending(&state, &parts, &answer).await {
        Ok(pending) => pending,
        Err(problem) => return again(&state, parts, "/login", problem).await,
    };
    let page = page(&Who::of(&parts.extensions).principal, pending.user_id.is_some(), &pending.next);
    let mut response = match end(&state, &parts, &with, pending, answer).await {
        Ok(response) => response,
        Err(problem) => again(&state, parts, &page, problem).await,
    };
    if let Ok(cookie) = end_sign_in_cookie(state.front.is_https()) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// The sign-in of this browser that comes back. It is used up by that.
async fn pending(state: &AppState, parts: &Parts, answer: &Return) -> Result<Pending> {
    let browser = sign_in_secret(&parts.headers, state.front.is_https());
    if let (Some(sent), Some(browser)) = (&answer.state, browser)
        && let Some(pending) = state.gate.accounts.take_pending(sent, browser).await?
    {
        return Ok(pending);
    }
    let problem = Problem::invalid(
        "This sign-in was not begun in this browser, was ended already, or took more than 10 minutes. Begin it once more.",
    );
    let from = Who::of(&parts.extensions).from.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    Err(state.gate.wrong_guess(from, problem))
}

async fn end(state: &AppState, parts: &Parts, with: &SignIn, pending: Pending, answer: Return) -> Result<Response> {
    let provider = &with.provider;
    let who = Who::of(&parts.extensions);
    let came = async {
        if answer.iss.is_some_and(|issuer| issuer != provider.settings().issuer.as_str()) {
            return Err(told(with, &Failure::NotBelieved("the answer names another issuer (iss)".to_owned())));
        }
        let code = match (answer.code, answer.error) {
            (Some(code), None) => code,
            (_, error) => return Err(refused(with, error.as_deref())),
        };
        let person = provider.finish(code, pending.verifier, pending.nonce).await;
        person.map_err(|failure| told(with, &failure))
    };
    let failed = async |why: &str| {
        let subject = format!("with {}: {why}", provider.label());
        state.gate.accounts.record("", Action::SignInFailed, &subject, who.from).await;
    };
    let person = match came.await {
        Ok(person) => person,
        Err(problem) => {
            failed(problem.kind().title()).await;
            return Err(problem);
        }
    };
    if let Some(why) = provider.settings().admission.refusal(&person, provider.label()) {
        failed(&format!("{} may not come in", person.claimed().shown)).await;
        return Err(Problem::new(ProblemKind::NotAllowed, why));
    }
    match pending.user_id {
        Some(user) => add(state, &who, with, &person, &user).await,
        None => enter(state, parts, with, &person, &pending.next).await,
    }
}

/// Signs in whom the identity opens an account.
async fn enter(state: &AppState, parts: &Parts, with: &SignIn, person: &Person, next: &str) -> Result<Response> {
    let (accounts, label) = (&state.gate.accounts, with.provider.label());
    let from = Who::of(&parts.extensions).from;
    let claimed = person.claimed();
    let failed = async |why: &str| {
        let subject = format!("with {label}: {} {why}", claimed.shown);
        accounts.record("", Action::SignInFailed, &subject, from).await;
    };
    let user = match accounts.enter(&claimed, with.new_users).await? {
        Entrance::Open(user) => user,
        Entrance::New(user) => {
            accounts
                .record(&user.name, Action::UserAdded, &format!("{} by coming with {label}", user.name), from)
                .await;
            user
        }
        Entrance::Disabled(_) => {
            failed("has a disabled account").await;
            let detail = "Your account here is disabled. An administrator can let you in again.";
            return Err(Problem::new(ProblemKind::NotAllowed, detail));
        }
        Entrance::Waits => {
            failed("has no account").await;
            let detail = format!(
                "You are {} at {label}, and that opens no account here yet. An administrator sees you in the list of users \
                 from now on and can let you in. If you have an account with a password, sign in with that and add {label} in \
                 your settings.",
                claimed.shown
            );
            return Err(Problem::new(ProblemKind::NotAllowed, detail));
        }
    };
    state.gate.by_address.give_back(&address_of(from));
    sign_in::begin(state, parts, &user, next, &sign_in::How::Provider(label.to_owned())).await
}

/// Notes what somebody has shown who is signed in. It opens the account when that one says so on the page of the settings:
/// what a link has led through here without a wish must not open anything.
async fn add(state: &AppState, who: &Who, with: &SignIn, person: &Person, user: &str) -> Result<Response> {
    let signed_in = with_session(&who.principal)?;
    if signed_in.user.id != user {
        return Err(Problem::invalid("You have signed in as somebody else meanwhile. Begin once more."));
    }
    match state.gate.accounts.want(&person.claimed(), user).await? {
        None => {}
        Some(owner) if owner == user => {}
        Some(_) => {
            return Err(Problem::invalid(format!(
                "This identity of {} opens another account already. An administrator can change that.",
                with.provider.label()
            )));
        }
    }
    state.gate.by_address.give_back(&address_of(who.from));
    Ok(Redirect::to(SETTINGS).into_response())
}

/// Where tries are counted.
fn address_of(from: Option<IpAddr>) -> IpAddr {
    bucket_of(from.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))
}

/// The person of a session; a program or a proxy's word adds nothing.
fn with_session(who: &Principal) -> Result<&SignedIn> {
    let signed_in = person(who)?;
    match signed_in.via {
        Via::Session => Ok(signed_in),
        Via::Proxy => Err(Problem::new(ProblemKind::NotAllowed, "A proxy signs you in here.")),
    }
}

/// Whether a person has asked for it here, as far as the browser says from where it comes.
fn is_own_wish(parts: &Parts) -> bool {
    match parts.headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => true,
        Some(_) => false,
    }
}

/// What the log and the visitor are told.
fn told(with: &SignIn, failure: &Failure) -> Problem {
    let (issuer, cause) = (&with.provider.settings().issuer, failure.cause());
    tracing::warn!(%issuer, cause, "a sign-in with the provider did not come about");
    failure.problem(with.provider.label())
}

/// The provider has sent an error instead of a code.
fn refused(with: &SignIn, error: Option<&str>) -> Problem {
    let label = with.provider.label();
    let is_plain = |error: &&str| error.len() <= LONGEST_ERROR && error.bytes().all(|sign| sign.is_ascii_graphic());
    match error.filter(is_plain) {
        Some("access_denied") => {
            Problem::new(ProblemKind::NotAllowed, format!("{label} did not let you in, or you have broken it off."))
        }
        Some("temporarily_unavailable" | "server_error") => {
            told(with, &Failure::Away(format!("{label} says that it cannot answer right now")))
        }
        Some(error) => told(with, &Failure::NotUnderstood(format!("it sends people back with the error {error}"))),
        None => told(with, &Failure::NotUnderstood("it sends people back without a code".to_owned())),
    }
}
