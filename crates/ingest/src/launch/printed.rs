//! What programs print of their launch: world size, visible devices, batch, ZeRO stage, and the command itself.
//!
//! Forms of torchrun, DeepSpeed, Megatron-LM, Lightning, Transformers, timm, fairseq, MMEngine, Ultralytics, and of
//! shells that echo what they run.

use super::binding::{self, Joining};
use super::shell::{self, Variables};
use super::variables::visible_devices;
use super::{Facts, command, variables};
use crate::context::ReadContext;
use crate::lines::{Line, RankFrom, Trust};
use rankscope_model::{LaunchEvidence, LaunchSetting, LaunchSource, Rank, Starter, UnixMicros};
use regex::{Captures, Regex};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Words of which every form below has one.
static WORDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let words = "(?i)world_?.?size|MEMBER: |Starting with |, total \\d|num_local_procs|VISIBLE_DEVICES|ALLOC_CONF|batch size|Accumulation steps|n_gpu: |\\(GPUs/TPUs\\)|parallel size|ZeRO stage|_per_gpu|nproc_per_node|GPU number|torchrun|torch\\.distributed|accelerate|deepspeed|mpirun|mpiexec|srun|horovodrun|^[+$] |command|cmd = |imbalance between|less than 75% of|^(?:export )?[A-Z][A-Z0-9_]+=|zero_optimization_stage|accumulation_steps|pci bus id|Duplicate GPU|Uvicorn running|vLLM API server|LLM engine|SGLang|Ray cluster|local Ray instance|Num processes: \\d";
    Regex::new(&format!("{words}|{}", binding::WORDS)).ok()
});

