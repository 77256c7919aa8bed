//! Users, for administrators.

use super::{again, fields, shown_once};
use crate::{
    access::Who,
    accounts::Action,
    errors::{Problem, Result},
    http::{AppState, api::ApiPath},
};
use axum::{
    Form,
    extract::{State, rejection::FormRejection},
    http::{header, request::Parts},
    response::{IntoResponse, Redirect, Response},
};
use rankscope_app::ShownOnce;
use serde::Deserialize;
use std::future::Future;

const PAGE: &str = "/settings/users";

/// A new user.
#[derive(Debug, Default, Deserialize)]
pub struct UserForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    administrator: String,
}

/// `yes` or `no`.
#[derive(Debug, Default, Deserialize)]
pub struct ToForm {
    #[serde(default)]
    to: String,
}

impl ToForm {
    fn is_yes(&self) -> Result<bool> {
        match self.to.as_str() {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(Problem::invalid("The form is not complete.")),
        }
    }
}

/// Adds a user, and makes the link with which the user chooses a password.
pub async fn add_user(
    State(state): State<AppState>,
    parts: Parts,
    form: Result<Form<UserForm>, FormRejection>,
) -> Response {
    let who = Who::of(&parts.extensions);
    or_again(&state, parts.clone(), async {
        let form = fields(form)?;
        let user = state.gate.accounts.add_user(&form.name.parse()?, form.administrator == "yes").await?;
        state.record(&who.principal, who.from, Action::UserAdded, &user.name).await;
        link_for(&state, &parts, &user.id).await
    })
    .await
}

/// A new link for a user: the password was never chosen, or forgotten.
pub async fn new_link(State(state): State<AppState>, ApiPath(user): ApiPath<String>, parts: Parts) -> Response {
    let who = Who::of(&parts.extensions);
    or_again(&state, parts.clone(), async {
        let user = state.gate.accounts.user(&user).await?;
        state.record(&who.principal, who.from, Action::UserLinkMade, &user.name).await;
        link_for(&state, &parts, &user.id).await
    })
    .await
}

async fn link_for(state: &AppState, parts: &Parts, user: &str) -> Result<Response> {
    let secret = state.gate.accounts.new_set_up_link(Some(user)).await?;
    let link = format!("{}/setup/{secret}", state.front.base_url(&parts.headers, &parts.uri));
    let cookie = shown_once::carry(&ShownOnce::Link(link), state.front.is_https()).map_err(Problem::internal)?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(PAGE)).into_response())
}

/// Makes a user an administrator, or no longer one.
pub async fn set_administrator(
    State(state): State<AppState>,
    ApiPath(user): ApiPath<String>,
    parts: Parts,
    form: Result<Form<ToForm>, FormRejection>,
) -> Response {
    let who = Who::of(&parts.extensions);
    or_again(&state, parts, async {
        let yes = fields(form)?.is_yes()?;
        let user = state.gate.accounts.user(&user).await?;
        state.gate.accounts.set_admin(&user.id, yes).await?;
        let action = if yes { Action::AdminGranted } else { Action::AdminTaken };
        state.record(&who.principal, who.from, action, &user.name).await;
        Ok(Redirect::to(PAGE).into_response())
    })
    .await
}

/// Keeps a user out, or lets the user in again.
pub async fn set_disabled(
    State(state): State<AppState>,
    ApiPath(user): ApiPath<String>,
    parts: Parts,
    form: Result<Form<ToForm>, FormRejection>,
) -> Response {
    let who = Who::of(&parts.extensions);
    or_again(&state, parts, async {
        let yes = fields(form)?.is_yes()?;
        let user = state.gate.accounts.user(&user).await?;
        state.gate.accounts.set_disabled(&user.id, yes).await?;
        let action = if yes { Action::UserDisabled } else { Action::UserEnabled };
        state.record(&who.principal, who.from, action, &user.name).await;
        Ok(Redirect::to(PAGE).into_response())
    })
    .await
}

async fn or_again(state: &AppState, parts: Parts, work: impl Future<Output = Result<Response>>) -> Response {
    match work.await {
        Ok(response) => response,
        Err(problem) => again(state, parts, PAGE, problem).await,
    }
}
