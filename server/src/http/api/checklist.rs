//! The checklist for programs: an item with the machine's view and people's, and the run after the fix.

use super::{
    ApiJson, ApiPath,
    runs::{TakenAnswer, UploadForm},
};
use crate::{
    access::{Principal, Who},
    checklist::NewNote,
    errors::{Problem, ProblemBody, Result},
    http::{AppState, upload_body::UploadBody},
    service::to_the_end,
};
use axum::{Json, extract::State, http::StatusCode};
use rankscope_model::{ChecklistEntry, Finding, Item, ItemNote, Stage};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An item of a run.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemAnswer {
    run: String,
    /// The diagnosis that the machine's view is of.
    version: u32,
    #[schema(value_type = String, example = "device_visibility")]
    item: Item,
    title: &'static str,
    /// Its page, relative to this server.
    url: String,
    /// The machine's view: `stage`, `item`, `status`, `findings`, `collect`.
    #[schema(value_type = Object)]
    machine: ChecklistEntry,
    /// The findings that the machine's view names.
    #[schema(value_type = Vec<Object>)]
    findings: Vec<Finding>,
    /// The newest entry with a status, if any: what a person says of it now.
    #[schema(value_type = Option<Object>)]
    own: Option<ItemNote>,
    /// Every entry, oldest first. Entries are added, never changed.
    #[schema(value_type = Vec<Object>)]
    notes: Vec<ItemNote>,
}

/// An entry for an item's history: a status, a note, or both.
#[derive(Debug, Deserialize, ToSchema)]
pub struct NoteBody {
    /// `open`, `holds`, `fails`, `mended` or `does_not_apply`.
    #[schema(example = "mended")]
    status: Option<String>,
    /// At most 4000 characters.
    note: Option<String>,
    /// At most 80 characters.
    author: Option<String>,
}

/// The run after the fix.
#[derive(Debug, Deserialize, ToSchema)]
pub struct AfterBody {
    /// Its id.
    run: String,
}

/// The page of an item.
pub fn item_url(run: &str, item: Item) -> String {
    format!("{}#item-{}", stage_url(run, item.stage()), item.slug())
}

/// The page of a stage.
pub fn stage_url(run: &str, stage: Stage) -> String {
    format!("/runs/{run}/checklist/{}", stage.slug())
}

fn item_of(slug: &str) -> Result<Item> {
    Item::from_slug(slug).ok_or_else(Problem::not_found)
}

/// One item: what the machine says, and what people say beside it.
#[utoipa::path(get, path = "/runs/{id}/checklist/{item}", tag = "checklist",
    params(("id" = String, Path), ("item" = String, Path, description = "Slug of the item", example = "device_visibility")),
    responses((status = 200, body = ItemAnswer),
        (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn get_item(
    State(state): State<AppState>,
    who: Who,
    ApiPath((id, item)): ApiPath<(String, String)>,
) -> Result<Json<ItemAnswer>> {
    let report = state.service.store.report(&id, None).await?;
    let item = item_of(&item)?;
    let mut machine = report.diagnosis.checklist.iter().find(|entry| entry.item == item).cloned();
    let mut findings: Vec<Finding> =
        report.diagnosis.findings.into_iter().filter(|finding| finding.item == item).collect();
    if item == Item::Verified
        && let Some(after) = state.service.store.after_run(&id).await?
        // It may have been moved to a project that is somebody else's.
        && who.principal.sees().has(&state.service.store.project_of_run(&after).await?)
    {
        let compared = state.service.compared((&id, None), (&after, None)).await?;
        let (entry, finding) = compared.comparison.verified();
        machine = Some(entry);
        findings = vec![finding];
    }
    let mut notes = state.service.store.item_notes(&id).await?;
    notes.retain(|note| note.item == item);
    Ok(Json(ItemAnswer {
        run: id.clone(),
        version: report.version,
        item,
        title: item.title(),
        url: item_url(&id, item),
        machine: machine.ok_or_else(Problem::not_found)?,
        findings,
        own: notes.iter().rev().find(|note| note.status.is_some()).cloned(),
        notes,
    }))
}

/// Add an entry to an item's history. It stands beside the machine's view and never replaces it.
#[utoipa::path(post, path = "/runs/{id}/checklist/{item}", tag = "checklist",
    params(("id" = String, Path), ("item" = String, Path, description = "Slug of the item")), request_body = NoteBody,
    responses((status = 201, body = Object),
        (status = 400, body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn add_note(
    State(state): State<AppState>,
    who: Who,
    ApiPath((id, item)): ApiPath<(String, String)>,
    ApiJson(NoteBody { status, note, author }): ApiJson<NoteBody>,
) -> Result<(StatusCode, Json<ItemNote>)> {
    let author = author_of(&who.principal).or(author);
    let made = state.service.add_note(&id, item_of(&item)?, NewNote { status, note, author }).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Whoever has signed in writes under that name, and no other.
pub fn author_of(who: &Principal) -> Option<String> {
    match who {
        Principal::User(signed_in) => Some(signed_in.user.name.clone()),
        Principal::SingleUser | Principal::Nobody | Principal::Token(_) => None,
    }
}

/// Name the run that is to prove the fix of this one.
#[utoipa::path(post, path = "/runs/{id}/after", tag = "checklist", params(("id" = String, Path)), request_body = AfterBody,
    responses((status = 204),
        (status = 400, body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn attach_after(
    State(state): State<AppState>,
    who: Who,
    ApiPath(id): ApiPath<String>,
    ApiJson(body): ApiJson<AfterBody>,
) -> Result<StatusCode> {
    state.service.attach_after(&id, &body.run, &who.principal.sees()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Upload what the run after the fix left behind: a new run, named as the proof of this one's fix.
#[utoipa::path(post, path = "/runs/{id}/after/files", tag = "checklist", params(("id" = String, Path)),
    request_body(content = UploadForm, content_type = "multipart/form-data"),
    responses(
        (status = 201, body = TakenAnswer, description = "The new run; `url` is the page that shows the proof"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub async fn create_after(
    State(state): State<AppState>,
    ApiPath(id): ApiPath<String>,
    body: UploadBody,
) -> Result<(StatusCode, Json<TakenAnswer>)> {
    // Before gigabytes travel for nothing.
    state.service.store.run(&id).await?;
    let upload = body.receive(&state).await?;
    let run = id.clone();
    let taken = to_the_end(async move { state.service.create_after(&run, upload).await }).await?;
    let answer = TakenAnswer::from(taken);
    Ok((StatusCode::CREATED, Json(answer.shown_at(stage_url(&id, Stage::Verify)))))
}