type Read = fn(&Captures<'_>) -> Option<LaunchSetting>;

/// Forms, and what their groups mean.
static FORMS: LazyLock<Vec<(Regex, Read)>> = LazyLock::new(|| {
    use LaunchSetting as S;
    let forms: [(&str, Read); 24] = [
        // Megatron-LM `using world size: 64, …`, its list of arguments `world_size ..... 64`, DeepSpeed `dist_world_size=8`
        (r"(?i)\bworld[_ ]size(?: ?[:=] ?| \.{3,} | )(\d+)\b", |c| count(c, 1).map(S::WorldSize)),
        (r"\bdist_world_size=(\d+)", |c| count(c, 1).map(S::WorldSize)),
        // accelerate's state
        (r"^Num processes: (\d+)$", |c| count(c, 1).map(S::WorldSize)),
        // Lightning
        (r"GLOBAL_RANK: \d+, MEMBER: \d+/(\d+)", |c| count(c, 1).map(S::WorldSize)),
        (r"Starting with (\d+) processes", |c| count(c, 1).map(S::WorldSize)),
        // timm
        (r"\bProcess \d+, total (\d+)", |c| count(c, 1).map(S::WorldSize)),
        // fairseq
        (r"training on (\d+) devices \(GPUs/TPUs\)", |c| count(c, 1).map(S::WorldSize)),
        // MMCV, MMEngine
        (r"\bGPU number: (\d+)", |c| count(c, 1).map(S::WorldSize)),
        // DeepSpeed's launcher, torchrun's list of settings
        (r"\bnum_local_procs=(\d+)", |c| count(c, 1).map(S::ProcessesPerNode)),
        (r"\bnnodes=(\d+), num_local_procs", |c| count(c, 1).map(S::Nodes)),
        (r"\bnproc_per_node +: (\d+)", |c| count(c, 1).map(S::ProcessesPerNode)),
        // DeepSpeed `Setting CUDA_VISIBLE_DEVICES=0,1`, Lightning `LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1]`
        (r"CUDA_VISIBLE_DEVICES(?:=|: ?)\[?([\d,]+)\]?", |c| visible_devices(c.get(1)?.as_str())),
        // Transformers: processes that drive several GPUs
        (r"\bn_gpu: ?(\d+)", |c| count(c, 1).map(S::GpusPerProcess)),
        (r"Instantaneous batch size per device = ([\d,]+)", |c| count(c, 1).map(S::MicroBatch)),
        (r"Total train batch size \([^)]*\) = ([\d,]+)", |c| count(c, 1).map(S::GlobalBatch)),
        (r"Gradient Accumulation steps = ([\d,]+)", |c| count(c, 1).map(S::Accumulation)),
        (r"\btensor-model-parallel size: (\d+)", |c| count(c, 1).map(S::TensorParallel)),
        (r"\bpipeline-model-parallel size: (\d+)", |c| count(c, 1).map(S::PipelineParallel)),
        // Ray's own `Connecting to existing Ray cluster at address: …`, `Started a local Ray instance.`
        (r"Connect(?:ed|ing) to (?:existing )?Ray cluster|Started a local Ray instance", |_| {
            Some(S::Starter(Starter::Ray))
        }),
        // DataParallel
        (r"GPU (\d+) has less than 75% of the memory or cores of GPU (\d+)", |c| {
            let gpu = |group| c.get(group)?.as_str().parse().ok();
            Some(S::UnequalGpus { lesser: gpu(1)?, other: gpu(2)? })
        }),
        // TensorFlow: `Created TensorFlow device (/job:… with 14814 MB memory) -> physical GPU (device: 0, …)`
        (
            r"Created (?:TensorFlow )?device .* -> (?:physical GPU \()?.*\bpci bus id: ([0-9a-fA-F]+:[0-9a-fA-F:.]+)",
            |c| Some(S::PhysicalGpu(c.get(1)?.as_str().to_ascii_lowercase())),
        ),
        // NCCL
        (r"Duplicate GPU detected ?: rank (\d+) and rank (\d+) both on", |c| {
            let rank = |group| c.get(group)?.as_str().parse().ok();
            Some(S::SharedGpu { one: rank(1)?, other: rank(2)? })
        }),
        // Servers that answer with a model, in the log of the training or beside it
        (
            r"(Uvicorn) running on http|(vLLM) API server version|Initializing an? (?:V[01] )?(LLM) engine|\b(SGLang) (?:server|Router)",
            |c| {
                let name = (1..=4).find_map(|group| c.get(group))?.as_str();
                Some(S::InferenceEngine(if name == "Uvicorn" {
                    "a model server (Uvicorn)".into()
                } else {
                    name.to_owned()
                }))
            },
        ),
        // DeepSpeed
        (r"ZeRO stage (\d)\b|zero_optimization_stage \.{3,} (\d)", |c| {
            let stage = c.get(1).or_else(|| c.get(2))?.as_str().parse().ok()?;
            (stage <= 3).then_some(S::ZeroStage(stage))
        }),
    ];
    forms.into_iter().filter_map(|(form, read)| Some((Regex::new(form).ok()?, read))).collect()
});

fn count(captures: &Captures<'_>, group: usize) -> Option<u32> {
    let digits: String = captures.get(group)?.as_str().chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|n| (1..=command::MAX_COUNT).contains(n))
}

/// Longest beginning of a line that is looked at; commands are long.
const LOOKED_AT: usize = 8 << 10;

/// Gathers settings from the lines of a log.
pub(crate) struct PrintedReader<'c> {
    facts: Facts<'c>,
    /// How the rank of each fact is known, position for position.
    from: Vec<Option<RankFrom>>,
    commands: u32,
    joined: Joined,
}

/// The processes of the largest communicator of NCCL. Ranks of a smaller one count something else than the job's.
#[derive(Debug, Default)]
struct Joined {
    size: u32,
    of_rank: BTreeMap<u32, (Joining, Place)>,
    /// Two processes have the same rank on GPUs of their own: the communicators are groups of a job, or two jobs.
    are_several: bool,
}

/// A line that is still to be judged.
#[derive(Debug)]
struct Place {
    number: u64,
    time: Option<UnixMicros>,
    text: String,
    named: Option<(Rank, RankFrom)>,
}

