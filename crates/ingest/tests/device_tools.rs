//! CSV queries, reports, monitors, links and metrics: our own samples figure by figure, real files against figures that
//! other tools took from them, and what holds for any text.
#![allow(
    clippy::unwrap_used,
    clippy::format_collect,
    clippy::format_push_string,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "a test that fails should say so at once"
)]

mod common;

use common::{files, read_bytes, shared};
use proptest::prelude::*;
use rankscope_ingest::{Limits, read_upload};
use rankscope_model::{
    ArtifactKind, Bytes, DeviceTable, Evidence, GIB, LinkKind, MIB, Place, ProcessListing, Subject, UnixMicros,
};
use std::collections::BTreeSet;
use std::io::Cursor;

const SAMPLES: [(&str, &str); 14] = [
    ("query-gpu-loop.csv", include_str!("data/device_tools/query-gpu-loop.csv")),
    ("query-both.txt", include_str!("data/device_tools/query-both.txt")),
    ("apps-by-uuid.csv", include_str!("data/device_tools/apps-by-uuid.csv")),
    ("query-mig.txt", include_str!("data/device_tools/query-mig.txt")),
    ("query.xml", include_str!("data/device_tools/query.xml")),
    ("dmon-fb.txt", include_str!("data/device_tools/dmon-fb.txt")),
    ("pmon-fb.txt", include_str!("data/device_tools/pmon-fb.txt")),
    ("topo.txt", include_str!("data/device_tools/topo.txt")),
    ("gpustat.txt", include_str!("data/device_tools/gpustat.txt")),
    ("gpustat.json", include_str!("data/device_tools/gpustat.json")),
    ("nvitop.txt", include_str!("data/device_tools/nvitop.txt")),
    ("dcgm.prom", include_str!("data/device_tools/dcgm.prom")),
    ("rocm-meminfo.txt", include_str!("data/device_tools/rocm-meminfo.txt")),
    ("amd-smi.json", include_str!("data/device_tools/amd-smi.json")),
];

fn sample(name: &str) -> &'static str {
    SAMPLES.iter().find(|(n, _)| *n == name).unwrap().1
}

fn read(name: &str) -> Evidence {
    read_bytes(name, sample(name).as_bytes())
}

/// MiB used per subject, in printed order.
fn used(table: &DeviceTable) -> Vec<(String, Option<u64>)> {
    table.devices.iter().map(|row| (row.subject.to_string(), row.used.map(|b| b.0 / MIB))).collect()
}

/// GPU, PID and MiB of the processes, in printed order.
fn processes(table: &DeviceTable) -> Vec<(String, Option<u32>, Option<u64>)> {
    table.processes.iter().map(|row| (row.subject.to_string(), row.pid, row.used.map(|b| b.0 / MIB))).collect()
}

fn gpu(index: u32) -> String {
    format!("GPU {index}")
}

// 2024-05-06 07:08:09 as `date -u -d … +%s` gives it.
const SECOND: i64 = 1_714_979_289;

#[test]
fn a_csv_loop_is_a_reading_per_round() {
    let evidence = read("query-gpu-loop.csv");
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::NvidiaSmiCsv);
    assert_eq!(evidence.artifacts[0].devices, [0, 1]);
    assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new());
    let [first, second] = evidence.device_tables.as_slice() else { panic!("{:?}", evidence.device_tables) };
    assert_eq!(used(first), [(gpu(0), Some(21000)), (gpu(1), None)]);
    assert_eq!(used(second), [(gpu(0), Some(22000)), (gpu(1), Some(12000))]);
    assert_eq!(first.time, Some(UnixMicros(SECOND * 1_000_000 + 100_000)));
    assert_eq!(first.time_text.as_deref(), Some("2024/05/06 07:08:09.100"));
    assert_eq!(first.listing, ProcessListing::Missing);
    let row = &first.devices[0];
    assert_eq!((row.reserved, row.free), (Some(Bytes::from_mib(430)), Some(Bytes::from_mib(24638))));
    assert_eq!((row.utilization_percent, row.display_active, row.mig_enabled), (Some(97), Some(false), None));
    assert_eq!((row.compute_mode.as_deref(), row.ecc_enabled), (Some("Default"), Some(true)));
    assert_eq!(row.uuid.as_deref(), Some("GPU-5a1b2c3d-0000-4000-8000-000000000000"));
    assert_eq!(row.at.place, Place::Line(2));
    assert_eq!(first.devices[1].utilization_percent, None);
}

#[test]
fn echoed_commands_stand_in_for_headers_and_processes_find_their_gpus() {
    let evidence = read("query-both.txt");
    let [table] = evidence.device_tables.as_slice() else { panic!("{:?}", evidence.device_tables) };
    assert_eq!(used(table), [(gpu(0), Some(21000)), (gpu(1), Some(12000))]);
    assert_eq!(
        processes(table),
        [
            (gpu(1), Some(4321), Some(11500)),
            (gpu(0), Some(4320), Some(20100)),
            (gpu(0), Some(4321), Some(480)),
            (gpu(1), Some(4400), None),
        ]
    );
    assert_eq!(table.processes[0].name.as_deref(), Some("python train.py --betas 0.9, 0.95"));
    assert_eq!(table.processes[3].name, None);
    // Graphics processes are not in this list.
    assert_eq!(table.listing, ProcessListing::Partial);
    assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new());
}

