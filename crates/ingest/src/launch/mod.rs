//! How a job was launched: environments, shell and batch scripts, accelerate and DeepSpeed configurations, lists of
//! processes, and what a program prints of all that in its log.
//!
//! Nothing is run, nothing is looked up outside the file, and only settings of a closed list are kept, so that keys
//! and tokens stay where they are. Knows no rule.

mod accelerate;
mod binding;
mod command;
mod deepspeed;
mod environment;
mod printed;
mod process_list;
mod script;
mod secret;
mod shell;
mod variables;

pub(crate) use printed::PrintedReader;
pub(crate) use process_list::ProcessListReader;

use crate::context::{ReadContext, ReadError};
use crate::lines::counted;
use crate::rank_name::rank_from_name;
use rankscope_model::{
    ArtifactKind, Evidence, LaunchEvidence, LaunchFact, LaunchSetting, LaunchSource, Provenance, Rank, UnixMicros,
};

/// What a text is, if it tells of a launch and nothing else, judged by its first bytes; a name only decides between
/// kinds of text that look alike.
pub fn source_of(name: &str, head: &[u8]) -> Option<LaunchSource> {
    if environment::is_nul_separated(head) {
        return Some(LaunchSource::Environment);
    }
    let head = String::from_utf8_lossy(head);
    let head = head.trim_start_matches('\u{feff}');
    if deepspeed::is_config(head) {
        Some(LaunchSource::DeepspeedConfig)
    } else if script::is_script(name, head) {
        Some(LaunchSource::Script)
    } else if accelerate::is_config(head) {
        Some(LaunchSource::AccelerateConfig)
    } else if environment::is_dump(head) {
        Some(LaunchSource::Environment)
    } else {
        None
    }
}

/// Reads a text that [`source_of`] took for one of a launch.
///
/// # Errors
/// When it is damaged.
pub fn read(source: LaunchSource, text: &str, ctx: &ReadContext<'_>) -> Result<Evidence, ReadError> {
    let text = text.trim_start_matches('\u{feff}');
    let mut facts = Facts::new(ctx);
    let kind = match source {
        LaunchSource::Environment => {
            environment::read(text, &mut facts);
            ArtifactKind::Environment
        }
        LaunchSource::Script | LaunchSource::Log | LaunchSource::ProcessList => {
            script::read(text, &mut facts);
            ArtifactKind::LaunchScript
        }
        LaunchSource::AccelerateConfig => {
            accelerate::read(text, &mut facts);
            ArtifactKind::AccelerateConfig
        }
        LaunchSource::DeepspeedConfig => {
            deepspeed::read(text, &mut facts)?;
            ArtifactKind::DeepspeedConfig
        }
    };
    let mut info = ctx.info(kind);
    let launch = facts.finish(source, &mut info.warnings);
    if launch.is_none() {
        info.warnings.push("nothing in it binds ranks to GPUs or sets a batch".to_owned());
    }
    info.ranks = launch.iter().flat_map(|l| &l.facts).filter_map(|fact| fact.rank).map(|rank| rank.0).collect();
    info.ranks.sort_unstable();
    info.ranks.dedup();
    Ok(Evidence { artifacts: vec![info], launches: launch.into_iter().collect(), ..Evidence::default() })
}

/// Gathers the settings of one file, each once for a command.
pub(crate) struct Facts<'c> {
    ctx: &'c ReadContext<'c>,
    file_rank: Option<Rank>,
    kept: Vec<LaunchFact>,
    dropped: u64,
}

impl<'c> Facts<'c> {
    fn new(ctx: &'c ReadContext<'c>) -> Self {
        Self { ctx, file_rank: rank_from_name(ctx.name), kept: Vec::new(), dropped: 0 }
    }

    /// Adds a setting read at `line`, whose text is quoted without its secrets.
    fn add(&mut self, line: u64, text: &str, command: u32, what: LaunchSetting) {
        self.add_at(line, None, text, self.file_rank, command, what);
    }

