//! The form behind a set-up link.

use super::{again, fields, sign_in};
use crate::{
    access::Who,
    accounts::{Accounts, Action, SetUpFor},
    errors::Result,
    http::{AppState, api::ApiPath},
};
use axum::{
    Form,
    extract::{State, rejection::FormRejection},
    http::request::Parts,
    response::Response,
};
use serde::Deserialize;

/// A name for the first administrator, and a password.
#[derive(Debug, Default, Deserialize)]
pub struct SetUpForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    password: String,
}

/// Uses the link up and signs in.
pub async fn set_up(
    State(state): State<AppState>,
    ApiPath(token): ApiPath<String>,
    parts: Parts,
    form: Result<Form<SetUpForm>, FormRejection>,
) -> Response {
    let done = async {
        let SetUpForm { name, password } = fields(form)?;
        let accounts = &state.gate.accounts;
        let is_first = accounts.set_up_for(&token).await? == Some(SetUpFor::FirstAdmin);
        let user = accounts.use_set_up_link(&token, &name, password).await?.ok_or_else(Accounts::no_such_link)?;
        let action = if is_first { Action::FirstAdminMade } else { Action::PasswordSet };
        accounts.record(&user.name, action, "by link", Who::of(&parts.extensions).from).await;
        sign_in::begin(&state, &parts, &user, "/", &sign_in::How::Link).await
    };
    match done.await {
        Ok(response) => response,
        Err(problem) => again(&state, parts, &format!("/setup/{token}"), problem).await,
    }
}
