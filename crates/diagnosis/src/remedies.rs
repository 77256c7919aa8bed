//! What to do about each cause: text and, where a change of code or of a command is known, a blank line and lines that
//! start with a space or `+`.
//!
//! Lines to remove are the user's own or none: `fixes.rs` makes those. Never a smaller batch, gradient accumulation, a
//! memory cap or swap: they hide a difference, they do not cure it.

use crate::case::Case;
use crate::trainers;
use rankscope_model::{CauseLabel, FactKind, Framework, Item, LaunchSetting, Launcher, Starter, Subject};
use std::collections::BTreeSet;

/// What is known of the job that a remedy has to fit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setting {
    /// GPUs that the job works on, or all of the node, where something counts them.
    cards: Option<usize>,
    /// Those that the job works on, where the node has more.
    working: Vec<u32>,
    /// GPUs other than those that stand out; empty where nobody does.
    others: Vec<u32>,
    frameworks: BTreeSet<Framework>,
    /// How a process learns its local rank.
    by: By,
    /// What touches CUDA beside the ranks is a pool of processes, no loader.
    has_pool: bool,
    /// Memory settings that the job has already: of its environment by name, and of PyTorch's allocator as written.
    variables: BTreeSet<String>,
    allocator: Vec<String>,
}

/// What tells a process its local rank.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum By {
    /// `LOCAL_RANK`, as torchrun and most launchers set it.
    #[default]
    Environment,
    Horovod,
    Mpi,
    Slurm,
    /// An actor of Ray, which shows it its own GPU alone: that is GPU 0 in it.
    RayActor,
    /// An actor of Ray that sees every GPU, because Ray is told to leave the visible devices alone.
    RayActorSeesAll,
}

impl Setting {
    /// Reads tables, scripts, launch settings and stacks.
    pub fn new(case: &Case) -> Self {
        let evidence = case.evidence;
        let launches = || evidence.launches.iter().flat_map(|launch| &launch.facts).map(|fact| &fact.what);
        let indices: BTreeSet<u32> = case
            .focus()
            .into_iter()
            .flat_map(|(_, view)| &view.gpus)
            .filter_map(|gpu| if matches!(gpu.subject, Subject::Device(_)) { gpu.subject.device() } else { None })
            .collect();
        let in_use: BTreeSet<u32> = case
            .focus()
            .into_iter()
            .flat_map(|(_, view)| view.in_use(case.policy))
            .filter_map(|gpu| if matches!(gpu.subject, Subject::Device(_)) { gpu.subject.device() } else { None })
            .collect();
        let is_part = in_use.len() >= 2 && in_use.len() < indices.len();
        let told = launches().find_map(|setting| match setting {
            LaunchSetting::GpusPerNode(n) | LaunchSetting::ProcessesPerNode(n) => usize::try_from(*n).ok(),
            _ => None,
        });
        let linked = evidence.topologies.iter().map(|topology| topology.gpus.len()).max();
        let heavy: Vec<Subject> = case.main.iter().flat_map(|(_, spread)| spread.heaviest.iter().copied()).collect();
        let is_other = |index: &u32| !heavy.contains(&Subject::Device(*index));
        let stands_out = indices.iter().any(|index| !is_other(index));
        // A job that works on one other card has no use for the free ones.
        let own: Vec<u32> = in_use.iter().copied().filter(is_other).collect();
        let others = match own.as_slice() {
            [_] if in_use.len() == 2 => own,
            _ => indices.iter().copied().filter(is_other).collect(),
        };
        Self {
            cards: Some(if is_part { in_use.len() } else { indices.len() })
                .filter(|n| *n > 0)
                .or(linked)
                .or(told)
                .filter(|n| *n > 0),
            working: if is_part { in_use.into_iter().collect() } else { Vec::new() },
            others: if stands_out { others } else { Vec::new() },
            has_pool: case.scripts.has(FactKind::WorkerCuda) && !case.scripts.has(FactKind::DataLoader),
            frameworks: frameworks(case),
            by: by(case),
            variables: launches()
                .filter_map(|setting| match setting {
                    LaunchSetting::Variable { name, .. } => Some(name.clone()),
                    _ => None,
                })
                .collect(),
            allocator: case.allocator_settings().map(|(value, _)| value.to_owned()).collect(),
        }
    }

