//! No input makes a reader panic, run on, or forget to say that the file was there.
#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test that fails should say so at once")]

mod common;

use common::{check, read_bytes};
use proptest::prelude::*;
use rankscope_ingest::{Limits, rank_from_name, read_upload};
use std::io::Cursor;
use std::time::{Duration, Instant};

const SEEDS: [&[u8]; 8] = [
    include_bytes!("data/smi-304.txt"),
    include_bytes!("data/smi-340.txt"),
    include_bytes!("data/smi-418-stray.txt"),
    include_bytes!("data/smi-515-errors.txt"),
    include_bytes!("data/smi-550-mig.txt"),
    include_bytes!("data/smi-610-windows.txt"),
    include_bytes!("data/job.log"),
    b"[Rank 5] (after 20 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.5 | reserved: 3 | max reserved: 4[Rank 6] (after 20\nstep rank img_shape n_gt peak_mb\n3 6 (800, 1333) 341 8337\nAllocator (GPU_0_bfc) ran out of memory trying to allocate 4.90GiB (rounded to 5262653440)\n",
];

fn read_and_check(name: &str, bytes: &[u8]) {
    check(name, &read_bytes(name, bytes));
}

/// Words that the readers look for, in any order: closer to trouble than random bytes.
fn shards() -> impl Strategy<Value = String> {
    let shard = prop::sample::select(vec![
        "| NVIDIA-SMI 535.1 ",
        "Driver Version:",
        "CUDA Version:",
        "|   0  Tesla V100  Off  | 00000000:1A:00.0 Off |",
        "12MiB / 34MiB",
        "| Processes: ",
        "|    0   N/A  N/A   12   C  python  5MiB |",
        "MIG devices:",
        "|",
        "+---+",
        "/",
        "N/A",
        "ERR!",
        "[rank3]: ",
        "0: ",
        "[1,2]<stdout>:",
        "[default1]:",
        "(A pid=1) ",
        "rank=",
        "rank",
        "step",
        "=",
        ":",
        "(",
        ")",
        "[",
        "]",
        ",",
        "8",
        "512",
        "4.5",
        "GB",
        "MiB",
        "cur",
        "peak",
        "shape",
        "torch.Size",
        "max",
        "memory (MB)",
        "allocated",
        "MA",
        "cuda:1",
        "%",
        "\r",
        "\n",
        "\x1b[3",
        "\x1b]",
        "> ",
        "CUDA out of memory. ",
        "Tried to allocate 2.00 GiB",
        " (GPU 0; ",
        "total capacity",
        "Process 12 has 1.5 GiB memory in use.",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12 bytes",
        "Limit: 12",
        "InUse: 9",
        "Wed Dec 16 10:41:07 2020\n",
        "显",
        "\0",
        " ",
        "99999999999999999999",
        "1e999",
        "import torch\n",
        "def f():\n",
        "PID USER %CPU STARTED COMMAND\n",
        "12 a 0.1 Wed May  8 08:02:10 2024 torchrun --nproc_per_node=2 a.py\n",
        "r\0a\0n\0k\0=\x001\0",
        "(dp0\n",
    ]);
    prop::collection::vec(shard, 0..60).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        read_and_check("upload", &bytes);
    }

    #[test]
    fn shuffled_words(text in shards()) {
        read_and_check("rank1.log", text.as_bytes());
    }

    #[test]
    fn cut_anywhere(seed in 0..SEEDS.len(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
        let bytes = SEEDS[seed];
        let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
        read_and_check("cut.txt", &bytes[from.min(to)..from.max(to)]);
    }

    #[test]
    fn changed_bytes(seed in 0..SEEDS.len(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40)) {
        let mut bytes = SEEDS[seed].to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read_and_check("changed.txt", &bytes);
    }

    #[test]
    fn magic_and_junk(magic in prop::sample::select(vec![
        &b"\x1f\x8b\x08\0\0\0\0\0\0\0"[..], b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"PK\x05\x06", b"\x80\x04", b"\xff\xfe", b"\xfe\xff", b"\x50\x2a\x4d\x18",
    ]), junk in prop::collection::vec(any::<u8>(), 0..600)) {
        read_and_check("upload", &[magic, &junk].concat());
    }

    #[test]
    fn changed_archives(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20), kind in 0..3) {
        use std::io::Write;
        let mut bytes = match kind {
            0 => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(SEEDS[6]).unwrap();
                encoder.finish().unwrap()
            }
            1 => ruzstd::encoding::compress_to_vec(SEEDS[6], ruzstd::encoding::CompressionLevel::Fastest),
            _ => {
                let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
                for name in ["a.log", "b.log"] {
                    zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
                    zip.write_all(SEEDS[2]).unwrap();
                }
                zip.finish().unwrap().into_inner()
            }
        };
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read_and_check("upload", &bytes);
    }

    #[test]
    fn any_name(name in any::<String>()) {
        let _ = rank_from_name(&name);
        read_and_check(&name, b"rank=0 step=1 cur=1MB\n");
    }
}

