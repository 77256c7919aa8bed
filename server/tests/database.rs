//! The binary with its rows in the `PostgreSQL` that `RANKSCOPE_TEST_DATABASE_URL` names: what stays, who is refused, and
//! what is said while the database is away.

#![cfg(unix)] // a database may be on a socket
#![allow(clippy::unwrap_used)] // a helper that fails should stop the test

#[path = "common/bucket.rs"]
mod bucket;
mod common;

use bucket::{BUCKET, BucketServer};
use common::{data, multipart, multipart_type};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, any::AnyConnectOptions, postgres::PgConnectOptions};
use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    str::FromStr,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use url::Url;

/// A schema of its own for each test; `None` where no database is named.
async fn database(name: &str) -> Option<Url> {
    let Ok(given) = std::env::var("RANKSCOPE_TEST_DATABASE_URL") else {
        println!("passed over: no PostgreSQL is named");
        return None;
    };
    sqlx::any::install_default_drivers();
    let schema = format!("t_{name}_{}", std::process::id());
    let mut connection = AnyConnectOptions::from_str(&given).unwrap().connect().await.unwrap();
    connection.execute(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).await.unwrap();
    let mut url = Url::parse(&given).unwrap();
    url.query_pairs_mut().append_pair("options[search_path]", &schema);
    Some(url)
}

fn rankscope(database: &Url) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rankscope"));
    command.env("RANKSCOPE_DATABASE_URL", database.as_str());
    command
}

