//! The page against its bars: time to the first byte of a report of 8 ranks with a million points each, the answer to a
//! zoom, and what the bundle weighs.
//!
//! Makes the logs, starts the released server on a fresh store, uploads as a browser does, and asks. Knows addresses of
//! the public API only.

use crate::bundle::{self, WasmProfile};
use crate::layout::Layout;
use crate::serve::SITE_VARIABLE;
use crate::wasm_size::Weight;
use crate::{command, say};
use anyhow::{Context, Result, bail};
use flate2::{Compression, write::GzEncoder};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const RANKS: u32 = 8;
const POINTS: u32 = 1_000_000;
/// Requests of each kind that count, after one that does not.
const ROUNDS: u32 = 21;
const FIRST_BYTE_BAR: Duration = Duration::from_millis(50);
const ZOOM_BAR: Duration = Duration::from_millis(100);
/// kB are 1000 bytes.
const BUNDLE_BAR: usize = 150_000;
const BOUNDARY: &str = "rankscope-bench-boundary";

/// Measures, prints each figure beside its bar, and fails where one is missed.
pub fn bench(layout: &Layout) -> Result<()> {
    let site = bundle::bundle(layout, WasmProfile::WasmRelease)?;
    let bundle = weight(&site)?;
    let mut build = command::cargo();
    build.current_dir(&layout.root).env(SITE_VARIABLE, &site).args(["build", "--release", "--package", "rankscope"]);
    command::run(&mut build).context("the server could not be built")?;

    let data = tempfile::tempdir()?;
    let server = Server::start(&layout.binary("release"), data.path())?;
    say::line(format!("makes and uploads logs of {RANKS} ranks with {POINTS} lines each"));
    let started = Instant::now();
    let run = server.upload(&logs()?)?;
    say::line(format!("read and diagnosed in {:.1} s", started.elapsed().as_secs_f64()));

    let page = format!("/runs/{run}");
    let (first_byte, bytes) = server.median(|_| page.clone())?;
    let width = POINTS / 50;
    let (zoom, _) = server.median(|round| {
        let from = round * (POINTS / ROUNDS);
        format!("/api/v1/runs/{run}/charts/timeline.svg?from={from}&to={}&width=720&theme=page", from + width)
    })?;
    let mut missed = 0;
    missed +=
        row("first byte of the report", &millis(first_byte), &millis(FIRST_BYTE_BAR), first_byte <= FIRST_BYTE_BAR);
    missed += row("whole answer to a zoom", &millis(zoom), &millis(ZOOM_BAR), zoom <= ZOOM_BAR);
    missed += row("wasm and js, brotli", &kb(bundle), &kb(BUNDLE_BAR), bundle <= BUNDLE_BAR);
    say::line(format!("the page itself is {} as it travels uncompressed", kb(bytes)));
    if missed > 0 {
        bail!("{missed} of 3 bars are missed");
    }
    Ok(())
}

