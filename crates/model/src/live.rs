//! What an agent sends while a job runs, `rankscope.live/1`: one JSON object per line, compressed in batches of about
//! a second. The contract between sampler, agent and server.
//!
//! The first line of a batch is a [`LiveBatch`]; each line after it is a [`LiveLine`]. A *source* is one run of one
//! agent: its `seq` counts lines from 0 without gaps, so a line that arrives twice counts once. Where the agent's spool
//! was full, one [`LiveRecord::Dropped`] stands for all lines that it gave up, under the number of the last of them: a
//! batch that leaves a gap begins with such a line, and it closes the gap. Probes use the same scheme with their own
//! lines (see [`crate::probe`]).
//!
//! Fields may be added within a version, so every one but the tag may be absent, and unknown ones are passed over.
//! Bytes are bytes, times are microseconds since the Unix epoch.

use crate::evidence::ProcessListing;
use crate::subject::Subject;
use crate::units::{Bytes, Rank, UnixMicros};
use serde::{Deserialize, Serialize};

/// The version that this crate knows, as batches carry it.
pub const LIVE_FORMAT: &str = "rankscope.live/1";

/// Heads a batch. In JSON it has `"type":"batch"`, like the head of a probe's batch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveBatch {
    /// [`LIVE_FORMAT`]; absent in a probe's batch.
    pub format: String,
    /// Names one run of one agent; at most 64 letters, digits, `-`, `_`, `.`.
    pub source: String,
    /// The node's stable name: its host name unless the agent was given another.
    pub node: String,
    /// `seq` of the batch's first line.
    pub first: u64,
    /// `seq` of its last line.
    pub last: u64,
}

/// The server's answer once the batch is durable: every line up to and with this one is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    /// The highest `seq` of the source up to which nothing is missing.
    pub acknowledged: u64,
}

/// A line of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveLine {
    /// Position among the source's lines.
    pub seq: u64,
    /// When it was read on the node.
    pub t: UnixMicros,
    /// What it says.
    #[serde(flatten)]
    pub record: LiveRecord,
}

/// What a line says, told by its `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LiveRecord {
    /// The node and its devices: at the start and on every change.
    Node(Box<LiveNode>),
    /// Memory of all devices since the last such line, in columns.
    Memory(LiveMemory),
    /// How busy and how warm the devices are; once a second.
    Health(LiveHealth),
    /// Who holds memory on the devices; once a second at most.
    Processes(LiveProcesses),
    /// A device or the driver changed its state.
    State(LiveState),
    /// The spool was full: so many lines before this one are lost.
    Dropped(LiveDropped),
    /// The agent ends in order.
    End,
    /// A type of a later version.
    #[serde(other)]
    Unknown,
}

/// A node and its devices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveNode {
    /// Host name.
    pub host: String,
    /// Version of the agent.
    pub agent: Option<String>,
    /// Version of the driver.
    pub driver_version: Option<String>,
    /// `12.4`.
    pub cuda_version: Option<String>,
    /// Boot id of the kernel: tells a restart of the node.
    pub boot_id: Option<String>,
    /// Samples of memory per second.
    pub hz: Option<u32>,
    /// Devices and MIG slices.
    pub devices: Vec<LiveDevice>,
    /// What cannot be read here and why, in sentences.
    pub warnings: Vec<String>,
}

/// A device as long as nothing of it changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveDevice {
    /// [`Subject::Device`] or [`Subject::MigSlice`], by the driver's index.
    pub subject: Subject,
    /// `GPU-…` or `MIG-…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// PCI bus id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_id: Option<String>,
    /// Product name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Bytes>,
    /// Memory that the driver keeps for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Bytes>,
    /// Drives a display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_active: Option<bool>,
    /// MIG is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig_enabled: Option<bool>,
    /// `Default`, `Exclusive_Process`, `Prohibited`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_mode: Option<String>,
    /// ECC is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc_enabled: Option<bool>,
}

/// Memory in columns: sample `i` of every device was read at `t + dt_us[i]`, `t` being the line's time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveMemory {
    /// Microseconds after the line's time, not falling.
    pub dt_us: Vec<u32>,
    /// One column per device.
    pub devices: Vec<LiveColumn>,
}

impl LiveMemory {
    /// How many figures the columns hold, those that could not be read included.
    pub fn figures(&self) -> u64 {
        self.devices.iter().map(|column| u64::try_from(column.used.len()).unwrap_or(u64::MAX)).sum()
    }
}

/// One device's column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveColumn {
    /// Which device.
    pub subject: Subject,
    /// Used bytes, as long as [`LiveMemory::dt_us`]; `None` where the read failed.
    pub used: Vec<Option<Bytes>>,
}

/// How the devices are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveHealth {
    /// One per device that answered.
    pub devices: Vec<LiveDeviceHealth>,
}

/// How one device is; what it does not support is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveDeviceHealth {
    /// Which device.
    pub subject: Subject,
    /// Utilisation of the SMs in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u8>,
    /// Milliwatts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_mw: Option<u32>,
    /// Degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// SM clock in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<u32>,
    /// Reasons why the clock is held down, as the driver's words in snake case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttle: Vec<String>,
}

