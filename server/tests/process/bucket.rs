//! The binary with its objects in a bucket: what stays, what is refused, and what is said while the bucket is away.

#[path = "../common/bucket.rs"]
mod server;

use super::{Serving, data, upload};
use server::{BUCKET, BucketServer, KEY, SECRET};
use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

/// The binary with a bucket, and with nothing of this test's own environment that would tell it of another.
fn rankscope(server: &BucketServer, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rankscope"));
    let foreign = |name: &str| name.starts_with("RANKSCOPE_") || name.starts_with("AWS_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(foreign)) {
        command.env_remove(name);
    }
    command.env("RANKSCOPE_OBJECTS", format!("s3://{BUCKET}/rank/scope"));
    command.env("RANKSCOPE_OBJECTS_ENDPOINT", server.endpoint());
    command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.args(words).arg("--objects-plain-http");
    command
}

fn serve(server: &BucketServer, data: &Path) -> Command {
    let mut command = rankscope(server, &["serve", "--no-sampler", "--listen", "127.0.0.1:0"]);
    command.arg("--data").arg(data);
    command
}

fn words(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(!text.contains(SECRET), "{text}");
    text
}

#[test]
fn runs_live_in_the_bucket_and_go_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = BucketServer::start(&folder.path().join("server"));
    let at = folder.path().join("data");
    let log = folder.path().join("log");
    let start = |server: &BucketServer| Serving::spawn_with(&mut serve(server, &at), &at, File::create(&log).unwrap());
    let serving = start(&server);
    let run = upload(&serving);
    assert!(server.keys().iter().any(|key| *key == format!("rank/scope/runs/{run}/reports/1.json.gz")));
    assert!(!at.join("objects").exists(), "nothing beside the bucket");
    drop(serving); // SIGKILL

    let serving = start(&server);
    let path = format!("/api/v1/runs/{run}");
    let (status, answer) = serving.send("GET", &path, "", b"");
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
    assert_eq!(serving.send("GET", &format!("{path}/artifacts/0"), "", b""), (200, data("nvidia-smi.txt")));
    assert_eq!(serving.send("GET", "/readyz", "", b"").0, 200);

    server.stop();
    let (status, answer) = serving.send("GET", "/readyz", "", b"");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert_eq!(status, 503, "{answer}");
    assert!(answer.contains("The bucket with this server's files does not answer"), "{answer}");
    assert!(!answer.contains("127.0.0.1"), "visitors are told no addresses: {answer}");
    server.start_again();
    let until = Instant::now() + Duration::from_secs(10);
    while serving.send("GET", "/readyz", "", b"").0 != 200 {
        assert!(Instant::now() < until, "it is back, and the server does not see it");
        thread::sleep(Duration::from_millis(50));
    }

    assert_eq!(serving.send("DELETE", &path, "", b"").0, 204);
    assert_eq!(server.keys(), ["rank/scope/rankscope-check"]);
    drop(serving);
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("does not answer (127.0.0.1:") && !log.contains(SECRET), "{log}");
}

#[test]
fn a_server_that_cannot_use_its_bucket_says_why_and_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = BucketServer::start(&folder.path().join("server"));
    let at = folder.path().join("data");
    let run = |server: &BucketServer, change: &[(&str, &str)]| {
        let output = serve(server, &at).envs(change.iter().copied()).output().unwrap();
        assert!(!output.status.success());
        words(&output)
    };
    let text = run(&server, &[("AWS_SECRET_ACCESS_KEY", "wrong-secret")]);
    assert!(text.contains("does not know the credentials") && text.contains("AWS_ACCESS_KEY_ID"), "{text}");
    assert!(!text.contains("wrong-secret"), "{text}");
    let text = run(&server, &[("RANKSCOPE_OBJECTS", "s3://elsewhere")]);
    assert!(text.contains("the bucket of s3://elsewhere at http://127.0.0.1:"), "{text}");

    let check = |server: &BucketServer| {
        let mut command = rankscope(server, &["config", "check", "--listen", "127.0.0.1:0"]);
        let output = command.arg("--data").arg(&at).output().unwrap();
        (output.status.success(), words(&output))
    };
    let (is_well, text) = check(&server);
    assert!(is_well && text.contains("answers and lists its objects"), "{text}");
    server.stop();
    let (is_well, text) = check(&server);
    assert!(!is_well && text.contains("WRONG  objects:") && text.contains("Connection refused"), "{text}");
    let text = run(&server, &[]);
    assert!(text.contains("does not answer") && text.contains("objects-endpoint"), "{text}");
}

#[test]
fn a_server_moves_from_its_folder_to_a_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let server = BucketServer::start(&folder.path().join("server"));
    let (old, new, copy) = (folder.path().join("old"), folder.path().join("new"), folder.path().join("copy.tar"));
    let serving = Serving::start(&old);
    let run = upload(&serving);
    drop(serving);
    let mut saving = Command::new(env!("CARGO_BIN_EXE_rankscope"));
    let saved = saving.args(["backup", "--data"]).arg(&old).arg(&copy).output().unwrap();
    assert!(saved.status.success(), "{}", words(&saved));
    let restored = rankscope(&server, &["restore"]).arg("--data").arg(&new).arg(&copy).output().unwrap();
    let text = words(&restored);
    assert!(restored.status.success() && text.contains("and the objects to s3://team/rank/scope"), "{text}");

    let serving = Serving::spawn(&mut serve(&server, &new), &new);
    assert_eq!(serving.send("GET", &format!("/api/v1/runs/{run}"), "", b"").0, 200);
    let artifact = format!("/api/v1/runs/{run}/artifacts/0");
    assert_eq!(serving.send("GET", &artifact, "", b""), (200, data("nvidia-smi.txt")));
    // And a copy of it again, while it serves.
    let second = folder.path().join("second.tar");
    let saved = rankscope(&server, &["backup"]).arg("--data").arg(&new).arg(&second).output().unwrap();
    assert!(saved.status.success(), "{}", words(&saved));
    assert!(words(&saved).contains("1 run with 4 objects"), "{}", words(&saved));
}