#[test]
fn gpus_without_an_index_get_it_from_the_list_or_a_warning() {
    let alone = read("apps-by-uuid.csv");
    assert_eq!(processes(&alone.device_tables[0])[0], (gpu(0), Some(4321), Some(11500)));
    assert!(alone.artifacts[0].warnings[0].contains("without their index"), "{:?}", alone.artifacts[0].warnings);
    for text in [
        [include_str!("data/device_tools/list.txt"), sample("apps-by-uuid.csv")].concat(),
        [sample("apps-by-uuid.csv"), include_str!("data/device_tools/list.txt")].concat(),
    ] {
        let both = read_bytes("smi.txt", text.as_bytes());
        assert_eq!(
            processes(&both.device_tables[0]),
            [(gpu(3), Some(4321), Some(11500)), (gpu(2), Some(4322), Some(20100))]
        );
        assert_eq!(both.artifacts[0].warnings, Vec::<String>::new());
        assert_eq!(both.artifacts[0].devices, [2, 3]);
    }
}

#[test]
fn what_no_header_tells_is_not_guessed() {
    let rows = "0, 21000 MiB, 46068 MiB\n1, 12000 MiB, 46068 MiB\n";
    let evidence = read_bytes("gpu.csv", rows.as_bytes());
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::NvidiaSmiCsv);
    assert!(evidence.device_tables.is_empty());
    assert!(evidence.artifacts[0].warnings[0].contains("have no header"), "{:?}", evidence.artifacts[0].warnings);
    // Rows of processes tell their columns themselves.
    let rows = "GPU-5a1b2c3d-0000-4000-8000-000000000003, 4321, python, 11500 MiB\n";
    let evidence = read_bytes("apps.csv", rows.as_bytes());
    assert_eq!(processes(&evidence.device_tables[0]), [(gpu(0), Some(4321), Some(11500))]);
    // Nothing says on which GPU these are.
    let rows = "pid, used_gpu_memory [MiB]\n4321, 11500 MiB\n";
    let evidence = read_bytes("apps.csv", rows.as_bytes());
    assert!(evidence.device_tables.is_empty());
    assert!(evidence.artifacts[0].warnings[0].contains("which GPU"), "{:?}", evidence.artifacts[0].warnings);
}

#[test]
fn units_may_be_missing_and_headers_may_repeat() {
    let text = "index, memory.used [MiB]\n0, 5\n1, 6\nindex, memory.used [MiB]\n0, 7\n1, 8\n";
    let evidence = read_bytes("gpu.csv", text.as_bytes());
    let all: Vec<_> = evidence.device_tables.iter().map(used).collect();
    assert_eq!(all, [[(gpu(0), Some(5)), (gpu(1), Some(6))], [(gpu(0), Some(7)), (gpu(1), Some(8))]]);
    // A row that was cut is no figure, whether between cells or inside one.
    for cut in ["index, memory.used [MiB]\n0, 512 MiB\n1", "index, memory.used [MiB]\n0, 512 MiB\n1, 49"] {
        let evidence = read_bytes("gpu.csv", cut.as_bytes());
        assert_eq!(used(&evidence.device_tables[0]), [(gpu(0), Some(512))], "{cut}");
    }
}

#[test]
fn a_report_knows_memory_from_bar1_and_slices_from_gpus() {
    let evidence = read("query-mig.txt");
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::NvidiaSmiQuery);
    assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new());
    let [table] = evidence.device_tables.as_slice() else { panic!("{:?}", evidence.device_tables) };
    assert_eq!(used(table), [(gpu(0), Some(3100)), (gpu(1), None), ("GPU 0 MIG 3/0".to_owned(), Some(3012))]);
    assert_eq!(table.devices[0].total, Some(Bytes::from_mib(40960)));
    assert_eq!(table.devices[0].mig_enabled, Some(true));
    assert_eq!(table.devices[0].ecc_enabled, Some(true));
    assert_eq!(table.devices[1].compute_mode.as_deref(), Some("Exclusive_Process"));
    assert_eq!(table.devices[1].bus_id.as_deref(), Some("00000000:1B:00.0"));
    assert_eq!(processes(table), [("GPU 0 MIG 3/0".to_owned(), Some(4321), Some(2990))]);
    assert_eq!(table.processes[0].name.as_deref(), Some("python: train"));
    assert_eq!(table.listing, ProcessListing::Listed);
    assert_eq!(table.driver_version.as_deref(), Some("550.54.15"));
    assert_eq!(table.time, Some(UnixMicros(SECOND * 1_000_000)));
}

