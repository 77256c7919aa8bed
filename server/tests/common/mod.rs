//! A whole server over a temporary folder, and a client small enough to see what it sends.
// Each test file uses a part; a helper that fails should stop the test.
#![allow(dead_code, clippy::unwrap_used)]

pub mod live;
pub mod provider;
pub mod team;

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Method, Request, StatusCode, header},
};
use rankscope::{
    http::{AppState, Front, router},
    limits::Limits,
    listener::Peer,
    live::{Follower, Live, LiveOptions, follow},
    service::Service,
    store::Store,
};
use serde_json::Value;
use std::{path::Path, sync::Arc, time::Duration};
use tempfile::TempDir;
use tower::ServiceExt;

pub const HOST: &str = "127.0.0.1:3000";
const BOUNDARY: &str = "----rankscope-test";

/// A server without a socket.
pub struct Server {
    pub router: Router,
    pub service: Arc<Service>,
    pub folder: TempDir,
    live: Option<(Arc<Live>, LiveOptions, Vec<tokio::task::JoinHandle<()>>)>,
}

/// A part of an upload: field, file name, content.
pub type Part<'a> = (&'a str, Option<&'a str>, &'a [u8]);

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        self
    }

    pub fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Checks that this is a problem of RFC 9457 and gives its type.
    #[track_caller]
    pub fn problem(self, status: u16) -> String {
        let answer = self.expect(status);
        assert_eq!(answer.header(header::CONTENT_TYPE), "application/problem+json");
        let json = answer.json();
        assert_eq!(json["status"], status);
        assert!(!json["detail"].as_str().unwrap().is_empty());
        json["type"].as_str().unwrap().to_owned()
    }
}

impl Server {
    pub async fn start() -> Self {
        Self::start_with(Limits::default()).await
    }

    pub async fn start_with(limits: Limits) -> Self {
        Self::open(tempfile::tempdir().unwrap(), limits).await
    }

    pub async fn open(folder: TempDir, limits: Limits) -> Self {
        let store = Store::open(folder.path()).await.unwrap();
        let service = Arc::new(Service::new(store, limits));
        let state = AppState::new(Arc::clone(&service), Front::new(HOST.parse().unwrap(), None));
        Self { router: router(state), service, folder, live: None }
    }

    /// With live data, as `serve` has it.
    pub async fn live(options: LiveOptions) -> Self {
        Self::live_in(tempfile::tempdir().unwrap(), options).await
    }

    async fn live_in(folder: TempDir, options: LiveOptions) -> Self {
        let store = Store::open(folder.path()).await.unwrap();
        let service = Arc::new(Service::new(store, Limits::default()));
        let live = Live::open(&folder.path().join("live"), options.clone()).unwrap();
        let state =
            AppState::new(Arc::clone(&service), Front::new(HOST.parse().unwrap(), None)).with_live(live.clone());
        let follower = Follower { live: live.clone(), service: Arc::clone(&service), webhook: None };
        let tasks = vec![tokio::spawn(follow(follower)), tokio::spawn(live.clone().make_frames())];
        Self { router: router(state), service, folder, live: Some((live, options, tasks)) }
    }

    /// Ends and begins again over the same folder.
    pub async fn restart(self) -> Self {
        let Self { router, service, folder, live } = self;
        let (live, options, tasks) = live.unwrap();
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
        live.close().await;
        service.store.close().await;
        drop((router, service, live));
        Self::live_in(folder, options).await
    }

    /// The body of an answer that goes on.
    pub async fn stream(&self, path: &str) -> axum::body::BodyDataStream {
        let response =
            self.router.clone().oneshot(request(Method::GET, path).body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        assert!(response.headers().get(header::CONTENT_ENCODING).is_none());
        response.into_body().into_data_stream()
    }

    /// Sent from this machine, unless the request says otherwise.
    pub async fn send(&self, mut request: Request<Body>) -> Answer {
        if request.extensions().get::<Peer>().is_none() {
            request.extensions_mut().insert(Peer("127.0.0.1:40000".parse().unwrap()));
        }
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap().to_vec();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(request(Method::GET, path).body(Body::empty()).unwrap()).await
    }

    pub async fn call(&self, method: Method, path: &str, json: Value) -> Answer {
        let request = request(method, path).header(header::CONTENT_TYPE, "application/json");
        self.send(request.body(json.to_string().into()).unwrap()).await
    }

    pub async fn form(&self, path: &str, form: &str) -> Answer {
        let request = request(Method::POST, path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request.body(form.to_owned().into()).unwrap()).await
    }

    pub async fn upload(&self, path: &str, parts: &[Part<'_>]) -> Answer {
        let request = request(Method::POST, path)
            .header(header::CONTENT_TYPE, format!("multipart/form-data; boundary={BOUNDARY}"));
        self.send(request.body(multipart(parts).into()).unwrap()).await
    }

    /// A run made of our own test data, as the answer of the API.
    pub async fn run_from_data(&self) -> Value {
        let (smi, script) = (data("nvidia-smi.txt"), data("train.py"));
        let parts: [Part<'_>; 2] = [("files", Some("nvidia-smi.txt"), &smi), ("files", Some("train.py"), &script)];
        self.upload("/api/v1/runs", &parts).await.expect(201).json()
    }
}

pub fn request(method: Method, path: &str) -> axum::http::request::Builder {
    Request::builder().method(method).uri(path).header(header::HOST, HOST)
}

pub fn multipart(parts: &[Part<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    for (field, file_name, content) in parts {
        let file_name = file_name.map(|name| format!("; filename=\"{name}\"")).unwrap_or_default();
        let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{field}\"{file_name}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    body
}

pub fn multipart_type() -> String {
    format!("multipart/form-data; boundary={BOUNDARY}")
}

/// Our own test data; see tests/data/README.md.
pub fn data(name: &str) -> Vec<u8> {
    std::fs::read(data_path(name)).unwrap()
}

pub fn data_path(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The time within which so many of a hundred were done.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}
