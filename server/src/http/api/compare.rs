//! Two runs side by side, for programs.

use super::{ApiQuery, run_url};
use crate::{
    errors::{ProblemBody, Result},
    http::AppState,
};
use axum::{Json, extract::State};
use rankscope_app::ComparedReports;
use rankscope_model::{Comparison, Report};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Which runs to compare.
#[derive(Debug, Deserialize, IntoParams)]
pub struct CompareQuery {
    /// Id of the run before.
    base: String,
    /// Id of the run after.
    head: String,
    /// Version of the run before; the newest by default.
    base_version: Option<u32>,
    /// Version of the run after; the newest by default.
    head_version: Option<u32>,
}

/// Two runs side by side.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompareAnswer {
    base: ComparedRun,
    head: ComparedRun,
    /// The page that shows it, relative to this server.
    url: String,
    /// `rankscope.comparison/1`.
    #[schema(value_type = Object)]
    comparison: Comparison,
}

/// One of the two.
#[derive(Debug, Serialize, ToSchema)]
pub struct ComparedRun {
    id: String,
    title: String,
    version: u32,
    url: String,
}

impl From<&Report> for ComparedRun {
    fn from(report: &Report) -> Self {
        Self {
            id: report.run.id.clone(),
            title: report.run.title.clone(),
            version: report.version,
            url: run_url(&report.run.id),
        }
    }
}

/// Hold a run against an earlier one: is the imbalance gone, partly gone, or still there?
#[utoipa::path(get, path = "/compare", tag = "checklist", params(CompareQuery),
    responses((status = 200, body = CompareAnswer),
        (status = 400, body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn compare(
    State(state): State<AppState>,
    ApiQuery(query): ApiQuery<CompareQuery>,
) -> Result<Json<CompareAnswer>> {
    let CompareQuery { base, head, base_version, head_version } = query;
    let compared = state.service.compared((&base, base_version), (&head, head_version)).await?;
    let ComparedReports { base, head, comparison } = &compared;
    Ok(Json(CompareAnswer {
        url: format!("/compare?base={}&head={}", base.run.id, head.run.id),
        base: ComparedRun::from(base),
        head: ComparedRun::from(head),
        comparison: comparison.clone(),
    }))
}
