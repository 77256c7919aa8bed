//! One command line: what starts the processes, how many on what, and the batch that the program is told.
//!
//! Knows the options of launchers, not their defaults: what is not written is not known.

use super::shell::{self, Variables};
use super::variables::{self, share, truth, visible_devices};
use rankscope_model::{LaunchSetting, Starter};

/// Larger counts are no ranks, GPUs or batches.
pub(super) const MAX_COUNT: u32 = 10_000_000;
/// `bash -c '…'` inside `srun bash -c '…'`.
const MAX_NESTING: u32 = 3;
/// Bytes of one command after variables were replaced. Ten letters can name a value of a kilobyte.
const MAX_EXPANDED: usize = 1 << 20;
/// Options of a shell in front of `-c`.
const MAX_SHELL_OPTIONS: usize = 16;
/// Commands that only speak of others.
const TALK: [&str; 16] = [
    "echo", "printf", "pip", "pip3", "conda", "grep", "cat", "ls", "cp", "mv", "rm", "which", "git", "man", "ps",
    "kill",
];
/// Longest name of a program.
const MAX_PROGRAM: usize = 200;

/// The settings of a command; nothing if it starts nothing that trains.
pub(super) fn settings(words: &[String], variables: &Variables) -> Vec<LaunchSetting> {
    let mut room = MAX_EXPANDED;
    let words: Vec<String> = words
        .iter()
        .map(|word| shell::expanded(word, variables))
        .take_while(|word| {
            let left = room.checked_sub(word.len());
            room = left.unwrap_or(0);
            left.is_some()
        })
        .collect();
    let mut reading = Reading { variables, settings: Vec::new(), starter: None, program: false };
    reading.command(&words, 0);
    if reading.starter.is_some() || reading.engine() { reading.settings } else { Vec::new() }
}

/// The settings of a line of batch options: `#SBATCH --ntasks-per-node=8`.
pub(super) fn batch_options(words: &[String]) -> Vec<LaunchSetting> {
    let variables = Variables::new();
    let mut reading =
        Reading { variables: &variables, settings: Vec::new(), starter: Some(Starter::Srun), program: false };
    reading.options(words, 0);
    reading.settings
}

struct Reading<'v> {
    variables: &'v Variables,
    settings: Vec<LaunchSetting>,
    /// The launcher whose options are read.
    starter: Option<Starter>,
    /// The program was named: what follows are its own options.
    program: bool,
}

