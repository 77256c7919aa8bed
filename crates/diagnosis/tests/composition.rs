//! What fills a card: the allocator of its own rank, the rest of that process, the contexts of other ranks, strangers.
#![allow(clippy::unwrap_used, reason = "a test that fails should say so at once")]

mod support;

use rankscope_diagnosis::{Policy, diagnose, figures};
use rankscope_model::{ArtifactKind, Bytes, Evidence, Part, PartKind, Rank, Subject, UnixMicros};
use support::{Build, mib as some_mib, others, snapshot, snapshot_device};

const AT: i64 = 1_764_500_000_000_000;

/// Two ranks at home on two cards; rank 1 and a stranger also on card 0. `said` is what rank 0 says of its allocator:
/// seconds after the list, allocated and reserved MiB.
fn parts(said: &[(i64, u64, u64)], with_rank: bool) -> Vec<Part> {
    let mut build = Build::default().file("node-a.live.jsonl", ArtifactKind::LiveRecord).table(
        Some(0),
        &[(0, 21_500, 46_068, 90), (1, 20_000, 46_068, 90)],
        &[(0, 100, "python", 20_000), (1, 101, "python", 19_500), (0, 101, "python", 500), (0, 7, "jupyter", 700)],
    );
    for row in &mut build.evidence.device_tables[0].processes {
        row.at.time = Some(UnixMicros(AT));
        row.rank = row.pid.filter(|pid| with_rank && *pid >= 100).map(|pid| Rank(pid - 100));
    }
    let mut build = build.file("rank0.jsonl", ArtifactKind::ProbeLog);
    for (step, (seconds, allocated, reserved)) in (0u64..).zip(said) {
        build = build.step(0, Some(step), |record| {
            record.at.time = Some(UnixMicros(AT + seconds * 1_000_000));
            record.allocated = Some(Bytes::from_mib(*allocated));
            record.reserved = Some(Bytes::from_mib(*reserved));
        });
    }
    let policy = Policy::default();
    let drawn = figures(&build.evidence, &diagnose(&build.evidence, &policy), &policy);
    let card = drawn.composition.into_iter().find(|found| found.subject == Subject::Device(0)).unwrap();
    card.parts
}

fn mib(parts: &[Part]) -> Vec<(PartKind, u64)> {
    parts.iter().map(|part| (part.kind, part.bytes.0 >> 20)).collect()
}

#[test]
fn the_probe_splits_the_process_of_a_card_at_the_moment_of_the_list() {
    let found = parts(&[(-300, 1_000, 2_000), (-2, 15_000, 18_000), (60, 3_000, 4_000)], true);
    assert_eq!(
        mib(&found),
        [
            (PartKind::Allocated, 15_000),
            (PartKind::Cached, 3_000),
            (PartKind::OutsidePytorch, 2_000),
            (PartKind::OtherRanks, 500),
            (PartKind::OtherProcesses, 700),
            (PartKind::Unaccounted, 300),
        ]
    );
}

#[test]
fn figures_of_another_moment_or_that_do_not_fit_split_nothing() {
    let whole = (PartKind::OwnProcess, 20_000);
    for said in [&[(-300, 1_000, 2_000)][..], &[(1, 25_000, 30_000)], &[(1, 3_000, 2_000)], &[]] {
        assert!(mib(&parts(said, true)).contains(&whole), "{said:?}");
    }
    assert!(mib(&parts(&[(1, 1_000, 2_000)], false)).contains(&whole), "nothing tells whose process it is");
}

/// Of the only card or rank.
fn only(evidence: &Evidence) -> Vec<(PartKind, u64)> {
    let policy = Policy::default();
    let drawn = figures(evidence, &diagnose(evidence, &policy), &policy);
    assert_eq!(drawn.composition.len(), 1);
    mib(&drawn.composition[0].parts)
}

/// Rank 5 fails with 24 of 36 GiB allocated; `active` is what its statistics say, beside as much or other allocated.
fn failing(active: Option<(u64, u64)>) -> Evidence {
    let mut build = Build::default().file("oom.txt", ArtifactKind::OomMessage).oom(|oom| {
        oom.rank = Some(Rank(5));
        (oom.total, oom.free) = (some_mib(40_000), some_mib(500));
        (oom.allocated, oom.reserved) = (some_mib(24_000), some_mib(36_000));
    });
    if let Some((allocated, active)) = active {
        build = build.file("stats.txt", ArtifactKind::MemoryStats).step(5, None, |row| {
            (row.allocated, row.active, row.reserved) = (some_mib(allocated), some_mib(active), some_mib(36_000));
        });
    }
    build.evidence
}

#[test]
fn blocks_that_wait_for_a_stream_are_a_part_of_their_own() {
    let waiting = [
        (PartKind::Allocated, 24_000),
        (PartKind::Waiting, 11_000),
        (PartKind::Cached, 1_000),
        (PartKind::Untold, 3_500),
    ];
    assert_eq!(only(&failing(Some((24_000, 35_000)))), waiting);
    let cached = [(PartKind::Allocated, 24_000), (PartKind::Cached, 12_000), (PartKind::Untold, 3_500)];
    assert_eq!(only(&failing(None)), cached);
    // Statistics of another moment split nothing.
    assert_eq!(only(&failing(Some((9_000, 35_000)))), cached);

    // The statistics alone, and a snapshot.
    let mut stats = failing(Some((24_000, 35_000)));
    stats.ooms.clear();
    assert_eq!(only(&stats), waiting[..3]);
    let device = rankscope_model::SnapshotDevice {
        allocated: Bytes::from_mib(24_000),
        active: Bytes::from_mib(35_000),
        ..snapshot_device(0, Bytes::from_mib(36_000))
    };
    let mut file = Build::default().file("rank5.pickle", ArtifactKind::TorchSnapshot).evidence;
    file.snapshots = vec![snapshot(0, Some(5), vec![device])];
    assert_eq!(only(&file), waiting[..3]);
}

#[test]
fn without_a_list_of_processes_nothing_is_said_of_whose_memory_it_is() {
    let smi = Build::default().file("smi.csv", ArtifactKind::NvidiaSmiCsv).table(None, &[(0, 9_000, 16_000, 90)], &[]);
    assert_eq!(only(&smi.evidence), [(PartKind::Untold, 9_000)]);
}

#[test]
fn a_message_that_lists_its_own_process_among_the_others_names_no_stranger() {
    let message = |listed: u64| {
        let mut evidence = failing(None);
        evidence.ooms[0].others = others(&[(4711, listed)]);
        only(&evidence)
    };
    assert!(message(3_000).contains(&(PartKind::OtherProcesses, 3_000)));
    // 36,000 are its own already.
    assert_eq!(message(39_000), only(&failing(None)));
}
