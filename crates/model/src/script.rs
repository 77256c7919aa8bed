//! What a training script does, as facts in the order in which a process would run into them.
//!
//! Filled by a reader that walks the syntax tree and never runs anything; read by the rules. Knows no parser and
//! no cause.

use crate::artifact::Provenance;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What was understood of one Python file or notebook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScriptEvidence {
    /// The file, line 1.
    pub at: Provenance,
    /// Frameworks it uses, ascending, each once.
    #[serde(default)]
    pub frameworks: Vec<Framework>,
    /// How its processes are started, as far as the script tells; ascending, each once.
    #[serde(default)]
    pub launchers: Vec<Launcher>,
    /// The file is run, not only imported: it has a main guard, or does at top level what programs do and modules do
    /// not (train, start processes, bind a GPU, wrap a model, build an optimizer, call `main()`).
    pub is_entry: bool,
    /// The whole file was understood. `false` after a syntax error or when a bound was met: then the absence of a
    /// fact says nothing.
    pub is_whole: bool,
    /// In source order.
    pub facts: Vec<ScriptFact>,
    /// Lines beside those of the facts, by their 1-based number, cut to [`Provenance::QUOTE_CHARS`]: for reading, nothing
    /// is concluded from them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub margins: BTreeMap<u64, String>,
}

/// One thing that the script does at one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScriptFact {
    /// The line, with its text.
    pub at: Provenance,
    /// What is done.
    #[serde(flatten)]
    pub what: Fact,
    /// The enclosing function, `Trainer.fit` for methods; `None` at top level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The condition under which it is done, if one matters. Where a function is called from several places, the
    /// weakest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guard>,
    /// The innermost loop around it, calls included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_loop: Option<LoopKind>,
    /// Where in the flow of which process.
    pub flow: Flow,
}

impl ScriptFact {
    /// What is done, without its details.
    pub fn kind(&self) -> FactKind {
        self.what.kind()
    }

    /// Done by one rank (or some ranks) only.
    pub fn is_rank_only(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.kind.is_rank_only())
    }
}

/// Position in the flow of calls. Positions of different roots cannot be ordered, except that what happens on
/// import comes before everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Flow {
    /// Who runs it.
    pub process: FlowProcess,
    /// 0 for the file's top level and what it calls; one number for each function that starts a process, and for
    /// each function that nothing in the file calls.
    pub root: u32,
    /// Ascends with the flow within a root: the body of a function stands where it is first called.
    pub order: u32,
    /// Done whenever the file is imported: at top level and not under the main guard.
    pub on_import: bool,
}

/// Which process runs a part of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowProcess {
    /// The process that runs the file.
    Main,
    /// A training process that the script starts itself (`mp.spawn`, `Process`).
    Spawned,
    /// A pool or loader worker.
    Worker,
    /// A thread of the same process: its current device is GPU 0 again until the thread sets it.
    Thread,
    /// Nothing in the file calls it.
    Uncalled,
}

impl ScriptEvidence {
    /// Lines kept and shown on each side of a place.
    pub const MARGIN_LINES: u64 = 2;

    /// Facts of one kind, in the order of the flow.
    pub fn all(&self, kind: FactKind) -> impl Iterator<Item = &ScriptFact> {
        let mut found: Vec<&ScriptFact> = self.facts.iter().filter(|fact| fact.kind() == kind).collect();
        found.sort_by_key(|fact| fact.flow.order);
        found.into_iter()
    }

    /// The fact of this kind that the flow meets first. Code that nothing calls comes last.
    pub fn first(&self, kind: FactKind) -> Option<&ScriptFact> {
        self.facts.iter().filter(|fact| fact.kind() == kind).min_by_key(|fact| fact.flow.order)
    }

    /// Whether there is a fact of this kind.
    pub fn has(&self, kind: FactKind) -> bool {
        self.facts.iter().any(|fact| fact.kind() == kind)
    }

