//! A team at work: people who read reports with their browsers and agents that send, for minutes, against one server. Run
//! by `cargo xtask bench load`, optimised; here it is passed over. `RANKSCOPE_LOAD_SECONDS` makes it shorter.

#![allow(clippy::unwrap_used)] // a helper that fails should stop the bench

mod common;

use common::{
    data,
    live::{MIB, batch, gzip, node, now},
    multipart, multipart_type, percentile,
};
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode, body::Bytes, header};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rankscope::{
    accounts::{Accounts, DEFAULT_PROJECT, Role, Scope, Scopes},
    intake,
    limits::Limits,
    multipart::Form,
    service::Service,
    store::Store,
};
use serde_json::{Value, json};
use std::{
    fmt::Write as _,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::time::{sleep, sleep_until, timeout};

/// People who read, each signed in with a session of their own.
const BROWSERS: usize = 200;
/// Of them watch `/live` besides.
const WATCHERS: usize = 50;
/// A person looks at a page for so long before the next one, in milliseconds: from, and spread.
const THINK_MS: (u64, u64) = (3000, 4000);
const NODES: usize = 64;
const GPUS: u32 = 8;
const HZ: u32 = 10;
/// Nodes of one job.
const NODES_OF_JOB: usize = 8;
/// Reports in the store before anybody comes.
const RUNS: usize = 16;
/// Steps of eight ranks in the log of each report.
const STEPS: u32 = 2000;
const SECONDS: u64 = 300;
/// What agents have read before anybody comes, and send as from their spools: live windows of the server reach as far back.
const FILLED_SECONDS: u64 = 3600;
/// After it the first views of everything are over and caches are filled.
const WARM_PERCENT: usize = 40;
const BAR_P99: Duration = Duration::from_millis(500);
/// Growth of the server's memory from then to the end, as a part of it.
const BAR_GROWTH: f64 = 0.10;
/// What does not answer within this is an error.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

type Http = Client<HttpConnector, Full<Bytes>>;

/// What the browsers and agents saw.
#[derive(Default)]
struct Seen {
    pages: Vec<(&'static str, Duration)>,
    batches: Vec<Duration>,
    errors: Vec<String>,
}

impl Seen {
    fn error(&mut self, text: String) {
        self.errors.push(text);
    }
}

/// A log of eight ranks, one of them heavy now and then.
fn log(seed: u32) -> String {
    let mut text = String::new();
    for step in 0..STEPS {
        for rank in 0..8u32 {
            let noise = (step + seed).wrapping_mul(2_654_435_761).rotate_left(rank) >> 24;
            let heavy = if rank == seed % 8 && step % 97 < 7 { 6000 } else { 0 };
            let allocated = 20_000 + noise + heavy;
            writeln!(text, "rank={rank} step={step} allocated={allocated}MiB reserved={}MiB", allocated + 900).unwrap();
        }
    }
    text
}

/// Users with sessions, reports, and a token for agents, as a team has them; gives secrets of sessions, ids of runs and
/// the token.
async fn team(folder: &Path) -> (Vec<String>, Vec<String>, String) {
    let store = Store::open(folder).await.unwrap();
    let accounts = Accounts::of(&store);
    let root = accounts.add_user(&"root".parse().unwrap(), true).await.unwrap();
    // Where nodes and the runs that begin by themselves belong.
    let project = DEFAULT_PROJECT.to_owned();
    let mut sessions = Vec::new();
    for number in 0..BROWSERS {
        let name = format!("person-{number:03}").parse().unwrap();
        let user = accounts.add_user(&name, false).await.unwrap();
        let role = if number % 4 == 0 { Role::Editor } else { Role::Viewer };
        accounts.set_member(&project, &name, Some(role)).await.unwrap();
        sessions.push(accounts.start_session(&user.id).await.unwrap().secret);
    }
    let scopes = Scopes::new(&[Scope::Samples]);
    let token = accounts.add_token(&root.id, &project, "agents", &scopes, None).await.unwrap().token;
    let service = Service::new(store, Limits::default());
    let mut runs = Vec::new();
    for number in 0..RUNS {
        let (smi, script) = (data("nvidia-smi.txt"), data("train.py"));
        let log = log(u32::try_from(number).unwrap());
        let form = multipart(&[
            ("files", Some("nvidia-smi.txt"), &smi),
            ("files", Some("train.py"), &script),
            ("files", Some("train-steps.log"), log.as_bytes()),
        ]);
        let form = Form::new(multipart_type().as_bytes(), form.into(), u64::MAX, Limits::default().pace()).unwrap();
        let mut upload = intake::receive(form, &service.store, &service.limits).await.unwrap();
        (upload.title, upload.project) = (Some(format!("run {number}")), Some(project.clone()));
        runs.push(service.create_run(upload).await.unwrap().report.run.id.clone());
    }
    service.store.close().await;
    (sessions, runs, token)
}

fn serve(folder: &Path) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rankscope"))
        .args(["serve", "--no-sampler", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = loop {
        let line = printed.next().unwrap().unwrap();
        if let Some((_, rest)) = line.split_once("http://") {
            break rest.split_whitespace().next().unwrap().trim_end_matches('/').to_owned();
        }
    };
    // What it prints later is read too, so that it never waits for us.
    std::thread::spawn(move || printed.for_each(drop));
    (child, address)
}

/// The pages and charts of a person's work, in turns.
fn places(run: &str, other: &str, turn: usize) -> (&'static str, String) {
    let from = turn % 10 * 150;
    match turn % 8 {
        0 => ("/", "/".to_owned()),
        1 | 4 => ("/runs/{id}", format!("/runs/{run}")),
        2 | 5 => (
            "timeline.svg",
            format!("/api/v1/runs/{run}/charts/timeline.svg?from={from}&to={}&width=720&theme=page", from + 300),
        ),
        3 => ("checklist", format!("/runs/{run}/checklist/model")),
        6 => ("/compare", format!("/compare?base={run}&head={other}")),
        _ => ("/live", "/live".to_owned()),
    }
}

async fn read(http: &Http, address: &str, session: &str, path: &str) -> Result<usize, String> {
    let request = Request::get(format!("http://{address}{path}"))
        .header(header::COOKIE, format!("rankscope_session={session}"))
        .header(header::ACCEPT_ENCODING, "br, gzip")
        .body(Full::default())
        .unwrap();
    let answer = async {
        let answer = http.request(request).await.map_err(|error| format!("{path}: {error}"))?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|error| format!("{path}: {error}"))?.to_bytes();
        if status == StatusCode::OK { Ok(body.len()) } else { Err(format!("{path} answered {status}")) }
    };
    timeout(ANSWER_WITHIN, answer).await.map_err(|_| format!("{path}: no answer within {ANSWER_WITHIN:?}"))?
}

async fn browse(
    http: Http,
    address: String,
    session: String,
    runs: Arc<Vec<String>>,
    number: usize,
    end: Instant,
    seen: Arc<Mutex<Seen>>,
) {
    let think = |turn: usize| {
        let spread = ((number * 7919 + turn * 104_729) as u64) % THINK_MS.1;
        Duration::from_millis(THINK_MS.0 + spread)
    };
    // People do not come in step.
    sleep(think(number) * u32::try_from(number % 16).unwrap() / 16).await;
    let mut turn = number;
    while Instant::now() < end {
        let (run, other) = (&runs[(number + turn / 5) % runs.len()], &runs[(number + turn) % runs.len()]);
        let (kind, path) = places(run, other, turn);
        // One run beside itself is no comparison.
        if kind != "/compare" || run != other {
            let asked = Instant::now();
            let answer = read(&http, &address, &session, &path).await;
            let took = asked.elapsed();
            let mut seen = seen.lock().unwrap();
            match answer {
                Ok(_) => seen.pages.push((kind, took)),
                Err(error) => seen.error(error),
            }
        }
        sleep(think(turn)).await;
        turn += 1;
    }
}

async fn watch(http: Http, address: String, session: String, end: Instant, seen: Arc<Mutex<Seen>>) -> u64 {
    let request = Request::get(format!("http://{address}/api/v1/live/events"))
        .header(header::COOKIE, format!("rankscope_session={session}"))
        .body(Full::default())
        .unwrap();
    let mut bytes = 0;
    match http.request(request).await {
        Ok(answer) if answer.status() == StatusCode::OK => {
            let mut body = answer.into_body();
            while let Ok(frame) = tokio::time::timeout_at(end.into(), body.frame()).await {
                match frame {
                    Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, Bytes::len) as u64,
                    Some(Err(error)) => {
                        seen.lock().unwrap().error(format!("events: {error}"));
                        break;
                    }
                    None => {
                        seen.lock().unwrap().error("events ended".to_owned());
                        break;
                    }
                }
            }
        }
        Ok(answer) => seen.lock().unwrap().error(format!("events answered {}", answer.status())),
        Err(error) => seen.lock().unwrap().error(format!("events: {error}")),
    }
    bytes
}

/// One second of a node as its agent sends it: memory ten times, the processes of its ranks once.
fn second(number: usize, count: u64) -> Vec<Value> {
    let columns: Vec<Value> = (0..u64::from(GPUS))
        .map(|gpu| {
            let value = |n: u32| {
                let noise =
                    (count * 10 + u64::from(n) + gpu * 31 + number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                // One rank of each job swells.
                let swells = if gpu == 0 && number.is_multiple_of(NODES_OF_JOB) { count.min(120) * 64 } else { 0 };
                (60_000 + swells + noise % 64 * 2) * MIB
            };
            json!({"subject": {"device": gpu}, "used": (0..HZ).map(value).collect::<Vec<_>>()})
        })
        .collect();
    let dt: Vec<u32> = (0..HZ).map(|n| n * (1_000_000 / HZ)).collect();
    let job = number / NODES_OF_JOB;
    let processes: Vec<Value> = (0..GPUS)
        .map(|gpu| {
            let rank = u32::try_from(number % NODES_OF_JOB).unwrap() * GPUS + gpu;
            json!({"subject": {"device": gpu}, "pid": 4000 + gpu, "kind": "C", "name": "python", "used": 59_000 * MIB,
                "rank": {"rank": rank, "local_rank": gpu, "world_size": NODES_OF_JOB * GPUS as usize, "job": format!("job-{job}")}})
        })
        .collect();
    vec![
        json!({"type": "memory", "dt_us": dt, "devices": columns}),
        json!({"type": "processes", "listing": "listed", "processes": processes}),
    ]
}

/// An agent of one node.
struct Agent {
    http: Http,
    address: String,
    token: String,
    number: usize,
    /// Lines and seconds that it has sent.
    sent: (u64, u64),
}

impl Agent {
    /// Sends these seconds, which end at `until`, as one batch.
    async fn send(&mut self, seconds: u64, until: i64) -> Result<(), String> {
        let (number, (first, count)) = (self.number, self.sent);
        let (source, host) = (format!("agent-{number}"), format!("node-{number:03}"));
        let at = |second: u64| until - i64::try_from(seconds - second).unwrap() * 1_000_000;
        let mut records: Vec<(i64, Value)> = if count == 0 { vec![(at(0), node(GPUS))] } else { Vec::new() };
        for n in 0..seconds {
            records.extend(second(number, count + n).into_iter().map(|record| (at(n), record)));
        }
        self.sent = (first + records.len() as u64, count + seconds);
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{}/api/v1/samples", self.address))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_ENCODING, "gzip")
            .body(Full::from(gzip(&batch(&source, &host, first, &records))))
            .unwrap();
        let answer = timeout(ANSWER_WITHIN, async {
            let answer = self.http.request(request).await.map_err(|error| error.to_string())?;
            let status = answer.status();
            let text = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
            if status == StatusCode::OK { Ok(()) } else { Err(format!("{status}: {}", String::from_utf8_lossy(&text))) }
        });
        let answer = answer.await.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_WITHIN:?}")));
        answer.map_err(|error| format!("batch of {host}: {error}"))
    }

    /// What it read in the hour before, as from a spool: what the server keeps of an hour is full then, as after any hour of
    /// work, and grows no more.
    async fn catch_up(&mut self) -> Result<(), String> {
        const AT_ONCE: u64 = 60;
        let begin = now() - i64::try_from(FILLED_SECONDS).unwrap() * 1_000_000;
        for sent in (0..FILLED_SECONDS).step_by(usize::try_from(AT_ONCE).unwrap()) {
            self.send(AT_ONCE, begin + i64::try_from(sent + AT_ONCE).unwrap() * 1_000_000).await?;
        }
        Ok(())
    }

    /// A second each second.
    async fn go_on(mut self, end: Instant, seen: Arc<Mutex<Seen>>) {
        let mut due = tokio::time::Instant::now() + Duration::from_millis(self.number as u64 * 1000 / NODES as u64);
        while Instant::now() < end {
            sleep_until(due).await;
            due += Duration::from_secs(1);
            let asked = Instant::now();
            let answer = self.send(1, now()).await;
            let mut seen = seen.lock().unwrap();
            match answer {
                Ok(()) => seen.batches.push(asked.elapsed()),
                Err(error) => {
                    seen.error(error);
                    // What was not taken leaves a gap, and an agent would send it again; here it ends what is measured.
                    return;
                }
            }
        }
    }
}

/// Resident memory of a process, in MiB.
fn resident_mib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib / 1024)
}

