//! What the agent costs a node: its processor time and memory with eight cards at ten samples a second.
//!
//! The driver's library is the stub, so the figures are those of our own code; the driver's calls come on top of them on
//! a real node. The server is a few lines here that acknowledge everything. Prints the figures and holds them against
//! the bars.

use crate::layout::Layout;
use crate::{command, say};
use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Most of one core, as a share.
const MAX_CORE: f64 = 0.002;
/// Most memory in bytes.
const MAX_MEMORY: f64 = 25.0 * 1_048_576.0;
/// Until everything that happens once has happened.
const WARM_UP: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(20);
/// Times that the sampler wakes in a second.
const WAKES: u32 = 10;
const SCENARIO: &str = "end2end/data/live/healthy.scenario";

/// Builds the agent and the stub, lets the agent work, and prints what it cost; an error if that misses a bar.
pub fn bench(layout: &Layout) -> Result<()> {
    if !Path::new("/proc/self/schedstat").exists() {
        bail!("this kernel does not tell the processor time of threads (/proc/self/schedstat)");
    }
    let mut build = command::cargo();
    build.current_dir(&layout.root).args(["build", "--release", "--package", "rankscope", "--package", "nvml-stub"]);
    command::run(&mut build)?;
    let folder = tempfile::Builder::new().prefix("rankscope-bench-").tempdir()?;
    let library = folder.path().join("libnvidia-ml.so.1");
    fs::copy(layout.target.join("release").join("libnvml_stub.so"), &library).context("copying the stub")?;
    fs::copy(layout.root.join(SCENARIO), folder.path().join("nvml-stub.conf"))?;
    let server = acknowledge_everything()?;

    let mut agent = Command::new(layout.binary("release"));
    agent.args(["agent", "--server", &server, "--hz", "10", "--nvml-library"]).arg(&library);
    agent.arg("--proc").arg(folder.path().join("proc")).arg("--spool").arg(folder.path().join("spool"));
    let agent = Running(agent.stdout(Stdio::null()).spawn().context("starting the agent")?);
    say::line(format!("the agent works for {} s", (WARM_UP + MEASURED).as_secs()));
    let idle = thread::spawn(wake_only);
    thread::sleep(WARM_UP);
    let (began, before) = (Instant::now(), agent.processor_times()?);
    thread::sleep(MEASURED);
    let (elapsed, after) = (began.elapsed(), agent.processor_times()?);
    let spent = |of: &BTreeMap<String, Duration>| of.values().sum::<Duration>();
    let core = spent(&after).saturating_sub(spent(&before)).as_secs_f64() / elapsed.as_secs_f64();
    let idle = idle.join().ok().flatten().context("no schedstat")?;
    let (memory, most) = (agent.memory("VmRSS:")?, agent.memory("VmHWM:")?);
    drop(agent);

    println!("processor  {:>8.3} % of a core (bar {:.1} %)", core * 100.0, MAX_CORE * 100.0);
    for (thread, time) in &after {
        let share = time.saturating_sub(before.get(thread).copied().unwrap_or_default()).as_secs_f64();
        println!("  {thread:<20} {:>6.3} %", share / elapsed.as_secs_f64() * 100.0);
    }
    println!(
        "  {:>27.3} % is what a thread takes on this machine that only wakes {WAKES} times a second",
        idle * 100.0
    );
    let mebibytes = |bytes: f64| bytes / 1_048_576.0;
    println!(
        "memory     {:>8.1} MiB resident, {:.1} MiB at most (bar {:.0} MiB)",
        mebibytes(memory),
        mebibytes(most),
        mebibytes(MAX_MEMORY)
    );
    let mut missed = Vec::new();
    if core > MAX_CORE {
        missed.push("processor");
    }
    if most > MAX_MEMORY {
        missed.push("memory");
    }
    if missed.is_empty() {
        return Ok(());
    }
    bail!("the bars were missed: {}", missed.join(", "))
}

/// Processor time of a task, whose folder in `/proc` this is.
fn time_of(task: &Path) -> Result<Duration> {
    let path = task.join("schedstat");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let nanos = text.split(' ').next().and_then(|first| first.parse().ok()).context("no schedstat")?;
    Ok(Duration::from_nanos(nanos))
}

/// Wakes as often as the sampler and does nothing: the share of a core that this takes is the kernel's.
fn wake_only() -> Option<f64> {
    let own = Path::new("/proc/thread-self");
    thread::sleep(WARM_UP);
    let (began, before) = (Instant::now(), time_of(own).ok()?);
    while began.elapsed() < MEASURED {
        thread::sleep(Duration::from_secs(1) / WAKES);
    }
    Some(time_of(own).ok()?.saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64())
}

/// An agent at work, killed when this is dropped.
struct Running(Child);

impl Running {
    /// Of each of its threads, by name, to the nanosecond.
    fn processor_times(&self) -> Result<BTreeMap<String, Duration>> {
        let tasks = format!("/proc/{}/task", self.0.id());
        let mut times = BTreeMap::new();
        for task in fs::read_dir(&tasks).with_context(|| format!("{tasks}: the agent has ended"))? {
            let path = task?.path();
            let name = fs::read_to_string(path.join("comm"))?.trim().to_owned();
            *times.entry(name).or_default() += time_of(&path)?;
        }
        Ok(times)
    }

    fn memory(&self, field: &str) -> Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("no {field}"))?;
        let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kibibytes * 1024.0)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server in a thread; its address.
fn acknowledge_everything() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}", listener.local_addr()?);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A connection that breaks ends with it; the agent makes another.
            let _ = answer(&stream);
        }
    });
    Ok(address)
}

fn answer(stream: &TcpStream) -> Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let last = last_of(&body)?;
        let text = format!("{{\"acknowledged\":{last}}}");
        let mut writer = stream;
        write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())?;
    }
}

fn last_of(body: &[u8]) -> Result<u64> {
    let mut head = String::new();
    BufReader::new(GzDecoder::new(body)).read_line(&mut head)?;
    let head: serde_json::Value = serde_json::from_str(&head)?;
    head.get("last").and_then(serde_json::Value::as_u64).context("a batch without its last line")
}
