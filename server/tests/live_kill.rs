//! `kill -9` at any moment loses nothing that was acknowledged and counts nothing twice, under load, again and again.
//! `RANKSCOPE_KILL_ROUNDS=50` for the long run.

#![allow(clippy::unwrap_used)] // a helper that fails should stop the test

mod common;

use common::live::{batch, gzip, losses};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Agents that send at the same time.
const AGENTS: usize = 4;
/// Lines of a batch; each stands for itself: it brings one process into being.
const LINES: u64 = 5;
/// Words in a line that nothing compresses.
const WORDS: u64 = 40;

struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(data: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rankscope"))
            // Small, so that segments are sealed and states written down all the time.
            .args(["serve", "--no-sampler", "--listen", "127.0.0.1:0", "--live-keep-bytes", "8MiB", "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let rest = line.strip_prefix("Rankscope serves http://").unwrap_or_else(|| panic!("{line:?}"));
        Self { address: rest.split(' ').next().unwrap().to_owned(), child }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status and body; `None` where the connection broke.
fn ask(address: &str, method: &str, path: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let status = String::from_utf8_lossy(&answer[..end]).split(' ').nth(1)?.parse().ok()?;
    Some((status, answer[end + 4..].to_vec()))
}

/// What an agent knows.
#[derive(Default)]
struct Sent {
    /// The last line that was acknowledged.
    acknowledged: Option<u64>,
}

fn load(address: &str, agent: usize, sent: &Mutex<Sent>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let first = sent.lock().unwrap().acknowledged.map_or(0, |last| last + 1);
        let body = gzip(&batch(
            &format!("agent-{agent}"),
            &format!("node-{agent}"),
            first,
            &losses(first..first + LINES, WORDS),
        ));
        // Sometimes twice, as after a lost answer.
        if first.is_multiple_of(7) {
            ask(address, "POST", "/api/v1/samples", &body);
        }
        let Some((200, answer)) = ask(address, "POST", "/api/v1/samples", &body) else { continue };
        let Ok(answer) = serde_json::from_slice::<Value>(&answer) else { continue };
        sent.lock().unwrap().acknowledged = Some(answer["acknowledged"].as_u64().unwrap());
    }
}

/// Lines of each node that the server counts.
fn counted(address: &str, agent: usize) -> u64 {
    let (status, body) = ask(address, "GET", "/api/v1/nodes", b"").unwrap();
    assert_eq!(status, 200);
    let answer: Value = serde_json::from_slice(&body).unwrap();
    let name = format!("node-{agent}");
    let node = answer["nodes"].as_array().unwrap().iter().find(|node| node["node"] == name.as_str()).cloned();
    let notes = node.unwrap()["notes"].to_string();
    let samples = notes.split(" samples)").next().unwrap().rsplit('(').next().unwrap().to_owned();
    samples.parse().unwrap_or_else(|_| panic!("{notes}"))
}

#[test]
fn a_kill_loses_nothing_acknowledged_and_counts_nothing_twice() {
    let rounds: u32 = std::env::var("RANKSCOPE_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(4);
    let folder = tempfile::tempdir().unwrap();
    let sent: Arc<Vec<Mutex<Sent>>> = Arc::new((0..AGENTS).map(|_| Mutex::default()).collect());
    let started = Instant::now();
    for round in 0..rounds {
        let serving = Serving::start(folder.path());
        let stop = Arc::new(AtomicBool::new(false));
        let agents: Vec<_> = (0..AGENTS)
            .map(|agent| {
                let (address, sent, stop) = (serving.address.clone(), Arc::clone(&sent), Arc::clone(&stop));
                thread::spawn(move || load(&address, agent, &sent[agent], &stop))
            })
            .collect();
        // At another moment each time.
        thread::sleep(Duration::from_millis(250 + u64::from(round * 97 % 700)));
        drop(serving); // SIGKILL
        stop.store(true, Ordering::Relaxed);
        for agent in agents {
            agent.join().unwrap();
        }

        let serving = Serving::start(folder.path());
        for agent in 0..AGENTS {
            let acknowledged = sent[agent].lock().unwrap().acknowledged;
            // Sending what was acknowledged last changes nothing, and says how much is kept.
            let Some(last) = acknowledged else { continue };
            let first = last + 1 - LINES;
            let body = gzip(&batch(
                &format!("agent-{agent}"),
                &format!("node-{agent}"),
                first,
                &losses(first..first + LINES, WORDS),
            ));
            let (status, answer) = ask(&serving.address, "POST", "/api/v1/samples", &body).unwrap();
            assert_eq!(status, 200, "round {round}");
            let kept = serde_json::from_slice::<Value>(&answer).unwrap()["acknowledged"].as_u64().unwrap();
            // A batch whose answer was lost with the server may be kept too, and no more than that one.
            assert!(kept == last || kept == last + LINES, "round {round}: {kept} of {last} kept");
            assert_eq!(counted(&serving.address, agent), kept + 1, "round {round}, agent {agent}");
            sent[agent].lock().unwrap().acknowledged = Some(kept);
        }
    }
    let lines: u64 = sent.iter().map(|sent| sent.lock().unwrap().acknowledged.map_or(0, |last| last + 1)).sum();
    assert!(lines > u64::from(rounds) * 10, "only {lines} lines were sent");
    println!("{rounds} kills, {lines} lines acknowledged, {:.1} s", started.elapsed().as_secs_f64());
}
