//! Promises that hold for any evidence, however odd: no panic, confidences in range, every reference in range, and a
//! diagnosis that survives JSON.

#![allow(clippy::unwrap_used, clippy::float_cmp, reason = "a test fails loudly; an absent cause is exactly zero")]

mod support;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use rankscope_diagnosis::{Policy, diagnose, figures, next_step};
use rankscope_model::{
    ArtifactId, ArtifactInfo, ArtifactKind, Bytes, CallSite, CauseLabel, DeviceRow, DeviceTable, Diagnosis, Evidence,
    Figures, Frame, Item, ItemStatus, MIB, OomEvent, OtherProcess, Phase, Place, ProcessListing, ProcessRow,
    Provenance, Rank, Series, SeriesAxis, SnapshotDevice, SnapshotEvidence, Step, StepRecord, Subject, UnixMicros,
    Verdict,
};

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(u64::MAX), Just(u64::MAX / 2), 0..4096u64, (0..160_000u64).prop_map(|n| n * MIB)]
}

fn bytes() -> impl Strategy<Value = Option<Bytes>> {
    option::of(number().prop_map(Bytes))
}

fn place() -> impl Strategy<Value = Provenance> {
    (0..4u32, number(), 0..3u8, option::of(any::<i64>())).prop_map(|(artifact, n, kind, time)| Provenance {
        artifact: ArtifactId(artifact),
        place: match kind {
            0 => Place::Line(n),
            1 => Place::Lines(n, n / 2),
            _ => Place::Offset(n),
        },
        time: time.map(UnixMicros),
        quote: if n % 3 == 0 { String::new() } else { "text 显".to_owned() },
    })
}

fn subject() -> impl Strategy<Value = Subject> {
    prop_oneof![
        (0..5u32).prop_map(|r| Subject::Rank(Rank(r))),
        (0..5u32).prop_map(Subject::Device),
        (0..2u32, 0..3u32, 0..2u32).prop_map(|(device, gpu_instance, compute_instance)| Subject::MigSlice {
            device,
            gpu_instance,
            compute_instance
        }),
        Just(Subject::Rank(Rank(u32::MAX))),
    ]
}

fn table() -> impl Strategy<Value = DeviceTable> {
    let device = (place(), subject(), bytes(), bytes(), option::of(any::<u8>()), option::of(any::<bool>())).prop_map(
        |(at, subject, used, total, utilization_percent, display_active)| DeviceRow {
            used,
            total,
            utilization_percent,
            display_active,
            ..DeviceRow::new(at, subject)
        },
    );
    let names = prop_oneof![Just("python"), Just("Unknown Error"), Just("sglang::x"), Just(""), Just("显")];
    let process = (
        place(),
        subject(),
        option::of(0..6u32),
        option::of(prop_oneof![Just("C"), Just("G"), Just("M+C")]),
        option::of(names),
        bytes(),
        option::of(0..9u32),
    )
        .prop_map(|(at, subject, pid, kind, name, used, rank)| ProcessRow {
            at,
            subject,
            pid,
            kind: kind.map(str::to_owned),
            name: name.map(str::to_owned),
            used,
            rank: rank.map(Rank),
        });
    let listing = prop_oneof![
        Just(ProcessListing::Listed),
        Just(ProcessListing::NoneFound),
        Just(ProcessListing::Partial),
        Just(ProcessListing::Missing)
    ];
    (place(), option::of(any::<i64>()), vec(device, 0..6), vec(process, 0..14), listing).prop_map(
        |(at, time, devices, processes, listing)| DeviceTable {
            at,
            time_text: time.map(|t| format!("Wed {t}:00:00")),
            time: time.map(UnixMicros),
            driver_version: None,
            cuda_version: None,
            devices,
            processes,
            listing,
        },
    )
}

fn phase() -> impl Strategy<Value = Phase> {
    prop_oneof![Just(Phase::Init), Just(Phase::Train), Just(Phase::Eval), Just(Phase::Save), Just(Phase::Resume)]
}

fn step() -> impl Strategy<Value = StepRecord> {
    (
        (place(), subject(), option::of(prop_oneof![0..12u64, Just(u64::MAX)]), option::of(phase())),
        (option::of(vec(number(), 0..4)), option::of(number()), option::of(number())),
        (bytes(), bytes(), bytes(), bytes(), bytes()),
    )
        .prop_map(|((at, subject, step, phase), (shape, samples, tokens), (a, pa, r, pr, du))| StepRecord {
            step: step.map(Step),
            phase,
            batch_shape: shape,
            batch_samples: samples,
            batch_tokens: tokens,
            allocated: a,
            peak_allocated: pa,
            reserved: r,
            peak_reserved: pr,
            device_used: du,
            ..StepRecord::new(at, subject)
        })
}

fn oom() -> impl Strategy<Value = OomEvent> {
    (
        (place(), prop_oneof![Just("F6"), Just("nccl_alloc"), Just("")], option::of(0..4u32), option::of(0..4u32)),
        (bytes(), bytes(), bytes(), bytes(), bytes(), bytes(), bytes()),
        vec((any::<u32>(), number()), 0..4),
        any::<bool>(),
    )
        .prop_map(
            |((at, family, rank, device), (tried, total, free, all, allocated, reserved, cached), others, host)| {
                OomEvent {
                    family: family.to_owned(),
                    rank: rank.map(Rank),
                    device,
                    tried,
                    total,
                    free,
                    this_process: all,
                    allocated,
                    reserved,
                    reserved_unallocated: cached,
                    others: others.into_iter().map(|(pid, used)| OtherProcess { pid, used: Bytes(used) }).collect(),
                    host_memory: host,
                    frames: vec![],
                    ..support::empty_oom(at)
                }
            },
        )
}