    /// Whether the script uses this framework.
    pub fn uses(&self, framework: Framework) -> bool {
        self.frameworks.contains(&framework)
    }

    /// Whether a process meets `a` before `b`; `None` where the flow does not tell, for instance because nothing in
    /// the file calls one of them.
    pub fn precedes(a: &ScriptFact, b: &ScriptFact) -> Option<bool> {
        match (a.flow.on_import, b.flow.on_import) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            _ if a.flow.root == b.flow.root => Some(a.flow.order < b.flow.order),
            _ => None,
        }
    }

    /// Whether the job has one process for each GPU, as far as the script tells.
    pub fn is_distributed(&self) -> bool {
        !self.launchers.is_empty()
            || self.has(FactKind::InitProcessGroup)
            || self.has(FactKind::WrapDdp)
            || self.has(FactKind::WrapFsdp)
    }
}

/// Framework that a script uses. A flag is set by use, not by a bare import, where use can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Framework {
    /// `torch` at all.
    Torch,
    /// `DistributedDataParallel`.
    Ddp,
    /// `FullyShardedDataParallel` or `fully_shard`.
    Fsdp,
    /// `torch.nn.DataParallel`.
    DataParallel,
    /// PyTorch Lightning.
    Lightning,
    /// Lightning Fabric.
    LightningFabric,
    /// `Trainer` of transformers, trl, sentence-transformers.
    HfTrainer,
    /// Hugging Face Accelerate.
    Accelerate,
    /// DeepSpeed.
    DeepSpeed,
    /// Horovod.
    Horovod,
    /// TensorFlow.
    TensorFlow,
    /// JAX.
    Jax,
    /// Megatron-LM, Megatron Core, NeMo.
    Megatron,
    /// OpenMMLab (mmcv, mmengine).
    OpenMmlab,
    /// Ray.
    Ray,
    /// mpi4py.
    Mpi,
    /// Pipeline parallelism (`torch.distributed.pipelining`, `PipelineModule`, `Pipe`).
    Pipeline,
    /// Expert parallelism (`MoE` layers).
    MixtureOfExperts,
    /// Sharded embedding tables (torchrec).
    TorchRec,
    /// An inference engine beside the training (vLLM, SGLang).
    InferenceEngine,
}

impl Framework {
    /// The name as its users write it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Torch => "PyTorch",
            Self::Ddp => "DistributedDataParallel",
            Self::Fsdp => "FSDP",
            Self::DataParallel => "DataParallel",
            Self::Lightning => "PyTorch Lightning",
            Self::LightningFabric => "Lightning Fabric",
            Self::HfTrainer => "Hugging Face Trainer",
            Self::Accelerate => "Accelerate",
            Self::DeepSpeed => "DeepSpeed",
            Self::Horovod => "Horovod",
            Self::TensorFlow => "TensorFlow",
            Self::Jax => "JAX",
            Self::Megatron => "Megatron",
            Self::OpenMmlab => "OpenMMLab",
            Self::Ray => "Ray",
            Self::Mpi => "MPI",
            Self::Pipeline => "pipeline parallelism",
            Self::MixtureOfExperts => "mixture of experts",
            Self::TorchRec => "TorchRec",
            Self::InferenceEngine => "inference engine",
        }
    }

    /// The framework itself binds each process to a GPU of its own, and moves the model there.
    pub fn binds_device(self) -> bool {
        matches!(self, Self::Lightning | Self::LightningFabric | Self::HfTrainer | Self::Accelerate)
    }
}

/// How the processes of the job are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Launcher {
    /// The script spawns them (`torch.multiprocessing.spawn`, `Process` in a loop).
    Spawn,
    /// Ranks come from the environment, as `torchrun` sets it.
    Environment,
    /// The rank comes as an argument (`--local_rank`), as `torch.distributed.launch` gives it.
    Argument,
    /// `mpirun`, through mpi4py or `OMPI_COMM_WORLD_*`.
    Mpi,
    /// `SLURM_PROCID` and the like.
    Slurm,
    /// `horovodrun`.
    Horovod,
    /// Ray.
    Ray,
    /// A trainer class starts them (Lightning, notebook launchers).
    Trainer,
}

