//! Profiler traces, memory timelines, the viewer's pages and `memory_summary()`: own files with figures worked out by
//! `data/profiler/make.py`, and real ones with figures worked out in Python from the same files.
#![allow(clippy::unwrap_used, reason = "a test that fails should say so at once")]

mod common;

use common::{read_bytes, shared};
use proptest::prelude::*;
use rankscope_model::{
    ArtifactKind, Bytes, Evidence, MIB, MemoryCategory, MemoryTrace, Rank, SeriesAxis, StepRecord, Subject, TraceSource,
};
use serde_json::Value;
use std::path::Path;

fn own(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/profiler");
    std::fs::read(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn expected(name: &str) -> Value {
    let all: Value = serde_json::from_slice(&own("expected.json")).unwrap();
    all.get(name).unwrap().clone()
}

fn only(evidence: &Evidence) -> &MemoryTrace {
    let [trace] = evidence.traces.as_slice() else { panic!("{:?}", evidence.traces) };
    trace
}

fn peak(trace: &MemoryTrace) -> (u64, i64) {
    let peak = trace.peak.as_ref().unwrap();
    (peak.bytes.0, peak.x)
}

fn extremes(trace: &MemoryTrace) -> (u64, u64) {
    let band = trace.curve.as_ref().unwrap().allocated.as_ref().unwrap();
    (*band.low.iter().min().unwrap(), *band.high.iter().max().unwrap())
}

// ---- profiler traces

#[test]
fn a_trace_gives_its_rank_and_the_course_of_its_device() {
    let name = "trace_rank3_of_8.pt.trace.json";
    let (evidence, expected) = (read_bytes("worker.pt.trace.json", &own(name)), expected(name));
    let trace = only(&evidence);
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::ProfilerTrace);
    assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new());
    assert_eq!(
        (evidence.artifacts[0].ranks.as_slice(), evidence.artifacts[0].devices.as_slice()),
        (&[3][..], &[1][..])
    );
    assert_eq!((trace.source, trace.rank, trace.world_size), (TraceSource::Profiler, Some(Rank(3)), Some(8)));
    assert_eq!((trace.backend.as_deref(), trace.device), (Some("nccl"), Some(1)));
    assert_eq!((trace.device_name.as_deref(), trace.capacity), (Some("Made-up GPU"), Some(Bytes(64 << 30))));
    assert_eq!(serde_json::json!(trace.events), expected["events"]);
    assert_eq!(
        serde_json::json!([peak(trace).0, peak(trace).1]),
        serde_json::json!([expected["peak"], expected["peak_us"]])
    );
    assert_eq!(serde_json::json!(trace.peak_reserved), expected["peak_reserved"]);
    assert_eq!(serde_json::json!(extremes(trace)), serde_json::json!([expected["lowest"], expected["peak"]]));
    let curve = trace.curve.as_ref().unwrap();
    assert!(curve.axis == SeriesAxis::UnixMicros && curve.x.is_sorted() && curve.x.len() == 120);
}

#[test]
fn a_bare_list_of_events_is_a_trace_without_dates() {
    let (evidence, expected) = (read_bytes("rank1.json", &own("events_only.json")), expected("events_only.json"));
    let trace = only(&evidence);
    assert_eq!((trace.rank, trace.capacity), (Some(Rank(1)), None));
    assert_eq!(serde_json::json!(peak(trace).0), expected["peak"]);
    assert_eq!(trace.curve.as_ref().unwrap().axis, SeriesAxis::Index);
}

#[test]
fn without_totals_the_sum_is_a_lower_bound() {
    let (evidence, expected) = (read_bytes("t.json", &own("trace_torch19.json")), expected("trace_torch19.json"));
    let trace = only(&evidence);
    assert!(trace.is_lower_bound && trace.peak_reserved.is_none());
    assert_eq!(
        serde_json::json!([peak(trace).0, peak(trace).1]),
        serde_json::json!([expected["peak"], expected["peak_us"]])
    );
    assert_eq!(extremes(trace).0, 0);
    let warnings = evidence.artifacts[0].warnings.join("\n");
    assert!(warnings.contains("lower bounds") && warnings.contains("does not say its rank"), "{warnings}");
}

