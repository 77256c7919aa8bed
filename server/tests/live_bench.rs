//! How much live data the server takes in durably, and how soon it answers, with browsers watching. Run by
//! `cargo xtask bench live`, optimised; here it is passed over.

#![allow(clippy::unwrap_used)] // a helper that fails should stop the bench

mod common;

use common::{
    live::{MIB, batch, gzip, node, now},
    percentile,
};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Browsers that watch.
const LISTENERS: usize = 50;
const NODES: usize = 128;
const GPUS: usize = 8;
/// Connections over which agents' batches come at the same time.
const CONNECTIONS: usize = 16;
/// Points a second that the server must take.
const POINTS_PER_SECOND: usize = 500_000;
const BAR: f64 = POINTS_PER_SECOND as f64;
const BAR_P99: Duration = Duration::from_millis(250);
/// How long each part is measured.
const SECONDS: usize = 8;
const TIME: Duration = Duration::from_secs(SECONDS as u64);

/// The samples of one second as an agent sends them: values that move as those of a training do.
fn second(at: i64, hz: usize, seed: u64) -> Value {
    let step = u32::try_from(1_000_000 / hz).unwrap();
    let dt: Vec<u32> = (0..u32::try_from(hz).unwrap()).map(|n| n * step).collect();
    let columns: Vec<Value> = (0..GPUS as u64)
        .map(|gpu| {
            let value = |n: usize| {
                let noise = (seed + gpu * 31 + n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                60_000 * MIB + noise % 64 * 2 * MIB + u64::try_from(at / 1_000_000).unwrap() % 7 * 512 * MIB
            };
            json!({"subject": {"device": gpu}, "used": (0..hz).map(value).collect::<Vec<_>>()})
        })
        .collect();
    json!({"type": "memory", "dt_us": dt, "devices": columns})
}

/// Batches of all nodes, in the order in which they are sent: one second after the other.
fn batches(hz: usize, seconds: usize, name: &str) -> Vec<Vec<Vec<u8>>> {
    let start = now() - 600_000_000;
    let of_node = |number: usize| {
        let (source, host) = (format!("{name}-{number}"), format!("node-{number:03}"));
        let mut first = 0;
        (0..seconds)
            .map(|n| {
                let at = start + i64::try_from(n).unwrap() * 1_000_000;
                let mut records = if n == 0 { vec![(at, node(8))] } else { Vec::new() };
                records.push((at, second(at, hz, (number * 1000 + n) as u64)));
                let body = gzip(&batch(&source, &host, first, &records));
                first += records.len() as u64;
                body
            })
            .collect()
    };
    (0..NODES).map(of_node).collect()
}

struct Measured {
    points: f64,
    answers: Vec<Duration>,
    bytes: usize,
}

/// Sends all batches; `pace` spaces each connection's so that all together make so many points a second.
fn measure(address: &str, batches: &Arc<Vec<Vec<Vec<u8>>>>, points_each: usize, pace: Option<f64>) -> Measured {
    let started = Instant::now();
    let senders: Vec<_> = (0..CONNECTIONS)
        .map(|connection| {
            let (address, batches) = (address.to_owned(), Arc::clone(batches));
            thread::spawn(move || {
                let mut stream = TcpStream::connect(&address).unwrap();
                stream.set_nodelay(true).unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut answers, mut bytes, mut sent) = (Vec::new(), 0, 0usize);
                let own: Vec<&Vec<Vec<u8>>> = batches.iter().skip(connection).step_by(CONNECTIONS).collect();
                for second in 0..own.first().map_or(0, |node| node.len()) {
                    for node in &own {
                        if started.elapsed() > TIME {
                            return (answers, bytes, sent);
                        }
                        if let Some(pace) = pace {
                            let due = Duration::from_secs_f64((sent * points_each * CONNECTIONS) as f64 / pace);
                            thread::sleep(due.saturating_sub(started.elapsed()));
                        }
                        let body = &node[second];
                        let asked = Instant::now();
                        let head = format!(
                            "POST /api/v1/samples HTTP/1.1\r\nHost: {address}\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
                            body.len()
                        );
                        stream.write_all(head.as_bytes()).unwrap();
                        stream.write_all(body).unwrap();
                        assert_eq!(answer(&mut reader), 200);
                        answers.push(asked.elapsed());
                        bytes += body.len();
                        sent += 1;
                    }
                }
                (answers, bytes, sent)
            })
        })
        .collect();
    let (mut answers, mut bytes, mut sent) = (Vec::new(), 0, 0);
    for sender in senders {
        let (of_one, of_bytes, of_sent) = sender.join().unwrap();
        answers.extend(of_one);
        bytes += of_bytes;
        sent += of_sent;
    }
    answers.sort_unstable();
    Measured { points: (sent * points_each) as f64 / started.elapsed().as_secs_f64(), answers, bytes }
}

