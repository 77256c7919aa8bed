//! A heap of files as a job leaves it: logs by rank, snapshots, a loop, a trace, a script, a list of cards. Read one by
//! one and merged, it is one run with all its ranks.
#![allow(clippy::unwrap_used, reason = "a test that fails should say so at once")]

mod common;

use common::read_bytes;
use rankscope_model::{ArtifactKind, Evidence, LaunchSetting, Subject};
use std::collections::BTreeSet;

const SNAPSHOT: &[u8] = include_bytes!("data/snapshots/protocol4.pickle");
const TRACE: &[u8] = include_bytes!("data/profiler/trace_rank3_of_8.pt.trace.json");
const LIST: &str = "GPU 0: NVIDIA A100 (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000001)\nGPU 1: NVIDIA A100 (UUID: GPU-bbbbbbbb-0000-0000-0000-000000000002)\n";
const APPS: &str = "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\nGPU-bbbbbbbb-0000-0000-0000-000000000002, 4242, python, 1024 MiB\n";

fn heap() -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = (0..4)
        .map(|rank| {
            let log = (0..5).fold(String::new(), |log, step| {
                log + &format!("step={step} shape=(8, 512) cur={}.0MB peak={}.0MB\n", 100 + rank, 200 + rank)
            });
            (format!("logs/rank{rank}.log"), log.into_bytes())
        })
        .collect();
    for rank in [0, 5] {
        files.push((format!("snapshots/rank_{rank}/snapshot.pickle"), SNAPSHOT.to_vec()));
    }
    files.push(("trace.json".to_owned(), TRACE.to_vec()));
    files.push(("smi/cards.txt".to_owned(), LIST.as_bytes().to_vec()));
    files.push(("smi/apps.csv".to_owned(), APPS.as_bytes().to_vec()));
    files.push((
        "env_rank1.txt".to_owned(),
        b"PATH=/bin\nHOME=/root\nRANK=1\nCUDA_VISIBLE_DEVICES=GPU-bbbbbbbb\n".to_vec(),
    ));
    files.push(("train.py".to_owned(), b"import torch\n\ntorch.cuda.set_device(0)\n".to_vec()));
    files.push(("holiday.jpg".to_owned(), b"\xff\xd8\xff\xe0\0\x10JFIF\0".to_vec()));
    files
}

fn check(evidence: &Evidence) {
    let ranks: BTreeSet<u32> = evidence.artifacts.iter().flat_map(|info| &info.ranks).copied().collect();
    assert_eq!(ranks.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 5]);
    assert_eq!(evidence.steps.len(), 20);
    assert_eq!((evidence.snapshots.len(), evidence.scripts.len()), (2, 1));
    assert_eq!(evidence.traces.iter().filter_map(|trace| trace.rank).map(|rank| rank.0).collect::<Vec<_>>(), [3]);
    // The list tells the index of the card that processes and environment name by UUID.
    let rows: Vec<_> = evidence.device_tables.iter().flat_map(|table| &table.processes).collect();
    assert_eq!(rows.iter().map(|row| (row.subject, row.pid)).collect::<Vec<_>>(), [(Subject::Device(1), Some(4242))]);
    let visible = evidence.launches.iter().flat_map(|launch| &launch.facts).find_map(|fact| match &fact.what {
        LaunchSetting::VisibleDevices(list) => Some((fact.rank.map(|rank| rank.0), list.join(","))),
        _ => None,
    });
    assert_eq!(visible, Some((Some(1), "1".to_owned())));
    // What cannot be read is named and sinks nothing.
    let unread: Vec<_> = evidence.artifacts.iter().filter(|info| info.kind == ArtifactKind::Unreadable).collect();
    assert_eq!(unread.len(), 1);
    assert!(unread[0].name.ends_with("holiday.jpg") && unread[0].warnings[0].contains("JPEG"));
}

#[test]
fn a_folder_of_everything_is_one_run() {
    let mut files = heap();
    for _ in 0..files.len() {
        let mut evidence = Evidence::default();
        for (name, bytes) in &files {
            evidence.merge(read_bytes(name, bytes));
        }
        check(&evidence);
        files.rotate_left(1);
    }
}

#[test]
fn the_same_in_one_archive() {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in heap() {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, &name, bytes.as_slice()).unwrap();
    }
    let evidence = read_bytes("job.tar", &tar.into_inner().unwrap());
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::Archive);
    check(&evidence);
}