fn snapshot() -> impl Strategy<Value = SnapshotEvidence> {
    let site = (prop_oneof![Just("adam"), Just("forward"), Just("evaluate")], number(), any::<bool>()).prop_map(
        |(function, bytes, has_stack)| CallSite {
            frames: if has_stack {
                vec![Frame { function: function.to_owned(), file: "t.py".to_owned(), line: 3 }]
            } else {
                vec![]
            },
            bytes: Bytes(bytes),
            blocks: 1,
        },
    );
    let live = option::of(vec((any::<i64>(), number()), 0..6)).prop_map(|points| {
        points.map(|points| Series {
            axis: SeriesAxis::Index,
            x: points.iter().map(|p| p.0).collect(),
            y: points.iter().map(|p| p.1).collect(),
        })
    });
    let device = (0..3u32, (number(), number(), number(), number()), live, vec(site, 0..4), any::<bool>()).prop_map(
        |(device, (reserved, allocated, active, pool), live, top_sites, failed)| SnapshotDevice {
            allocated: Bytes(allocated),
            active: Bytes(active),
            private_pool_inactive: Bytes(pool),
            live,
            top_sites,
            ooms: if failed { vec![(0, Bytes(reserved), Bytes(active))] } else { vec![] },
            ..support::snapshot_device(device, Bytes(reserved))
        },
    );
    (place(), option::of(0..4u32), vec(device, 0..3)).prop_map(|(at, rank, devices)| SnapshotEvidence {
        at,
        rank: rank.map(Rank),
        torch_versions: String::new(),
        devices,
    })
}

fn evidence() -> impl Strategy<Value = Evidence> {
    let info = any::<bool>().prop_map(|named| ArtifactInfo {
        name: if named { "a.txt".to_owned() } else { String::new() },
        kind: ArtifactKind::Text,
        ranks: vec![],
        devices: vec![],
        bytes: 0,
        warnings: vec![],
    });
    (vec(info, 0..4), vec(table(), 0..4), vec(step(), 0..60), vec(oom(), 0..4), vec(snapshot(), 0..4)).prop_map(
        |(artifacts, device_tables, steps, ooms, snapshots)| Evidence {
            artifacts,
            device_tables,
            steps,
            ooms,
            snapshots,
            ..Evidence::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_evidence_gives_a_sound_diagnosis(evidence in evidence()) {
        let policy = Policy::default();
        let diagnosis = diagnose(&evidence, &policy);
        let charts = figures(&evidence, &diagnosis, &policy);

        prop_assert!(!diagnosis.summary.is_empty());
        prop_assert!(![",;", ",.", " ,"].iter().any(|slip| diagnosis.summary.contains(slip)), "{}", diagnosis.summary);
        prop_assert!(!diagnosis.summary.contains("NaN") && !diagnosis.summary.contains("inf"), "{}", diagnosis.summary);
        prop_assert!(diagnosis.causes.iter().map(|c| c.confidence).sum::<f64>() <= 1.001);
        prop_assert!(diagnosis.causes.is_sorted_by(|a, b| a.confidence >= b.confidence));
        for cause in &diagnosis.causes {
            prop_assert!((0.0..=1.0).contains(&cause.confidence));
            prop_assert!(!matches!(cause.label, CauseLabel::Benign | CauseLabel::Unresolved));
            prop_assert!(!cause.why.is_empty() && !cause.remedy.is_empty());
            prop_assert!(cause.ranks.is_sorted());
            for reference in &cause.evidence {
                let reason = reference.reason.clone().unwrap_or_default();
                let (list, index) = reason.split_once('.').unwrap();
                let length = if list == "why" { cause.why.len() } else { cause.against.len() };
                prop_assert!(index.parse::<usize>().unwrap() < length);
            }
        }
        let ids: std::collections::BTreeSet<&str> = diagnosis.findings.iter().map(|f| f.id.as_str()).collect();
        prop_assert_eq!(ids.len(), diagnosis.findings.len());
        prop_assert_eq!(diagnosis.checklist.len(), Item::ALL.len());
        for entry in &diagnosis.checklist {
            prop_assert!((1..=4).contains(&entry.stage));
            prop_assert!(entry.findings.iter().all(|id| ids.contains(id.as_str())));
            prop_assert!(entry.status != ItemStatus::Unknown || !entry.collect.is_empty());
        }
        if let Some(imbalance) = &diagnosis.imbalance {
            prop_assert!(imbalance.ratio.is_finite() && imbalance.ratio >= 0.0);
            prop_assert!(imbalance.compared >= 2);
            prop_assert!(!imbalance.heaviest.is_empty() || diagnosis.verdict != Verdict::Imbalance);
            let is_settled = matches!(diagnosis.verdict, Verdict::Balanced | Verdict::UniformPressure);
            prop_assert!(imbalance.heaviest.is_empty() || !is_settled);
        } else {
            prop_assert_eq!(diagnosis.verdict, Verdict::Inconclusive);
        }
        for line in charts.timeline.iter().flat_map(|t| &t.lines) {
            prop_assert_eq!(line.x.len(), line.y.len());
        }
        prop_assert!(next_step(&diagnosis).is_some());

        let json = serde_json::to_string(&diagnosis).unwrap();
        prop_assert_eq!(serde_json::from_str::<Diagnosis>(&json).unwrap(), diagnosis);
        prop_assert_eq!(serde_json::from_str::<Figures>(&serde_json::to_string(&charts).unwrap()).unwrap(), charts);
    }
}
