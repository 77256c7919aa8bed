//! Runs: create, add to, read, rename, delete, list; their series and their files as uploaded.

use super::{ApiJson, ApiPath, ApiQuery};
use crate::{
    access::Who,
    accounts::Action,
    errors::{Problem, ProblemBody, ProblemKind, Result},
    http::{AppState, charts::full_rate, upload_body::UploadBody},
    intake,
    live::Live,
    series::{QuantitySeries, Window},
    service::{Taken, to_the_end},
    store::{ArtifactFile, StoreError},
};
use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use rankscope_model::{
    ArtifactInfo, Collect, Diagnosis, Item, Quantity, Report, RunStanding, RunSummary, SeriesAxis, Subject, Verdict,
};
use serde::{Deserialize, Serialize};
use std::{fmt::Write, sync::Arc};
use utoipa::{IntoParams, ToSchema};

/// Runs in a list when the query does not say how many.
const DEFAULT_LIST: u32 = 50;
/// Runs in a list at most.
const MAX_LIST: u32 = 500;
/// Points per column when the query does not say how many.
const DEFAULT_POINTS: usize = 800;
/// Points per column at most.
const MAX_POINTS: usize = 10_000;

/// An upload. Fields arrive in any order.
#[derive(ToSchema)]
#[allow(dead_code)] // describes the multipart body; see `intake`
pub struct UploadForm {
    /// Title of the run; made from the files' names without it.
    title: Option<String>,
    /// Any number of files: plain, .gz, .zst, .zip, .tar.gz.
    #[schema(value_type = Vec<String>, format = Binary)]
    files: Vec<u8>,
    /// Pasted text; becomes the file `pasted.txt`.
    text: Option<String>,
    /// Id of a file that has arrived in requests of its own (`/uploads`); any number of times.
    upload: Option<String>,
    /// Id of the project of a new run. By default the token's, the default one, or the first in which you are an editor.
    project: Option<String>,
}

/// What came of an upload.
#[derive(Debug, Serialize, ToSchema)]
pub struct TakenAnswer {
    /// The run.
    id: String,
    /// Its page, relative to this server.
    #[schema(example = "/runs/01980c5e-7c1b-7d63-9a4e-3f1f6b0c2d11")]
    url: String,
    title: String,
    /// The diagnosis that counts this upload in: 1 for the first of the run.
    version: u32,
    #[schema(value_type = String, example = "imbalance")]
    verdict: Verdict,
    summary: String,
    /// One for each file of this upload, members of archives included. A file that could not be read is here too,
    /// with its reason in `warnings`.
    #[schema(value_type = Vec<Object>)]
    artifacts: Vec<ArtifactInfo>,
}

impl From<Taken> for TakenAnswer {
    fn from(taken: Taken) -> Self {
        let Taken { report, artifacts } = taken;
        Self {
            id: report.run.id.clone(),
            url: run_url(&report.run.id),
            title: report.run.title.clone(),
            version: report.version,
            verdict: report.diagnosis.verdict,
            summary: report.diagnosis.summary.clone(),
            artifacts,
        }
    }
}

/// A run with its newest diagnosis, or the one asked for.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunAnswer {
    id: String,
    url: String,
    title: String,
    created_at: i64,
    version: u32,
    diagnosed_at: i64,
    /// `rankscope.diagnosis/1`, the same as `rankscope diagnose --format json` prints.
    #[schema(value_type = Object)]
    diagnosis: Diagnosis,
    /// The one most telling thing to collect next.
    next: Option<NextStep>,
    /// The files as uploaded.
    files: Vec<FileAnswer>,
    /// For a run whose job goes on, as far as is known: on how many nodes, and which of them are silent, since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    live: Option<RunStanding>,
    /// Jobs in the background that will still change the run: files that took too long for their upload, or that are read
    /// again. When it is 0, the newest version counts them in.
    waiting: u64,
}

