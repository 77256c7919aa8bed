//! The binary itself: what it prints, how it ends, and that nothing acknowledged is lost when it is killed.

#![allow(clippy::unwrap_used)] // a helper that fails should stop the test

mod common;
#[path = "process/bucket.rs"]
mod in_a_bucket;

use common::{data, data_path, multipart, multipart_type};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(data: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rankscope"));
        Self::spawn(command.args(["serve", "--no-sampler", "--listen", "127.0.0.1:0", "--data"]).arg(data), data)
    }

    fn spawn(command: &mut Command, data: &Path) -> Self {
        Self::spawn_with(command, data, Stdio::null())
    }

    fn spawn_with(command: &mut Command, data: &Path, log: impl Into<Stdio>) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        // Sign by sign: what follows the line is somebody else's.
        let mut line = String::new();
        while !line.ends_with('\n') {
            let mut sign = [0];
            child.stdout.as_mut().unwrap().read_exact(&mut sign).unwrap();
            line.push(char::from(sign[0]));
        }
        let rest = line.strip_prefix("Rankscope serves http://").unwrap_or_else(|| panic!("{line:?}"));
        let (address, folder) = rest.trim_end().split_once(" (data in ").unwrap();
        assert_eq!(folder, format!("{})", data.display()));
        Self { child, address: address.to_owned() }
    }

    /// Status and body.
    fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> (u16, Vec<u8>) {
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
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), answer[end + 4..].to_vec())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn acknowledged_uploads_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(folder.path());
    let smi = data("nvidia-smi.txt");
    let body = multipart(&[("files", Some("nvidia-smi.txt"), &smi)]);
    let (status, answer) = serving.send("POST", "/api/v1/runs", &multipart_type(), &body);
    assert_eq!(status, 201, "{}", String::from_utf8_lossy(&answer));
    let made: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    drop(serving); // SIGKILL

    let serving = Serving::start(folder.path());
    let path = format!("/api/v1/runs/{}", made["id"].as_str().unwrap());
    let (status, answer) = serving.send("GET", &path, "", b"");
    assert_eq!(status, 200);
    let run: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(run["diagnosis"]["verdict"], made["verdict"]);
    assert_eq!(serving.send("GET", &format!("{path}/artifacts/0"), "", b""), (200, smi));
}

/// Runs `rankscope` to its end.
fn run(arguments: &[&std::ffi::OsStr]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rankscope")).args(arguments).output().unwrap()
}

fn upload(serving: &Serving) -> String {
    let body = multipart(&[("files", Some("nvidia-smi.txt"), &data("nvidia-smi.txt"))]);
    let (status, answer) = serving.send("POST", "/api/v1/runs", &multipart_type(), &body);
    assert_eq!(status, 201, "{}", String::from_utf8_lossy(&answer));
    let made: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    made["id"].as_str().unwrap().to_owned()
}

#[test]
fn copies_made_while_runs_come_and_go_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("data");
    let serving = Serving::start(&old);
    let kept = upload(&serving);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let copies: Vec<_> = (0..4).map(|n| folder.path().join(format!("copy-{n}.tar"))).collect();
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut before = None;
            let mut rounds = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let new = upload(&serving);
                if let Some(run) = before.replace(new) {
                    assert_eq!(serving.send("DELETE", &format!("/api/v1/runs/{run}"), "", b"").0, 204);
                }
                rounds += 1;
            }
            rounds
        });
        for copy in &copies {
            let done = run(&["backup".as_ref(), "--data".as_ref(), old.as_ref(), copy.as_ref()]);
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success() && said.starts_with("Saved "), "{said}");
            assert!(!said.contains("missing"), "{said}");
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(traffic.join().unwrap() >= 1);
    });
    let same = run(&["backup".as_ref(), "--data".as_ref(), old.as_ref(), copies[0].as_ref()]);
    assert!(!same.status.success(), "a file that is there is not written over");
    drop(serving);
    // Nothing of the copying is left in the folder.
    let left = std::fs::read_dir(&old)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("backup-"));
    assert_eq!(left.count(), 0);

    for (n, copy) in copies.iter().enumerate() {
        let new = folder.path().join(format!("new-{n}"));
        let done = run(&["restore".as_ref(), "--data".as_ref(), new.as_ref(), copy.as_ref()]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let serving = Serving::start(&new);
        let (_, list) = serving.send("GET", "/api/v1/runs", "", b"");
        let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
        let ids: Vec<&str> = list["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect();
        assert!(ids.contains(&kept.as_str()), "{ids:?}");
        for id in ids {
            let path = format!("/api/v1/runs/{id}");
            assert_eq!(serving.send("GET", &path, "", b"").0, 200);
            assert_eq!(serving.send("GET", &format!("{path}/artifacts/0"), "", b""), (200, data("nvidia-smi.txt")));
            assert_eq!(serving.send("GET", &format!("/runs/{id}"), "", b"").0, 200);
        }
    }
    let again = run(&["restore".as_ref(), "--data".as_ref(), old.as_ref(), copies[0].as_ref()]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("is not empty"));
    let nothing = run(&["backup".as_ref(), "--data".as_ref(), folder.path().as_ref(), "-".as_ref()]);
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("holds no database"));
}