fn row(what: &str, figure: &str, bar: &str, holds: bool) -> u32 {
    say::line(format!("{what}: {figure}, bar {bar}: {}", if holds { "holds" } else { "MISSED" }));
    u32::from(!holds)
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn kb(bytes: usize) -> String {
    format!("{:.1} kB", bytes as f64 / 1e3)
}

fn weight(site: &Path) -> Result<usize> {
    let mut all = Weight::default();
    for name in ["rankscope_bg.wasm", "rankscope.js"] {
        let path = site.join("pkg").join(name);
        all += Weight::of(&std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?)?;
    }
    Ok(all.brotli())
}

/// A multipart body with one compressed log for each rank; rank 3 is heavy now and then.
fn logs() -> Result<Vec<u8>> {
    let mut body = Vec::new();
    for rank in 0..RANKS {
        let mut log = GzEncoder::new(Vec::new(), Compression::fast());
        let mut line = String::new();
        for step in 0..POINTS {
            let noise = step.wrapping_mul(2_654_435_761).rotate_left(rank) >> 24;
            let heavy = if rank == 3 && step % 97 < 7 { 6_000 } else { 0 };
            let allocated = 20_000 + noise + heavy;
            line.clear();
            writeln!(line, "rank={rank} step={step} allocated={allocated}MiB reserved={}MiB", allocated + 900)?;
            log.write_all(line.as_bytes())?;
        }
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"files\"; filename=\"rank{rank}.log.gz\"\r\n\
             Content-Type: application/gzip\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&log.finish()?);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    Ok(body)
}

/// A server of our own; ends with its handle.
struct Server {
    process: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing to be done about either failure.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What came back.
struct Answer {
    status: u16,
    first_byte: Duration,
    whole: Duration,
    body: Vec<u8>,
}

impl Server {
    fn start(binary: &Path, data: &Path) -> Result<Self> {
        let mut process = Command::new(binary)
            .args(["serve", "--no-sampler", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let printed = process.stdout.take().context("the server has no output")?;
        let mut server = Self { process, address: String::new() };
        for line in BufReader::new(printed).lines() {
            let line = line?;
            if let Some((_, address)) = line.split_once("http://") {
                address.split_whitespace().next().unwrap_or(address).clone_into(&mut server.address);
                return Ok(server);
            }
        }
        bail!("the server ended before it said where it listens")
    }

    fn ask(&self, head: &str, body: &[u8]) -> Result<Answer> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        let started = Instant::now();
        stream.write_all(format!("{head}Host: {}\r\nConnection: close\r\n\r\n", self.address).as_bytes())?;
        stream.write_all(body)?;
        let mut first = [0];
        stream.read_exact(&mut first)?;
        let first_byte = started.elapsed();
        let mut all = first.to_vec();
        stream.read_to_end(&mut all)?;
        let whole = started.elapsed();
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").context("an answer without a head")?;
        let status = all.get(9..12).and_then(|code| std::str::from_utf8(code).ok()).and_then(|code| code.parse().ok());
        Ok(Answer {
            status: status.context("an answer without a status")?,
            first_byte,
            whole,
            body: all.split_off(end + 4),
        })
    }

    /// Gives back the id of the run.
    fn upload(&self, body: &[u8]) -> Result<String> {
        let head = format!(
            "POST /api/v1/runs HTTP/1.1\r\nContent-Type: multipart/form-data; boundary={BOUNDARY}\r\n\
             Content-Length: {}\r\n",
            body.len()
        );
        let answer = self.ask(&head, body)?;
        let text = String::from_utf8_lossy(&answer.body);
        if answer.status != 201 {
            bail!("the upload was refused with {}: {text}", answer.status);
        }
        // The body may come in chunks; the object is what stands between the outermost braces.
        let object = text.find('{').zip(text.rfind('}')).and_then(|(from, to)| text.get(from..=to)).unwrap_or_default();
        let answer: serde_json::Value = serde_json::from_str(object).context("the answer to the upload is not JSON")?;
        let id = answer.get("id").and_then(serde_json::Value::as_str);
        id.map(str::to_owned).context("the answer to the upload names no run")
    }

    /// The median of several requests, of pages until their first byte, and how long the last body was.
    fn median(&self, address: impl Fn(u32) -> String) -> Result<(Duration, usize)> {
        let mut times = Vec::new();
        let mut bytes = 0;
        for round in 0..=ROUNDS {
            let address = address(round % ROUNDS);
            let answer = self.ask(&format!("GET {address} HTTP/1.1\r\n"), &[])?;
            if answer.status != 200 {
                bail!("{address} answered {}", answer.status);
            }
            let is_chart = address.contains("/charts/");
            // The first one fills caches.
            if round > 0 {
                times.push(if is_chart { answer.whole } else { answer.first_byte });
            }
            bytes = answer.body.len();
        }
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().context("nothing was measured")?;
        Ok((median, bytes))
    }
}
