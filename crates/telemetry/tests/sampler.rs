//! Sampling through the real loader, from a stand-in for the driver's library that plays something over time.

// Helpers beside the test functions do not count as tests for this lint.
#![allow(clippy::unwrap_used)]

mod support;

use rankscope_model::{
    Bytes, LiveDevice, LiveHealth, LiveMemory, LiveNode, LiveProcess, LiveProcesses, LiveRecord, LiveState,
    LiveStateKind, MIB, ProcessListing, Subject,
};
use rankscope_telemetry::ProcFs;
use rankscope_telemetry::sampler::{self, Hz, Sampler, SamplerConfig, Timed};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::Stub;

/// A sampler of what the stub plays, and everything that it has said.
struct Sampled {
    sampler: Sampler,
    lines: Vec<Timed>,
    _stub: Option<Stub>,
}

impl Sampled {
    fn new(scenario: &str, hz: u32) -> Self {
        let stub = Stub::new(scenario);
        let sampler = start(Some(stub.library()), stub.proc(), hz);
        Self { sampler, lines: Vec::new(), _stub: Some(stub) }
    }

    /// Receives until `enough` says so of all lines; panics after half a minute.
    fn until(&mut self, enough: impl Fn(&[Timed]) -> bool) -> &[Timed] {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !enough(&self.lines) {
            let left = deadline.saturating_duration_since(Instant::now());
            let delivery = self.sampler.deliveries.recv_timeout(left);
            let delivery = delivery.unwrap_or_else(|error| panic!("it did not come ({error}): {:#?}", self.lines));
            self.lines.extend(delivery.lines);
        }
        &self.lines
    }

    fn for_seconds(&mut self, seconds: u64) -> &[Timed] {
        let until = Instant::now() + Duration::from_secs(seconds);
        while let Ok(delivery) = self.sampler.deliveries.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.lines.extend(delivery.lines);
        }
        &self.lines
    }
}

fn start(library: Option<PathBuf>, proc: ProcFs, hz: u32) -> Sampler {
    let hz = Hz::new(hz).unwrap();
    sampler::spawn(SamplerConfig { library, proc, node: "gpu7".into(), hz, agent: Some("test".into()) }).unwrap()
}

fn shipped(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../end2end/data/live");
    std::fs::read_to_string(folder.join(name).with_extension("scenario")).unwrap()
}

fn nodes(lines: &[Timed]) -> Vec<&LiveNode> {
    lines
        .iter()
        .filter_map(|line| match &line.record {
            LiveRecord::Node(node) => Some(&**node),
            _ => None,
        })
        .collect()
}

fn memories(lines: &[Timed]) -> Vec<(i64, &LiveMemory)> {
    lines
        .iter()
        .filter_map(|line| match &line.record {
            LiveRecord::Memory(memory) => Some((line.t.0, memory)),
            _ => None,
        })
        .collect()
}

fn lists(lines: &[Timed]) -> Vec<&LiveProcesses> {
    lines
        .iter()
        .filter_map(|line| match &line.record {
            LiveRecord::Processes(processes) => Some(processes),
            _ => None,
        })
        .collect()
}

fn healths(lines: &[Timed]) -> Vec<&LiveHealth> {
    lines
        .iter()
        .filter_map(|line| match &line.record {
            LiveRecord::Health(health) => Some(health),
            _ => None,
        })
        .collect()
}

fn states(lines: &[Timed]) -> Vec<&LiveState> {
    lines
        .iter()
        .filter_map(|line| match &line.record {
            LiveRecord::State(state) => Some(state),
            _ => None,
        })
        .collect()
}

fn said(lines: &[Timed], state: LiveStateKind) -> bool {
    states(lines).iter().any(|said| said.state == state)
}

fn on(list: &LiveProcesses, gpu: u32) -> Vec<&LiveProcess> {
    list.processes.iter().filter(|process| process.subject == Subject::Device(gpu)).collect()
}