#[test]
fn a_lost_database_costs_no_upload() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(&folder.path().join("old"));
    let body = multipart(&[("files", Some("nvidia-smi.txt"), &data("nvidia-smi.txt"))]);
    let (status, answer) = serving.send("POST", "/api/v1/runs", &multipart_type(), &body);
    assert_eq!(status, 201);
    let made: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    drop(serving);
    // Only the objects are carried over, as from an incomplete backup.
    let new = folder.path().join("new");
    std::fs::create_dir(&new).unwrap();
    std::fs::rename(folder.path().join("old/objects"), new.join("objects")).unwrap();
    for _ in 0..2 {
        let serving = Serving::start(&new);
        assert_eq!(serving.send("GET", "/readyz", "", b"").0, 200);
    }
    let kept = new.join("objects/runs").join(made["id"].as_str().unwrap()).join("artifacts");
    assert_eq!(std::fs::read_dir(kept).unwrap().count(), 1);
}

#[test]
#[cfg(unix)]
fn it_ends_in_order_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(folder.path());
    let mut second = Command::new(env!("CARGO_BIN_EXE_rankscope"));
    second.args(["serve", "--no-sampler", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path());
    let refused = second.output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("in use by another rankscope"));

    let asked = Command::new("kill").args(["-TERM", &serving.child.id().to_string()]).status().unwrap();
    assert!(asked.success());
    assert!(serving.child.wait().unwrap().success());
}

#[test]
fn it_does_not_open_itself_to_the_network_by_accident() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rankscope"));
    command.args(["serve", "--no-sampler", "--listen", "0.0.0.0:0", "--data"]).arg(folder.path());
    let mut serving = Serving::spawn(&mut command, folder.path());
    let mut lines = BufReader::new(serving.child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let link = lines.find_map(|line| line.trim().split_once("/setup/").map(|(_, secret)| secret.to_owned())).unwrap();
    serving.address = serving.address.replace("0.0.0.0", "127.0.0.1");
    for path in ["/", "/runs/1", "/login", "/settings", "/docs", "/api/v1/runs", "/metrics", "/setup", "/nowhere"] {
        assert_eq!(serving.send("GET", path, "", b"").0, 403, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(serving.send("GET", path, "", b"").0, 200, "a load balancer asks before there is anybody: {path}");
    }
    let form = "application/x-www-form-urlencoded";
    let body = multipart(&[("text", None, b"x")]);
    assert_eq!(serving.send("POST", "/api/v1/runs", &multipart_type(), &body).0, 403);
    assert_eq!(serving.send("GET", "/setup/guess", "", b"").0, 404);
    let path = format!("/setup/{link}");
    assert_eq!(serving.send("GET", &path, "", b"").0, 200);
    let fields = b"name=ada&password=correct+horse+battery";
    assert_eq!(serving.send("POST", &path, form, fields).0, 303);
    assert_eq!(serving.send("POST", &path, form, fields).0, 404, "the link works once");
    assert_eq!(serving.send("GET", "/", "", b"").0, 303, "and now everybody has to sign in");
    assert_eq!(serving.send("GET", "/api/v1/runs", "", b"").0, 401);
}

#[test]
fn accounts_can_be_made_beside_a_running_server() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(folder.path());
    assert_eq!(serving.send("GET", "/api/v1/runs", "", b"").0, 200);
    let user = |arguments: &[&str], input: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rankscope"))
            .arg("user")
            .args(arguments)
            .arg("--data")
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let refused = user(&["add", "ada", "--password-stdin"], "short\n");
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("at least 12"), "{}", text(&refused.stderr));
    assert_eq!(user(&["passwd", "ada"], "").status.code(), Some(2), "a mistake leaves no account behind");
    let link = user(&["add", "ada"], "");
    let link = text(&link.stdout).split_once("/setup/").unwrap().1.trim().to_owned();
    // Seen by the server within a second.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(serving.send("GET", "/api/v1/runs", "", b"").0, 401, "also on loopback");
    assert_eq!(serving.send("GET", &format!("/setup/{link}"), "", b"").0, 200);
    let set = user(&["passwd", "ada", "--password-stdin"], "correct horse battery\n");
    assert!(set.status.success(), "{}", text(&set.stderr));
    let form = "application/x-www-form-urlencoded";
    assert_eq!(serving.send("POST", "/login", form, b"name=ada&password=wrong+horse+battery").0, 401);
    assert_eq!(serving.send("POST", "/login", form, b"name=ada&password=correct+horse+battery").0, 303);
    let listed = user(&["list"], "");
    assert!(text(&listed.stdout).contains("administrator"), "the first user is one: {}", text(&listed.stdout));
    assert_eq!(user(&["passwd", "nobody"], "").status.code(), Some(2));
}