#[test]
fn a_report_that_is_cut_says_where() {
    let whole = sample("query-mig.txt");
    let upto = |end: &str| {
        let at = whole.rfind(end).unwrap();
        read_bytes("q.txt", &whole.as_bytes()[..at]).artifacts[0].warnings.join("\n")
    };
    assert_eq!(
        upto("        Total"),
        "line 56: the report that begins at line 2 ends before the memory of its last GPU; upload the whole report"
    );
    assert_eq!(
        upto("    Processes"),
        "line 61: the report that begins at line 2 ends before the processes of its last GPU; upload the whole report"
    );
}

#[test]
fn a_report_that_lost_its_indentation_is_read_and_swallows_no_log() {
    let flat: String = sample("query-mig.txt").lines().map(|line| format!("{}\n", line.trim())).collect();
    let log = "INFO : starting\nEpoch 1 : loss 2.5\nrank=0 step=1 cur=1024.0MB\n";
    let evidence = read_bytes("job.log", format!("{flat}{log}").as_bytes());
    assert_eq!(used(&evidence.device_tables[0])[0], (gpu(0), Some(3100)));
    assert_eq!(evidence.steps.len(), 1);
}

#[test]
fn lines_that_only_look_alike_are_left_to_the_log() {
    for text in [
        "[0] model.bin | 12 / 345 MB | eta 3s\n",
        "GPU: 0\nMASTER_ADDR: node7\n",
        "# gpu count is 8\n",
        "step, memory.used\n3, 512\n",
        "{\"step\": 3, \"loss\": 2.5}\n",
        "GPU0 GPU1 ready\n",
        "metric{gpu=\"0\"} 5\n",
        "<stdout> loss < 3\n",
    ] {
        let evidence = read_bytes("job.log", text.as_bytes());
        let kind = evidence.artifacts[0].kind;
        assert!(matches!(kind, ArtifactKind::Text | ArtifactKind::JobLog), "{text} {kind:?}");
        assert!(evidence.device_tables.is_empty() && evidence.artifacts[0].devices.is_empty(), "{text}");
    }
}

#[test]
fn xml_says_the_same_as_text() {
    let evidence = read("query.xml");
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::NvidiaSmiQuery);
    let [table] = evidence.device_tables.as_slice() else { panic!("{:?}", evidence.device_tables) };
    assert_eq!(used(table), [(gpu(0), Some(21000))]);
    let row = &table.devices[0];
    assert_eq!((row.total, row.free), (Some(Bytes::from_mib(46068)), Some(Bytes::from_mib(24638))));
    assert_eq!((row.display_active, row.ecc_enabled, row.mig_enabled), (Some(true), Some(false), None));
    assert_eq!(processes(table), [(gpu(0), Some(4321), Some(20900))]);
    assert_eq!(table.processes[0].name.as_deref(), Some("python <a&b>"));
    assert_eq!(row.at.place, Place::Line(26));
    assert_eq!(table.listing, ProcessListing::Listed);
    // On one line it is the same.
    let one_line: String = sample("query.xml").lines().map(str::trim).collect();
    assert_eq!(used(&read_bytes("q.xml", one_line.as_bytes()).device_tables[0]), used(table));
    // A bomb of entities is not expanded.
    let bomb = format!("<!DOCTYPE nvidia_smi_log [<!ENTITY a \"{0}\"><!ENTITY b \"&a;&a;\">]>\n", "x".repeat(100));
    let text = sample("query.xml").replacen("<product_name>NVIDIA A40", &format!("{bomb}<product_name>&b;&b;A40"), 1);
    let evidence = read_bytes("q.xml", text.as_bytes());
    assert!(
        evidence.device_tables.iter().flat_map(|t| &t.devices).all(|r| r.name.as_ref().is_none_or(|n| n.len() < 9))
    );
}

#[test]
fn monitors_are_read_by_the_names_of_their_columns() {
    let evidence = read("dmon-fb.txt");
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::NvidiaSmiMonitor);
    let all: Vec<_> = evidence.device_tables.iter().map(used).collect();
    assert_eq!(all, [[(gpu(0), Some(21000)), (gpu(1), Some(12000))], [(gpu(0), Some(22000)), (gpu(1), None)]]);
    assert_eq!(evidence.device_tables[1].time, Some(UnixMicros((SECOND + 1) * 1_000_000)));

    let evidence = read("pmon-fb.txt");
    let [table] = evidence.device_tables.as_slice() else { panic!("{:?}", evidence.device_tables) };
    assert_eq!(
        processes(table),
        [(gpu(0), Some(4320), Some(20100)), (gpu(0), Some(4321), Some(480)), (gpu(1), Some(4321), Some(11500)),]
    );
    assert_eq!(table.devices.len(), 3);
    assert_eq!(table.listing, ProcessListing::Listed);

    // Without `fb` there is no memory, and the user is told what to add.
    let text = "# gpu    pwr  gtemp     sm\n# Idx      W      C      %\n    0     70     42      5\n";
    let evidence = read_bytes("dmon.txt", text.as_bytes());
    assert!(evidence.device_tables.is_empty());
    assert_eq!(evidence.artifacts[0].devices, [0]);
    assert!(evidence.artifacts[0].warnings[0].contains("-s m"));
}

