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

/// Parts of the path.
pub struct ApiPath<T>(pub T);

/// Parameters of the query.
pub struct ApiQuery<T>(pub T);

/// A JSON body.
pub struct ApiJson<T>(pub T);

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
        Json::from_request(request, state).await.map(|Json(value)| Self(value)).map_err(|error| match error {
            JsonRejection::MissingJsonContentType(_) => {
                Problem::new(ProblemKind::UnsupportedMedia, "The body must be application/json.")
            }
            JsonRejection::BytesRejection(error) => {
                Problem::new(ProblemKind::RequestTooLarge, "The body is larger than this address takes.")
                    .because(error.body_text())
            }
            error => Problem::invalid(error.body_text()),
        })
    }
}