impl Joined {
    fn add(&mut self, joining: Joining, place: Place) {
        if joining.size < self.size {
            return;
        }
        if joining.size > self.size {
            *self = Self { size: joining.size, ..Self::default() };
        }
        let known = self.of_rank.get(&joining.rank.0).map(|(known, _)| known);
        if known.is_some_and(|known| known.process == joining.process) {
            return;
        }
        if known.is_some() {
            if self.are_several {
                return;
            }
            // Started anew on the same GPUs: what came later holds. Else nobody knows what the numbers count.
            let gpu = |one: &Joining| (one.process.0.clone(), one.bus_id.clone());
            let is_restart = self.of_rank.values().any(|(one, _)| gpu(one) == gpu(&joining))
                && self.of_rank.values().all(|(one, _)| one.communicator != joining.communicator);
            if !is_restart {
                self.are_several = true;
                return;
            }
            self.of_rank.clear();
        }
        self.of_rank.insert(joining.rank.0, (joining, place));
    }

    /// Where there is more than one group with such ranks.
    fn warning(&self) -> Option<String> {
        let (_, place) = self.of_rank.values().next().filter(|_| self.are_several)?;
        Some(format!(
            "line {}: several communicators of NCCL have {} ranks with the same numbers (groups of a job, or several jobs), so \
             the GPUs of ranks were not taken from their lines",
            place.number, self.size
        ))
    }
}

impl<'c> PrintedReader<'c> {
    pub(crate) fn new(ctx: &'c ReadContext<'c>) -> Self {
        Self { facts: Facts::new(ctx), from: Vec::new(), commands: 0, joined: Joined::default() }
    }

    pub(crate) fn line(&mut self, line: &Line<'_>) {
        let end = line.body.char_indices().map(|(at, _)| at).find(|at| *at >= LOOKED_AT).unwrap_or(line.body.len());
        let body = line.body.get(..end).unwrap_or_default();
        // A prompt is taken off as a quote sign; the whole line still has it.
        let text = line.text.get(..end.min(line.text.len())).unwrap_or(body);
        let is_prompt = text.starts_with("+ ") || text.starts_with("$ ");
        if !is_prompt && !WORDS.as_ref().is_some_and(|words| words.is_match(body)) {
            return;
        }
        if command_in(body).is_some_and(|command| self.command(line, command)) {
            return;
        }
        for (form, read) in FORMS.iter() {
            if let Some(setting) = form.captures(body).and_then(|captures| read(&captures)) {
                self.add(line, 0, setting);
            }
        }
        if let Some(binding) = binding::current(body) {
            let printed = binding.rank.map(|rank| (rank, RankFrom::Text));
            for setting in binding.settings {
                self.add_of(line, 0, setting, printed);
            }
        } else if let Some(joining) = binding::joining(text) {
            let place = Place { number: line.number, time: line.time, text: text.to_owned(), named: self.named(line) };
            self.joined.add(joining, place);
        }
        let variable = body.strip_prefix("export ").unwrap_or(body);
        if let Some(setting) = shell::assignment(variable).and_then(|(name, value)| variables::setting(name, value)) {
            self.add(line, 0, setting);
        }
    }

    /// Reads a command; `false` if it starts nothing.
    fn command(&mut self, line: &Line<'_>, command: &str) -> bool {
        let before = self.commands;
        let commands = shell::commands(command);
        for settings in commands.iter().map(|c| command::settings(&c.words, &Variables::new())) {
            // `deepspeed info ....` of a report is no command: one has a program or a number.
            if settings.len() < 2 {
                continue;
            }
            self.commands = self.commands.saturating_add(1);
            for setting in settings {
                self.add(line, self.commands, setting);
            }
        }
        self.commands > before
    }

    fn add(&mut self, line: &Line<'_>, command: u32, setting: LaunchSetting) {
        self.add_of(line, command, setting, None);
    }

    /// Whose a line is by its prefixes, or by the file's name.
    fn named(&self, line: &Line<'_>) -> Option<(Rank, RankFrom)> {
        line.label.rank.or(self.facts.file_rank.map(|rank| (rank, RankFrom::FileName)))
    }