#[test]
fn failed_allocations_are_messages() {
    let text = r#"{"traceEvents": [{"name": "[OutOfMemory]", "ph": "i", "ts": 1700000000000000, "args": {"Bytes": 2097152,
        "Device Type": 1, "Device Id": 0, "Total Allocated": 1024, "Total Reserved": 4096}}],
        "deviceProperties": [{"id": 0, "totalGlobalMem": 65536}], "distributedInfo": {"rank": 2, "world_size": 4}}"#;
    let evidence = read_bytes("x.json", text.as_bytes());
    let [oom] = evidence.ooms.as_slice() else { panic!("{evidence:?}") };
    assert_eq!((oom.rank, oom.device, oom.tried), (Some(Rank(2)), Some(0), Some(Bytes(2 * MIB))));
    assert_eq!(
        (oom.total, oom.allocated, oom.reserved_unallocated),
        (Some(Bytes(65536)), Some(Bytes(1024)), Some(Bytes(3072)))
    );
}

/// Wherever a trace breaks off: a reason, or figures of the events before the cut.
#[test]
fn a_cut_trace_gives_what_stands_before_the_cut() {
    let bytes = own("trace_rank3_of_8.pt.trace.json");
    let whole = expected("trace_rank3_of_8.pt.trace.json")["events"].as_u64().unwrap();
    let mut used = 0;
    for end in (0..bytes.len()).step_by(97) {
        let evidence = read_bytes("t.json", &bytes[..end]);
        let artifact = &evidence.artifacts[0];
        assert!(!artifact.warnings.is_empty(), "cut at {end}");
        let Some(trace) = evidence.traces.first() else { continue };
        assert!(artifact.warnings[0].contains("what stands before was read"), "{:?}", artifact.warnings);
        assert_eq!(trace.rank, Some(Rank(3)));
        assert!(trace.events <= whole);
        used += 1;
    }
    assert!(used > 100, "{used}");
}

#[test]
fn json_of_other_kinds_is_not_taken_for_a_trace() {
    for text in ["{}", "[]", "[{\"a\": 1}]", "{\"loss\": 0.5}", "{\"epochs\": [{\"loss\": 5}]}", "[[1, 2], [3, 4]]"] {
        let evidence = read_bytes("x.json", text.as_bytes());
        assert!(evidence.traces.is_empty());
        let kind = evidence.artifacts[0].kind;
        assert!(!matches!(kind, ArtifactKind::ProfilerTrace | ArtifactKind::MemoryTimeline), "{text}: {kind:?}");
    }
}

// ---- memory timelines

#[test]
fn both_forms_of_a_memory_timeline_tell_the_same_peak() {
    for name in ["memory_rank5.raw.json", "memory_rank5.json"] {
        let (evidence, expected) = (read_bytes(name, &own(name)), expected(name));
        let trace = only(&evidence);
        assert_eq!(evidence.artifacts[0].kind, ArtifactKind::MemoryTimeline, "{name}");
        assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new(), "{name}");
        assert_eq!((trace.source, trace.rank, trace.device), (TraceSource::MemoryTimeline, Some(Rank(5)), None));
        assert_eq!(serde_json::json!(trace.events), expected["samples"], "{name}");
        assert_eq!(serde_json::json!(peak(trace).0), expected["peak"], "{name}");
        assert_eq!(serde_json::json!(peak(trace).1), expected["peak_us"], "{name}");
        let categories = &trace.peak.as_ref().unwrap().categories;
        for (category, bytes) in MemoryCategory::ALL.iter().zip(expected["at_peak"].as_array().unwrap()) {
            let found = categories.iter().find(|found| found.category == *category).map_or(0, |found| found.bytes.0);
            assert_eq!(serde_json::json!(found), *bytes, "{name}: {category:?}");
        }
        assert!(categories.is_sorted_by(|a, b| a.bytes >= b.bytes));
    }
}

#[test]
fn a_timeline_without_a_rank_says_what_to_do() {
    let evidence = read_bytes("memory.raw.json", &own("memory_rank5.raw.json"));
    assert!(evidence.artifacts[0].warnings[0].contains("name the file after its rank"));
}

// ---- pages

#[test]
fn a_page_of_the_viewer_gives_the_snapshots_in_it() {
    let pickle =
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/snapshots/protocol4.pickle")).unwrap();
    let page = format!(
        "<!DOCTYPE html>\n<html>\n<head>\n</head>\n<body>\n<script type=\"module\">\nimport {{add_local_files}} from \
         \"MemoryViz.js\"\nconst local_files = [{{\"name\": \"snapshot_rank2.pickle\", \"base64\": \"{}\"}}]\n\
         add_local_files(local_files, 'Active Memory Timeline')\n</script>\n</body>\n",
        base64(&[pickle.as_slice(), &[0, 0]].concat())
    );
    let evidence = read_bytes("memory.html", page.as_bytes());
    let kinds: Vec<_> = evidence.artifacts.iter().map(|artifact| (artifact.name.as_str(), artifact.kind)).collect();
    let member = ("memory.html/snapshot_rank2.pickle", ArtifactKind::TorchSnapshot);
    assert_eq!(kinds, [("memory.html", ArtifactKind::Archive), member]);
    let direct = read_bytes("snapshot_rank2.pickle", &pickle);
    assert_eq!(evidence.snapshots[0].devices, direct.snapshots[0].devices);
    assert_eq!(evidence.snapshots[0].rank, Some(Rank(2)));
}

