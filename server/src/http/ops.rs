//! For those who operate the server: health, readiness, counters, and what the problem types mean.

use super::{AppState, page};
use crate::{
    errors::{Problem, ProblemKind, Result},
    jobs,
    store::StoreError,
};
use axum::{
    extract::{Path, State},
    http::header,
    response::{IntoResponse, Response},
};

/// The process answers.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Database and object store answer, and what other servers take in is seen here.
pub async fn readyz(State(state): State<AppState>) -> Result<&'static str> {
    let answered = state.service.store.check().await;
    answered.map_err(|error| {
        let detail = match &error {
            StoreError::Bucket(fault) => fault.told(),
            _ => "The store does not answer.",
        };
        Problem::new(ProblemKind::Unavailable, detail).because(error)
    })?;
    if state.live.as_ref().is_some_and(|live| !live.is_current()) {
        let detail = "What agents send to other servers could not be read for a while.";
        return Err(Problem::new(ProblemKind::Unavailable, detail));
    }
    Ok("ready\n")
}

/// Counters as Prometheus text.
pub async fn metrics(State(state): State<AppState>) -> Response {
    let mut text = state.service.metrics.render();
    // A database that is away is told by /readyz; the other figures are still worth something.
    if let Ok(counts) = state.service.store.job_counts().await {
        text.push_str(&jobs::metrics(counts));
    }
    if let Some(live) = &state.live {
        text.push_str(&live.metrics());
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// `type` of a problem leads here.
pub async fn problem(Path(slug): Path<String>) -> Response {
    match ProblemKind::ALL.iter().find(|kind| kind.slug() == slug) {
        Some(kind) => {
            let detail = format!("Answers with status {}. Their “detail” says what happened.", kind.status());
            page::message(kind.title(), &detail).into_response()
        }
        None => Problem::not_found().into_page(),
    }
}
