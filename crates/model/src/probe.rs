//! The log of the probe, `rankscope.probe/1`: one JSON object per line, one file per rank, as
//! `public/rankscope_probe.py` writes it, and what a reader keeps of it.
//!
//! Fields may be added within a version, so every one but the tag may be absent, and unknown ones are passed over.
//! Bytes are bytes, times are microseconds since the Unix epoch.

use crate::artifact::Provenance;
use crate::subject::Phase;
use crate::units::{Bytes, Rank};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version that this crate knows, as `start` records carry it.
pub const PROBE_FORMAT: &str = "rankscope.probe/1";

/// One line, told by its `type`. All lines also have `seq`, which counts the lines of one process from 0, and `t`,
/// the time; both are read by [`ProbeLine`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ProbeRecord {
    /// A process begins.
    Start(Box<ProbeStart>),
    /// A step begins (or ends, with `done`).
    Step(ProbeStep),
    /// A phase begins or ends.
    Phase(ProbePhase),
    /// What the live objects of the process are.
    Facts(Box<ProbeFacts>),
    /// An allocation failed.
    Oom(Box<ProbeOom>),
    /// A snapshot was written beside the log.
    Snapshot(ProbeSnapshot),
    /// The process ended in order.
    End(ProbeEnd),
    /// Heads a batch that is sent to a server; never in a file.
    Batch(ProbeBatch),
    /// A type of a later version.
    #[serde(other)]
    Unknown,
}

/// What every line has beside its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProbeLine {
    /// Position among the lines of one process.
    #[serde(default)]
    pub seq: Option<u64>,
    /// Microseconds since the Unix epoch.
    #[serde(default)]
    pub t: Option<i64>,
}

/// Who writes, where, and how the process was started. Command lines and environment are without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeStart {
    /// `rankscope.probe/1`.
    pub format: String,
    /// Version of the probe itself.
    pub probe: Option<String>,
    /// Name of the job in the file's name.
    pub job: Option<String>,
    /// Global rank.
    pub rank: Option<Rank>,
    /// Processes of the job.
    pub world_size: Option<u32>,
    /// Rank within the node.
    pub local_rank: Option<u32>,
    /// What told the rank: a variable (`RANK`), `process_group`, or `default` where nothing did.
    pub rank_from: Option<String>,
    /// Host name.
    pub host: Option<String>,
    /// Process id as the process sees it, which in a container is not the host's.
    pub pid: Option<u32>,
    /// `address:port` of the rendezvous.
    pub master: Option<String>,
    /// Version of Python.
    pub python: Option<String>,
    /// Version of torch, if it was imported by then.
    pub torch: Option<String>,
    /// CUDA version that torch was built for.
    pub cuda: Option<String>,
    /// Driver version.
    pub driver: Option<String>,
    /// The program.
    pub script: Option<String>,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Command line of the parent: `torchrun`, `srun`, a shell.
    pub launcher: Option<Vec<String>>,
    /// Working directory.
    pub directory: Option<String>,
    /// Variables that bear on devices and allocators.
    pub environment: BTreeMap<String, String>,
    /// Each Nth step is written.
    pub every: Option<u64>,
    /// Peaks are read and reset at each step; otherwise they are since the program's own last reset.
    pub reset_peaks: Option<bool>,
}

/// A step begins: `batch` is what it works on; `mem` is what was read at that moment, so its peak is of the work
/// **before** it, that is of the step before. With `done` the step has ended and `mem` is its own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeStep {
    /// Counts the calls; `mem` of call n + 1 belongs to call n.
    pub n: u64,
    /// The job's count: training steps; others carry the last training step.
    pub step: u64,
    /// Epoch, where the program says it.
    pub epoch: Option<i64>,
    /// `train`, `eval`, or what the program calls it.
    pub phase: String,
    /// How the phase is known: `given`, `model` (its mode), `grad_mode`, `default`.
    pub phase_from: Option<String>,
    /// Name, shape and type of each tensor.
    pub batch: Vec<(String, Vec<u64>, String)>,
    /// Samples.
    pub samples: Option<u64>,
    /// Tokens, padding included.
    pub tokens: Option<u64>,
    /// Tokens without padding, where the attention mask was on the CPU.
    pub tokens_unpadded: Option<u64>,
    /// Memory since the last reading.
    pub mem: Option<ProbeMemory>,
    /// Called at the end of the step.
    pub done: bool,
}

/// Figures of the caching allocator on one device, and of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeMemory {
    /// CUDA ordinal as the process sees it.
    pub device: Option<u32>,
    /// Allocated now.
    pub allocated: Option<Bytes>,
    /// Peak allocated since the last reading.
    pub peak: Option<Bytes>,
    /// Reserved now.
    pub reserved: Option<Bytes>,
    /// Peak reserved since the last reading.
    pub peak_reserved: Option<Bytes>,
    /// Active now.
    pub active: Option<Bytes>,
    /// Inactive in split blocks.
    pub split: Option<Bytes>,
    /// Peak allocated since the start.
    pub run_peak: Option<Bytes>,
    /// Allocations that had to empty the cache first.
    pub retries: Option<u64>,
    /// Allocations that failed.
    pub ooms: Option<u64>,
    /// Free on the device.
    pub free: Option<Bytes>,
    /// Capacity of the device.
    pub total: Option<Bytes>,
}

