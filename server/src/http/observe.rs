//! One log line and one count for every answer, and a deadline for it. Tokens of shares never reach the log.

use super::AppState;
use crate::errors::{Problem, ProblemKind};
use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use std::time::Instant;

/// Wraps every request.
pub async fn observe(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let path = without_token(request.uri().path()).to_owned();
    let started = Instant::now();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    state.service.metrics.request(status);
    let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(%method, path, status, millis, "answered");
    response
}

/// Everything but uploads is answered within the limit, or given up.
pub async fn deadline(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let limit = state.service.limits.answer_within;
    if let Ok(response) = tokio::time::timeout(limit, next.run(request)).await {
        return response;
    }
    let detail = "The answer took too long and was given up. Try again in a moment.";
    Problem::new(ProblemKind::Unavailable, detail).because("deadline").into_response()
}

fn without_token(path: &str) -> &str {
    match path {
        _ if path.starts_with("/r/") => "/r/…",
        _ if path.starts_with("/setup/") => "/setup/…",
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn tokens_stay_out_of_the_log() {
        assert_eq!(super::without_token("/r/secret/preview.png"), "/r/…");
        assert_eq!(super::without_token("/setup/secret"), "/setup/…");
        assert_eq!(super::without_token("/runs/1"), "/runs/1");
    }
}