#[test]
fn a_matrix_says_how_gpus_are_linked() {
    let check = |text: &str| {
        let evidence = read_bytes("topo.txt", text.as_bytes());
        assert_eq!(evidence.artifacts[0].kind, ArtifactKind::GpuTopology);
        let [topology] = evidence.topologies.as_slice() else { panic!("{:?}", evidence.topologies) };
        let links: Vec<_> = topology.links.iter().map(|l| (l.a, l.b, l.kind)).collect();
        assert_eq!(
            links,
            [
                (0, 1, LinkKind::NvLink(4)),
                (0, 2, LinkKind::Pxb),
                (0, 3, LinkKind::Sys),
                (1, 2, LinkKind::Node),
                (1, 3, LinkKind::Sys),
                (2, 3, LinkKind::Phb),
            ]
        );
        assert_eq!(topology.gpus[2].cpu_affinity.as_deref(), Some("32-63"));
        assert_eq!(topology.gpus[2].numa_affinity.as_deref(), Some("1"));
        assert_eq!(evidence.artifacts[0].devices, [0, 1, 2, 3]);
    };
    check(sample("topo.txt"));
    check(&sample("topo.txt").replace('\t', "    "));
}

#[test]
fn gpustat_is_read_as_text_and_json() {
    let evidence = read("gpustat.txt");
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::Gpustat);
    let [table] = evidence.device_tables.as_slice() else { panic!("{:?}", evidence.device_tables) };
    assert_eq!(used(table), [(gpu(0), Some(21000)), (gpu(1), Some(12000))]);
    assert_eq!(
        processes(table),
        [
            (gpu(0), Some(4320), Some(20100)),
            (gpu(0), Some(4321), Some(480)),
            (gpu(1), Some(4321), Some(11500)),
            (gpu(1), Some(99), None),
        ]
    );
    assert_eq!(table.time, Some(UnixMicros(SECOND * 1_000_000)));
    assert_eq!(table.driver_version.as_deref(), Some("550.54.15"));
    assert_eq!(table.devices[0].utilization_percent, Some(97));

    let evidence = read("gpustat.json");
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::Gpustat);
    let [table] = evidence.device_tables.as_slice() else { panic!("{:?}", evidence.device_tables) };
    assert_eq!(used(table), [(gpu(0), Some(21000))]);
    // Host memory of a process is none of the card's.
    assert_eq!(processes(table), [(gpu(0), Some(4320), Some(20100)), (gpu(0), Some(4321), None)]);
}

#[test]
fn the_screen_of_nvitop_is_read() {
    let evidence = read("nvitop.txt");
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::Nvitop);
    let [table] = evidence.device_tables.as_slice() else { panic!("{:?}", evidence.device_tables) };
    assert_eq!(used(table), [(gpu(0), Some(21000)), (gpu(1), Some(12000))]);
    assert_eq!(table.devices[0].total, Some(Bytes(45 * GIB)));
    assert_eq!(table.devices[1].name.as_deref(), Some("NVIDIA A40"));
    assert_eq!(processes(table), [(gpu(0), Some(4320), Some(20100)), (gpu(1), Some(4321), Some(11468))]);
    assert_eq!(table.processes[0].name.as_deref(), Some("python train.py"));
    assert_eq!(table.time, Some(UnixMicros(SECOND * 1_000_000)));
}

#[test]
fn the_cards_of_several_hosts_are_numbered_through() {
    let scrape = |host: &str, used: u32| {
        let card = |gpu: u32| {
            format!(
                "DCGM_FI_DEV_FB_USED{{gpu=\"{gpu}\",UUID=\"GPU-{host}{gpu}\",Hostname=\"{host}\"}} {}\n",
                used + gpu
            )
        };
        card(0) + &card(1)
    };
    let text = scrape("n1", 30_000) + &scrape("n2", 12_000) + &scrape("n1", 31_000) + &scrape("n2", 13_000);
    let evidence = read_bytes("metrics", text.as_bytes());
    let row = |n: u32, mib: u64| (gpu(n), Some(mib));
    let all: Vec<_> = evidence.device_tables.iter().map(used).collect();
    assert_eq!(all[0], [row(0, 30_000), row(1, 30_001), row(2, 12_000), row(3, 12_001)]);
    assert_eq!(all[1], [row(0, 31_000), row(1, 31_001), row(2, 13_000), row(3, 13_001)]);
    let warnings = &evidence.artifacts[0].warnings;
    let told = "the GPUs of 2 hosts are numbered through: GPU 0 to 1 on n1; GPU 2 to 3 on n2";
    assert!(warnings.iter().any(|w| w == told), "{warnings:?}");
}

