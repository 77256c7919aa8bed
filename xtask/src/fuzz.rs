//! Fuzzing of the readers: brings cargo-fuzz, seeds the corpora from the files at hand, runs the targets.
//!
//! The targets are a workspace of their own in `crates/ingest/fuzz`, so that an ordinary build never sees them. Corpora
//! and findings stand in the target folder: seeds are copies of files that are not all ours to pass on.

use crate::layout::Layout;
use crate::{command, say};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Largest seed: a fuzzer learns nothing from a file of megabytes but slowness.
const MAX_SEED: u64 = 256 << 10;

/// Runs one target, or all one after another, for `seconds` each.
pub fn fuzz(layout: &Layout, target: Option<&str>, seconds: u32) -> Result<()> {
    let fuzz = layout.root.join("crates/ingest/fuzz");
    let known = targets(&fuzz)?;
    let chosen: Vec<&String> =
        known.iter().filter(|name| target.is_none_or(|target| target == name.as_str())).collect();
    if chosen.is_empty() {
        bail!("there is no such target; there are {}", known.join(", "));
    }
    bring_cargo_fuzz()?;
    let seeds = seeds(layout)?;
    let mut failed = Vec::new();
    for name in chosen {
        let corpus = layout.target.join("fuzz-corpus").join(name);
        plant(&seeds, &corpus)?;
        say::line(format!("{name}: {seconds} s"));
        if let Err(error) = command::run(&mut run(layout, &fuzz, name, &corpus, seconds)?) {
            say::error(&error);
            failed.push(name.as_str());
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    bail!("findings in {}; the inputs stand in {}", failed.join(", "), artifacts(layout, "…").display())
}

/// The names of the targets: one file each.
fn targets(fuzz: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(fuzz.join("fuzz_targets")).context("the fuzz targets are not there")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// Installed already, or from its source.
fn bring_cargo_fuzz() -> Result<()> {
    let is_there = command::cargo()
        .args(["fuzz", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if is_there {
        return Ok(());
    }
    say::line("cargo brings cargo-fuzz from its source (a minute or two, once)");
    command::run(command::cargo().args(["install", "--quiet", "--locked", "cargo-fuzz"]))
}

/// Files to begin with: the readers' own test data, and the real files and cases beside the checkout where there are any.
fn seeds(layout: &Layout) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in ["crates/ingest/tests/data", "../shared/data", "../shared/cases"] {
        let folder = layout.root.join(folder);
        if folder.is_dir() {
            gather(&folder, &mut found)?;
        } else {
            say::line(format!("{} is not there; its files are no seeds", folder.display()));
        }
    }
    found.sort();
    Ok(found)
}

fn gather(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            gather(&entry.path(), found)?;
        } else if kind.is_file() && entry.metadata()?.len() <= MAX_SEED {
            found.push(entry.path());
        }
    }
    Ok(())
}

/// Copies the seeds that are not in the corpus yet, packed ones unpacked: a reader never sees the packing.
fn plant(seeds: &[PathBuf], corpus: &Path) -> Result<()> {
    fs::create_dir_all(corpus)?;
    for (index, seed) in seeds.iter().enumerate() {
        let name = seed.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let copy = corpus.join(format!("seed-{index:04}-{name}"));
        if !copy.exists() {
            fs::write(&copy, unpacked(fs::read(seed)?))?;
        }
    }
    Ok(())
}

fn unpacked(bytes: Vec<u8>) -> Vec<u8> {
    use std::io::Read;
    if !bytes.starts_with(b"\x1f\x8b") {
        return bytes;
    }
    let mut plain = Vec::new();
    match flate2::read::MultiGzDecoder::new(bytes.as_slice()).take(MAX_SEED).read_to_end(&mut plain) {
        Ok(_) => plain,
        Err(_) => bytes,
    }
}

fn run(layout: &Layout, fuzz: &Path, name: &str, corpus: &Path, seconds: u32) -> Result<Command> {
    let artifacts = artifacts(layout, name);
    fs::create_dir_all(&artifacts)?;
    let mut command = command::cargo();
    // The sanitizer is an unstable option of the compiler; this lets a stable one take it.
    command.current_dir(&layout.root).env("RUSTC_BOOTSTRAP", "1").args(["fuzz", "run", "--fuzz-dir"]).arg(fuzz);
    command.arg("--target-dir").arg(layout.target.join("fuzz")).arg(name).arg(corpus);
    command.args(["--", "-rss_limit_mb=2048", "-timeout=20", "-max_len=65536", "-print_final_stats=1"]);
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-artifact_prefix={}/", artifacts.display()));
    Ok(command)
}

fn artifacts(layout: &Layout, name: &str) -> PathBuf {
    layout.target.join("fuzz-findings").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_planted_once_and_unpacked() {
        use std::io::Write;
        let folder = tempfile::tempdir().unwrap();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(b"plain").unwrap();
        let (seed, corpus) = (folder.path().join("a.gz"), folder.path().join("corpus"));
        fs::write(&seed, packed.finish().unwrap()).unwrap();
        plant(std::slice::from_ref(&seed), &corpus).unwrap();
        let planted = corpus.join("seed-0000-a.gz");
        assert_eq!(fs::read(&planted).unwrap(), b"plain");
        fs::write(&planted, b"grown").unwrap();
        plant(&[seed], &corpus).unwrap();
        assert_eq!(fs::read(&planted).unwrap(), b"grown");
    }

    /// Cargo builds only what the manifest names: a target that is not in it would never run.
    #[test]
    fn the_manifest_names_every_target() {
        let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/ingest/fuzz");
        let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
        let names = targets(&fuzz).unwrap();
        assert!(names.len() > 20, "{names:?}");
        for name in names {
            let entry = format!("[[bin]]\nname = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n");
            assert!(manifest.contains(&entry), "{name}");
        }
    }
}
