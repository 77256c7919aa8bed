//! A run from a Prometheus-compatible server, against a real one on a socket that speaks the documented API, and
//! servers that do not: what comes back is kept as it came, nothing outside the list is ever asked, and every failure
//! says which address, why, and what to do.

#![allow(clippy::unwrap_used)] // a helper that fails should stop the test

mod common;

use axum::http::{Method, header};
use common::{Answer, Server};
use rankscope::{
    http::{AppState, Front, router},
    prometheus::{Bounds, Sources},
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

/// What a request asked for: path, and parameters.
type Request = (String, HashMap<String, String>);

/// A server on a socket, and what it was asked.
struct Other {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Request>>>,
}

impl Other {
    /// Answers each request by `answer`, on a thread of its own.
    fn start(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (Arc::clone(&asked), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, log, answer) = (stream.unwrap(), Arc::clone(&log), Arc::clone(&answer));
                thread::spawn(move || {
                    if let Some(request) = read_request(&stream) {
                        log.lock().unwrap().push(request.clone());
                        answer(&request, &mut stream);
                    }
                });
            }
        });
        Self { address, asked }
    }

    /// One that always answers the same.
    fn saying(status: &'static str, more: &'static str, body: &'static str) -> Self {
        Self::start(move |_, stream| send(stream, status, more, body))
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    for line in lines.by_ref() {
        if line.ok()?.is_empty() {
            break;
        }
    }
    let target = first.split(' ').nth(1)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parameters = query.split('&').filter_map(|pair| pair.split_once('='));
    Some((path.to_owned(), parameters.map(|(key, value)| (key.to_owned(), decoded(value))).collect()))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |byte: Option<u8>| char::from(byte.unwrap()).to_digit(16).unwrap();
        match byte {
            b'%' => bytes.push(u8::try_from(hex(rest.next()) * 16 + hex(rest.next())).unwrap()),
            b'+' => bytes.push(b' '),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn send(stream: &mut TcpStream, status: &str, more: &str, body: &str) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}

/// As Prometheus answers for two nodes with two cards each, of which one is fuller.
fn query_range(request: &Request, stream: &mut TcpStream) {
    let (path, parameters) = request;
    assert_eq!(path, "/prometheus/api/v1/query_range");
    let number = |name: &str| parameters[name].parse::<i64>().unwrap();
    let (start, end, step) = (number("start"), number("end"), number("step"));
    assert!((end - start) / step < 11_000, "more points than Prometheus gives");
    let is_used = parameters["query"].contains("FB_USED");
    let mut series = Vec::new();
    for (host, gpu) in [("node-a", 0), ("node-a", 1), ("node-b", 0), ("node-b", 1)] {
        let used = |at: i64| if (host, gpu, at > start) == ("node-a", 0, true) { 40_000 } else { 30_000 };
        let names: &[&str] = if is_used { &["USED"] } else { &["FREE", "RESERVED"] };
        for name in names {
            let value = |at: i64| match *name {
                "USED" => used(at),
                "FREE" => 45_634 - used(at),
                _ => 434,
            };
            let values: Vec<Value> = (start..=end)
                .step_by(usize::try_from(step).unwrap())
                .map(|at| json!([at, value(at).to_string()]))
                .collect();
            let labels = json!({"__name__": format!("DCGM_FI_DEV_FB_{name}"), "Hostname": host, "gpu": gpu.to_string(),
                "UUID": format!("GPU-{host}-{gpu}"), "modelName": "NVIDIA A40", "exported_pod": "train-7"});
            series.push(json!({"metric": labels, "values": values}));
        }
    }
    // In the order in which Prometheus writes its members.
    let result = json!(series);
    let body = format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":{result}}}}}"#);
    send(stream, "200 OK", "Content-Type: application/json\r\n", &body);
}

async fn server(allowed: &[String], bounds: Bounds) -> Server {
    let mut server = Server::start().await;
    let sources = Sources::with_bounds(allowed.iter().map(|url| url.parse().unwrap()).collect(), bounds);
    let state = AppState::new(Arc::clone(&server.service), Front::new(common::HOST.parse().unwrap(), None));
    server.router = router(state.with_prometheus(sources));
    server
}

async fn ask(server: &Server, url: &str) -> Answer {
    server.call(Method::POST, "/api/v1/runs/from-prometheus", json!({"server": url, "from": "now-1h"})).await
}

/// `detail` of a refusal of this kind.
#[track_caller]
fn refused(answer: Answer, status: u16, slug: &str) -> String {
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(answer.problem(status), format!("/problems/{slug}"));
    detail
}

#[tokio::test]
async fn an_answer_becomes_a_run_that_cites_it() {
    let prometheus = Other::start(query_range);
    let url = format!("{}/prometheus", prometheus.url());
    let server = server(std::slice::from_ref(&url), Bounds::default()).await;
    let wish =
        json!({"server": url, "selector": "namespace=\"ml\"", "from": "2026-11-30 12:00", "to": "2026-11-30T12:30Z"});
    let answer = server.call(Method::POST, "/api/v1/runs/from-prometheus", wish).await.expect(201);
    assert!(answer.header(header::LOCATION).starts_with("/api/v1/runs/"));
    let made = answer.json();
    assert_eq!(made["verdict"], "imbalance", "{made}");
    let host = prometheus.address;
    assert_eq!(made["title"], format!("GPU memory from {host}, 2026-11-30 12:00 to 2026-11-30 12:30 UTC"));
    assert_eq!(made["artifacts"][0]["kind"], "prometheus");
    let warnings = made["artifacts"][0]["warnings"].to_string();
    assert!(warnings.contains("GPU 2 to 3 on node-b (pod train-7)"), "{warnings}");

    // Two queries: the used memory finely, and what tells capacity coarsely.
    let asked = prometheus.asked();
    assert_eq!(asked.len(), 2);
    let (_, first) = &asked[0];
    assert_eq!(first["query"], r#"{__name__=~"DCGM_FI_DEV_FB_USED|nvidia_smi_memory_used_bytes",namespace="ml"}"#);
    assert_eq!(
        (first["start"].as_str(), first["end"].as_str(), first["step"].as_str()),
        ("1796040000", "1796041800", "10")
    );
    assert_eq!(asked[1].1["step"], "180");

    // The file is what came, and the report leads into it.
    let id = made["id"].as_str().unwrap();
    let file = server.get(&format!("/api/v1/runs/{id}/artifacts/0")).await.expect(200).text();
    let answers: Vec<Value> = file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0]["data"]["result"][0]["values"].as_array().unwrap().len(), 181);
    let run = server.get(&format!("/api/v1/runs/{id}")).await.expect(200).json();
    let cited = run["diagnosis"].to_string();
    assert!(cited.contains("prometheus.json"), "{cited}");
    assert_eq!(run["diagnosis"]["imbalance"]["heaviest"], json!([{"device": 0}]));
    // The same file gives the same answer to anybody else.
    let again = server.upload("/api/v1/runs", &[("files", Some("prometheus.json"), file.as_bytes())]).await.expect(201);
    assert_eq!(again.json()["summary"], made["summary"]);
}