#[test]
fn an_exporter_that_names_cards_by_uuid_tells_their_numbers_apart() {
    let uuid = |n: u32| format!("5a1b2c3d-0000-4000-8000-00000000000{n}");
    let index = |n: u32| format!("nvidia_smi_index{{uuid=\"{}\"}} {n}\n", uuid(n));
    let memory = |n: u32| format!("nvidia_smi_memory_used_bytes{{uuid=\"{}\"}} {}\n", uuid(n), u64::from(20 - n) * GIB);
    let text = index(1) + &index(0) + &memory(1) + &memory(0);
    let evidence = read_bytes("metrics", text.as_bytes());
    let mut found = used(&evidence.device_tables[0]);
    found.sort();
    assert_eq!(found, [(gpu(0), Some(20 << 10)), (gpu(1), Some(19 << 10))]);
    assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new());
}

#[test]
fn metrics_without_memory_say_what_is_missing() {
    let of = |name: &str| format!("{name}{{gpu=\"0\",UUID=\"GPU-a\",device=\"nvidia0\"}} 41\n");
    let told = |text: &str| {
        let warnings = read_bytes("metrics", text.as_bytes()).artifacts.remove(0).warnings;
        warnings.iter().any(|w| w.contains("none tells their memory; add DCGM_FI_DEV_FB_USED"))
    };
    let idle = of("DCGM_FI_DEV_SM_CLOCK") + &of("DCGM_FI_DEV_GPU_UTIL");
    assert!(told(&idle));
    assert!(!told(&(idle + &of("DCGM_FI_DEV_FB_USED"))));
}

#[test]
fn a_scrape_is_a_reading() {
    let evidence = read("dcgm.prom");
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::Prometheus);
    let all: Vec<_> = evidence.device_tables.iter().map(used).collect();
    assert_eq!(all, [vec![(gpu(0), Some(21000)), (gpu(1), Some(12000))], vec![(gpu(0), Some(22000))]]);
    let first = &evidence.device_tables[0];
    // 21000 + 24638 + 430
    assert_eq!(first.devices[0].total, Some(Bytes::from_mib(46068)));
    assert_eq!(first.devices[1].total, None);
    assert_eq!(first.time, Some(UnixMicros(SECOND * 1_000_000)));
    // In bytes, by UUID only.
    let text = "nvidia_smi_memory_used_bytes{uuid=\"5a1b2c3d-0000-4000-8000-000000000001\"} 1.2582912e+10\n";
    let evidence = read_bytes("metrics", text.as_bytes());
    assert_eq!(used(&evidence.device_tables[0]), [(gpu(0), Some(12000))]);
    assert!(evidence.artifacts[0].warnings[0].contains("without their index"));
}

#[test]
fn memory_of_amd_gpus_is_read() {
    let evidence = read("rocm-meminfo.txt");
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::RocmSmi);
    assert_eq!(used(&evidence.device_tables[0]), [(gpu(0), Some(21000)), (gpu(1), Some(12000))]);
    let evidence = read("amd-smi.json");
    assert_eq!(used(&evidence.device_tables[0]), [(gpu(0), Some(21000)), (gpu(1), None)]);
    assert_eq!(evidence.device_tables[0].devices[1].total, Some(Bytes::from_mib(196_592)));
    let evidence = read_bytes("amd-smi.txt", include_bytes!("data/device_tools/amd-smi.txt"));
    let table = &evidence.device_tables[0];
    assert_eq!(used(table), [(gpu(0), Some(21000)), (gpu(1), Some(12000))]);
    assert_eq!(processes(table), [(gpu(0), Some(12345), Some(20480))]);
    let text = "device,VRAM Total Memory (B),VRAM Total Used Memory (B)\ncard0,68702699520,22020096000\n";
    assert_eq!(used(&read_bytes("r.csv", text.as_bytes()).device_tables[0]), [(gpu(0), Some(21000))]);
    let text = "GPU: 0\n    MEM_USAGE:\n        TOTAL_VRAM: 196592 MB\n        USED_VRAM: 21000 MB\n";
    assert_eq!(used(&read_bytes("a.txt", text.as_bytes()).device_tables[0]), [(gpu(0), Some(21000))]);
    let watched = read_bytes("a.txt", text.repeat(3).as_bytes());
    assert_eq!(watched.device_tables.len(), 3);
}

#[test]
fn one_log_yields_what_every_family_in_it_says() {
    let mut text = String::new();
    for (at, (_, sample)) in SAMPLES.iter().enumerate() {
        text += &format!("+ echo dump {at}\nrank={at} step=1 cur=1024.0MB peak=2048.0MB\n{sample}\n");
    }
    text += "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 31.75 GiB total capacity; 29.93 GiB \
             already allocated; 37.44 MiB free; 30.03 GiB reserved in total by PyTorch)\n";
    let expected: usize = SAMPLES.iter().map(|(name, _)| read(name).device_tables.len()).sum();
    let plain = read_bytes("job.log", text.as_bytes());
    assert_eq!(plain.device_tables.len(), expected);
    assert_eq!((plain.topologies.len(), plain.steps.len(), plain.ooms.len()), (1, SAMPLES.len(), 1));
    // Line ends of Windows, a launcher's prefix and colours change no figure.
    let dressed: String = text.lines().map(|l| format!("[rank3]: \x1b[32m{l}\x1b[0m\r\n")).collect();
    let dressed = read_bytes("job.log", dressed.as_bytes());
    let figures =
        |evidence: &Evidence| -> Vec<_> { evidence.device_tables.iter().map(|t| (used(t), processes(t))).collect() };
    assert_eq!(figures(&dressed), figures(&plain));
}

