//! How long the runs of a project are kept.

use super::{again, fields};
use crate::{
    access::Who,
    accounts::Action,
    errors::{Problem, Result},
    http::{AppState, api::ApiPath},
    jobs, retention,
    store::now,
};
use axum::{
    Form,
    extract::{State, rejection::FormRejection},
    http::request::Parts,
    response::{IntoResponse, Redirect, Response},
};
use rankscope_app::AskedLimits;
use serde::Deserialize;

/// Limits as somebody wrote them.
#[derive(Debug, Default, Deserialize)]
pub struct LimitsForm {
    #[serde(default)]
    days: String,
    #[serde(default)]
    size: String,
}

/// Sets the limits of a project. What they delete was shown before, and nothing goes within the next hour.
pub async fn set(
    State(state): State<AppState>,
    path: Result<ApiPath<String>, Problem>,
    parts: Parts,
    form: Result<Form<LimitsForm>, FormRejection>,
) -> Response {
    let ApiPath(project) = match path {
        Ok(path) => path,
        Err(problem) => return problem.into_page(),
    };
    let who = Who::of(&parts.extensions);
    let address = format!("/settings/projects/{project}/retention");
    let done = async {
        let LimitsForm { days, size } = fields(form)?;
        let keep = retention::read(&AskedLimits { days, size }).map_err(Problem::invalid)?;
        let name = state.gate.accounts.project_name(&project).await?;
        let first = now().0.saturating_add(i64::try_from(jobs::FIRST_LOOK.as_micros()).unwrap_or(i64::MAX));
        state.service.store.set_keep(&project, keep, jobs::RETENTION, first).await?;
        let limit =
            |value: Option<u64>, unit: &str| value.map_or_else(|| "no limit".into(), |value| format!("{value} {unit}"));
        let subject = format!("{name}: {}, {}", limit(keep.days.map(u64::from), "days"), limit(keep.bytes, "bytes"));
        state.record(&who.principal, who.from, Action::RetentionSet, &subject).await;
        Ok(Redirect::to(&address).into_response())
    };
    match done.await {
        Ok(response) => response,
        Err(problem) => again(&state, parts, &address, problem).await,
    }
}