/// A short walk of a fuzzer that is the same in every run: every file of the tests' own data, changed in many ways.
#[test]
fn changed_files_of_every_kind_are_read_without_harm() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below.max(1) as u64).unwrap()
    };
    let files = common::files(&folder, &|name| {
        !std::path::Path::new(name).extension().is_some_and(|ext| ext == "py" || ext == "md")
    });
    let seeds: Vec<Vec<u8>> = files.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(seeds.len() > 40, "{}", seeds.len());
    for (path, seed) in files.iter().zip(&seeds) {
        let name = path.file_name().unwrap().to_string_lossy();
        for round in 0..12 {
            let mut bytes = seed.clone();
            // A window of large files: what matters is how they begin, and a test must not take minutes.
            bytes.truncate(24 << 10);
            for _ in 0..=random(6) {
                let (at, length) = (random(bytes.len()), random(64));
                let end = (at + length).min(bytes.len());
                match random(6) {
                    0 => bytes.truncate(at),
                    1 => drop(bytes.drain(at..end)),
                    2 => {
                        let copy = bytes[at..end].to_vec();
                        bytes.splice(at..at, copy);
                    }
                    3 => {
                        let other = &seeds[random(seeds.len())];
                        let from = random(other.len());
                        let piece = other[from..(from + length).min(other.len())].to_vec();
                        bytes.splice(at..at, piece);
                    }
                    4 if at < bytes.len() => bytes[at] ^= 1 << random(8),
                    _ if at < bytes.len() => {
                        bytes[at] = [0, 9, 10, 34, 44, 45, 48, 57, 58, 91, 93, 123, 124, 125, 128, 255][random(16)];
                    }
                    _ => {}
                }
            }
            read_and_check(&format!("{round}-{name}"), &bytes);
        }
    }
}

/// Twice the input must not take much more than twice the time; four times as much would show a quadratic reader.
#[test]
fn time_is_linear() {
    let hard: [&dyn Fn(usize) -> Vec<u8>; 7] = [
        &|n| b"CUDA out of memory. Tried to allocate 2.00 GiB ".repeat(n / 47),
        &|n| b"CUDA out of memory. Tried to allocate\n".repeat(n / 38),
        &|n| b"|   0  Tesla V100  Off  | 00000000:1A:00.0 Off |\n".repeat(n / 49),
        &|n| b"rank=1 peak=5MB ".repeat(n / 16),
        &|n| {
            (0..n / 40)
                .flat_map(|i| format!("[rank{}]: RuntimeError: CUDA out of memory. Tried\n", i % 1000).into_bytes())
                .collect()
        },
        &|n| b"Resource exhausted: Out of ".repeat(n / 27),
        &|n| (0..n / 24).flat_map(|i| format!("rank={i} step={i} cur=5MB\n").into_bytes()).collect(),
    ];
    for (index, make) in hard.iter().enumerate() {
        let time = |bytes: &[u8]| {
            let started = Instant::now();
            read_and_check("log", bytes);
            started.elapsed()
        };
        let (small, large) = (make(60_000), make(480_000));
        time(&small);
        let (small, large) = (time(&small), time(&large));
        // 8 times the input; the allowance is for a busy machine.
        assert!(large < small * 24 + Duration::from_millis(300), "input {index}: {small:?} then {large:?}");
    }
}

#[test]
fn a_line_without_end_is_cut_and_said_so() {
    let evidence = read_bytes("log", &b"x".repeat(3 << 20));
    assert!(evidence.artifacts[0].warnings[0].contains("longer than 64 KiB"));
}

#[test]
fn records_are_thinned_and_said_so() {
    let limits = Limits { max_step_records: 1000, ..Limits::default() };
    let text: String =
        (0..20_000).map(|i| format!("rank={} step={} peak={}MB\n", i % 4, i / 4, 1000 + i % 97)).collect();
    let evidence = read_upload("log", &mut Cursor::new(text), &limits);
    assert!(evidence.steps.len() <= 1000 && evidence.steps.len() > 300);
    assert!(
        evidence.artifacts[0].warnings[0].contains("of 20000 records were left out"),
        "{:?}",
        evidence.artifacts[0].warnings
    );
    let largest = evidence.steps.iter().filter_map(|s| s.peak_allocated).max();
    assert_eq!(largest, Some(rankscope_model::Bytes::from_mib(1096)));
}