/// All processes that hold memory on the node's devices at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveProcesses {
    /// Whether the list can be trusted to be whole.
    pub listing: ProcessListing,
    /// One per process and device. The devices are asked one after the other within the second before the line's time.
    #[serde(default)]
    pub processes: Vec<LiveProcess>,
}

/// One process on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveProcess {
    /// Where it holds memory.
    pub subject: Subject,
    /// PID as the driver sees it (the host's).
    pub pid: u32,
    /// PID as the process itself sees it, where it runs in a container of its own: the one that its logs and the probe
    /// print.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_inside: Option<u32>,
    /// When the process started, in the kernel's ticks since boot: tells a PID that is used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
    /// `C`, `G`, `C+G`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name, arguments left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its memory there; absent where the driver does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Bytes>,
    /// Which rank of which job it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<LiveRank>,
    /// Its environment may not be read by the agent, so its rank is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// A process as part of a job. Nothing else of its environment leaves the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRank {
    /// Global rank.
    pub rank: Rank,
    /// Rank within the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_rank: Option<u32>,
    /// Processes of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u32>,
    /// What is the same for all processes of the job on all nodes, to be compared and shown, not taken apart:
    /// `slurm:4711` (`slurm:4711:29500` where the processes also know their rendezvous port: one allocation can hold
    /// several jobs), `master:10.0.0.1:29500`, `elastic:run-id`, `mpi:…`, `lsf:…`, `pbs:…`. A rendezvous at the loopback
    /// address holds on its node alone and is written with the node's name. Absent where nothing tells: the job is then
    /// this node's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// `CUDA_VISIBLE_DEVICES` as set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_devices: Option<String>,
    /// It is a helper (loader or compile worker) of this process, not the rank itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helper_of: Option<u32>,
}

/// Something changed its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveState {
    /// The device; absent when it is about the driver or the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// What it is now.
    pub state: LiveStateKind,
    /// In a sentence, with what to do if something can be done.
    #[serde(default)]
    pub detail: String,
}

/// States of devices and drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveStateKind {
    /// Answers again.
    Ok,
    /// The GPU is lost (fell off the bus).
    Lost,
    /// No driver answers; the agent waits for it.
    NoDriver,
    /// The driver was loaded anew.
    DriverRestarted,
    /// An Xid was reported; the sentence has its number.
    Xid,
    /// MIG slices appeared or vanished.
    MigChanged,
    /// The driver refuses a figure on this device.
    NotSupported,
    /// The agent may not read something.
    NoPermission,
    /// A rank holds no memory any more while others of its job on the node do.
    RankGone,
    /// A state of a later version.
    #[serde(other)]
    Unknown,
}

impl LiveStateKind {
    /// It happened at a moment, and belongs to what is told of a job; other states say what cannot be read.
    pub fn is_event(self) -> bool {
        match self {
            Self::Ok
            | Self::Lost
            | Self::NoDriver
            | Self::DriverRestarted
            | Self::Xid
            | Self::MigChanged
            | Self::RankGone => true,
            Self::NotSupported | Self::NoPermission | Self::Unknown => false,
        }
    }
}

/// Lines that were given up. The line that says so has the `seq` [`Self::last`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveDropped {
    /// `seq` of the first lost line.
    pub first: u64,
    /// `seq` of the last lost line.
    pub last: u64,
    /// Figures of memory among them, as [`LiveMemory::figures`] counts.
    pub samples: u64,
    /// They were the server's own, of the machine that it runs on, and it was too busy to take them in. Else an agent had
    /// no room to keep them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_server: bool,
}

impl LiveDropped {
    /// Why they were lost, in words that follow a colon.
    pub fn why(by_server: bool) -> &'static str {
        if by_server {
            "the server, which samples the GPUs of its own machine, was too busy to take them in"
        } else {
            "the agent had no room to keep them"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_flat_object() {
        let line = LiveLine {
            seq: 7,
            t: UnixMicros(1_000_000),
            record: LiveRecord::Memory(LiveMemory {
                dt_us: vec![0, 100_000],
                devices: vec![LiveColumn { subject: Subject::Device(0), used: vec![Some(Bytes(5)), None] }],
            }),
        };
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(
            text,
            r#"{"seq":7,"t":1000000,"type":"memory","dt_us":[0,100000],"devices":[{"subject":{"device":0},"used":[5,null]}]}"#
        );
        assert_eq!(serde_json::from_str::<LiveLine>(&text).unwrap(), line);
    }

    #[test]
    fn lines_and_states_of_later_versions_are_passed_over() {
        let line: LiveLine = serde_json::from_str(r#"{"seq":1,"t":2,"type":"weather","sun":true}"#).unwrap();
        assert_eq!(line.record, LiveRecord::Unknown);
        let line: LiveLine = serde_json::from_str(r#"{"seq":1,"t":2,"type":"state","state":"asleep"}"#).unwrap();
        assert!(matches!(line.record, LiveRecord::State(LiveState { state: LiveStateKind::Unknown, .. })));
    }
}