#[test]
fn eight_healthy_ranks_are_sampled_in_step() {
    let mut sampled = Sampled::new(&shipped("healthy"), 10);
    let lines = sampled.until(|lines| memories(lines).len() >= 4 && lists(lines).len() >= 3);

    let node = nodes(lines)[0];
    assert_eq!(nodes(lines).len(), 1, "said once");
    assert_eq!((node.driver_version.as_deref(), node.cuda_version.as_deref()), (Some("550.54.15"), Some("12.4")));
    assert_eq!((node.hz, node.agent.as_deref(), node.devices.len()), (Some(10), Some("test"), 8));
    assert_eq!(node.warnings, [] as [String; 0]);
    let last = LiveDevice {
        subject: Subject::Device(7),
        uuid: Some("GPU-00000000-0000-4000-8000-000000000007".into()),
        bus_id: Some("00000000:08:00.0".into()),
        name: Some("NVIDIA A100-SXM4-80GB".into()),
        total: Some(Bytes(81_920 * MIB)),
        reserved: Some(Bytes(600 * MIB)),
        display_active: Some(false),
        mig_enabled: None,
        compute_mode: Some("Default".into()),
        ecc_enabled: Some(true),
    };
    assert_eq!(node.devices[7], last);

    // Steady: about ten samples a second, evenly spaced.
    let all = memories(lines);
    let samples: usize = all.iter().map(|(_, memory)| memory.dt_us.len()).sum();
    assert!((20..=11 * all.len()).contains(&samples), "{samples} samples in {} lines", all.len());
    let (_, second) = all[1];
    assert!(second.dt_us.is_sorted() && second.dt_us.first() == Some(&0), "{second:?}");
    for column in &second.devices {
        assert_eq!(column.used.len(), second.dt_us.len());
        assert!(column.used.iter().all(|used| used.is_some_and(|used| (30_004..=31_810).contains(&(used.0 / MIB)))));
    }

    let list = lists(lines)[0];
    assert_eq!((list.listing, list.processes.len()), (ProcessListing::Listed, 8));
    let third = on(list, 3)[0];
    let rank = third.rank.as_ref().unwrap();
    assert_eq!((third.pid, third.started, third.kind.as_deref()), (103, Some(4003), Some("C")));
    assert_eq!((rank.rank.0, rank.local_rank, rank.world_size), (3, Some(3), Some(8)));
    assert_eq!((rank.job.as_deref(), rank.helper_of), (Some("master:10.0.0.7:29500"), None));
    assert_eq!(third.name.as_deref(), Some("python3"));

    let health = &healths(lines)[0].devices[2];
    assert_eq!(health.subject, Subject::Device(2));
    assert_eq!(
        (health.utilization_percent, health.power_mw, health.temperature_c),
        (Some(96), Some(390_000), Some(62))
    );
    assert_eq!((health.sm_clock_mhz, health.throttle.as_slice()), (Some(1410), ["sw_power_cap".to_owned()].as_slice()));
    assert!(states(lines).is_empty(), "{:?}", states(lines));
}

#[test]
fn contexts_that_open_on_the_first_card_are_seen_with_their_ranks() {
    let mut sampled = Sampled::new(&shipped("contexts"), 20);
    let lines = sampled.until(|lines| lists(lines).last().is_some_and(|list| on(list, 0).len() == 8));
    assert_eq!(on(lists(lines)[0], 0).len(), 1);
    let ranks: BTreeSet<u32> =
        on(lists(lines).last().unwrap(), 0).iter().map(|process| process.rank.as_ref().unwrap().rank.0).collect();
    assert_eq!(ranks, (0..8).collect());
}

#[test]
fn a_stranger_has_no_rank_and_goes_again() {
    let scenario = "gpu total=1000 idle=1\nproc pid=7 env=RANK=0\nprocess gpu=0 pid=7 used=100\n\
                    at s=2 proc pid=8 exe=/opt/notebook started=5 inside=3\nat s=2 process gpu=0 pid=8 used=300\nat s=4 gone pid=8\n";
    let mut sampled = Sampled::new(scenario, 10);
    sampled.until(|lines| lists(lines).iter().any(|list| list.processes.len() == 2));
    let lines = sampled.until(|lines| lists(lines).last().is_some_and(|list| list.processes.len() == 1));
    let both = lists(lines).into_iter().find(|list| list.processes.len() == 2).unwrap();
    let stranger = &both.processes[1];
    assert_eq!((stranger.pid, stranger.rank.as_ref(), stranger.hidden), (8, None, false));
    assert_eq!((stranger.name.as_deref(), stranger.pid_inside), (Some("notebook"), Some(3)));
    let used: Vec<_> = memories(lines).iter().flat_map(|(_, memory)| &memory.devices[0].used).flatten().collect();
    assert!(used.contains(&&Bytes(401 * MIB)) && used.contains(&&Bytes(101 * MIB)), "{used:?}");
}

#[test]
fn a_gpu_that_falls_off_the_bus_is_a_state_and_the_others_go_on() {
    let mut sampled = Sampled::new(
        "gpu total=1000 used=10\ngpu total=1000 used=20\nat s=2 xid gpu=1 number=79\nat s=2 gpu=1 code=15\nat s=5 gpu=1 code=0\n",
        10,
    );
    sampled.until(|lines| said(lines, LiveStateKind::Lost) && said(lines, LiveStateKind::Xid));
    let lines = sampled.until(|lines| said(lines, LiveStateKind::Ok));
    let of_second: Vec<_> =
        states(lines).into_iter().filter(|state| state.state != LiveStateKind::NotSupported).collect();
    assert!(of_second.iter().all(|state| state.subject == Some(Subject::Device(1))), "{of_second:?}");
    assert_eq!(of_second.len(), 3, "{of_second:?}");
    assert!(of_second.iter().any(|state| state.detail.starts_with("Xid 79 on GPU 1.")), "{of_second:?}");
    let lost = memories(lines)
        .into_iter()
        .find(|(_, memory)| memory.devices[1].used.iter().all(Option::is_none))
        .unwrap_or_else(|| panic!("{lines:#?}"));
    assert!(lost.1.devices[0].used.iter().all(|used| *used == Some(Bytes(10 * MIB))));
    assert_eq!(nodes(lines).len(), 1, "what is known of a lost device stays true");
}

