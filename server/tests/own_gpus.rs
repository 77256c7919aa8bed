//! `serve` on a machine with GPUs, and an agent that sends to it: the whole way from the driver's library, for which the
//! stub stands in, to what the API says of the node.

#![allow(clippy::unwrap_used)] // a helper that fails should stop the test
#![cfg(unix)]

#[path = "../../crates/telemetry/tests/support/mod.rs"]
mod support;

use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use support::Stub;

const CONTEXTS: &str = include_str!("../../end2end/data/live/contexts.scenario");

struct Process {
    child: Child,
    /// Its first line.
    said: String,
}

impl Process {
    fn start(arguments: &[&str], stub: &Stub, folder: (&str, &Path)) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rankscope"));
        command.args(arguments).arg(folder.0).arg(folder.1);
        command.arg("--nvml-library").arg(stub.library()).arg("--proc").arg(stub.proc_folder());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        Self { child, said }
    }

    fn serve(extra: &[&str], stub: &Stub, data: &Path) -> Self {
        Self::serve_at("127.0.0.1:0", extra, stub, data)
    }

    fn serve_at(listen: &str, extra: &[&str], stub: &Stub, data: &Path) -> Self {
        let mut arguments = vec!["serve", "--listen", listen];
        arguments.extend(extra);
        Self::start(&arguments, stub, ("--data", data))
    }

    fn agent(node: &str, server: &str, stub: &Stub, spool: &Path) -> Self {
        Self::start(&["agent", "--node", node, "--server", server], stub, ("--spool", spool))
    }

    fn address(&self) -> String {
        let rest = self.said.strip_prefix("Rankscope serves http://").unwrap_or_else(|| panic!("{:?}", self.said));
        rest.split_once(' ').unwrap().0.to_owned()
    }

    fn nodes(&self) -> Vec<Value> {
        let address = self.address();
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET /api/v1/nodes HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let found: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
        found["nodes"].as_array().unwrap().clone()
    }

    /// Waits for a node that is so.
    fn node(&self, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let nodes = self.nodes();
            if let Some(node) = nodes.iter().find(|node| so(node)) {
                return node.clone();
            }
            assert!(Instant::now() < deadline, "no node with {what}: {nodes:#?}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn end(mut self) {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(asked.success() && self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many processes are on the first card.
fn on_first_card(node: &Value) -> usize {
    node["devices"]
        .as_array()
        .and_then(|devices| devices.first())
        .map_or(0, |device| device["processes"].as_array().map_or(0, Vec::len))
}

#[test]
fn a_server_samples_its_own_gpus_and_sees_what_opens_on_them() {
    let (stub, data) = (Stub::new(CONTEXTS), tempfile::tempdir().unwrap());
    let serving = Process::serve(&[], &stub, data.path());
    let node = serving.node("eight cards", |node| node["devices"].as_array().is_some_and(|devices| devices.len() == 8));
    assert!(node.to_string().contains("NVIDIA A100-SXM4-80GB"), "{node:#}");
    serving.node("eight processes on the first card", |node| on_first_card(node) == 8);
    serving.end();
}

#[test]
fn a_machine_without_a_driver_is_said_in_one_line_and_everything_else_works() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rankscope"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path().join("data"));
    command.arg("--nvml-library").arg(folder.path().join("libnvidia-ml.so.1"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = format!("{}\n", lines.next().unwrap().unwrap());
    let serving = Process { child, said };
    let state = lines.next().unwrap().unwrap();
    assert!(state.contains("libnvidia-ml.so.1") && state.len() < 300, "{state}");
    assert_eq!(serving.nodes(), Vec::<Value>::new());
    serving.end();
    assert_eq!(lines.count(), 0, "one line is all that is said of it");
}

#[test]
fn a_server_leaves_its_own_gpus_alone_when_it_is_told_to_and_shows_those_of_agents() {
    let (stub, data) = (Stub::new(CONTEXTS), tempfile::tempdir().unwrap());
    let serving = Process::serve(&["--no-sampler"], &stub, &data.path().join("data"));
    let server = format!("http://{}", serving.address());
    let agent = Process::agent("gpu7", &server, &stub, &data.path().join("spool"));
    serving.node("eight processes on the first card", |node| on_first_card(node) == 8);
    assert_eq!(serving.nodes().len(), 1, "only the agent's");
    assert!(serving.nodes()[0].to_string().contains("gpu7"));
    agent.end();
    serving.end();
}

#[test]
fn two_agents_lose_nothing_while_the_server_is_killed_and_comes_back() {
    let (stub, folder) = (Stub::new(CONTEXTS), tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let serving = Process::serve(&["--no-sampler"], &stub, &data);
    let address = serving.address();
    let server = format!("http://{address}");
    let names = ["gpu-a", "gpu-b"];
    let agents = names.map(|name| Process::agent(name, &server, &stub, &folder.path().join(name)));
    let is = |node: &Value, name: &str| node["node"] == name;
    let newest = |node: &Value| node["heard_at"].as_i64().unwrap_or(0);
    let seen = names.map(|name| newest(&serving.node(name, |node| is(node, name) && on_first_card(node) > 0)));
    drop(serving); // SIGKILL
    thread::sleep(Duration::from_secs(3));

    let serving = Process::serve_at(&address, &["--no-sampler"], &stub, &data);
    for (name, before) in names.iter().zip(seen) {
        serving.node("newer samples", |node| is(node, name) && newest(node) > before + 3_000_000);
    }
    for agent in agents {
        agent.end();
    }
    // The positions of a source have no gap unless it says itself what it gave up, and the node would tell that.
    for name in names {
        let node = serving.node("an end", |node| is(node, name) && node["ended"] == true);
        assert_eq!(node["notes"].as_array().map_or(0, Vec::len), 0, "{node:#}");
    }
    assert_eq!(serving.nodes().len(), 2);
    serving.end();
}