impl Reading<'_> {
    fn engine(&self) -> bool {
        self.settings.iter().any(|s| matches!(s, LaunchSetting::InferenceEngine(_)))
    }

    fn command(&mut self, words: &[String], depth: u32) {
        // Assignments in front, `env A=1 B=2` included.
        let is_wrapper = |word: &str| matches!(base(word), "env" | "sudo" | "nohup" | "exec" | "time" | "command");
        let mut at = 0;
        while let Some(word) = words.get(at) {
            if let Some((name, value)) = shell::assignment(word) {
                self.settings.extend(variables::setting(name, value));
            } else if !is_wrapper(word) {
                break;
            }
            at = at.saturating_add(1);
        }
        let words = words.get(at..).unwrap_or_default();
        if !words.first().is_some_and(|first| TALK.contains(&base(first))) {
            self.options(words, depth);
        }
    }

    fn options(&mut self, words: &[String], depth: u32) {
        let mut at = 0;
        while let Some(word) = words.get(at) {
            at = at.saturating_add(1);
            let rest = words.get(at..).unwrap_or_default();
            let Some(option) = word.strip_prefix('-').filter(|o| !o.is_empty()) else {
                at = at.saturating_add(self.word(word, rest, depth));
                continue;
            };
            let option = option.strip_prefix('-').unwrap_or(option);
            let (name, inline) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
            let next = rest.first().map(String::as_str).filter(|next| !next.starts_with('-'));
            let value = inline.or(next).unwrap_or_default();
            // `-n8`
            let glued = (word.len() > 2 && !word.starts_with("--") && inline.is_none())
                .then(|| name.split_at_checked(1))
                .flatten()
                .filter(|(_, number)| number.bytes().all(|b| b.is_ascii_digit()));
            let (name, value, is_glued) = match glued {
                Some((name, number)) => (name, number, true),
                None => (name, value, false),
            };
            let is_flag = matches!(name, "use_deepspeed" | "use_fsdp" | "multi_gpu");
            let used = self.option(name, value) && !is_flag;
            if used && inline.is_none() && !is_glued && next.is_some() {
                at = at.saturating_add(1);
            }
        }
    }

    /// A word that is no option: a launcher, the program, or an argument. Says how many words behind it belong to it.
    fn word(&mut self, word: &str, rest: &[String], depth: u32) -> usize {
        let next = rest.first().map(String::as_str).unwrap_or_default();
        match base(word) {
            "torchrun" => self.start(Starter::Torchrun),
            "accelerate" if next == "launch" => {
                self.start(Starter::Accelerate);
                return 1;
            }
            "accelerate-launch" => self.start(Starter::Accelerate),
            "deepspeed" | "deepspeed.pt" => self.start(Starter::Deepspeed),
            "mpirun" | "mpiexec" | "orterun" | "mpiexec.hydra" | "mpirun.openmpi" => self.start(Starter::Mpi),
            "srun" => self.start(Starter::Srun),
            "horovodrun" => self.start(Starter::Horovod),
            "ray" if matches!(next, "start" | "job") => {
                self.start(Starter::Ray);
                return 1;
            }
            "vllm" | "trl" if matches!(next, "serve" | "vllm-serve") => {
                self.settings.push(LaunchSetting::InferenceEngine("vllm".to_owned()));
                return 1;
            }
            "bash" | "sh" | "zsh" => return self.nested(rest, depth),
            name if is_python(name) => return self.python(rest),
            name => {
                if self.starter.is_some() && !self.program && is_program(name) {
                    self.name_program(word);
                }
            }
        }
        0
    }

    fn start(&mut self, starter: Starter) {
        if !self.program {
            self.starter = Some(starter);
            self.settings.push(LaunchSetting::Starter(starter));
        }
    }

    fn name_program(&mut self, program: &str) {
        self.program = true;
        if program.len() <= MAX_PROGRAM {
            self.settings.push(LaunchSetting::Program(program.to_owned()));
        }
    }

    /// `bash -c 'python train.py'`.
    fn nested(&mut self, rest: &[String], depth: u32) -> usize {
        let Some(at) = rest.iter().take(MAX_SHELL_OPTIONS).position(|word| matches!(word.as_str(), "-c" | "-lc"))
        else {
            return 0;
        };
        let Some(script) = rest.get(at.saturating_add(1)).filter(|_| depth < MAX_NESTING) else { return 0 };
        for command in shell::commands(script) {
            let words: Vec<String> = command.words.iter().map(|w| shell::expanded(w, self.variables)).collect();
            self.command(&words, depth.saturating_add(1));
        }
        at.saturating_add(2)
    }

    /// What stands behind `python`: flags, then a module or a file.
    fn python(&mut self, rest: &[String]) -> usize {
        let flags = rest.iter().take_while(|word| word.starts_with('-') && word.as_str() != "-m").count();
        let Some(first) = rest.get(flags) else { return 0 };
        if first != "-m" {
            if is_program(base(first)) {
                if self.starter.is_none() {
                    self.start(Starter::Python);
                }
                if !self.program {
                    self.name_program(first);
                }
                return flags.saturating_add(1);
            }
            return flags;
        }
        let module = rest.get(flags.saturating_add(1)).map(String::as_str).unwrap_or_default();
        match module {
            "torch.distributed.run" | "torch.distributed.launch" => self.start(Starter::Torchrun),
            "accelerate.commands.launch" => self.start(Starter::Accelerate),
            "deepspeed.launcher.launch" | "deepspeed.launcher.runner" | "deepspeed" => self.start(Starter::Deepspeed),
            "horovod.runner" | "horovod.run" => self.start(Starter::Horovod),
            _ if module.starts_with("vllm.") || module.starts_with("sglang") => {
                let engine = module.split('.').next().unwrap_or_default();
                self.settings.push(LaunchSetting::InferenceEngine(engine.to_owned()));
            }
            "" | "pip" | "venv" | "json.tool" | "http.server" => return flags,
            _ => {
                if self.starter.is_none() {
                    self.start(Starter::Python);
                }
                if !self.program {
                    self.name_program(&format!("-m {module}"));
                }
            }
        }
        flags.saturating_add(2)
    }

    /// Reads an option; `true` if its value was understood.
    fn option(&mut self, name: &str, value: &str) -> bool {
        let takes_module = matches!(self.starter, Some(Starter::Torchrun | Starter::Accelerate | Starter::Deepspeed));
        if matches!(name, "m" | "module") && takes_module && !self.program && !value.is_empty() {
            self.name_program(&format!("-m {value}"));
            return true;
        }
        let setting = if self.program || self.engine() {
            program_option(name, value)
        } else {
            self.starter
                .and_then(|starter| launcher_option(starter, name, value))
                .or_else(|| program_option(name, value))
        };
        let is_known = setting.is_some();
        self.settings.extend(setting);
        is_known
    }
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// `python`, `python3.11`, `python3-dbg`.
fn is_python(name: &str) -> bool {
    name.strip_prefix("python").is_some_and(|rest| !rest.contains(|c: char| c.is_ascii_alphabetic() && c != 'd'))
}

