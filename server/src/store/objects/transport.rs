//! What carries requests to a bucket: hyper with rustls, one pool of connections, and a limit for every wait. The library
//! that makes the requests tries again where that is safe.

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector as Tcp},
    rt::{TokioExecutor, TokioTimer},
};
use object_store::{
    ClientConfigKey, ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
        HttpResponseBody, HttpService,
    },
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use std::{
    error::Error,
    io,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep, timeout};

/// Until there is a connection.
const CONNECTS_WITHIN: Duration = Duration::from_secs(5);
/// From the first byte of a request, which may hold a part of a file, to the head of its answer.
const ANSWERS_WITHIN: Duration = Duration::from_mins(1);
/// Between two pieces of an answer.
const GOES_ON_WITHIN: Duration = Duration::from_secs(30);
/// A connection that is not used is kept so long.
const IDLE: Duration = Duration::from_secs(30);
/// What is read of an answer that is an error.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// Makes the clients of a bucket and of what gives its credentials.
#[derive(Debug)]
pub struct Transport {
    tls: ClientConfig,
}

impl Transport {
    /// Trusts Mozilla's list, or the authorities of a file.
    pub fn new(authorities: Option<&Path>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        match authorities {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(path) => {
                let wrong = |why: &dyn std::fmt::Display| {
                    format!("the file with the authorities, {}, cannot be used: {why}", path.display())
                };
                for found in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
                    let found = found.map_err(|error| wrong(&error))?;
                    roots.add(found).map_err(|error| wrong(&error))?;
                }
                if roots.is_empty() {
                    return Err(wrong(&"it holds no certificate in PEM"));
                }
            }
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS: {error}"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls })
    }
}

impl HttpConnector for Transport {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // The library allows it for a machine's or container's own roles, which are asked without TLS.
        let is_plain = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        let mut tcp = Tcp::new();
        tcp.set_connect_timeout(Some(CONNECTS_WITHIN));
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let tls = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(self.tls.clone());
        let tls = if is_plain { tls.https_or_http() } else { tls.https_only() };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(tls.enable_http1().wrap_connector(tcp));
        Ok(HttpClient::new(Service { client }))
    }
}

#[derive(Debug)]
struct Service {
    client: Client<HttpsConnector<Tcp>, HttpRequestBody>,
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let answer = match timeout(ANSWERS_WITHIN, self.client.request(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                let kind = if error.is_connect() { HttpErrorKind::Connect } else { kind(&error) };
                return Err(told(kind, &host, &error));
            }
            Err(_) => return Err(HttpError::new(HttpErrorKind::Timeout, late(&host, ANSWERS_WITHIN))),
        };
        let (head, body) = answer.into_parts();
        let body = Patient { body, host: host.clone(), wait: Box::pin(sleep(GOES_ON_WITHIN)) };
        let body = if head.status.is_success() {
            HttpResponseBody::new(body)
        } else {
            let too_long = move |_| {
                HttpError::new(
                    HttpErrorKind::Decode,
                    io::Error::other(format!("{host}: the answer broke off or is too long")),
                )
            };
            HttpResponseBody::new(Limited::new(body, MAX_ERROR_BYTES).map_err(too_long))
        };
        Ok(HttpResponse::from_parts(head, body))
    }
}

/// A body that is given up when nothing more of it comes.
#[derive(Debug)]
struct Patient {
    body: Incoming,
    host: String,
    wait: Pin<Box<Sleep>>,
}

impl Body for Patient {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => {
                self.wait.as_mut().reset(Instant::now() + GOES_ON_WITHIN);
                Poll::Ready(
                    frame.map(|frame| frame.map_err(|error| told(HttpErrorKind::Interrupted, &self.host, &error))),
                )
            }
            Poll::Pending => self
                .wait
                .as_mut()
                .poll(context)
                .map(|()| Some(Err(HttpError::new(HttpErrorKind::Timeout, late(&self.host, GOES_ON_WITHIN))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn late(host: &str, limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{host}: nothing came for {} s", limit.as_secs()))
}

/// Whether another try may help, as far as an error tells.
fn kind(error: &(dyn Error + 'static)) -> HttpErrorKind {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper::Error>()
            && (error.is_closed() || error.is_incomplete_message() || error.is_canceled())
        {
            return HttpErrorKind::Request;
        }
        if error.is::<io::Error>() {
            return HttpErrorKind::Interrupted;
        }
        cause = error.source();
    }
    HttpErrorKind::Unknown
}

/// The last cause says it best: `Connection refused`, `invalid peer certificate: UnknownIssuer`.
fn told(kind: HttpErrorKind, host: &str, error: &(dyn Error + 'static)) -> HttpError {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    HttpError::new(kind, io::Error::other(format!("{host}: {last}")))
}
