//! The report as a file: one self-contained page, Markdown for an issue or a chat, JSON for programs.

use super::{
    AppState,
    api::{ApiPath, ApiQuery, VersionQuery},
};
use crate::{
    errors::{Problem, ProblemBody, Result},
    render,
};
use axum::{
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};

/// The report as one HTML file that needs nothing else.
#[utoipa::path(get, path = "/runs/{id}/report.html", tag = "reports", params(("id" = String, Path), VersionQuery),
    responses((status = 200, body = String, content_type = "text/html"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn report_html(
    State(state): State<AppState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(query): ApiQuery<VersionQuery>,
) -> Result<Response> {
    let report = state.service.store.report(&id, query.version).await?;
    let html = tokio::task::spawn_blocking(move || rankscope_app::standalone_report_html(&report));
    Ok(file("text/html; charset=utf-8", "html", &id, html.await.map_err(Problem::internal)?))
}

/// The report as Markdown.
#[utoipa::path(get, path = "/runs/{id}/report.md", tag = "reports", params(("id" = String, Path), VersionQuery),
    responses((status = 200, body = String, content_type = "text/markdown"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn report_markdown(
    State(state): State<AppState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(query): ApiQuery<VersionQuery>,
) -> Result<Response> {
    let report = state.service.store.report(&id, query.version).await?;
    Ok(file("text/markdown; charset=utf-8", "md", &id, render::markdown(&report)))
}

/// The whole report, with the numbers of its charts, as JSON.
#[utoipa::path(get, path = "/runs/{id}/report.json", tag = "reports", params(("id" = String, Path), VersionQuery),
    responses((status = 200, body = Object, content_type = "application/json"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn report_json(
    State(state): State<AppState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(query): ApiQuery<VersionQuery>,
) -> Result<Response> {
    let report = state.service.store.report(&id, query.version).await?;
    let json = serde_json::to_string_pretty(&report).map_err(Problem::internal)?;
    Ok(file("application/json", "json", &id, json))
}

/// Shown when opened, named when saved. Ids are hexadecimal with hyphens, so the name is safe.
fn file(kind: &'static str, ending: &str, run: &str, text: String) -> Response {
    let name = HeaderValue::from_str(&format!("inline; filename=\"rankscope-{run}.{ending}\""))
        .unwrap_or(HeaderValue::from_static("inline"));
    let headers = [(header::CONTENT_TYPE, HeaderValue::from_static(kind)), (header::CONTENT_DISPOSITION, name)];
    (headers, text).into_response()
}
