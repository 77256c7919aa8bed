//! One's own password and tokens.

use super::{again, fields, person, shown_once, sign_in};
use crate::{
    access::{Who, session_cookie},
    accounts::{Action, Scope, Scopes},
    errors::{Problem, ProblemKind, Result},
    http::{AppState, api::ApiPath, api::expiry},
};
use axum::{
    Form,
    extract::{State, rejection::FormRejection},
    http::{header, request::Parts},
    response::{IntoResponse, Redirect, Response},
};
use rankscope_app::ShownOnce;
use serde::Deserialize;

const PAGE: &str = "/settings";

/// The password form.
#[derive(Debug, Default, Deserialize)]
pub struct PasswordForm {
    #[serde(default)]
    current: String,
    #[serde(default)]
    password: String,
}

/// Another password: asks for the one of now, ends every session, and begins a new one here.
pub async fn set_password(
    State(state): State<AppState>,
    parts: Parts,
    form: Result<Form<PasswordForm>, FormRejection>,
) -> Response {
    let done = async {
        let PasswordForm { current, password } = fields(form)?;
        let who = Who::of(&parts.extensions);
        let user = &person(&who.principal)?.user;
        sign_in::check(&state, &user.name, current, who.from).await.map_err(|problem| match problem.kind() {
            ProblemKind::SignInNeeded => Problem::invalid("The password of now is not right."),
            _ => problem,
        })?;
        let accounts = &state.gate.accounts;
        accounts.set_password(user, password).await?;
        state.record(&who.principal, who.from, Action::PasswordSet, "").await;
        let session = accounts.start_session(&user.id).await?;
        let cookie = session_cookie(&session.secret, state.front.is_https()).map_err(Problem::internal)?;
        Ok(([(header::SET_COOKIE, cookie)], Redirect::to(PAGE)).into_response())
    };
    match done.await {
        Ok(response) => response,
        Err(problem) => again(&state, parts, PAGE, problem).await,
    }
}

/// The form for a token.
#[derive(Debug, Default, Deserialize)]
pub struct TokenForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    project: String,
    /// Seconds; empty for never.
    #[serde(default)]
    ends: String,
    #[serde(default)]
    samples: String,
    #[serde(default)]
    upload: String,
    #[serde(default)]
    read: String,
}

/// A token, for what its maker may do in the project.
pub async fn add_token(
    State(state): State<AppState>,
    parts: Parts,
    form: Result<Form<TokenForm>, FormRejection>,
) -> Response {
    let done = async {
        let form = fields(form)?;
        let who = Who::of(&parts.extensions);
        let user = &person(&who.principal)?.user;
        let role = who.principal.role_in(&form.project);
        let role = role.ok_or_else(|| Problem::invalid("You are in no such project."))?;
        let chosen = [(Scope::Samples, &form.samples), (Scope::Upload, &form.upload), (Scope::Read, &form.read)];
        let chosen: Vec<Scope> = chosen.into_iter().filter(|(_, yes)| *yes == "yes").map(|(scope, _)| scope).collect();
        if let Some(scope) = chosen.iter().find(|scope| scope.role() > role) {
            let detail = format!("A token for {} takes an {} of the project.", scope.slug(), scope.role().slug());
            return Err(Problem::new(ProblemKind::NotAllowed, detail));
        }
        let scopes = Scopes::new(&chosen);
        let seconds = match form.ends.trim() {
            "" => None,
            text => Some(text.parse().map_err(|_| Problem::invalid("The end of a token is a number of seconds."))?),
        };
        let accounts = &state.gate.accounts;
        let made = accounts.add_token(&user.id, &form.project, &form.name, &scopes, expiry(seconds)?).await?;
        let subject = format!("{} for {scopes}", form.name.trim());
        state.record(&who.principal, who.from, Action::TokenMade, &subject).await;
        let cookie = shown_once::carry(&ShownOnce::Token(made.token), state.front.is_https());
        Ok(([(header::SET_COOKIE, cookie.map_err(Problem::internal)?)], Redirect::to(PAGE)).into_response())
    };
    match done.await {
        Ok(response) => response,
        Err(problem) => again(&state, parts, PAGE, problem).await,
    }
}

/// The end of a token.
pub async fn revoke_token(State(state): State<AppState>, who: Who, ApiPath(token): ApiPath<String>) -> Response {
    let done = async {
        let user = &person(&who.principal)?.user;
        let name = state.gate.accounts.revoke_token(&token, &user.id).await?;
        state.record(&who.principal, who.from, Action::TokenRevoked, &name).await;
        Ok::<_, Problem>(Redirect::to(PAGE).into_response())
    };
    done.await.unwrap_or_else(Problem::into_page)
}
