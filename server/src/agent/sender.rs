//! Brings batches to the server, one after the other over one kept connection, for as long as it takes.

use super::{backoff::Backoff, resolver::KeptAddresses, spool::Batch};
use crate::{certificates::authorities, http::PublicUrl};
use anyhow::{Context, bail};
use flate2::{Compression, write::GzEncoder};
use rankscope_model::Acknowledged;
use serde::Deserialize;
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};
use ureq::{
    http::{StatusCode, header},
    tls::{RootCerts, TlsConfig},
    unversioned::transport::DefaultConnector,
};

/// Without an answer by then, a batch is sent again.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Most of an answer that is read.
const ANSWER_BYTES: u64 = 64 << 10;
/// Bounds of the pauses between attempts.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Bound of the pauses while nobody listens at the server's address: asking costs one packet, and a server that was
/// started again is to have its nodes back within seconds.
const AWAY_PAUSE: Duration = Duration::from_secs(4);
/// A token that was refused is tried again this seldom, in case the file gets another.
const REFUSED_PAUSE: Duration = Duration::from_mins(5);
/// Longest `Retry-After` that is heeded.
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(10);

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The server has everything up to and with this line.
    Acknowledged(u64),
    /// The server does not have what comes before; it has everything up to and with this line.
    Missing(u64),
    /// The batch is too large for it.
    TooLarge,
    /// It takes no token, or not this one; why.
    Refused(String),
    /// It asks to come again later.
    Busy(Option<Duration>),
    /// Nobody listens there; why.
    Away(String),
    /// It does not answer, or says something else; why.
    Failed(String),
}

/// The way to one server.
#[derive(Debug)]
pub struct Sender {
    client: ureq::Agent,
    address: String,
    token_file: Option<PathBuf>,
    backoff: Backoff,
}

impl Sender {
    /// To `server`, whose certificate must come from an authority in `ca_file`, or from one of Mozilla's list.
    pub fn new(server: &PublicUrl, token_file: Option<&Path>, ca_file: Option<&Path>) -> anyhow::Result<Self> {
        let roots = ca_file.map_or(Ok(RootCerts::WebPki), authorities)?;
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            // A redirect would carry the token along.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT_WITHIN))
            .user_agent(concat!("rankscope-agent/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .build();
        let sender = Self {
            client: ureq::Agent::with_parts(config, DefaultConnector::default(), KeptAddresses::default()),
            address: format!("{server}/api/v1/samples"),
            token_file: token_file.map(Path::to_path_buf),
            backoff: Backoff::new(PAUSES.0, PAUSES.1),
        };
        // A file that cannot be read is a mistake to be told at the start.
        sender.token()?;
        Ok(sender)
    }

    /// Sends a batch and waits for the answer, at most as long as `within`.
    pub fn send(&self, batch: &Batch, within: Option<Duration>) -> Outcome {
        let attempt = || -> anyhow::Result<Outcome> {
            let body = packed(batch)?;
            let within = within.unwrap_or(ANSWER_WITHIN).min(ANSWER_WITHIN);
            let mut request = self
                .client
                .post(&self.address)
                .config()
                .timeout_global(Some(within))
                .build()
                .header(header::CONTENT_TYPE, "application/x-ndjson")
                .header(header::CONTENT_ENCODING, "gzip");
            if let Some(token) = self.token()? {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            let mut answer = request.send(&body)?;
            let status = answer.status();
            let retry_after = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
            let retry_after = retry_after.and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs);
            let text = answer.body_mut().with_config().limit(ANSWER_BYTES).read_to_vec()?;
            Ok(understood(status, retry_after, &text))
        };
        attempt().unwrap_or_else(|error| failed(&error))
    }

    /// How long to wait after this outcome before the next attempt.
    pub fn pause_after(&mut self, outcome: &Outcome) -> Duration {
        match outcome {
            Outcome::Acknowledged(_) => {
                self.backoff.reset();
                Duration::ZERO
            }
            // Smaller pieces at once: there are not many halves.
            Outcome::TooLarge => Duration::ZERO,
            Outcome::Missing(_) => self.backoff.pause(rand::random()).min(PAUSES.0),
            Outcome::Refused(_) => REFUSED_PAUSE.mul_f64(rand::random_range(0.8..1.2)),
            Outcome::Busy(after) => {
                after.unwrap_or_default().min(LONGEST_RETRY_AFTER) + self.backoff.pause(rand::random())
            }
            Outcome::Away(_) => self.backoff.pause_within(rand::random(), AWAY_PAUSE),
            Outcome::Failed(_) => self.backoff.pause(rand::random()),
        }
    }

    /// Read each time: it may be renewed while the agent runs.
    fn token(&self) -> anyhow::Result<Option<String>> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let text = fs::read_to_string(path).with_context(|| format!("reading the token from {}", path.display()))?;
        let token = text.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("{} holds no token: it must be one line of printable ASCII", path.display());
        }
        Ok(Some(token.to_owned()))
    }
}

fn packed(batch: &Batch) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::with_capacity(batch.text.len() / 4 + 256), Compression::fast());
    packed.write_all(br#"{"type":"batch","#)?;
    // The head without its opening brace: the tag stands in front.
    let head = serde_json::to_vec(&batch.head)?;
    packed.write_all(head.get(1..).unwrap_or_default())?;
    packed.write_all(b"\n")?;
    packed.write_all(&batch.text)?;
    packed.finish()
}

