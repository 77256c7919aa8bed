//! One request after the other to one server, within a time and a number of bytes for all of them. No redirect is
//! followed: it could lead to an address that nobody allowed.

use super::{Bounds, address::Source, bytes, moment::Span, selector::Selector};
use crate::intake::Spool;
use serde::Deserialize;
use std::{
    io::{self, Read},
    time::{Duration, Instant},
};
use ureq::{Agent, http::StatusCode};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Most of an error that is read.
const ERROR_BYTES: u64 = 64 << 10;
/// Characters of another server's words that are passed on.
const SAID_CHARS: usize = 300;
const CHUNK: usize = 64 << 10;

/// Series of these names over a range.
pub struct Query<'a> {
    pub names: &'a [&'a str],
    pub selector: &'a Selector,
    pub span: Span,
    /// Seconds between readings.
    pub step: i64,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// It could not be written here.
    Disk(io::Error),
    /// It is too slow.
    Slow,
    /// It says too much.
    TooLarge,
    /// It cannot be reached, or breaks off; what the connection said.
    Away(String),
    /// It sends elsewhere.
    Redirect(StatusCode),
    /// It wants to know who asks.
    Locked(StatusCode),
    /// It refuses the query, or something else answers there.
    Refused(StatusCode, Option<String>),
    /// The answer is something else.
    NotAnAnswer,
    /// The answer has nothing that can be used; why, and what to do.
    NoSeries(String),
}

impl Failure {
    /// Why, and what to do.
    pub fn words(&self, bounds: Bounds) -> String {
        match self {
            Self::Disk(_) => "the answer could not be written".to_owned(),
            Self::Slow => format!(
                "it did not answer in full within {} s. Ask for a shorter range, a larger step or fewer series.",
                bounds.within.as_secs()
            ),
            Self::TooLarge => format!(
                "its answer is larger than {}. Ask for a shorter range, a larger step or fewer series.",
                bytes(bounds.max_bytes)
            ),
            Self::Away(why) => format!("it cannot be reached ({why}). Is it running, and reachable from this server?"),
            Self::Redirect(status) => format!(
                "it sends elsewhere ({status}), and redirects are not followed. The operator has to allow the address to \
                 which it leads."
            ),
            Self::Locked(status) => format!(
                "it asks who comes ({status}). Only servers that answer without a password can be asked; upload the file \
                 that curl makes instead."
            ),
            Self::Refused(status, Some(said)) => format!("it refuses the query ({status}): {said}"),
            Self::Refused(status, None) => {
                format!("it answers {status}, as no Prometheus does. Is the path before /api/v1 right?")
            }
            Self::NotAnAnswer => {
                "what it answers is no result of a query. Is a Prometheus at this address, and is the path right?"
                    .to_owned()
            }
            Self::NoSeries(why) => why.clone(),
        }
    }
}

/// The way to one server for one wish.
pub struct Asked<'a> {
    source: &'a Source,
    client: Agent,
    ends: Instant,
    bytes_left: u64,
}

impl<'a> Asked<'a> {
    /// Everything has to be over at `ends`, with at most so many bytes.
    pub fn new(source: &'a Source, ends: Instant, max_bytes: u64) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT_WITHIN))
            .user_agent(concat!("rankscope/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { source, client: config.into(), ends, bytes_left: max_bytes }
    }

    /// Asks for a range, and puts the answer behind what is in `spool`.
    pub fn range(&mut self, query: &Query<'_>, spool: &mut Spool) -> Result<(), Failure> {
        let left = self.ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Slow);
        }
        let request = self
            .client
            .get(format!("{}/api/v1/query_range", self.source))
            .config()
            .timeout_global(Some(left))
            .build()
            .header("accept", "application/json")
            .query("query", query.selector.of(query.names))
            .query("start", query.span.from().to_string())
            .query("end", query.span.to().to_string())
            .query("step", query.step.to_string());
        let mut answer = request.call().map_err(|error| self.failed(&error))?;
        let status = answer.status();
        if !status.is_success() {
            let said = answer.body_mut().with_config().limit(ERROR_BYTES).read_to_vec().ok();
            return Err(refusal(status, said.as_deref().unwrap_or_default()));
        }
        let mut body = answer.body_mut().as_reader();
        let mut is_first = true;
        loop {
            let mut chunk = vec![0; CHUNK];
            let length = match body.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.failed(&ureq::Error::from(error))),
            };
            chunk.truncate(length);
            if is_first && chunk.trim_ascii_start().first() != Some(&b'{') {
                return Err(Failure::NotAnAnswer);
            }
            is_first = false;
            self.bytes_left = self.bytes_left.checked_sub(length as u64).ok_or(Failure::TooLarge)?;
            if Instant::now() >= self.ends {
                return Err(Failure::Slow);
            }
            spool.write(&chunk).map_err(Failure::Disk)?;
        }
        if is_first {
            return Err(Failure::NotAnAnswer);
        }
        spool.write(b"\n").map_err(Failure::Disk)
    }

    fn failed(&self, error: &ureq::Error) -> Failure {
        if matches!(error, ureq::Error::Timeout(_)) && Instant::now() >= self.ends {
            return Failure::Slow;
        }
        Failure::Away(shown(&error.to_string()))
    }
}

fn refusal(status: StatusCode, body: &[u8]) -> Failure {
    /// The documented error of the API.
    #[derive(Deserialize)]
    struct Said {
        status: String,
        #[serde(default, rename = "errorType")]
        kind: String,
        #[serde(default)]
        error: String,
    }
    let said =
        serde_json::from_slice::<Said>(body).ok().filter(|said| said.status == "error" && !said.error.is_empty());
    match status.as_u16() {
        300..=399 => Failure::Redirect(status),
        401 | 403 | 407 => Failure::Locked(status),
        _ => Failure::Refused(status, said.map(|said| shown(&format!("{}: {}", said.kind, said.error)))),
    }
}

/// Foreign words, on one line and not too many.
fn shown(text: &str) -> String {
    let plain = text.chars().map(|sign| if sign.is_control() || crate::visible::bends(sign) { ' ' } else { sign });
    plain.take(SAID_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_the_server_said() {
        let words = |status: u16, body: &str| {
            refusal(StatusCode::from_u16(status).unwrap(), body.as_bytes()).words(Bounds::default())
        };
        let error = r#"{"status":"error","errorType":"bad_data","error":"exceeded maximum\nresolution"}"#;
        assert!(words(400, error).contains("bad_data: exceeded maximum resolution"));
        assert!(words(302, "").contains("not followed"));
        assert!(words(401, "<html>").contains("asks who comes"));
        assert!(words(404, "<html>").contains("before /api/v1"));
    }
}
