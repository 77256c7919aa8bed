//! Real public files and rebuilt cases beside the workspace. They are not ours to pass on, so each test prints that it
//! skips where they are absent.
#![allow(
    clippy::unwrap_used,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "a test that fails should say so at once"
)]

mod common;

use common::{files, read_bytes, shared};
use rankscope_model::{ArtifactKind, Bytes, Evidence, MIB, OomEvent, ProcessListing, Subject};
use std::path::Path;

fn read(path: &Path) -> Evidence {
    read_bytes(&path.file_name().unwrap().to_string_lossy(), &std::fs::read(path).unwrap())
}

/// Counts rows the simple way: by the shape of whole lines, without any state.
struct Counted {
    devices: usize,
    slices: usize,
    processes: usize,
}

impl Counted {
    fn of(text: &str) -> Self {
        let device = regex::Regex::new(r"^\|\s+\d+\s.*\|\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:").unwrap();
        let slice = regex::Regex::new(r"^\|\s+(\d+)\s+(\d+)\s+\d+\s+\d+\s+\|").unwrap();
        let process = regex::Regex::new(r"^\|\s+\d+\s[^|]*(?:\dMiB|N/A)\s+\|\s*$").unwrap();
        let count = |regex: &regex::Regex| text.lines().filter(|line| regex.is_match(line)).count();
        // The compute instances of one GPU instance print the memory that they share, one after the other.
        let mut pools: Vec<(String, String)> = text
            .lines()
            .filter_map(|line| slice.captures(line))
            .map(|found| (found[1].to_owned(), found[2].to_owned()))
            .collect();
        pools.dedup();
        Self { devices: count(&device), slices: pools.len(), processes: count(&process) }
    }
}

fn check_tables(path: &Path) {
    let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    let counted = Counted::of(&text);
    let evidence = read(path);
    let shown = path.display();
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::NvidiaSmi, "{shown}");
    assert_eq!(evidence.device_tables.len(), text.matches("NVIDIA-SMI ").count(), "{shown}");
    let of = |slices: bool| {
        let rows = evidence.device_tables.iter().flat_map(|t| &t.devices);
        rows.filter(|row| matches!(row.subject, Subject::MigSlice { .. }) == slices).count()
    };
    assert_eq!(of(false), counted.devices, "{shown}");
    assert_eq!(of(true), counted.slices, "{shown}");
    let processes: usize = evidence.device_tables.iter().map(|t| t.processes.len()).sum();
    assert_eq!(processes, counted.processes, "{shown}");
    for table in &evidence.device_tables {
        assert!(table.driver_version.is_some(), "{shown}");
        assert_eq!(table.time.is_some(), table.time_text.is_some());
        for row in &table.devices {
            assert!(row.used <= row.total, "{shown}: {row:?}");
            assert!(row.total.is_none_or(|t| t >= Bytes(1024 * MIB) && t < Bytes(400_000 * MIB)), "{shown}: {row:?}");
        }
        for process in &table.processes {
            assert!(process.pid.is_some() && process.name.is_some() && process.kind.is_some(), "{shown}: {process:?}");
            let owner = table.devices.iter().find(|d| d.subject.device() == process.subject.device());
            assert!(owner.is_some_and(|d| process.used <= d.total), "{shown}: {process:?}");
        }
        // Without MIG, the processes of a device hold no more than is used of it (the driver rounds each to a MiB).
        for row in table.devices.iter().filter(|row| row.mig_enabled != Some(true)) {
            let mine = table.processes.iter().filter(|p| p.subject == row.subject);
            let sum: Bytes = mine.clone().filter_map(|p| p.used).sum();
            let slack = Bytes::from_mib(mine.count() as u64 + 1);
            assert!(row.used.is_none_or(|used| sum <= used.saturating_add(slack)), "{shown}: {row:?} {sum}");
        }
    }
}

#[test]
fn real_tables_have_their_devices_and_processes() {
    let Some(folder) = shared("data/nvidia_smi") else { return };
    let wanted = |name: &str| {
        (name.contains("table") || name.contains("smi"))
            && name.ends_with(".txt")
            && !name.contains("query")
            && !name.starts_with("sonar")
    };
    let found = files(&folder, &wanted);
    assert!(found.len() >= 30);
    for path in &found {
        check_tables(path);
    }
    println!("{} files", found.len());
}

