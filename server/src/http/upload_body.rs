//! The body of an upload: multipart, refused before its first byte if it is announced as too large.

use super::AppState;
use crate::{
    errors::{Problem, ProblemKind},
    intake,
};
use axum::{
    extract::{FromRequest, Multipart, Request},
    http::header,
};

/// What the multipart form adds around its content: boundaries and part headers, at most.
const FRAMING: u64 = 1 << 20;

/// A multipart body within the limits of one request.
pub struct UploadBody(pub Multipart);

impl FromRequest<AppState> for UploadBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        let limits = &state.service.limits;
        let announced =
            request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if announced.is_some_and(|length: u64| length > limits.max_request_bytes.saturating_add(FRAMING)) {
            return Err(intake::request_too_large(limits));
        }
        Multipart::from_request(request, state).await.map(Self).map_err(|rejection| {
            let detail = "Uploads are multipart/form-data with fields title, files (repeated) and text.";
            Problem::new(ProblemKind::UnsupportedMedia, detail).because(rejection.body_text())
        })
    }
}
