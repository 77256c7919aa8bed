//! Two servers on one `PostgreSQL` and one bucket: what agents and people see is the same on both, and what becomes of it when
//! one is killed amid everything. The `PostgreSQL` is the one that `RANKSCOPE_TEST_DATABASE_URL` names.

#![cfg(unix)] // the stub of the driver's library
#![allow(clippy::unwrap_used)] // a helper that fails should stop the test

mod common;
#[path = "common/bucket.rs"]
mod server;
#[path = "../../crates/telemetry/tests/support/mod.rs"]
mod support;

use common::{
    data,
    live::{batch, gzip, losses},
    multipart, multipart_type,
};
use rankscope::{
    accounts::{Accounts, Role},
    live::batch::{Lines, read},
    store::{Database, DatabaseUrl},
};
use serde_json::{Value, json};
use server::{BUCKET, BucketServer};
use sqlx::{AssertSqlSafe, Executor, PgPool, Row, postgres::PgPoolOptions};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};
use support::Stub;
use tempfile::TempDir;

/// What two servers have in common.
struct House {
    folder: TempDir,
    url: DatabaseUrl,
    given: String,
    pool: PgPool,
    bucket: BucketServer,
}

impl House {
    /// `None` where no database is named.
    async fn new(name: &str) -> Option<Self> {
        let Ok(given) = std::env::var("RANKSCOPE_TEST_DATABASE_URL") else {
            println!("passed over: no PostgreSQL is named");
            return None;
        };
        let schema = format!("t_{name}_{}", std::process::id());
        let pool = PgPoolOptions::new().max_connections(2).connect(&given).await.unwrap();
        pool.execute(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).await.unwrap();
        let mut url = url::Url::parse(&given).unwrap();
        url.query_pairs_mut().append_pair("options[search_path]", &schema);
        let folder = tempfile::tempdir().unwrap();
        let bucket = BucketServer::start(&folder.path().join("bucket"));
        let given = url.to_string();
        let pool = PgPoolOptions::new().max_connections(2).connect(&given).await.unwrap();
        Some(Self { folder, url: given.parse().unwrap(), given, pool, bucket })
    }

    fn command(&self, name: &str, extra: &[&str]) -> Command {
        let mut command = self.any_command("serve", name);
        command.args(["--no-sampler", "--listen", "127.0.0.1:0"]).args(extra);
        command
    }

    fn any_command(&self, what: &str, name: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rankscope"));
        for (variable, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AWS_")) {
            command.env_remove(variable);
        }
        command.env("RUST_LOG", "info").env("RANKSCOPE_DATABASE_URL", &self.given);
        command.arg(what).arg("--data").arg(self.folder.path().join(name));
        command
    }

    /// Starts it on the bucket; gives also the first line that it prints, and where it writes its log.
    fn spawn(&self, name: &str, mut command: Command) -> (Child, String, PathBuf) {
        let log = self.folder.path().join(format!("{name}.log"));
        command.args(["--objects", &format!("s3://{BUCKET}/scope"), "--objects-plain-http"]);
        command.args(["--objects-endpoint", &self.bucket.endpoint(), "--objects-credentials-file"]);
        command.arg(self.bucket.credentials());
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(file).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        (child, line, log)
    }

    fn start(&self, name: &str, extra: &[&str]) -> Serving {
        let (child, line, log) = self.spawn(name, self.command(name, extra));
        let said = || format!("{line:?}\n{}", fs::read_to_string(&log).unwrap());
        let rest = line.strip_prefix("Rankscope serves http://").unwrap_or_else(|| panic!("{}", said()));
        let address = rest.split(' ').next().unwrap().to_owned();
        Serving { child, address, log, cookie: None }
    }

    /// A worker for these servers.
    fn work(&self, name: &str) -> Serving {
        let (child, line, log) = self.spawn(name, self.any_command("worker", name));
        let said = || format!("{line:?}\n{}", fs::read_to_string(&log).unwrap());
        assert!(line.starts_with("Rankscope works for the servers on "), "{}", said());
        Serving { child, address: String::new(), log, cookie: None }
    }

