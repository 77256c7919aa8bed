//! The way to a provider: one request after the other, each within a time and a number of bytes. No redirect is followed:
//! it could carry a secret to an address that nobody named.

use super::address::may_be_asked;
use crate::certificates::authorities;
use openidconnect::{HttpRequest, HttpResponse, SyncHttpClient, http::StatusCode};
use std::{path::Path, time::Duration};
use thiserror::Error;
use ureq::{
    Agent,
    tls::{RootCerts, TlsConfig},
};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// One answer, from the first byte of the question to the last of the answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The largest of all answers, the keys of a large provider, have some ten kB.
const MOST_BYTES: u64 = 256 << 10;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum Unanswered {
    /// It names an address that is not asked.
    #[error("{0} is not asked: it must begin with https://")]
    NotPrivate(String),
    /// It sends elsewhere.
    #[error("{0} sends elsewhere ({1}), and redirects are not followed")]
    Redirect(String, StatusCode),
    /// It says too much.
    #[error("{0} answers with more than {kib} KiB", kib = MOST_BYTES >> 10)]
    TooLarge(String),
    /// It cannot be reached, is too slow or breaks off.
    #[error("{0} does not answer ({1})")]
    Away(String, ureq::Error),
}

/// Asks one provider.
#[derive(Debug, Clone)]
pub struct Asker {
    client: Agent,
    issuer_is_here: bool,
}

impl Asker {
    /// Certificates must come from an authority in `ca_file`, or from one of Mozilla's list.
    pub fn new(issuer_is_here: bool, ca_file: Option<&Path>) -> anyhow::Result<Self> {
        let roots = ca_file.map_or(Ok(RootCerts::WebPki), authorities)?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_global(Some(ANSWER_WITHIN))
            .user_agent(concat!("rankscope/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .build();
        Ok(Self { client: config.into(), issuer_is_here })
    }
}

impl SyncHttpClient for Asker {
    type Error = Unanswered;

    fn call(&self, request: HttpRequest) -> Result<HttpResponse, Unanswered> {
        // Without the query: what travels there may be a secret, and this is for the log.
        let (scheme, authority, path) =
            (request.uri().scheme_str(), request.uri().authority().map(ToString::to_string), request.uri().path());
        let asked = format!("{}://{}{path}", scheme.unwrap_or_default(), authority.unwrap_or_default());
        if !may_be_asked(&request.uri().to_string(), self.issuer_is_here) {
            return Err(Unanswered::NotPrivate(asked));
        }
        let (parts, body) = request.into_parts();
        // An empty body is none, so that a question is sent as one.
        let answer = if body.is_empty() {
            self.client.run(openidconnect::http::Request::from_parts(parts, ()))
        } else {
            self.client.run(openidconnect::http::Request::from_parts(parts, body))
        };
        let mut answer = answer.map_err(|error| Unanswered::Away(asked.clone(), error))?;
        if answer.status().is_redirection() {
            return Err(Unanswered::Redirect(asked, answer.status()));
        }
        let body = answer.body_mut().with_config().limit(MOST_BYTES).read_to_vec();
        let body = body.map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(_) => Unanswered::TooLarge(asked),
            error => Unanswered::Away(asked, error),
        })?;
        let (parts, _) = answer.into_parts();
        Ok(HttpResponse::from_parts(parts, body))
    }
}
