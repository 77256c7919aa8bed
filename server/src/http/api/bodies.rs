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

/// What is wrong with the values of an address, in words: `-1` where a number of a version belongs.
fn wrong_query(error: &QueryRejection) -> Problem {
    // axum's words: which parameter, and what its type says of the value.
    let text = error.body_text();
    let said = text.split_once(": ").map_or(text.as_str(), |(_, said)| said);
    let detail = match said.split_once(": ") {
        Some((name, why)) => {
            format!(
                "The value of “{name}” in this address is none that it takes: {why}. Without it the usual one is taken."
            )
        }
        None => format!("The values in this address are not complete: {said}."),
    };
    Problem::invalid(detail).because(text)
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
        query.map(|Query(value)| Self(value)).map_err(|error| wrong_query(&error))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for ApiJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let json: Result<_, JsonRejection> = Json::from_request(request, state).await;
        json.map(|Json(value)| Self(value)).map_err(|error| match error {
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

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    struct Asked {
        #[allow(dead_code)] // only how it is refused matters
        version: Option<u32>,
        #[allow(dead_code)]
        base: String,
    }

    #[tokio::test]
    async fn a_wrong_value_is_named_in_words() {
        let ask = async |query: &str| {
            let (mut parts, ()) = Request::builder().uri(format!("/x?{query}")).body(()).unwrap().into_parts();
            ApiQuery::<Asked>::from_request_parts(&mut parts, &()).await.err().unwrap().detail().to_owned()
        };
        let negative = ask("version=-1&base=a").await;
        assert!(negative.contains("“version”") && !negative.contains("deserialize"), "{negative}");
        let missing = ask("version=1").await;
        assert!(missing.contains("base") && !missing.contains("deserialize"), "{missing}");
    }
}
