//! Forms of accounts: each ends in a redirect to the page that shows the result, or in its own page with the reason why
//! not. What anybody may do was decided by the gate before.

pub mod identities;
pub mod oidc;
pub mod own;
pub mod projects;
pub mod retention;
pub mod set_up;
pub mod shown_once;
pub mod sign_in;
pub mod users;

use super::{AppState, pages};
use crate::{
    access::{Principal, SignedIn},
    errors::{Problem, ProblemKind, Result},
};
use axum::{
    Form,
    body::Body,
    extract::{Request, State, rejection::FormRejection},
    http::{Method, request::Parts},
    response::Response,
};
use rankscope_app::Said;

/// The form's fields, or the words for a form that is not one.
pub fn fields<T>(form: Result<Form<T>, FormRejection>) -> Result<T> {
    form.map(|Form(form)| form).map_err(|error| Problem::invalid("The form is not complete.").because(error))
}

/// The person who sent a form.
pub fn person(who: &Principal) -> Result<&SignedIn> {
    match who {
        Principal::User(signed_in) => Ok(signed_in),
        _ => Err(Problem::new(ProblemKind::SignInNeeded, "Sign in first.")),
    }
}

/// The page of a form once more, with the reason why it was not taken.
pub async fn again(state: &AppState, mut parts: Parts, address: &str, problem: Problem) -> Response {
    let kind = problem.kind();
    let worth_a_page =
        kind == ProblemKind::ProviderFailed || (kind.status().is_client_error() && kind != ProblemKind::NotFound);
    let Ok(address) = address.parse() else { return problem.into_page() };
    if !worth_a_page {
        return problem.into_page();
    }
    parts.method = Method::GET;
    parts.uri = address;
    parts.extensions.insert(Said(problem.detail().to_owned()));
    let mut response = pages::page(State(state.clone()), Request::from_parts(parts, Body::empty())).await;
    *response.status_mut() = problem.kind().status();
    problem.mark(&mut response);
    response
}