#[test]
fn rows_between_the_lines_of_a_log_are_one_series() {
    let mut text = String::from("timestamp, index, memory.used [MiB], memory.total [MiB]\n");
    for second in 0..50 {
        text += &format!("2024/05/06 07:08:{second:02}.000, 0, {} MiB, 46068 MiB\n", 1000 + second);
        text += &"Epoch 1, loss 2.5, 512 tokens\n".repeat(second % 7);
        text += &format!("2024/05/06 07:08:{second:02}.002, 1, 900 MiB, 46068 MiB\n");
    }
    let evidence = read_bytes("job.log", text.as_bytes());
    assert_eq!(evidence.device_tables.len(), 50);
    assert!(evidence.device_tables.iter().all(|t| t.devices.len() == 2));
}

#[test]
fn a_long_loop_is_thinned_and_keeps_its_peaks() {
    let limits = Limits { max_device_rows: 600, ..Limits::default() };
    let mut text = String::from("timestamp, index, memory.used [MiB]\n");
    for round in 0..5000u64 {
        for index in 0..2 {
            let peak =
                if (round, index) == (777, 0) || (round, index) == (4001, 1) { 30_000 } else { 1000 + round % 50 };
            let (minute, second) = (round / 60 % 60, round % 60);
            text += &format!("2024/05/06 0{}:{minute:02}:{second:02}.000, {index}, {peak} MiB\n", round / 3600);
        }
    }
    let evidence = read_upload("gpu.csv", &mut Cursor::new(&text), &limits);
    let rows: usize = evidence.device_tables.iter().map(|t| 1 + t.devices.len()).sum();
    assert!(rows <= 600 + 6 && rows > 200, "{rows}");
    assert!(evidence.device_tables.is_sorted_by_key(|t| t.time));
    for index in 0..2u32 {
        let of = |t: &DeviceTable| t.devices.iter().find(|r| r.subject == Subject::Device(index)).and_then(|r| r.used);
        let top = evidence.device_tables.iter().filter_map(of).max();
        assert_eq!(top, Some(Bytes::from_mib(30_000)), "GPU {index}");
    }
    assert!(evidence.artifacts[0].warnings.iter().any(|w| w.contains("left out of a long loop")));
}

/// `file kind GPUs readings MiB processes`, made from the files with regular expressions and an XML library.
struct Expected<'a> {
    file: &'a str,
    kind: &'a str,
    devices: Vec<u32>,
    tables: usize,
    used_mib: Option<u64>,
    processes: usize,
}

fn expected() -> Vec<Expected<'static>> {
    let lines = include_str!("data/device-tools.expected").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let [file, kind, devices, tables, used, processes] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            Expected {
                file,
                kind,
                devices: devices.split(',').filter_map(|d| d.parse().ok()).collect(),
                tables: tables.parse().unwrap(),
                used_mib: used.parse().ok(),
                processes: processes.parse().unwrap(),
            }
        })
        .collect()
}

#[test]
fn every_real_file_is_recognised_with_its_figure() {
    let Some(folder) = shared("data") else { return };
    let expected = expected();
    let mut wrong = Vec::new();
    for row in &expected {
        let bytes = std::fs::read(folder.join(row.file)).unwrap();
        let evidence = read_bytes(row.file.rsplit('/').next().unwrap(), &bytes);
        let kind = serde_json::to_value(evidence.artifacts[0].kind).unwrap();
        let first = evidence.device_tables.first();
        let used: Vec<u64> = first
            .iter()
            .flat_map(|t| &t.devices)
            .filter(|r| matches!(r.subject, Subject::Device(_)))
            .filter_map(|r| r.used)
            .map(|b| b.0)
            .collect();
        let used_mib = (!used.is_empty()).then(|| used.iter().sum::<u64>() / MIB);
        let got = (
            kind.as_str().unwrap(),
            evidence.artifacts[0].devices.clone(),
            evidence.device_tables.len(),
            used_mib,
            first.map_or(0, |t| t.processes.len()),
        );
        let want = (row.kind, row.devices.clone(), row.tables, row.used_mib, row.processes);
        if got != want {
            wrong.push(format!("{}: {got:?}, not {want:?} {:?}", row.file, evidence.artifacts[0].warnings));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), expected.len(), wrong.join("\n"));
    // The list is of every file of these families.
    let listed: BTreeSet<&str> = expected.iter().map(|row| row.file).collect();
    for family in ["nvidia_smi", "nvidia_smi_xml", "dcgm", "amd"] {
        for path in files(&folder.join(family), &|name| !name.contains("table") && !name.contains("smi.txt")) {
            let name = format!("{family}/{}", path.file_name().unwrap().to_string_lossy());
            let is_plain = name.contains("gpud_nvidia-smi.") || name.contains("/issue_");
            assert!(is_plain || listed.contains(name.as_str()), "{name}");
        }
    }
    println!("{} files", expected.len());
}