/// The condition around a fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// What it selects.
    pub kind: GuardKind,
    /// Its line, 1-based.
    pub line: u64,
    /// The condition as written, cut to [`Provenance::QUOTE_CHARS`].
    pub text: String,
}

/// What a condition selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardKind {
    /// Rank 0 or the main process only.
    RankZero,
    /// Local rank 0 only: one process on each node.
    LocalRankZero,
    /// Every rank but 0.
    NotRankZero,
    /// Depends on the rank in another way.
    OtherRank,
    /// The branch of a job that is not distributed.
    SingleProcess,
    /// Any other condition that the data or the arguments decide.
    Condition,
    /// `if __name__ == "__main__"`.
    MainModule,
}

impl GuardKind {
    /// Selects some ranks and not others.
    pub fn is_rank_only(self) -> bool {
        matches!(self, Self::RankZero | Self::LocalRankZero | Self::NotRankZero | Self::OtherRank)
    }
}

/// What a loop runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopKind {
    /// Epochs.
    Epoch,
    /// Batches of a training loader, or training steps.
    TrainBatch,
    /// Batches of an evaluation loader.
    EvalBatch,
    /// Anything else.
    Other,
}

/// A device as the script names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceExpr {
    /// What it comes to.
    pub class: DeviceClass,
    /// As written, cut to [`Provenance::QUOTE_CHARS`].
    pub text: String,
}

/// What a device expression comes to in each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceClass {
    /// Follows the global rank: right on one node only.
    Rank,
    /// Follows the local rank (or the global rank modulo the number of GPUs).
    LocalRank,
    /// Always the same GPU: `0`, `"cuda:1"`.
    Literal(u32),
    /// The current device: `"cuda"`, `.cuda()`. GPU 0 unless it was set.
    Current,
    /// `torch.cuda.current_device()` and the like, asked for by name.
    AskedCurrent,
    /// The host.
    Cpu,
    /// Given by a framework that knows the rank (`accelerator.device`, `self.device`).
    Framework,
    /// Left to the library: `device_map="auto"`.
    Auto,
    /// Cannot be told.
    Unknown,
}

impl DeviceClass {
    /// Differs from process to process.
    pub fn follows_rank(self) -> bool {
        matches!(self, Self::Rank | Self::LocalRank | Self::Framework)
    }

    /// The same GPU in every process that has not chosen its current device.
    pub fn is_shared_default(self) -> bool {
        matches!(self, Self::Literal(_) | Self::Current)
    }
}

impl fmt::Display for DeviceExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