fn is_program(name: &str) -> bool {
    [".py", ".pyc", ".sh"].iter().any(|end| name.ends_with(end))
}

fn count(value: &str) -> Option<u32> {
    value.parse().ok().filter(|n| (1..=MAX_COUNT).contains(n))
}

fn word(value: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-:".contains(c);
    (!value.is_empty() && value.len() <= 64 && value.chars().all(is_plain)).then(|| value.to_owned())
}

/// `2`; of torchrun's `1:4` only a fixed number is known.
fn nodes(value: &str) -> Option<u32> {
    match value.split_once(':') {
        Some((least, most)) if least == most => count(least),
        Some(_) => None,
        None => count(value),
    }
}

/// `gpu:8`, `gpu:a100:8`, `gpu:a100:8(S:0-1)`.
fn gres(value: &str) -> Option<u32> {
    let mut parts = value.split(',').find(|part| part.starts_with("gpu"))?.split(':').skip(1);
    parts.find_map(|part| count(part.split('(').next().unwrap_or(part)))
}

fn launcher_option(starter: Starter, name: &str, value: &str) -> Option<LaunchSetting> {
    use LaunchSetting as S;
    // One letter: the case matters.
    match (starter, name) {
        (Starter::Srun, "n") | (Starter::Mpi, "n" | "np" | "c") | (Starter::Horovod, "np") => {
            return count(value).map(S::WorldSize);
        }
        (Starter::Srun, "N") => return nodes(value.split('-').next().unwrap_or(value)).map(S::Nodes),
        (Starter::Mpi, "ppn" | "npernode" | "N") => return count(value).map(S::ProcessesPerNode),
        (Starter::Mpi, "x") => {
            let (name, value) = shell::assignment(value)?;
            return variables::setting(name, value);
        }
        _ => {}
    }
    let name = name.to_ascii_lowercase().replace('-', "_");
    let distributed = |what: &str| Some(S::DistributedType(what.to_owned()));
    match (starter, name.as_str()) {
        (Starter::Torchrun, "nproc_per_node") => match value {
            "gpu" | "auto" => Some(S::ProcessPerGpu),
            _ => count(value).map(S::ProcessesPerNode),
        },
        (Starter::Torchrun, "nnodes")
        | (Starter::Accelerate, "num_machines")
        | (Starter::Deepspeed, "num_nodes")
        | (Starter::Srun, "nodes") => nodes(value).map(S::Nodes),
        (Starter::Accelerate, "num_processes") | (Starter::Srun, "ntasks") | (Starter::Horovod, "num_proc") => {
            count(value).map(S::WorldSize)
        }
        (Starter::Deepspeed, "num_gpus") | (Starter::Srun, "ntasks_per_node" | "tasks_per_node") => {
            count(value).map(S::ProcessesPerNode)
        }
        (Starter::Srun, "gpus_per_node") => gres(&format!("gpu:{value}")).map(S::GpusPerNode),
        (Starter::Srun, "gres") => gres(value).map(S::GpusPerNode),
        (Starter::Ray, "num_gpus") => count(value).map(S::GpusPerNode),
        (Starter::Srun, "gpus_per_task") => gres(&format!("gpu:{value}")).map(S::GpusPerProcess),
        (Starter::Accelerate, "gpu_ids") if value != "all" => visible_devices(value),
        // `localhost:0,2`; of several hosts each has its own.
        (Starter::Deepspeed, "include") if !value.contains('@') => visible_devices(value.split_once(':')?.1),
        (Starter::Accelerate, "use_deepspeed") => distributed("DEEPSPEED"),
        (Starter::Accelerate, "use_fsdp") => distributed("FSDP"),
        (Starter::Accelerate, "multi_gpu") => distributed("MULTI_GPU"),
        (Starter::Accelerate, "offload_optimizer_device") => word(value).map(S::OffloadOptimizer),
        (Starter::Accelerate, "offload_param_device") => word(value).map(S::OffloadParameters),
        (Starter::Accelerate, "fsdp_state_dict_type") => word(value).map(S::StateDictType),
        (Starter::Accelerate, "fsdp_sharding_strategy") => word(value).map(S::ShardingStrategy),
        _ => None,
    }
}

