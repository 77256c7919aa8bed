//! What a share opens beside its page: the preview picture, the charts and their values, its files where they are
//! shared, and the form that unlocks it. Read-only, and only of the version that was shared.

use super::{
    AppState,
    api::{self, ApiPath, ApiQuery, SeriesAnswer, SeriesQuery, series_of},
    charts::{self, ChartQuery},
};
use crate::errors::{Problem, ProblemKind, Result};
use axum::{
    Form, Json,
    extract::{State, rejection::FormRejection},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

/// Shows that this visitor has given a share's password.
const PROOF_COOKIE: &str = "rankscope_unlocked";
/// For how long.
const PROOF_SECONDS: u32 = 12 * 3600;

/// The proof of this visitor, from the cookies of the request.
pub fn proof(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get(header::COOKIE)?.to_str().ok()?;
    let value = cookies.split(';').find_map(|cookie| cookie.trim().strip_prefix(PROOF_COOKIE)?.strip_prefix('='))?;
    (value.len() <= 128).then(|| value.to_owned())
}

/// The picture that chats show beside the link. A share with a password has none: chats do not know it.
pub async fn preview(
    State(state): State<AppState>,
    headers: HeaderMap,
    ApiPath(token): ApiPath<String>,
) -> Result<Response> {
    let (_, report) = state.service.shared_report(&token, proof(&headers).as_deref()).await?;
    charts::preview_of(report).await
}

/// Values behind the timeline.
pub async fn series(
    State(state): State<AppState>,
    headers: HeaderMap,
    ApiPath(token): ApiPath<String>,
    ApiQuery(query): ApiQuery<SeriesQuery>,
) -> Result<Json<SeriesAnswer>> {
    let shared = state.service.open_share(&token, proof(&headers).as_deref()).await?;
    series_of(&state, &shared.run_id, Some(shared.version), &query, None).await
}

/// A chart.
pub async fn chart(
    State(state): State<AppState>,
    headers: HeaderMap,
    ApiPath((token, chart)): ApiPath<(String, String)>,
    ApiQuery(query): ApiQuery<ChartQuery>,
) -> Result<Response> {
    let (_, report) = state.service.shared_report(&token, proof(&headers).as_deref()).await?;
    charts::chart_of(&state, report, &chart, query, None).await
}

/// A file as it was uploaded, where the share includes them, and only of those that its version counts in.
pub async fn artifact(
    State(state): State<AppState>,
    headers: HeaderMap,
    ApiPath((token, n)): ApiPath<(String, usize)>,
) -> Result<Response> {
    let (shared, report) = state.service.shared_report(&token, proof(&headers).as_deref()).await?;
    if !shared.raw_files || n >= report.diagnosis.artifacts.len() {
        return Err(Problem::new(ProblemKind::NotFound, "This share has no file at this address."));
    }
    api::artifact(State(state), ApiPath((shared.run_id, n))).await
}

/// The form of a locked share.
#[derive(Deserialize)]
pub struct UnlockForm {
    #[serde(default)]
    password: String,
}

/// Takes a password; the right one leads to the report.
pub async fn unlock(
    State(state): State<AppState>,
    path: Result<ApiPath<String>, Problem>,
    form: Result<Form<UnlockForm>, FormRejection>,
) -> Response {
    let answer = async {
        let ApiPath(token) = path?;
        let Form(UnlockForm { password }) =
            form.map_err(|error| Problem::invalid("The form is not complete.").because(error))?;
        let Some(proof) = state.service.unlock(&token, password).await? else {
            return Ok(Redirect::to(&format!("/r/{token}?wrong=1")).into_response());
        };
        let secure = if state.front.is_https() { "; Secure" } else { "" };
        // Lax: the link may be followed from a chat again.
        let cookie =
            format!("{PROOF_COOKIE}={proof}; HttpOnly; SameSite=Lax; Path=/r/{token}; Max-Age={PROOF_SECONDS}{secure}");
        let cookie = HeaderValue::from_str(&cookie).map_err(Problem::internal)?;
        Ok(([(header::SET_COOKIE, cookie)], Redirect::to(&format!("/r/{token}"))).into_response())
    };
    answer.await.unwrap_or_else(Problem::into_page)
}