#[test]
fn tables_that_were_cut_say_so() {
    let Some(folder) = shared("data/nvidia_smi") else { return };
    let k20m = read(&folder.join("issue_k20m_gpu0_doubled_cut.txt"));
    assert_eq!(k20m.device_tables[0].devices.len(), 3);
    assert_eq!(k20m.device_tables[0].listing, ProcessListing::Missing);
    assert!(k20m.artifacts[0].warnings[0].contains("could not be read"));
    let four = read(&folder.join("issue_learnable_triangulation_4x2080ti_cut.txt"));
    assert_eq!(
        four.device_tables[0].devices.iter().map(|d| d.used.is_some()).collect::<Vec<_>>(),
        [true, true, true, false]
    );
    assert!(four.artifacts[0].warnings[0].contains("ends before the memory of GPU 3"));
}

#[test]
fn tables_of_the_cases_have_their_devices_and_processes() {
    let Some(folder) = shared("cases") else { return };
    let found: Vec<_> = files(&folder, &|name| name.contains("smi") && name.ends_with(".txt"));
    assert!(found.len() >= 45);
    for path in &found {
        check_tables(path);
    }
    println!("{} files", found.len());
}

#[test]
fn real_logs_have_their_records() {
    let Some(folder) = shared("data/logs") else { return };
    let megatron = read(&folder.join("megatron_64ranks_tp4_pp16.out"));
    assert_eq!(megatron.artifacts[0].ranks, (0..64).collect::<Vec<_>>());
    assert_eq!(megatron.steps.len(), 64);
    // Lines are glued; a record must not take its neighbour's figures. Each rank's line is found again on its own.
    let text = std::fs::read_to_string(folder.join("megatron_64ranks_tp4_pp16.out")).unwrap();
    for step in &megatron.steps {
        let head = format!("[Rank {}] (after 20 iterations) memory (MB) | allocated: ", step.subject.rank().unwrap());
        let value = text.split(&head).nth(1).unwrap().split(' ').next().unwrap();
        assert_eq!(step.allocated, Bytes::from_float(value.parse().unwrap(), MIB), "{head}");
    }
    assert!(
        megatron.steps.iter().all(|s| s.step.is_some_and(|s| s.0 == 20)
            && s.allocated < s.peak_allocated
            && s.reserved <= s.peak_reserved)
    );
    assert_eq!(megatron.artifacts[0].kind, ArtifactKind::StepLog);

    let returnn = read(&folder.join("returnn_4rank_steps_before_nccl_oom.txt"));
    let short: Vec<_> = returnn.steps.iter().map(|s| (s.subject.device().unwrap(), s.step.unwrap().0)).collect();
    assert_eq!(short, [(0, 95), (3, 95), (1, 95), (2, 95), (0, 96), (1, 96), (3, 96)]);

    // One rank prints, and does not say which.
    let deepspeed = read(&folder.join("megatron_ds_zero_short.out"));
    assert!(deepspeed.steps.is_empty());
    assert!(deepspeed.artifacts[0].warnings[0].contains("name no rank"));
}

#[test]
fn logs_of_the_cases_have_their_records() {
    let Some(folder) = shared("cases") else { return };
    // (case, file, records, ranks, records with a step, out-of-memory messages)
    let expected = [
        ("C25", "job.log", 8, 8, 8, 1),
        ("C62", "run_a.log", 20, 4, 20, 2),
        ("C62", "run_b.log", 24, 4, 24, 0),
        ("C66", "train.log", 4, 1, 0, 1),
        ("C72", "train.log", 130, 2, 130, 1),
        ("C78", "train.log", 160, 4, 160, 0),
        ("C80", "run_md50.log", 24, 4, 24, 1),
        ("C82", "steps.log", 144, 4, 144, 0),
        ("C84", "train.log", 96, 4, 96, 0),
        ("C86", "train.log", 3, 3, 3, 0),
        ("C92", "train.log", 56, 8, 40, 0),
        ("C94", "run1.log", 32, 8, 24, 0),
        ("C101", "train.log", 48, 8, 48, 2),
        ("C109", "train.log", 18, 2, 0, 0),
        ("C111", "run_a.log", 40, 8, 40, 0),
        ("C97", "ray_job.log", 1, 1, 1, 1),
        ("C97", "memory_stats_rank2.txt", 1, 1, 0, 0),
        ("C103", "memory_stats_rank0.json", 1, 1, 0, 0),
    ];
    for (case, file, records, ranks, steps, ooms) in expected {
        let evidence = read(&folder.join(case).join("full").join(file));
        let mut seen: Vec<_> = evidence.steps.iter().filter_map(|s| s.subject.rank()).collect();
        seen.sort_unstable();
        seen.dedup();
        let with_step = evidence.steps.iter().filter(|s| s.step.is_some()).count();
        let got = (evidence.steps.len(), seen.len(), with_step, evidence.ooms.len());
        assert_eq!(got, (records, ranks, steps, ooms), "{case}/{file} {:?}", evidence.artifacts[0].warnings);
        assert!(
            evidence
                .steps
                .iter()
                .all(|s| s.allocated.is_none() || s.peak_allocated.is_none() || s.allocated <= s.peak_allocated)
        );
    }
}

