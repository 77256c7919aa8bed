//! Jobs on several nodes, as live records show them: cards of one index and processes of one PID stand on each node, and
//! nothing of one is held for the other's.

#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test fails loudly")]

mod support;

use rankscope_diagnosis::{Policy, diagnose, figures};
use rankscope_model::{
    Bytes, CauseLabel, Diagnosis, Evidence, MIB, PartKind, Quantity, Rank, SeriesAxis, Subject, UnixMicros, Verdict,
};
use support::{confidence, upload, with};

const CARDS: u32 = 4;
const START: u64 = 1_764_467_297_000_000;

/// What the cards of a node hold at a second: MiB of each own process, and of each process that visits card 0.
type Held = fn(second: u64) -> ([u64; CARDS as usize], u64);

/// The record of a node over ten seconds, whose first rank is `first`.
fn record(node: &str, first: u32, held: Held) -> Evidence {
    let mut lines = vec![format!(
        r#"{{"type":"batch","format":"rankscope.live/1","source":"{node}-s","node":"{node}","first":0,"last":99}}"#
    )];
    let device = |index| format!(r#"{{"subject":{{"device":{index}}},"name":"A100","total":{}}}"#, 80_000 * MIB);
    let devices: Vec<String> = (0..CARDS).map(device).collect();
    lines.push(format!(r#"{{"seq":0,"t":{START},"type":"node","host":"{node}","devices":[{}]}}"#, devices.join(",")));
    for second in 0..10 {
        let t = START + second * 1_000_000 + u64::from(first) * 10_000;
        let (own, visit) = held(second);
        let process = |card: u32, local: u32, mib: u64| {
            format!(
                r#"{{"subject":{{"device":{card}}},"pid":{},"started":{},"kind":"C","name":"python3","used":{},"rank":{{"rank":{},"local_rank":{local},"world_size":8,"job":"master:10.0.0.7:29500"}}}}"#,
                100 + local,
                4000 + local,
                mib * MIB,
                first + local
            )
        };
        let homes = (0..CARDS).zip(own).map(|(card, mib)| process(card, card, mib));
        let visits = (1..CARDS).filter(|_| visit > 0).map(|local| process(0, local, visit));
        let processes: Vec<String> = homes.chain(visits).collect();
        lines.push(format!(
            r#"{{"seq":{},"t":{t},"type":"processes","listing":"listed","processes":[{}]}}"#,
            second * 2 + 1,
            processes.join(",")
        ));
        let used = |(card, mib): (u32, u64)| {
            let visitors = if card == 0 { visit * u64::from(CARDS - 1) } else { 0 };
            let used = (mib + visitors + 450) * MIB;
            format!(r#"{{"subject":{{"device":{card}}},"used":[{used}]}}"#)
        };
        let columns: Vec<String> = (0..CARDS).zip(own).map(used).collect();
        lines.push(format!(
            r#"{{"seq":{},"t":{t},"type":"memory","dt_us":[0],"devices":[{}]}}"#,
            second * 2 + 2,
            columns.join(",")
        ));
    }
    upload(&format!("{node}.live.jsonl"), &lines.iter().map(|line| format!("{line}\n")).collect::<String>())
}

fn job(a: Held, b: Held) -> (Evidence, Diagnosis) {
    let evidence = with(record("node-a", 0, a), record("node-b", 4, b));
    let diagnosis = diagnose(&evidence, &Policy::default());
    (evidence, diagnosis)
}

fn rank(n: u32) -> Subject {
    Subject::Rank(Rank(n))
}

const EVEN: Held = |_| ([30_000; 4], 0);

#[test]
fn a_heavy_rank_is_held_against_the_ranks_of_all_nodes() {
    let (evidence, diagnosis) = job(EVEN, |_| ([30_000, 30_000, 44_000, 30_000], 0));
    let imbalance = diagnosis.imbalance.as_ref().unwrap();
    assert_eq!(diagnosis.verdict, Verdict::Imbalance);
    assert_eq!((imbalance.compared, imbalance.heaviest.as_slice()), (8, &[rank(6)][..]));
    assert!(
        diagnosis.summary.starts_with("Rank 6 (GPU 2 of node-b) is 46 % fuller than the median rank"),
        "{}",
        diagnosis.summary
    );
    assert!(diagnosis.causes.iter().all(|cause| cause.label != CauseLabel::ZombieLeftover));
    let own = diagnosis.findings.iter().find(|finding| finding.claim.contains("GPU 2's own process")).unwrap();
    assert!(own.claim.starts_with("node-b: "), "{}", own.claim);
    // Nobody finds a machine by the number of a rank alone.
    for finding in diagnosis.findings.iter().filter(|finding| finding.claim.contains("rank 6 ")) {
        assert!(finding.claim.contains("rank 6 (GPU 2 of node-b)"), "{}", finding.claim);
    }

    let figures = figures(&evidence, &diagnosis, &Policy::default());
    let timeline = figures.timeline.unwrap();
    assert_eq!((timeline.quantity, timeline.axis), (Quantity::DeviceUsed, SeriesAxis::UnixMicros));
    for line in &timeline.lines {
        let mib = if line.subject == rank(6) { 44_450 } else { 30_450 };
        assert_eq!((line.y.len(), line.accused), (10, line.subject == rank(6)));
        assert!(line.y.iter().all(|used| *used == mib * MIB), "{:?}", line.subject);
    }
    assert_eq!(
        timeline.lines.iter().map(|line| line.subject).collect::<Vec<_>>(),
        (0..8).map(rank).collect::<Vec<_>>()
    );
    let peaks = figures.peaks.unwrap();
    assert_eq!((peaks.bars.len(), peaks.per_node), (8, Some(CARDS)));
    let own = |n: u32| {
        let card = figures.composition.iter().find(|card| card.subject == rank(n)).unwrap();
        card.parts.iter().find(|part| part.kind == PartKind::OwnProcess).unwrap().bytes.0 / MIB
    };
    assert_eq!((figures.composition.len(), own(2), own(6)), (8, 30_000, 44_000));
}

#[test]
fn contexts_that_open_on_one_node_are_found_there() {
    let (_, diagnosis) = job(|second| ([30_000; 4], if second < 4 { 0 } else { 1_000 }), EVEN);
    let imbalance = diagnosis.imbalance.as_ref().unwrap();
    assert_eq!(imbalance.heaviest, [rank(0)]);
    assert!(diagnosis.summary.starts_with("Rank 0 (GPU 0 of node-a)"), "{}", diagnosis.summary);
    assert!(
        diagnosis.summary.contains("contexts of ranks 1 to 3") || diagnosis.summary.contains("three"),
        "{}",
        diagnosis.summary
    );
    assert!(confidence(&diagnosis, CauseLabel::CtxNoSetDevice) > 0.2, "{:?}", diagnosis.causes);
    assert!(imbalance.opens_at.as_ref().unwrap().text.starts_with("at "), "{:?}", imbalance.opens_at);
    assert!(imbalance.explained_bytes.unwrap().0 >= 2_900 * MIB);
    // What speaks for a cause names the machine, too.
    let why = &diagnosis.causes[0].why;
    assert!(why.iter().filter(|why| why.contains("GPU")).all(|why| why.contains("node-a")), "{why:#?}");
}

#[test]
fn nodes_that_differ_as_wholes_are_seen_side_by_side() {
    let (_, diagnosis) = job(EVEN, |_| ([44_000; 4], 0));
    assert_eq!(diagnosis.imbalance.as_ref().unwrap().heaviest, (4..8).map(rank).collect::<Vec<_>>());
    let (_, even) = job(EVEN, EVEN);
    assert_eq!((even.verdict, even.imbalance.unwrap().compared), (Verdict::Balanced, 8));
    assert!(even.causes.is_empty());
}

#[test]
fn little_that_no_process_owns_explains_no_wide_gap() {
    // One node: 350 MiB more on card 0 are in no list, and card 2 is 14 GiB fuller.
    let evidence = record("node-a", 0, |_| ([30_000, 30_000, 44_000, 30_000], 0));
    let mut evidence = evidence;
    for table in &mut evidence.device_tables {
        table.devices[0].used = table.devices[0].used.map(|used| Bytes(used.0 + 350 * MIB));
        table.devices[2].used = table.devices[2].used.map(|used| Bytes(used.0 + 350 * MIB));
    }
    let diagnosis = diagnose(&evidence, &Policy::default());
    assert!(!diagnosis.summary.contains("because"), "{}", diagnosis.summary);
    let told = diagnosis.findings.iter().filter(|finding| finding.claim.contains("than its listed processes hold"));
    assert_eq!(told.count(), 2, "both are told, neither explains it");
}

#[test]
fn ranks_that_end_one_after_the_other_are_no_leftover_until_they_stay() {
    let mut evidence = record("node-a", 0, EVEN);
    let mut last = evidence.device_tables.last().unwrap().clone();
    last.time = last.time.map(|time| UnixMicros(time.0 + 1_000_000));
    last.processes.truncate(2);
    for device in &mut last.devices[2..] {
        device.used = Some(Bytes(450 * MIB));
    }
    evidence.device_tables.push(last.clone());
    let is_named = |evidence: &Evidence| {
        let diagnosis = diagnose(evidence, &Policy::default());
        diagnosis.findings.iter().any(|finding| finding.label == Some(CauseLabel::ZombieLeftover))
    };
    assert!(!is_named(&evidence));
    last.time = last.time.map(|time| UnixMicros(time.0 + 90_000_000));
    evidence.device_tables.push(last);
    assert!(is_named(&evidence));
}
