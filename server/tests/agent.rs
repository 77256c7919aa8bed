//! The agent as a process, with the stub of the driver's library below it and a real HTTP server above it that can be
//! slow, refuse, lose its answers and be away; and what becomes of its samples when it is killed.

#![allow(clippy::unwrap_used)] // a helper that fails should stop the test
#![cfg(unix)]

#[path = "../../crates/telemetry/tests/support/mod.rs"]
mod support;

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use flate2::read::GzDecoder;
use rankscope_model::{LIVE_FORMAT, LiveBatch, LiveDropped, LiveLine, LiveRecord, LiveStateKind};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};
use support::Stub;
use tokio::{runtime::Runtime, task::JoinHandle};

/// How the server behaves.
#[derive(Debug, Clone, Copy, Default)]
enum Manner {
    #[default]
    Takes,
    /// Answers with this status, and with `Retry-After` where given.
    Refuses(u16, Option<u64>),
    /// Keeps the batch, and breaks off instead of answering.
    LosesAnswers,
    /// Takes so many lines at most.
    Takes413(usize),
    /// Answers after a while.
    Slow(Duration),
}

/// What one source has sent: each position once.
#[derive(Debug, Default)]
struct Source {
    next: u64,
    lines: Vec<LiveLine>,
    dropped: Vec<LiveDropped>,
}

#[derive(Debug, Default)]
struct Recorded {
    manner: Manner,
    sources: BTreeMap<String, Source>,
    node: String,
    token: Option<String>,
    requests: Vec<Instant>,
    /// Lines that came again.
    again: usize,
    /// What no agent may do.
    wrong: Vec<String>,
}

impl Recorded {
    fn take(&mut self, head: &LiveBatch, lines: Vec<LiveLine>) -> Result<u64, u64> {
        let source = self.sources.entry(head.source.clone()).or_default();
        for line in lines {
            if line.seq < source.next {
                self.again += 1;
                continue;
            }
            match line.record {
                LiveRecord::Dropped(dropped) if dropped.first <= source.next && dropped.last == line.seq => {
                    source.dropped.push(dropped);
                }
                _ if line.seq > source.next => return Err(source.next.saturating_sub(1)),
                _ => {}
            }
            source.next = line.seq + 1;
            source.lines.push(line);
        }
        Ok(source.next - 1)
    }

    fn lines(&self) -> Vec<&LiveLine> {
        self.sources.values().flat_map(|source| &source.lines).collect()
    }

    fn states(&self) -> Vec<LiveStateKind> {
        let state = |line: &&LiveLine| match &line.record {
            LiveRecord::State(state) => Some(state.state),
            _ => None,
        };
        self.lines().iter().filter_map(state).collect()
    }

    fn memory_lines(&self) -> usize {
        self.lines().iter().filter(|line| matches!(line.record, LiveRecord::Memory(_))).count()
    }

    fn has_ended(&self) -> bool {
        self.lines().iter().any(|line| line.record == LiveRecord::End)
    }
}

type Shared = Arc<Mutex<Recorded>>;

