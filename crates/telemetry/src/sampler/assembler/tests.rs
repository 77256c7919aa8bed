use super::*;
use crate::job::JobKey;
use crate::rank::ProcFs;
use crate::sampler::Hz;
use std::time::Duration;

const GPU: fn(u32) -> Subject = Subject::Device;

fn assembler() -> Assembler {
    Assembler::new(&SamplerConfig {
        library: None,
        proc: ProcFs::at("/nonexistent"),
        node: "gpu7".into(),
        hz: Hz::default(),
        agent: Some("1.0".into()),
    })
}

fn device(subject: Subject) -> LiveDevice {
    LiveDevice {
        subject,
        uuid: Some(format!("{subject}")),
        bus_id: None,
        name: None,
        total: Some(Bytes(100)),
        reserved: None,
        display_active: None,
        mig_enabled: None,
        compute_mode: None,
        ecc_enabled: None,
    }
}

fn two_gpus() -> Assembler {
    let mut assembler = assembler();
    assembler.driver_ready(UnixMicros(0));
    assembler.node(UnixMicros(0), vec![device(GPU(0)), device(GPU(1))], Some("550".into()), None, Vec::new());
    assembler.take();
    assembler
}

fn states(lines: &[Timed]) -> Vec<(Option<Subject>, LiveStateKind)> {
    lines
        .iter()
        .filter_map(|line| match &line.record {
            LiveRecord::State(state) => Some((state.subject, state.state)),
            _ => None,
        })
        .collect()
}

fn known(identity: ProcessIdentity) -> Known {
    Known { started: Some(9), pid_inside: None, name: Some("python3".into()), identity }
}

fn ranked(rank: u32, job: Option<JobKey>, helper_of: Option<u32>) -> ProcessIdentity {
    ProcessIdentity::Ranked(RankIdentity {
        rank: Rank(rank),
        variable: "RANK",
        local_rank: Some(rank),
        world_size: Some(8),
        job,
        visible_devices: None,
        helper_of,
    })
}

fn row(gpu: u32, pid: u32, identity: ProcessIdentity) -> (Subject, Listed, Known) {
    (GPU(gpu), Listed { pid, kind: "C", used: Some(Bytes(5)), slice: None }, known(identity))
}

fn ranks(lines: &[Timed]) -> Vec<Option<u32>> {
    let LiveRecord::Processes(processes) =
        &lines.iter().find(|line| matches!(line.record, LiveRecord::Processes(_))).unwrap().record
    else {
        unreachable!()
    };
    processes.processes.iter().map(|process| process.rank.as_ref().map(|rank| rank.rank.0)).collect()
}

const WHOLE: Listing = Listing { answered: true, lacking: false };

#[test]
fn samples_become_columns_with_the_time_of_the_first() {
    let mut assembler = two_gpus();
    let start = Instant::now();
    for tick in 0..10_u64 {
        // The wall clock jumps back in between; the distances do not.
        let t = UnixMicros(if tick < 5 { 1_000_000 } else { 400_000 });
        let lost = Err(Refusal::Other("odd".into()));
        let second = if tick == 3 { lost } else { Ok(Bytes(20 + tick)) };
        assembler.memory(t, start + Duration::from_millis(100 * tick), &[Ok(Bytes(10 + tick)), second]);
    }
    let lines = assembler.take();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0].t, UnixMicros(1_000_000));
    let LiveRecord::Memory(memory) = &lines[0].record else { panic!("{lines:?}") };
    assert_eq!(memory.dt_us, (0..10).map(|tick| tick * 100_000).collect::<Vec<_>>());
    assert_eq!(memory.devices[1].used[2..5], [Some(Bytes(22)), None, Some(Bytes(24))]);
    assert_eq!(memory.figures(), 20);
    assert!(assembler.take().is_empty());
}

#[test]
fn a_device_that_is_lost_and_comes_back_is_said_once_each() {
    let mut assembler = two_gpus();
    let start = Instant::now();
    let lost = || Err(Refusal::Lost("the GPU has fallen off the bus".into()));
    for _ in 0..5 {
        assembler.memory(UnixMicros(1), start, &[Ok(Bytes(1)), lost()]);
    }
    assert!(assembler.any_lost());
    assert_eq!(states(&assembler.take()), [(Some(GPU(1)), LiveStateKind::Lost)]);
    for _ in 0..5 {
        assembler.memory(UnixMicros(2), start, &[Ok(Bytes(1)), Ok(Bytes(2))]);
    }
    assert_eq!(states(&assembler.take()), [(Some(GPU(1)), LiveStateKind::Ok)]);
    assert!(!assembler.any_lost());
}