fn serve(database: &Url, data: &Path) -> Command {
    let mut command = rankscope(database);
    command.args(["serve", "--no-sampler", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    command
}

struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(database: &Url, data: &Path) -> Self {
        Self::of(&mut serve(database, data))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        while !line.ends_with('\n') {
            let mut sign = [0];
            child.stdout.as_mut().unwrap().read_exact(&mut sign).unwrap();
            line.push(char::from(sign[0]));
        }
        let (address, _) = line.strip_prefix("Rankscope serves http://").unwrap().split_once(' ').unwrap();
        Self { child, address: address.to_owned() }
    }

    /// Status and body.
    fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.send("GET", path, "", b"")
    }

    /// The path of a new run.
    fn upload(&self) -> String {
        let body = multipart(&[("files", Some("nvidia-smi.txt"), &data("nvidia-smi.txt"))]);
        let (status, answer) = self.send("POST", "/api/v1/runs", &multipart_type(), &body);
        assert_eq!(status, 201, "{answer}");
        let made: serde_json::Value = serde_json::from_str(&answer).unwrap();
        format!("/api/v1/runs/{}", made["id"].as_str().unwrap())
    }

    /// The answer to `path` as soon as it has this status.
    fn wait_for(&self, path: &str, status: u16) -> String {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let (now, body) = self.get(path);
            if now == status {
                return body;
            }
            assert!(Instant::now() < until, "{path}: {now}, not {status}: {body}");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn rows_survive_a_kill_and_one_server_has_them() {
    let Some(url) = database("kept").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(&url, folder.path());
    let run = serving.upload();
    assert!(!folder.path().join("rankscope.sqlite").exists());

    let other = folder.path().join("other");
    let refused = serve(&url, &other).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = words(&refused);
    assert!(said.contains("another rankscope serves the database postgres"), "{said}");
    drop(serving); // SIGKILL

    let serving = Serving::start(&url, folder.path());
    let (status, report) = serving.get(&run);
    assert_eq!(status, 200, "{report}");
    assert!(report.contains("nvidia-smi.txt"));
    assert_eq!(serving.get("/api/v1/runs/%00").0, 404, "a sign that no text has is looked for in vain");
    assert_eq!(serving.get("/api/v1/runs?q=%00").0, 200);

    let user = |arguments: &[&str]| rankscope(&url).arg("user").args(arguments).output().unwrap();
    let added = user(&["add", "ada"]);
    assert!(added.status.success(), "{}", words(&added));
    serving.wait_for(&run, 401);
    drop(serving);
    let serving = Serving::start(&url, folder.path());
    assert_eq!(serving.get(&run).0, 401, "accounts stay too");
    let listed = user(&["list"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("administrator"), "{}", words(&listed));
}

/// A folder with its own database, moved to the server and to a bucket, shows the same there.
#[tokio::test]
async fn a_data_folder_moves_to_a_server_and_a_bucket() {
    let Some(url) = database("moved").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    let bucket = BucketServer::start(&folder.path().join("bucket-server"));
    let credentials = bucket.credentials();
    let embedded = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rankscope"));
        command.args(["serve", "--no-sampler", "--listen", "127.0.0.1:0", "--data"]).arg(&old);
        command
    };
    let in_bucket = |command: &mut Command| {
        let address = format!("s3://{BUCKET}/moved");
        command.args(["--objects", &address, "--objects-plain-http", "--objects-endpoint", &bucket.endpoint()]);
        command.arg("--objects-credentials-file").arg(&credentials);
    };
    let migrate = |data: &Path| {
        let mut command = rankscope(&url);
        command.arg("migrate-data").arg("--data").arg(data);
        in_bucket(&mut command);
        command.output().unwrap()
    };
    let nothing = migrate(&new);
    assert!(words(&nothing).contains("holds no database"), "{}", words(&nothing));

    let serving = Serving::of(&mut embedded());
    let runs: Vec<String> = (0..3).map(|_| serving.upload()).collect();
    let (status, told) =
        serving.send("PATCH", &runs[1], "application/json", "{\"title\": \"显存 'quoted' \u{1f600}\"}".as_bytes());
    assert_eq!(status, 204, "{told}");
    let shown = |serving: &Serving| runs.iter().map(|run| serving.get(run)).collect::<Vec<_>>();
    let before = shown(&serving);
    assert!(before.iter().all(|(status, _)| *status == 200) && before[1].1.contains("显存"), "{before:?}");
    let busy = migrate(&old);
    assert!(words(&busy).contains("in use by another rankscope"), "{}", words(&busy));
    drop(serving);

    let moved = migrate(&old);
    let said = String::from_utf8_lossy(&moved.stdout).into_owned();
    assert!(moved.status.success(), "{}", words(&moved));
    assert!(said.contains("the same on both sides") && said.contains("are in the bucket"), "{said}");
    assert!(said.lines().any(|line| line.split_whitespace().eq(["runs", "3"])), "{said}");
    assert_eq!(words(&moved), "", "nothing was missing");
    let again = migrate(&old);
    assert_eq!(again.status.code(), Some(2));
    assert!(words(&again).contains("is in use: its table"), "{}", words(&again));

    let mut there = serve(&url, &new);
    in_bucket(&mut there);
    let serving = Serving::of(&mut there);
    assert_eq!(shown(&serving), before);
    let (status, file) = serving.get(&format!("{}/artifacts/0", runs[2]));
    assert!(status == 200 && file.as_bytes() == data("nvidia-smi.txt"), "{status}: {file}");
    serving.upload();
    drop(serving);
    // The folder is as it was.
    assert_eq!(shown(&Serving::of(&mut embedded())), before);
}

/// What is already lost is told and does not stop the rest; rows that cannot be the same stop all.
#[tokio::test]
async fn what_was_lost_before_a_move_is_named() {
    let Some(url) = database("lost").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut embedded = Command::new(env!("CARGO_BIN_EXE_rankscope"));
    embedded.args(["serve", "--no-sampler", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path());
    let serving = Serving::of(&mut embedded);
    let run = serving.upload();
    drop(serving);
    let id = run.rsplit('/').next().unwrap();
    let artifacts = folder.path().join("objects/runs").join(id).join("artifacts");
    let lost = std::fs::read_dir(&artifacts).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(&lost).unwrap();
    let moved = rankscope(&url).arg("migrate-data").arg("--data").arg(folder.path()).output().unwrap();
    assert!(moved.status.success(), "{}", words(&moved));
    assert!(words(&moved).contains(&format!("missing already: objects/runs/{id}/artifacts")), "{}", words(&moved));
    assert!(String::from_utf8_lossy(&moved.stdout).contains("objects stay in"), "no bucket was named");
    // The rows are on the server, the objects in the folder.
    assert_eq!(Serving::start(&url, folder.path()).get(&run).0, 200);
}

#[tokio::test]
async fn a_database_that_is_away_is_said_and_comes_back() {
    let Some(url) = database("away").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut road = Road::to(&url);
    let serving = Serving::start(&road.url, folder.path());
    let run = serving.upload();

    road.close();
    let asked = Instant::now();
    let body = serving.wait_for(&run, 503);
    assert!(body.contains("did not answer. Try again"), "{body}");
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    assert_eq!(serving.get("/readyz").0, 503);
    assert_eq!(serving.get("/healthz").0, 200);
    let refused = serve(&road.url, &folder.path().join("other")).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = words(&refused);
    assert!(said.contains("postgres://") && said.contains("refused"), "{said}");

    road.open();
    serving.wait_for(&run, 200);
    serving.upload();
    // The hold is taken again, too.
    thread::sleep(Duration::from_secs(4));
    let refused = serve(&url, &folder.path().join("other")).output().unwrap();
    assert!(words(&refused).contains("another rankscope serves"), "{}", words(&refused));
}

/// A road to the database that can be closed, as when it ends or the network does.
struct Road {
    url: Url,
    target: Target,
    port: u16,
    open: Option<(Arc<Open>, JoinHandle<()>)>,
}

#[derive(Clone)]
enum Target {
    Host(String, u16),
    Socket(PathBuf),
}

#[derive(Default)]
struct Open {
    is_closing: std::sync::atomic::AtomicBool,
    ends: Mutex<Vec<End>>,
}

enum End {
    Host(TcpStream),
    Socket(UnixStream),
}

impl End {
    fn to(target: &Target) -> io::Result<Self> {
        Ok(match target {
            Target::Host(host, port) => Self::Host(TcpStream::connect((host.as_str(), *port))?),
            Target::Socket(path) => Self::Socket(UnixStream::connect(path)?),
        })
    }

    fn again(&self) -> Self {
        match self {
            Self::Host(stream) => Self::Host(stream.try_clone().unwrap()),
            Self::Socket(stream) => Self::Socket(stream.try_clone().unwrap()),
        }
    }

    fn end(&self) {
        let _ = match self {
            Self::Host(stream) => stream.shutdown(Shutdown::Both),
            Self::Socket(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for End {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Host(stream) => stream.read(buffer),
            Self::Socket(stream) => stream.read(buffer),
        }
    }
}

impl Write for End {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Host(stream) => stream.write(bytes),
            Self::Socket(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Road {
    fn to(database: &Url) -> Self {
        let options = PgConnectOptions::from_str(database.as_str()).unwrap();
        let port = options.get_port();
        let target = options.get_socket().map_or_else(
            || Target::Host(options.get_host().to_owned(), port),
            |folder| Target::Socket(folder.join(format!(".s.PGSQL.{port}"))),
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut url = database.clone();
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(port)).unwrap();
        let kept: Vec<(String, String)> =
            database.query_pairs().into_owned().filter(|(key, _)| key != "host").collect();
        url.query_pairs_mut().clear().extend_pairs(kept);
        let mut road = Self { url, target, port, open: None };
        road.carry(listener);
        road
    }

    fn open(&mut self) {
        self.carry(TcpListener::bind(("127.0.0.1", self.port)).unwrap());
    }

    fn carry(&mut self, listener: TcpListener) {
        let open = Arc::new(Open::default());
        let (target, shared) = (self.target.clone(), Arc::clone(&open));
        let carrier = thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.is_closing.load(std::sync::atomic::Ordering::SeqCst) {
                    return;
                }
                let (near, far) = (End::Host(stream.unwrap()), End::to(&target).unwrap());
                for (mut from, mut into) in [(near.again(), far.again()), (far.again(), near.again())] {
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut into);
                        into.end();
                    });
                }
                shared.ends.lock().unwrap().extend([near, far]);
            }
        });
        self.open = Some((open, carrier));
    }

    /// Ends all connections; new ones are refused.
    fn close(&mut self) {
        let Some((open, carrier)) = self.open.take() else { return };
        open.is_closing.store(true, std::sync::atomic::Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        carrier.join().unwrap();
        for end in open.ends.lock().unwrap().iter() {
            end.end();
        }
    }
}
