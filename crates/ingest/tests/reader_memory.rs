//! What traces and texts cost in memory: little when they are real, bounded when they are hostile. Counted at the
//! allocator.
#![allow(clippy::unwrap_used, reason = "a test that fails should say so at once")]

#[path = "support/counting.rs"]
mod counting;

use counting::measured;
use rankscope_ingest::{Limits, ReadContext, memory_timeline, profiler_trace, read_upload};
use rankscope_model::{ArtifactId, ArtifactKind};
use std::fmt::Write;
use std::io::Cursor;

const MIB: usize = 1 << 20;

/// What is promised for any input.
fn bound(input: usize) -> usize {
    4 * input + 64 * MIB
}

/// A trace as kineto writes it: of ten events one is of memory.
fn trace(events: u64) -> Vec<u8> {
    let mut text = String::from(
        "{\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA A100\", \"totalGlobalMem\": 85899345920}], \
         \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 3, \"world_size\": 8}, \"traceEvents\": [\n",
    );
    for n in 0..events {
        if n % 10 == 0 {
            let sign = if n % 20 == 0 { "" } else { "-" };
            writeln!(
                text,
                "{{\"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": \"[memory]\", \"pid\": 1, \"tid\": 2, \"ts\": {}.125, \
                 \"args\": {{\"Total Reserved\": 2097152, \"Total Allocated\": {}, \"Bytes\": {sign}512, \"Addr\": 139637976727552, \
                 \"Device Id\": 0, \"Device Type\": 1, \"Ev Idx\": {n}}}}},",
                1_700_000_000_000_000 + n,
                1024 + (n + 10) / 10 % 2 * 512
            )
            .unwrap();
        } else {
            writeln!(
                text,
                "{{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::addmm\", \"pid\": 1, \"tid\": 2, \"ts\": {}, \"dur\": 12, \
                 \"args\": {{\"External id\": {n}, \"Ev Idx\": {n}, \"Input Dims\": [[8, 512], [512, 2048]]}}}},",
                1_700_000_000_000_000 + n
            )
            .unwrap();
        }
    }
    text.push_str("{}]}\n");
    text.into_bytes()
}

fn traces(limits: &Limits) {
    let ctx = ReadContext { artifact: ArtifactId(0), name: "rank3.json", limits };
    let real = trace(50_000);
    let (evidence, peak) = measured(|| profiler_trace::read(&mut real.as_slice(), &ctx).unwrap());
    assert_eq!((evidence.traces[0].events, evidence.traces[0].peak.as_ref().map(|p| p.bytes.0)), (5_000, Some(1536)));
    println!("a trace of {} MiB: peak {} MiB", real.len() / MIB, peak / MIB);
    assert!(peak <= real.len() / 10 + MIB, "{peak} for {}", real.len());

    let event = "{\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Device Type\":1,\"Device Id\":0,\"Bytes\":1}},";
    let failed = event.replace("[memory]", "[OutOfMemory]");
    let many_devices = |n: usize| event.replace("\"Device Id\":0", &format!("\"Device Id\":{n}"));
    let flood = |before: &str, unit: &str, times: usize| format!("{before}{}", unit.repeat(times)).into_bytes();
    let devices: String = (0..50_000).map(many_devices).collect();
    for (what, bytes) in [
        ("memory events", flood("{\"traceEvents\":[", event, 100_000)),
        ("failed allocations", flood("{\"traceEvents\":[", &failed, 100_000)),
        ("devices", format!("{{\"traceEvents\":[{devices}").into_bytes()),
        ("properties", flood("{\"traceEvents\":[],\"deviceProperties\":[", "{\"id\":1,\"name\":\"A\"},", MIB / 4)),
        ("a long name", flood("{\"traceEvents\":[{\"name\":\"", "x", 8 * MIB)),
        ("a long key", flood("{\"traceEvents\":[{\"", "x", 8 * MIB)),
        ("nested lists", flood("{\"traceEvents\":", "[", 8 * MIB)),
        ("a long number", flood("{\"traceEvents\":[{\"ts\":", "1", 8 * MIB)),
        ("a backend of many letters", flood("{\"distributedInfo\":{\"rank\":1,\"backend\":\"", "x", 8 * MIB)),
    ] {
        let (_, peak) = measured(|| profiler_trace::read(&mut bytes.as_slice(), &ctx));
        println!("{what}: {} MiB, peak {} MiB", bytes.len() / MIB, peak / MIB);
        assert!(peak <= bound(bytes.len()), "{what}: {peak} for {}", bytes.len());
    }
    for (what, bytes) in [
        ("changes", flood("[", "[1,2,3,4],", MIB)),
        ("times", flood("[[", "1700000000000000,", MIB / 2)),
        ("short times", flood("[[1700000000000000,", "1,", 4 * MIB)),
        ("a long list", flood("[[1700000000000000],[[", "1,", 4 * MIB)),
    ] {
        let (_, peak) = measured(|| memory_timeline::read(&mut bytes.as_slice(), &ctx));
        println!("{what}: {} MiB, peak {} MiB", bytes.len() / MIB, peak / MIB);
        assert!(peak <= bound(bytes.len()), "{what}: {peak} for {}", bytes.len());
    }
}