#[test]
fn a_failure_without_a_reason_may_pass() {
    let mut assembler = two_gpus();
    let start = Instant::now();
    let odd = || Err(Refusal::Other("the driver gave no reason".into()));
    for value in [odd(), odd(), Ok(Bytes(1)), odd(), odd()] {
        assembler.memory(UnixMicros(1), start, &[value, Ok(Bytes(1))]);
    }
    assert!(states(&assembler.take()).is_empty());
    assembler.memory(UnixMicros(1), start, &[odd(), Ok(Bytes(1))]);
    assembler.memory(UnixMicros(1), start, &[odd(), Ok(Bytes(1))]);
    assert_eq!(states(&assembler.take()), [(Some(GPU(0)), LiveStateKind::Lost)]);
}

#[test]
fn refused_figures_are_states_of_their_own() {
    let mut assembler = two_gpus();
    assembler.memory(UnixMicros(1), Instant::now(), &[Err(Refusal::NotSupported), Err(Refusal::NoPermission)]);
    assembler.not_told(UnixMicros(1), GPU(0), LiveStateKind::NotSupported, &["power", "SM clock"]);
    let lines = assembler.take();
    assert_eq!(
        states(&lines),
        [
            (Some(GPU(0)), LiveStateKind::NotSupported),
            (Some(GPU(1)), LiveStateKind::NoPermission),
            (Some(GPU(0)), LiveStateKind::NotSupported)
        ]
    );
    let LiveRecord::State(third) = &lines[2].record else { panic!("{lines:?}") };
    assert_eq!(third.detail, "GPU 0 does not tell: power, SM clock.");
}

#[test]
fn a_driver_that_goes_and_comes_is_said_once_per_change() {
    let mut assembler = assembler();
    for _ in 0..3 {
        assembler.driver_gone(UnixMicros(1), "no driver");
    }
    let lines = assembler.take();
    assert!(matches!(&lines[0].record, LiveRecord::Node(node) if node.devices.is_empty()), "{lines:?}");
    assert_eq!(states(&lines), [(None, LiveStateKind::NoDriver)]);
    assembler.driver_ready(UnixMicros(2));
    assembler.driver_ready(UnixMicros(2));
    assert_eq!(states(&assembler.take()), [(None, LiveStateKind::Ok)]);
    assembler.driver_gone(UnixMicros(3), "not loaded");
    assembler.driver_gone(UnixMicros(3), "other version");
    assembler.driver_ready(UnixMicros(4));
    let said: Vec<_> = states(&assembler.take()).into_iter().map(|(_, state)| state).collect();
    assert_eq!(said, [LiveStateKind::NoDriver, LiveStateKind::NoDriver, LiveStateKind::DriverRestarted]);
}

#[test]
fn samples_before_the_driver_went_are_kept() {
    let mut assembler = two_gpus();
    assembler.memory(UnixMicros(1), Instant::now(), &[Ok(Bytes(1)), Ok(Bytes(2))]);
    assembler.driver_gone(UnixMicros(2), "gone");
    let lines = assembler.take();
    assert!(matches!(&lines[0].record, LiveRecord::Memory(memory) if memory.figures() == 2), "{lines:?}");
}

#[test]
fn devices_are_said_when_they_change_and_slices_also_as_a_state() {
    let mut assembler = two_gpus();
    let again = |assembler: &mut Assembler, devices: Vec<LiveDevice>| {
        assembler.node(UnixMicros(5), devices, Some("550".into()), None, Vec::new());
        assembler.take()
    };
    assert!(again(&mut assembler, vec![device(GPU(0)), device(GPU(1))]).is_empty());

    let slice = Subject::MigSlice { device: 0, gpu_instance: 1, compute_instance: 0 };
    assembler.memory(UnixMicros(5), Instant::now(), &[Ok(Bytes(1)), Ok(Bytes(2))]);
    let lines = again(&mut assembler, vec![device(GPU(0)), device(GPU(1)), device(slice)]);
    assert!(matches!(&lines[0].record, LiveRecord::Memory(memory) if memory.devices.len() == 2), "{lines:?}");
    assert!(matches!(&lines[1].record, LiveRecord::Node(node) if node.devices.len() == 3), "{lines:?}");
    assert_eq!(states(&lines), [(Some(GPU(0)), LiveStateKind::MigChanged)]);
    assembler.memory(UnixMicros(6), Instant::now(), &[Ok(Bytes(1)), Ok(Bytes(2)), Ok(Bytes(3))]);
    let lines = assembler.take();
    assert!(matches!(&lines[0].record, LiveRecord::Memory(memory) if memory.devices.len() == 3), "{lines:?}");

    let mode = |mode| LiveDevice { mig_enabled: mode, ..device(GPU(1)) };
    let lines = again(&mut assembler, vec![device(GPU(0)), mode(Some(false)), device(slice)]);
    assert!(states(&lines).is_empty(), "{lines:?}");
    let lines = again(&mut assembler, vec![device(GPU(0)), mode(Some(true)), device(slice)]);
    assert_eq!(states(&lines), [(Some(GPU(1)), LiveStateKind::MigChanged)]);
}

