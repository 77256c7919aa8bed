//! Process lists: `ps aux`, `ps -ef`, `ps -eo pid,…,cmd` and `top -b`, alone or in a log.
//!
//! A list shows the processes of all jobs and users of a machine. Only launchers and engines are taken from it: a row
//! `python train.py` may be a rank, one of its data loaders or somebody else's. Knows no rule.

use super::shell::Variables;
use super::{Facts, command};
use crate::context::ReadContext;
use crate::lines::{Line, counted};
use rankscope_model::{LaunchEvidence, LaunchSetting, LaunchSource, Starter};
use std::collections::BTreeSet;

/// Titles of columns that `ps` and `top` write. A head of others is that of another tool.
const TITLES: [&str; 55] = [
    "%CPU", "%MEM", "ADDR", "ARGS", "C", "CLS", "CMD", "COMMAND", "CP", "CPU", "ELAPSED", "EUSER", "F", "GID", "GROUP",
    "LSTART", "LWP", "MEM", "NI", "NLWP", "P", "PCPU", "PGID", "PGRP", "PID", "PMEM", "PPID", "PR", "PRI", "PSR",
    "RES", "RSS", "RSZ", "RTPRIO", "RUSER", "S", "SESS", "SHR", "SID", "SPID", "START", "STARTED", "STAT", "STATE",
    "STIME", "SZ", "THCNT", "TIME", "TIME+", "TTY", "UID", "USER", "VIRT", "VSIZE", "VSZ",
];
/// Those whose cells are numbers of processes or threads.
const NUMBERS: [&str; 8] = ["PID", "PPID", "PGID", "PGRP", "SID", "SESS", "LWP", "SPID"];
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// Different commands that later ones are compared with.
const MAX_COMPARED: usize = 256;
/// Bytes of one command line that are looked at.
const LOOKED_AT: usize = 8 << 10;

/// What a column holds, as far as it matters to tell a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Number,
    User,
    /// `08:02`, `May08`, `May 08`, `Wed May  8 08:02:10 2024`.
    Start,
    Other,
}

/// Gathers launch commands from the rows of process lists.
pub(crate) struct ProcessListReader<'c> {
    facts: Facts<'c>,
    /// The columns in front of the command, while a list is read.
    columns: Option<Vec<Column>>,
    rows: u64,
    commands: u32,
    /// Settings of the commands seen: `srun` stands twice in a list, and a job may stand in many.
    known: Vec<Vec<LaunchSetting>>,
    /// Users whose processes start a job; two tell that there are several.
    users: BTreeSet<String>,
}

impl<'c> ProcessListReader<'c> {
    pub(crate) fn new(ctx: &'c ReadContext<'c>) -> Self {
        // A list is of a machine: the name of its file tells no rank.
        let facts = Facts { file_rank: None, ..Facts::new(ctx) };
        Self { facts, columns: None, rows: 0, commands: 0, known: Vec::new(), users: BTreeSet::new() }
    }

    /// Takes a line; `true` if it is the head or a row of a list.
    pub(crate) fn line(&mut self, line: &Line<'_>) -> bool {
        if let Some(columns) = columns(line.text) {
            self.columns = Some(columns);
            return true;
        }
        let Some(row) = self.columns.as_deref().and_then(|columns| row(columns, line.text)) else {
            self.columns = None;
            return false;
        };
        self.rows = self.rows.saturating_add(1);
        let settings = settings(row.command);
        let is_known = self.known.contains(&settings);
        if settings.is_empty() || is_known {
            return true;
        }
        if self.users.len() < 2 {
            self.users.extend(row.user.map(str::to_owned));
        }
        self.commands = self.commands.saturating_add(1);
        for setting in &settings {
            self.facts.add(line.number, line.text, self.commands, setting.clone());
        }
        if self.known.len() < MAX_COMPARED {
            self.known.push(settings);
        }
        true
    }

    /// How many rows were read, and what starts the job where that can be told.
    pub(crate) fn finish(self, warnings: &mut Vec<String>) -> (u64, Option<LaunchEvidence>) {
        if self.users.len() > 1 {
            warnings.push(format!(
                "{} of more than one user in the process list, and which of them is this job it does not say, so none \
                 was taken; leave only the rows of your own processes",
                counted(self.commands.into(), "launch command", "launch commands")
            ));
            return (self.rows, None);
        }
        (self.rows, self.facts.finish(LaunchSource::ProcessList, warnings))
    }
}

/// The columns in front of the command, if a line is the head of a list: `PID` among them, the command the last.
fn columns(text: &str) -> Option<Vec<Column>> {
    if !(text.ends_with("CMD") || text.ends_with("COMMAND") || text.ends_with("ARGS")) {
        return None;
    }
    let titles: Vec<&str> = text.split_ascii_whitespace().take(TITLES.len()).collect();
    let (_, columns) = titles.split_last()?;
    if !columns.contains(&"PID") || titles.iter().any(|title| !TITLES.contains(title)) {
        return None;
    }
    let column = |title: &&str| match *title {
        title if NUMBERS.contains(&title) => Column::Number,
        "USER" | "UID" | "EUSER" | "RUSER" => Column::User,
        "START" | "STARTED" | "LSTART" | "STIME" => Column::Start,
        _ => Column::Other,
    };
    Some(columns.iter().map(column).collect())
}