    /// Adds a setting of the rank that the program printed beside it, or else of the one that the line belongs to.
    fn add_of(&mut self, line: &Line<'_>, command: u32, setting: LaunchSetting, printed: Option<(Rank, RankFrom)>) {
        let named = printed.or_else(|| self.named(line));
        let before = self.facts.kept.len();
        self.facts.add_at(line.number, line.time, line.text, named.map(|(rank, _)| rank), command, setting);
        if self.facts.kept.len() > before {
            self.from.push(named.map(|(_, from)| from));
        }
    }

    /// What was found, with the ranks that hold.
    pub(crate) fn finish(mut self, trust: &Trust, warnings: &mut Vec<String>) -> Option<LaunchEvidence> {
        let file_rank = self.facts.file_rank;
        for (fact, from) in self.facts.kept.iter_mut().zip(&self.from) {
            if from.is_some_and(|from| !trust.accepts(from)) {
                fact.rank = file_rank;
            }
        }
        // A process that joined under another number than its own is one of a group.
        warnings.extend(self.joined.warning());
        let Joined { of_rank, are_several, .. } = self.joined;
        for (joining, Place { number, time, text, named }) in of_rank.into_values().filter(|_| !are_several) {
            let named = named.filter(|(_, from)| trust.accepts(*from)).map(|(rank, _)| rank);
            let rank = Some(named.unwrap_or(joining.rank));
            // The same bus id on two hosts is two GPUs.
            let gpu = LaunchSetting::PhysicalGpu(format!("{}@{}", joining.bus_id, joining.process.0));
            self.facts.add_at(number, time, &text, rank, 0, gpu);
        }
        self.facts.finish(LaunchSource::Log, warnings)
    }
}

