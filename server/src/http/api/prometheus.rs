//! A run from a Prometheus-compatible server, for programs.

use super::{ApiJson, runs::TakenAnswer};
use crate::{
    access::Who,
    errors::{Problem, ProblemBody, Result},
    http::{
        AppState,
        prometheus::{Asked, bring},
    },
};
use axum::{
    Json,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use utoipa::ToSchema;

/// What to ask for.
#[derive(Debug, Deserialize, ToSchema)]
pub struct FromPrometheus {
    /// One of the addresses that the operator allowed, or a path below it.
    #[schema(example = "http://prometheus.example.org:9090")]
    server: String,
    /// Label matchers; all GPUs without them.
    #[schema(example = "namespace=\"ml\", pod=~\"train-.*\"")]
    selector: Option<String>,
    /// `2026-11-30 14:00` (UTC), `now-2h`, or seconds since 1970; an hour before `to` by default.
    from: Option<String>,
    /// The same; now by default.
    to: Option<String>,
    /// Seconds between readings; as few as the range allows by default, but not under 10.
    step: Option<u32>,
    /// Title of the run; made from address and range without it.
    title: Option<String>,
    /// Id of the project of the new run.
    project: Option<String>,
}

/// Read GPU memory from a Prometheus-compatible server as a new run, and get its diagnosis.
///
/// The answer of the server is kept as a file of the run, byte for byte. Only servers that the operator allowed with
/// `--prometheus` are asked, and no redirect is followed.
#[utoipa::path(post, path = "/runs/from-prometheus", tag = "runs", request_body = FromPrometheus,
    responses(
        (status = 201, body = TakenAnswer),
        (status = 400, description = "Selector, range or step cannot be understood", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "The operator has not allowed this address", body = ProblemBody, content_type = "application/problem+json"),
        (status = 429, description = "Others are being read right now", body = ProblemBody, content_type = "application/problem+json"),
        (status = 502, description = "The other server gave no series; `detail` says why", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub async fn create_run(
    State(state): State<AppState>,
    who: Who,
    ApiJson(body): ApiJson<FromPrometheus>,
) -> Result<Response> {
    let asked = Asked {
        server: body.server,
        selector: body.selector.unwrap_or_default(),
        from: body.from.unwrap_or_default(),
        to: body.to.unwrap_or_default(),
        step: body.step.map(|step| step.to_string()).unwrap_or_default(),
        title: body.title.unwrap_or_default(),
        project: body.project,
    };
    let answer = TakenAnswer::from(bring(state, &who, asked).await?);
    let location = HeaderValue::from_str(&answer.location()).map_err(Problem::internal)?;
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(answer)).into_response())
}