/// The other direction of what the reader does, table by table as RFC 4648 says it.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let letter = if place <= group.len() { LETTERS[(bits >> (18 - 6 * place) & 63) as usize] } else { b'=' };
            text.push(char::from(letter));
        }
    }
    text
}

#[test]
fn a_picture_is_refused_with_the_truth() {
    let page = "<html>\n<head><meta charset=\"utf-8\" /><title>GPU Memory Timeline HTML</title></head>\n<body>\n  <img \
                src='data:image/png;base64,iVBORw0KGgo='>\n</body>\n</html>";
    let evidence = read_bytes("memory.html", page.as_bytes());
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::Unreadable);
    assert!(evidence.artifacts[0].warnings[0].contains("holds only a picture"));
}

// ---- memory_summary and memory_stats

fn figures(step: &StepRecord) -> [Option<u64>; 4] {
    [step.allocated, step.peak_allocated, step.reserved, step.peak_reserved].map(|bytes| bytes.map(|b| b.0 / MIB))
}

#[test]
fn summaries_of_ranks_that_print_at_once_are_kept_apart() {
    let evidence = read_bytes("job.log", include_bytes!("data/memory-summary.log"));
    let found: Vec<_> = evidence.steps.iter().map(|step| (step.subject, figures(step))).collect();
    let mut found = found;
    found.sort_by_key(|(subject, _)| *subject);
    assert_eq!(
        found,
        [
            (Subject::Rank(Rank(0)), [30_720, 71_680, 76_800, 77_824].map(Some)),
            (Subject::Rank(Rank(1)), [30_000, 41_984, 43_008, 43_008].map(Some)),
        ]
    );
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::MemoryStats);
    assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new());
    let rank0 = evidence.steps.iter().find(|step| step.subject == Subject::Rank(Rank(0))).unwrap();
    assert_eq!(rank0.at.place, rankscope_model::Place::Lines(3, 25));
}

#[test]
fn a_summary_beside_an_nvidia_smi_table_takes_nothing_from_it() {
    let table = include_str!("data/smi-515-errors.txt");
    let summary = "|===========================================================================|\n\
                   |                  PyTorch CUDA memory summary, device ID 0                 |\n\
                   |===========================================================================|\n\
                   | Allocated memory      |    1062 MB |    4877 MB |   89299 MB |   88237 MB |\n\
                   |===========================================================================|\n";
    let alone = read_bytes("a.txt", table.as_bytes());
    for text in [format!("{table}\n{summary}"), format!("{summary}\n{table}"), format!("{table}{summary}")] {
        let both = read_bytes("a.txt", text.as_bytes());
        assert_eq!(both.steps.len(), 1, "{text}");
        assert_eq!(figures(&both.steps[0]), [Some(1062), Some(4877), None, None]);
        assert_eq!(both.device_tables.len(), alone.device_tables.len());
        for (table, expected) in both.device_tables.iter().zip(&alone.device_tables) {
            assert_eq!(
                (table.devices.len(), table.processes.len()),
                (expected.devices.len(), expected.processes.len())
            );
        }
    }
}

#[test]
fn statistics_printed_over_many_lines_are_one_record() {
    let text = "[rank2]: OrderedDict([('active.all.current', 5),\n\
                [rank2]:              ('allocated_bytes.all.allocated', 9999999999),\n\
                [rank2]:              ('allocated_bytes.all.current', 1048576),\n\
                [rank2]:              ('allocated_bytes.all.freed', 9999999999),\n\
                [rank2]:              ('allocated_bytes.all.peak', 3145728),\n\
                [rank2]:              ('allocated_bytes.large_pool.peak', 77),\n\
                [rank2]:              ('reserved_bytes.all.current', 6291456),\n\
                [rank2]:              ('reserved_bytes.all.peak', 7340032),\n\
                [rank2]:              ('reserved_bytes.small_pool.peak', 7)])\n";
    let evidence = read_bytes("a.log", text.as_bytes());
    assert_eq!(evidence.steps.len(), 1);
    assert_eq!(evidence.steps[0].subject, Subject::Rank(Rank(2)));
    assert_eq!(figures(&evidence.steps[0]), [1, 3, 6, 7].map(Some));
}

