//! Shell and batch scripts: `#SBATCH` lines, exported variables, and the commands that start processes.

use super::shell::{self, Variables};
use super::{Facts, command, variables};
use rankscope_model::LaunchSetting;

/// Lines of the head that are looked at.
const HEAD_LINES: usize = 400;

/// Whether a text is a shell script or a pasted command that starts a job.
///
/// A shebang or `#SBATCH` tells; a name that ends in `.sh` or a short paste needs a command that starts something.
pub(super) fn is_script(name: &str, head: &str) -> bool {
    let first = head.lines().next().unwrap_or_default();
    if let Some(interpreter) = first.strip_prefix("#!") {
        return ["sh", "bash", "zsh", "dash", "ksh"]
            .iter()
            .any(|shell| interpreter.trim_end().rsplit(['/', ' ']).any(|part| part == *shell));
    }
    if head.lines().take(HEAD_LINES).any(|line| line.starts_with("#SBATCH ") || line.starts_with("#PBS ")) {
        return true;
    }
    let own = name.trim_end_matches(".gz").trim_end_matches(".zst");
    let by_name = own
        .rsplit_once('.')
        .is_some_and(|(_, ext)| ["sh", "bash", "sbatch", "slurm", "zsh"].iter().any(|e| ext.eq_ignore_ascii_case(e)));
    let commands = shell::commands(head);
    let starts = |c: &shell::Command| !command::settings(&c.words, &Variables::new()).is_empty();
    if by_name {
        return commands.iter().any(starts);
    }
    // A paste: every line of it is a command, and the first that is more than a variable starts the job.
    let is_assignment = |c: &shell::Command| {
        c.words.first().is_some_and(|w| w == "export" || w == "cd" || w == "set" || w == "source")
            || c.words.iter().all(|w| shell::assignment(w).is_some())
    };
    (1..=12).contains(&commands.len())
        && commands.iter().all(|c| is_assignment(c) || starts(c))
        && commands.iter().any(|c| starts(c) && c.words.len() >= 3)
}

/// Reads the script.
pub(super) fn read(text: &str, facts: &mut Facts<'_>) {
    let lines: Vec<&str> = text.lines().collect();
    let quote = |line: u64| usize::try_from(line).ok().and_then(|n| lines.get(n.checked_sub(1)?)).copied();
    for (number, line) in (1u64..).zip(&lines) {
        if let Some(options) = line.strip_prefix("#SBATCH ") {
            let options = options.split(" #").next().unwrap_or(options);
            let words: Vec<String> = options.split_ascii_whitespace().map(str::to_owned).collect();
            for setting in command::batch_options(&words) {
                facts.add(number, line, 0, setting);
            }
        }
    }
    let mut known = Variables::new();
    let mut count = 0u32;
    // What the commands below see, and where it was set; the last one holds.
    let mut visible: Vec<Visible> = Vec::new();
    for command in shell::commands(text) {
        // No command stands in a block again that has ended.
        while visible.last().is_some_and(|one| !command.blocks.starts_with(&one.blocks)) {
            visible.pop();
        }
        let quoted = quote(command.line).unwrap_or_default();
        let assigns = match command.words.first().map(String::as_str) {
            Some("export" | "declare" | "local" | "readonly") => command.words.get(1..),
            _ if command.words.iter().all(|word| shell::assignment(word).is_some()) => Some(&*command.words),
            _ => None,
        };
        if let Some(words) = assigns {
            for (name, value) in words.iter().filter_map(|word| shell::assignment(word)) {
                let value = shell::expanded(value, &known);
                match variables::setting(name, &value) {
                    Some(setting @ LaunchSetting::VisibleDevices(_)) => {
                        visible.push(Visible { setting, line: command.line, quoted, blocks: command.blocks.clone() });
                    }
                    Some(setting) => facts.add(command.line, quoted, 0, setting),
                    None => {}
                }
                if known.len() < 1024 && value.len() <= 1024 {
                    known.insert(name.to_owned(), value);
                }
            }
            continue;
        }
        let names_it = |word: &String| word == "CUDA_VISIBLE_DEVICES";
        if command.words.first().is_some_and(|word| word == "unset") && command.words.iter().any(names_it) {
            visible.clear();
            continue;
        }
        let settings = command::settings(&command.words, &known);
        if !settings.is_empty() {
            count = count.saturating_add(1);
            // `env -u NAME`, or devices of its own.
            let has_own = settings.iter().any(|one| matches!(one, LaunchSetting::VisibleDevices(_)))
                || command.words.iter().any(names_it);
            if let Some(held) = visible.last().filter(|_| !has_own) {
                facts.add(held.line, held.quoted, count, held.setting.clone());
            }
        }
        for setting in settings {
            facts.add(command.line, quoted, count, setting);
        }
    }
    // Where no command was recognised, what holds for the whole script.
    for one in visible.into_iter().filter(|one| one.blocks.is_empty() && count == 0) {
        facts.add(one.line, one.quoted, 0, one.setting);
    }
}

