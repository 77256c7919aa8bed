//! Files that arrive in several requests, after tus 1.0 (<https://tus.io/protocols/resumable-upload>): begin one, ask how
//! much of it is kept, add from there. A file that is whole is named in the upload of a run.

use super::ApiPath;
use crate::{
    access::Who,
    errors::{Problem, ProblemBody, ProblemKind, Result},
    http::AppState,
    intake,
    jobs::EXPIRE_UPLOAD,
    limits::size,
    paced::{Paced, PacedError},
    store::{OpenUpload, PartError, Store},
};
use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use rankscope_model::MIB;

const RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const VERSION: HeaderValue = HeaderValue::from_static("1.0.0");
const OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const LENGTH: HeaderName = HeaderName::from_static("upload-length");
const METADATA: HeaderName = HeaderName::from_static("upload-metadata");
const EXPIRES: HeaderName = HeaderName::from_static("upload-expires");
const EXTENSIONS: &str = "creation,termination,expiration";
const KIND: &str = "application/offset+octet-stream";

/// Bytes after which what has arrived is kept although the request goes on: no more is sent twice if it breaks.
const PART: u64 = 16 * MIB;

/// What this server can: for clients that ask before they send.
pub async fn options(State(state): State<AppState>) -> Response {
    let most = HeaderValue::from(state.service.limits.max_file_bytes);
    let headers = [
        (RESUMABLE, VERSION),
        (HeaderName::from_static("tus-version"), VERSION),
        (HeaderName::from_static("tus-extension"), HeaderValue::from_static(EXTENSIONS)),
        (HeaderName::from_static("tus-max-size"), most),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Begin a file of `Upload-Length` bytes. Its address is in `Location`, its id the last part of that.
#[utoipa::path(post, path = "/uploads", tag = "uploads",
    params(("Upload-Length" = u64, Header), ("Upload-Metadata" = Option<String>, Header, description = "`filename` and the name in base64")),
    responses((status = 201),
        (status = 400, body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, body = ProblemBody, content_type = "application/problem+json"),
        (status = 429, description = "Too many files are on their way", body = ProblemBody, content_type = "application/problem+json")))]
pub async fn begin(State(state): State<AppState>, who: Who, headers: HeaderMap) -> Result<Response> {
    speaks_tus(&headers)?;
    // Whoever may add to no run has nothing to send.
    who.principal.project_for_upload(None)?;
    let limits = &state.service.limits;
    let bytes = number(&headers, &LENGTH)?;
    if bytes > limits.max_file_bytes {
        let limit = size(limits.max_file_bytes);
        let detail = format!("A file may have {limit} on this server, and this one has {}.", size(bytes));
        return Err(Problem::new(ProblemKind::FileTooLarge, detail));
    }
    let name = headers.get(METADATA).and_then(|metadata| file_name(metadata.as_bytes())).unwrap_or_default();
    let name = intake::clean_name(&name, limits.max_name_chars).unwrap_or_default();
    let begun = state.service.store.begin_upload(&who.principal.owner(), &name, bytes, EXPIRE_UPLOAD).await?;
    let begun = begun.ok_or_else(|| {
        let detail = "Too many files of yours are on their way. Send one to its end or delete one first.";
        Problem::new(ProblemKind::TooBusy, detail)
    })?;
    let location = format!("/api/v1/uploads/{}", begun.id);
    let location = HeaderValue::from_str(&location).map_err(Problem::internal)?;
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], told(&begun)).into_response())
}

/// How much of a file is kept: `Upload-Offset` of `Upload-Length`. HEAD does the same.
#[utoipa::path(get, path = "/uploads/{upload}", tag = "uploads", params(("upload" = String, Path)),
    responses((status = 204), (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn stand(
    State(state): State<AppState>,
    who: Who,
    ApiPath(id): ApiPath<String>,
    headers: HeaderMap,
) -> Result<Response> {
    speaks_tus(&headers)?;
    let upload = state.service.store.open_upload(&id, &who.principal.owner()).await?;
    Ok((StatusCode::NO_CONTENT, told(&upload)).into_response())
}

/// Add to a file, from `Upload-Offset` on, which must be where it ends so far. What arrives is kept also if the request
/// breaks off.
#[utoipa::path(patch, path = "/uploads/{upload}", tag = "uploads",
    params(("upload" = String, Path), ("Upload-Offset" = u64, Header)),
    request_body(content = String, content_type = "application/offset+octet-stream"),
    responses((status = 204),
        (status = 404, body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "The file ends elsewhere; `Upload-Offset` says where", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn add(
    State(state): State<AppState>,
    who: Who,
    ApiPath(id): ApiPath<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    speaks_tus(&headers)?;
    let is_right =
        headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().eq_ignore_ascii_case(KIND.as_bytes()));
    if !is_right {
        return Err(Problem::new(ProblemKind::UnsupportedMedia, format!("What is added to a file is {KIND}.")));
    }
    let from = number(&headers, &OFFSET)?;
    let owner = who.principal.owner();
    let store = &state.service.store;
    let upload = store.open_upload(&id, &owner).await?;
    if upload.received != from {
        return Ok(elsewhere(&upload, upload.received));
    }
    let left = upload.bytes.saturating_sub(from);
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|announced| announced > left) {
        return Err(too_long(upload.bytes));
    }
    let body = Paced::new(body, left, state.service.limits.pace());
    match take_in(store, &upload, body).await {
        Ok(()) => {}
        Err(Broken::Elsewhere(end)) => return Ok(elsewhere(&upload, end)),
        Err(Broken::Problem(problem)) => return Err(problem),
    }
    let upload = store.open_upload(&id, &owner).await?;
    Ok((StatusCode::NO_CONTENT, told(&upload)).into_response())
}

/// Give a file up. What was kept of it goes.
#[utoipa::path(delete, path = "/uploads/{upload}", tag = "uploads", params(("upload" = String, Path)),
    responses((status = 204), (status = 404, body = ProblemBody, content_type = "application/problem+json")))]
