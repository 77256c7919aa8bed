//! How the nodes are right now: what `/live` shows and `GET /api/v1/nodes` answers.
//!
//! A reduction of what agents sent, made for looking at; the diagnosis reads the records themselves.

use crate::live::LiveStateKind;
use crate::subject::Subject;
use crate::units::{Bytes, Rank, UnixMicros};
use serde::{Deserialize, Serialize};

/// A node with its devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Stable name.
    pub node: String,
    /// When something of it arrived last, by the server's clock.
    pub heard_at: UnixMicros,
    /// Nothing arrives any more.
    pub silent: bool,
    /// The agent ended in order.
    pub ended: bool,
    /// Version of the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_version: Option<String>,
    /// What is not as it should be, or cannot be read, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Physical devices first, then slices, each by index.
    pub devices: Vec<DeviceStatus>,
    /// Jobs that run here and became a run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<LiveRunRef>,
}

/// A job that runs, or has ended a little while ago.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRunRef {
    /// Id of the run.
    pub id: String,
    /// Its title.
    pub title: String,
    /// What its report accuses at the moment, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// When it was seen that it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<UnixMicros>,
}

/// How a run whose job goes on stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStanding {
    /// Nodes on which the job was seen last.
    pub nodes: u32,
    /// The job has begun a little while ago and its cards still fill, one after the other: a difference may pass.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub filling: bool,
    /// Who of them says nothing any more; what is shown of it is the last that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<Silence>,
}

impl RunStanding {
    /// Nobody of it says anything: what is shown does not change.
    pub fn is_still(&self) -> bool {
        let are_all = self.silent.len() >= usize::try_from(self.nodes).unwrap_or(usize::MAX);
        self.silent.first().is_some_and(|first| first.node.is_none() || are_all)
    }
}

/// Somebody of whom nothing arrives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// The node. Absent for a run of probes alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When something arrived last, by the server's clock.
    pub since: UnixMicros,
}

/// One device or MIG slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// [`Subject::Device`] or [`Subject::MigSlice`].
    pub subject: Subject,
    /// Product name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Bytes>,
    /// Used now; absent when the last read failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Bytes>,
    /// Where nothing can be read now: what it used last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Bytes>,
    /// Largest use of each of the last [`DeviceStatus::CELLS`] spans of [`DeviceStatus::CELL_SECONDS`] seconds, oldest
    /// first, one sign each: `0` to `9` in tenths of the capacity (`9` is 90 % and more), `.` where nothing is known.
    pub heat: String,
    /// It holds clearly more than the cards of its job, and has for some seconds.
    pub outlier: bool,
    /// Utilisation of the SMs in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u8>,
    /// Degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// Something other than [`LiveStateKind::Ok`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<LiveStateKind>,
    /// Since when, by the node's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_since: Option<UnixMicros>,
    /// Who holds memory on it, ranks at home first.
    pub processes: Vec<ProcessStatus>,
}

impl DeviceStatus {
    /// Signs of [`DeviceStatus::heat`].
    pub const CELLS: usize = 60;
    /// Seconds that one sign stands for.
    pub const CELL_SECONDS: i64 = 5;

    /// `0`, or `0-2-0` for a slice: names the device within its node.
    pub fn key(&self) -> String {
        match self.subject {
            Subject::MigSlice { device, gpu_instance, compute_instance } => {
                format!("{device}-{gpu_instance}-{compute_instance}")
            }
            Subject::Device(device) => device.to_string(),
            Subject::Rank(rank) => format!("r{}", rank.0),
        }
    }
}

/// One process on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// PID on the host.
    pub pid: u32,
    /// Name, arguments left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its rank, or that of the rank it helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
    /// What it is on this card.
    pub role: ProcessRole,
    /// Its memory here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Bytes>,
}

/// What a process is on a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessRole {
    /// A rank on the card where it holds most.
    Home,
    /// A rank that is at home on another card.
    Visitor,
    /// A loader or compile worker of a rank.
    Helper,
    /// Not known to belong to a job.
    Stranger,
}