// ---- real files

#[test]
fn real_traces_give_the_figures_that_python_finds() {
    let Some(folder) = shared("data/traces") else { return };
    let read = |name: &str| {
        let evidence = read_bytes(name, &std::fs::read(folder.join(name)).unwrap());
        assert_eq!(evidence.artifacts[0].kind, ArtifactKind::ProfilerTrace, "{name}: {:?}", evidence.artifacts);
        evidence
    };
    // Name, device, events, lowest and largest allocated, largest reserved, time of the peak, memory of the device.
    for (name, events, low, high, reserved, at, capacity) in [
        (
            "trace_h100_bert_memory.json.gz",
            218,
            91_360_768,
            101_305_344,
            121_634_816,
            1_752_830_083_337_276,
            85_018_279_936,
        ),
        (
            "trace_h100_qwen_memory.json.gz",
            2250,
            984_742_400,
            2_088_508_416,
            2_629_828_608,
            1_752_839_461_778_044,
            85_018_279_936,
        ),
        (
            "trace_mi300_bert_memory_devtype6.json.gz",
            234,
            57_806_336,
            146_394_112,
            224_395_264,
            1_753_615_174_333_678,
            205_571_227_648,
        ),
        (
            "trace_sglang_rank0_memory_devtype6.json.gz",
            1014,
            151_811_695_616,
            151_821_681_664,
            152_171_446_272,
            1_779_988_283_346_587,
            206_141_652_992,
        ),
    ] {
        let evidence = read(name);
        let trace = only(&evidence);
        assert_eq!((trace.device, trace.events), (Some(0), events), "{name}");
        assert_eq!(extremes(trace), (low, high), "{name}");
        assert_eq!(peak(trace), (high, at), "{name}");
        assert_eq!((trace.peak_reserved, trace.capacity), (Some(Bytes(reserved)), Some(Bytes(capacity))), "{name}");
        assert!(!trace.is_lower_bound);
    }
    let evidence = read("trace_torch190_resnet50_memory_oldargs.json.gz");
    let old = only(&evidence);
    assert_eq!((old.events, old.is_lower_bound, old.capacity), (8220, true, Some(Bytes(34_084_028_416))));
    assert_eq!(peak(old), (2_791_636_480, 1_623_142_623_582_083));
    for (name, rank, world) in [
        ("trace_rank0_of_128_nomem.json.gz", Some(0), Some(128)),
        ("trace_rank1_of_128_nomem.json.gz", Some(1), Some(128)),
        ("trace_rank34_of_300_cpuonly.json.gz", Some(34), Some(300)),
        ("trace_no_distinfo.json.gz", None, None),
        ("trace_mi250_rocm.json.gz", None, None),
    ] {
        let evidence = read(name);
        let trace = only(&evidence);
        assert_eq!((trace.rank.map(|r| r.0), trace.world_size), (rank, world), "{name}");
        assert!(trace.peak.is_none() && trace.curve.is_none());
        assert!(evidence.artifacts[0].warnings.iter().any(|w| w.contains("no memory events")), "{name}");
    }
    let host_only = read("trace_mi300_ddp_resnet18_cpumem_only.json.gz");
    assert!(only(&host_only).peak.is_none());
    assert!(host_only.artifacts[0].warnings.iter().any(|w| w.contains("all 210 memory events are of the host")));
}

#[test]
fn real_timelines_and_pages_give_the_figures_that_python_finds() {
    let Some(folder) = shared("data/memory_timeline") else { return };
    let read = |name: &str| read_bytes(name, &std::fs::read(folder.join(name)).unwrap());
    let raw = read("memory_timeline.raw.json.gz");
    let trace = only(&raw);
    // 16845 rows: 645 were there before, 9510 are 4755 pairs, and one point stands for what was there before.
    assert_eq!(trace.events, 16_845 - 645 - 4755 + 1);
    assert_eq!(peak(trace), (3_082_832_104, 1_696_966_047_194_486));
    assert_eq!(extremes(trace), (224_192_744, 3_082_832_104));
    let categories = &trace.peak.as_ref().unwrap().categories;
    let largest: Vec<_> = categories.iter().map(|found| (found.category, found.bytes.0)).take(3).collect();
    let expected = [
        (MemoryCategory::Activation, 2_592_465_920),
        (MemoryCategory::Unknown, 134_218_152),
        (MemoryCategory::Parameter, 102_440_608),
    ];
    assert_eq!(largest, expected);
    let page = read("memory_viz_bf16.html");
    let [_, snapshot] = page.artifacts.as_slice() else { panic!("{:?}", page.artifacts) };
    assert_eq!(snapshot.name, "memory_viz_bf16.html/snapshot.pickle");
    let [device] = page.snapshots[0].devices.as_slice() else { panic!("{:?}", page.snapshots) };
    assert_eq!((device.reserved, device.allocated), (Bytes(861_929_472), Bytes(525_286_400)));
    assert_eq!((device.segments, device.events), (43, 2811));
}

