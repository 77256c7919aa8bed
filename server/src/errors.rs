//! Which error is for whom.
//!
//! [`Problem`] is for visitors: a stable kind, words that are safe to show, and beside them an internal cause that only
//! the log sees. It leaves the server as `application/problem+json` (RFC 9457), or as a readable page where a person
//! sent a form. `StoreError` is for the log; it becomes a `Problem` in one place, below. Command-line errors are
//! `anyhow::Error` and never reach a visitor.

use crate::store::StoreError;
use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use std::{fmt::Display, time::Duration};
use utoipa::ToSchema;

macro_rules! kinds {
    ($($variant:ident $status:ident $slug:literal $title:literal;)*) => {
        /// The kinds of problem; slug and status are public and stable.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ProblemKind {
            $(#[doc = $title] $variant,)*
        }

        impl ProblemKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Last part of the problem's `type`.
            pub fn slug(self) -> &'static str {
                match self { $(Self::$variant => $slug,)* }
            }

            /// HTTP status.
            pub fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status,)* }
            }

            /// The same words for every occurrence.
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }
        }
    };
}

kinds! {
    NotFound NOT_FOUND "not-found" "There is nothing at this address";
    ShareEnded GONE "share-ended" "This share has ended";
    StillSpeaks CONFLICT "still-speaks" "The node still sends";
    OffsetDiffers CONFLICT "offset-differs" "The file is kept up to another byte";
    OtherVersion PRECONDITION_FAILED "other-version" "Another version of the protocol";
    NotWhole CONFLICT "not-whole" "A file has not arrived to its end";
    NotNow CONFLICT "not-now" "The run cannot be changed like this now";
    NotKept GONE "not-kept" "The file was not kept";
    InvalidRequest BAD_REQUEST "invalid-request" "The request cannot be understood";
    NothingUploaded UNPROCESSABLE_ENTITY "nothing-uploaded" "Nothing was uploaded";
    FileTooLarge PAYLOAD_TOO_LARGE "file-too-large" "The file is larger than this server takes";
    RequestTooLarge PAYLOAD_TOO_LARGE "request-too-large" "The request is larger than this server takes";
    TooManyFiles PAYLOAD_TOO_LARGE "too-many-files" "More files than this server takes at once";
    UnsupportedMedia UNSUPPORTED_MEDIA_TYPE "unsupported-media-type" "The content type is not one that this address takes";
    MethodNotAllowed METHOD_NOT_ALLOWED "method-not-allowed" "The address does not take this method";
    NoSuchChart NOT_FOUND "no-such-chart" "The evidence has nothing for this chart";
    ShareLocked UNAUTHORIZED "share-locked" "This share asks for a password";
    TooManyGuesses TOO_MANY_REQUESTS "too-many-guesses" "The password was wrong too often";
    SourceNotAllowed FORBIDDEN "source-not-allowed" "This server may not be asked";
    SourceFailed BAD_GATEWAY "source-failed" "The other server gave no series";
    ForeignHost MISDIRECTED_REQUEST "foreign-host" "This server does not answer for that host name";
    ForeignOrigin FORBIDDEN "foreign-origin" "The request comes from another site";
    TokenMissing UNAUTHORIZED "token-missing" "The request shows no token that this server knows";
    SenderNotAllowed FORBIDDEN "sender-not-allowed" "This machine may not send live data";
    TooBusy TOO_MANY_REQUESTS "too-busy" "More is on its way than this server takes at once";
    SignInNeeded UNAUTHORIZED "sign-in-needed" "Sign in first";
    ProviderFailed SERVICE_UNAVAILABLE "provider-failed" "The provider of sign-ins cannot be used right now";
    NotAllowed FORBIDDEN "not-allowed" "This takes more rights";
    TooManyTries TOO_MANY_REQUESTS "too-many-tries" "Too many tries";
    SetUpNeeded FORBIDDEN "set-up-needed" "This server is not set up yet";
    TooSlow REQUEST_TIMEOUT "too-slow" "The request stopped arriving";
    FileLost INTERNAL_SERVER_ERROR "file-lost" "A stored file is missing";
    Unavailable SERVICE_UNAVAILABLE "unavailable" "The server cannot answer right now";
    Internal INTERNAL_SERVER_ERROR "internal" "The server failed";
}

/// An error as visitors may see it, with its internal cause for the log.
#[derive(Debug)]
pub struct Problem {
    kind: ProblemKind,
    detail: String,
    internal: Option<String>,
    retry_after: Option<Duration>,
}

/// Errors of the HTTP handlers.
pub type Result<T, E = Problem> = std::result::Result<T, E>;