/// A phase begins or ends; `mem` is of the work before.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbePhase {
    /// Calls of `step` so far.
    pub n: u64,
    /// The last training step.
    pub step: u64,
    /// `eval`, `save`, or what the program calls it.
    pub phase: String,
    /// `begin` or `end`.
    pub event: String,
    /// Memory since the last reading.
    pub mem: Option<ProbeMemory>,
}

/// What the live objects of one process are at a moment. Later records of a process stand for earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeFacts {
    /// Calls of `step` so far.
    pub n: u64,
    /// Calls of `step` in training so far.
    pub train_steps: u64,
    /// The process group.
    pub dist: Option<ProbeGroup>,
    /// Devices on which the process's allocator holds memory.
    pub devices: Vec<ProbeDevice>,
    /// Data loaders.
    pub loaders: Vec<ProbeLoader>,
    /// Outermost wrappers of models.
    pub wrappers: Vec<ProbeWrapper>,
    /// Largest modules that are no part of another.
    pub modules: Vec<ProbeModule>,
    /// Optimizers.
    pub optimizers: Vec<ProbeOptimizer>,
    /// There were too many objects to look at all of them.
    pub partial: bool,
}

/// The process group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeGroup {
    /// It stands.
    pub initialized: bool,
    /// `nccl`, `gloo`.
    pub backend: Option<String>,
    /// Rank in it.
    pub rank: Option<u32>,
    /// Its size.
    pub world_size: Option<u32>,
}

/// A device on which the process holds memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeDevice {
    /// CUDA ordinal as the process sees it.
    pub index: u32,
    /// Name.
    pub name: Option<String>,
    /// `GPU-…`, where torch tells it.
    pub uuid: Option<String>,
    /// Capacity.
    pub total: Option<Bytes>,
    /// Allocated now.
    pub allocated: Option<Bytes>,
    /// Reserved now.
    pub reserved: Option<Bytes>,
    /// The process's current device.
    pub current: Option<bool>,
}

/// A data loader.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeLoader {
    /// Class with module.
    pub class: String,
    /// Class of the data set.
    pub dataset: Option<String>,
    /// Samples in the data set, all ranks together.
    pub dataset_len: Option<u64>,
    /// The data set deals by itself: no sampler.
    pub iterable: bool,
    /// Samples per batch.
    pub batch_size: Option<i64>,
    /// Batches per pass on this rank.
    pub batches: Option<u64>,
    /// A last partial batch is left out.
    pub drop_last: Option<bool>,
    /// Worker processes.
    pub workers: Option<u64>,
    /// Passes begun, where the loader is wrapped.
    pub passes: Option<u64>,
    /// Samplers and batch samplers, outermost first.
    pub samplers: Vec<ProbeSampler>,
    /// Why it could not be described.
    pub error: Option<String>,
}

/// A sampler or batch sampler.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeSampler {
    /// Class with module.
    pub class: String,
    /// What it deals on this rank.
    pub len: Option<u64>,
    /// Ranks it deals to.
    pub num_replicas: Option<i64>,
    /// Rank it deals for.
    pub rank: Option<i64>,
    /// It shuffles.
    pub shuffle: Option<bool>,
    /// It drops the tail instead of repeating samples.
    pub drop_last: Option<bool>,
    /// The epoch that it was last told; 0 where `set_epoch` was never called, or called with 0.
    pub epoch: Option<i64>,
    /// It has a `set_epoch`.
    pub has_set_epoch: bool,
}

/// A wrapped model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeWrapper {
    /// `ddp`, `fsdp`, `fsdp2`, `deepspeed`, `data_parallel`.
    pub kind: String,
    /// Class with module.
    pub class: String,
    /// Class of the wrapped model.
    pub module: Option<String>,
    /// Devices it works on, as the process numbers them.
    pub device_ids: Option<Vec<Option<u32>>>,
    /// Device on which outputs are gathered.
    pub output_device: Option<u32>,
    /// Sharding strategy or stage.
    pub sharding: Option<String>,
}

/// Tensors of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeTensors {
    /// How many.
    pub count: u64,
    /// Bytes on this rank by device: `cuda:0`, `cpu`.
    pub bytes: BTreeMap<String, u64>,
    /// Equal on ranks whose tensors have the same names, shapes and types.
    pub digest: Option<String>,
    /// The largest, for buffers.
    pub largest: Vec<ProbeTensor>,
}

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeTensor {
    /// Name in its module.
    pub name: String,
    /// Bytes on this rank.
    pub bytes: u64,
    /// Shape.
    pub shape: Vec<u64>,
    /// `cuda:0`, `cpu`.
    pub device: String,
}

