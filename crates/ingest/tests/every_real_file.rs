//! Every file of the real public ones, one by one: its kind, its ranks or GPUs, and one figure.
//!
//! The figures stand in `data/real-files.expected`, worked out by `data/real_files.py` with Python's own modules, so that
//! no reader of ours judges itself. A file without an entry fails, and so does an entry without its file.
#![allow(clippy::unwrap_used, reason = "a test that fails should say so at once")]

mod common;

use common::{files, read_bytes, shared};
use rankscope_model::{Bytes, Evidence, MIB, Subject};
use std::collections::{BTreeMap, BTreeSet};

struct Entry<'a> {
    kind: &'a str,
    ranks: Vec<u32>,
    devices: Vec<u32>,
    figure: &'a str,
    value: &'a str,
}

fn numbers(list: &str) -> Vec<u32> {
    list.split(',').filter_map(|number| number.parse().ok()).collect()
}

fn entries() -> BTreeMap<&'static str, Entry<'static>> {
    let lines = include_str!("data/real-files.expected").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let [file, kind, ranks, devices, figure, value, _how] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            (file, Entry { kind, ranks: numbers(ranks), devices: numbers(devices), figure, value })
        })
        .collect()
}

/// Used memory of the GPUs in the first reading that tells it.
fn used(evidence: &Evidence) -> Option<u64> {
    let of = |table: &rankscope_model::DeviceTable| {
        let rows = table.devices.iter().filter(|row| matches!(row.subject, Subject::Device(_)));
        let used: Vec<u64> = rows.filter_map(|row| row.used).map(|bytes| bytes.0).collect();
        (!used.is_empty()).then(|| used.iter().sum())
    };
    evidence.device_tables.iter().find_map(of)
}

/// The largest peak of each subject, summed.
fn peaks(evidence: &Evidence) -> u64 {
    let mut peaks: BTreeMap<Subject, Bytes> = BTreeMap::new();
    for step in &evidence.steps {
        let peak = peaks.entry(step.subject).or_default();
        *peak = (*peak).max(step.peak_allocated.unwrap_or_default());
    }
    peaks.values().map(|peak| peak.0).sum()
}

fn figure(entry: &Entry<'_>, evidence: &Evidence) -> String {
    let or_none = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let table = || evidence.device_tables.first();
    match entry.figure {
        "used_mib" => or_none(used(evidence).map(|used| used / MIB)),
        "used_bytes" => or_none(used(evidence)),
        "fb_used_mib" => {
            let used =
                table().iter().flat_map(|t| &t.devices).filter_map(|row| row.used).map(|used| used.0).sum::<u64>();
            (used / MIB).to_string()
        }
        "processes" => evidence.device_tables.iter().map(|t| t.processes.len()).sum::<usize>().to_string(),
        "cards" => evidence.cards.len().to_string(),
        "affinity" => evidence.topologies[0].gpus[0].cpu_affinity.clone().unwrap_or_else(|| "-".to_owned()),
        "reserved" => {
            let devices = evidence.snapshots.iter().flat_map(|snapshot| &snapshot.devices);
            devices.map(|device| device.reserved.0).sum::<u64>().to_string()
        }
        "events" => evidence.traces.iter().map(|trace| trace.events).sum::<u64>().to_string(),
        "peak" => {
            or_none(evidence.traces.iter().filter_map(|trace| trace.peak.as_ref()).map(|peak| peak.bytes.0).max())
        }
        // Figures with a point are rounded down once, as in the table.
        "peak_mib" => (peaks(evidence) / MIB).to_string(),
        // Of the messages without figures some say the same, and are counted once.
        "with_capacity" => {
            evidence.ooms.iter().filter(|oom| oom.total.is_some() && oom.free.is_some()).count().to_string()
        }
        "says" => {
            let warnings: Vec<&str> =
                evidence.artifacts.iter().flat_map(|info| &info.warnings).map(String::as_str).collect();
            let says =
                if entry.value == "-" { warnings.is_empty() } else { warnings.iter().any(|w| w.contains(entry.value)) };
            if says { entry.value.to_owned() } else { warnings.join("; ") }
        }
        other => panic!("no figure {other}"),
    }
}

#[test]
fn every_real_file_gives_what_stands_in_it() {
    let Some(folder) = shared("data") else { return };
    let entries = entries();
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for path in files(&folder, &|name| name != "INDEX.md") {
        let name = path.strip_prefix(&folder).unwrap().to_string_lossy().replace('\\', "/");
        let Some(entry) = entries.get(name.as_str()) else {
            wrong.push(format!("{name}: has no entry; run tests/data/real_files.py"));
            continue;
        };
        seen.insert(name.clone());
        let evidence = read_bytes(name.rsplit('/').next().unwrap(), &std::fs::read(&path).unwrap());
        let info = &evidence.artifacts[0];
        let kind = serde_json::to_value(info.kind).unwrap();
        let devices: BTreeSet<u32> = evidence.artifacts.iter().flat_map(|info| &info.devices).copied().collect();
        let got = (
            kind.as_str().unwrap(),
            info.ranks.clone(),
            devices.into_iter().collect::<Vec<_>>(),
            figure(entry, &evidence),
        );
        let want = (entry.kind, entry.ranks.clone(), entry.devices.clone(), entry.value.to_owned());
        if got != want {
            wrong.push(format!("{name}: {got:?}, not {want:?} {:?}", info.warnings));
        }
    }
    wrong.extend(entries.keys().filter(|name| !seen.contains(**name)).map(|name| format!("{name}: is not there")));
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), entries.len(), wrong.join("\n"));
    println!("{} files", seen.len());
}