impl Problem {
    /// A problem with words for this occurrence: what happened, and what to do.
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), internal: None, retry_after: None }
    }

    /// Nothing at this address.
    pub fn not_found() -> Self {
        Self::new(ProblemKind::NotFound, "No run, report, file or share has this address.")
    }

    /// The request is wrong in the way that `detail` says.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::InvalidRequest, detail)
    }

    /// The server's own fault; `cause` goes to the log only.
    pub fn internal(cause: impl Display) -> Self {
        Self::new(ProblemKind::Internal, "The failure was logged. Nothing that was acknowledged is lost.")
            .because(cause)
    }

    /// The store cannot answer now and may in a moment; `cause` goes to the log only.
    fn no_answer(cause: impl Display) -> Self {
        Self::new(ProblemKind::Unavailable, "The store did not answer. Try again in a moment.").because(cause)
    }

    /// Adds what the log should know.
    #[must_use]
    pub fn because(mut self, cause: impl Display) -> Self {
        self.internal = Some(cause.to_string());
        self
    }

    /// Says when another try has a point, also to programs (`Retry-After`).
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The kind.
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// Words for visitors.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Why, for the log and for operators.
    pub(crate) fn told(&self) -> String {
        self.internal.clone().unwrap_or_else(|| self.detail.clone())
    }

    /// Writes the internal cause to the log, once, when the problem becomes an answer.
    fn log(&self) {
        let cause = self.internal.as_deref().unwrap_or("-");
        if self.kind.status().is_server_error() {
            tracing::error!(kind = self.kind.slug(), cause, "request failed");
        } else {
            tracing::debug!(kind = self.kind.slug(), detail = self.detail, cause, "request refused");
        }
    }

    /// The problem as a page, for people who sent a form or followed a link.
    pub fn into_page(self) -> Response {
        self.log();
        let page = crate::http::page::message(self.kind.title(), &self.detail);
        let mut response = (self.kind.status(), page).into_response();
        self.mark(&mut response);
        response
    }

    /// What an answer carries beside its body, whatever that is.
    pub fn mark(&self, response: &mut Response) {
        response.extensions_mut().insert(self.kind);
        if let Some(wait) = self.retry_after {
            // Rounded up: who comes at the second that was named is not sent away again.
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Missing => Self::not_found(),
            StoreError::Gone => {
                Self::new(ProblemKind::ShareEnded, "The link was revoked or has expired. Ask its owner for a new one.")
            }
            StoreError::Bucket(fault) => Self::new(ProblemKind::Unavailable, fault.told()).because(fault),
            error if error.is_full() => {
                let detail = "The disk of this server is full, so nothing was changed. Its operator must make room.";
                Self::new(ProblemKind::Unavailable, detail).because(error)
            }
            StoreError::Lost { .. } => {
                let detail = "A file of this run is missing where the server keeps its files. Its operator finds the run in \
                    the log.";
                Self::new(ProblemKind::FileLost, detail).because(error)
            }
            StoreError::TakenOver => {
                let detail = "This server was away from its database for too long. Nothing was changed. Try again.";
                Self::new(ProblemKind::Unavailable, detail).because(error)
            }
            StoreError::Io(_) | StoreError::Objects(_) => Self::no_answer(error),
            error if error.is_away() => Self::no_answer(error),
            error => Self::internal(error),
        }
    }
}

/// What a problem's answer says, for whoever may have to say it in another form.
#[derive(Debug, Clone)]
pub struct Told {
    /// The same words for every problem of its kind.
    pub title: &'static str,
    /// What happened this time.
    pub detail: String,
}

/// Body of a problem answer (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// Stable and relative to this server; opens a page that explains it.
    #[schema(example = "/problems/not-found")]
    r#type: String,
    /// The same words for every problem of this type.
    title: &'static str,
    /// HTTP status.
    #[schema(example = 404)]
    status: u16,
    /// What happened this time, and what to do.
    detail: String,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.log();
        let status = self.kind.status();
        let body = ProblemBody {
            r#type: format!("/problems/{}", self.kind.slug()),
            title: self.kind.title(),
            status: status.as_u16(),
            detail: self.detail.clone(),
        };
        let mut response = (status, Json(body)).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response.extensions_mut().insert(Told { title: self.kind.title(), detail: self.detail.clone() });
        self.mark(&mut response);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_unique_and_every_kind_is_an_error() {
        let mut slugs: Vec<_> = ProblemKind::ALL.iter().map(|kind| kind.slug()).collect();
        slugs.sort_unstable();
        slugs.dedup();
        assert_eq!(slugs.len(), ProblemKind::ALL.len());
        assert!(ProblemKind::ALL.iter().all(|kind| kind.status().as_u16() >= 400));
    }

    #[test]
    fn internal_causes_stay_inside() {
        let problem = Problem::from(StoreError::Io(std::io::Error::other("/secret/path")));
        assert!(!problem.detail().contains("secret"));
        assert_eq!(problem.kind(), ProblemKind::Unavailable);
    }

    #[test]
    fn answers_say_when_to_come_back() {
        let problem = || Problem::new(ProblemKind::TooManyTries, "x").retry_after(Duration::from_millis(1200));
        assert_eq!(problem().into_response().headers()[header::RETRY_AFTER], "2");
        assert_eq!(problem().into_page().headers()[header::RETRY_AFTER], "2");
        assert!(!Problem::not_found().into_response().headers().contains_key(header::RETRY_AFTER));
    }

    #[test]
    fn a_full_disk_and_a_lost_file_are_named() {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let problem = Problem::from(StoreError::Io(full));
        assert_eq!(problem.kind(), ProblemKind::Unavailable);
        assert!(problem.detail().contains("full"));
        let problem = Problem::from(StoreError::Lost { run: "r".into() });
        assert_eq!(problem.kind().status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(problem.detail().contains("missing"));
    }
}