/// The one most telling thing to collect next.
#[derive(Debug, Serialize, ToSchema)]
pub struct NextStep {
    /// The checklist item that it would decide.
    #[schema(value_type = String, example = "device_visibility")]
    item: Item,
    #[serde(flatten)]
    #[schema(value_type = Object)]
    collect: Collect,
}

/// A file as uploaded.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileAnswer {
    name: String,
    bytes: u64,
    /// Hexadecimal; empty for a file that was refused while it arrived.
    sha256: String,
    /// Whether the bytes were kept; a file over the limit is only named.
    kept: bool,
    /// Positions in `diagnosis.artifacts`: one, or several for an archive. Each opens the file under
    /// `/runs/{id}/artifacts/{n}`.
    artifacts: Vec<u32>,
}

/// A list of runs.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunsAnswer {
    #[schema(value_type = Vec<Object>)]
    runs: Vec<RunSummary>,
}

/// Which runs to list.
#[derive(Debug, Deserialize, IntoParams)]
pub struct ListQuery {
    /// Words that must all be in the title or the summary.
    query: Option<String>,
    /// At most so many, 500 at most; 50 by default.
    limit: Option<u32>,
}

/// Which version of a run.
#[derive(Debug, Deserialize, IntoParams)]
pub struct VersionQuery {
    /// The newest by default.
    pub version: Option<u32>,
}

/// A new title.
#[derive(Debug, Deserialize, ToSchema)]
pub struct Rename {
    /// At most 200 characters.
    title: String,
}

/// Which part of which series.
#[derive(Debug, Deserialize, IntoParams)]
pub struct SeriesQuery {
    /// That of the timeline by default.
    #[param(value_type = Option<String>, example = "peak_allocated")]
    pub quantity: Option<Quantity>,
    /// First x: step, microseconds or index, as `axis` of the answer says.
    pub from: Option<i64>,
    /// Last x.
    pub to: Option<i64>,
    /// At most about so many points a column; 800 by default, 10000 at most. Smallest and largest value of every
    /// bucket are kept.
    pub points: Option<usize>,
    /// The newest by default.
    pub version: Option<u32>,
}

/// Columns of one quantity.
#[derive(Debug, Serialize, ToSchema)]
pub struct SeriesAnswer {
    #[schema(value_type = String, example = "peak_allocated")]
    quantity: Quantity,
    /// What x is: `step`, `unix_micros`, `since_start` or `index`.
    #[schema(value_type = String, example = "step")]
    axis: SeriesAxis,
    /// One for each rank or device.
    columns: Vec<ColumnAnswer>,
}

/// Values of one rank or device, as parallel columns.
#[derive(Debug, Serialize, ToSchema)]
pub struct ColumnAnswer {
    /// `{"rank":0}`, `{"device":3}` or `{"mig_slice":{…}}`.
    #[schema(value_type = Object)]
    subject: Subject,
    /// The same in words.
    #[schema(example = "rank 0")]
    label: String,
    /// Ascending.
    x: Vec<i64>,
    /// Bytes (tokens and samples are counts).
    y: Vec<u64>,
}

impl From<QuantitySeries> for SeriesAnswer {
    fn from(series: QuantitySeries) -> Self {
        let columns = series.columns.into_iter();
        Self {
            quantity: series.quantity,
            axis: series.axis,
            columns: columns
                .map(|column| ColumnAnswer {
                    subject: column.subject,
                    label: column.subject.to_string(),
                    x: column.x,
                    y: column.y,
                })
                .collect(),
        }
    }
}

impl TakenAnswer {
    /// Its address in the API.
    pub fn location(&self) -> String {
        format!("/api/v1{}", self.url)
    }

    /// The same, leading to another page than the run's own.
    pub fn shown_at(mut self, url: String) -> Self {
        self.url = url;
        self
    }
}

pub fn run_url(id: &str) -> String {
    format!("/runs/{id}")
}