/// The shortest lines that leave something behind.
fn texts(limits: &Limits) {
    let numbered = |line: fn(u32) -> String, count: u32| (0..count).map(line).collect::<String>();
    for (what, text) in [
        ("steps", numbered(|n| format!("rank={} step={n} peak=1MB\n", n % 8), 150_000)),
        ("ranks", numbered(|n| format!("rank={n} peak=1MB\n"), 70_000)),
        ("shapes", numbered(|n| format!("rank=1 step={n} shape=(1,2,3,4,5,6,7,8)\n"), 60_000)),
        ("messages", numbered(|n| format!("CUDA out of memory. Tried to allocate {n}.00 GiB\n"), 50_000)),
        (
            "rows of CSV",
            format!("index, memory.used [MiB]\n{}", numbered(|n| format!("{}, {n} MiB\n", n % 8), 200_000)),
        ),
        ("processes of CSV", format!("pid, gpu_uuid\n{}", numbered(|n| format!("{n}, GPU-{n:08x}\n"), 100_000))),
        (
            "cards",
            numbered(|n| format!("GPU {}: A (UUID: GPU-{n:08x}-0000-0000-0000-000000000001)\n", n % 9999), 50_000),
        ),
        ("metrics", numbered(|n| format!("DCGM_FI_DEV_FB_USED{{gpu=\"{}\"}} {n}\n", n % 64), 75_000)),
        ("phases", numbered(|n| format!("Saving checkpoint at step {n}\nEvaluating\n"), 30_000)),
        ("settings", numbered(|n| format!("world size: {}\n", n + 1), 50_000)),
        ("pairs of a stack", numbered(|n| format!("  File \"a{n}.py\", line {n}, in f\n"), 100_000)),
        ("nested statistics", numbered(|_| "{'allocated_bytes': {'all': {'current': 1,\n".to_owned(), 40_000)),
        ("environment", numbered(|n| format!("A{n}=1\n"), 200_000)),
        ("script", numbered(|n| format!("x{n} = f(y{n})\n"), 75_000)),
    ] {
        let name = if what == "script" { "a.py" } else { "a.log" };
        let (evidence, peak) = measured(|| read_upload(name, &mut Cursor::new(text.as_bytes()), limits));
        assert_ne!(evidence.artifacts[0].kind, ArtifactKind::Archive);
        println!("{what}: {} MiB, peak {} MiB", text.len() / MIB, peak / MIB);
        assert!(peak <= bound(text.len()), "{what}: {peak} for {}", text.len());
    }
}

/// One test, because the counters are those of the process.
#[test]
fn memory_stays_in_bounds() {
    let limits = Limits::default();
    traces(&limits);
    texts(&limits);
}
