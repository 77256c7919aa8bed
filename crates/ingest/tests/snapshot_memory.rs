//! What a snapshot costs in memory: little when it is real, bounded when it is hostile. Counted at the allocator.

#[path = "support/counting.rs"]
mod counting;
#[path = "support/pickler.rs"]
mod pickler;

use pickler::{Py, Style, pickle};
use rankscope_ingest::{Limits, ReadContext, ReadError, torch_snapshot};
use rankscope_model::{ArtifactId, Evidence};

/// Reads `bytes`; gives the result and the peak of what was allocated meanwhile.
fn measured(bytes: &[u8]) -> (Result<Evidence, ReadError>, usize) {
    let limits = Limits::default();
    let ctx = ReadContext { artifact: ArtifactId(0), name: "x", limits: &limits };
    counting::measured(|| torch_snapshot::read(&mut &*bytes, &ctx))
}

fn repeated(head: &[u8], unit: &[u8], times: u32) -> Vec<u8> {
    let mut bytes = vec![0x80, 4];
    bytes.extend(head);
    bytes.extend(unit.repeat(times as usize));
    bytes
}

/// One test, because the counters are those of the process.
#[test]
fn memory_stays_in_bounds() {
    let text = |text: &str| Py::Text(text.to_owned());
    let frame = |n: u32| {
        let dict = vec![("name", text("forward")), ("filename", text("a.py")), ("line", Py::Int(n.into()))];
        Py::Shared(n, Box::new(Py::Dict(dict)))
    };
    let event = |n: u32| {
        Py::Dict(vec![
            ("action", text(if n.is_multiple_of(2) { "alloc" } else { "free_completed" })),
            ("addr", Py::Int(0x7f00_0000_0000 + i64::from(n / 2 * 512))),
            ("size", Py::Int(512)),
            ("time_us", Py::Int(1_700_000_000_000_000 + i64::from(n))),
            ("frames", Py::List((0..25).map(|depth| frame(n % 50 * 10 + depth)).collect())),
        ])
    };
    let traces = Py::List(vec![Py::List((0..40_000).map(event).collect())]);
    let real = pickle(
        &Py::Dict(vec![("segments", Py::List(vec![])), ("device_traces", traces)]),
        Style { protocol: 4, batch: 1000 },
    );
    let (result, peak) = measured(&real);
    assert_eq!(result.unwrap().snapshots[0].devices[0].events, 40_000);
    let bound = real.len() * 6 / 10 + (1 << 20); // the window and the first tables are a constant
    assert!(peak <= bound, "{peak} for {}", real.len());

    // Floods: as much memory per byte as each kind of opcode can ask for. Where nothing takes the values off the
    // stack, the reading ends early; where a list takes them, it goes on.
    let mib = 1 << 20;
    let numbered = |count: u32, before: &[u8], after: &[u8]| {
        let mut units = Vec::new();
        for n in 0..count {
            units.extend_from_slice(before);
            units.extend_from_slice(&n.wrapping_mul(97).to_le_bytes());
            units.extend_from_slice(after);
        }
        units
    };
    for (what, bytes) in [
        ("values on the stack", repeated(&[], b"N", 20 * mib)),
        ("marks", repeated(&[], b"(", 20 * mib)),
        ("lists in lists", repeated(&[], b"]", 20 * mib)),
        ("lists in a list", repeated(b"]", b"]a", 10 * mib)),
        ("memo entries", repeated(b"N", b"\x94", 24 * mib)),
        ("memo entries far apart", repeated(b"N", &numbered(3 * mib / 2, b"r", b""), 1)),
        ("numbers in the memo", repeated(b"]", b"\x8a\x08abcdefg\x01\x94a", 2 * mib)),
        ("events of one key", repeated(b"\x8c\x06action\x94]", b"}h\x00h\x00sa", 3 * mib)),
        ("dicts that could be anything", repeated(b"\x8c\x04size\x94]", b"}h\x00K\x01sa", 3 * mib)),
        ("segments", repeated(b"\x8c\x06blocks\x94]", b"}h\x00K\x01sa", 3 * mib)),
        ("blocks", repeated(b"\x8c\x05state\x94]", b"}h\x00K\x01sa", 3 * mib)),
        ("a list of frames, one at a time", repeated(b"}\x94\x8c\x08filename\x8c\x01as]", b"h\x00a", 6 * mib)),
        ("texts", repeated(b"]", &numbered(mib, b"\x8c\x04", b"\x94a"), 1)),
    ] {
        let (result, peak) = measured(&bytes);
        assert!(result.is_err(), "{what}");
        let bound = 4 * bytes.len() + (64 << 20);
        println!("{what}: {} MiB, peak {} MiB", bytes.len() >> 20, peak >> 20);
        assert!(peak <= bound, "{what}: {peak} for {}", bytes.len());
    }
}
