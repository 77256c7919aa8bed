//! Problems for people: whoever opens an address for programs in a browser gets the problem as a page.

use super::page;
use crate::errors::Told;
use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

/// Wraps every request.
pub async fn humane(request: Request, next: Next) -> Response {
    let by_a_person = is_opened(request.method(), request.headers());
    let response = next.run(request).await;
    let Some(told) = response.extensions().get::<Told>().cloned() else { return response };
    if !by_a_person {
        return vary(response);
    }
    let mut shown = (response.status(), page::message(told.title, &told.detail)).into_response();
    if let Some(wait) = response.headers().get(header::RETRY_AFTER) {
        shown.headers_mut().insert(header::RETRY_AFTER, wait.clone());
    }
    *shown.extensions_mut() = response.extensions().clone();
    vary(shown)
}

/// A browser that goes to an address asks for HTML first; scripts and programs ask for anything.
fn is_opened(method: &Method, headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|kinds| kinds.to_str().ok());
    *method == Method::GET
        && accepts.flat_map(|kinds| kinds.split(',')).any(|kind| kind.trim().starts_with("text/html"))
}

fn vary(mut response: Response) -> Response {
    response.headers_mut().append(header::VARY, HeaderValue::from_static("accept"));
    response
}
