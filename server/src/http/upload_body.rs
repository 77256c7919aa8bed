//! The body of an upload: multipart, refused before its first byte if it is announced as too large.

use super::AppState;
use crate::{
    access::Who,
    errors::{Problem, ProblemKind},
    intake::{self, Upload},
    multipart::Form,
};
use axum::{
    extract::{FromRequest, Request},
    http::header,
};

/// A multipart body within the limits of one request.
pub struct UploadBody {
    form: Form,
    /// Who sends it.
    owner: String,
}

impl UploadBody {
    /// Takes it in.
    pub async fn receive(self, state: &AppState) -> Result<Upload, Problem> {
        let upload = intake::receive(self.form, &state.service.store, &state.service.limits).await?;
        Ok(Upload { owner: self.owner, ..upload })
    }
}

impl FromRequest<AppState> for UploadBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        let limits = &state.service.limits;
        let announced =
            request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if announced.is_some_and(|length: u64| length > limits.max_request_bytes) {
            return Err(intake::request_too_large(limits));
        }
        let (parts, body) = request.into_parts();
        let kind = parts.headers.get(header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
        let form = Form::new(kind, body, limits.max_request_bytes, limits.pace()).ok_or_else(|| {
            let detail = "Uploads are multipart/form-data with fields title, files (repeated) and text.";
            Problem::new(ProblemKind::UnsupportedMedia, detail)
        })?;
        Ok(Self { form, owner: Who::of(&parts.extensions).principal.owner() })
    }
}