#[test]
fn figures_that_a_device_does_not_know_are_said_once() {
    let mut sampled = Sampled::new("gpu total=1000 used=10 temperature=50\n", 5);
    let lines = sampled.until(|lines| healths(lines).len() >= 3);
    let details: Vec<_> = states(lines).iter().map(|state| state.detail.as_str()).collect();
    assert_eq!(details, ["GPU 0 does not tell: utilisation, power, SM clock, throttle reasons."]);
    assert_eq!(healths(lines)[2].devices[0].temperature_c, Some(50));
}

#[test]
fn slices_come_and_go() {
    let mut sampled = Sampled::new(
        "gpu total=40960 idle=4 mig=1\nslice gpu=0 gi=1 ci=0 total=19968 idle=2\nprocess gpu=0 gi=1 ci=0 pid=70 used=5900\n\
         proc pid=70\nat s=3 slice gpu=0 gi=2 ci=0 total=19968 idle=2\n",
        10,
    );
    let slice = |gpu_instance| Subject::MigSlice { device: 0, gpu_instance, compute_instance: 0 };
    let lines = sampled.until(|lines| {
        let both = |memory: &LiveMemory| memory.devices.len() == 3;
        said(lines, LiveStateKind::MigChanged) && memories(lines).last().is_some_and(|(_, memory)| both(memory))
    });
    let subjects = |node: &LiveNode| node.devices.iter().map(|device| device.subject).collect::<Vec<_>>();
    let said: Vec<_> = nodes(lines).into_iter().map(subjects).collect();
    assert_eq!(said, [vec![Subject::Device(0), slice(1)], vec![Subject::Device(0), slice(1), slice(2)]]);
    let listed: Vec<_> = lists(lines)[0].processes.iter().map(|process| process.subject).collect();
    assert_eq!(listed, [slice(1)]);
    let (_, memory) = memories(lines)[0];
    assert_eq!(memory.devices[1].used[0], Some(Bytes(5902 * MIB)));
}

#[test]
fn a_driver_that_is_loaded_anew_is_a_state() {
    let mut sampled = Sampled::new(&shipped("restart"), 10);
    let lines = sampled.until(|lines| {
        said(lines, LiveStateKind::DriverRestarted)
            && lists(lines).last().is_some_and(|list| list.processes.iter().any(|process| process.pid == 200))
    });
    let kinds: BTreeSet<String> = states(lines).iter().map(|state| format!("{:?}", state.state)).collect();
    assert_eq!(kinds, ["DriverRestarted", "NoDriver"].map(String::from).into());
    // Between the two there is no sample, and after them there are some.
    let last = states(lines).into_iter().rposition(|state| state.state == LiveStateKind::DriverRestarted);
    assert!(last.is_some());
    let back = lines
        .iter()
        .position(
            |line| matches!(&line.record, LiveRecord::State(state) if state.state == LiveStateKind::DriverRestarted),
        )
        .unwrap();
    assert!(!memories(&lines[..back]).is_empty() && !memories(&lines[back..]).is_empty());
}

#[test]
fn a_machine_without_a_driver_is_said_once_and_the_driver_is_waited_for() {
    let stub = Stub::new("init code=9\n");
    let sampler = start(Some(stub.library()), stub.proc(), 10);
    let mut sampled = Sampled { sampler, lines: Vec::new(), _stub: None };
    let lines = sampled.until(|lines| said(lines, LiveStateKind::NoDriver));
    assert!(nodes(lines)[0].devices.is_empty());
    assert_eq!(states(lines)[0].detail, "NVML: the NVIDIA driver is installed but not loaded.");
    stub.play("gpu total=1000 used=10\n");
    let lines = sampled.until(|lines| !memories(lines).is_empty());
    let kinds: Vec<_> = states(lines).iter().map(|state| state.state).collect();
    assert_eq!(kinds[..2], [LiveStateKind::NoDriver, LiveStateKind::Ok]);
}

#[test]
fn stopping_delivers_what_was_read() {
    let mut sampled = Sampled::new("gpu total=1000 used=10\n", 50);
    sampled.until(|lines| !memories(lines).is_empty());
    let asked = Instant::now();
    sampled.sampler.stop();
    sampled.lines.clear();
    let lines = sampled.for_seconds(5);
    assert!(asked.elapsed() < Duration::from_secs(4), "the channel closes");
    let read: usize = memories(lines).iter().map(|(_, memory)| memory.dt_us.len()).sum();
    assert!(read <= 100, "{read}");
}