async fn samples(State(recorded): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let manner = {
        let mut recorded = recorded.lock().unwrap();
        recorded.requests.push(Instant::now());
        recorded.token = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
        recorded.manner
    };
    match manner {
        Manner::Refuses(status, retry_after) => {
            let mut answer = (StatusCode::from_u16(status).unwrap(), r#"{"detail":"Not today."}"#).into_response();
            if let Some(seconds) = retry_after {
                answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
            }
            return answer;
        }
        Manner::Slow(while_) => tokio::time::sleep(while_).await,
        _ => {}
    }
    let mut text = String::new();
    assert_eq!(headers.get(header::CONTENT_ENCODING).unwrap(), "gzip");
    GzDecoder::new(&body[..]).read_to_string(&mut text).unwrap();
    let (head, rest) = text.split_once('\n').unwrap();
    let head: LiveBatch = serde_json::from_str(head).unwrap();
    let lines: Vec<LiveLine> = rest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    if matches!(manner, Manner::Takes413(most) if lines.len() > most) {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    }
    let taken = {
        let mut recorded = recorded.lock().unwrap();
        if head.format != LIVE_FORMAT || lines[0].seq != head.first || lines.last().unwrap().seq != head.last {
            recorded.wrong.push(format!("{head:?}"));
        }
        recorded.node.clone_from(&head.node);
        recorded.take(&head, lines)
    };
    match (taken, manner) {
        (_, Manner::LosesAnswers) => std::panic::resume_unwind(Box::new("the connection breaks off")),
        (Ok(acknowledged), _) => format!(r#"{{"acknowledged":{acknowledged}}}"#).into_response(),
        (Err(acknowledged), _) => {
            (StatusCode::CONFLICT, format!(r#"{{"acknowledged":{acknowledged}}}"#)).into_response()
        }
    }
}

struct Server {
    runtime: Runtime,
    address: SocketAddr,
    recorded: Shared,
    serving: Option<JoinHandle<()>>,
}

impl Server {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut server =
            Self { runtime, address: ([127, 0, 0, 1], 0).into(), recorded: Shared::default(), serving: None };
        server.come();
        server
    }

    /// Listens, at the same address as before.
    fn come(&mut self) {
        let router = Router::new().route("/api/v1/samples", post(samples)).with_state(Arc::clone(&self.recorded));
        let listener = self.runtime.block_on(tokio::net::TcpListener::bind(self.address)).unwrap();
        self.address = listener.local_addr().unwrap();
        self.serving = Some(self.runtime.spawn(async move { axum::serve(listener, router).await.unwrap() }));
    }

    /// Is away: connections are refused.
    fn go(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = self.runtime.block_on(serving);
        }
    }

    fn is(&self, manner: Manner) {
        self.recorded.lock().unwrap().manner = manner;
    }

    /// Waits until what is recorded is so; panics after a minute.
    fn until(&self, what: &str, so: impl Fn(&Recorded) -> bool) {
        let deadline = Instant::now() + Duration::from_mins(1);
        while !so(&self.recorded.lock().unwrap()) {
            assert!(Instant::now() < deadline, "not {what}: {:#?}", self.recorded.lock().unwrap());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn see<T>(&self, look: impl Fn(&Recorded) -> T) -> T {
        look(&self.recorded.lock().unwrap())
    }
}

/// The agent as a process.
struct Agent {
    child: Child,
}

impl Agent {
    fn command(server: &Server, library: &Path, proc: &Path, spool: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rankscope"));
        command.args(["agent", "--node", "gpu7", "--server", &format!("http://{}", server.address)]);
        command.arg("--nvml-library").arg(library).arg("--proc").arg(proc).arg("--spool").arg(spool);
        command.env_remove("RUST_LOG").stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(server: &Server, stub: &Stub, spool: &Path, extra: &[&str]) -> Self {
        let mut command = Self::command(server, &stub.library(), &stub.proc_folder(), spool);
        let mut child = command.args(extra).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("Rankscope samples gpu7 for http://127.0.0.1:"), "{line:?}");
        Self { child }
    }

    /// Asks it to end; its log.
    fn end(mut self) -> String {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(asked.success());
        let began = Instant::now();
        assert!(self.child.wait().unwrap().success());
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // SIGKILL
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const TWO_RANKS: &str = "gpu total=81920 reserved=600 idle=4 busy=90 power=300\ngpu total=81920 reserved=600 idle=4 busy=91\n\
    proc pid=100 env=RANK=0;WORLD_SIZE=2;SLURM_JOB_ID=77\nproc pid=101 env=RANK=1;WORLD_SIZE=2;SLURM_JOB_ID=77\n\
    process gpu=0 pid=100 used=30000\nprocess gpu=1 pid=101 used=31000\n";

const EIGHT_RANKS: &str = include_str!("../../end2end/data/live/healthy.scenario");

/// Full lines of each source that lie in a spool.
fn spooled(spool: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for source in fs::read_dir(spool).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let name = source.file_name().unwrap().to_str().unwrap().to_owned();
        for segment in fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().path()) {
            if segment.extension().is_some_and(|extension| extension == "ndjson") {
                let text = fs::read(&segment).unwrap();
                let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                let lines = String::from_utf8(text[..whole].to_vec()).unwrap();
                found.extend(lines.lines().map(|line| {
                    (name.clone(), serde_json::from_str::<LiveLine>(line).unwrap_or_else(|e| panic!("{line}: {e}")).seq)
                }));
            }
        }
    }
    found
}

#[test]
fn a_node_is_seen_within_a_second_or_so_and_ends_in_order() {
    let (server, stub, spool) = (Server::start(), Stub::new(TWO_RANKS), tempfile::tempdir().unwrap());
    let token = spool.path().join("token");
    fs::write(&token, "secret\n").unwrap();
    let agent = Agent::start(&server, &stub, &spool.path().join("spool"), &["--token-file", token.to_str().unwrap()]);
    server.until("three seconds of samples", |recorded| recorded.memory_lines() >= 3);
    assert!(!agent.end().contains("WARN"), "nothing to warn of");
    server.see(|recorded| {
        assert!(recorded.has_ended());
        assert_eq!((recorded.sources.len(), recorded.again, recorded.wrong.as_slice()), (1, 0, &[][..]));
        assert_eq!((recorded.node.as_str(), recorded.token.as_deref()), ("gpu7", Some("Bearer secret")));
        let nodes: Vec<_> =
            recorded.lines().into_iter().filter(|line| matches!(line.record, LiveRecord::Node(_))).collect();
        let LiveRecord::Node(node) = &nodes[0].record else { unreachable!() };
        assert_eq!((nodes.len(), node.devices.len(), node.hz), (1, 2, Some(10)));
        let ranks = recorded.lines().into_iter().find_map(|line| match &line.record {
            LiveRecord::Processes(processes) => Some(processes.processes.clone()),
            _ => None,
        });
        let ranks: Vec<_> = ranks.unwrap().into_iter().map(|process| process.rank.unwrap()).collect();
        assert_eq!((ranks[1].rank.0, ranks[1].job.as_deref()), (1, Some("slurm:77")));
    });
    assert_eq!(spooled(&spool.path().join("spool")).len() as u64, server.see(|recorded| recorded.lines().len() as u64));
}

#[test]
fn what_was_sampled_while_the_server_was_away_arrives_once() {
    let (mut server, stub, spool) = (Server::start(), Stub::new(TWO_RANKS), tempfile::tempdir().unwrap());
    let agent = Agent::start(&server, &stub, spool.path(), &[]);
    server.until("a first second", |recorded| recorded.memory_lines() >= 1);
    server.go();
    thread::sleep(Duration::from_secs(4));
    server.is(Manner::LosesAnswers);
    server.come();
    server.until("lost answers", |recorded| recorded.again > 0);
    server.is(Manner::Slow(Duration::from_millis(400)));
    let before = server.see(Recorded::memory_lines);
    server.until("more", |recorded| recorded.memory_lines() > before + 1);
    let log = agent.end();
    assert!(log.contains("they are kept in the spool") && log.contains("takes samples again"), "{log}");
    server.see(|recorded| {
        assert!(recorded.has_ended() && recorded.wrong.is_empty());
        let source = recorded.sources.values().next().unwrap();
        assert!(source.dropped.is_empty());
        assert_eq!(source.lines.len() as u64, source.next, "no position is missing, and none counts twice");
    });
}

#[test]
fn a_spool_that_overflows_counts_what_it_gives_up() {
    let (mut server, stub, spool) = (Server::start(), Stub::new(EIGHT_RANKS), tempfile::tempdir().unwrap());
    server.go();
    let agent = Agent::start(&server, &stub, spool.path(), &["--spool-bytes", "48KiB", "--hz", "50"]);
    let size = || -> u64 {
        let segments =
            fs::read_dir(spool.path()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
        segments
            .flat_map(|source| fs::read_dir(source).unwrap())
            .map(|entry| entry.unwrap().metadata().map_or(0, |meta| meta.len()))
            .sum()
    };
    let deadline = Instant::now() + Duration::from_mins(2);
    let gave_up = || {
        let mut sources = fs::read_dir(spool.path()).unwrap().map(|entry| entry.unwrap().path());
        sources.any(|source| source.join("dropped").exists())
    };
    while !gave_up() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(100));
    }
    assert!(size() < (48 << 10) + 4096, "{}", size());
    server.come();
    server.until("the rest", |recorded| recorded.memory_lines() >= 5 && !recorded.sources.is_empty());
    agent.end();
    server.see(|recorded| {
        let source = recorded.sources.values().next().unwrap();
        assert!(!source.dropped.is_empty() && recorded.wrong.is_empty());
        let dropped: u64 = source.dropped.iter().map(|dropped| dropped.last - dropped.first + 1).sum();
        let said = source.lines.len() as u64 - source.dropped.len() as u64;
        assert_eq!(dropped + said, source.next, "every position is a line or counted as lost");
        assert!(source.dropped.iter().all(|dropped| dropped.samples > 0));
    });
}

#[test]
fn a_refused_token_is_said_once_and_not_tried_again_soon() {
    let (server, stub, spool) = (Server::start(), Stub::new(TWO_RANKS), tempfile::tempdir().unwrap());
    server.is(Manner::Refuses(401, None));
    let agent = Agent::start(&server, &stub, spool.path(), &[]);
    server.until("a request", |recorded| !recorded.requests.is_empty());
    thread::sleep(Duration::from_secs(3));
    assert_eq!(server.see(|recorded| recorded.requests.len()), 1);
    let log = agent.end();
    assert_eq!(log.matches("the server refuses samples: HTTP 401: Not today.").count(), 1, "{log}");
    assert!(!spooled(spool.path()).is_empty());
}

#[test]
fn a_busy_server_is_left_alone_as_long_as_it_asks() {
    let (server, stub, spool) = (Server::start(), Stub::new(TWO_RANKS), tempfile::tempdir().unwrap());
    server.is(Manner::Refuses(503, Some(3)));
    let agent = Agent::start(&server, &stub, spool.path(), &[]);
    server.until("two requests", |recorded| recorded.requests.len() >= 2);
    let apart = server.see(|recorded| recorded.requests[1] - recorded.requests[0]);
    assert!((Duration::from_millis(2900)..Duration::from_secs(8)).contains(&apart), "{apart:?}");
    drop(agent);
}

#[test]
fn a_batch_that_is_too_large_is_sent_in_pieces() {
    let (mut server, stub, spool) = (Server::start(), Stub::new(TWO_RANKS), tempfile::tempdir().unwrap());
    server.go();
    let agent = Agent::start(&server, &stub, spool.path(), &[]);
    thread::sleep(Duration::from_secs(4));
    server.is(Manner::Takes413(2));
    server.come();
    server.until("everything in pieces", |recorded| recorded.memory_lines() >= 4);
    server.is(Manner::Takes);
    agent.end();
    server.see(|recorded| {
        let source = recorded.sources.values().next().unwrap();
        assert_eq!((source.lines.len() as u64, source.dropped.len()), (source.next, 0));
    });
}

#[test]
fn a_node_without_a_driver_is_seen_and_says_so() {
    let (server, spool) = (Server::start(), tempfile::tempdir().unwrap());
    let absent = Path::new("/nonexistent/libnvidia-ml.so.1");
    let mut command = Agent::command(&server, absent, Path::new("/proc"), &spool.path().join("spool"));
    let agent = Agent { child: command.spawn().unwrap() };
    server.until("the state", |recorded| recorded.states().contains(&LiveStateKind::NoDriver));
    let log = agent.end();
    assert_eq!(log.matches("no NVIDIA driver library").count(), 1, "{log}");
}

#[test]
fn two_agents_cannot_share_a_spool() {
    let (server, stub, spool) = (Server::start(), Stub::new(TWO_RANKS), tempfile::tempdir().unwrap());
    let _agent = Agent::start(&server, &stub, spool.path(), &[]);
    let second = Agent::command(&server, &stub.library(), &stub.proc_folder(), spool.path()).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("in use by another agent"));
}

/// Kills the agent again and again, while the server is away, loses answers and comes back.
#[test]
fn nothing_that_was_spooled_is_lost_by_kills_and_nothing_counts_twice() {
    let kills: u32 = std::env::var("RANKSCOPE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let (mut server, stub, spool) = (Server::start(), Stub::new(TWO_RANKS), tempfile::tempdir().unwrap());
    let mut written: BTreeSet<(String, u64)> = BTreeSet::new();
    for kill in 0..kills {
        match kill % 4 {
            0 => server.is(Manner::Takes),
            1 => server.is(Manner::LosesAnswers),
            2 => server.go(),
            _ => {
                server.is(Manner::Takes);
                server.come();
            }
        }
        let agent = Agent::start(&server, &stub, spool.path(), &["--hz", "50"]);
        // Some die before their first batch, some in the middle of one.
        thread::sleep(Duration::from_millis(100 + u64::from(kill) * 1379 % 3000));
        drop(agent);
        written.extend(spooled(spool.path()));
    }
    server.go();
    server.is(Manner::Takes);
    server.come();
    let last = Agent::start(&server, &stub, spool.path(), &[]);
    server.until("a second of the last agent", |recorded| {
        recorded.sources.values().last().is_some_and(|source| source.lines.len() > 3) && {
            let missing =
                |(source, seq): &(String, u64)| recorded.sources.get(source).is_none_or(|known| known.next <= *seq);
            !written.iter().any(missing)
        }
    });
    last.end();
    let sources = fs::read_dir(spool.path()).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
    assert_eq!(sources, 1, "what earlier agents left is gone once it has arrived");
    server.see(|recorded| {
        assert!(recorded.wrong.is_empty());
        for (name, source) in &recorded.sources {
            assert!(source.dropped.is_empty(), "{name}");
            assert_eq!(source.lines.len() as u64, source.next, "{name}");
        }
        println!(
            "{kills} kills: {} lines of {} sources, each once; {} came again and did not count",
            recorded.lines().len(),
            recorded.sources.len(),
            recorded.again
        );
    });
}

/// Acknowledges everything, over TLS with the certificate and key that it is given; prints its port.
const TLS_SERVER: &str = r#"
import gzip, http.server, json, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
        last = json.loads(body.split(b"\n")[0])["last"]
        answer = json.dumps({"acknowledged": last}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        print("took", last, flush=True)
    def log_message(self, *unused):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// `false` where a program is missing.
fn make_certificates(folder: &Path) -> bool {
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        command.current_dir(folder).args(arguments.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=ca"))
        && openssl(&format!(
            "req -x509 {key} -CA ca.pem -CAkey ca.key -keyout leaf.key -out leaf.pem -subj /CN=leaf -addext \
             subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE"
        ))
}

#[test]
fn the_authority_of_a_company_can_be_trusted() {
    let folder = tempfile::tempdir().unwrap();
    if !make_certificates(folder.path()) || Command::new("python3").arg("--version").output().is_err() {
        println!("left out: it needs openssl (3.0 or newer) and python3");
        return;
    }
    let mut command = Command::new("python3");
    command.current_dir(folder.path()).args(["-c", TLS_SERVER, "leaf.pem", "leaf.key"]).stdout(Stdio::piped());
    let mut tls = Agent { child: command.stderr(Stdio::null()).spawn().unwrap() };
    let mut printed = BufReader::new(tls.child.stdout.take().unwrap()).lines();
    let port = printed.next().unwrap().unwrap();

    let stub = Stub::new(TWO_RANKS);
    let start = |spool: &str, ca_file: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rankscope"));
        command.args(["agent", "--node", "gpu7", "--server", &format!("https://127.0.0.1:{port}")]);
        command.arg("--nvml-library").arg(stub.library()).arg("--proc").arg(stub.proc_folder());
        command.arg("--spool").arg(folder.path().join(spool));
        if ca_file {
            command.arg("--ca-file").arg(folder.path().join("ca.pem"));
        }
        Agent { child: command.env_remove("RUST_LOG").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap() }
    };
    let mut stranger = start("stranger", false);
    let log = BufReader::new(stranger.child.stderr.take().unwrap());
    let refused = log.lines().map(Result::unwrap).find(|line| line.contains("samples cannot be sent")).unwrap();
    assert!(refused.to_lowercase().contains("certificate"), "{refused}");
    drop(stranger);

    let _agent = start("known", true);
    assert!(printed.next().unwrap().unwrap().starts_with("took "));
}