    /// The line that sets what of `wanted` the job does not set yet; nothing when it sets all.
    fn export(&self, wanted: &[(&str, &str)]) -> String {
        let missing: Vec<String> = wanted
            .iter()
            .filter(|(name, _)| !self.variables.contains(*name))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if missing.is_empty() { String::new() } else { format!("+ export {}", missing.join(" ")) }
    }

    fn expands_segments(&self) -> bool {
        self.allocator.iter().any(|value| expands_segments(value))
    }

    fn uses(&self, framework: Framework) -> bool {
        self.frameworks.contains(&framework)
    }

    /// The number of processes to start: as many as there are GPUs, which the launcher counts where nobody else has.
    fn processes(&self) -> String {
        self.cards.map_or_else(|| "gpu".to_owned(), |n| n.to_string())
    }

    /// The local rank as an expression.
    fn local_rank(&self) -> &'static str {
        match self.by {
            By::Environment => "int(os.environ[\"LOCAL_RANK\"])",
            By::Horovod => "hvd.local_rank()",
            By::Mpi => "int(os.environ[\"OMPI_COMM_WORLD_LOCAL_RANK\"])",
            By::Slurm => "int(os.environ[\"SLURM_LOCALID\"])",
            By::RayActor => "0",
            By::RayActorSeesAll => "int(ray.get_gpu_ids()[0])",
        }
    }

    /// The same as text, for the environment.
    fn local_rank_text(&self) -> String {
        match self.by {
            By::Horovod => return "str(hvd.local_rank())".to_owned(),
            // The physical number, whichever of them the actor sees.
            By::RayActor | By::RayActorSeesAll => return "str(ray.get_gpu_ids()[0])".to_owned(),
            By::Environment | By::Mpi | By::Slurm => {}
        }
        let number = self.local_rank();
        number.strip_prefix("int(").and_then(|rest| rest.strip_suffix(')')).unwrap_or(number).to_owned()
    }

    /// The line that shows the job the cards that do not stand out; nothing when none is left.
    fn show_other_cards(&self) -> Option<String> {
        let list: Vec<String> = self.others.iter().map(u32::to_string).collect();
        let note = match list.len() {
            0 => return None,
            1 => "that card alone; it is cuda:0 then",
            _ => "and as many processes",
        };
        Some(format!("+ export CUDA_VISIBLE_DEVICES={}  # {note}", list.join(",")))
    }

    /// The shell's lines that start one process for each card that the job works on.
    fn launch(&self) -> String {
        let list: Vec<String> = self.working.iter().map(u32::to_string).collect();
        let show =
            if list.is_empty() { String::new() } else { format!("+ export CUDA_VISIBLE_DEVICES={}\n", list.join(",")) };
        format!("{show}+ torchrun --nproc_per_node={} train.py", self.processes())
    }
}

/// Whether a value of `PYTORCH_CUDA_ALLOC_CONF` lets segments grow.
pub(crate) fn expands_segments(value: &str) -> bool {
    value.split(',').any(|pair| {
        pair.split_once(':').is_some_and(|(key, on)| key.trim() == "expandable_segments" && on.trim() == "True")
    })
}

fn frameworks(case: &Case) -> BTreeSet<Framework> {
    let evidence = case.evidence;
    let mut found: BTreeSet<Framework> =
        evidence.scripts.iter().flat_map(|script| script.frameworks.iter().copied()).collect();
    // A configuration of DeepSpeed that merely lies beside a script: something in the job must read it.
    let reads_configuration = [Framework::DeepSpeed, Framework::HfTrainer, Framework::Lightning, Framework::Accelerate];
    let is_read = evidence.scripts.is_empty() || reads_configuration.iter().any(|framework| found.contains(framework));
    for setting in evidence.launches.iter().flat_map(|launch| &launch.facts).map(|fact| &fact.what) {
        found.extend(match setting {
            LaunchSetting::ShardingStrategy(_) | LaunchSetting::StateDictType(_) => Some(Framework::Fsdp),
            LaunchSetting::DistributedType(kind) if kind.eq_ignore_ascii_case("fsdp") => Some(Framework::Fsdp),
            LaunchSetting::ZeroStage(_)
            | LaunchSetting::GathersWeightsOnSave(_)
            | LaunchSetting::OffloadOptimizer(_)
            | LaunchSetting::OffloadParameters(_)
                if is_read =>
            {
                Some(Framework::DeepSpeed)
            }
            LaunchSetting::Starter(Starter::Deepspeed) => Some(Framework::DeepSpeed),
            LaunchSetting::Starter(Starter::Horovod) => Some(Framework::Horovod),
            _ => None,
        });
    }
    for frame in evidence.ooms.iter().flat_map(|oom| &oom.frames) {
        let file = frame.file.replace('\\', "/");
        let signs = [
            ("/fsdp/", Framework::Fsdp),
            ("fully_sharded_data_parallel", Framework::Fsdp),
            ("/deepspeed/", Framework::DeepSpeed),
            ("/horovod/", Framework::Horovod),
            ("/lightning/", Framework::Lightning),
            ("/pytorch_lightning/", Framework::Lightning),
        ];
        found.extend(signs.iter().filter(|(part, _)| file.contains(part)).map(|(_, framework)| *framework));
    }
    found
}