    async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// Objects of runs that no row knows.
    async fn orphans(&self) -> Vec<String> {
        let runs: Vec<String> = sqlx::query_scalar("SELECT id FROM runs").fetch_all(&self.pool).await.unwrap();
        let of_run =
            |key: &String| key.strip_prefix("scope/runs/").map(|rest| rest.split('/').next().unwrap().to_owned());
        let mut keys = self.bucket.keys();
        keys.retain(|key| of_run(key).is_some_and(|run| !runs.contains(&run)));
        keys
    }

    /// Every line of each source as the log has it, by its position.
    async fn lines(&self) -> BTreeMap<String, Vec<u64>> {
        let sql = "SELECT source, gzip, known, body FROM live_batches WHERE kind = 'batch' ORDER BY position";
        let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for row in sqlx::query(sql).fetch_all(&self.pool).await.unwrap() {
            let mut batch = read(row.get("body"), row.get::<i64, _>("gzip") == 1).unwrap();
            if let Some(known) = row.get::<Option<i64>, _>("known") {
                batch.keep_after(known.cast_unsigned());
            }
            let Lines::Agent(lines) = &batch.lines else { panic!("no probe was there") };
            found.entry(row.get("source")).or_default().extend(lines.iter().map(|line| line.seq));
        }
        found
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        // What the servers have said tells more than the test does.
        for name in ["a", "b", "gpu-a", "gpu-b", "worker-a", "worker-b"] {
            let log = fs::read_to_string(self.folder.path().join(format!("{name}.log"))).unwrap_or_default();
            println!("--- {name}\n{log}");
        }
    }
}

struct Serving {
    child: Child,
    address: String,
    log: PathBuf,
    /// Who asks.
    cookie: Option<String>,
}

/// Status, head and body; `None` where the connection broke.
fn ask(address: &str, head: &str, body: &[u8]) -> Option<(u16, String, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_mins(1))).ok()?;
    let (method, rest) = head.split_once("\r\n").unwrap_or((head, ""));
    let head = format!(
        "{method} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n{rest}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        unchunked(&answer[end + 4..])
    } else {
        answer[end + 4..].to_vec()
    };
    Some((status, head, body))
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            break;
        }
        whole.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 4 + size..];
    }
    whole
}

