//! Projects and their members, and the project of a run.

use super::{again, fields};
use crate::{
    access::Who,
    accounts::{Action, Role},
    errors::{Problem, Result},
    http::{
        AppState,
        api::{ApiPath, run_url},
    },
};
use axum::{
    Form,
    extract::{State, rejection::FormRejection},
    http::request::Parts,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use std::future::Future;

const PAGE: &str = "/settings/projects";

/// A name.
#[derive(Debug, Default, Deserialize)]
pub struct NameForm {
    #[serde(default)]
    name: String,
}

/// A member.
#[derive(Debug, Default, Deserialize)]
pub struct MemberForm {
    #[serde(default)]
    name: String,
    /// Slug; empty ends the membership.
    #[serde(default)]
    role: String,
}

/// Where a run is to go.
#[derive(Debug, Default, Deserialize)]
pub struct MoveForm {
    #[serde(default)]
    project: String,
}

/// Adds a project.
pub async fn add_project(
    State(state): State<AppState>,
    parts: Parts,
    form: Result<Form<NameForm>, FormRejection>,
) -> Response {
    let who = Who::of(&parts.extensions);
    or_again(&state, parts, async {
        let project = state.gate.accounts.add_project(&fields(form)?.name).await?;
        state.record(&who.principal, who.from, Action::ProjectAdded, &project.name).await;
        Ok(Redirect::to(PAGE).into_response())
    })
    .await
}

/// Gives a project another name.
pub async fn rename_project(
    State(state): State<AppState>,
    ApiPath(project): ApiPath<String>,
    parts: Parts,
    form: Result<Form<NameForm>, FormRejection>,
) -> Response {
    let who = Who::of(&parts.extensions);
    or_again(&state, parts, async {
        let name = fields(form)?.name;
        let before = state.gate.accounts.project_name(&project).await?;
        state.gate.accounts.rename_project(&project, &name).await?;
        let subject = format!("{before} to {}", name.trim());
        state.record(&who.principal, who.from, Action::ProjectRenamed, &subject).await;
        Ok(Redirect::to(PAGE).into_response())
    })
    .await
}

/// Removes an empty project.
pub async fn remove_project(
    State(state): State<AppState>,
    ApiPath(project): ApiPath<String>,
    parts: Parts,
) -> Response {
    let who = Who::of(&parts.extensions);
    or_again(&state, parts, async {
        let name = state.gate.accounts.project_name(&project).await?;
        state.gate.accounts.remove_project(&project).await?;
        state.record(&who.principal, who.from, Action::ProjectRemoved, &name).await;
        Ok(Redirect::to(PAGE).into_response())
    })
    .await
}

/// Makes somebody a member, changes what the member is, or ends the membership.
pub async fn set_member(
    State(state): State<AppState>,
    ApiPath(project): ApiPath<String>,
    parts: Parts,
    form: Result<Form<MemberForm>, FormRejection>,
) -> Response {
    let who = Who::of(&parts.extensions);
    or_again(&state, parts, async {
        let MemberForm { name, role } = fields(form)?;
        let role = match role.as_str() {
            "" => None,
            slug => Some(Role::from_slug(slug).ok_or_else(|| Problem::invalid("A role is viewer, editor or admin."))?),
        };
        let project_name = state.gate.accounts.project_name(&project).await?;
        let user = state.gate.accounts.set_member(&project, &name.parse()?, role).await?;
        let (action, subject) = match role {
            Some(role) => (Action::MemberSet, format!("{} as {} of {project_name}", user.name, role.slug())),
            None => (Action::MemberRemoved, format!("{} of {project_name}", user.name)),
        };
        state.record(&who.principal, who.from, action, &subject).await;
        Ok(Redirect::to(PAGE).into_response())
    })
    .await
}

/// Moves a run to another project. The gate has seen that its sender is an editor where the run is.
pub async fn move_run(
    State(state): State<AppState>,
    who: Who,
    ApiPath(run): ApiPath<String>,
    form: Result<Form<MoveForm>, FormRejection>,
) -> Response {
    let done = async {
        let project = who.principal.project_for_upload(Some(&fields(form)?.project))?;
        state.service.store.move_run(&run, &project).await?;
        let name = state.gate.accounts.project_name(&project).await?;
        state.record(&who.principal, who.from, Action::RunMoved, &format!("{run} to {name}")).await;
        Ok::<_, Problem>(Redirect::to(&run_url(&run)).into_response())
    };
    done.await.unwrap_or_else(Problem::into_page)
}

async fn or_again(state: &AppState, parts: Parts, work: impl Future<Output = Result<Response>>) -> Response {
    match work.await {
        Ok(response) => response,
        Err(problem) => again(state, parts, PAGE, problem).await,
    }
}