/// Sizes that must hold between the numbers of one message, with the rounding of two decimals.
fn consistent(oom: &OomEvent) -> bool {
    let slack = Bytes(oom.total.map_or(0, |t| t.0 / 50) + 64 * MIB);
    // Under Windows the driver spills to host memory, so allocated may pass the capacity; free may pass it on shared
    // memory. Neither is an error of reading; the sum of what is read must still be within what is used.
    let spills = oom.allocated > oom.total || oom.free > oom.total;
    let others: Bytes = oom.others.iter().map(|o| o.used).sum();
    let used = oom.total.map(|t| t.saturating_sub(oom.free.unwrap_or_default()));
    let this = oom.this_process.unwrap_or_default();
    let listed = this.saturating_add(others);
    spills
        || (used.is_none_or(|used| listed <= used.saturating_add(slack))
            && oom.this_process.is_none_or(|this| oom.allocated.unwrap_or_default() <= this)
            && oom.reserved.is_none_or(|r| oom.allocated.unwrap_or_default() <= r.saturating_add(slack)))
}

/// Messages in which the failing process could not tell itself from the others, by the sizes in their texts.
const IN_CONTAINERS: [&str; 5] = ["oom27", "oom33", "oom34", "oom36", "oom37"];

#[test]
fn real_messages_are_recognised() {
    let Some(folder) = shared("data/oom") else { return };
    let text = std::fs::read_to_string(folder.join("oom_messages.jsonl")).unwrap();
    let mut recognised = 0;
    let mut missed = Vec::new();
    for line in text.lines() {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        let (id, message) = (entry["id"].as_str().unwrap(), entry["text"].as_str().unwrap());
        let evidence = read_bytes("oom.txt", message.as_bytes());
        let note = entry["note"].as_str().unwrap();
        if note.contains("not a failure") {
            assert!(evidence.ooms.is_empty() && evidence.artifacts[0].warnings[0].contains("not a failure"), "{id}");
            recognised += 1;
            continue;
        }
        match evidence.ooms.as_slice() {
            [] => missed.push(id.to_owned()),
            [oom] => {
                recognised += 1;
                assert!(consistent(oom), "{id}: {oom:?}");
                assert_eq!(evidence.artifacts[0].kind, ArtifactKind::OomMessage);
                if message.contains("total capac") {
                    assert!(
                        oom.tried.is_some()
                            && oom.total.is_some()
                            && oom.free.is_some()
                            && oom.allocated.is_some()
                            && oom.device.is_some(),
                        "{id}: {oom:?}"
                    );
                    // In a container the process itself is one of them.
                    let is_listed = !message.contains("this process has") && oom.this_process.is_some();
                    let listed = message.matches("Process ").count();
                    assert_eq!(oom.others.len() + usize::from(is_listed), listed, "{id}");
                    assert_eq!(is_listed, IN_CONTAINERS.contains(&id), "{id}");
                }
            }
            several => panic!("{id}: {several:?}"),
        }
        let expected = match entry["family"].as_str().unwrap() {
            "torch0.3" => Some("F0"),
            "torch1.0" | "torch1.3" | "torch1.x-cached" => Some("F1"),
            "torch1.11+" | "torch2.0" | "torch2.0-win" => Some("F3"),
            "torch2.1" | "torch2.1-win" => Some("F4"),
            "torch2.5+" | "torch2.6" => Some("F6"),
            "torch2.9+" => Some("F7"),
            "torch-mps" => Some("mps"),
            _ => None,
        };
        if let (Some(expected), Some(oom)) = (expected, evidence.ooms.first()) {
            assert_eq!(oom.family, expected, "{id}");
        }
    }
    println!("{recognised} of {} recognised", text.lines().count());
    assert_eq!(missed, Vec::<String>::new());
}

#[test]
fn every_real_file_is_read_without_harm() {
    for folder in ["data", "cases"] {
        let Some(folder) = shared(folder) else { continue };
        for path in files(&folder, &|_| true) {
            if path.metadata().unwrap().len() > 512 << 10 {
                continue;
            }
            let evidence = read(&path);
            assert!(!evidence.artifacts.is_empty());
            let is_script = path.extension().is_some_and(|e| e == "py");
            assert_eq!(is_script, evidence.artifacts[0].kind == ArtifactKind::PythonScript, "{}", path.display());
        }
    }
}
