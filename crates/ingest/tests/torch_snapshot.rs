//! The snapshot reader on files of every shape, on damaged and on hostile ones.
//!
//! Expectations come from `data/snapshots/reference.py`, which works differently on purpose.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "support/pickler.rs"]
mod pickler;

use pickler::{Py, Style, pickle};
use proptest::prelude::*;
use rankscope_ingest::{Limits, ReadContext, ReadError, torch_snapshot};
use rankscope_model::{ArtifactId, Bytes, Evidence, SeriesAxis, SnapshotDevice, SnapshotEvidence};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

fn read_named(name: &str, bytes: &[u8]) -> Result<Evidence, ReadError> {
    let limits = Limits::default();
    torch_snapshot::read(&mut &*bytes, &ReadContext { artifact: ArtifactId(0), name, limits: &limits })
}

fn own_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/snapshots")
}

fn own(name: &str) -> Vec<u8> {
    std::fs::read(own_folder().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn read_own(name: &str) -> (SnapshotEvidence, Vec<String>) {
    let evidence = read_named(name, &own(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    unpack(evidence)
}

fn unpack(mut evidence: Evidence) -> (SnapshotEvidence, Vec<String>) {
    assert_eq!((evidence.artifacts.len(), evidence.snapshots.len()), (1, 1));
    (evidence.snapshots.remove(0), evidence.artifacts.remove(0).warnings)
}

fn error(bytes: &[u8]) -> ReadError {
    read_named("x.pickle", bytes).expect_err("this is no snapshot")
}

fn json(name: &str) -> serde_json::Map<String, Value> {
    let text = String::from_utf8(own(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Holds what was read against the figures of `reference.py`.
fn assert_figures(name: &str, snapshot: &SnapshotEvidence, expected: &Value) {
    let expected = expected.as_array().unwrap();
    assert_eq!(snapshot.devices.len(), expected.len(), "{name}: devices");
    for (device, expected) in snapshot.devices.iter().zip(expected) {
        let number = |key: &str| expected[key].as_u64();
        let at = |key: &str| format!("{name}, device {}: {key}", device.device);
        for (key, value) in [
            ("device", Some(u64::from(device.device))),
            ("reserved", Some(device.reserved.0)),
            ("allocated", Some(device.allocated.0)),
            ("active", Some(device.active.0)),
            ("requested", device.requested.map(|b| b.0)),
            ("private_pool_inactive", Some(device.private_pool_inactive.0)),
            ("segments", Some(device.segments)),
            ("blocks", Some(device.blocks)),
            ("events", Some(device.events)),
        ] {
            assert_eq!(value, number(key), "{}", at(key));
        }
        let sites: Vec<_> = device.top_sites.iter().map(|site| site.bytes.0).collect();
        let expected_sites: Vec<_> =
            expected["top_sites"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap()).collect();
        assert_eq!(sites, expected_sites, "{}", at("top_sites"));
        let ooms: Vec<_> = device.ooms.iter().map(|(i, size, free)| serde_json::json!([i, size.0, free.0])).collect();
        assert_eq!(Value::from(ooms), expected["ooms"], "{}", at("ooms"));
        if name == "contradictions.pickle" {
            continue; // There is no true curve.
        }
        assert_eq!(device.peak_requested_in_window.map(|b| b.0), number("peak"), "{}", at("peak"));
        let curve = device.live.as_ref().map(|live| {
            assert_eq!(live.x.len(), live.y.len());
            assert!(live.x.is_sorted() && live.x.len() <= 4096, "{}", at("live"));
            let (low, high) = (live.y.iter().min().unwrap(), live.y.iter().max().unwrap());
            serde_json::json!([low, high, live.y.last().unwrap()])
        });
        assert_course(name, device, &expected["course"]);
        let low_high = |v: &Value| v.as_array().map(|v| v[..2].to_vec());
        assert_eq!(low_high(&curve.unwrap_or_default()), low_high(&expected["live_min_max_last"]), "{}", at("live"));
    }
}

/// Holds the course of memory against the one that the reference walked forwards.
fn assert_course(name: &str, device: &SnapshotDevice, expected: &Value) {
    let Some(curve) = &device.curve else {
        assert!(expected.is_null() && device.peak.is_none() && device.never_freed.is_none(), "{name}");
        return;
    };
    let at = |key: &str| format!("{name}, device {}: {key}", device.device);
    let peak = device.peak.as_ref().unwrap();
    assert_eq!(serde_json::json!(peak.event), expected["peak_event"], "{}", at("peak_event"));
    assert_eq!(serde_json::json!(peak.active), expected["peak_active"], "{}", at("peak_active"));
    assert_eq!(Some(peak.requested), device.peak_requested_in_window);
    let never = device.never_freed.as_ref().unwrap();
    let never_freed = serde_json::json!([never.bytes, never.blocks, never.late_bytes]);
    assert_eq!(never_freed, expected["never_freed"], "{}", at("never_freed"));
    let sites: Vec<_> = peak.sites.iter().map(|site| site.bytes.0).collect();
    assert_eq!(serde_json::json!(sites), expected["peak_sites"], "{}", at("peak_sites"));
    assert!(curve.x.is_sorted() && curve.x.len() <= 1024);
    let bands = [
        ("requested", &curve.requested),
        ("allocated", &curve.allocated),
        ("active", &curve.active),
        ("reserved", &curve.reserved),
        ("unused", &curve.unused),
    ];
    for (key, band) in bands {
        let band = band.as_ref().unwrap();
        assert_eq!((band.low.len(), band.high.len()), (curve.x.len(), curve.x.len()));
        let extremes = serde_json::json!([band.low.iter().min(), band.high.iter().max()]);
        assert_eq!(extremes, expected["curve"][key], "{}", at(key));
    }
    assert_eq!(serde_json::json!(peak.reserved), expected["peak_reserved"], "{}", at("peak_reserved"));
    let bands = device.bands.as_ref().unwrap();
    assert!(bands.x.len() <= 240 && bands.x.is_sorted() && bands.sites.len() <= 12, "{}", at("bands"));
    assert!(bands.rest.len() == bands.x.len() && bands.sites.iter().all(|site| site.bytes.len() == bands.x.len()));
    if let Some(map) = device.map.as_ref().filter(|_| device.mismatched_segments == 0) {
        let free = device.reserved.saturating_sub(device.active).saturating_sub(device.private_pool_inactive);
        assert!(map.free <= free, "{}: {} of {free}", at("free"), map.free);
        assert!(map.largest_free <= map.free && map.releasable <= map.free, "{}", at("map"));
        assert!(map.segments.len() as u64 + map.left_out <= device.segments, "{}", at("segments"));
    }
}

#[test]
fn own_files_give_the_figures_of_the_reference() {
    let expected = json("expected.json");
    assert!(expected.len() >= 18);
    for (name, expected) in &expected {
        assert_figures(name, &read_own(name).0, expected);
    }
}

#[test]
fn real_files_give_the_figures_of_the_reference() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/snapshots");
    let mut found = 0;
    for (name, expected) in &json("real.json") {
        let Ok(bytes) = std::fs::read(folder.join(name)) else {
            println!("skipped: {name} is not here");
            continue;
        };
        let (snapshot, warnings) = unpack(read_named(name, &bytes).unwrap_or_else(|e| panic!("{name}: {e}")));
        assert_figures(name, &snapshot, expected);
        let mismatched: u64 = snapshot.devices.iter().map(|d| d.mismatched_segments).sum();
        if name.contains("synthetic") {
            assert!(mismatched > 0 && !warnings.is_empty(), "{name}: its sums are random");
        } else {
            let (cut, others): (Vec<_>, Vec<_>) = warnings.into_iter().partition(|w| w.contains("were overwritten"));
            assert_eq!((mismatched, others), (0, vec![]), "{name}");
            let truncated = snapshot.devices.iter().filter(|device| device.window_truncated).count();
            assert_eq!(cut.len(), truncated, "{name}: {cut:?}");
        }
        found += 1;
    }
    println!("{found} real snapshots checked");
}

#[test]
fn every_protocol_and_writer_says_the_same() {
    let reference = read_own("protocol4.pickle").0;
    for name in
        ["protocol2.pickle", "protocol3.pickle", "protocol5.pickle", "torch_cpp_writer.pickle", "trailing_nuls.pickle"]
    {
        assert_eq!(read_own(name).0, reference, "{name}");
    }
    let traces_first = read_own("traces_first.pickle").0;
    assert_eq!(traces_first.devices, reference.devices, "the order of keys means nothing");
}

#[test]
fn versions_are_told_by_shape() {
    for (name, versions) in [
        ("torch113_list.pickle", "1.13"),
        ("protocol4.pickle", "2.5 - 2.7"),
        ("torch_cpp_writer.pickle", "2.5 - 2.7"),
        ("oom.pickle", "2.14 or newer"),
        ("nothing_on_cuda.pickle", "2.5 or newer"),
    ] {
        assert_eq!(read_own(name).0.torch_versions, versions, "{name}");
    }
}

#[test]
fn rank_and_devices_go_to_the_artifact() {
    let evidence = read_named("run/snap_rank_5.pickle", &own("expandable_two_devices.pickle")).unwrap();
    assert_eq!(evidence.snapshots[0].rank.map(|r| r.0), Some(5));
    assert_eq!(
        (evidence.artifacts[0].ranks.as_slice(), evidence.artifacts[0].devices.as_slice()),
        (&[5][..], &[0, 3][..])
    );
    assert_eq!(read_own("protocol4.pickle").0.rank, None);
}

#[test]
fn call_sites_carry_their_stacks() {
    let snapshot = read_own("protocol4.pickle").0;
    let site = &snapshot.devices[0].top_sites[0];
    let functions: Vec<_> = site.frames.iter().map(|f| f.function.as_str()).collect();
    assert_eq!(functions, ["c10::cuda::CUDACachingAllocator::malloc", "linear", "evaluate", "<module>"]);
    assert_eq!((site.frames[2].file.as_str(), site.frames[2].line), ("train.py", 57));
    assert_eq!((site.bytes, site.blocks), (Bytes(64 << 20), 1));
    let old = read_own("torch113_list.pickle").0;
    assert_eq!(old.devices[0].top_sites[0].frames.len(), 4, "torch 1.13 keeps stacks in the history");
}

#[test]
fn deep_stacks_lose_their_middle_and_say_so() {
    let site = &read_own("deep_stack.pickle").0.devices[0].top_sites[0];
    assert_eq!(site.frames.len(), 64);
    assert_eq!((site.frames[15].line, site.frames[17].line), (15, 16 + 58));
    assert_eq!(site.frames[16].function, "[58 frames left out]");
    let last = site.frames.last().unwrap();
    assert_eq!((last.function.as_str(), last.file.as_str()), ("haupt_größe", "träin.py"));
}

#[test]
fn the_curve_has_the_time_of_its_events() {
    let snapshot = read_own("protocol4.pickle").0;
    let live = snapshot.devices[0].live.as_ref().unwrap();
    assert_eq!(live.axis, SeriesAxis::UnixMicros);
    let mib = 1 << 20;
    assert_eq!(live.x[0], 1_700_000_000_000_000);
    assert_eq!(live.y[..3], [0, 8 * mib, 18 * mib - 100]);
    assert_eq!(*live.y.last().unwrap(), 74 * mib - 7);
}

#[test]
fn a_full_ring_buffer_is_noticed() {
    assert!(read_own("ring_buffer.pickle").0.devices[0].window_truncated);
    assert!(read_own("one_event.pickle").0.devices[0].window_truncated);
    assert!(!read_own("protocol4.pickle").0.devices[0].window_truncated);
    assert!(!read_own("record_stream.pickle").0.devices[0].window_truncated);
}

#[test]
fn doubts_are_said() {
    let (snapshot, warnings) = read_own("contradictions.pickle");
    assert_eq!(snapshot.devices[0].mismatched_segments, 1);
    let all = warnings.join("\n");
    for part in ["1 of 2 segments disagree", "1 block lies outside", "1 of 9 events contradict"] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert!(read_own("nothing_on_cuda.pickle").1[0].contains("no CUDA memory"));
    for clean in [
        "protocol4.pickle",
        "oom.pickle",
        "pairs_as_lists.pickle",
        "nine_byte_numbers.pickle",
        "expandable_two_devices.pickle",
    ] {
        assert_eq!(read_own(clean).1, Vec::<String>::new(), "{clean}");
    }
}

/// A segment of one block of 1 MiB, with these sizes.
fn sized(total: Py, block: Py) -> Vec<u8> {
    let block = Py::Dict(vec![("size", block), ("state", Py::Text("active_allocated".to_owned()))]);
    let segment = Py::Dict(vec![
        ("device", Py::Int(0)),
        ("address", Py::Int(0x7000)),
        ("total_size", total),
        ("allocated_size", Py::Int(1 << 20)),
        ("active_size", Py::Int(1 << 20)),
        ("blocks", Py::List(vec![block])),
    ]);
    let top = Py::Dict(vec![("segments", Py::List(vec![segment])), ("device_traces", Py::List(vec![]))]);
    pickle(&top, Style { protocol: 4, batch: 1000 })
}

#[test]
fn sizes_that_cannot_be_are_told() {
    let read = |total, block| unpack(read_named("x.pickle", &sized(total, block)).unwrap());
    let mib = || Py::Int(1 << 20);
    assert_eq!(read(mib(), mib()).1, Vec::<String>::new());
    for wrong in [Py::Int(-5), Py::Float(f64::NAN), Py::Float(1_048_576.0), Py::Int(i64::MIN)] {
        let (snapshot, warnings) = read(wrong.clone(), mib());
        let said = "1 size of a segment or block is not possible (negative, or no whole number)";
        assert!(warnings.iter().any(|warning| warning.starts_with(said)), "{wrong:?}: {warnings:?}");
        assert_eq!(snapshot.devices[0].reserved, Bytes(1 << 20), "the sum of the blocks");
        let (_, warnings) = read(wrong.clone(), wrong.clone());
        let said = "2 sizes of segments and blocks are not possible";
        assert!(warnings.iter().any(|warning| warning.starts_with(said)), "{wrong:?}: {warnings:?}");
    }
}

/// A snapshot whose only event is a failure with these members.
fn failed(members: Vec<(&'static str, Py)>) -> Vec<u8> {
    let event = [vec![("action", Py::Text("oom".to_owned()))], members].concat();
    let traces = Py::List(vec![Py::List(vec![Py::Dict(event)])]);
    pickle(
        &Py::Dict(vec![("segments", Py::List(vec![])), ("device_traces", traces)]),
        Style { protocol: 4, batch: 1000 },
    )
}

#[test]
fn what_a_failure_does_not_record_is_not_told_as_nothing() {
    let failure = |members| {
        let (snapshot, warnings) = unpack(read_named("x.pickle", &failed(members)).unwrap());
        let failure = snapshot.devices[0].last_failure().unwrap();
        (failure.tried, failure.free, warnings.iter().any(|w| w.contains("records no size that can be")))
    };
    let size = |bytes| ("size", Py::Int(bytes));
    let free = |bytes| ("device_free", Py::Int(bytes));
    assert_eq!(failure(vec![size(512), free(77)]), (Some(Bytes(512)), Some(Bytes(77)), false));
    assert_eq!(failure(vec![free(0), size(512)]), (Some(Bytes(512)), Some(Bytes(0)), false));
    assert_eq!(failure(vec![size(512)]), (Some(Bytes(512)), None, true));
    assert_eq!(failure(vec![size(0), free(77)]), (None, Some(Bytes(77)), true));
    assert_eq!(failure(vec![size(i64::MAX), free(i64::MAX)]), (None, None, true));
}

#[test]
fn snapshots_written_into_one_file_are_told() {
    let one = own("protocol5.pickle");
    let padded = [one.as_slice(), &[0, 0, 0]].concat();
    assert_eq!(read_named("x.pickle", &padded).unwrap(), read_named("x.pickle", &one).unwrap());
    let (alone, quiet) = unpack(read_named("x.pickle", &one).unwrap());
    let (first, warnings) = unpack(read_named("x.pickle", &one.repeat(2)).unwrap());
    assert_eq!(alone.devices, first.devices);
    assert_eq!(warnings.len(), quiet.len() + 1);
    let told = format!("the snapshot ends at byte {}, and what follows was not read", one.len());
    assert!(warnings.iter().any(|warning| warning.starts_with(&told)), "{warnings:?}");
}

#[test]
fn a_file_cut_in_its_events_is_used_up_to_there() {
    let whole = &read_own("protocol5.pickle").0.devices[0];
    let (cut, warnings) = read_own("cut_in_events.pickle");
    let cut = &cut.devices[0];
    assert_eq!((cut.reserved, cut.allocated, cut.segments), (whole.reserved, whole.allocated, whole.segments));
    assert!(cut.events > 0 && cut.events < whole.events, "{}", cut.events);
    let length = own("cut_in_events.pickle").len();
    assert!(warnings[0].contains(&format!("ends at byte {length}")), "{warnings:?}");
}

#[test]
fn a_file_cut_in_its_segments_gives_no_totals() {
    let bytes = own("cut_in_segments.pickle");
    match error(&bytes) {
        ReadError::Malformed { offset, why, .. } => {
            assert_eq!(offset, bytes.len() as u64);
            assert!(why.contains("before its list of segments is complete"), "{why}");
        }
        other => panic!("{other}"),
    }
}

/// Wherever a file breaks off: an error, or the true totals.
#[test]
fn no_cut_gives_false_totals() {
    for name in [
        "protocol2.pickle",
        "protocol4.pickle",
        "torch_cpp_writer.pickle",
        "traces_first.pickle",
        "expandable_two_devices.pickle",
    ] {
        let bytes = own(name);
        let whole = read_own(name).0;
        let mut used = 0;
        for end in 0..bytes.len() {
            let Ok(evidence) = read_named(name, &bytes[..end]) else { continue };
            used += 1;
            let (cut, warnings) = unpack(evidence);
            assert!(warnings[0].contains(&format!("byte {end}")), "{name} cut at {end}: {warnings:?}");
            assert_eq!(cut.devices.len(), whole.devices.len(), "{name} cut at {end}");
            for (cut, whole) in cut.devices.iter().zip(&whole.devices) {
                let totals =
                    |d: &SnapshotDevice| (d.reserved, d.allocated, d.active, d.requested, d.segments, d.blocks);
                assert_eq!(totals(cut), totals(whole), "{name} cut at {end}");
                assert!(cut.events <= whole.events);
            }
        }
        assert_eq!(used > 100, name != "traces_first.pickle", "{name}: {used} cuts could be used");
    }
}

#[test]
fn an_ordered_dict_is_a_dict_and_no_other_class_is_let_in() {
    // `{"segments": [], "device_traces": [], "more": OrderedDict([("a", 1)])}`, as Python writes it.
    let text = |text: &str| [&[0x8c, u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat();
    let stack_global = |module: &str, name: &str| [text(module), text(name), vec![0x93]].concat();
    let snapshot = |class: Vec<u8>| {
        let ordered = [class, b")R(".to_vec(), text("a"), b"K\x01u".to_vec()].concat();
        let items = [text("segments"), b"]".to_vec(), text("device_traces"), b"]".to_vec(), text("more"), ordered];
        [b"\x80\x04}(".to_vec(), items.concat(), b"u.".to_vec()].concat()
    };
    let read = |bytes: &[u8]| read_named("a.pickle", bytes);
    for class in [stack_global("collections", "OrderedDict"), b"ccollections\nOrderedDict\n".to_vec()] {
        read(&snapshot(class)).unwrap();
    }
    for (class, wanted) in [
        (stack_global("collections", "deque"), "collections.deque"),
        (stack_global("os", "OrderedDict"), "os.OrderedDict"),
        (b"ccollections\nOrderedDictionary\n".to_vec(), "collections.OrderedDictionary"),
    ] {
        match read(&snapshot(class)) {
            Err(ReadError::Refused { why, .. }) => assert!(why.contains(wanted), "{why}"),
            other => panic!("{wanted}: {other:?}"),
        }
    }
    // With arguments it would have to be called.
    let called = [b"\x80\x04".to_vec(), stack_global("collections", "OrderedDict"), b"]\x85R.".to_vec()].concat();
    match read(&called) {
        Err(ReadError::Refused { why, .. }) => assert!(why.starts_with("opcode REDUCE "), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn whatever_could_run_code_is_refused_by_name_and_place() {
    for (name, opcode, offset, wanted) in [
        ("hostile_global_reduce.pickle", "GLOBAL", 2, Some("posix.system")),
        ("hostile_stack_global.pickle", "STACK_GLOBAL", 66, Some("posix.system")),
        ("hostile_inst.pickle", "INST", 3, Some("os.system")),
        ("saved_model.pickle", "GLOBAL", 18, Some("torch._utils._rebuild_tensor_v2")),
    ] {
        match error(&own(name)) {
            ReadError::Refused { offset: at, why } => {
                assert_eq!(at, offset, "{name}: {why}");
                assert!(why.starts_with(&format!("opcode {opcode} ")), "{name}: {why}");
                assert!(wanted.is_none_or(|wanted| why.contains(&format!("import {wanted}."))), "{name}: {why}");
                assert!(why.contains("Nothing was imported or executed"), "{name}: {why}");
            }
            other => panic!("{name}: {other}"),
        }
    }
    // Each of them alone, after a dict that could be its argument.
    for (opcode, name) in [
        (b'R', "REDUCE"),
        (b'b', "BUILD"),
        (0x81, "NEWOBJ"),
        (0x92, "NEWOBJ_EX"),
        (b'o', "OBJ"),
        (b'P', "PERSID"),
        (b'Q', "BINPERSID"),
        (0x82, "EXT1"),
        (0x83, "EXT2"),
        (0x84, "EXT4"),
    ] {
        let text = error(&[0x80, 4, b'}', b'}', opcode, 1, 0, 0, 0, b'.']).to_string();
        assert!(text.starts_with(&format!("refused at byte 4: opcode {name} ")), "{text}");
    }
}

#[test]
fn names_in_refusals_are_safe_to_show() {
    let mut bytes = b"\x80\x02cos\x1b[31m<script>\n".to_vec();
    bytes.extend([b'a'; 5000]);
    let text = error(&bytes).to_string();
    assert!(text.is_ascii() || text.chars().all(|c| !c.is_control()), "{text}");
    assert!(!text.contains('\u{1b}') && text.len() < 800, "{text}");
}

#[test]
fn other_pickles_are_called_what_they_are() {
    for (name, what) in [
        ("other_dict.pickle", "a dict without `segments` and `device_traces`"),
        ("other_list.pickle", "a list of something else than segments"),
        ("other_segments.pickle", "a dict whose `segments` is something else"),
        ("other_no_segments.pickle", "a dict without segments and without a list of `device_traces`"),
        ("other_text.pickle", "a single value"),
        ("other_empty_list.pickle", "an empty list"),
    ] {
        let error = error(&own(name));
        assert!(matches!(&error, ReadError::NotThisFormat { why } if why.contains(what)), "{name}: {error}");
    }
}

#[test]
fn damage_is_an_error_with_its_place() {
    let text = |bytes: &[u8]| error(bytes).to_string();
    assert!(text(&[0x80, 4, 0xff]).contains("byte 2: 0xff is not a pickle opcode"));
    assert!(text(&[0x80, 9, b'.']).contains("protocol 9"));
    assert!(text(&[0x80, 4, b'h', 7, b'.']).contains("entry 7, which was never stored"));
    assert!(text(&[0x80, 4, b'.']).contains("needs values that are not there"));
    assert!(text(&[0x80, 4, b'}', b'N', b'a', b'.']).contains("neither a dict nor a list"));
    assert!(text(&[0x80, 4, b'C', 0, b'.']).contains("SHORT_BINBYTES"));
    assert!(text(&[0x80, 4]).contains("ends before anything"));
}

#[test]
fn gigantic_lengths_reserve_nothing() {
    let mut text = vec![0x80, 4, 0x8d];
    text.extend((1u64 << 60).to_le_bytes());
    text.extend([b'x'; 5000]);
    assert!(matches!(error(&text), ReadError::Malformed { offset, .. } if offset == text.len() as u64));
    let mut long = vec![0x80, 4, 0x8b, 0xff, 0xff, 0xff, 0x7f];
    long.extend([1; 5000]);
    assert!(matches!(error(&long), ReadError::Malformed { .. }));
}

#[test]
fn pickles_are_told_by_their_first_bytes() {
    assert!(
        torch_snapshot::looks_like(&own("protocol2.pickle")) && torch_snapshot::looks_like(&own("protocol5.pickle"))
    );
    assert!(
        !torch_snapshot::looks_like(b"\x80\x01")
            && !torch_snapshot::looks_like(b"\x80\x06")
            && !torch_snapshot::looks_like(b"PK")
    );
}

// ---- made-up recordings

/// A recording: what happened, and what is live at its end.
#[derive(Debug)]
struct Recording {
    events: Vec<(&'static str, i64, i64)>,
    live: Vec<(i64, i64)>,
    /// Live requested bytes before the first and after each event.
    totals: Vec<i64>,
}

/// Plays `moves` (which block, size): allocates where nothing is, frees what is there, late if the size is odd.
fn play(moves: &[(u8, u16)], forget: usize) -> Recording {
    let mut live: HashMap<i64, i64> = HashMap::new();
    let mut pending: Vec<(i64, i64)> = Vec::new();
    let mut total = 0;
    let mut events = Vec::new();
    let mut totals = vec![0];
    let mut record = |event, total| {
        events.push(event);
        totals.push(total);
    };
    for (slot, size) in moves {
        let addr = 0x7000_0000_0000 + i64::from(*slot) * (1 << 20);
        let size = i64::from(*size) + 1;
        if let Some(held) = live.remove(&addr) {
            record(("free_requested", addr, held), total);
            if size % 2 == 1 {
                pending.push((addr, held));
                continue;
            }
            total -= held;
            record(("free_completed", addr, held), total);
        } else if !pending.iter().any(|(waiting, _)| *waiting == addr) {
            live.insert(addr, size);
            total += size;
            record(("alloc", addr, size), total);
        } else {
            let at = pending.iter().position(|(waiting, _)| *waiting == addr).unwrap();
            let (addr, held) = pending.remove(at);
            total -= held;
            record(("free_completed", addr, held), total);
        }
    }
    let forget = forget.min(events.len());
    events.drain(..forget);
    totals.drain(..forget);
    live.extend(pending);
    Recording { events, live: live.into_iter().collect(), totals }
}

fn int(n: usize) -> Py {
    Py::Int(i64::try_from(n).unwrap())
}

fn snapshot_of(recording: &Recording) -> Py {
    let text = |text: &str| Py::Text(text.to_owned());
    let segments = recording.live.iter().map(|(addr, size)| {
        let block = Py::Dict(vec![
            ("address", Py::Int(*addr)),
            ("size", Py::Int(1 << 20)),
            ("requested_size", Py::Int(*size)),
            ("state", text("active_allocated")),
            ("frames", Py::List(vec![])),
        ]);
        Py::Dict(vec![
            ("device", Py::Int(1)),
            ("address", Py::Int(*addr)),
            ("total_size", Py::Int(1 << 20)),
            ("allocated_size", Py::Int(1 << 20)),
            ("active_size", Py::Int(1 << 20)),
            ("segment_pool_id", Py::Pair(0, 0)),
            ("blocks", Py::List(vec![block])),
        ])
    });
    let events = recording.events.iter().enumerate().map(|(i, (action, addr, size))| {
        let frame = |n: usize| Py::Dict(vec![("name", text("f")), ("filename", text("a.py")), ("line", int(n))]);
        Py::Dict(vec![
            ("action", text(action)),
            ("addr", Py::Int(*addr)),
            ("size", Py::Int(*size)),
            ("stream", Py::Int(0)),
            ("time_us", int(1_700_000_000_000_000 + i)),
            ("frames", Py::List((0..i % 4).map(frame).collect())),
        ])
    });
    Py::Dict(vec![
        ("segments", Py::List(segments.collect())),
        ("device_traces", Py::List(vec![Py::List(vec![]), Py::List(events.collect())])),
    ])
}

fn assert_recording(recording: &Recording, style: Style) {
    let bytes = pickle(&snapshot_of(recording), style);
    let (snapshot, warnings) = unpack(read_named("r", &bytes).unwrap_or_else(|e| panic!("{style:?}: {e}")));
    assert!(warnings.iter().all(|w| w.contains("no CUDA memory")), "{warnings:?}");
    let Some(device) = snapshot.devices.first() else {
        assert!(recording.events.is_empty() && recording.live.is_empty());
        return;
    };
    assert_eq!((device.device, device.events), (1, recording.events.len() as u64));
    assert_eq!(device.reserved, Bytes((recording.live.len() as u64) << 20));
    let peak = recording.totals.iter().max().map(|peak| u64::try_from(*peak).unwrap());
    assert_eq!(device.peak_requested_in_window.map(|b| b.0), peak.filter(|_| !recording.events.is_empty()));
    if let Some(live) = &device.live {
        // Each point is true, and the extremes are there.
        for (x, y) in live.x.iter().zip(&live.y) {
            let after = usize::try_from(x - 1_700_000_000_000_000).unwrap() + 1;
            assert_eq!(i64::try_from(*y).unwrap(), recording.totals[after]);
        }
        let (low, high) = (live.y.iter().min().unwrap(), live.y.iter().max().unwrap());
        let after = &recording.totals[1..];
        let extremes = (after.iter().min().unwrap(), after.iter().max().unwrap());
        assert_eq!((i64::try_from(*low).as_ref(), i64::try_from(*high).as_ref()), (Ok(extremes.0), Ok(extremes.1)));
    }
    if let Some(bands) = &device.bands {
        // The lines of code add up to what was live, at every moment, and the highest moment is among them.
        let sum = |at: usize| bands.sites.iter().map(|site| site.bytes[at]).sum::<u64>() + bands.rest[at];
        for (at, x) in bands.x.iter().enumerate() {
            let after = usize::try_from(x - 1_700_000_000_000_000).unwrap() + 1;
            assert_eq!(i64::try_from(sum(at)).unwrap(), recording.totals[after]);
        }
        let highest = (0..bands.x.len()).map(sum).max();
        assert_eq!(highest.and_then(|n| i64::try_from(n).ok()).as_ref(), recording.totals[1..].iter().max());
    }
}

/// Long enough to cross many windows of the reader and to need several events per bucket.
#[test]
fn long_recordings_are_played_back_exactly() {
    let mut state = 7u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let moves: Vec<_> = (0..30_000).map(|_| ((next() % 251) as u8, (next() % 60_000) as u16)).collect();
    for (protocol, batch) in [(2, usize::MAX), (4, 1000), (5, 7)] {
        assert_recording(&play(&moves, 1234), Style { protocol, batch });
    }
}

fn style() -> impl Strategy<Value = Style> {
    (2u8..=5, prop_oneof![Just(1usize), Just(2), Just(3), Just(1000)])
        .prop_map(|(protocol, batch)| Style { protocol, batch })
}

/// What may happen to a file on its way.
#[derive(Debug, Clone)]
enum Damage {
    Set(usize, u8),
    Insert(usize, u8),
    Remove(usize, usize),
    Repeat(usize, usize),
    Cut(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = 0usize..4000;
    prop_oneof![
        (at.clone(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (at.clone(), any::<u8>()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        (at.clone(), 1usize..40).prop_map(|(at, n)| Damage::Remove(at, n)),
        (at.clone(), 1usize..200).prop_map(|(at, n)| Damage::Repeat(at, n)),
        at.prop_map(Damage::Cut),
    ]
}

fn inflict(bytes: &mut Vec<u8>, damage: &Damage) {
    let length = bytes.len();
    match *damage {
        Damage::Set(at, byte) if at < length => bytes[at] = byte,
        Damage::Insert(at, byte) if at <= length => bytes.insert(at, byte),
        Damage::Remove(at, n) if at < length => drop(bytes.drain(at..(at + n).min(length))),
        Damage::Repeat(at, n) if at < length => {
            let copy = bytes[at..(at + n).min(length)].to_vec();
            bytes.splice(at..at, copy);
        }
        Damage::Cut(at) => bytes.truncate(at),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn recordings_are_played_back_exactly(
        moves in prop::collection::vec((0u8..12, any::<u16>()), 0..120),
        forget in 0usize..40,
        style in style(),
    ) {
        assert_recording(&play(&moves, forget), style);
    }

    #[test]
    fn damaged_files_never_panic_and_stay_small(
        which in prop::sample::select(vec![
            "protocol2.pickle", "protocol5.pickle", "torch_cpp_writer.pickle", "torch113_list.pickle", "oom.pickle",
            "expandable_two_devices.pickle", "pairs_as_lists.pickle", "traces_first.pickle",
        ]),
        damages in prop::collection::vec(damage(), 1..6),
    ) {
        let mut bytes = own(which);
        for damage in &damages {
            inflict(&mut bytes, damage);
        }
        match read_named(which, &bytes) {
            Ok(evidence) => {
                let size = serde_json::to_string(&evidence).unwrap().len();
                prop_assert!(size < 64 * bytes.len() + 4096, "{size} bytes of evidence from {}", bytes.len());
            }
            Err(e) => prop_assert!(e.to_string().len() < 1200, "{e}"),
        }
    }

    #[test]
    fn random_opcodes_never_panic(ops in prop::collection::vec(prop::sample::select(
        b"}](]}(uaseuNKhhqj\x94\x94\x85\x86\x87t\x8c\x01.\x88M\x8aG".to_vec()), 0..400)) {
        let mut bytes = vec![0x80, 4];
        bytes.extend(ops);
        let _ = read_named("x", &bytes);
    }
}

/// A block of `bytes` allocated by `stack`.
fn block(bytes: i64, stack: Py) -> Py {
    Py::Dict(vec![("size", Py::Int(bytes)), ("state", Py::Text("active_allocated".to_owned())), ("frames", stack)])
}

fn segment(device: i64, blocks: Py) -> Py {
    Py::Dict(vec![
        ("device", Py::Int(device)),
        ("total_size", Py::Int(1 << 21)),
        ("allocated_size", Py::Int(1 << 20)),
        ("active_size", Py::Int(1 << 20)),
        ("blocks", blocks),
    ])
}

fn frame(function: Py, file: Py, line: i64) -> Py {
    Py::Dict(vec![("name", function), ("filename", file), ("line", Py::Int(line))])
}

#[test]
fn lists_that_many_refer_to_are_counted_once() {
    let blocks = Py::Shared(1, Box::new(Py::List(vec![block(512, Py::List(vec![])); 50])));
    let event =
        Py::Dict(vec![("action", Py::Text("oom".to_owned())), ("size", Py::Int(512)), ("device_free", Py::Int(0))]);
    let events = Py::Shared(2, Box::new(Py::List(vec![event; 20])));
    let top = Py::Dict(vec![
        ("segments", Py::List((0..200).map(|n| segment(n % 4, blocks.clone())).collect())),
        ("device_traces", Py::List(vec![events; 1000])),
    ]);
    let (snapshot, warnings) =
        unpack(read_named("x.pickle", &pickle(&top, Style { protocol: 4, batch: 1000 })).unwrap());
    assert_eq!(snapshot.devices.iter().map(|d| d.blocks).sum::<u64>(), 50);
    assert_eq!(snapshot.devices.iter().map(|d| d.segments).sum::<u64>(), 200);
    assert_eq!(snapshot.devices.iter().map(|d| d.events).sum::<u64>(), 20);
    assert_eq!(snapshot.devices.iter().map(|d| d.ooms.len()).sum::<usize>(), 20);
    for words in ["199 segments refer to a list of blocks", "127 devices refer to a list of events", "1000 devices"] {
        assert!(warnings.iter().any(|warning| warning.contains(words)), "{words}: {warnings:?}");
    }
    let far =
        Py::Dict(vec![("segments", Py::List(vec![segment(128, Py::List(vec![])), segment(127, Py::List(vec![]))]))]);
    let (snapshot, warnings) =
        unpack(read_named("x.pickle", &pickle(&far, Style { protocol: 4, batch: 1000 })).unwrap());
    assert_eq!(snapshot.devices.len(), 1);
    assert!(warnings[0].contains("cannot exist"), "{warnings:?}");
}

#[test]
fn one_long_text_in_every_frame_stays_small() {
    // One text of 60 kB, which all frames of all call sites name. The tests' writer only knows short ones.
    let long = "n".repeat(250);
    let file = Py::Shared(1, Box::new(Py::Text("LONG".to_owned())));
    let mut segments = Vec::new();
    for device in 0..100 {
        let site = |site: i64| {
            let frames = (0..64).map(|n| frame(Py::Text(long.clone()), file.clone(), site * 64 + n)).collect();
            block(512, Py::List(frames))
        };
        segments.push(segment(device, Py::List((0..60).map(site).collect())));
    }
    let mut bytes = pickle(&Py::Dict(vec![("segments", Py::List(segments))]), Style { protocol: 4, batch: 1000 });
    let at = bytes.windows(6).position(|w| w == b"\x8c\x04LONG").unwrap();
    let text = [&b"X"[..], &60_000u32.to_le_bytes(), &b"f".repeat(60_000)].concat();
    bytes.splice(at..at + 6, text);
    let (snapshot, warnings) = unpack(read_named("x.pickle", &bytes).unwrap());
    assert_eq!(snapshot.devices.len(), 100);
    let frames = snapshot.devices.iter().flat_map(|d| &d.top_sites).flat_map(|site| &site.frames);
    let held: usize = frames.clone().map(|frame| frame.file.len() + frame.function.len()).sum();
    assert!(held > 10 << 20 && held < 24 << 20, "{held}");
    assert!(frames.clone().all(|frame| frame.file.len() < 1100));
    assert!(warnings.iter().any(|warning| warning.contains("frames were left out")), "{warnings:?}");
}

/// The same bytes refer to another frame once the memo's entry was written anew: no writer does that, but a file may.
#[test]
fn equal_references_mean_what_the_memo_holds_by_then() {
    let text = |text: &str| [b"X", &u32::try_from(text.len()).unwrap().to_le_bytes()[..], text.as_bytes()].concat();
    let int = |n: i32| [b"J", &n.to_le_bytes()[..]].concat();
    let dict = |pairs: &[(&str, Vec<u8>)]| {
        let pairs = pairs.iter().flat_map(|(key, value)| [text(key), value.clone()].concat());
        [b"}(".to_vec(), pairs.collect(), b"u".to_vec()].concat()
    };
    let frame = |name: &str| {
        let frame = dict(&[("name", text(name)), ("filename", text("train.py")), ("line", int(7))]);
        [frame, b"q\x05".to_vec()].concat()
    };
    let block = |note: Vec<u8>, size: i32| {
        let frames = b"](h\x05e".to_vec();
        dict(&[("note", note), ("size", int(size)), ("state", text("active_allocated")), ("frames", frames)])
    };
    let blocks = [(frame("one"), 100), (int(0), 200), (frame("two"), 400), (int(0), 800)];
    let blocks = blocks.into_iter().flat_map(|(note, size)| block(note, size));
    let blocks = [b"](".to_vec(), blocks.collect(), b"e".to_vec()].concat();
    let segment = dict(&[("device", int(0)), ("total_size", int(1500)), ("blocks", blocks)]);
    let top = dict(&[("segments", [b"](".to_vec(), segment, b"e".to_vec()].concat())]);
    let (snapshot, _) = unpack(read_named("x.pickle", &[b"\x80\x02".to_vec(), top, b".".to_vec()].concat()).unwrap());
    let sites = snapshot.devices[0].top_sites.iter();
    let sites: Vec<_> = sites.map(|site| (site.frames[0].function.as_str(), site.bytes.0, site.blocks)).collect();
    assert_eq!(sites, [("two", 1200, 2), ("one", 300, 2)]);
}
