//! The form "From Prometheus": works without JavaScript, ends at the page of the new run or in a page that says what
//! went wrong.

use super::{AppState, api::run_url};
use crate::{
    access::Who,
    errors::{Problem, ProblemKind, Result},
    intake::clean_line,
    prometheus::Wish,
    service::{Taken, to_the_end},
};
use axum::{
    Form,
    extract::{FromRequest, Request, State},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use std::time::Duration;
use tokio::time::timeout;

/// The form must have arrived within this.
const FORM_WITHIN: Duration = Duration::from_secs(30);

/// What somebody asks for.
#[derive(Debug, Default, Deserialize)]
pub struct Asked {
    #[serde(default)]
    pub server: String,
    #[serde(default)]
    pub selector: String,
    #[serde(default)]
    pub from: String,
    #[serde(default)]
    pub to: String,
    #[serde(default)]
    pub step: String,
    #[serde(default)]
    pub title: String,
    pub project: Option<String>,
}

/// The form.
pub async fn create_run(State(state): State<AppState>, who: Who, request: Request) -> Response {
    let run = async {
        let form = timeout(FORM_WITHIN, Form::<Asked>::from_request(request, &state)).await;
        let form =
            form.map_err(|_| Problem::new(ProblemKind::TooSlow, "The form did not arrive. Nothing was asked."))?;
        let Form(asked) = form.map_err(|error| Problem::invalid("The form is not complete.").because(error))?;
        let taken = bring(state, &who, asked).await?;
        Ok(Redirect::to(&run_url(&taken.report.run.id)).into_response())
    };
    run.await.unwrap_or_else(Problem::into_page)
}

/// A new run from what was asked for.
pub async fn bring(state: AppState, who: &Who, asked: Asked) -> Result<Taken> {
    let project = who.principal.project_for_upload(asked.project.as_deref().filter(|project| !project.is_empty()))?;
    let Asked { server, selector, from, to, step, title, .. } = asked;
    let wish = Wish { server, selector, from, to, step };
    let title = clean_line(&title, state.service.limits.max_title_chars);
    to_the_end(async move {
        let mut upload = state.prometheus.bring(&wish, &state.service.store).await?;
        upload.project = Some(project);
        upload.title = title.or(upload.title);
        state.service.create_run(upload).await
    })
    .await
}