/// Upload files and text as a new run, and get its diagnosis.
///
/// A file that cannot be read never sinks the others: it is kept and named with its reason.
#[utoipa::path(post, path = "/runs", tag = "runs",
    request_body(content = UploadForm, content_type = "multipart/form-data"),
    responses(
        (status = 201, body = TakenAnswer),
        (status = 413, description = "A limit of this server; `detail` names it", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "No file and no text", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub async fn create_run(State(state): State<AppState>, who: Who, body: UploadBody) -> Result<Response> {
    let mut upload = body.receive(&state).await?;
    upload.project = Some(who.principal.project_for_upload(upload.project.as_deref())?);
    let answer = TakenAnswer::from(to_the_end(async move { state.service.create_run(upload).await }).await?);
    let location = HeaderValue::from_str(&answer.location()).map_err(Problem::internal)?;
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(answer)).into_response())
}

/// Add files or text to a run. A new version of its diagnosis counts them in; the old ones stay.
#[utoipa::path(post, path = "/runs/{id}/files", tag = "runs",
    params(("id" = String, Path)),
    request_body(content = UploadForm, content_type = "multipart/form-data"),
    responses(
        (status = 201, body = TakenAnswer),
        (status = 404, body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub async fn add_files(
    State(state): State<AppState>,
    ApiPath(id): ApiPath<String>,
    body: UploadBody,
) -> Result<Response> {
    // Before gigabytes travel for nothing.
    state.service.store.run(&id).await?;
    let upload = body.receive(&state).await?;
    let answer = TakenAnswer::from(to_the_end(async move { state.service.add_files(&id, upload).await }).await?);
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

/// List runs, newest first.
#[utoipa::path(get, path = "/runs", tag = "runs", params(ListQuery), responses((status = 200, body = RunsAnswer)))]
pub async fn list_runs(
    State(state): State<AppState>,
    who: Who,
    ApiQuery(query): ApiQuery<ListQuery>,
) -> Result<Json<RunsAnswer>> {
    let limit = query.limit.unwrap_or(DEFAULT_LIST).min(MAX_LIST);
    let runs = state.service.store.runs_seen(&who.principal.sees(), query.query.as_deref(), limit).await?;
    Ok(Json(RunsAnswer { runs }))
}

/// One run with its diagnosis.
#[utoipa::path(get, path = "/runs/{id}", tag = "runs", params(("id" = String, Path), VersionQuery),
    responses((status = 200, body = RunAnswer),
        (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn get_run(
    State(state): State<AppState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(query): ApiQuery<VersionQuery>,
) -> Result<Json<RunAnswer>> {
    let Report { run, version, diagnosed_at, diagnosis, next, .. } =
        state.service.store.report(&id, query.version).await?;
    let files = file_answers(state.service.store.artifacts(&id).await?, diagnosis.artifacts.len());
    let live = state.live.as_ref().and_then(|live| live.standing(&id));
    let waiting = state.service.store.open_jobs_of(&id).await?;
    Ok(Json(RunAnswer {
        url: run_url(&run.id),
        id: run.id,
        title: run.title,
        created_at: run.created_at.0,
        version,
        diagnosed_at: diagnosed_at.0,
        diagnosis,
        next: next.map(|(item, collect)| NextStep { item, collect }),
        files,
        live,
        waiting,
    }))
}

/// Files with the positions of what was understood of each; files that came after the asked version are left out.
fn file_answers(files: Vec<ArtifactFile>, known: usize) -> Vec<FileAnswer> {
    let mut positions = 0..u32::try_from(known).unwrap_or(u32::MAX);
    files
        .into_iter()
        .map(|file| {
            let artifacts = positions.by_ref().take(file.infos.len()).collect();
            FileAnswer { name: file.name, bytes: file.bytes, sha256: file.sha256, kept: file.kept, artifacts }
        })
        .filter(|file| !file.artifacts.is_empty())
        .collect()
}

/// Give a run another title.
#[utoipa::path(patch, path = "/runs/{id}", tag = "runs", params(("id" = String, Path)), request_body = Rename,
    responses((status = 204),
        (status = 400, body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn rename_run(
    State(state): State<AppState>,
    ApiPath(id): ApiPath<String>,
    ApiJson(body): ApiJson<Rename>,
) -> Result<StatusCode> {
    let title = intake::clean_line(&body.title, state.service.limits.max_title_chars)
        .ok_or_else(|| Problem::invalid("A title needs at least one visible character."))?;
    state.service.store.rename_run(&id, &title).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What comes of files that are to be read again.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReadAgainAnswer {
    /// Jobs that will still change the run; see `waiting` of the run.
    waiting: u64,
}

/// Have all files of a run read again, with the readers that this server has now. It is done in the background; when it
/// is, the run has a new version, and those before it stay.
#[utoipa::path(post, path = "/runs/{id}/read-again", tag = "runs", params(("id" = String, Path)),
    responses((status = 202, body = ReadAgainAnswer),
        (status = 404, body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "Its job goes on, or no file of it was kept", body = ProblemBody, content_type = "application/problem+json")))]
pub async fn read_again(
    State(state): State<AppState>,
    who: Who,
    ApiPath(id): ApiPath<String>,
) -> Result<(StatusCode, Json<ReadAgainAnswer>)> {
    state.service.read_again(&id).await?;
    state.record(&who.principal, who.from, Action::RunReadAgain, &id).await;
    let waiting = state.service.store.open_jobs_of(&id).await?;
    Ok((StatusCode::ACCEPTED, Json(ReadAgainAnswer { waiting })))
}

/// Delete a run with its files, diagnoses and shares.
#[utoipa::path(delete, path = "/runs/{id}", tag = "runs", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn delete_run(State(state): State<AppState>, who: Who, ApiPath(id): ApiPath<String>) -> Result<StatusCode> {
    let title = state.service.store.run(&id).await?.run.title;
    state.service.store.delete_run(&id).await?;
    state.record(&who.principal, who.from, Action::RunDeleted, &format!("{id} {title}")).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Values over time for each rank or device, reduced to what a chart can show.
#[utoipa::path(get, path = "/runs/{id}/series", tag = "reports", params(("id" = String, Path), SeriesQuery),
    responses((status = 200, body = SeriesAnswer),
        (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn series(
    State(state): State<AppState>,
    ApiPath(id): ApiPath<String>,
    ApiQuery(query): ApiQuery<SeriesQuery>,
) -> Result<Json<SeriesAnswer>> {
    series_of(&state, &id, query.version, &query, state.live.as_ref()).await
}

/// The same for owners and for visitors with a share. With `live`, a part of a run that began by itself has the full
/// rate.
pub async fn series_of(
    state: &AppState,
    run: &str,
    version: Option<u32>,
    query: &SeriesQuery,
    live: Option<&Arc<Live>>,
) -> Result<Json<SeriesAnswer>> {
    let report = state.service.store.report(run, version).await?;
    let timeline = report.figures.timeline.as_ref();
    let quantity =
        query.quantity.or_else(|| timeline.map(|timeline| timeline.quantity)).ok_or_else(nothing_over_time)?;
    let window = Window { from: query.from, to: query.to };
    let points = query.points.unwrap_or(DEFAULT_POINTS).min(MAX_POINTS);
    let set = state.service.series(&report.run.id, report.version).await?;
    let series = set.get(quantity).ok_or_else(nothing_over_time)?;
    let full = full_rate(state, live, &report.run.id, Some(series), window).await;
    Ok(Json(full.as_ref().unwrap_or(series).cut(window, points).into()))
}

fn nothing_over_time() -> Problem {
    Problem::new(ProblemKind::NoSuchChart, "The evidence has no values of this quantity over time.")
}

/// A file of a run, byte for byte as it was uploaded. For the member of an archive: the archive.
#[utoipa::path(get, path = "/runs/{id}/artifacts/{n}", tag = "runs",
    params(("id" = String, Path), ("n" = u32, Path, description = "Position in `diagnosis.artifacts`, from 0")),
    responses((status = 200, content_type = "application/octet-stream", body = String),
        (status = 404, body = ProblemBody, content_type = "application/problem+json"),
        (status = 410, description = "The file was over the limit and not kept", body = ProblemBody, content_type = "application/problem+json")))]
pub async fn artifact(State(state): State<AppState>, ApiPath((id, n)): ApiPath<(String, usize)>) -> Result<Response> {
    let files = state.service.store.artifacts(&id).await?;
    let mut members = 0;
    let file = files.iter().find(|file| {
        members += file.infos.len();
        n < members
    });
    let position = file.ok_or_else(Problem::not_found)?.position;
    let opened = state.service.store.artifact_bytes(&id, position).await;
    let (name, size, stream) = opened.map_err(|error| match error {
        StoreError::Gone => {
            Problem::new(ProblemKind::NotKept, "The file was over the limit of this server, so only its name was kept.")
        }
        error => error.into(),
    })?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_LENGTH, HeaderValue::from(size)),
        (header::CONTENT_DISPOSITION, attachment(&name)),
        // It is a stranger's file: if a browser shows it after all, it may do nothing.
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox")),
    ];
    Ok((headers, Body::from_stream(stream)).into_response())
}

/// `attachment` with a name that is safe in a header and as a file name; the full name follows in RFC 8187 form.
fn attachment(name: &str) -> HeaderValue {
    let base = name.rsplit(['/', '\\']).next().unwrap_or_default().trim_start_matches('.');
    let base = if base.is_empty() { "file" } else { base };
    let plain: String = base
        .chars()
        .map(|sign| if sign.is_ascii_alphanumeric() || matches!(sign, '.' | '-' | '_' | ' ') { sign } else { '_' })
        .collect();
    let mut encoded = String::new();
    for byte in base.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_') {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}"); // writing into a String cannot fail
        }
    }
    HeaderValue::from_str(&format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"))
        .unwrap_or(HeaderValue::from_static("attachment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_safe_attachments() {
        let header = |name: &str| attachment(name).to_str().unwrap().to_owned();
        assert_eq!(header("train.log"), "attachment; filename=\"train.log\"; filename*=UTF-8''train.log");
        assert_eq!(header("../../etc/passwd"), "attachment; filename=\"passwd\"; filename*=UTF-8''passwd");
        assert_eq!(header("..\\.."), "attachment; filename=\"file\"; filename*=UTF-8''file");
        assert_eq!(header("a\"b\r\nX: 1"), "attachment; filename=\"a_b__X_ 1\"; filename*=UTF-8''a%22b%0D%0AX%3A%201");
        assert_eq!(header("显.txt"), "attachment; filename=\"_.txt\"; filename*=UTF-8''%E6%98%BE.txt");
    }

    #[test]
    fn files_know_their_positions_and_later_ones_are_left_out() {
        let file = |position, members: usize| ArtifactFile {
            position,
            name: String::new(),
            bytes: 1,
            sha256: String::new(),
            kept: true,
            infos: vec![
                ArtifactInfo {
                    name: String::new(),
                    kind: rankscope_model::ArtifactKind::Text,
                    ranks: vec![],
                    devices: vec![],
                    bytes: 1,
                    warnings: vec![],
                };
                members
            ],
        };
        let answers = file_answers(vec![file(0, 1), file(1, 3), file(2, 1)], 4);
        let positions: Vec<_> = answers.into_iter().map(|answer| answer.artifacts).collect();
        assert_eq!(positions, [vec![0], vec![1, 2, 3]]);
    }
}