#[test]
fn figures_of_real_reports_add_up() {
    let Some(folder) = shared("data") else { return };
    let mut rows = 0;
    for row in expected() {
        let evidence = read_bytes("file", &std::fs::read(folder.join(row.file)).unwrap());
        for device in evidence.device_tables.iter().flat_map(|t| &t.devices) {
            assert!(device.used <= device.total || device.total.is_none(), "{}: {device:?}", row.file);
            if let (Some(used), Some(free), Some(total), Some(reserved)) =
                (device.used, device.free, device.total, device.reserved)
            {
                rows += 1;
                let sum = used.saturating_add(free).saturating_add(reserved);
                assert!(sum.0.abs_diff(total.0) <= 2 * MIB, "{}: {device:?}", row.file);
            }
        }
    }
    assert!(rows >= 60, "{rows}");
}

#[test]
fn every_csv_of_the_cases_is_recognised() {
    let Some(folder) = shared("cases") else { return };
    let found = files(&folder, &|name| name.ends_with(".csv"));
    assert!(found.len() >= 35, "{}", found.len());
    for path in &found {
        let bytes = std::fs::read(path).unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        let evidence = read_bytes("gpu.csv", &bytes);
        let shown = path.display();
        assert_eq!(evidence.artifacts[0].kind, ArtifactKind::NvidiaSmiCsv, "{shown}");
        assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new(), "{shown}");
        let rows: usize = evidence.device_tables.iter().map(|t| t.devices.len()).sum();
        assert_eq!(rows, text.lines().count() - 1, "{shown}");
        // Every reading has every GPU once.
        let gpus = evidence.artifacts[0].devices.len();
        assert!(evidence.device_tables.iter().all(|t| t.devices.len() == gpus), "{shown}");
        // The sum of a column, taken from the text.
        let Some(column) = text.lines().next().unwrap().split(", ").position(|c| c.starts_with("memory.used")) else {
            continue;
        };
        let cells = text.lines().skip(1).map(|l| l.split(", ").nth(column).unwrap().trim_end_matches(" MiB"));
        let sum: u64 = cells.map(|c| c.parse::<u64>().unwrap()).sum();
        let got: u64 = evidence.device_tables.iter().flat_map(|t| &t.devices).filter_map(|r| r.used).map(|b| b.0).sum();
        assert_eq!(got, sum * MIB, "{shown}");
    }
}

/// Every size that stands in the text, with its unit or without.
fn sizes_in(text: &str) -> BTreeSet<u64> {
    let mut sizes = BTreeSet::new();
    for number in text.split(|c: char| !c.is_ascii_digit() && c != '.') {
        if let Ok(value) = number.parse::<f64>() {
            for unit in [1, 1 << 10, MIB, GIB] {
                sizes.extend(Bytes::from_float(value, unit).map(|b| b.0));
            }
        }
    }
    sizes
}