    fn add_at(
        &mut self,
        line: u64,
        time: Option<UnixMicros>,
        text: &str,
        rank: Option<Rank>,
        command: u32,
        what: LaunchSetting,
    ) {
        // Looked at from the end: a repeat stands near, and a file of thousands of settings stays linear.
        let is_known = |fact: &LaunchFact| fact.command == command && fact.rank == rank && fact.what == what;
        if self.kept.iter().rev().take(256).any(is_known) {
            return;
        }
        if self.kept.len() >= self.ctx.limits.max_launch_facts {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        let at = Provenance { time, ..Provenance::line(self.ctx.artifact, line, &secret::masked(beginning(text))) };
        self.kept.push(LaunchFact { at, rank, command, what });
    }

    fn finish(self, source: LaunchSource, warnings: &mut Vec<String>) -> Option<LaunchEvidence> {
        if self.dropped > 0 {
            let limit = self.ctx.limits.max_launch_facts;
            let settings = counted(self.dropped, "setting was", "settings were");
            warnings.push(format!("{settings} left out beyond the limit of {limit}"));
        }
        let at = self.kept.first()?.at.clone();
        Some(LaunchEvidence { at, source, facts: self.kept })
    }
}

/// Bytes of a line in which secrets are looked for; a quote is far shorter.
const MASKED: usize = 4 << 10;

/// The beginning of a line, without the word in which it is cut: half of a key no longer looks like one.
fn beginning(text: &str) -> &str {
    if text.len() <= MASKED {
        return text;
    }
    let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= MASKED).last().unwrap_or(0);
    let head = text.get(..end).unwrap_or_default();
    head.rfind(char::is_whitespace).and_then(|at| head.get(..at)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Limits;
    use rankscope_model::{ArtifactId, Starter};

    /// The settings of a text, by the way of a whole file.
    pub(super) fn settings(name: &str, text: &str) -> Vec<LaunchSetting> {
        let limits = Limits::default();
        let ctx = ReadContext { artifact: ArtifactId(0), name, limits: &limits };
        let source = source_of(name, text.as_bytes()).expect("a launch text");
        let evidence = read(source, text, &ctx).unwrap();
        evidence.launches.into_iter().flat_map(|l| l.facts).map(|f| f.what).collect()
    }

    #[test]
    fn content_decides() {
        let source = |name, text: &str| source_of(name, text.as_bytes());
        assert_eq!(source("a", "RANK=0\0WORLD_SIZE=8\0HOME=/root\0"), Some(LaunchSource::Environment));
        assert_eq!(
            source("a", "SHELL=/bin/bash\nPATH=/usr/bin\nRANK=1\nLD_LIBRARY_PATH=/x\n"),
            Some(LaunchSource::Environment)
        );
        assert_eq!(source("a", "#!/bin/bash\n#SBATCH -N 2\nsrun python x.py\n"), Some(LaunchSource::Script));
        assert_eq!(source("run.sh", "torchrun --nproc_per_node=2 train.py\n"), Some(LaunchSource::Script));
        assert_eq!(source("pasted", "torchrun --nproc_per_node=2 train.py --lr 1\n"), Some(LaunchSource::Script));
        assert_eq!(source("x", "{\"zero_optimization\": {\"stage\": 3}}"), Some(LaunchSource::DeepspeedConfig));
        assert_eq!(
            source("x", "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 4\n"),
            Some(LaunchSource::AccelerateConfig)
        );
        assert_eq!(source("job.log", "[train] rank=0 step=3 cur=1.0MB\nRANK=0\n"), None);
        assert_eq!(source("run.sh", "step 1 loss 3\nstep 2 loss 2\n"), None);
        assert_eq!(source("x.json", "{\"active.all.current\": 3}"), None);
        assert_eq!(source("train.py", "#!/usr/bin/env python3\nimport torch\n"), None);
    }

    #[test]
    fn secrets_of_an_environment_are_never_kept() {
        let dump = "HF_TOKEN=hf_abcdefghijklmnopqrstuv\nWANDB_API_KEY=0123456789abcdef\nRANK=3\nDB_PASSWORD=x1y2\nNCCL_DEBUG=INFO\nPATH=/bin\n";
        let limits = Limits::default();
        let ctx = ReadContext { artifact: ArtifactId(0), name: "env.txt", limits: &limits };
        let evidence = read(LaunchSource::Environment, dump, &ctx).unwrap();
        let json = serde_json::to_string(&evidence).unwrap();
        for secret in ["hf_abc", "0123456789abcdef", "x1y2"] {
            assert!(!json.contains(secret), "{json}");
        }
        let script = "#!/bin/bash\nHF_TOKEN=hf_abcdefghijklmnopqrstuv WANDB_API_KEY='0123456789abcdef' torchrun --nproc_per_node 4 train.py --api-key x1y2 --url https://me:x1y2@host/\n";
        let evidence = read(LaunchSource::Script, script, &ctx).unwrap();
        let json = serde_json::to_string(&evidence).unwrap();
        for secret in ["hf_abc", "0123456789abcdef", "x1y2"] {
            assert!(!json.contains(secret), "{json}");
        }
        assert!(json.contains("torchrun"));
    }

    #[test]
    fn long_lines_are_looked_at_to_a_bound() {
        let key = "hf_abcdefghijklmnopqrstuvwxyz";
        assert_eq!(beginning("short"), "short");
        let cut = format!("{} {key}{}", "x".repeat(MASKED - 10), "y".repeat(100));
        assert!(!beginning(&cut).contains("hf_"));
        assert_eq!(beginning(&"x".repeat(MASKED * 2)), "");
        // 4 KiB of words that each become 64 KiB.
        let text =
            format!("#!/bin/bash\nA={}\ntorchrun {}train.py\n", "a".repeat(1000), "$A$A$A$A$A$A$A$A$A ".repeat(4000));
        let limits = Limits::default();
        let ctx = ReadContext { artifact: ArtifactId(0), name: "run.sh", limits: &limits };
        let evidence = read(LaunchSource::Script, &text, &ctx).unwrap();
        assert_eq!(evidence.launches[0].facts.len(), 1);
        // A shell that is named thousands of times is looked through once.
        let text = format!("#!/bin/bash\ntorchrun {}train.py\n", "bash ".repeat(4000));
        assert_eq!(read(LaunchSource::Script, &text, &ctx).unwrap().launches[0].facts.len(), 2);
    }

    #[test]
    fn facts_of_one_command_belong_together() {
        let text = "#!/bin/bash\nCUDA_VISIBLE_DEVICES=1 trl vllm-serve --model m --gpu_memory_utilization 0.9 &\nsleep 90\npython train.py --use_vllm true\n";
        let limits = Limits::default();
        let ctx = ReadContext { artifact: ArtifactId(0), name: "run.sh", limits: &limits };
        let evidence = read(LaunchSource::Script, text, &ctx).unwrap();
        let facts = &evidence.launches[0].facts;
        let command = |what: &LaunchSetting| facts.iter().find(|f| f.what == *what).map(|f| (f.command, &f.at.place));
        let devices = command(&LaunchSetting::VisibleDevices(vec!["1".into()])).unwrap();
        let engine = command(&LaunchSetting::MemoryShare(0.9)).unwrap();
        let python = command(&LaunchSetting::Starter(Starter::Python)).unwrap();
        assert_eq!(devices.0, engine.0);
        assert_ne!(engine.0, python.0);
        assert_eq!(*python.1, rankscope_model::Place::Line(4));
    }
}