pub async fn give_up(
    State(state): State<AppState>,
    who: Who,
    ApiPath(id): ApiPath<String>,
    headers: HeaderMap,
) -> Result<Response> {
    speaks_tus(&headers)?;
    let upload = state.service.store.open_upload(&id, &who.principal.owner()).await?;
    state.service.store.end_upload(&upload.id, EXPIRE_UPLOAD).await?;
    Ok((StatusCode::NO_CONTENT, [(RESUMABLE, VERSION)]).into_response())
}

/// Why no more was taken in. What had arrived is kept.
enum Broken {
    Elsewhere(u64),
    Problem(Problem),
}

impl From<Problem> for Broken {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Takes a body in, part by part.
async fn take_in(store: &Store, upload: &OpenUpload, mut body: Paced) -> Result<(), Broken> {
    let mut position = upload.received;
    loop {
        let mut spool = intake::Spool::new(store)?;
        let (mut is_last, mut broken) = (false, None);
        while spool.bytes() < PART && !is_last {
            match body.next().await {
                Ok(Some(piece)) => spool.push(piece).await?,
                Ok(None) => is_last = true,
                Err(error) => (is_last, broken) = (true, Some(error)),
            }
        }
        if spool.bytes() > 0 {
            let bytes = spool.bytes();
            let staged = spool.staged().await?;
            position = match store.add_part(upload, position, bytes, staged).await {
                Ok(end) => end,
                Err(PartError::Elsewhere(end)) => return Err(Broken::Elsewhere(end)),
                Err(PartError::TooLong(bytes)) => return Err(too_long(bytes).into()),
                Err(error @ PartError::TooMany) => {
                    let detail =
                        format!("This file came in too small pieces: {error}. Begin it again with larger ones.");
                    return Err(Problem::invalid(detail).into());
                }
                Err(PartError::Store(error)) => return Err(Problem::from(error).into()),
            };
        }
        match broken {
            None if is_last => return Ok(()),
            None => {}
            Some(PacedError::TooLarge) => return Err(too_long(upload.bytes).into()),
            Some(PacedError::Source(error)) => {
                return Err(Problem::invalid("The request broke off. What had arrived is kept.").because(error).into());
            }
            Some(error @ (PacedError::Idle | PacedError::Dripping)) => {
                let detail =
                    "The file did not go on for too long. What had arrived is kept; ask where it ends and go on there.";
                return Err(Problem::new(ProblemKind::TooSlow, detail).because(error).into());
            }
        }
    }
}

fn told(upload: &OpenUpload) -> [(HeaderName, HeaderValue); 5] {
    let expires = std::time::UNIX_EPOCH + std::time::Duration::from_micros(upload.expires_at.0.unsigned_abs());
    [
        (RESUMABLE, VERSION),
        (OFFSET, HeaderValue::from(upload.received)),
        (LENGTH, HeaderValue::from(upload.bytes)),
        (EXPIRES, HeaderValue::from_str(&httpdate::fmt_http_date(expires)).unwrap_or(HeaderValue::from_static(""))),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ]
}

fn elsewhere(upload: &OpenUpload, end: u64) -> Response {
    let detail = format!("The file is kept up to byte {end}, so what is added begins there.");
    let mut response = Problem::new(ProblemKind::OffsetDiffers, detail).into_response();
    let headers = response.headers_mut();
    headers.insert(RESUMABLE, VERSION);
    headers.insert(OFFSET, HeaderValue::from(end));
    headers.insert(LENGTH, HeaderValue::from(upload.bytes));
    response
}

fn too_long(bytes: u64) -> Problem {
    let detail = format!("The file was begun with {bytes} bytes, and this is more.");
    Problem::new(ProblemKind::FileTooLarge, detail)
}

/// A client of another version must not take our answers for its own.
fn speaks_tus(headers: &HeaderMap) -> Result<()> {
    match headers.get(RESUMABLE) {
        Some(version) if version != VERSION => {
            Err(Problem::new(ProblemKind::OtherVersion, "This server speaks tus 1.0.0 and no other version of it."))
        }
        _ => Ok(()),
    }
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Result<u64> {
    let value = headers.get(name).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    value.ok_or_else(|| Problem::invalid(format!("The header {name} must be there, a number of bytes.")))
}

/// The value of `filename` among `key base64,key base64`.
fn file_name(metadata: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(metadata).ok()?;
    let value = text.split(',').find_map(|pair| pair.trim().strip_prefix("filename "))?;
    String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_metadata() {
        let name = |metadata: &str| file_name(metadata.as_bytes());
        assert_eq!(name("filename dHJhaW4ubG9n,is_confidential").as_deref(), Some("train.log"));
        assert_eq!(name("type dGV4dA==, filename 5pi+LmxvZw==").as_deref(), Some("显.log"));
        for wrong in ["", "filename", "filename !!", "filename /w==", "myfilename dHJhaW4ubG9n"] {
            assert_eq!(name(wrong), None, "{wrong}");
        }
    }
}
