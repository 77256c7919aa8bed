//! Extractors of path, query and JSON whose refusals are problems like all others.

use crate::errors::{Problem, ProblemKind};
use axum::{
    Json,
    extract::{
        FromRequest, FromRequestParts, Path, Query, Request,
        rejection::{JsonRejection, PathRejection, QueryRejection},
    },
    http::request::Parts,
};
use serde::de::DeserializeOwned;
use std::{future::Future, time::Duration};
use tokio::time::timeout;

/// A small body must have arrived within this.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// Parts of the path.
pub struct ApiPath<T>(pub T);

/// Parameters of the query.
pub struct ApiQuery<T>(pub T);

/// A JSON body.
pub struct ApiJson<T>(pub T);

/// Waits for a body, but not as long as for an upload.
async fn arrives<T>(limit: Duration, body: impl Future<Output = T>) -> Result<T, Problem> {
    timeout(limit, body).await.map_err(|_| {
        let detail = format!("The body did not arrive within {} seconds. Nothing was changed.", limit.as_secs());
        Problem::new(ProblemKind::TooSlow, detail)
    })
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for ApiPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path: Result<_, PathRejection> = Path::from_request_parts(parts, state).await;
        path.map(|Path(value)| Self(value)).map_err(|error| Problem::not_found().because(error.body_text()))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for ApiQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query: Result<_, QueryRejection> = Query::from_request_parts(parts, state).await;
        query.map(|Query(value)| Self(value)).map_err(|error| Problem::invalid(error.body_text()))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for ApiJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        arrives(BODY_WITHIN, Json::from_request(request, state)).await?.map(|Json(value)| Self(value)).map_err(
            |error| match error {
                JsonRejection::MissingJsonContentType(_) => {
                    Problem::new(ProblemKind::UnsupportedMedia, "The body must be application/json.")
                }
                JsonRejection::BytesRejection(error) => {
                    Problem::new(ProblemKind::RequestTooLarge, "The body is larger than this address takes.")
                        .because(error.body_text())
                }
                error => Problem::invalid(error.body_text()),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{body::Body, http::header};
    use futures_util::stream;

    #[tokio::test]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let stalled = Body::from_stream(stream::pending::<Result<Vec<u8>, std::io::Error>>());
        let request = Request::builder().header(header::CONTENT_TYPE, "application/json").body(stalled).unwrap();
        let body = Json::<u8>::from_request(request, &());
        let problem = arrives(Duration::from_millis(20), body).await.err().unwrap();
        assert_eq!(problem.kind(), ProblemKind::TooSlow);
    }
}