/// A module that is no part of another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeModule {
    /// Class with module, without wrappers.
    pub class: String,
    /// Parameters.
    pub parameters: ProbeTensors,
    /// Buffers.
    pub buffers: ProbeTensors,
    /// Parameters by submodule, at most 32.
    pub groups: Vec<ProbeParameters>,
}

/// Parameters of one submodule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeParameters {
    /// Name of the submodule; empty for the module's own.
    pub name: String,
    /// How many.
    pub count: u64,
    /// Bytes on this rank.
    pub bytes: u64,
    /// Equal on ranks with the same names, shapes and types.
    pub digest: String,
}

/// An optimizer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeOptimizer {
    /// Class with module.
    pub class: String,
    /// Parameters in its groups.
    pub parameters: u64,
    /// Their bytes by device.
    pub parameter_bytes: BTreeMap<String, u64>,
    /// Bytes of its state by device; empty before its first step.
    pub state_bytes: BTreeMap<String, u64>,
    /// Parameters of it that no module has.
    pub stray: u64,
}

/// An allocation failed on this rank.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeOom {
    /// Calls of `step` so far.
    pub n: u64,
    /// The last training step.
    pub step: u64,
    /// The phase.
    pub phase: Option<String>,
    /// CUDA ordinal.
    pub device: Option<u32>,
    /// Bytes asked for.
    pub wanted: Option<Bytes>,
    /// Capacity of the device.
    pub total: Option<Bytes>,
    /// Free on the device.
    pub free: Option<Bytes>,
    /// The exception's text.
    pub message: Option<String>,
    /// The text belongs to the failure recorded before.
    pub same: bool,
    /// `memory_stats`, flat.
    pub stats: BTreeMap<String, i64>,
    /// Name of the snapshot beside the log.
    pub snapshot: Option<String>,
}

/// A snapshot was written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeSnapshot {
    /// Calls of `step` so far.
    pub n: u64,
    /// The last training step.
    pub step: u64,
    /// Its name beside the log.
    pub file: Option<String>,
}

/// The process ended in order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeEnd {
    /// Calls of `step`.
    pub n: u64,
    /// Calls of `step` in training.
    pub train_steps: u64,
    /// Memory since the last reading.
    pub mem: Option<ProbeMemory>,
}

/// Heads a batch that is sent: which lines of which process follow. Lines are known by `source` and `seq`, so that
/// what is sent twice counts once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeBatch {
    /// `rankscope.probe/1`.
    pub format: String,
    /// Names the process: job, host, PID and start.
    pub source: String,
    /// Global rank.
    pub rank: Option<Rank>,
    /// `seq` of the first line.
    pub first: u64,
    /// `seq` of the last line.
    pub last: u64,
}

/// What a probe log says of one process beyond its steps and failures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeEvidence {
    /// The `start` record.
    pub at: Provenance,
    /// Global rank.
    pub rank: Rank,
    /// Who and where.
    pub start: ProbeStart,
    /// The latest facts; of each list the latest that was not empty, because objects are gone when a program ends.
    #[serde(default)]
    pub facts: Option<ProbeFacts>,
    /// The latest `facts` record.
    #[serde(default)]
    pub facts_at: Option<Provenance>,
    /// Where each kind of phase was met first.
    #[serde(default)]
    pub phases: Vec<(Phase, Provenance)>,
    /// Calls of `step` in training.
    #[serde(default)]
    pub train_steps: u64,
    /// It ended in order; otherwise it was killed, or still runs.
    #[serde(default)]
    pub ended: bool,
}

impl ProbeTensors {
    /// Bytes on all devices but the CPU.
    pub fn on_devices(&self) -> u64 {
        on_devices(&self.bytes)
    }
}

impl ProbeOptimizer {
    /// Bytes of state on all devices.
    pub fn state(&self) -> u64 {
        self.state_bytes.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Bytes of state on all devices but the CPU.
    pub fn state_on_devices(&self) -> u64 {
        on_devices(&self.state_bytes)
    }
}

fn on_devices(bytes: &BTreeMap<String, u64>) -> u64 {
    let devices = bytes.iter().filter(|(device, _)| *device != "cpu" && *device != "meta");
    devices.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_and_types_are_passed_over() {
        let step: ProbeRecord =
            serde_json::from_str(r#"{"type":"step","seq":4,"n":3,"step":2,"phase":"train","colour":"red"}"#).unwrap();
        assert!(matches!(step, ProbeRecord::Step(ProbeStep { n: 3, step: 2, .. })));
        let later: ProbeRecord = serde_json::from_str(r#"{"type":"hologram","seq":4}"#).unwrap();
        assert_eq!(later, ProbeRecord::Unknown);
    }

    #[test]
    fn state_on_the_cpu_is_not_on_a_device() {
        let optimizer = ProbeOptimizer {
            state_bytes: [("cpu".to_owned(), 5), ("cuda:0".to_owned(), 7)].into(),
            ..Default::default()
        };
        assert_eq!((optimizer.state(), optimizer.state_on_devices()), (12, 7));
    }
}
