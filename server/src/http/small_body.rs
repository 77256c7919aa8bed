//! Bodies of everything that is no upload: forms and small JSON. Each is taken in whole before its handler runs, so
//! that one that does not come, or is too long, is told from an answer that takes long; in the same words everywhere.

use super::AppState;
use crate::{
    errors::{Problem, ProblemKind},
    limits::{Limits, size},
};
use axum::{
    body::Body,
    extract::{Request, State},
    http::{Method, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::time::timeout;

/// Bytes of such a body at most.
pub const MOST: usize = 64 << 10;
/// Bytes of a longer one that are still read, and dropped: whoever is cut off while sending does not see the answer.
const DRAINED: usize = 4 << 20;

/// Wraps what is no upload.
pub async fn take_in(State(state): State<AppState>, request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let is_api = request.uri().path().starts_with("/api/");
    match whole(request, &state.service.limits).await {
        Ok(request) => next.run(request).await,
        Err(problem) if is_api => problem.into_response(),
        Err(problem) => problem.into_page(),
    }
}

/// The same request with its body in memory.
async fn whole(request: Request, limits: &Limits) -> Result<Request, Problem> {
    let (parts, body) = request.into_parts();
    let announced = parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > DRAINED) {
        return Err(too_large());
    }
    let body = timeout(limits.body_within, gather(body)).await.map_err(|_| too_slow(limits))??;
    Ok(Request::from_parts(parts, Body::from(body)))
}

async fn gather(body: Body) -> Result<Bytes, Problem> {
    let mut pieces = body.into_data_stream();
    let (mut kept, mut came) = (BytesMut::new(), 0_usize);
    while let Some(piece) = pieces.next().await {
        let piece =
            piece.map_err(|error| Problem::invalid("The request broke off. Nothing was changed.").because(error))?;
        came = came.saturating_add(piece.len());
        if came > DRAINED {
            break;
        }
        if came <= MOST {
            kept.extend_from_slice(&piece);
        }
    }
    if came > MOST { Err(too_large()) } else { Ok(kept.freeze()) }
}

fn too_large() -> Problem {
    let limit = size(MOST as u64);
    let detail =
        format!("What is sent to this address may have {limit} in all, and this was more. Nothing was changed.");
    Problem::new(ProblemKind::RequestTooLarge, detail)
}

fn too_slow(limits: &Limits) -> Problem {
    let seconds = limits.body_within.as_secs();
    let detail = format!("The request did not arrive within {seconds} seconds. Nothing was changed. Send it again.");
    Problem::new(ProblemKind::TooSlow, detail)
}