macro_rules! facts {
    ($(
        $(#[$doc:meta])*
        $variant:ident { $( $(#[$field_doc:meta])* $field:ident : $type:ty ),* $(,)? }
    )*) => {
        /// What a script does at a place, with what matters of it.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        pub enum Fact {
            $( $(#[$doc])* $variant { $( $(#[$field_doc])* $field: $type, )* }, )*
        }

        /// The kinds of [`Fact`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum FactKind {
            $( $(#[$doc])* $variant, )*
        }

        impl Fact {
            /// Its kind.
            pub fn kind(&self) -> FactKind {
                match self { $( Self::$variant { .. } => FactKind::$variant, )* }
            }
        }
    };
}

facts! {
    /// The process chooses its GPU.
    SetDevice {
        /// By which means.
        how: SetDeviceHow,
        /// The GPU.
        device: DeviceExpr,
    }
    /// The process group (or the framework's equivalent) is made.
    InitProcessGroup {
        /// Dotted name of what makes it, aliases resolved: `torch.distributed.init_process_group`.
        call: String,
        /// `backend`, if written out.
        backend: Option<String>,
        /// `device_id=`, if given.
        device_id: Option<DeviceExpr>,
        /// The shortest expression for the local rank that is in scope there.
        local_rank: Option<String>,
        /// The call itself binds the process to its GPU (`Accelerator()`, `init_dist` of mmengine).
        binds_device: bool,
    }
    /// Something else initialises CUDA: a query, a synchronisation, a tensor on the GPU.
    CudaCall {
        /// Dotted name, aliases resolved.
        call: String,
        /// The device, where the call names one.
        device: Option<DeviceExpr>,
    }
    /// A model goes to a device.
    ModelToDevice {
        /// The model as written.
        model: String,
        /// Where to.
        device: DeviceExpr,
    }
    /// A tensor or another object goes to a GPU that is the same for every process, or to the current one.
    NamedDevice {
        /// How it is named: `.cuda()`, `.to()`, `device=`, `device_id=`, `device_map=`.
        how: String,
        /// What is placed or called.
        object: String,
        /// Where to.
        device: DeviceExpr,
    }
    /// `DistributedDataParallel`, or a class of the same kind.
    WrapDdp {
        /// Dotted name of the wrapper.
        wrapper: String,
        /// The model as written.
        model: String,
        /// First of `device_ids`, if given.
        device_ids: Option<DeviceExpr>,
    }
    /// `FullyShardedDataParallel` or `fully_shard`.
    WrapFsdp {
        /// Dotted name of the wrapper.
        wrapper: String,
        /// The model as written.
        model: String,
        /// `device_id=`, if given.
        device_id: Option<DeviceExpr>,
        /// `sync_module_states=True`.
        syncs_states: bool,
    }
    /// `torch.nn.DataParallel`.
    DataParallel {
        /// The model as written.
        model: String,
    }
    /// An optimizer is built.
    OptimizerBuilt {
        /// Dotted name of its class.
        class: String,
        /// The models whose parameters it takes, as written.
        models: Vec<String>,
        /// A sharding optimizer (`ZeroRedundancyOptimizer`, DeepSpeed ZeRO).
        sharded: bool,
    }
    /// `torch.load`.
    TorchLoad {
        /// Where the tensors are revived.
        map_location: MapLocation,
        /// The file as written.
        path: String,
        /// The names the state goes to with `load_state_dict`, as written.
        into: Vec<String>,
    }
    /// A sampler that gives each rank its own part.
    DistributedSampler {
        /// Dotted name of its class.
        class: String,
        /// It is given to a loader (or to a batch sampler, or handed on).
        reaches_loader: bool,
        /// `shuffle=`, if written out.
        shuffle: Option<bool>,
        /// `drop_last=`, if written out.
        drop_last: Option<bool>,
        /// `set_epoch` is called on it.
        has_set_epoch: bool,
    }
    /// A `DataLoader`.
    DataLoader {
        /// What deals the samples.
        sampler: SamplerUse,
        /// What it is for, by its name and data set.
        role: LoaderRole,
        /// The data set as written.
        dataset: String,
        /// `shuffle=`, if written out.
        shuffle: Option<bool>,
        /// `drop_last=`, if written out.
        drop_last: Option<bool>,
        /// `num_workers=`, if a number.
        num_workers: Option<u32>,
        /// `batch_size=` as written.
        batch_size: Option<String>,
        /// `collate_fn=` as written.
        collate: Option<String>,
    }
    /// `set_epoch` of a sampler, a batch sampler or a data set.
    SetEpoch {
        /// On what, as written.
        object: String,
        /// Within a loop over epochs.
        in_epoch_loop: bool,
    }
    /// A loop over epochs.
    EpochLoop {
        /// The loop variable; empty for `while`.
        variable: String,
    }
    /// A branch that only some ranks take, and what is done there.
    RankBranch {
        /// The work found inside, calls followed; ascending, each once. Empty for printing and the like.
        work: Vec<RankWork>,
    }
    /// Evaluation: a loop over evaluation batches, or a call of something that is named so.
    EvalLoop {
        /// What shows it: the loop or the call as written.
        what: String,
        /// Within `no_grad` or `inference_mode`, as far as can be seen.
        no_grad: bool,
        /// The loader it runs over has a distributed sampler; `None` where that is not known.
        sharded: Option<bool>,
    }
    /// A collective that pickles Python objects.
    ObjectCollective {
        /// Dotted name.
        call: String,
        /// The object as written.
        payload: String,
        /// Whether CUDA tensors are inside, as far as can be seen.
        on_gpu: Option<bool>,
    }
    /// A collective that gathers tensors of all ranks on one or on all of them.
    TensorGather {
        /// Dotted name.
        call: String,
        /// The tensor as written.
        payload: String,
    }
    /// Something grows with every iteration of a loop and keeps tensors.
    Accumulation {
        /// What grows, as written.
        target: String,
        /// What is added, as written.
        value: String,
        /// What is kept alive.
        keeps: Kept,
        /// In a loop over training batches (and not under `no_grad`).
        training: bool,
        /// It is emptied again within the outer loop (or is local to the function that grows it).
        is_reset: bool,
    }
    /// `register_buffer`, or a big tensor that is kept as an attribute.
    RegisterBuffer {
        /// The buffer's name.
        name: String,
        /// Its size, where the shape is written out.
        bytes: Option<Bytes>,
        /// The value as written.
        value: String,
        /// A plain tensor attribute, not a registered buffer.
        is_plain: bool,
    }
    /// `no_sync()`: gradient accumulation without communication.
    NoSync {
        /// On what, as written.
        object: String,
    }
    /// Gradient accumulation: the optimizer steps only every so many batches, or an option says so.
    GradAccumulation {
        /// The condition or option as written.
        what: String,
    }
    /// Activation checkpointing.
    Checkpointing {
        /// Dotted name or option.
        call: String,
    }
    /// `torch.cuda.empty_cache()`.
    EmptyCache {}
    /// A pool or loader worker touches CUDA, or lives in a process that has.
    WorkerCuda {
        /// Which code runs in the worker: `MeshDataset.__getitem__`, `collate`, `pool target work`.
        worker: String,
        /// What it does.
        call: String,
    }
    /// State is saved.
    SaveState {
        /// Dotted name.
        call: String,
        /// What is saved, as written.
        what: String,
        /// The optimizer's state is in it.
        with_optimizer: bool,
        /// It is moved to the host first, as far as can be seen.
        on_cpu: Option<bool>,
    }
    /// The full state of a sharded model is gathered.
    FullStateDict {
        /// Dotted name or option.
        call: String,
        /// Offloaded to the host while it is gathered, if written out.
        offload_to_cpu: Option<bool>,
        /// On rank 0 only, if written out.
        rank0_only: Option<bool>,
    }
    /// A second copy of the model's weights (EMA, target network, frozen reference).
    ModelCopy {
        /// As written.
        what: String,
        /// Where it is made and kept.
        #[serde(default)]
        place: CopyPlace,
    }
    /// Samples are drawn, text is generated, or images are logged.
    Sampling {
        /// Dotted name.
        call: String,
    }
    /// The model is traced or exported.
    GraphTrace {
        /// Dotted name.
        call: String,
    }
    /// A trainer object that owns the loop is configured.
    TrainerBuilt {
        /// Dotted name of the class.
        class: String,
        /// Its keyword arguments as written, those that bear on memory and devices.
        options: Vec<(String, String)>,
    }
    /// Processes are started by the script.
    Spawn {
        /// Dotted name.
        call: String,
        /// The function they run.
        target: String,
    }
    /// Memory is taken on demand instead of at start (`allow_growth`, `set_memory_growth`,
    /// `XLA_PYTHON_CLIENT_PREALLOCATE=false`), or a share is set.
    MemoryGrowth {
        /// As written.
        what: String,
        /// The whole card is not taken at start.
        on_demand: bool,
    }
    /// `PYTORCH_CUDA_ALLOC_CONF`.
    AllocatorConfig {
        /// Its value.
        value: String,
    }
    /// A CUDA stream beside the default one, or `record_stream`.
    SideStream {
        /// As written.
        what: String,
    }
    /// `torch.backends.cudnn.benchmark = True`.
    CudnnBenchmark {}
    /// The weights are made or loaded on some ranks only, the others start empty.
    RankDependentInit {
        /// What the selected ranks do.
        what: String,
    }
    /// An inference engine or a second model owner is built in the same job.
    EngineBuilt {
        /// Dotted name.
        call: String,
        /// Its share of the card, if written out.
        memory_share: Option<String>,
    }
    /// A function of another file of the project is called.
    CallsImported {
        /// The module as imported.
        module: String,
        /// The function or class.
        name: String,
    }
}

/// How a process chooses its GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetDeviceHow {
    /// `torch.cuda.set_device`.
    SetDevice,
    /// `with torch.cuda.device(...)`: only inside the block.
    WithDevice,
    /// `CUDA_VISIBLE_DEVICES` is set in `os.environ`: works only before CUDA is initialised.
    VisibleDevices,
    /// `tf.config.set_visible_devices`, `visible_device_list`.
    TensorFlow,
}

/// Where `torch.load` revives tensors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MapLocation {
    /// Not given: on the GPU they were saved from.
    Absent,
    /// On the host.
    Cpu,
    /// On the process's own GPU.
    Rank(DeviceExpr),
    /// On a GPU that is the same for every process, or on the current one.
    Shared(DeviceExpr),
    /// Cannot be told.
    Other(String),
}

/// What deals the samples of a loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SamplerUse {
    /// None: every rank would go through the whole data set, unless a framework replaces the sampler.
    Absent,
    /// A distributed sampler.
    Distributed,
    /// A sampler or batch sampler whose dealing is not known.
    Other,
    /// A sampler that is known to know nothing of ranks (`RandomSampler`, ...).
    NotDistributed,
    /// A framework's call prepares the loader (`accelerator.prepare`, `fabric.setup_dataloaders`).
    Framework,
}

/// What a loader is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoaderRole {
    /// Training.
    Train,
    /// Validation or test.
    Eval,
    /// Its name does not tell.
    Unknown,
}

/// Where a copy of the weights is made and kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyPlace {
    /// Where the model is: on its GPU, once it was moved there.
    #[default]
    WithModel,
    /// Made where the model is, as a whole, and only then moved to the host: `copy.deepcopy(model).cpu()`. The GPU holds
    /// both for a moment.
    ThroughGpu,
    /// On the host, tensor by tensor: nothing is allocated on the GPU for it.
    Host,
}

/// Work that one rank may do on top of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankWork {
    /// Evaluation.
    Eval,
    /// A gather of tensors.
    TensorGather,
    /// A gather of Python objects.
    ObjectGather,
    /// A save of state.
    Save,
    /// The full state of a sharded model is gathered.
    FullStateDict,
    /// A second copy of the weights.
    ModelCopy,
    /// Sampling, generation, logging of images.
    Sampling,
    /// A trace or an export of the model.
    GraphTrace,
    /// A checkpoint is loaded.
    Load,
    /// Tensors pile up.
    Accumulation,
    /// A buffer is made.
    Buffer,
    /// Something is put on a GPU.
    Placement,
    /// A second copy of the weights, in the memory of the host.
    HostCopy,
    /// Activation checkpointing: what the rank keeps for the backward pass differs.
    Checkpointing,
    /// Gradient accumulation, or a step without communication.
    GradAccumulation,
    /// The model is run.
    Forward,
    /// The model or a loader is handed to code that was not read.
    Elsewhere,
}