fn diagnose(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rankscope"))
        .arg("diagnose")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn diagnose_writes_every_format() {
    let (smi, script) = (data_path("nvidia-smi.txt"), data_path("train.py"));
    let files = [smi.to_str().unwrap(), script.to_str().unwrap()];
    let done = diagnose(&[&files[..], &["--format", "json"]].concat(), b"");
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(json["format"], "rankscope.diagnosis/1");
    let first = json["causes"][0]["label"].as_str().unwrap();
    assert!(["ctx_no_set_device", "ckpt_no_map_location"].contains(&first), "{first}");
    assert_eq!(json["artifacts"][0]["name"], "nvidia-smi.txt");

    let done = diagnose(&files, b"");
    let shown = text(&done.stdout);
    for word in
        ["Imbalance\n", "GPU 0", "stands out", "\nCauses\n", first, "\nChecklist\n", "\nFiles\n", "nvidia-smi.txt"]
    {
        assert!(shown.contains(word), "{word:?} is not in\n{shown}");
    }
    assert!(!shown.contains('\u{1b}'), "colours without a terminal");

    let done = diagnose(&[&files[..], &["--format", "html"]].concat(), b"");
    assert!(text(&done.stdout).starts_with("<!DOCTYPE html>"));
    let done = diagnose(&[&files[..], &["--format", "markdown"]].concat(), b"");
    assert!(text(&done.stdout).starts_with("# nvidia-smi.txt and 1 more file"));
}

#[test]
fn diagnose_takes_folders_and_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("b.txt"), data("nvidia-smi.txt")).unwrap();
    std::fs::write(folder.path().join("a.log"), data("train.log")).unwrap();
    std::fs::write(folder.path().join(".hidden"), "no").unwrap();
    let done = diagnose(&["--format", "json", folder.path().to_str().unwrap(), "-"], &data("nvidia-smi.txt"));
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let names: Vec<_> =
        json["artifacts"].as_array().unwrap().iter().map(|found| found["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a.log", "b.txt", "standard input"]);
    assert!(text(&done.stderr).contains("1 hidden file or folder was not read"), "{}", text(&done.stderr));
}

#[test]
#[cfg(unix)]
fn what_can_be_read_once_only_is_read_like_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::write(pipe, data("nvidia-smi.txt")).unwrap()
    });
    let done = diagnose(&["--format", "json", pipe.to_str().unwrap()], b"");
    writer.join().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&json["artifacts"][0]["name"], &json["artifacts"][0]["kind"]), (&"pipe".into(), &"nvidia_smi".into()));
    // Kernel files have no size, but text.
    if Path::new("/proc/self/status").exists() {
        let done = diagnose(&["--format", "json", "/proc/self/status"], b"");
        let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        assert!(json["artifacts"][0]["bytes"].as_u64().unwrap() > 100, "{json}");
    }
}