fn by(case: &Case) -> By {
    let launches = || case.evidence.launches.iter().flat_map(|launch| &launch.facts).map(|fact| &fact.what);
    let starters = || {
        launches().filter_map(|setting| match setting {
            LaunchSetting::Starter(starter) => Some(*starter),
            _ => None,
        })
    };
    let starts = |starter: Starter, launcher: Launcher| {
        starters().any(|found| found == starter) || case.scripts.starts_by(launcher)
    };
    if case.scripts.uses(Framework::Horovod) || starts(Starter::Horovod, Launcher::Horovod) {
        By::Horovod
    } else if starts(Starter::Mpi, Launcher::Mpi) {
        By::Mpi
    } else if starts(Starter::Srun, Launcher::Slurm) && !starters().any(|found| found == Starter::Torchrun) {
        By::Slurm
    } else if launches().any(|setting| *setting == LaunchSetting::VisibleDevicesLeftAlone) {
        By::RayActorSeesAll
    } else if starters().any(|found| found == Starter::Ray) && !case.scripts.starts_by(Launcher::Environment) {
        By::RayActor
    } else {
        By::Environment
    }
}

/// What to do, in words, and the lines that do it; the words alone where no line is known to fit.
pub(crate) fn parts(label: CauseLabel, setting: &Setting) -> (&'static str, String) {
    match trainers::remedy(label, &setting.frameworks).filter(|_| setting.by != By::Horovod) {
        Some((words, code)) => (words, code.replace("{local_rank}", setting.local_rank())),
        None => plain(label, setting),
    }
}