impl RankWork {
    /// A few words.
    pub fn title(self) -> &'static str {
        match self {
            Self::Eval => "evaluation",
            Self::TensorGather => "gathering of tensors",
            Self::ObjectGather => "gathering of Python objects",
            Self::Save => "saving",
            Self::FullStateDict => "gathering of the full state",
            Self::ModelCopy => "a copy of the weights",
            Self::Sampling => "sampling",
            Self::GraphTrace => "a graph trace",
            Self::Load => "loading of a checkpoint",
            Self::Accumulation => "accumulation of tensors",
            Self::Buffer => "a buffer",
            Self::Placement => "placement on a GPU",
            Self::HostCopy => "a copy of the weights in host memory",
            Self::Checkpointing => "activation checkpointing",
            Self::GradAccumulation => "gradient accumulation",
            Self::Forward => "a forward pass",
            Self::Elsewhere => "a call of code that was not read, with the model or a loader",
        }
    }
}

/// What an accumulation keeps alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// The graph of every iteration, with its activations.
    Graph,
    /// Tensors on the GPU without their graph.
    GpuTensors,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::ArtifactId;

    fn fact(line: u64, what: Fact, flow: Flow) -> ScriptFact {
        let at = Provenance::line(ArtifactId(0), line, "x");
        ScriptFact { at, what, function: None, guard: None, in_loop: None, flow }
    }

    fn flow(root: u32, order: u32, on_import: bool) -> Flow {
        Flow { process: FlowProcess::Main, root, order, on_import }
    }

    #[test]
    fn before_and_after_are_told_only_within_one_flow() {
        let init = Fact::SetDevice {
            how: SetDeviceHow::SetDevice,
            device: DeviceExpr { class: DeviceClass::LocalRank, text: "local_rank".into() },
        };
        let import = fact(1, Fact::EmptyCache {}, flow(0, 0, true));
        let late = fact(3, Fact::EmptyCache {}, flow(1, 9, false));
        let early = fact(9, init, flow(1, 4, false));
        let elsewhere = fact(12, Fact::EmptyCache {}, flow(2, 11, false));
        assert_eq!(ScriptEvidence::precedes(&early, &late), Some(true));
        assert_eq!(ScriptEvidence::precedes(&late, &early), Some(false));
        assert_eq!(ScriptEvidence::precedes(&import, &early), Some(true));
        assert_eq!(ScriptEvidence::precedes(&early, &import), Some(false));
        assert_eq!(ScriptEvidence::precedes(&early, &elsewhere), None);

        let script = ScriptEvidence {
            at: Provenance::line(ArtifactId(0), 1, ""),
            frameworks: vec![Framework::Torch],
            launchers: vec![],
            is_entry: true,
            is_whole: true,
            facts: vec![late, early, elsewhere],
            margins: BTreeMap::new(),
        };
        assert_eq!(script.first(FactKind::EmptyCache).unwrap().at.place, crate::Place::Line(3));
        assert!(script.first(FactKind::TorchLoad).is_none());
        assert!(!script.is_distributed(), "binding a device alone does not make a job of many processes");
    }

    #[test]
    fn facts_survive_json_with_their_kind_beside_them() {
        let device = DeviceExpr { class: DeviceClass::Literal(0), text: "cuda:0".into() };
        let load = Fact::TorchLoad { map_location: MapLocation::Shared(device), path: "p".into(), into: vec![] };
        let before = fact(7, load, flow(0, 2, false));
        let json = serde_json::to_value(&before).unwrap();
        assert_eq!(json["kind"], "torch_load");
        assert_eq!(json["map_location"]["shared"]["class"]["literal"], 0);
        assert_eq!(serde_json::from_value::<ScriptFact>(json).unwrap(), before);
        let empty = fact(8, Fact::EmptyCache {}, flow(0, 3, false));
        let text = serde_json::to_string(&empty).unwrap();
        assert_eq!(serde_json::from_str::<ScriptFact>(&text).unwrap(), empty);
    }
}