/// Reads one answer whole; gives its status.
fn answer(reader: &mut impl BufRead) -> u16 {
    let (mut line, mut status, mut length) = (String::new(), 0, 0);
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let head = line.trim_end();
        if head.is_empty() {
            break;
        }
        if head.starts_with("HTTP/1.1") {
            status = head.split(' ').nth(1).unwrap().parse().unwrap();
        } else if let Some(value) = head.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    status
}

#[test]
#[ignore = "a measurement: cargo xtask bench live"]
fn points_per_second_and_time_to_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_rankscope"))
        .args(["serve", "--no-sampler", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.strip_prefix("Rankscope serves http://").unwrap().split(' ').next().unwrap().to_owned();

    let stop = Arc::new(AtomicBool::new(false));
    let heard = Arc::new(AtomicU64::new(0));
    for _ in 0..LISTENERS {
        let (address, stop, heard) = (address.clone(), Arc::clone(&stop), Arc::clone(&heard));
        thread::spawn(move || {
            let mut stream = TcpStream::connect(&address).unwrap();
            let head = format!("GET /api/v1/live/events HTTP/1.1\r\nHost: {address}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            let mut chunk = vec![0; 64 << 10];
            while !stop.load(Ordering::Relaxed) {
                match stream.read(&mut chunk) {
                    Ok(0) | Err(_) => return,
                    Ok(read) => drop(heard.fetch_add(read as u64, Ordering::Relaxed)),
                }
            }
        });
    }

    println!("{NODES} nodes x {GPUS} GPUs, {LISTENERS} browsers, senders on the same machine");
    let mut met = true;
    for hz in [10, 50] {
        let points_each = GPUS * hz;
        let seconds = 2 * POINTS_PER_SECOND * SECONDS / (NODES * points_each);
        let batches_of = |name: &str| Arc::new(batches(hz, seconds, &format!("{name}-{hz}")));
        let flat = measure(&address, &batches_of("flat"), points_each, None);
        let paced = measure(&address, &batches_of("paced"), points_each, Some(BAR));
        let p99 = percentile(&paced.answers, 99);
        println!(
            "{hz:>2} Hz ({points_each} points, {} bytes a batch): {:.0} k points/s accepted durably; at {:.0} k points/s \
             answers p50 {:.1} ms, p99 {:.1} ms",
            flat.bytes / flat.answers.len().max(1),
            flat.points / 1e3,
            paced.points / 1e3,
            percentile(&paced.answers, 50).as_secs_f64() * 1e3,
            p99.as_secs_f64() * 1e3,
        );
        if hz == 50 {
            met = flat.points >= BAR && p99 < BAR_P99;
        }
    }
    println!("events: {} MiB to {LISTENERS} browsers", heard.load(Ordering::Relaxed) >> 20);
    println!("bars (at 50 Hz): >= 500 k points/s, p99 < 250 ms: {}", if met { "met" } else { "not met" });
    stop.store(true, Ordering::Relaxed);
    let _ = child.kill();
    let _ = child.wait();
}