/// Visible devices that a line of the script sets.
struct Visible<'t> {
    setting: LaunchSetting,
    line: u64,
    quoted: &'t str,
    blocks: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use rankscope_model::{LaunchSetting as S, Starter};

    #[test]
    fn a_batch_script_with_variables() {
        let text = "#!/bin/bash\n#SBATCH --nodes=2 # two\n#SBATCH --ntasks-per-node=1\nexport NCCL_DEBUG=INFO GPUS=4\nNODES=2\nsrun torchrun --nnodes=$NODES --nproc_per_node=${GPUS} \\\n   --rdzv_id=${SLURM_JOB_ID} train.py --micro-batch-size ${MBS:-2}\n";
        assert_eq!(
            settings("job", text),
            [
                S::Nodes(2),
                S::ProcessesPerNode(1),
                S::Variable { name: "NCCL_DEBUG".into(), value: "INFO".into() },
                S::Starter(Starter::Srun),
                S::Starter(Starter::Torchrun),
                S::Nodes(2),
                S::ProcessesPerNode(4),
                S::Program("train.py".into()),
                S::MicroBatch(2),
            ]
        );
    }

    #[test]
    fn devices_hold_where_the_shell_would_let_them() {
        let seen = |body: &str| {
            let text = format!("#!/bin/bash\n{body}\n");
            settings("run.sh", &text).into_iter().filter(|one| matches!(one, S::VisibleDevices(_))).count()
        };
        let run = "torchrun --nproc_per_node=4 train.py";
        for body in [
            format!("export CUDA_VISIBLE_DEVICES=0\n{run}"),
            format!("main() {{\n export CUDA_VISIBLE_DEVICES=0\n {run}\n}}\nmain"),
            format!("if [ -n \"$X\" ]; then\n export CUDA_VISIBLE_DEVICES=0\n {run}\nfi"),
            format!("export CUDA_VISIBLE_DEVICES=0\nif true; then {run}; fi"),
            format!("cd x && {run}\nexport CUDA_VISIBLE_DEVICES=1\n{run}"),
            format!("CUDA_VISIBLE_DEVICES=0 {run}"),
        ] {
            assert_eq!(seen(&body), 1, "{body}");
        }
        for body in [
            format!("if [ \"$DEBUG\" = 1 ]; then\n  export CUDA_VISIBLE_DEVICES=0\nfi\n{run}"),
            format!("debug() {{\n export CUDA_VISIBLE_DEVICES=0\n}}\n{run}"),
            format!("(export CUDA_VISIBLE_DEVICES=0; python pre.py)\n{run}").replace("; python pre.py", ""),
            format!("{run}\nexport CUDA_VISIBLE_DEVICES=0"),
            format!("case $1 in\n a) export CUDA_VISIBLE_DEVICES=0 ;;\nesac\n{run}"),
            format!("[ -n \"$DEBUG\" ] && export CUDA_VISIBLE_DEVICES=0\n{run}"),
            format!("export CUDA_VISIBLE_DEVICES=0\nunset CUDA_VISIBLE_DEVICES\n{run}"),
            format!("export CUDA_VISIBLE_DEVICES=0\nenv -u CUDA_VISIBLE_DEVICES {run}"),
        ] {
            assert_eq!(seen(&body), 0, "{body}");
        }
    }

    #[test]
    fn a_number_that_only_the_shell_knows_is_not_guessed() {
        let text = "#!/bin/bash\ntorchrun --nproc_per_node=$(nvidia-smi -L | wc -l) train.py\n";
        assert_eq!(settings("x.sh", text), [S::Starter(Starter::Torchrun)]);
    }
}
