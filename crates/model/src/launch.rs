//! How a job was started: what environment, command lines and configuration files say about ranks, GPUs and batches.
//!
//! Only settings of a closed list are kept, so that nothing else of an environment (keys, tokens) ever gets here.

use crate::artifact::Provenance;
use crate::units::Rank;
use serde::{Deserialize, Serialize};

/// What one file says about the launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchEvidence {
    /// The first setting.
    pub at: Provenance,
    /// What kind of text it stood in.
    pub source: LaunchSource,
    /// The settings, in the order of the file.
    pub facts: Vec<LaunchFact>,
}

/// What a setting stood in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchSource {
    /// `env`, `printenv`, `/proc/PID/environ`.
    Environment,
    /// A shell or batch script.
    Script,
    /// A configuration file of accelerate.
    AccelerateConfig,
    /// A configuration file of DeepSpeed.
    DeepspeedConfig,
    /// What a program printed while it ran.
    Log,
    /// Command lines of processes that ran, as `ps` lists them: those of all jobs on the machine.
    ProcessList,
}

/// One setting and where it was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchFact {
    /// The line. Values that look like secrets are masked in its quote.
    pub at: Provenance,
    /// The process that it holds for, where one is named.
    #[serde(default)]
    pub rank: Option<Rank>,
    /// Facts with the same number belong to one command line; 0 is the file as a whole.
    #[serde(default)]
    pub command: u32,
    /// The setting.
    pub what: LaunchSetting,
}

/// A setting with its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "setting", content = "value", rename_all = "snake_case")]
pub enum LaunchSetting {
    /// What starts the processes.
    Starter(Starter),
    /// The program that is started, as written: `train.py`, `-m pkg.train`.
    Program(String),
    /// Ranks of the whole job.
    WorldSize(u32),
    /// Nodes of the job.
    Nodes(u32),
    /// Processes on each node.
    ProcessesPerNode(u32),
    /// One process for each GPU of the node (`--nproc_per_node=gpu`).
    ProcessPerGpu,
    /// GPUs that each node gives to the job.
    GpusPerNode(u32),
    /// GPUs that each process gets for itself (`--gpus-per-task`).
    GpusPerProcess(u32),
    /// The global rank of the process itself.
    Rank(u32),
    /// Its rank on the node.
    LocalRank(u32),
    /// The visible devices, as written: indices, UUIDs or nothing.
    VisibleDevices(Vec<String>),
    /// Ray leaves the visible devices alone: every actor sees every GPU.
    VisibleDevicesLeftAlone,
    /// Settings of PyTorch's caching allocator.
    AllocatorConf(String),
    /// The framework takes memory in advance (`true`) or grows on demand.
    Preallocates(bool),
    /// Share of a card that a framework or an inference engine takes for itself.
    MemoryShare(f64),
    /// An inference engine is started, or used by the training.
    InferenceEngine(String),
    /// DeepSpeed's ZeRO stage.
    ZeroStage(u32),
    /// Where DeepSpeed keeps the optimizer state: `cpu`, `nvme`, `none`.
    OffloadOptimizer(String),
    /// Where DeepSpeed keeps the parameters.
    OffloadParameters(String),
    /// All weights are gathered on one rank when the model is saved (ZeRO stage 3).
    GathersWeightsOnSave(bool),
    /// What FSDP writes when it saves: `FULL_STATE_DICT`, `SHARDED_STATE_DICT`.
    StateDictType(String),
    /// How FSDP shards.
    ShardingStrategy(String),
    /// Samples of one process and one forward pass.
    MicroBatch(u32),
    /// Samples of all ranks and one optimizer step.
    GlobalBatch(u32),
    /// Forward passes for one optimizer step.
    Accumulation(u32),
    /// Ranks that share one layer.
    TensorParallel(u32),
    /// Pipeline stages.
    PipelineParallel(u32),
    /// The number format of training.
    MixedPrecision(String),
    /// PyTorch's own warning that a visible GPU is smaller or slower than another one.
    UnequalGpus {
        /// The lesser one, as the process counts.
        lesser: u32,
        /// The other one.
        other: u32,
    },
    /// The physical GPU that a process works on, by its PCI bus id, with `@` and the host behind it where the line names
    /// one; once for each GPU of the process.
    PhysicalGpu(String),
    /// The GPU that a process has made its current one, as it counts the GPUs that it sees.
    CurrentDevice(u32),
    /// NCCL's own error that two ranks of one communicator sit on the same GPU.
    SharedGpu {
        /// One rank.
        one: u32,
        /// The other one.
        other: u32,
    },
    /// What accelerate is told to use: `MULTI_GPU`, `FSDP`, `DEEPSPEED`, `NO`.
    DistributedType(String),
    /// Another variable that changes memory, by name and value (`NCCL_BUFFSIZE`).
    Variable {
        /// Name.
        name: String,
        /// Value as written.
        value: String,
    },
}

