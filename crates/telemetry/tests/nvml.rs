//! Readings through the real loader, from a stand-in for the driver's library.

// Helpers beside the test functions do not count as tests for this lint.
#![allow(clippy::unwrap_used)]

mod support;

use rankscope_model::{Bytes, MIB, Place, ProcessListing, Rank, Subject};
use rankscope_telemetry::{NvmlState, ProcFs, Reading};
use std::fmt::Write as _;
use std::path::Path;
use support::Stub;

/// Eight ranks, each of which also holds a context on GPU 0.
fn eight_gpus() -> String {
    let mut scenario = String::from("driver version=550.54.15 cuda=12040\n");
    for gpu in 0..8 {
        let used = if gpu == 0 { 30_000 + 7 * 450 } else { 30_000 };
        let busy = 90 + gpu;
        writeln!(scenario, "gpu name=NVIDIA_A100-SXM4-80GB total=81920 reserved=600 used={used} busy={busy}").unwrap();
        writeln!(scenario, "process gpu={gpu} pid={} used=30000", 100 + gpu).unwrap();
        if gpu > 0 {
            writeln!(scenario, "process gpu=0 pid={} used=450", 100 + gpu).unwrap();
        }
    }
    scenario
}

fn read(scenario: &str) -> Reading {
    let nobody = tempfile::tempdir().unwrap();
    Stub::new(scenario).ready().read_once(&ProcFs::at(nobody.path()))
}

/// A `/proc` with these processes and environments.
fn proc_with(processes: &[(u32, u32, &str)]) -> (tempfile::TempDir, ProcFs) {
    let root = tempfile::tempdir().unwrap();
    for (pid, parent, environment) in processes {
        let folder = root.path().join(pid.to_string());
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("environ"), environment.replace(' ', "\0")).unwrap();
        std::fs::write(folder.join("status"), format!("PPid:\t{parent}\n")).unwrap();
        std::os::unix::fs::symlink("/usr/bin/python3", folder.join("exe")).unwrap();
    }
    let proc = ProcFs::at(root.path());
    (root, proc)
}

#[test]
fn eight_gpus_are_read_with_their_processes() {
    let reading = read(&eight_gpus());
    assert_eq!(reading.warnings, [] as [String; 0]);
    let table = &reading.table;
    assert_eq!((table.driver_version.as_deref(), table.cuda_version.as_deref()), (Some("550.54.15"), Some("12.4")));
    assert_eq!(table.devices.len(), 8);
    assert_eq!(table.processes.len(), 15);
    assert_eq!(table.listing, ProcessListing::Listed);

    let first = &table.devices[0];
    assert_eq!(first.subject, Subject::Device(0));
    assert_eq!(first.name.as_deref(), Some("NVIDIA A100-SXM4-80GB"));
    assert_eq!(first.uuid.as_deref(), Some("GPU-00000000-0000-4000-8000-000000000000"));
    assert_eq!(first.bus_id.as_deref(), Some("00000000:01:00.0"));
    assert_eq!((first.used, first.total), (Some(Bytes(33_150 * MIB)), Some(Bytes(81_920 * MIB))));
    assert_eq!((first.utilization_percent, first.display_active, first.mig_enabled), (Some(90), Some(false), None));

    let on_first: Vec<_> = table.processes.iter().filter(|row| row.subject == Subject::Device(0)).collect();
    assert_eq!(on_first.len(), 8);
    assert_eq!(on_first[1].pid, Some(101));
    assert_eq!(on_first[1].used, Some(Bytes(450 * MIB)));
    assert_eq!((on_first[1].kind.as_deref(), on_first[1].name.as_deref()), (Some("C"), Some("/usr/bin/python3")));
}