struct Row<'t> {
    user: Option<&'t str>,
    command: &'t str,
}

/// A row of a list; nothing if a cell is missing or is not of its column.
fn row<'t>(columns: &[Column], text: &'t str) -> Option<Row<'t>> {
    let mut rest = text;
    let mut user = None;
    for column in columns {
        let cell = word(&mut rest)?;
        match column {
            Column::Number => {
                cell.parse::<u32>().ok()?;
            }
            Column::User => user = Some(cell),
            Column::Start => {
                let more = if DAYS.contains(&cell) { 4 } else { usize::from(MONTHS.contains(&cell)) };
                for _ in 0..more {
                    word(&mut rest)?;
                }
            }
            Column::Other => {}
        }
    }
    let command = rest.trim();
    (!command.is_empty()).then_some(Row { user, command })
}

fn word<'t>(rest: &mut &'t str) -> Option<&'t str> {
    let text = rest.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, behind) = text.split_at_checked(end)?;
    *rest = behind;
    (!word.is_empty()).then_some(word)
}

/// What a command line starts: the settings of a launcher or an engine, and of nothing else.
fn settings(command: &str) -> Vec<LaunchSetting> {
    let end = command.char_indices().map(|(at, _)| at).find(|at| *at >= LOOKED_AT).unwrap_or(command.len());
    // The quotes of the shell are gone: a blank parts words wherever it stands. `\_` draws the tree of `ps f`.
    let words = command.get(..end).unwrap_or_default().split_ascii_whitespace();
    let words: Vec<String> = words.skip_while(|word| matches!(*word, "\\_" | "|")).map(str::to_owned).collect();
    let settings = command::settings(&words, &Variables::new());
    let starts = |setting: &LaunchSetting| match setting {
        LaunchSetting::Starter(starter) => *starter != Starter::Python,
        LaunchSetting::InferenceEngine(_) => true,
        _ => false,
    };
    // One word that is the name of a launcher, such as a folder, is no command.
    if settings.len() >= 2 && settings.iter().any(starts) { settings } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Limits;
    use crate::sniff::TextEncoding;
    use crate::text;
    use LaunchSetting as S;
    use proptest::prelude::*;
    use rankscope_model::{ArtifactId, ArtifactKind, Evidence, Place};

    fn read(name: &str, text: &str) -> Evidence {
        let limits = Limits::default();
        let ctx = ReadContext { artifact: ArtifactId(0), name, limits: &limits };
        text::read_with(&mut text.as_bytes(), TextEncoding::Utf8, &ctx, text::Readers::ALL).unwrap()
    }

    const AUX: &str = "USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND
root           1  0.0  0.0 168140 11200 ?        Ss   May07   0:12 /sbin/init splash
ann       147290  0.3  0.1 5120000 48100 pts/3   Sl+  08:01   0:21 /opt/conda/bin/python /opt/conda/bin/torchrun --nproc_per_node=4 train.py --rank 3 peak=5MB
ann       147301 99.9  3.1 41200000 910000 pts/3 Rl+  08:02 101:21 /opt/conda/bin/python -u train.py --rank 3 peak=5MB
ann       147302 99.9  3.1 41200000 910000 pts/3 Rl+  08:02 101:21 /opt/conda/bin/python -u train.py --rank 3 peak=5MB
ann       150001  0.0  0.0   9000  1000 pts/4    S+   09:41   0:00 grep --color=auto torchrun
";
    const EF: &str = "UID          PID    PPID  C STIME TTY          TIME CMD
bob        88001   87990  0 Nov05 ?        00:00:02 srun -N 2 -n16 --gres=gpu:8 python train.py
bob        88002   88001  0 Nov05 ?        00:00:00 srun -N 2 -n16 --gres=gpu:8 python train.py
bob        88010       1  0 Nov05 ?        00:00:02 [python] <defunct>
";
    const TOP: &str = "top - 09:41:20 up 12 days,  1:02,  3 users,  load average: 4.01, 4.05, 4.07
Tasks: 612 total,   5 running, 607 sleeping,   0 stopped,   0 zombie

    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND
 147301 ann       20   0   41.2g 910000 320000 R  99.9   3.1 101:21.10 python
 147302 ann       20   0   41.2g 910000 320000 R  99.9   3.1 101:21.10 python
";
    const LSTART: &str = "    PID    PPID                  STARTED     ELAPSED STAT CMD
 147301       1 Wed May  8 08:02:10 2024    01:39:06 Sl   deepspeed --num_gpus 8 train.py
";

    #[test]
    fn lists_of_every_form_are_recognised_and_their_launchers_read() {
        let program = || S::Program("train.py".to_owned());
        for (text, rows, settings) in [
            (AUX, 5, vec![S::Starter(Starter::Torchrun), S::ProcessesPerNode(4), program()]),
            (EF, 3, vec![S::Starter(Starter::Srun), S::Nodes(2), S::WorldSize(16), S::GpusPerNode(8), program()]),
            (TOP, 2, vec![]),
            (LSTART, 1, vec![S::Starter(Starter::Deepspeed), S::ProcessesPerNode(8), program()]),
        ] {
            // The name of the file is no rank of the processes in it, and figures in a command line are none of a rank.
            let evidence = read("ps-rank5.txt", text);
            let artifact = &evidence.artifacts[0];
            assert_eq!((artifact.kind, artifact.ranks.as_slice()), (ArtifactKind::ProcessList, &[][..]), "{text}");
            assert_eq!((artifact.warnings.as_slice(), evidence.steps.as_slice()), (&[][..], &[][..]), "{text}");
            let found: Vec<_> = evidence.launches.iter().flat_map(|launch| &launch.facts).collect();
            assert_eq!(found.iter().map(|fact| fact.what.clone()).collect::<Vec<_>>(), settings, "{text}");
            assert!(found.iter().all(|fact| fact.rank.is_none()));
            let limits = Limits::default();
            let ctx = ReadContext { artifact: ArtifactId(0), name: "", limits: &limits };
            let mut reader = ProcessListReader::new(&ctx);
            for (number, text) in (1u64..).zip(text.lines()) {
                reader.line(&Line {
                    number,
                    text,
                    body: text.trim(),
                    label: crate::lines::Label::default(),
                    time: None,
                });
            }
            assert_eq!(reader.finish(&mut Vec::new()).0, rows, "{text}");
        }
        let torchrun = &read("ps.txt", AUX).launches[0];
        assert_eq!((torchrun.source, torchrun.at.place), (LaunchSource::ProcessList, Place::Line(3)));
        assert!(torchrun.at.quote.starts_with("ann       147290"));
    }

    #[test]
    fn jobs_of_several_users_are_not_mixed() {
        let evidence = read(
            "ps.txt",
            &format!("{AUX}dora 5 0.0 0.0 1 1 ? S 09:00 0:00 accelerate launch --num_processes 2 x.py\n"),
        );
        assert!(evidence.launches.is_empty());
        assert!(evidence.artifacts[0].warnings[0].starts_with("2 launch commands of more than one user"));
    }

    #[test]
    fn a_list_inside_a_log_ends_where_its_rows_do() {
        let evidence = read("job.log", &format!("{LSTART}rank=1 step=2 peak=5MB\nPID COMMAND\n"));
        assert_eq!((evidence.steps.len(), evidence.launches.len()), (1, 1));
        assert_eq!(evidence.artifacts[0].kind, ArtifactKind::StepLog);
    }

    #[test]
    fn other_heads_are_none() {
        for text in [
            "|  GPU   GI   CI        PID   Type   Process name                  GPU Memory |",
            "# gpu        pid  type    sm   mem   enc   dec   command",
            "GPU     PID      USER  GPU-MEM %SM  %CPU  %MEM      TIME  COMMAND",
            "the PID of the COMMAND",
            "USER COMMAND",
            "CMD",
            "",
        ] {
            assert_eq!(columns(text), None, "{text}");
        }
        assert_eq!(read("a.txt", "PID CMD\nno row\n").artifacts[0].kind, ArtifactKind::Text);
    }

    #[test]
    fn secrets_of_command_lines_are_masked() {
        let text = "PID CMD\n12 torchrun --nproc_per_node 4 train.py --hf_token hf_abcdefghijklmnopqrstuv\n";
        let json = serde_json::to_string(&read("ps.txt", text)).unwrap();
        assert!(json.contains("torchrun") && !json.contains("hf_abc"), "{json}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever stands in the cells: a list is read to its end, and every setting has the line of its row.
        #[test]
        fn rows_keep_their_lines(
            rows in prop::collection::vec((any::<u32>(), "[a-z ]{0,12}", prop::sample::select(vec![
                "torchrun --nproc_per_node=2 a.py", "python a.py", "accelerate launch --num_processes 8 b.py", "bash -c 'x", "\"", "显 \\_ torchrun",
            ])), 0..20),
            head in prop::sample::select(vec!["PID CMD", "  PID COMMAND", "PID STARTED ARGS"]),
        ) {
            let lines: Vec<String> = rows.iter().map(|(pid, noise, command)| format!("{pid} {command} {noise}")).collect();
            let text = format!("{head}\n{}\n", lines.join("\n"));
            let evidence = read("ps.txt", &text);
            for fact in evidence.launches.iter().flat_map(|launch| &launch.facts) {
                let Place::Line(line) = fact.at.place else { panic!("a line") };
                let row = text.lines().nth(usize::try_from(line).unwrap() - 1).unwrap();
                prop_assert_eq!(row.trim_end(), fact.at.quote.as_str());
            }
        }
    }
}