/// A refusal comes at once and from the other machine's kernel; all else may have kept somebody busy for long.
fn failed(error: &anyhow::Error) -> Outcome {
    let why = format!("{error:#}");
    let is_refused = |cause: &(dyn std::error::Error + 'static)| {
        let of_io = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        match cause.downcast_ref::<ureq::Error>() {
            Some(ureq::Error::Io(error)) => of_io(error),
            Some(_) => false,
            None => cause.downcast_ref::<io::Error>().is_some_and(of_io),
        }
    };
    if error.chain().any(is_refused) { Outcome::Away(why) } else { Outcome::Failed(why) }
}

fn understood(status: StatusCode, retry_after: Option<Duration>, text: &[u8]) -> Outcome {
    let acknowledged = serde_json::from_slice::<Acknowledged>(text).ok().map(|answer| answer.acknowledged);
    match (status.as_u16(), acknowledged) {
        (200, Some(acknowledged)) => Outcome::Acknowledged(acknowledged),
        (200, None) => Outcome::Failed("the answer acknowledges nothing; is this a Rankscope server?".into()),
        (409, Some(acknowledged)) => Outcome::Missing(acknowledged),
        (413, _) => Outcome::TooLarge,
        (401 | 403, _) => Outcome::Refused(detail(status, text)),
        (429 | 503, _) => Outcome::Busy(retry_after),
        (300..=399, _) => {
            Outcome::Failed(format!("it sends the agent elsewhere (HTTP {status}); give that address to --server"))
        }
        _ => Outcome::Failed(detail(status, text)),
    }
}

/// What a problem says of itself, on one line.
fn detail(status: StatusCode, text: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Problem {
        #[serde(default)]
        title: String,
        #[serde(default)]
        detail: String,
    }
    let problem = serde_json::from_slice::<Problem>(text).ok();
    let said = problem.map(|Problem { title, detail }| if detail.is_empty() { title } else { detail });
    let said = said.filter(|said| !said.is_empty() && said.len() < 500);
    match said {
        Some(said) => format!("HTTP {}: {}", status.as_u16(), said.replace(char::is_control, " ")),
        None => format!("HTTP {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use rankscope_model::LiveBatch;
    use std::io::Read;

    fn status(code: u16, text: &str) -> Outcome {
        understood(StatusCode::from_u16(code).unwrap(), Some(Duration::from_secs(7)), text.as_bytes())
    }

    #[test]
    fn answers_are_understood() {
        assert_eq!(status(200, r#"{"acknowledged":9}"#), Outcome::Acknowledged(9));
        assert_eq!(status(409, r#"{"acknowledged":3}"#), Outcome::Missing(3));
        assert_eq!(status(413, ""), Outcome::TooLarge);
        assert_eq!(status(503, ""), Outcome::Busy(Some(Duration::from_secs(7))));
        assert_eq!(
            status(401, r#"{"title":"No token","detail":"Send it."}"#),
            Outcome::Refused("HTTP 401: Send it.".into())
        );
        assert_eq!(status(500, "<html>"), Outcome::Failed("HTTP 500 Internal Server Error".into()));
        assert!(matches!(status(200, "<html>"), Outcome::Failed(why) if why.contains("Rankscope server")));
        assert!(matches!(status(302, ""), Outcome::Failed(why) if why.contains("--server")));
        assert!(matches!(status(409, ""), Outcome::Failed(_)));
    }

    #[test]
    fn an_agent_is_back_within_seconds_of_a_server_that_was_away_for_long() {
        // A port that nobody listens at: taken and given back.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let server: PublicUrl = format!("http://{free}").parse().unwrap();
        let mut sender = Sender::new(&server, None, None).unwrap();
        let head = LiveBatch { format: "f".into(), source: "s".into(), node: "n".into(), first: 0, last: 0 };
        let outcome = sender.send(&Batch { head, text: b"{}\n".to_vec(), count: 1 }, None);
        assert!(matches!(outcome, Outcome::Away(_)), "{outcome:?}");
        let longest = (0..400).map(|_| sender.pause_after(&outcome)).max().unwrap();
        assert!(longest > Duration::from_secs(2) && longest <= AWAY_PAUSE, "{longest:?}");
        // A server that answers with errors is left alone for longer.
        let broken = Outcome::Failed("HTTP 500".into());
        assert!((0..400).map(|_| sender.pause_after(&broken)).max().unwrap() > Duration::from_secs(30));
    }

    #[test]
    fn a_batch_begins_with_its_head() {
        let head = LiveBatch { format: "f".into(), source: "s".into(), node: "n".into(), first: 3, last: 4 };
        let batch = Batch { head: head.clone(), text: b"{\"seq\":3}\n{\"seq\":4}\n".to_vec(), count: 2 };
        let mut text = String::new();
        GzDecoder::new(&packed(&batch).unwrap()[..]).read_to_string(&mut text).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        assert!(first.starts_with(r#"{"type":"batch","format":"f","#), "{first}");
        assert_eq!(serde_json::from_str::<LiveBatch>(first).unwrap(), head);
        assert_eq!(rest.as_bytes(), batch.text);
    }

    #[test]
    fn files_without_a_token_or_certificate_are_told_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let server: PublicUrl = "http://127.0.0.1:1".parse().unwrap();
        let why =
            |token: Option<&Path>, ca: Option<&Path>| format!("{:#}", Sender::new(&server, token, ca).unwrap_err());
        assert!(why(Some(&file), None).contains("reading the token from"));
        for text in ["", " \n", "two words", "umlaut-ü"] {
            fs::write(&file, text).unwrap();
            assert!(why(Some(&file), None).contains("holds no token"), "{text:?}");
        }
        fs::write(&file, "abc\n").unwrap();
        assert_eq!(Sender::new(&server, Some(&file), None).unwrap().token().unwrap().as_deref(), Some("abc"));
        assert!(why(None, Some(&file)).contains("no certificate"));
    }
}
