//! The snapshot reader against CPython's unpickler, on the same files in the same run.
//!
//! The makers of the files and the floor to beat stand in `../shared/bench`, beside the checkout. Prints ratios and
//! holds them against the bars; knows nothing of what is in a snapshot.

use crate::layout::Layout;
use crate::{command, say};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// How many times faster than CPython the reader must be.
const MIN_SPEEDUP: f64 = 10.0;
/// Its peak memory as a share of the file.
const MAX_MEMORY: f64 = 0.6;
/// How many times slower frees in random order may be than frees in the order of training.
const MAX_RANDOM: f64 = 2.0;

/// One file to measure on.
struct Sample {
    name: &'static str,
    events: &'static str,
    order: &'static str,
    /// Runs of each reader; the fastest counts, because everything that disturbs makes one slower. A short one is
    /// disturbed more, and costs less to repeat.
    runs: usize,
}

const SAMPLES: [Sample; 3] = [
    Sample { name: "41 MB", events: "200000", order: "training", runs: 9 },
    Sample { name: "405 MB", events: "2000000", order: "training", runs: 3 },
    Sample { name: "405 MB, random", events: "2000000", order: "random", runs: 3 },
];
const BIG: Sample = Sample { name: "1.5 GB", events: "7400000", order: "training", runs: 1 };

/// Seconds, and peak memory in bytes.
#[derive(Clone, Copy)]
struct Measured {
    seconds: f64,
    memory: f64,
}

/// Makes the files, runs both readers, prints the ratios; an error if one misses its bar.
pub fn bench(layout: &Layout, big: bool) -> Result<()> {
    let scripts = layout.root.join("../shared/bench");
    let (maker, floor) = (scripts.join("make_snapshot.py"), scripts.join("time_pickle_load.py"));
    if !maker.is_file() || !floor.is_file() {
        bail!(
            "the benchmark needs make_snapshot.py and time_pickle_load.py in {}, which are not there: they are no part \
             of this checkout",
            scripts.display()
        );
    }
    let python = command::on_path(&["python3", "python"]).context("the benchmark needs python3 on the search path")?;
    let reader = build_reader(layout)?;
    let folder = tempfile::Builder::new().prefix("rankscope-bench-").tempdir()?;
    note_load();

    let mut missed = Vec::new();
    let mut of_training = None;
    println!("{:<16} {:>12} {:>12} {:>8} {:>14}", "file", "CPython", "Rankscope", "faster", "memory / file");
    for sample in SAMPLES.iter().chain(big.then_some(&BIG)) {
        let file = make(&python, &maker, folder.path(), sample)?;
        let size = fs::metadata(&file)?.len() as f64;
        // A file of gigabytes takes CPython tens of gigabytes of memory; that ours works is what is asked.
        let is_big = sample.name == BIG.name;
        let (mut theirs, mut ours): (Option<Measured>, Option<Measured>) = (None, None);
        for _ in 0..sample.runs {
            if !is_big {
                theirs = Some(faster(theirs, measure(Command::new(&python).arg(&floor).arg(&file))?));
            }
            ours = Some(faster(ours, measure(Command::new(&reader).arg(&file))?));
        }
        fs::remove_file(&file)?;
        let ours = ours.context("nothing was measured")?;
        let memory = ours.memory / size;
        let speedup = theirs.map(|theirs| theirs.seconds / ours.seconds);
        println!(
            "{:<16} {:>12} {:>12} {:>8} {memory:>14.2}",
            sample.name,
            theirs.map_or_else(|| "-".to_owned(), |theirs| format!("{:.3} s", theirs.seconds)),
            format!("{:.3} s", ours.seconds),
            speedup.map_or_else(|| "-".to_owned(), |speedup| format!("{speedup:.1}x")),
        );
        if let Some(speedup) = speedup.filter(|speedup| *speedup < MIN_SPEEDUP && sample.order == "training") {
            missed.push(format!("{}: {speedup:.1} times faster, {MIN_SPEEDUP} is the bar", sample.name));
        }
        if memory > MAX_MEMORY {
            missed.push(format!("{}: {memory:.2} of the file in memory, {MAX_MEMORY} is the bar", sample.name));
        }
        match (sample.order, of_training) {
            ("random", Some(training)) => {
                let slower = ours.seconds / training;
                println!("random order is {slower:.2} times as slow as training order");
                if slower > MAX_RANDOM {
                    missed.push(format!("random order is {slower:.2} times as slow, {MAX_RANDOM} is the bar"));
                }
            }
            _ => of_training = Some(ours.seconds),
        }
    }
    note_load();
    if missed.is_empty() {
        return Ok(());
    }
    bail!("the bars were missed: {}", missed.join("; "))
}

fn build_reader(layout: &Layout) -> Result<PathBuf> {
    let mut build = command::cargo();
    build.current_dir(&layout.root).args(["build", "--release", "--package", "rankscope-ingest"]);
    command::run(build.args(["--example", "read_snapshot"]))?;
    Ok(layout.target.join("release/examples").join(format!("read_snapshot{}", env::consts::EXE_SUFFIX)))
}

fn make(python: &Path, maker: &Path, folder: &Path, sample: &Sample) -> Result<PathBuf> {
    say::line(format!("makes a snapshot of {} ({} events)", sample.name, sample.events));
    let prefix = folder.join("bench");
    let arguments = ["--events", sample.events, "--order", sample.order];
    command::output(Command::new(python).arg(maker).arg(&prefix).args(arguments))?;
    Ok(folder.join("bench_rank0.pickle"))
}

/// Both programs end with a line like `1.234 s, …, peak 567 MiB`.
fn measure(command: &mut Command) -> Result<Measured> {
    let printed = command::output(command)?;
    parse(&printed).with_context(|| format!("`{}` printed no time and peak: {printed}", command::shown(command)))
}

fn parse(printed: &str) -> Option<Measured> {
    let line = printed.lines().last()?;
    let seconds = line.split_once(" s,")?.0.trim().parse().ok()?;
    let (amount, unit) = line.rsplit_once("peak ")?.1.trim().split_once(' ')?;
    let factor = match unit.trim() {
        "kB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        _ => return None,
    };
    Some(Measured { seconds, memory: amount.trim().parse::<f64>().ok()? * factor })
}

fn faster(best: Option<Measured>, new: Measured) -> Measured {
    best.filter(|best| best.seconds <= new.seconds).unwrap_or(new)
}

/// Times of a busy machine mean little.
fn note_load() {
    let load = fs::read_to_string("/proc/loadavg").ok();
    let load = load.as_deref().and_then(|text| text.split(' ').next()).and_then(|first| first.parse::<f64>().ok());
    if let Some(load) = load.filter(|load| *load > 1.5) {
        say::line(format!("the machine is busy (load {load:.1}): the times below are not to be relied on"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_both_programs_are_understood() {
        let theirs = parse("0.512 s, peak 345 MiB\n").unwrap();
        assert!((theirs.seconds - 0.512).abs() < 1e-9 && (theirs.memory - 345.0 * 1_048_576.0).abs() < 1.0);
        let ours = parse("torch 2.8\n0.031 s, 41000000 bytes, peak 18204 kB\n").unwrap();
        assert!((ours.seconds - 0.031).abs() < 1e-9 && (ours.memory - 18_204.0 * 1024.0).abs() < 1.0);
        assert!(parse("no figures").is_none());
    }
}
