//! How fast the readers of text and traces are, beside a floor that does as little as can be done with the same bytes:
//! one regular expression on each line of a text, one pass over JSON that keeps nothing.
//!
//! `cargo run --release -p rankscope-ingest --example read_speed`

use rankscope_ingest::{Limits, read_upload};
use rankscope_model::Evidence;
use serde::de::IgnoredAny;
use std::error::Error;
use std::fmt::Write;
use std::hint::black_box;
use std::io::Cursor;
use std::time::{Duration, Instant};

/// Size of each sample. Small enough for any machine, large enough to time.
const SIZE: usize = 32 << 20;
/// Runs of each; the fastest counts, because everything that disturbs makes one slower.
const RUNS: usize = 3;

type Floor = fn(&str);

fn main() -> Result<(), Box<dyn Error>> {
    let samples: [(&str, String, Floor); 5] = [
        ("job.log", log()?, lines),
        ("loop.txt", table_loop()?, lines),
        ("loop.csv", csv_loop()?, lines),
        ("trace.json", trace()?, json),
        ("chatter.log", chatter()?, lines),
    ];
    println!("{:<12} {:>8} {:>12} {:>12} {:>14}  found", "file", "MB", "Rankscope", "floor", "floor / ours");
    for (name, text, floor) in &samples {
        let megabytes = text.len() as f64 / 1e6;
        let floor = megabytes / fastest(|| floor(text)).as_secs_f64();
        let mut evidence = Evidence::default();
        let ours = fastest(|| evidence = read_upload(name, &mut Cursor::new(text.as_bytes()), &Limits::default()));
        let ours = megabytes / ours.as_secs_f64();
        println!(
            "{name:<12} {megabytes:>8.0} {:>12} {:>12} {:>13.1}x  {} tables, {} records, {} traces",
            format!("{ours:.0} MB/s"),
            format!("{floor:.0} MB/s"),
            floor / ours,
            evidence.device_tables.len(),
            evidence.steps.len(),
            evidence.traces.len(),
        );
    }
    Ok(())
}

fn fastest(mut work: impl FnMut()) -> Duration {
    let time = |()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    std::iter::repeat_n((), RUNS).map(time).min().unwrap_or_default()
}

fn lines(text: &str) {
    let Ok(pattern) = regex::Regex::new(r"rank=(\d+) step=(\d+)") else { return };
    black_box(text.lines().filter(|line| pattern.is_match(line)).count());
}

fn json(text: &str) {
    black_box(serde_json::from_str::<IgnoredAny>(text).is_ok());
}

/// Step lines of 8 ranks, as the readers' plainest form.
fn log() -> Result<String, std::fmt::Error> {
    filled(|text, n| {
        let (rank, step) = (n % 8, n / 8);
        writeln!(text, "[train] rank={rank} step={step} shape=(8, 512) cur=10240.0MB peak={}.0MB", 20_000 + step % 997)
    })
}

/// What a job prints of other things: nothing is found, every reader looks.
fn chatter() -> Result<String, std::fmt::Error> {
    filled(|text, n| {
        writeln!(
            text,
            "2024-06-01 10:00:{:02},123 INFO [trainer.py:{}] step {n} loss {}.{:04} lr 1.0e-04 tokens/s {} eta 1:{:02}:00",
            n % 60,
            n % 900,
            n % 7,
            n % 9999,
            40_000 + n % 999,
            n % 60
        )
    })
}

/// `nvidia-smi -l 1` of 8 cards.
fn table_loop() -> Result<String, std::fmt::Error> {
    let rule = "+-----------------------------------------------------------------------------+";
    filled(|text, n| {
        writeln!(text, "Wed Dec 16 {:02}:{:02}:{:02} 2020", n / 3600 % 24, n / 60 % 60, n % 60)?;
        writeln!(text, "{rule}")?;
        writeln!(text, "| NVIDIA-SMI 450.51.06    Driver Version: 450.51.06    CUDA Version: 11.0     |")?;
        writeln!(text, "{rule}")?;
        for card in 0..8 {
            writeln!(
                text,
                "|   {card}  Tesla V100-SXM2...  On   | 00000000:{card}A:00.0 Off |                    0 |"
            )?;
            writeln!(
                text,
                "| N/A   41C    P0    61W / 300W |  {:>5}MiB / 32510MiB |     95%      Default |",
                20_000 + n % 999
            )?;
            writeln!(text, "{rule}")?;
        }
        writeln!(text, "\n{rule}\n| Processes:                                                                  |")?;
        writeln!(text, "|  GPU   GI   CI        PID   Type   Process name                  GPU Memory |")?;
        for card in 0..8 {
            writeln!(
                text,
                "|    {card}   N/A  N/A     {:>5}      C   python                          20001MiB |",
                4000 + card
            )?;
        }
        writeln!(text, "{rule}")
    })
}

/// `nvidia-smi --query-gpu -l 1` of 8 cards.
fn csv_loop() -> Result<String, std::fmt::Error> {
    let mut text = String::from("timestamp, index, name, memory.total [MiB], memory.used [MiB], utilization.gpu [%]\n");
    text.push_str(&filled(|text, n| {
        let second = n / 8;
        writeln!(
            text,
            "2025/06/13 {:02}:{:02}:{:02}.195, {}, Tesla V100S-PCIE-32GB, 32768 MiB, {} MiB, 95 %",
            second / 3600 % 24,
            second / 60 % 60,
            second % 60,
            n % 8,
            20_000 + n % 999
        )
    })?);
    Ok(text)
}

/// A trace of torch.profiler, where one event in ten is of memory.
fn trace() -> Result<String, std::fmt::Error> {
    let mut text = String::from(
        "{\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"name\": \"A100\", \"totalGlobalMem\": 85899345920}], \
         \"distributedInfo\": {\"rank\": 3, \"world_size\": 8}, \"traceEvents\": [\n",
    );
    text.push_str(&filled(|text, n| {
        let ts = 1_700_000_000_000_000 + n;
        if n % 10 == 0 {
            writeln!(
                text,
                "{{\"ph\": \"i\", \"s\": \"t\", \"name\": \"[memory]\", \"pid\": 1, \"tid\": 2, \"ts\": {ts}, \"args\": {{\"Total Reserved\": 2097152, \
                 \"Total Allocated\": {}, \"Bytes\": 512, \"Addr\": 139637976727552, \"Device Id\": 0, \"Device Type\": 1, \"Ev Idx\": {n}}}}},",
                1024 + n * 512
            )
        } else {
            writeln!(
                text,
                "{{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::addmm\", \"pid\": 1, \"tid\": 2, \"ts\": {ts}, \"dur\": 12, \
                 \"args\": {{\"External id\": {n}, \"Input Dims\": [[8, 512], [512, 2048]]}}}},"
            )
        }
    })?);
    text.push_str("{}]}\n");
    Ok(text)
}

fn filled(mut each: impl FnMut(&mut String, u64) -> std::fmt::Result) -> Result<String, std::fmt::Error> {
    let mut text = String::with_capacity(SIZE + 4096);
    for n in 0u64.. {
        if text.len() >= SIZE {
            break;
        }
        each(&mut text, n)?;
    }
    Ok(text)
}
