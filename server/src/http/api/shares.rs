//! Sharing by link.

use super::{ApiJson, ApiPath};
use crate::{
    access::Who,
    accounts::Action,
    errors::{Problem, ProblemBody, Result},
    http::AppState,
    store::{MintedShare, ShareOptions},
};
use axum::{Json, extract::State, http::StatusCode};
use rankscope_model::ShareInfo;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// How long a link may last, when it ends at all.
const MAX_EXPIRY: Duration = Duration::from_hours(10 * 366 * 24);

/// What the link shows, and for how long.
#[derive(Default, Deserialize, ToSchema)]
pub struct NewShare {
    /// Seconds until the link stops working; without it the link works until it is revoked.
    #[schema(example = 604_800)]
    expires_in: Option<u64>,
    /// The newest version by default.
    version: Option<u32>,
    /// Asked of every visitor; 6 to 256 characters.
    password: Option<String>,
    /// Visitors may download the files as they were uploaded.
    #[serde(default)]
    raw_files: bool,
    /// Host names, user names and paths are replaced. Not together with `raw_files`.
    #[serde(default)]
    masked: bool,
}

/// A link at the only moment at which it is known.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShareAnswer {
    /// For revoking.
    id: String,
    /// The link, relative to this server. It is shown only now: only its hash is kept.
    #[schema(example = "/r/kq8…")]
    url: String,
    version: u32,
    created_at: i64,
    expires_at: Option<i64>,
}

/// The links of a run.
#[derive(Debug, Serialize, ToSchema)]
pub struct SharesAnswer {
    #[schema(value_type = Vec<Object>)]
    shares: Vec<ShareInfo>,
}

/// The time that a person or program asked for.
pub fn expiry(seconds: Option<u64>) -> Result<Option<Duration>> {
    match seconds.map(Duration::from_secs) {
        Some(Duration::ZERO) => Err(Problem::invalid("expires_in must be at least 1 second.")),
        Some(span) if span > MAX_EXPIRY => Err(Problem::invalid("expires_in may be ten years at most.")),
        span => Ok(span),
    }
}

/// Make a read-only link to a report.
#[utoipa::path(post, path = "/runs/{id}/shares", tag = "shares", params(("id" = String, Path)), request_body = NewShare,
    responses((status = 201, body = ShareAnswer),
        (status = 400, body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn create_share(
    State(state): State<AppState>,
    who: Who,
    ApiPath(id): ApiPath<String>,
    ApiJson(body): ApiJson<NewShare>,
) -> Result<(StatusCode, Json<ShareAnswer>)> {
    let options = ShareOptions {
        version: body.version,
        expires_in: expiry(body.expires_in)?,
        raw_files: body.raw_files,
        masked: body.masked,
        password_hash: None,
    };
    let MintedShare { info, token } = state.service.share(&id, options, body.password).await?;
    state.record(&who.principal, who.from, Action::ShareMade, &format!("run {id}, share {}", info.id)).await;
    let answer = ShareAnswer {
        id: info.id,
        url: format!("/r/{token}"),
        version: info.version,
        created_at: info.created_at.0,
        expires_at: info.expires_at.map(|at| at.0),
    };
    Ok((StatusCode::CREATED, Json(answer)))
}

/// The links of a run, newest first, ended ones included.
#[utoipa::path(get, path = "/runs/{id}/shares", tag = "shares", params(("id" = String, Path)),
    responses((status = 200, body = SharesAnswer),
        (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn list_shares(State(state): State<AppState>, ApiPath(id): ApiPath<String>) -> Result<Json<SharesAnswer>> {
    Ok(Json(SharesAnswer { shares: state.service.store.shares(&id).await? }))
}

/// Revoke a link. Its address answers 410 from now on.
#[utoipa::path(delete, path = "/shares/{id}", tag = "shares", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn delete_share(State(state): State<AppState>, who: Who, ApiPath(id): ApiPath<String>) -> Result<StatusCode> {
    state.service.store.revoke_share(&id, None).await?;
    state.record(&who.principal, who.from, Action::ShareRevoked, &format!("share {id}")).await;
    Ok(StatusCode::NO_CONTENT)
}