#[test]
#[cfg(unix)]
fn one_closed_file_costs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), data("nvidia-smi.txt")).unwrap();
    let closed = folder.path().join("b.log");
    std::fs::write(&closed, "x").unwrap();
    std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let done = diagnose(&[folder.path().to_str().unwrap()], b"");
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("Imbalance\n") && text(&done.stdout).contains("b.log"));
    // The superuser may read it after all.
    if std::fs::File::open(&closed).is_err() {
        assert!(text(&done.stderr).contains("b.log"), "{}", text(&done.stderr));
    }
}

#[test]
fn a_folder_of_folders_gives_one_run_with_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..3 {
        let own = folder.path().join(format!("attempt_0/{rank}"));
        std::fs::create_dir_all(&own).unwrap();
        let lines = format!("[train] step=1 cur=10240.0MB peak={}.0MB\n", 20480 + rank);
        std::fs::write(own.join("stdout.log"), lines).unwrap();
    }
    let done = diagnose(&["--format", "json", folder.path().to_str().unwrap()], b"");
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let ranks: Vec<_> = json["artifacts"].as_array().unwrap().iter().map(|found| found["ranks"].to_string()).collect();
    assert_eq!(ranks, ["[0]", "[1]", "[2]"]);
    assert_eq!(json["artifacts"][1]["name"], "attempt_0/1/stdout.log");
}

#[test]
fn the_exit_status_tells_what_happened() {
    let smi = data_path("nvidia-smi.txt");
    let smi = smi.to_str().unwrap();
    assert_eq!(diagnose(&["--fail-on", "imbalance", smi], b"").status.code(), Some(1));
    let folder = tempfile::tempdir().unwrap();
    let (missing, empty) = (folder.path().join("missing.log"), folder.path().join("empty"));
    std::fs::create_dir(&empty).unwrap();
    let wrong = diagnose(&[smi, missing.to_str().unwrap(), empty.to_str().unwrap()], b"");
    // What can be read is reported; the status says that two names lead to nothing.
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stdout).starts_with("Imbalance\n"), "{}", text(&wrong.stdout));
    for words in [text(&wrong.stderr), text(&wrong.stdout)] {
        assert!(words.contains("missing.log") && words.contains("no files in this folder"), "{words}");
    }
    let alone = diagnose(&[missing.to_str().unwrap()], b"");
    assert_eq!(alone.status.code(), Some(2));
    assert!(alone.stdout.is_empty() && text(&alone.stderr).contains("No such file"), "{}", text(&alone.stderr));

    let nothing = diagnose(&["-"], b"\x00\x01\x02 no memory here");
    assert_eq!(nothing.status.code(), Some(2));
    assert!(text(&nothing.stderr).contains("standard input"), "{}", text(&nothing.stderr));
    // One bad file beside a good one is named, and no reason to give up.
    let junk = folder.path().join("junk.bin");
    std::fs::write(&junk, [0, 159, 146, 150]).unwrap();
    let both = diagnose(&[smi, junk.to_str().unwrap()], b"");
    assert_eq!(both.status.code(), Some(0));
    assert!(text(&both.stdout).contains("junk.bin"));
    assert_eq!(diagnose(&[], b"").status.code(), Some(2));
    // Readable text that says nothing about memory gets the honest answer, not an error.
    let prose = diagnose(&["--format", "json", "-"], b"epoch 1 loss 0.3\nepoch 2 loss 0.2\n");
    assert_eq!(prose.status.code(), Some(0), "{}", text(&prose.stderr));
    assert!(text(&prose.stdout).contains("\"verdict\": \"inconclusive\""), "{}", text(&prose.stdout));
}