#[tokio::test]
async fn the_form_works_without_javascript_and_is_there_only_with_a_server() {
    let plain = Server::start().await;
    assert!(!plain.get("/").await.expect(200).text().contains("From Prometheus"));
    assert!(refused(ask(&plain, "http://127.0.0.1:9090").await, 403, "source-not-allowed").contains("--prometheus"));

    let prometheus = Other::start(query_range);
    let url = format!("{}/prometheus", prometheus.url());
    let server = server(&[url.clone(), "http://other.example:9090".to_owned()], Bounds::default()).await;
    let page = server.get("/").await.expect(200).text();
    for part in
        ["From Prometheus", "action=\"/runs/from-prometheus\"", &url, "http://other.example:9090", "name=\"selector\""]
    {
        assert!(page.contains(part), "{part}");
    }
    let form = format!("server={url}&selector=&from=now-30m&to=&step=&title=Tonight");
    let answer = server.form("/runs/from-prometheus", &form).await.expect(303);
    let run = answer.header(header::LOCATION);
    assert!(run.starts_with("/runs/"), "{run}");
    assert!(server.get(run).await.expect(200).text().contains("Tonight"));
    // A wrong form ends in a page that says what is wrong.
    let wrong = server.form("/runs/from-prometheus", &format!("server={url}&from=tomorrow")).await.expect(400);
    assert!(wrong.text().contains("tomorrow") && wrong.text().contains("now-2h"));
    let wrong = server.form("/runs/from-prometheus", &format!("server={url}&selector=sum(up)")).await.expect(400);
    assert!(wrong.text().contains("selector"));
    assert_eq!(prometheus.asked().len(), 2, "nothing was asked for a wrong form");
}