/// The command that a line shows: behind a prompt, behind `cmd = `, or the line itself when it begins with a launcher.
fn command_in(body: &str) -> Option<&str> {
    for mark in [
        "debug command ",
        "cmd = ",
        "cmd: ",
        "Running command: ",
        "command: ",
        "Command: ",
        "command line: ",
        "launching: ",
    ] {
        if let Some((_, command)) = body.split_once(mark) {
            return Some(command);
        }
    }
    let command = body.strip_prefix("+ ").or_else(|| body.strip_prefix("$ "));
    if command.is_some() {
        return command;
    }
    let first = body.split_ascii_whitespace().find(|word| shell::assignment(word).is_none())?;
    let name = first.rsplit('/').next()?;
    let is_launcher =
        ["torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "horovodrun"].contains(&name);
    let is_module = name.starts_with("python") && body.contains(" -m torch.distributed.");
    (is_launcher || is_module).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Limits;
    use crate::sniff::TextEncoding;
    use crate::text;
    use LaunchSetting as S;
    use rankscope_model::{ArtifactId, ArtifactKind, Evidence};

    fn read(text: &str) -> Evidence {
        let limits = Limits::default();
        let ctx = ReadContext { artifact: ArtifactId(0), name: "job.log", limits: &limits };
        text::read_with(&mut text.as_bytes(), TextEncoding::Utf8, &ctx, text::Readers::ALL).unwrap()
    }

    fn settings(text: &str) -> Vec<LaunchSetting> {
        read(text).launches.into_iter().flat_map(|l| l.facts).map(|f| f.what).collect()
    }

    #[test]
    fn every_form_compiles() {
        assert!(WORDS.is_some());
        assert_eq!(FORMS.len(), 24);
    }

    #[test]
    fn lines_of_many_programs() {
        let devices = |ids: &[&str]| S::VisibleDevices(ids.iter().map(|i| (*i).to_owned()).collect());
        for (line, expected) in [
            (
                "using world size: 64, data-parallel size: 1, context-parallel size: 1, tensor-model-parallel size: 4, pipeline-model-parallel size: 16",
                vec![S::WorldSize(64), S::TensorParallel(4), S::PipelineParallel(16)],
            ),
            ("  world_size ...................................... 8", vec![S::WorldSize(8)]),
            ("Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/2", vec![S::WorldSize(2)]),
            ("LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1]", vec![devices(&["0", "1"])]),
            ("All distributed processes registered. Starting with 8 processes", vec![S::WorldSize(8)]),
            (
                "Training in distributed mode with multiple processes, 1 GPU per process. Process 0, total 8, device cuda:0.",
                vec![S::WorldSize(8), S::CurrentDevice(0)],
            ),
            (
                "[INFO] [launch.py:151:main] nnodes=1, num_local_procs=4, node_rank=0",
                vec![S::ProcessesPerNode(4), S::Nodes(1)],
            ),
            ("[INFO] [launch.py:163:main] dist_world_size=4", vec![S::WorldSize(4)]),
            ("[INFO] [launch.py:165:main] Setting CUDA_VISIBLE_DEVICES=0,1,2,3", vec![devices(&["0", "1", "2", "3"])]),
            ("  Instantaneous batch size per device = 8", vec![S::MicroBatch(8)]),
            ("  Total train batch size (w. parallel, distributed & accumulation) = 1,024", vec![S::GlobalBatch(1024)]),
            ("  Gradient Accumulation steps = 4", vec![S::Accumulation(4)]),
            ("Process rank: -1, device: cuda:0, n_gpu: 4, distributed training: False", vec![S::GpusPerProcess(4)]),
            ("Num processes: 8", vec![S::WorldSize(8)]),
            ("2020-01-01 | INFO | fairseq_cli.train | training on 4 devices (GPUs/TPUs)", vec![S::WorldSize(4)]),
            (
                "[INFO] [logging.py:96:log_dist] [Rank 0] Creating torch.bfloat16 ZeRO stage 3 optimizer",
                vec![S::ZeroStage(3)],
            ),
            ("  nproc_per_node   : 8", vec![S::ProcessesPerNode(8)]),
            (
                "    There is an imbalance between your GPUs. GPU 1 has less than 75% of the memory or cores of GPU 0",
                vec![S::UnequalGpus { lesser: 1, other: 0 }],
            ),
            (
                "DDP: debug command /opt/conda/bin/python3 -m torch.distributed.run --nproc_per_node 4 --master_port 41207 /w/_temp.py",
                vec![S::Starter(Starter::Torchrun), S::ProcessesPerNode(4), S::Program("/w/_temp.py".into())],
            ),
            (
                "+ CUDA_VISIBLE_DEVICES=0 python train.py",
                vec![devices(&["0"]), S::Starter(Starter::Python), S::Program("train.py".into())],
            ),
            (
                "I tensorflow/core/common_runtime/gpu/gpu_device.cc:1304] Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:0 with 14814 MB memory) -> physical GPU (device: 0, name: Tesla V100, pci bus id: 0000:1A:00.0, compute capability: 7.0)",
                vec![S::PhysicalGpu("0000:1a:00.0".into())],
            ),
            (
                "Created device /job:localhost/replica:0/task:0/device:GPU:1 with 38388 MB memory:  -> device: 1, name: A100, pci bus id: 0000:3b:00.0, compute capability: 8.0",
                vec![S::PhysicalGpu("0000:3b:00.0".into())],
            ),
            (
                "node1:52:52 [0] init.cc:521 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1a000",
                vec![S::SharedGpu { one: 1, other: 0 }],
            ),
            (
                "2026-01-21 05:46:02,117	INFO worker.py:1908 -- Connecting to existing Ray cluster at address: 127.0.0.1:6379...",
                vec![S::Starter(Starter::Ray)],
            ),
            (
                "INFO worker.py:1612 -- Started a local Ray instance. View the dashboard at 127.0.0.1:8265",
                vec![S::Starter(Starter::Ray)],
            ),
            (
                "INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)",
                vec![S::InferenceEngine("a model server (Uvicorn)".into())],
            ),
            (
                "INFO 03-14 10:43:01 api_server.py:912] vLLM API server version 0.7.3",
                vec![S::InferenceEngine("vLLM".into())],
            ),
            (
                "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                vec![S::AllocatorConf("expandable_segments:True".into())],
            ),
        ] {
            assert_eq!(settings(line), expected, "{line}");
        }
    }

    #[test]
    fn the_largest_communicator_tells_the_gpu_of_each_rank() {
        let line = |pid: u32, rank: u32, size: u32, bus: &str| {
            let id = if pid < 100 { 4 } else { 5 };
            format!(
                "n0:{pid}:9 [0] NCCL INFO ncclCommInitRank comm 0x7f rank {rank} nranks {size} cudaDev 0 nvmlDev 0 busId {bus} commId 0x{id} - Init COMPLETE\n"
            )
        };
        let gpus = |text: &str| {
            let found = read(text).launches.into_iter().flat_map(|l| l.facts);
            found.map(|fact| (fact.rank.map(|r| r.0), fact.what)).collect::<Vec<_>>()
        };
        let gpu = |rank, bus: &str| (Some(rank), S::PhysicalGpu(format!("{bus}@n0")));
        // The pair comes again, and in a smaller group under other numbers.
        let text =
            [line(7, 0, 1, "9f"), line(7, 0, 2, "1a"), line(8, 1, 2, "2b"), line(7, 0, 2, "1a"), line(8, 0, 1, "2b")];
        assert_eq!(gpus(&text.concat()), [gpu(0, "1a"), gpu(1, "2b")]);
        // Started anew: the later processes hold, also where they sit on other GPUs than their ranks did.
        let again = [line(7, 0, 2, "1a"), line(8, 1, 2, "2b"), line(107, 0, 2, "2b"), line(108, 1, 2, "1a")];
        assert_eq!(gpus(&again.concat()), [gpu(0, "2b"), gpu(1, "1a")]);
        // Two processes with the same number: groups of a job, whose ranks nobody knows.
        let groups = read(&[line(7, 0, 2, "1a"), line(8, 0, 2, "2b")].concat());
        assert!(groups.artifacts[0].warnings[0].contains("several communicators of NCCL"), "{groups:?}");
        assert_eq!(gpus(&[line(7, 0, 2, "1a"), line(8, 0, 2, "2b")].concat()), []);
        // The prefix names the rank of the job.
        assert_eq!(gpus(&format!("[rank6]: {}", line(7, 0, 2, "1a"))), [gpu(6, "1a")]);
    }

    #[test]
    fn the_print_of_the_checklist_says_who_works_where() {
        let text = "pid=9 rank=0 local=0 visible=0,1 current=0\npid=8 rank=1 local=1 visible=0,1 current=0\n";
        let evidence = read(text);
        let of = |rank| {
            let facts = evidence.launches.iter().flat_map(|l| &l.facts);
            facts
                .filter(move |fact| fact.rank.map(|r| r.0) == Some(rank))
                .map(|fact| fact.what.clone())
                .collect::<Vec<_>>()
        };
        let both = || S::VisibleDevices(vec!["0".into(), "1".into()]);
        assert_eq!(of(0), [S::LocalRank(0), both(), S::CurrentDevice(0)]);
        assert_eq!(of(1), [S::LocalRank(1), both(), S::CurrentDevice(0)]);
        assert_eq!(evidence.artifacts[0].kind, ArtifactKind::JobLog);
        assert_eq!((&*evidence.artifacts[0].ranks, &*evidence.artifacts[0].warnings), (&[0, 1][..], &[][..]));
    }

    #[test]
    fn prose_errors_and_figures_say_nothing() {
        for line in [
            "srun: error: node07: tasks 3,5-6: Exited with exit code 1",
            "deepspeed info ................... 0.9.5, unknown, unknown",
            "accelerate is a library",
            "RANK=3 MEMSTATS before step device=cuda:3 current alloc=4.9000GB",
            "set CUDA_VISIBLE_DEVICES to choose a GPU",
            "If reserved memory is >> allocated memory try setting max_split_size_mb.  See documentation for PYTORCH_CUDA_ALLOC_CONF",
            "WARNING:torch.distributed.run:Setting OMP_NUM_THREADS",
        ] {
            assert_eq!(settings(line), [], "{line}");
        }
    }

    #[test]
    fn a_log_that_only_tells_its_launch_is_a_job_log() {
        let evidence = read("[rank1]: world size: 2\nhello\n");
        assert_eq!(evidence.artifacts[0].kind, ArtifactKind::JobLog);
        assert_eq!(evidence.launches[0].facts[0].rank.map(|r| r.0), Some(1));
    }
}