#[test]
fn every_row_can_be_looked_up_in_the_text() {
    let reading = read(&eight_gpus());
    let lines: Vec<_> = reading.text.lines().collect();
    let places =
        reading.table.devices.iter().map(|row| &row.at).chain(reading.table.processes.iter().map(|row| &row.at));
    for at in places {
        let Place::Line(line) = at.place else { panic!("{at:?}") };
        assert_eq!(lines[usize::try_from(line).unwrap() - 1], at.quote);
    }
    assert!(lines[1].starts_with("GPU 0, NVIDIA A100-SXM4-80GB, GPU-0"), "{}", lines[1]);
    assert!(lines[1].ends_with("used 33150 MiB of 81920 MiB, busy 90 %"), "{}", lines[1]);

    let evidence = reading.evidence("gpu-node-1 (NVML)");
    assert_eq!(evidence.artifacts[0].devices, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(evidence.artifacts[0].bytes, reading.text.len() as u64);
    assert_eq!(evidence.device_tables.len(), 1);
}

#[test]
fn without_the_second_memory_call_all_devices_use_the_first() {
    let scenario = "gpu total=1000 reserved=100 used=400\ngpu total=1000 reserved=100 used=300\n";
    let nobody = ProcFs::at("/nonexistent");
    let used = |reading: &Reading| -> Vec<_> {
        reading.table.devices.iter().map(|row| row.used.map(|used| used.0 / MIB)).collect()
    };

    let newer = Stub::new(scenario).ready().read_once(&nobody);
    assert_eq!(used(&newer), [Some(400), Some(300)]);
    assert!(newer.table.at.quote.contains("without the driver's reserve"));

    let refused = Stub::new(&format!("memory v2=3\n{scenario}")).ready().read_once(&nobody);
    assert_eq!(used(&refused), [Some(500), Some(400)]);
    assert!(refused.table.at.quote.contains("with the driver's reserve"));

    let old_driver = Stub::without_symbol(scenario, Some("nvmlDeviceGetMemoryInfo_v2")).ready().read_once(&nobody);
    assert_eq!(used(&old_driver), [Some(500), Some(400)]);
    assert_eq!(old_driver.warnings, [] as [String; 0]);
}

#[test]
fn a_list_that_grows_while_it_is_read_is_read_again() {
    // There is room for 64 at first, and later for five more than were counted.
    let reading = read("gpu total=1000\nprocess gpu=0 pid=1 used=10\ngrow by=80 times=2\n");
    assert_eq!(reading.table.processes.len(), 161);
    assert_eq!(reading.table.listing, ProcessListing::Listed);

    let restless = read("gpu total=1000\nprocess gpu=0 pid=1 used=10\ngrow by=80 times=50\n");
    assert_eq!(restless.table.listing, ProcessListing::Missing);
    assert_eq!(
        restless.warnings,
        ["The processes of GPU 0 cannot be listed: the list kept growing while it was read."]
    );
}

#[test]
fn memory_that_the_driver_does_not_tell_is_missing_and_not_zero() {
    let reading = read("gpu total=1000 used=700\nprocess gpu=0 pid=7\nprocess gpu=0 pid=8 used=0\n");
    let used: Vec<_> = reading.table.processes.iter().map(|row| row.used).collect();
    assert_eq!(used, [None, Some(Bytes(0))]);
    assert_eq!(reading.table.listing, ProcessListing::Partial);
    assert!(reading.text.contains("process 7 on GPU 0, C, /usr/bin/python3, memory not told"), "{}", reading.text);
}

#[test]
fn no_process_is_not_the_same_as_no_list() {
    assert_eq!(read("gpu total=1000 used=700\n").table.listing, ProcessListing::NoneFound);
    let nobody = ProcFs::at("/nonexistent");
    let without = Stub::without_symbol("gpu total=1000\n", Some("nvmlDeviceGetComputeRunningProcesses_v3"))
        .ready()
        .read_once(&nobody);
    assert_eq!(without.table.listing, ProcessListing::Missing);
    assert_eq!(
        without.warnings,
        ["The processes of GPU 0 cannot be listed: this driver does not have the call; a newer one does."]
    );
}

#[test]
fn graphics_and_displays_are_seen() {
    let reading = read(
        "gpu total=1000 display=1\nprocess gpu=0 pid=7 used=5 list=graphics\n\
         process gpu=0 pid=8 used=5\nprocess gpu=0 pid=8 list=graphics used=5\nprocess gpu=0 pid=9 used=5 list=mps\n",
    );
    let kinds: Vec<_> = reading.table.processes.iter().filter_map(|row| row.kind.as_deref()).collect();
    assert_eq!(kinds, ["G", "C+G", "M+C"]);
    assert_eq!(reading.table.devices[0].display_active, Some(true));
}

#[test]
fn mig_slices_are_devices_with_processes_of_their_own() {
    let reading = read(
        "gpu total=40960 used=9000 mig=1\ngpu total=40960 used=1000 mig=0\n\
         slice gpu=0 gi=1 ci=0 total=19968 used=6000\nslice gpu=0 gi=2 ci=0 total=19968 used=3000\n\
         process gpu=0 gi=1 ci=0 pid=70 used=5900\nprocess gpu=0 gi=2 ci=0 pid=71 used=2900\nprocess gpu=1 pid=72 used=900\n",
    );
    assert_eq!(reading.warnings, [] as [String; 0]);
    let slice = |gpu_instance| Subject::MigSlice { device: 0, gpu_instance, compute_instance: 0 };
    let devices: Vec<_> = reading.table.devices.iter().map(|row| (row.subject, row.mig_enabled)).collect();
    assert_eq!(
        devices,
        [(Subject::Device(0), Some(true)), (Subject::Device(1), Some(false)), (slice(1), None), (slice(2), None)]
    );
    let row = &reading.table.devices[2];
    assert_eq!((row.used, row.total), (Some(Bytes(6000 * MIB)), Some(Bytes(19_968 * MIB))));
    assert!(row.uuid.as_deref().is_some_and(|uuid| uuid.starts_with("MIG-")));
    // Listed by the parent as well as by the slice, counted once.
    let processes: Vec<_> = reading.table.processes.iter().map(|row| (row.pid, row.subject)).collect();
    assert_eq!(processes, [(Some(72), Subject::Device(1)), (Some(70), slice(1)), (Some(71), slice(2))]);
}

#[test]
fn a_lost_gpu_keeps_its_row_and_does_not_change_the_others() {
    let reading =
        read("gpu total=1000 reserved=100 used=400\ngpu total=1000 code=15\ngpu total=1000 reserved=100 used=300\n");
    let used: Vec<_> = reading.table.devices.iter().map(|row| row.used.map(|used| used.0 / MIB)).collect();
    assert_eq!(used, [Some(400), None, Some(300)]);
    assert_eq!(reading.warnings, ["GPU 1 cannot be read: the GPU has fallen off the bus; restart the node."]);
}

#[test]
fn ranks_come_from_the_environment() {
    let (_root, proc) = proc_with(&[
        (100, 1, "RANK=0 WORLD_SIZE=2"),
        (101, 1, "RANK=1 WORLD_SIZE=2"),
        (102, 101, "RANK=1 WORLD_SIZE=2"),
        (103, 1, "HOME=/root"),
    ]);
    let scenario = "gpu total=1000\ngpu total=1000\nprocess gpu=0 pid=100 used=5\nprocess gpu=0 pid=101 used=1\n\
                    process gpu=1 pid=101 used=5\nprocess gpu=1 pid=102 used=1\nprocess gpu=1 pid=103 used=1\n\
                    process gpu=1 pid=104 used=1\n";
    let reading = Stub::new(scenario).ready().read_once(&proc);
    let ranks: Vec<_> = reading.table.processes.iter().map(|row| (row.pid.unwrap(), row.rank)).collect();
    let rank = |number| Some(Rank(number));
    assert_eq!(ranks, [(100, rank(0)), (101, rank(1)), (101, rank(1)), (102, None), (103, None), (104, None)]);
    assert!(reading.text.contains("process 102 on GPU 1, C, /usr/bin/python3, 1 MiB, helper of process 101 (rank 1)"));
    assert!(reading.text.contains("process 104 on GPU 1, C, /usr/bin/python3, 1 MiB, not in this PID namespace"));
    assert_eq!(reading.evidence("x").artifacts[0].ranks, [0, 1]);
}

#[test]
fn a_rank_that_several_processes_claim_is_left_open() {
    // One Slurm task per node that starts its workers by itself: they all inherit the task's number.
    let (_root, proc) =
        proc_with(&[(100, 1, "SLURM_PROCID=0"), (101, 1, "SLURM_PROCID=0"), (102, 1, "SLURM_PROCID=1")]);
    let scenario =
        "gpu total=1000\nprocess gpu=0 pid=100 used=5\nprocess gpu=0 pid=101 used=5\nprocess gpu=0 pid=102 used=5\n";
    let reading = Stub::new(scenario).ready().read_once(&proc);
    let ranks: Vec<_> = reading.table.processes.iter().map(|row| row.rank).collect();
    assert_eq!(ranks, [None, None, Some(Rank(1))]);
    assert_eq!(
        reading.warnings,
        ["Processes 100, 101 all say that they are rank 0 (two jobs, or one task that starts several workers); their \
          ranks are left open."]
    );
}

#[test]
fn a_machine_without_a_usable_driver_is_a_state_with_a_sentence() {
    let sentence = |state: &NvmlState| state.to_string();
    let absent = NvmlState::open(Some(Path::new("/nonexistent/libnvidia-ml.so.1")));
    assert!(matches!(absent, NvmlState::NoLibrary(_)));
    assert_eq!(sentence(&absent), "NVML: no NVIDIA driver library (/nonexistent/libnvidia-ml.so.1) on this machine");

    let not_loaded = Stub::new("init code=9\n").open();
    assert!(matches!(not_loaded, NvmlState::DriverNotLoaded));
    assert_eq!(sentence(&not_loaded), "NVML: the NVIDIA driver is installed but not loaded");

    assert!(matches!(Stub::new("init code=4\n").open(), NvmlState::NoPermission));
    assert!(matches!(Stub::new("init code=18\n").open(), NvmlState::VersionMismatch));
    assert_eq!(sentence(&Stub::new("init code=999\n").open()), "NVML: cannot be used (the driver gave no reason)");
    assert_eq!(
        sentence(&Stub::new("init code=77\n").open()),
        "NVML: cannot be used (the driver answered with code 77, which is not known here)"
    );

    let no_library_at_all = Stub::new("");
    std::fs::write(no_library_at_all.library(), "not a library").unwrap();
    assert!(matches!(no_library_at_all.open(), NvmlState::Failed(_)));
    assert!(matches!(Stub::without_symbol("", Some("nvmlInit_v2")).open(), NvmlState::Failed(_)));
    // Closing such a library would panic.
    assert!(matches!(Stub::without_symbol("", Some("nvmlShutdown")).open(), NvmlState::Failed(_)));
}

#[test]
fn a_ready_library_says_what_it_found() {
    assert_eq!(Stub::new(&eight_gpus()).open().to_string(), "NVML: 8 GPUs, driver 550.54.15");
    assert_eq!(Stub::new("gpu total=1\n").open().to_string(), "NVML: 1 GPU, driver 550.54.15");
    let empty = read("");
    assert_eq!((empty.table.devices.len(), empty.table.listing), (0, ProcessListing::Missing));
}