/// The same for a loop of one's own.
fn plain(label: CauseLabel, setting: &Setting) -> (&'static str, String) {
    let local_rank = setting.local_rank();
    match label {
        CauseLabel::CtxNoSetDevice => {
            let words = "Bind every process to its own GPU before any CUDA or collective call.";
            if setting.by == By::Horovod {
                (words, format!("  hvd.init()\n+ torch.cuda.set_device({local_rank})  # the very next line"))
            } else {
                (
                    words,
                    format!(
                        "+ local_rank = {local_rank}\n+ torch.cuda.set_device(local_rank)\n+ dist.init_process_group(\"nccl\", device_id=torch.device(\"cuda\", local_rank))"
                    ),
                )
            }
        }
        CauseLabel::CkptNoMapLocation => (
            "Load checkpoints to the CPU, or onto the rank's own GPU; otherwise tensors come back on the GPU that saved them.",
            "+ state = torch.load(path, map_location=\"cpu\")\n  model.load_state_dict(state[\"model\"])\n+ del state".to_owned(),
        ),
        CauseLabel::HelperThreadOrLibCtx => (
            "The current device is kept per thread and does not carry over to helper threads or libraries. Set it there too, or hide the other GPUs from the process before CUDA starts: first lines of the program, before import torch; the device is then cuda:0.",
            format!(
                "  def worker():  # runs in the thread\n+     torch.cuda.set_device({local_rank})\n\n+ os.environ[\"CUDA_VISIBLE_DEVICES\"] = {}",
                setting.local_rank_text()
            ),
        ),
        CauseLabel::HardcodedOrDefaultDevice => (
            "Name the rank's own device wherever code or a library is told a device (.to(), device_map, device_id); move nothing to a GPU before the ranks are started.",
            format!("+ device = torch.device(\"cuda\", {local_rank})"),
        ),
        CauseLabel::RankGpuMapping if setting.uses(Framework::TensorFlow) => (
            "Give each rank of a node its own GPU: use the local rank, not the global one, before TensorFlow touches a GPU.",
            format!(
                "+ gpus = tf.config.list_physical_devices(\"GPU\")\n+ tf.config.set_visible_devices(gpus[{local_rank}], \"GPU\")"
            ),
        ),
        CauseLabel::RankGpuMapping if setting.by == By::RayActorSeesAll => (
            "Let Ray show each actor its own GPU again, which is cuda:0 in it: unset RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES. Where a library wants all GPUs visible, choose the one that Ray gave to the actor before its first CUDA call. LOCAL_RANK is not set in actors.",
            format!("+ unset RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES  # in the shell, before ray start\n\n  # or, first in the actor:\n+ torch.cuda.set_device({local_rank})"),
        ),
        CauseLabel::RankGpuMapping if setting.by == By::RayActor => (
            "Let Ray choose the GPU: ask for one per actor and name no card in it. Ray sets CUDA_VISIBLE_DEVICES of the actor, so that its own GPU is cuda:0 there, whichever card that is; LOCAL_RANK is not set in actors.",
            "+ @ray.remote(num_gpus=1)\n  class Worker:\n      def __init__(self):\n+         torch.cuda.set_device(0)  # the only one that the actor sees".to_owned(),
        ),
        CauseLabel::RankGpuMapping => (
            "Give each rank of a node its own GPU: use the local rank, not the global one, and set CUDA_VISIBLE_DEVICES before the first CUDA call.",
            format!("+ torch.cuda.set_device({local_rank})"),
        ),
        CauseLabel::ObjectCollectiveDevice => (
            "Send CPU objects through object collectives: a CUDA tensor is revived on its sender's GPU in every receiver. Numbers go as .item(), tensors as .detach().cpu().",
            String::new(),
        ),
        CauseLabel::CtxInWorkerProcesses if setting.has_pool => (
            "Keep CUDA out of the pool: hide the GPUs from its processes before they touch one, or do what needs a GPU in the process that starts them.",
            "+ def hide_gpus():\n+     os.environ[\"CUDA_VISIBLE_DEVICES\"] = \"\"\n  ProcessPoolExecutor(..., initializer=hide_gpus)  # multiprocessing.Pool takes it too".to_owned(),
        ),
        CauseLabel::CtxInWorkerProcesses => (
            "Keep CUDA out of loader workers and side processes: return CPU tensors and move them in the training process, or hide the GPUs from the helpers.",
            "+ def hide_gpus(_):\n+     os.environ[\"CUDA_VISIBLE_DEVICES\"] = \"\"\n  DataLoader(..., worker_init_fn=hide_gpus)".to_owned(),
        ),
        CauseLabel::SingleGpuJobIdleContexts => (
            "The job is one process. Start one per GPU, or show it only the GPU that it uses.",
            format!("{}  # needs DistributedDataParallel in the script", setting.launch()),
        ),
        CauseLabel::DataparallelMaster => (
            "Replace DataParallel, which gathers outputs and gradients on its first GPU, by one process per GPU.",
            format!(
                "+ torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))\n+ dist.init_process_group(\"nccl\")\n+ model = DistributedDataParallel(model.cuda())\n\n  # and in the shell, instead of python train.py:\n{}",
                setting.launch()
            ),
        ),
        CauseLabel::Rank0Eval => (
            "Evaluate on all ranks with a sharded loader, or in a process of its own; keep no graph while evaluating.",
            "+ with torch.inference_mode():\n+     evaluate(model, DataLoader(val_set, sampler=DistributedSampler(val_set, shuffle=False)))".to_owned(),
        ),
        CauseLabel::CkptStateGather if setting.uses(Framework::DeepSpeed) => (
            "Save what each rank holds and put the weights together afterwards on a CPU (zero_to_fp32.py, which DeepSpeed writes beside the checkpoint), instead of gathering all weights on one GPU while training.",
            "+ \"stage3_gather_16bit_weights_on_model_save\": false".to_owned(),
        ),
        CauseLabel::CkptStateGather if setting.uses(Framework::Fsdp) => (
            "Save sharded (a SHARDED_STATE_DICT, or torch.distributed.checkpoint), or gather the full state on the CPU of one rank.",
            "+ from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict\n+ state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))".to_owned(),
        ),
        CauseLabel::CkptStateGather => (
            "Save what each rank holds, or gather the full state in the memory of the host, not on a GPU.",
            String::new(),
        ),
        CauseLabel::Rank0LoggingOrTrace => (
            "Trace graphs and draw samples on the CPU, on a copy of the model, or in a process of its own, and without a graph.",
            "+ with torch.inference_mode():  # around the samples".to_owned(),
        ),
        CauseLabel::MetricGatherOnGpu => (
            "Move predictions off the GPU before they are kept or gathered; reduce numbers, not tensors.",
            "+ outputs.append(logits.detach().cpu())".to_owned(),
        ),
        CauseLabel::Rank0AuxBuffers => (
            "Hold the buffer on all ranks alike, shard it, or keep it in host memory. A copy of the weights goes there tensor by tensor: deepcopy of a model on a GPU makes the whole copy on that GPU first, and moving it afterwards comes too late for the peak.",
            "+ ema = {k: v.detach().to(\"cpu\", copy=True) for k, v in model.state_dict().items()}".to_owned(),
        ),
        CauseLabel::VariableShapeBatches => (
            "Pack batches by tokens (or pixels) instead of samples and deal them round-robin: sort by length, fill up to a budget, batch index mod world size is the rank. Token counts come near each other, not equal; with drop_last sample counts agree and the tail is dropped. token_batches of the documentation does it (Data, Batch divisibility).",
            "+ mine = token_batches(lengths, 8192, dist.get_rank(), dist.get_world_size(), epoch)\n+ loader = DataLoader(dataset, batch_sampler=mine, collate_fn=pad)".to_owned(),
        ),
        CauseLabel::SamplerMissingOrNoSetEpoch => (
            "Give every rank its own shard and reshuffle it each epoch. drop_last makes sample counts equal and drops up to world size - 1 samples.",
            "+ sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)\n+ loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)\n  for epoch in range(epochs):\n+     sampler.set_epoch(epoch)".to_owned(),
        ),
        CauseLabel::UnevenBatchSplit => (
            "Make the global batch a multiple of the world size and drop the incomplete tail (up to one batch of samples per epoch is left out).",
            "+ assert global_batch % world == 0\n+ loader = DataLoader(dataset, batch_size=global_batch // world, sampler=sampler, drop_last=True)".to_owned(),
        ),
        CauseLabel::MoeRoutingImbalance => (
            "Balance the router: add the auxiliary load loss, or bound the tokens per expert by a capacity factor.",
            String::new(),
        ),
        CauseLabel::PipelineStageImbalance => (
            "Cut the stages by bytes: count embeddings and the output layer, and give early stages fewer layers, since they hold more batches in flight.",
            String::new(),
        ),
        CauseLabel::EmbeddingTableSharding => (
            "Place tables by bytes, and split the largest by rows.",
            "+ plan = sorted(tables, key=lambda t: -t.nbytes)  # largest first onto the emptiest rank".to_owned(),
        ),
        CauseLabel::ColocatedEngineOrDeviceMap => (
            "Give the other engine GPUs of its own, or spread its parts over all cards alike. With too few cards for that, let it free its memory while training runs (sleep mode), or bound its share.",
            String::new(),
        ),
        CauseLabel::OptimizerOrWrapOrder => (
            "Move, wrap, then build the optimizer from the wrapped parameters.",
            "+ optimizer = AdamW(model.parameters())  # behind the line that wraps the model".to_owned(),
        ),
        CauseLabel::ShardedInitAsymmetry if setting.uses(Framework::Fsdp) => (
            "Initialise all ranks alike: on the meta device, then shard, then load shards.",
            "+ with torch.device(\"meta\"):\n+     model = build()\n+ fully_shard(model)\n+ model.to_empty(device=\"cuda\")".to_owned(),
        ),
        CauseLabel::ShardedInitAsymmetry => {
            ("Initialise all ranks alike: on the meta device, then shard, then load shards.", String::new())
        }
        CauseLabel::AllocatorFragmentation if setting.expands_segments() => (
            "Segments may grow already (expandable_segments:True is set). Keep shapes few: pad to a handful of lengths, and free what one phase holds before the next begins.",
            String::new(),
        ),
        CauseLabel::AllocatorFragmentation => (
            "Let segments grow instead of splitting fixed ones, and keep shapes few.",
            "+ export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True".to_owned(),
        ),
        CauseLabel::StreamHeldBlocks => (
            if setting.uses(Framework::Fsdp) {
                "Blocks stay active until every stream that used them is done. Bound how far streams run ahead: keep limit_all_gathers on (its default), and hand no tensors of one stream to another without need."
            } else {
                "Blocks stay active until every stream that used them is done. Bound how far streams run ahead."
            },
            setting.export(&[("TORCH_NCCL_AVOID_RECORD_STREAMS", "1")]),
        ),
        CauseLabel::NcclNontorchBuffers => (
            "NCCL takes its buffers outside PyTorch, per communicator and channel. Make fewer communicators, or smaller buffers, and do it on all ranks alike.",
            setting.export(&[("NCCL_BUFFSIZE", "2097152"), ("NCCL_MAX_NCHANNELS", "8")]),
        ),
        CauseLabel::CudnnWorkspace => (
            "Do not search for algorithms on shapes that keep changing.",
            "+ torch.backends.cudnn.benchmark = False".to_owned(),
        ),
        CauseLabel::PerStepLeak => (
            "Keep no tensor with a graph from one step to the next: sums of numbers (.item()), lists of host tensors (.detach().cpu()).",
            String::new(),
        ),
        CauseLabel::GradAccumOrCkptInconsistent => (
            "Use the same accumulation count, no_sync blocks and checkpoint wrapping on all ranks and in all runs that are compared.",
            String::new(),
        ),
        CauseLabel::OtherTenant => {
            let look = "  nvidia-smi --query-compute-apps=pid,used_memory,gpu_uuid --format=csv\n  ps -o pid,user,lstart,cmd -p PID";
            let free = setting.show_other_cards().map_or_else(String::new, |line| format!("\n{line}"));
            (
                "Keep the card for one job: ask the owner of the other process, or start the job on free cards.",
                format!("{look}{free}"),
            )
        }
        CauseLabel::ZombieLeftover => (
            "End what is left of the earlier job, then start again. Look before you end it.",
            "  ps -o pid,ppid,user,lstart,stat,cmd -p PID\n+ kill PID\n  fuser -v /dev/nvidia*  # processes that hold the device but are not listed".to_owned(),
        ),
        CauseLabel::HeterogeneousOrDisplayGpu => (
            "Use equal cards for equal ranks, and a card without a display; otherwise give each card work by its free memory.",
            setting.show_other_cards().filter(|_| setting.others.len() >= 2).unwrap_or_default(),
        ),
        CauseLabel::FrameworkPrealloc if setting.uses(Framework::Jax) => (
            "Used memory shows what the framework took, not what it needs. Show each process one GPU and let it grow.",
            "+ export XLA_PYTHON_CLIENT_PREALLOCATE=false".to_owned(),
        ),
        CauseLabel::FrameworkPrealloc => (
            "Used memory shows what the framework took, not what it needs. Show each process one GPU and let it grow (JAX: XLA_PYTHON_CLIENT_PREALLOCATE=false).",
            "+ for gpu in tf.config.list_physical_devices(\"GPU\"):\n+     tf.config.experimental.set_memory_growth(gpu, True)".to_owned(),
        ),
        CauseLabel::Benign => ("Nothing to do.", String::new()),
        CauseLabel::Unresolved => ("Collect what the checklist asks for, most telling first.", String::new()),
    }
}