impl Serving {
    /// The same server, asked by somebody else.
    fn head(&self, method: &str, path: &str, more: &str) -> String {
        let cookie =
            self.cookie.as_ref().map(|cookie| format!("Cookie: {cookie}\r\nOrigin: http://{}\r\n", self.address));
        format!("{method} {path}\r\n{}{more}", cookie.unwrap_or_default())
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let (status, _, body) = ask(&self.address, &self.head("GET", path, ""), b"").unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    fn upload(&self, path: &str) -> (u16, Value) {
        let body = multipart(&[("files", Some("nvidia-smi.txt"), &data("nvidia-smi.txt"))]);
        let kind = format!("Content-Type: {}\r\n", multipart_type());
        let (status, _, body) = ask(&self.address, &self.head("POST", path, &kind), &body).unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    fn leads(&self) -> bool {
        fs::read_to_string(&self.log).unwrap().contains("this server leads:")
    }

    fn nodes(&self) -> Vec<Value> {
        let (status, answer) = self.get("/api/v1/nodes");
        assert_eq!(status, 200, "{answer}");
        answer["nodes"].as_array().unwrap().clone()
    }

    fn kill(&mut self) {
        // SIGKILL
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something is there.
fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    let mut look = look;
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// What stands in front of several servers: each connection goes to the next one that listens.
struct Balancer {
    address: String,
}

impl Balancer {
    fn before(servers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let next = AtomicUsize::new(0);
            for near in listener.incoming() {
                let near = near.unwrap();
                let turn = next.fetch_add(1, SeqCst);
                let mut by_turns = (0..servers.len()).map(|n| &servers[(turn + n) % servers.len()]);
                let Some(far) = by_turns.find_map(|server| TcpStream::connect(server).ok()) else { continue };
                for (mut from, mut into) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut into);
                        let _ = into.shutdown(std::net::Shutdown::Both);
                        let _ = from.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Self { address }
    }
}

struct Agent(Child);

impl Agent {
    fn start(node: &str, balancer: &Balancer, stub: &Stub, token: &Path, folder: &Path) -> Self {
        let spool = folder.join(format!("spool-{node}"));
        let log = File::create(folder.join(format!("{node}.log"))).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rankscope"));
        command.args(["agent", "--node", node, "--server", &format!("http://{}", balancer.address), "--token-file"]);
        command.arg(token).arg("--nvml-library").arg(stub.library());
        command.arg("--proc").arg(stub.proc_folder()).arg("--spool").arg(spool);
        Self(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    /// Asks it to end; it brings what it has to the server first.
    fn end(mut self) {
        assert!(Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Four ranks of a job on two nodes, two on each.
fn ranks(first: u32) -> String {
    let gpus = "gpu total=81920 reserved=600 idle=4 busy=90 power=300\n".repeat(2);
    let rank = |n: u32| {
        let (pid, rank) = (100 + n, first + n);
        format!(
            "proc pid={pid} env=RANK={rank};LOCAL_RANK={n};WORLD_SIZE=4;SLURM_JOB_ID=77\n\
             process gpu={n} pid={pid} used=30000 wave=1000 period=3\n"
        )
    };
    format!("{gpus}{}{}", rank(0), rank(1))
}

const PASSWORD: &str = "correct horse battery";

/// A session of a user, begun at one of the servers.
fn sign_in(server: &Serving, name: &str) -> String {
    let form = format!("name={name}&password={}", PASSWORD.replace(' ', "+"));
    let head = format!(
        "POST /login\r\nOrigin: http://{}\r\nContent-Type: application/x-www-form-urlencoded\r\n",
        server.address
    );
    let (status, head, _) = ask(&server.address, &head, form.as_bytes()).unwrap();
    assert_eq!(status, 303, "{head}");
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

/// A stream of events that is read in the background.
fn listen(server: &Serving, path: &str) -> Arc<Mutex<String>> {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let cookie = server.cookie.as_ref().map(|cookie| format!("Cookie: {cookie}\r\n")).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n{cookie}\r\n", server.address).unwrap();
    let heard = Arc::new(Mutex::new(String::new()));
    let into = Arc::clone(&heard);
    thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(count) = stream.read(&mut piece) {
            if count == 0 {
                return;
            }
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..count]));
        }
    });
    heard
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_killed_amid_everything_costs_nothing_and_shows_nothing_to_the_wrong_ones() {
    let Some(house) = House::new("replicas").await else { return };
    let token = house.folder.path().join("token");
    fs::write(&token, "a-token-that-nobody-guesses").unwrap();
    let with_token = ["--agent-token-file", token.to_str().unwrap()];

    // Who is who: an administrator, somebody of the project that has the nodes, and somebody of another.
    let database = Database::at(&house.url, 2).await.unwrap();
    database.migrate().await.unwrap();
    let accounts = Accounts::over(database);
    for (name, is_admin) in [("ada", true), ("bo", false), ("mallory", false)] {
        let user = accounts.add_user(&name.parse().unwrap(), is_admin).await.unwrap();
        accounts.set_password(&user, PASSWORD.into()).await.unwrap();
    }
    let other = accounts.add_project("Elsewhere").await.unwrap();
    accounts.set_member("default", &"bo".parse().unwrap(), Some(Role::Editor)).await.unwrap();
    accounts.set_member(&other.id, &"mallory".parse().unwrap(), Some(Role::Admin)).await.unwrap();

    let mut servers = [house.start("a", &with_token), house.start("b", &with_token)];
    until("one leads", || servers.iter().any(Serving::leads).then_some(()));
    assert!(!servers.iter().all(Serving::leads));
    let alone = house.command("alone", &[]).output().unwrap();
    let said = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(!alone.status.success() && said.contains("another rankscope serves the database"), "{said}");

    // A session that begins at one goes on at the other.
    let (bo, mallory) = (sign_in(&servers[0], "bo"), sign_in(&servers[1], "mallory"));
    for server in &mut servers {
        server.cookie = Some(bo.clone());
    }

    // Two agents, whose connections go to one or the other.
    let balancer = Balancer::before(servers.iter().map(|server| server.address.clone()).collect());
    let stubs = [Stub::new(&ranks(0)), Stub::new(&ranks(2))];
    let agents: Vec<Agent> = [("gpu-a", &stubs[0]), ("gpu-b", &stubs[1])]
        .into_iter()
        .map(|(node, stub)| Agent::start(node, &balancer, stub, &token, house.folder.path()))
        .collect();
    let run_of = |server: &Serving| {
        let nodes = server.nodes();
        let runs: BTreeSet<String> =
            nodes.iter().filter_map(|node| Some(node["runs"][0]["id"].as_str()?.to_owned())).collect();
        let are_all = nodes.len() == 2 && nodes.iter().all(|node| node["runs"][0]["id"].is_string());
        (are_all && runs.len() == 1).then(|| runs.first().unwrap().clone())
    };
    let run = until("both nodes and their run on the first", || run_of(&servers[0]));
    assert_eq!(until("the same on the second", || run_of(&servers[1])), run);
    let path = format!("/api/v1/runs/{run}");
    for server in &servers {
        // It begins with the node that came first.
        until("a run that goes on on two nodes", || {
            let (status, report) = server.get(&path);
            let is_of_both = report["title"] == "Slurm job 77 on 2 nodes" && report["live"]["nodes"] == 2;
            (status == 200 && is_of_both).then_some(())
        });
    }
    let not_for_mallory = |server: &Serving, run: &str| {
        let stranger = Serving {
            child: Command::new("true").spawn().unwrap(),
            address: server.address.clone(),
            log: PathBuf::new(),
            cookie: Some(mallory.clone()),
        };
        assert_eq!(stranger.get(&format!("/api/v1/runs/{run}")).0, 404);
        assert_eq!(stranger.get(&format!("/api/v1/runs/{run}/live")).0, 404);
        let (status, nodes) = stranger.get("/api/v1/nodes");
        assert!(status >= 400, "{status} {nodes}");
        let (_, runs) = stranger.get("/api/v1/runs");
        assert_eq!(runs["runs"].as_array().map(Vec::len), Some(0), "{runs}");
    };
    for server in &servers {
        not_for_mallory(server, &run);
    }

    // A run that is begun at one gets files at the other.
    let (status, made) = servers[0].upload("/api/v1/runs");
    assert_eq!(status, 201, "{made}");
    let uploaded = made["id"].as_str().unwrap().to_owned();
    let (status, more) = servers[1].upload(&format!("/api/v1/runs/{uploaded}/files"));
    assert_eq!(status, 201, "{more}");
    for server in &servers {
        let (status, report) = server.get(&format!("/api/v1/runs/{uploaded}"));
        assert_eq!((status, &report["version"]), (200, &json!(2)), "{report}");
        not_for_mallory(server, &uploaded);
    }

    // Whoever leads is killed: while one upload is on its way into the bucket, another has come half, and browsers listen.
    let lead = servers.iter().position(Serving::leads).unwrap();
    let survivor = 1 - lead;
    let heard = listen(&servers[survivor], "/api/v1/live/events");
    let ticks = listen(&servers[survivor], &format!("/api/v1/runs/{run}/live"));
    house.bucket.stall_at_part(2);
    let large: Vec<u8> = (0u32..6 << 20).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let body =
        multipart(&[("files", Some("nvidia-smi.txt"), &data("nvidia-smi.txt")), ("files", Some("large.bin"), &large)]);
    let head = servers[lead].head("POST", "/api/v1/runs", &format!("Content-Type: {}\r\n", multipart_type()));
    let address = servers[lead].address.clone();
    let in_the_bucket = {
        let (head, address, body) = (head.clone(), address.clone(), body.clone());
        thread::spawn(move || ask(&address, &head, &body))
    };
    let mut half = TcpStream::connect(&address).unwrap();
    let (first, rest) = head.split_once("\r\n").unwrap();
    write!(half, "{first} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n{rest}\r\n", body.len()).unwrap();
    half.write_all(&body[..body.len() / 2]).unwrap();
    until("an upload is on its way into the bucket", || (house.bucket.parts() >= 2).then_some(()));
    assert!(!house.orphans().await.is_empty(), "its first file is there already");
    let before = house.lines().await;
    servers[lead].kill();
    let killed = Instant::now();
    house.bucket.stall_at_part(0);
    assert!(in_the_bucket.join().unwrap().is_none(), "it was never acknowledged");
    drop(half);
    heard.lock().unwrap().clear();
    ticks.lock().unwrap().clear();

    let left = &servers[survivor];
    until("the other one leads", || left.leads().then_some(()));
    println!("led after {:?}", killed.elapsed());
    until("both nodes go on, as browsers see them", || {
        let heard = heard.lock().unwrap();
        (heard.contains("gpu-a") && heard.contains("gpu-b")).then_some(())
    });
    until("the run goes on, as browsers see it", || ticks.lock().unwrap().contains("event: run").then_some(()));
    until("what was half in the bucket is gone", || {
        let orphans = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(house.orphans()));
        orphans.is_empty().then_some(())
    });
    println!("cleared up after {:?}", killed.elapsed());
    assert_eq!(house.count("SELECT COUNT(*) FROM pending WHERE run_id NOT IN (SELECT id FROM runs)").await, 0);
    assert_eq!(run_of(left).as_ref(), Some(&run), "it is the same run");
    assert_eq!(house.count("SELECT COUNT(*) FROM live_runs").await, 1);
    not_for_mallory(left, &run);
    let (status, runs) = left.get("/api/v1/runs");
    assert_eq!((status, runs["runs"].as_array().unwrap().len()), (200, 2), "{runs}");

    // Agents bring what they have; then each line is there once.
    for agent in agents {
        agent.end();
    }
    let lines = house.lines().await;
    assert_eq!(lines.len(), 2, "one source for each agent");
    for (source, seqs) in &lines {
        let expected: Vec<u64> = (0..seqs.len() as u64).collect();
        assert_eq!(*seqs, expected, "{source}: nothing is missing, nothing is there twice");
        let had = before.get(source).map_or(0, Vec::len);
        assert!(had > 0 && seqs.len() > had, "{source}: {had}, then {}", seqs.len());
    }
    let nodes = until("both have ended, and both are known to have", || {
        let nodes = left.nodes();
        nodes.iter().all(|node| node["ended"] == true).then_some(nodes)
    });
    assert!(!format!("{nodes:?}").contains("were lost"), "{nodes:?}");

    // The one that was killed comes back, and sees what the other sees.
    let back = {
        let mut back = house.start(["a", "b"][lead], &with_token);
        back.cookie = Some(bo.clone());
        back
    };
    let names = |server: &Serving| server.nodes().iter().map(|node| node["node"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&back), ["gpu-a", "gpu-b"]);
    // Which runs go on it learns from rows, a moment after the nodes.
    until("it sees what the other sees", || (back.nodes() == left.nodes()).then_some(()));
    not_for_mallory(&back, &run);
    assert_eq!(back.get("/readyz").0, 200);

    // Every sample of a window, some of which each of the two had taken in.
    let heard = nodes.iter().map(|node| node["heard_at"].as_i64().unwrap()).min().unwrap();
    let (from, to) = (heard - 12_000_000, heard - 2_000_000);
    let window = |server: &Serving| {
        let (status, series) = server.get(&format!("{path}/series?from={from}&to={to}&points=10000"));
        assert_eq!(status, 200, "{series}");
        series["columns"].clone()
    };
    let columns = window(&back);
    for column in columns.as_array().unwrap() {
        let x: Vec<i64> = serde_json::from_value(column["x"].clone()).unwrap();
        let within = x.iter().filter(|x| (from..=to).contains(x)).count();
        assert!(within > 80, "{within} samples in ten seconds: {column}");
    }
    assert_eq!((columns.as_array().unwrap().len(), &window(left)), (4, &columns));

    // A node that is removed at one is gone at the other, and stays so.
    let removing = back.head("POST", "/api/v1/nodes/remove", "Content-Type: application/json\r\n");
    let cookie = sign_in(&back, "ada");
    let removing = removing.replace(&bo, &cookie);
    let (status, _, said) = ask(&back.address, &removing, br#"{"node":"gpu-a"}"#).unwrap();
    assert_eq!(status, 204, "{}", String::from_utf8_lossy(&said));
    assert_eq!(names(&back), ["gpu-b"]);
    until("it is gone at the other", || (names(left) == ["gpu-b"]).then_some(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn additions_to_one_run_at_two_servers_wait_for_each_other() {
    let Some(house) = House::new("additions").await else { return };
    let servers = [house.start("a", &[]), house.start("b", &[])];
    let (status, made) = servers[0].upload("/api/v1/runs");
    assert_eq!(status, 201, "{made}");
    let path = format!("/api/v1/runs/{}", made["id"].as_str().unwrap());
    thread::scope(|scope| {
        for n in 0..8 {
            let (server, path) = (&servers[n % 2], format!("{path}/files"));
            scope.spawn(move || assert_eq!(server.upload(&path).0, 201));
        }
    });
    for server in &servers {
        let (status, report) = server.get(&path);
        assert_eq!((status, &report["version"]), (200, &json!(9)));
        assert_eq!(report["diagnosis"]["artifacts"].as_array().unwrap().len(), 9, "each saw all before it");
    }
    assert_eq!(house.count("SELECT COUNT(*) FROM pending").await, 0);
    assert!(!house.bucket.keys().iter().any(|key| key.contains(".before-")), "nothing was in the way of another");
}

/// Agents that send at the same time.
const SENDERS: usize = 4;
/// Lines of a batch.
const LINES: u64 = 5;
/// Words in a line that nothing compresses.
const WORDS: u64 = 400;

fn post(address: &str, body: &[u8]) -> Option<u64> {
    let (status, _, answer) = ask(address, "POST /api/v1/samples\r\nContent-Encoding: gzip\r\n", body)?;
    let answer: Value = serde_json::from_slice(&answer).ok()?;
    if status == 200 { answer["acknowledged"].as_u64() } else { None }
}

/// Lines of a node that a server counts.
fn counted(server: &Serving, sender: usize) -> u64 {
    let name = format!("node-{sender}");
    let node = server.nodes().into_iter().find(|node| node["node"] == name.as_str());
    let notes = node.map(|node| node["notes"].to_string()).unwrap_or_default();
    let samples = notes.split(" samples)").next().unwrap_or_default().rsplit('(').next().unwrap_or_default().to_owned();
    samples.parse().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_lose_nothing_acknowledged_and_what_goes_to_both_counts_once() {
    let rounds: usize = std::env::var("RANKSCOPE_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3);
    let Some(house) = House::new("kills").await else { return };
    // Small, so that segments fill, states are written down and room is made.
    let small = ["--live-keep-bytes", "4MiB"];
    let mut servers = [house.start("a", &small), house.start("b", &small)];
    let acknowledged: Vec<Mutex<Option<u64>>> = (0..SENDERS).map(|_| Mutex::default()).collect();
    for round in 0..rounds {
        let addresses = [servers[0].address.clone(), servers[1].address.clone()];
        let stop = AtomicBool::new(false);
        let send = |sender: usize| {
            let mut turn = sender;
            while !stop.load(SeqCst) {
                let first = acknowledged[sender].lock().unwrap().map_or(0, |last| last + 1);
                let body = gzip(&batch(
                    &format!("agent-{sender}"),
                    &format!("node-{sender}"),
                    first,
                    &losses(first..first + LINES, WORDS),
                ));
                turn += 1;
                let [here, there] = [&addresses[turn % 2], &addresses[(turn + 1) % 2]];
                // Sometimes to both at once, as after an answer that did not come in time.
                let answers = if turn.is_multiple_of(3) {
                    thread::scope(|scope| {
                        let other = scope.spawn(|| post(there, &body));
                        [post(here, &body), other.join().unwrap()]
                    })
                } else {
                    [post(here, &body), None]
                };
                if let Some(last) = answers.into_iter().flatten().max() {
                    *acknowledged[sender].lock().unwrap() = Some(last);
                }
            }
        };
        thread::scope(|scope| {
            for sender in 0..SENDERS {
                let send = &send;
                scope.spawn(move || send(sender));
            }
            // Long enough for a look after the log.
            thread::sleep(Duration::from_millis(6000 + u64::try_from(round).unwrap() * 97));
            servers[round % 2].kill();
            thread::sleep(Duration::from_millis(1500));
            stop.store(true, SeqCst);
        });
        servers[round % 2] = house.start(["a", "b"][round % 2], &small);
        for (sender, acknowledged) in acknowledged.iter().enumerate() {
            let last = acknowledged.lock().unwrap().expect("something was acknowledged");
            // Sending what was acknowledged last changes nothing, and says how much is kept.
            let first = last + 1 - LINES;
            let body = gzip(&batch(
                &format!("agent-{sender}"),
                &format!("node-{sender}"),
                first,
                &losses(first..first + LINES, WORDS),
            ));
            let kept = post(&servers[round % 2].address, &body).unwrap();
            assert!(kept == last || kept == last + LINES, "round {round}: {kept} of {last} kept");
            for server in &servers {
                let mut seen = 0;
                until(&format!("round {round}, sender {sender}: {} lines, not {seen}", kept + 1), || {
                    seen = counted(server, sender);
                    assert!(seen <= kept + 1, "round {round}: {seen} of {}", kept + 1);
                    (seen == kept + 1).then_some(())
                });
            }
            *acknowledged.lock().unwrap() = Some(kept);
        }
    }
    let lines: u64 = acknowledged.iter().map(|last| last.lock().unwrap().map_or(0, |last| last + 1)).sum();
    println!("{rounds} kills, {lines} lines acknowledged");
    assert!(house.count("SELECT COUNT(*) FROM live_checkpoints").await > 0, "a state was written down");
    assert!(house.count("SELECT MIN(first) FROM live_segments").await > 1, "room was made");
    for server in &servers {
        let log = fs::read_to_string(&server.log).unwrap();
        assert!(!log.contains("ERROR") && !log.contains("could not"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_a_worker_that_is_killed_is_done_by_another_and_once() {
    let Some(house) = House::new("work").await else { return };
    let server = house.start("a", &["--workers", "0"]);
    let (status, made) = server.upload("/api/v1/runs");
    assert_eq!(status, 201, "{made}");
    let run = made["id"].as_str().unwrap().to_owned();
    let of_run = || server.get(&format!("/api/v1/runs/{run}")).1;
    let read_again = || {
        let path = format!("/api/v1/runs/{run}/read-again");
        let (status, _, _) = ask(&server.address, &server.head("POST", &path, ""), b"").unwrap();
        assert_eq!(status, 202);
    };
    // The turn at the run is somebody else's, so whoever reads it again cannot end.
    let mut turn = house.pool.acquire().await.unwrap();
    let lock = "SELECT pg_advisory_lock(hashtext('rankscope run ' || current_schema()), hashtext($1))";
    sqlx::query(lock).bind(&run).execute(&mut *turn).await.unwrap();
    read_again();
    assert_eq!(of_run()["waiting"], 1);

    let mut first = house.work("worker-a");
    let held = || {
        let (_, _, text) = ask(&server.address, &server.head("GET", "/metrics", ""), b"").unwrap();
        String::from_utf8(text).unwrap().contains("rankscope_jobs{state=\"held\"} 1").then_some(())
    };
    until("the worker has the job", held);
    first.kill();
    drop(first);
    let second = house.work("worker-b");
    let unlock = "SELECT pg_advisory_unlock(hashtext('rankscope run ' || current_schema()), hashtext($1))";
    sqlx::query(unlock).bind(&run).execute(&mut *turn).await.unwrap();
    until("the other worker has done it", || (of_run()["waiting"] == 0).then_some(()));
    assert_eq!(of_run()["version"], 2);
    assert!(fs::read_to_string(&second.log).unwrap().contains("a job has ended"));
    assert_eq!(house.count("SELECT COUNT(*) FROM diagnoses").await, 2);
    assert_eq!(house.count("SELECT COUNT(*) FROM pending").await, 0);
    assert_eq!(house.orphans().await, [""; 0]);
    assert!(!second.leads());

    // The next one is a matter of a moment.
    read_again();
    until("it is done once more", || (of_run()["version"] == 3).then_some(()));
}

#[test]
fn a_worker_without_its_servers_says_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rankscope"));
    let worker =
        command.args(["worker", "--data"]).arg(folder.path()).env_remove("RANKSCOPE_DATABASE_URL").output().unwrap();
    assert_eq!(worker.status.code(), Some(2));
    let said = String::from_utf8(worker.stderr).unwrap();
    assert!(said.contains("--database-url") && said.contains("--objects"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_one_server_had_begun_to_take_in_is_ended_at_another() {
    let Some(house) = House::new("parts").await else { return };
    let mut servers = [house.start("a", &[]), house.start("b", &[])];
    // More than what is kept at once, and a table at the end of it. The lines are long, as each costs its reader time.
    let mut file = [b' '; 1023].iter().copied().chain([b'\n']).cycle().take(20 << 20).collect::<Vec<u8>>();
    file.extend_from_slice(&data("nvidia-smi.txt"));
    let length = format!("Upload-Length: {}\r\nUpload-Metadata: filename c21pLnR4dA==\r\n", file.len());
    let first = &servers[0];
    let (status, head, _) = ask(&first.address, &first.head("POST", "/api/v1/uploads", &length), b"").unwrap();
    assert_eq!(status, 201, "{head}");
    let head = head.to_ascii_lowercase();
    let address = head.split("location: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
    let kept = |server: &Serving| {
        let (_, head, _) = ask(&server.address, &server.head("GET", &address, ""), b"").unwrap();
        let head = head.to_ascii_lowercase();
        head.split("upload-offset: ").nth(1).unwrap().split("\r\n").next().unwrap().parse::<usize>().unwrap()
    };
    let from = |offset: usize| format!("Upload-Offset: {offset}\r\nContent-Type: application/offset+octet-stream\r\n");

    // Nearly all of it is sent to the first one, which is killed before it answers.
    let mut stream = TcpStream::connect(&first.address).unwrap();
    let head = first.head("PATCH", &address, &from(0)).replacen("\r\n", " HTTP/1.1\r\n", 1);
    write!(stream, "{head}Host: {}\r\nContent-Length: {}\r\n\r\n", first.address, file.len()).unwrap();
    stream.write_all(&file[..18 << 20]).unwrap();
    let second = &servers[1];
    until("a first piece is kept", || (kept(second) > 0).then_some(()));
    servers[0].kill();
    let second = &servers[1];
    let end = kept(second);
    assert!((16 << 20..18 << 20).contains(&end), "{end}");
    let (status, head, _) = ask(&second.address, &second.head("PATCH", &address, &from(end)), &file[end..]).unwrap();
    assert_eq!(status, 204, "{head}");
    assert_eq!(kept(second), file.len());

    let id = address.rsplit('/').next().unwrap();
    let body = multipart(&[("upload", None, id.as_bytes())]);
    let kind = format!("Content-Type: {}\r\n", multipart_type());
    let (status, _, made) = ask(&second.address, &second.head("POST", "/api/v1/runs", &kind), &body).unwrap();
    let made: Value = serde_json::from_slice(&made).unwrap();
    assert_eq!((status, &made["verdict"]), (201, &json!("imbalance")), "{made}");
    let bytes = format!("/api/v1/runs/{}/artifacts/0", made["id"].as_str().unwrap());
    let (_, _, bytes) = ask(&second.address, &second.head("GET", &bytes, ""), b"").unwrap();
    assert!(bytes == file, "byte for byte");
    assert_eq!(house.count("SELECT COUNT(*) FROM upload_parts").await, 0);
    assert!(house.bucket.keys().iter().all(|key| !key.contains("/uploads/")), "{:?}", house.bucket.keys());
}