#[test]
fn what_cannot_be_diagnosed_is_named_with_the_reason_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("train.log"), data("train.log")).unwrap();
    std::fs::write(path("weights.bin"), [0x93, 0, 1, 2, 255, 254, 7, 7, 0, 0, 0, 99].repeat(40)).unwrap();
    std::fs::create_dir(path("empty")).unwrap();
    std::fs::create_dir(path("hidden")).unwrap();
    std::fs::write(path("hidden/.x"), "x").unwrap();
    for (name, words) in [
        ("weights.bin", &["weights.bin: binary data of a kind that is not known here"][..]),
        ("trian.log", &["trian.log: No such file", "Did you mean train.log?"]),
        ("none/train.log", &["not even", "is there"]),
        ("empty", &["empty: no files in this folder", "Put the job's files into it"]),
        ("hidden", &["1 hidden file or folder was not read"]),
    ] {
        let done = diagnose(&[&path(name)], b"");
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{name}: {said}");
        assert!(done.stdout.is_empty(), "{name}");
        for words in words.iter().chain(&["nothing to diagnose", "nvidia-smi > smi.txt", "_dump_snapshot", "--nvml"]) {
            assert!(said.contains(words), "{name}: {words:?} is not in\n{said}");
        }
    }
    // Beside something that can be read, the reason stands without the long advice.
    let beside = diagnose(&[&path("train.log"), &path("trian.log")], b"");
    assert_eq!(beside.status.code(), Some(2));
    let said = text(&beside.stderr);
    assert!(said.contains("Did you mean train.log?") && !said.contains("nvidia-smi > smi.txt"), "{said}");
}

#[test]
#[cfg(unix)]
fn what_has_no_end_is_refused_and_what_is_waited_for_is_said() {
    for device in ["/dev/zero", "/dev/null"] {
        let done = diagnose(&[device], b"");
        assert_eq!(done.status.code(), Some(2));
        let said = text(&done.stderr);
        assert!(said.contains(device) && said.contains("a device") && said.contains("pipe it into -"), "{said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let done = diagnose(&[socket.to_str().unwrap()], b"");
    assert!(text(&done.stderr).contains("a socket"), "{}", text(&done.stderr));

    // A pipe that nobody writes to, and standard input that stays open.
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (name, words) in [(pipe.to_str().unwrap(), "waiting for "), ("-", "waiting for standard input")] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rankscope"))
            .args(["diagnose", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut lines = std::io::BufReader::new(child.stderr.as_mut().unwrap());
        std::io::BufRead::read_line(&mut lines, &mut said).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(said.contains(words) && said.contains("yet"), "{said}");
    }
}

#[test]
fn diagnose_holds_a_run_against_the_one_before() {
    let table = String::from_utf8(data("nvidia-smi.txt")).unwrap();
    let strays = ["7102", "7103", "7104"].map(|pid| format!("|    0   N/A  N/A      {pid}"));
    let bound: Vec<&str> = table.lines().filter(|line| !strays.iter().any(|stray| line.starts_with(stray))).collect();
    let folder = tempfile::tempdir().unwrap();
    let after = folder.path().join("after.txt");
    std::fs::write(&after, bound.join("\n").replace("25322MiB", "23831MiB")).unwrap();
    let (before, after) = (data_path("nvidia-smi.txt"), after.to_str().unwrap().to_owned());
    let arguments = ["--baseline", before.to_str().unwrap(), after.as_str()];

    let done = diagnose(&arguments, b"");
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let shown = text(&done.stdout);
    for words in
        ["Fixed\nFixed: GPU 0 was", "no longer stands out", "What became of the causes", "gone: ", "Balanced\n"]
    {
        assert!(shown.contains(words), "{words:?} is not in\n{shown}");
    }
    let done = diagnose(&[&["--format", "json"][..], &arguments].concat(), b"");
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(json["format"], "rankscope.diagnosis/1");
    assert_eq!((&json["verdict"], &json["comparison"]["outcome"]), (&"balanced".into(), &"fixed".into()));
    let done = diagnose(&[&["--format", "markdown"][..], &arguments].concat(), b"");
    assert!(text(&done.stdout).contains("## Compared with the run before\n\n**Fixed.**"), "{}", text(&done.stdout));
    let done = diagnose(&[&["--format", "html"][..], &arguments].concat(), b"");
    assert!(text(&done.stdout).contains("Fixed: GPU 0 was"));

    let twice = diagnose(&["--baseline", before.to_str().unwrap(), before.to_str().unwrap()], b"");
    assert!(text(&twice.stdout).starts_with("Not fixed\n"), "{}", text(&twice.stdout));
    let nothing = diagnose(&["--baseline", folder.path().join("none").to_str().unwrap(), &after], b"");
    assert_eq!(nothing.status.code(), Some(2));
}