fn row(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{what:<14}{:>7}   p50 {:>6.1} ms   p99 {:>6.1} ms   max {:>6.1} ms",
        times.len(),
        ms(percentile(times, 50)),
        ms(percentile(times, 99)),
        ms(times.last().copied().unwrap_or_default()),
    );
}

#[test]
#[ignore = "a measurement: cargo xtask bench load"]
fn a_team_reads_and_agents_send() {
    let seconds = std::env::var("RANKSCOPE_LOAD_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (sessions, runs, token) = runtime.block_on(team(folder.path()));
    let (mut child, address) = serve(folder.path());
    println!(
        "{BROWSERS} signed-in browsers, {WATCHERS} of them also on /live; {NODES} agents of {GPUS} GPUs at {HZ} Hz; {seconds} s; \
         all on this machine, the load too"
    );
    let (seen, runs) = (Arc::new(Mutex::new(Seen::default())), Arc::new(runs));
    let length = Duration::from_secs(seconds);
    let (memory, events) = runtime.block_on(async {
        let http: Http = Client::builder(TokioExecutor::new()).build_http();
        let begun = Instant::now();
        let agent =
            |number| Agent { http: http.clone(), address: address.clone(), token: token.clone(), number, sent: (0, 0) };
        let mut catching_up = tokio::task::JoinSet::new();
        for mut agent in (0..NODES).map(agent) {
            catching_up.spawn(async move { agent.catch_up().await.map(|()| agent) });
        }
        let agents = catching_up.join_all().await.into_iter().collect::<Result<Vec<Agent>, _>>().unwrap();
        println!("an hour of all agents was taken in within {:.0} s", begun.elapsed().as_secs_f64());
        let end = Instant::now() + length;
        let mut work = tokio::task::JoinSet::new();
        for agent in agents {
            work.spawn(agent.go_on(end, Arc::clone(&seen)));
        }
        for (number, session) in sessions.iter().cloned().enumerate() {
            let runs = Arc::clone(&runs);
            work.spawn(browse(http.clone(), address.clone(), session, runs, number, end, Arc::clone(&seen)));
        }
        let mut watchers = tokio::task::JoinSet::new();
        for session in sessions.iter().take(WATCHERS).cloned() {
            watchers.spawn(watch(http.clone(), address.clone(), session, end, Arc::clone(&seen)));
        }
        let mut memory = Vec::new();
        while Instant::now() < end {
            sleep(Duration::from_secs(1)).await;
            memory.extend(resident_mib(child.id()));
        }
        work.join_all().await;
        (memory, watchers.join_all().await.iter().sum::<u64>())
    });
    let _ = child.kill();
    let _ = child.wait();

    let mut seen = seen.lock().unwrap();
    let Seen { pages, batches, errors } = &mut *seen;
    let mut kinds: Vec<&str> = pages.iter().map(|(kind, _)| *kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let mut times: Vec<Duration> = pages.iter().filter(|(of, _)| *of == kind).map(|(_, took)| *took).collect();
        row(kind, &mut times);
    }
    let mut all: Vec<Duration> = pages.iter().map(|(_, took)| *took).collect();
    row("all pages", &mut all);
    row("batches", batches);
    println!("events: {} MiB to {WATCHERS} browsers", events >> 20);
    let warm = memory.get(memory.len() * WARM_PERCENT / 100).copied().unwrap_or_default();
    let last = memory.last().copied().unwrap_or_default();
    let growth = last as f64 / warm.max(1) as f64 - 1.0;
    println!(
        "memory of the server: {} MiB after a second, {warm} MiB after {:.0} s, {last} MiB at the end, {:+.0} % since",
        memory.first().copied().unwrap_or_default(),
        seconds as f64 * WARM_PERCENT as f64 / 100.0,
        growth * 100.0,
    );
    for error in errors.iter().take(10) {
        println!("error: {error}");
    }
    let p99 = percentile(&all, 99);
    let met = errors.is_empty() && p99 < BAR_P99 && growth < BAR_GROWTH;
    println!(
        "bars: no error ({}), p99 of pages < {} ms ({:.0} ms), memory steady, < {:.0} % ({:+.0} %): {}",
        errors.len(),
        BAR_P99.as_millis(),
        p99.as_secs_f64() * 1e3,
        BAR_GROWTH * 100.0,
        growth * 100.0,
        if met { "met" } else { "not met" }
    );
}