/// A program that starts processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Starter {
    /// `torchrun`, `python -m torch.distributed.run` or `.launch`.
    Torchrun,
    /// `accelerate launch`.
    Accelerate,
    /// `deepspeed`.
    Deepspeed,
    /// `mpirun`, `mpiexec`.
    Mpi,
    /// `srun`.
    Srun,
    /// `horovodrun`.
    Horovod,
    /// `ray`.
    Ray,
    /// No launcher: `python train.py`.
    Python,
}

impl Starter {
    /// As people write it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Torchrun => "torchrun",
            Self::Accelerate => "accelerate launch",
            Self::Deepspeed => "deepspeed",
            Self::Mpi => "mpirun",
            Self::Srun => "srun",
            Self::Horovod => "horovodrun",
            Self::Ray => "ray",
            Self::Python => "python",
        }
    }
}

impl LaunchSetting {
    /// The words for readers: `world size`, `visible devices`, ...
    pub fn title(&self) -> &str {
        match self {
            Self::Starter(_) => "launcher",
            Self::Program(_) => "program",
            Self::WorldSize(_) => "world size",
            Self::Nodes(_) => "nodes",
            Self::ProcessesPerNode(_) => "processes per node",
            Self::ProcessPerGpu => "one process per GPU",
            Self::GpusPerNode(_) => "GPUs per node",
            Self::GpusPerProcess(_) => "GPUs per process",
            Self::Rank(_) => "rank",
            Self::LocalRank(_) => "local rank",
            Self::VisibleDevices(_) => "visible devices",
            Self::VisibleDevicesLeftAlone => "visible devices left alone",
            Self::AllocatorConf(_) => "allocator settings",
            Self::Preallocates(_) => "pre-allocation",
            Self::MemoryShare(_) => "share of the card",
            Self::InferenceEngine(_) => "inference engine",
            Self::ZeroStage(_) => "ZeRO stage",
            Self::OffloadOptimizer(_) => "optimizer offload",
            Self::OffloadParameters(_) => "parameter offload",
            Self::GathersWeightsOnSave(_) => "weights gathered on save",
            Self::StateDictType(_) => "state dict type",
            Self::ShardingStrategy(_) => "sharding strategy",
            Self::MicroBatch(_) => "micro batch",
            Self::GlobalBatch(_) => "global batch",
            Self::Accumulation(_) => "gradient accumulation",
            Self::TensorParallel(_) => "tensor parallel size",
            Self::PipelineParallel(_) => "pipeline parallel size",
            Self::MixedPrecision(_) => "mixed precision",
            Self::UnequalGpus { .. } => "unequal GPUs",
            Self::PhysicalGpu(_) => "physical GPU",
            Self::CurrentDevice(_) => "current device",
            Self::SharedGpu { .. } => "GPU shared by two ranks",
            Self::DistributedType(_) => "distributed type",
            Self::Variable { name, .. } => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::ArtifactId;

    #[test]
    fn settings_read_as_a_name_and_a_value() {
        let json = |setting: &LaunchSetting| serde_json::to_string(setting).unwrap();
        assert_eq!(json(&LaunchSetting::ZeroStage(3)), r#"{"setting":"zero_stage","value":3}"#);
        assert_eq!(json(&LaunchSetting::ProcessPerGpu), r#"{"setting":"process_per_gpu"}"#);
        assert_eq!(json(&LaunchSetting::Starter(Starter::Mpi)), r#"{"setting":"starter","value":"mpi"}"#);
    }

    #[test]
    fn a_fact_survives_the_way_through_json() {
        let fact = LaunchFact {
            at: Provenance::line(ArtifactId(0), 3, "NCCL_BUFFSIZE=4194304"),
            rank: Some(Rank(2)),
            command: 1,
            what: LaunchSetting::Variable { name: "NCCL_BUFFSIZE".into(), value: "4194304".into() },
        };
        let text = serde_json::to_string(&fact).unwrap();
        assert_eq!(serde_json::from_str::<LaunchFact>(&text).unwrap(), fact);
    }
}