#[test]
fn ranks_that_several_processes_claim_are_left_open_and_jobs_are_kept_apart() {
    let mut assembler = two_gpus();
    let job = |port| Some(JobKey::Master { address: "127.0.0.1".into(), port });
    let rows = [
        row(0, 100, ranked(0, job(1), None)),
        row(1, 100, ranked(0, job(1), None)),
        row(0, 101, ranked(0, job(2), None)),
        row(0, 102, ranked(1, job(2), None)),
        row(0, 103, ranked(1, job(2), None)),
        row(0, 104, ranked(1, job(2), Some(103))),
        row(0, 105, ProcessIdentity::Unranked),
    ];
    assembler.processes(UnixMicros(1), WHOLE, &rows);
    let lines = assembler.take();
    assert_eq!(ranks(&lines), [Some(0), Some(0), Some(0), None, None, Some(1), None]);
    let LiveRecord::Node(node) = &lines[0].record else { panic!("{lines:?}") };
    assert_eq!(node.warnings.len(), 1);
    assert!(node.warnings[0].starts_with("Several processes say that they are rank 1 of master:gpu7:2 "));
    // Still so: not said again. No longer so: the node says it.
    assembler.processes(UnixMicros(2), WHOLE, &rows);
    assert_eq!(assembler.take().len(), 1);
    assembler.processes(UnixMicros(3), WHOLE, &rows[..3]);
    assert!(matches!(&assembler.take()[0].record, LiveRecord::Node(node) if node.warnings.is_empty()));
}

#[test]
fn what_may_not_be_read_is_said_once_and_the_processes_are_shown() {
    let mut assembler = two_gpus();
    let rows = [row(0, 100, ProcessIdentity::NoPermission)];
    assembler.processes(UnixMicros(1), WHOLE, &rows);
    assembler.processes(UnixMicros(2), WHOLE, &rows);
    let lines = assembler.take();
    assert_eq!(states(&lines), [(None, LiveStateKind::NoPermission)]);
    let hidden = |line: &Timed| matches!(&line.record, LiveRecord::Processes(all) if all.processes[0].hidden);
    assert_eq!(lines.iter().filter(|line| hidden(line)).count(), 2);
}

#[test]
fn a_process_that_just_ended_is_not_of_another_namespace() {
    let mut assembler = two_gpus();
    let warned = |assembler: &mut Assembler, pid| {
        assembler.processes(UnixMicros(1), WHOLE, &[row(0, pid, ProcessIdentity::Gone)]);
        let is_warned = |line: &Timed| matches!(&line.record, LiveRecord::Node(node) if !node.warnings.is_empty());
        assembler.take().iter().any(is_warned)
    };
    for pid in 0..10 {
        assert!(!warned(&mut assembler, pid));
    }
    let looks: Vec<bool> = (0..3).map(|_| warned(&mut assembler, 50)).collect();
    assert_eq!(looks, [false, false, true]);
}

#[test]
fn a_list_says_whether_it_is_whole() {
    let listing = |listing: Listing, rows: &[(Subject, Listed, Known)]| {
        let mut assembler = two_gpus();
        assembler.processes(UnixMicros(1), listing, rows);
        match &assembler.take().last().unwrap().record {
            LiveRecord::Processes(processes) => processes.listing,
            other => panic!("{other:?}"),
        }
    };
    let one = [row(0, 1, ProcessIdentity::Unranked)];
    assert_eq!(listing(WHOLE, &one), ProcessListing::Listed);
    assert_eq!(listing(WHOLE, &[]), ProcessListing::NoneFound);
    assert_eq!(listing(Listing { answered: true, lacking: true }, &one), ProcessListing::Partial);
    assert_eq!(listing(Listing { answered: false, lacking: true }, &[]), ProcessListing::Missing);
    let mut untold = one;
    untold[0].1.used = None;
    assert_eq!(listing(WHOLE, &untold), ProcessListing::Partial);
}