#[tokio::test]
async fn nothing_outside_the_list_is_ever_asked() {
    let inside = Other::start(query_range);
    let outside = Other::saying("200 OK", "", "{}");
    let allowed = format!("{}/prometheus", inside.url());
    let server = server(std::slice::from_ref(&allowed), Bounds::default()).await;
    let (port, foreign) = (inside.address.port(), outside.address.port());
    for wrong in [
        outside.url(),
        format!("http://127.0.0.1:{foreign}/prometheus"),
        // The same machine under another name, and a name that could resolve to anything.
        format!("http://localhost:{port}/prometheus"),
        format!("http://127.0.0.1.nip.example:{port}/prometheus"),
        format!("http://[::1]:{port}/prometheus"),
        format!("http://2130706433:{port}/prometheus"),
        format!("https://127.0.0.1:{port}/prometheus"),
        format!("http://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{port}/prometheus/../"),
        format!("http://127.0.0.1:{port}@127.0.0.1:{foreign}/prometheus"),
        format!("http://127.0.0.1:{foreign}#@127.0.0.1:{port}/prometheus"),
        format!("http://127.0.0.1:{foreign}\\@127.0.0.1:{port}/prometheus"),
        format!("http://user@127.0.0.1:{port}/prometheus"),
        format!("http://127.0.0.1:{port}/prometheus?query=up"),
        format!("http://127.0.0.1:{port}/prometheus\r\nHost: evil"),
        "file:///etc/passwd".to_owned(),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "gopher://127.0.0.1:70/".to_owned(),
        String::new(),
    ] {
        let detail = refused(ask(&server, &wrong).await, 403, "source-not-allowed");
        assert!(detail.contains(&allowed), "{detail}");
    }
    assert!(inside.asked().is_empty() && outside.asked().is_empty());
    let runs = server.get("/api/v1/runs").await.expect(200).json();
    assert_eq!(runs["runs"], json!([]));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Other::saying("200 OK", "", "{}");
    let location: &'static str = format!("Location: {}/api/v1/query_range\r\n", target.url()).leak();
    for status in ["301 Moved Permanently", "302 Found", "307 Temporary Redirect"] {
        let source = Other::saying(status, location, "");
        let server = server(&[source.url()], Bounds::default()).await;
        let detail = refused(ask(&server, &source.url()).await, 502, "source-failed");
        assert!(detail.contains(&source.url()) && detail.contains("redirects are not followed"), "{detail}");
    }
    assert!(target.asked().is_empty());
}

#[tokio::test]
async fn every_failure_says_which_address_why_and_what_to_do() {
    let error = r#"{"status":"error","errorType":"execution","error":"query processing would load too many samples"}"#;
    let empty = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
    let other = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"up"},"values":[[1,"1"]]}]}}"#;
    for (status, body, words) in [
        ("422 Unprocessable Entity", error, "execution: query processing would load too many samples"),
        ("200 OK", error, "execution: query processing would load too many samples"),
        ("200 OK", empty, "nothing matches that selector"),
        ("200 OK", other, "none of the memory of a GPU"),
        ("200 OK", "<html>Welcome</html>", "no result of a query"),
        ("200 OK", "", "no result of a query"),
        ("200 OK", r#"{"status":"success","data":{"resultType":"matrix","result":[nonsense"#, "not readable as JSON"),
        ("404 Not Found", "404 page not found", "before /api/v1"),
        ("401 Unauthorized", "", "asks who comes"),
        ("503 Service Unavailable", "", "503"),
    ] {
        let source = Other::saying(status, "", body);
        let server = server(&[source.url()], Bounds::default()).await;
        let detail = refused(ask(&server, &source.url()).await, 502, "source-failed");
        assert!(detail.starts_with(&source.url()) && detail.contains(words), "{status} {body}: {detail}");
        assert_eq!(server.get("/api/v1/runs").await.expect(200).json()["runs"], json!([]));
        // The file goes with the request, which on a busy machine may end after its answer.
        let left = || std::fs::read_dir(server.folder.path().join("incoming")).unwrap().count();
        let until = Instant::now() + Duration::from_secs(10);
        while left() > 0 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(left(), 0, "nothing is left");
    }
    // Nobody is there.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{gone}");
    let server = server(std::slice::from_ref(&url), Bounds::default()).await;
    let detail = refused(ask(&server, &url).await, 502, "source-failed");
    assert!(detail.contains("cannot be reached"), "{detail}");
}

#[tokio::test]
async fn an_endless_body_and_a_slow_one_are_given_up() {
    let endless = Other::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n");
        let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
        while stream.write_all(chunk.as_bytes()).is_ok() {}
    });
    let bounds = Bounds { max_bytes: 1 << 20, ..Bounds::default() };
    let server = self::server(&[endless.url()], bounds).await;
    let detail = refused(ask(&server, &endless.url()).await, 502, "source-failed");
    assert!(detail.contains("larger than 1 MiB"), "{detail}");

    let slow = Other::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        while stream.write_all(b"{").is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let silent = Other::start(|_, stream| {
        let _ = stream.read(&mut [0; 1]);
        thread::sleep(Duration::from_secs(30));
    });
    for source in [slow, silent] {
        let bounds = Bounds { within: Duration::from_millis(400), ..Bounds::default() };
        let server = self::server(&[source.url()], bounds).await;
        let started = Instant::now();
        let detail = refused(ask(&server, &source.url()).await, 502, "source-failed");
        assert!(detail.contains("did not answer in full"), "{detail}");
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    }
}

#[tokio::test]
async fn more_visitors_than_turns_are_asked_to_come_again() {
    let slow = Other::start(|_, _| thread::sleep(Duration::from_secs(5)));
    let bounds = Bounds { within: Duration::from_secs(1), ..Bounds::default() };
    let server = server(&[slow.url()], bounds).await;
    let url = slow.url();
    let answers = futures_util::future::join_all((0..3).map(|_| ask(&server, &url))).await;
    let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [429, 502, 502]);
}