/// Holds for any text: no figure that does not stand in it, and the evidence survives its own format.
fn check(text: &str) -> Evidence {
    let evidence = read_bytes("upload.txt", text.as_bytes());
    let sizes = sizes_in(text);
    for table in &evidence.device_tables {
        for row in &table.devices {
            for size in [row.used, row.free, row.reserved].into_iter().flatten() {
                assert!(sizes.contains(&size.0), "{row:?}");
            }
        }
        for size in table.processes.iter().filter_map(|row| row.used) {
            assert!(sizes.contains(&size.0), "{size}");
        }
    }
    let json = serde_json::to_string(&evidence).unwrap();
    assert_eq!(serde_json::from_str::<Evidence>(&json).unwrap(), evidence);
    evidence
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cut_anywhere_no_figure_is_invented(at in 0..SAMPLES.len(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
        let bytes = SAMPLES[at].1.as_bytes();
        let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
        check(&String::from_utf8_lossy(&bytes[from.min(to)..from.max(to)]));
    }

    #[test]
    fn cut_at_the_end_every_figure_is_of_the_whole(at in 0..SAMPLES.len(), to in any::<prop::sample::Index>()) {
        let (name, text) = SAMPLES[at];
        // Bare numbers at the very end cannot be told from cut ones; these samples have units or closing signs.
        prop_assume!(!["query-both.txt", "dcgm.prom", "pmon-fb.txt", "dmon-fb.txt", "rocm-meminfo.txt"].contains(&name));
        let to = to.index(text.len());
        prop_assume!(text.is_char_boundary(to));
        let whole: BTreeSet<_> = figures(&read(name));
        // The first row of a CSV may be cut inside its only size.
        let min = text.match_indices('\n').nth(1).map_or(0, |(at, _)| at);
        prop_assume!(to >= min);
        for figure in figures(&read_bytes(name, &text.as_bytes()[..to])) {
            prop_assert!(whole.contains(&figure), "{figure:?}");
        }
    }

    #[test]
    fn shuffled_lines(seed in any::<u64>(), first in 0..SAMPLES.len(), second in 0..SAMPLES.len()) {
        let mut lines: Vec<&str> = SAMPLES[first].1.lines().chain(SAMPLES[second].1.lines()).collect();
        let mut state = seed | 1;
        for at in (1..lines.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            lines.swap(at, usize::try_from(state >> 33).unwrap() % (at + 1));
        }
        check(&lines.join("\n"));
    }

    #[test]
    fn changed_bytes(at in 0..SAMPLES.len(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40)) {
        let mut bytes = SAMPLES[at].1.as_bytes().to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let evidence = read_bytes("upload.txt", &bytes);
        prop_assert!(!evidence.artifacts.is_empty());
    }

    #[test]
    fn random_bytes_after_a_head(at in 0..SAMPLES.len(), junk in prop::collection::vec(any::<u8>(), 0..600)) {
        let head: String = SAMPLES[at].1.lines().take(3).map(|l| format!("{l}\n")).collect();
        let evidence = read_bytes("upload.txt", &[head.as_bytes(), &junk].concat());
        prop_assert!(!evidence.artifacts.is_empty());
    }
}

/// GPU or PID with its bytes.
fn figures(evidence: &Evidence) -> BTreeSet<(String, u64)> {
    let devices = evidence.device_tables.iter().flat_map(|t| &t.devices);
    let processes = evidence.device_tables.iter().flat_map(|t| &t.processes);
    let devices = devices.filter_map(|row| Some((row.subject.to_string(), row.used?.0)));
    devices.chain(processes.filter_map(|row| Some((format!("{:?}", row.pid), row.used?.0)))).collect()
}

/// Twice the input must not take much more than twice the time.
#[test]
fn time_is_linear() {
    use std::time::{Duration, Instant};
    let hard: [&dyn Fn(usize) -> Vec<u8>; 8] = [
        &|n| [b"index, memory.used [MiB]\n".to_vec(), b"0, 5 MiB\n".repeat(n / 9)].concat(),
        &|n| {
            let rows = (0..n / 30).flat_map(|i| format!("GPU-{i:08x}, {i}, python, 5 MiB\n").into_bytes());
            b"gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n".iter().copied().chain(rows).collect()
        },
        &|n| {
            [
                b"index, memory.used [MiB]\n".to_vec(),
                (0..n / 12).flat_map(|i| format!("{}, 5 MiB\n", i % 90_000).into_bytes()).collect(),
            ]
            .concat()
        },
        &|n| [b"<nvidia_smi_log>\n".to_vec(), b"<gpu id=\"00000000:1A:00.0\"><a>\n".repeat(n / 31)].concat(),
        &|n| b"{\n\"a\": [\n".repeat(n / 10),
        &|n| b"DCGM_FI_DEV_FB_USED{gpu=\"0\"} 5\n".repeat(n / 31),
        &|n| b"GPU 00000000:1A:00.0\n    FB Memory Usage\n".repeat(n / 41),
        &|n| {
            [
                b"# gpu pid type fb command\n".to_vec(),
                (0..n / 16).flat_map(|i| format!("0 {i} C 5 python\n").into_bytes()).collect(),
            ]
            .concat()
        },
    ];
    for (index, make) in hard.iter().enumerate() {
        let time = |bytes: &[u8]| {
            let started = Instant::now();
            read_bytes("log", bytes);
            started.elapsed()
        };
        let (small, large) = (make(60_000), make(480_000));
        time(&small);
        let (small, large) = (time(&small), time(&large));
        assert!(large < small * 24 + Duration::from_millis(300), "input {index}: {small:?} then {large:?}");
    }
}

#[test]
fn samples_without_a_host_are_those_of_the_only_host() {
    let text = "DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"GPU-aaaaaaaa\",Hostname=\"host1\"} 1024\n\
                DCGM_FI_DEV_FB_FREE{gpu=\"0\",UUID=\"GPU-aaaaaaaa\"} 2048\n";
    let evidence = check(text);
    assert_eq!(evidence.device_tables.len(), 1);
    let row = &evidence.device_tables[0].devices[0];
    assert_eq!((row.used, row.free), (Some(Bytes::from_mib(1024)), Some(Bytes::from_mib(2048))));
    assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new());
}

#[test]
fn samples_that_are_no_size_are_told() {
    let text = "DCGM_FI_DEV_FB_USED{gpu=\"0\"} NaN\nDCGM_FI_DEV_FB_USED{gpu=\"1\"} 30000\nDCGM_FI_DEV_FB_USED{gpu=\"2\"} \
                -1\nDCGM_FI_DEV_FB_USED{gpu=\"3\"} 1e300\n";
    let warnings = &check(text).artifacts[0].warnings;
    assert!(
        warnings.iter().any(|warning| warning.starts_with("line 1: 3 samples of memory are no size")),
        "{warnings:?}"
    );
}