#[test]
fn real_summaries_give_the_figures_that_stand_in_them() {
    let Some(folder) = shared("data/memory_summary") else { return };
    let read = |name: &str| read_bytes(name, &std::fs::read(folder.join(name)).unwrap()).steps;
    let fragmented = read("ms_pytorch35901_fragmented_cut.txt");
    assert_eq!(fragmented.len(), 1);
    assert_eq!(figures(&fragmented[0]), [1062, 4877, 12_420, 12_420].map(Some));
    let short = read("ms_pytorch37250_abbreviated.txt");
    assert_eq!((short[0].allocated, short[0].peak_allocated), (Some(Bytes(183_578 << 10)), Some(Bytes(5260 << 20))));
    let two = read("ms_two_devices_cut.txt");
    let of_tables: Vec<_> = two.iter().filter(|step| step.peak_allocated.is_some()).collect();
    let found: Vec<_> = of_tables.iter().map(|step| (step.subject, figures(step))).collect();
    let both = [Some(2721), Some(2967), None, None];
    assert_eq!(found, [(Subject::Device(0), both), (Subject::Device(1), both)]);
    assert!(
        read("stats_rocm703_all_zero_cut.txt").iter().all(|step| step.peak_allocated.is_none_or(|peak| peak.0 == 0))
    );
}

// ---- any input

const SAMPLES: [&str; 5] = [
    "trace_rank3_of_8.pt.trace.json",
    "events_only.json",
    "trace_torch19.json",
    "memory_rank5.raw.json",
    "memory_rank5.json",
];

fn check(evidence: &Evidence, input: usize) {
    for trace in &evidence.traces {
        let Some(curve) = &trace.curve else { continue };
        assert!(curve.x.is_sorted() && curve.x.len() <= 1024);
        for band in [&curve.allocated, &curve.reserved].into_iter().flatten() {
            assert_eq!((band.low.len(), band.high.len()), (curve.x.len(), curve.x.len()));
            assert!(band.low.iter().zip(&band.high).all(|(low, high)| low <= high));
        }
        let peak = trace.peak.as_ref().unwrap();
        assert_eq!(curve.allocated.as_ref().unwrap().max(), Some(peak.bytes));
    }
    let size = serde_json::to_string(evidence).unwrap().len();
    assert!(size < 64 * input + 4096, "{size} bytes of evidence from {input}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_never_panic(
        which in 0..SAMPLES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(b"[]{}\",:-0139eE.\\n\xff ".to_vec())), 1..8),
    ) {
        let mut bytes = own(SAMPLES[which]);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        check(&read_bytes("rank1.json", &bytes), bytes.len());
    }

    /// What an allocator would print, in any order of the file, is found again.
    #[test]
    fn made_up_traces_give_their_peak(moves in prop::collection::vec((0u64..1_000_000, 0i64..100), 1..200), seed in any::<u64>()) {
        let mut allocated = 0u64;
        let mut events = Vec::new();
        let mut highest = (0u64, 0i64);
        for (index, (size, step)) in moves.iter().enumerate() {
            let size = if index % 3 == 2 { -i64::try_from(allocated / 2).unwrap() } else { i64::try_from(*size).unwrap() };
            allocated = allocated.checked_add_signed(size).unwrap();
            let ts = 1_700_000_000_000_000 + 100 * i64::try_from(index).unwrap() + step;
            if allocated > highest.0 || index == 0 {
                highest = (allocated, ts);
            }
            events.push(serde_json::json!({"name": "[memory]", "ts": ts, "args":
                {"Device Type": 1, "Device Id": 0, "Bytes": size, "Total Allocated": allocated, "Total Reserved": allocated + 7}}));
        }
        // Any order: rotated by the seed.
        let turn = usize::try_from(seed % events.len() as u64).unwrap();
        events.rotate_left(turn);
        let text = serde_json::json!({"traceEvents": events}).to_string();
        let evidence = read_bytes("rank0.json", text.as_bytes());
        let trace = only(&evidence);
        prop_assert_eq!(peak(trace), highest);
        prop_assert_eq!(trace.peak_reserved, Some(Bytes(highest.0 + 7)));
        prop_assert_eq!(trace.events, moves.len() as u64);
    }
}