fn program_option(name: &str, value: &str) -> Option<LaunchSetting> {
    use LaunchSetting as S;
    let name = name.to_ascii_lowercase().replace('-', "_");
    match name.as_str() {
        "per_device_train_batch_size"
        | "per_gpu_train_batch_size"
        | "micro_batch_size"
        | "train_micro_batch_size_per_gpu"
        | "micro_train_batch_size" => count(value).map(S::MicroBatch),
        "global_batch_size" => count(value).map(S::GlobalBatch),
        "gradient_accumulation_steps" | "accumulate_grad_batches" | "grad_accum_steps" => {
            count(value).map(S::Accumulation)
        }
        "tensor_model_parallel_size" | "tensor_parallel_size" => count(value).map(S::TensorParallel),
        "pipeline_model_parallel_size" | "pipeline_parallel_size" => count(value).map(S::PipelineParallel),
        "gpu_memory_utilization" | "vllm_gpu_memory_utilization" | "mem_fraction_static" => {
            share(value).map(S::MemoryShare)
        }
        "use_vllm" => truth(value).filter(|used| *used).map(|_| S::InferenceEngine("vllm".to_owned())),
        "zero_stage" => value.parse().ok().filter(|stage| *stage <= 3).map(S::ZeroStage),
        "mixed_precision" => word(value).map(S::MixedPrecision),
        "local_rank" | "local-rank" => value.parse().ok().filter(|n| *n <= MAX_COUNT).map(S::LocalRank),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LaunchSetting as S;

    fn read(line: &str) -> Vec<LaunchSetting> {
        shell::commands(line).iter().flat_map(|c| settings(&c.words, &Variables::new())).collect()
    }

    fn program(name: &str) -> LaunchSetting {
        S::Program(name.to_owned())
    }

    #[test]
    fn torchrun_in_its_forms() {
        assert_eq!(
            read("torchrun --standalone --nnodes=2 --nproc_per_node 4 train.py --lr 1e-4 --nproc_per_node 9"),
            [S::Starter(Starter::Torchrun), S::Nodes(2), S::ProcessesPerNode(4), program("train.py")]
        );
        assert_eq!(
            read(
                "CUDA_VISIBLE_DEVICES=2,3 python3 -u -m torch.distributed.launch --nproc-per-node=gpu --use_env a/train.py"
            ),
            [
                S::VisibleDevices(vec!["2".into(), "3".into()]),
                S::Starter(Starter::Torchrun),
                S::ProcessPerGpu,
                program("a/train.py")
            ]
        );
    }

    #[test]
    fn other_launchers() {
        assert_eq!(
            read(
                "accelerate launch --config_file fsdp.yaml --num_processes 3 train.py --gradient_accumulation_steps 2"
            ),
            [S::Starter(Starter::Accelerate), S::WorldSize(3), program("train.py"), S::Accumulation(2)]
        );
        assert_eq!(
            read(
                "deepspeed --include localhost:1,3 --num_nodes 1 run.py --deepspeed ds.json --per_device_train_batch_size 8"
            ),
            [
                S::Starter(Starter::Deepspeed),
                S::VisibleDevices(vec!["1".into(), "3".into()]),
                S::Nodes(1),
                program("run.py"),
                S::MicroBatch(8)
            ]
        );
        assert_eq!(
            read("mpirun -np 8 -x CUDA_VISIBLE_DEVICES=0,1 --bind-to none python train.py"),
            [
                S::Starter(Starter::Mpi),
                S::WorldSize(8),
                S::VisibleDevices(vec!["0".into(), "1".into()]),
                program("train.py")
            ]
        );
        assert_eq!(
            read("srun -N 2 -n16 --gres=gpu:a100:8 --gpus-per-task=1 torchrun --nproc_per_node 8 -m pkg.train"),
            [
                S::Starter(Starter::Srun),
                S::Nodes(2),
                S::WorldSize(16),
                S::GpusPerNode(8),
                S::GpusPerProcess(1),
                S::Starter(Starter::Torchrun),
                S::ProcessesPerNode(8),
                program("-m pkg.train"),
            ]
        );
        assert_eq!(
            read("horovodrun -np 8 -H localhost:8 python train_hvd.py"),
            [S::Starter(Starter::Horovod), S::WorldSize(8), program("train_hvd.py")]
        );
        assert_eq!(
            read("python run.py --per_gpu_train_batch_size 12 --fp16"),
            [S::Starter(Starter::Python), program("run.py"), S::MicroBatch(12)]
        );
    }

    #[test]
    fn what_stands_inside_quotes_is_read_too() {
        assert_eq!(
            read(
                "srun -l bash -c 'RANK=$SLURM_PROCID python run.py --per_gpu_train_batch_size 1 \\\n --gradient_accumulation_steps 4'"
            ),
            [S::Starter(Starter::Srun), program("run.py"), S::MicroBatch(1), S::Accumulation(4)]
        );
    }

    #[test]
    fn engines_beside_the_training() {
        assert_eq!(
            read("CUDA_VISIBLE_DEVICES=1 trl vllm-serve --model m --gpu_memory_utilization 0.9 &"),
            [S::VisibleDevices(vec!["1".into()]), S::InferenceEngine("vllm".into()), S::MemoryShare(0.9)]
        );
        assert_eq!(
            read("python -m vllm.entrypoints.openai.api_server --tensor-parallel-size 2"),
            [S::InferenceEngine("vllm".into()), S::TensorParallel(2)]
        );
    }

    #[test]
    fn other_commands_start_nothing() {
        for line in [
            "ls -l",
            "nvidia-smi -l 1",
            "pip install torch",
            "python -m pip install x",
            "echo torchrun",
            "srun",
            "python",
        ] {
            let settings = read(line);
            assert!(settings.iter().all(|s| matches!(s, S::Starter(_))), "{line}: {settings:?}");
        }
    }

    #[test]
    fn batch_options_of_slurm() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            batch_options(&words("--ntasks-per-node=8 --gres=gpu:8 -N 2 --time=1:00")),
            [S::ProcessesPerNode(8), S::GpusPerNode(8), S::Nodes(2)]
        );
    }
}