/// The remedy of a label for this job.
pub(crate) fn remedy(label: CauseLabel, setting: &Setting) -> String {
    let (words, code) = parts(label, setting);
    if code.is_empty() { words.to_owned() } else { format!("{words}\n\n{code}") }
}

/// What to do about an item where no cause stands under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemRemedy {
    /// Whose words these are: `PyTorch`, `Hugging Face Trainer`.
    pub framework: &'static str,
    /// Text and, after a blank line, code lines that start with a space or `+`.
    pub text: String,
}

/// The remedy of an item for a job of these frameworks: those of the causes that it mostly fails by, put together.
pub fn item_remedy(item: Item, frameworks: &[Framework]) -> ItemRemedy {
    let text = |frameworks: &[Framework]| {
        let setting = Setting { frameworks: frameworks.iter().copied().collect(), ..Setting::default() };
        item_text(item, &setting)
    };
    let plain = text(&[]);
    let whose = trainers::ORDER.into_iter().find(|one| frameworks.contains(one) && text(&[*one]) != plain);
    ItemRemedy { framework: whose.unwrap_or(Framework::Torch).title(), text: text(frameworks) }
}

fn item_text(item: Item, setting: &Setting) -> String {
    let (lead, labels): (&str, &[CauseLabel]) = match item {
        Item::DeviceVisibility => ("", &[CauseLabel::CtxNoSetDevice, CauseLabel::CkptNoMapLocation]),
        Item::DistributedInit => ("Model and data work comes behind the process group.", &[CauseLabel::CtxNoSetDevice]),
        Item::DistributedSampler => ("", &[CauseLabel::SamplerMissingOrNoSetEpoch]),
        Item::BatchDivisibility => ("", &[CauseLabel::UnevenBatchSplit, CauseLabel::VariableShapeBatches]),
        Item::OptimizerState => ("", &[CauseLabel::OptimizerOrWrapOrder]),
        Item::UnsyncedBuffers => ("", &[CauseLabel::Rank0AuxBuffers]),
        Item::RankOnlyWork => {
            ("", &[CauseLabel::Rank0Eval, CauseLabel::MetricGatherOnGpu, CauseLabel::CkptStateGather])
        }
        Item::MemoryStats => (
            "By kind: memory outside PyTorch is contexts, NCCL or other processes; cached memory that cannot be used is fragmentation, and only that is helped by the line below.",
            &[CauseLabel::AllocatorFragmentation],
        ),
        Item::AccumulationCheckpointing => ("", &[CauseLabel::GradAccumOrCkptInconsistent]),
        Item::Verified => {
            ("Run the same job with the fix, watch it at least as long, and add what it left behind here.", &[])
        }
    };
    let parts: Vec<(&str, String)> = labels.iter().map(|label| parts(*label, setting)).collect();
    let prose: Vec<&str> =
        Some(lead).filter(|lead| !lead.is_empty()).into_iter().chain(parts.iter().map(|part| part.0)).collect();
    let code: Vec<&str> = parts.iter().map(|part| part.1.as_str()).filter(|code| !code.is_empty()).collect();
    let prose = prose.join(" ");
    if code.is_empty() { prose } else { format!("{prose}\n\n{}", code.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_has_a_remedy_for_every_framework_and_none_that_hides_the_cause() {
        let frameworks = [
            Framework::Torch,
            Framework::HfTrainer,
            Framework::Lightning,
            Framework::DeepSpeed,
            Framework::Accelerate,
            Framework::Fsdp,
        ];
        for (item, framework) in Item::ALL.iter().flat_map(|item| frameworks.map(|framework| (*item, framework))) {
            let text = item_remedy(item, &[framework]).text;
            let (prose, code) = text.split_once("\n\n").unwrap_or((&text, ""));
            assert!(prose.ends_with('.') && !prose.contains('\n'), "{item:?} {framework:?}: {prose}");
            assert!(code.lines().filter(|line| !line.is_empty()).all(|line| line.starts_with([' ', '+'])), "{code}");
            assert!(!text.contains("{local_rank}"), "{text}");
            for never in ["smaller batch", "reduce the batch", "swap", "set_per_process_memory_fraction"] {
                assert!(!text.to_lowercase().contains(never), "{item:?} {framework:?}: {never}");
            }
        }
        let of = |item, frameworks: &[Framework]| item_remedy(item, frameworks).framework;
        assert_eq!(of(Item::DistributedSampler, &[Framework::Torch, Framework::Lightning]), "PyTorch Lightning");
        assert_eq!(of(Item::MemoryStats, &[Framework::Lightning]), "PyTorch");
        assert_eq!(of(Item::RankOnlyWork, &[Framework::Torch, Framework::Fsdp]), "FSDP");
    }

    #[test]
    fn what_the_job_does_already_is_not_offered_again() {
        let variables = BTreeSet::from(["NCCL_BUFFSIZE".to_owned()]);
        let setting = Setting {
            variables,
            allocator: vec!["max_split_size_mb:128, expandable_segments:True".to_owned()],
            ..Setting::default()
        };
        let code = |label, setting: &Setting| parts(label, setting).1;
        assert_eq!(code(CauseLabel::AllocatorFragmentation, &setting), "");
        assert_eq!(code(CauseLabel::NcclNontorchBuffers, &setting), "+ export NCCL_MAX_NCHANNELS=8");
        let plain = Setting { allocator: vec!["expandable_segments:False".to_owned()], ..Setting::default() };
        assert!(code(CauseLabel::AllocatorFragmentation, &plain).contains("expandable_segments:True"));
        assert_eq!(code(CauseLabel::NcclNontorchBuffers, &plain).matches('=').count(), 2);
    }

    #[test]
    fn a_cause_and_its_item_offer_the_same_lines() {
        for framework in trainers::ORDER {
            let setting = Setting { frameworks: [framework].into(), ..Setting::default() };
            let (words, code) = parts(CauseLabel::SamplerMissingOrNoSetEpoch, &setting);
            let item = item_remedy(Item::DistributedSampler, &[framework]).text;
            assert!(item.contains(words) && item.ends_with(&code), "{item}");
        }
    }

    fn settings() -> Vec<Setting> {
        let of = |framework: Framework, by| Setting { frameworks: [framework].into(), by, ..Setting::default() };
        vec![
            Setting::default(),
            Setting { cards: Some(2), others: vec![1], ..of(Framework::Fsdp, By::Environment) },
            Setting { cards: Some(4), others: vec![1, 2, 3], ..of(Framework::Horovod, By::Horovod) },
            of(Framework::DeepSpeed, By::Slurm),
            of(Framework::TensorFlow, By::Mpi),
            of(Framework::Jax, By::Environment),
        ]
    }

    #[test]
    fn remedies_are_text_then_lines_to_add_and_remove_nothing_unseen() {
        for (label, setting) in CauseLabel::ALL.iter().flat_map(|label| settings().into_iter().map(move |s| (label, s)))
        {
            let text = remedy(*label, &setting);
            assert!(!text.is_empty());
            let (prose, code) = text.split_once("\n\n").unwrap_or((&text, ""));
            assert!(!prose.contains('\n') && prose.ends_with('.'), "{label}: prose is one paragraph");
            for line in code.lines().filter(|line| !line.is_empty()) {
                assert!(line.starts_with([' ', '+']), "{label}: {line}");
            }
        }
    }

    #[test]
    fn remedies_fit_the_job_at_hand() {
        let all = settings();
        let two_cards = &all[1];
        let six = Setting { cards: Some(6), working: vec![0, 1, 4, 5, 6, 7], ..Setting::default() };
        let text = remedy(CauseLabel::DataparallelMaster, &six);
        assert!(
            text.ends_with("+ export CUDA_VISIBLE_DEVICES=0,1,4,5,6,7\n+ torchrun --nproc_per_node=6 train.py"),
            "{text}"
        );
        let pool = Setting { has_pool: true, ..Setting::default() };
        let text = remedy(CauseLabel::CtxInWorkerProcesses, &pool);
        assert!(text.contains("initializer=hide_gpus") && !text.contains("DataLoader"), "{text}");
        assert!(remedy(CauseLabel::DataparallelMaster, two_cards).contains("--nproc_per_node=2 "));
        assert!(remedy(CauseLabel::DataparallelMaster, &all[0]).contains("--nproc_per_node=gpu "));
        assert!(remedy(CauseLabel::OtherTenant, two_cards).contains("CUDA_VISIBLE_DEVICES=1 "));
        assert!(!remedy(CauseLabel::OtherTenant, &all[0]).contains("CUDA_VISIBLE_DEVICES"));
        // One card is no job of several.
        assert!(!remedy(CauseLabel::HeterogeneousOrDisplayGpu, two_cards).contains("CUDA_VISIBLE_DEVICES"));
        assert!(remedy(CauseLabel::HeterogeneousOrDisplayGpu, &all[2]).contains("CUDA_VISIBLE_DEVICES=1,2,3 "));
        let horovod = remedy(CauseLabel::CtxNoSetDevice, &all[2]);
        assert!(horovod.contains("hvd.local_rank()") && !horovod.contains("init_process_group"), "{horovod}");
        for setting in [&all[0], &all[3]] {
            let text = remedy(CauseLabel::CkptStateGather, setting);
            assert!(!text.contains("FSDP") && !text.contains("get_model_state_dict"), "{text}");
        }
        assert!(remedy(CauseLabel::CkptStateGather, two_cards).contains("full_state_dict=True"));
        assert!(remedy(CauseLabel::CkptStateGather, &all[3]).contains("stage3_gather_16bit"));
    }

    #[test]
    fn no_remedy_hides_the_cause() {
        for (label, setting) in CauseLabel::ALL.iter().flat_map(|label| settings().into_iter().map(move |s| (label, s)))
        {
            let text = remedy(*label, &setting).to_lowercase();
            for word in ["smaller batch", "reduce the batch", "per_process_memory_fraction", "swap", "max_split_size"] {
                assert!(!text.contains(word), "{label} advises {word}");
            }
        }
    }
}
