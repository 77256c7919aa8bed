//! Which identities at the provider open which account: one's own, and, for administrators, everybody's.

use super::{again, fields, person};
use crate::{
    access::Who,
    accounts::{Action, UserName},
    errors::Result,
    http::{AppState, api::ApiPath},
};
use axum::{
    Form,
    extract::{State, rejection::FormRejection},
    http::request::Parts,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use std::future::Future;

const OWN: &str = "/settings";
const USERS: &str = "/settings/users";

/// The name of an account.
#[derive(Debug, Default, Deserialize)]
pub struct NameForm {
    #[serde(default)]
    name: String,
}

/// Lets an identity that its owner has shown open the own account.
pub async fn link_own(State(state): State<AppState>, ApiPath(identity): ApiPath<String>, parts: Parts) -> Response {
    or_again(&state, parts.clone(), OWN, async {
        let who = Who::of(&parts.extensions);
        let user = &person(&who.principal)?.user;
        let linked = state.gate.accounts.link(&identity, &user.id, true).await?;
        state.record(&who.principal, who.from, Action::IdentityLinked, &format!("{}: the own one", linked.shown)).await;
        Ok(())
    })
    .await
}

/// Forgets an own one.
pub async fn remove_own(State(state): State<AppState>, ApiPath(identity): ApiPath<String>, parts: Parts) -> Response {
    or_again(&state, parts.clone(), OWN, async {
        let who = Who::of(&parts.extensions);
        let user = &person(&who.principal)?.user;
        let removed = state.gate.accounts.remove_own_identity(&identity, user).await?;
        state.record(&who.principal, who.from, Action::IdentityRemoved, &removed.shown).await;
        Ok(())
    })
    .await
}

/// Lets an identity that waits open an account that is there.
pub async fn link(
    State(state): State<AppState>,
    ApiPath(identity): ApiPath<String>,
    parts: Parts,
    form: Result<Form<NameForm>, FormRejection>,
) -> Response {
    or_again(&state, parts.clone(), USERS, async {
        let who = Who::of(&parts.extensions);
        let accounts = &state.gate.accounts;
        let name: UserName = fields(form)?.name.parse()?;
        let user = accounts.named_user(&name).await?;
        let linked = accounts.link(&identity, &user.id, false).await?;
        let subject = format!("{}: {}", linked.shown, user.name);
        state.record(&who.principal, who.from, Action::IdentityLinked, &subject).await;
        Ok(())
    })
    .await
}

/// Makes an account for an identity that waits.
pub async fn add_user(
    State(state): State<AppState>,
    ApiPath(identity): ApiPath<String>,
    parts: Parts,
    form: Result<Form<NameForm>, FormRejection>,
) -> Response {
    or_again(&state, parts.clone(), USERS, async {
        let who = Who::of(&parts.extensions);
        let (user, linked) = state.gate.accounts.add_user_of(&identity, &fields(form)?.name.parse()?).await?;
        state.record(&who.principal, who.from, Action::UserAdded, &user.name).await;
        let subject = format!("{}: {}", linked.shown, user.name);
        state.record(&who.principal, who.from, Action::IdentityLinked, &subject).await;
        Ok(())
    })
    .await
}

/// Forgets any. Whoever is signed in to its account has to sign in again: it may be by this one.
pub async fn remove(State(state): State<AppState>, ApiPath(identity): ApiPath<String>, parts: Parts) -> Response {
    or_again(&state, parts.clone(), USERS, async {
        let who = Who::of(&parts.extensions);
        let accounts = &state.gate.accounts;
        let removed = accounts.identity(&identity).await?;
        accounts.remove_identity(&identity).await?;
        if let Some(user) = &removed.user_id {
            accounts.end_sessions_of(user).await?;
        }
        state.record(&who.principal, who.from, Action::IdentityRemoved, &removed.shown).await;
        Ok(())
    })
    .await
}

async fn or_again(state: &AppState, parts: Parts, page: &str, work: impl Future<Output = Result<()>>) -> Response {
    match work.await {
        Ok(()) => Redirect::to(page).into_response(),
        Err(problem) => again(state, parts, page, problem).await,
    }
}
