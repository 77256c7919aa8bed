//! Which rank a process is, from the environment it was started with.
//!
//! The launcher's variables are inherited by every child, so a process that only repeats its parent is told apart as a
//! helper. What a process sets later by itself (`mp.spawn`, `os.environ[...] = ...`) is not visible here.

use crate::job::JobKey;
use rankscope_model::Rank;
use std::io;
use std::path::{Path, PathBuf};

/// By preference: `RANK` is what torchrun gives the worker itself; the others count the launcher's tasks.
const RANK: &[&str] = &[
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "MV2_COMM_WORLD_RANK",
    "JSM_NAMESPACE_RANK",
    "SLURM_PROCID",
];
const LOCAL_RANK: &[&str] = &[
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
    "JSM_NAMESPACE_LOCAL_RANK",
];
const WORLD_SIZE: &[&str] = &["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];

/// Generations of helpers that are followed up to the rank: a worker of a fork server of the rank, and some more.
const GENERATIONS: usize = 6;

/// The `proc` file system. Another root is for tests, and for a host's `/proc` mounted into a container.
#[derive(Debug, Clone)]
pub struct ProcFs {
    root: PathBuf,
}

impl Default for ProcFs {
    fn default() -> Self {
        Self::at("/proc")
    }
}

/// What `/proc` says of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessIdentity {
    /// It was started with rank variables.
    Ranked(RankIdentity),
    /// Its environment can be read and says no rank.
    Unranked,
    /// Its environment may not be read: another user's process.
    NoPermission,
    /// There is no such process here: it ended, or its PID is of another namespace.
    Gone,
}

/// The rank of a process, and where it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankIdentity {
    /// Global rank.
    pub rank: Rank,
    /// The variable that said so, `RANK`.
    pub variable: &'static str,
    /// Rank within the host.
    pub local_rank: Option<u32>,
    /// Ranks in the job.
    pub world_size: Option<u32>,
    /// What all processes of the job have in common: tells two jobs on a host apart, and joins hosts.
    pub job: Option<JobKey>,
    /// `CUDA_VISIBLE_DEVICES` as set; an empty text hides all devices.
    pub visible_devices: Option<String>,
    /// The rank's own process, when this is one of its helpers (loader workers, compile workers): all generations from
    /// there down to this one run the same program with the same rank.
    pub helper_of: Option<u32>,
}

/// What tells one process from another that has its PID later, and what it is called inside its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessBirth {
    /// When it started, in the kernel's ticks since boot.
    pub started: Option<u64>,
    /// Its PID in its own namespace, where that is another than the host's.
    pub pid_inside: Option<u32>,
}

impl ProcFs {
    /// With another root than `/proc`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Reads the environment that `pid` was started with.
    pub fn rank_of_process(&self, pid: u32) -> ProcessIdentity {
        let environment = match self.environment(pid) {
            Ok(environment) => environment,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return ProcessIdentity::NoPermission,
            Err(_) => return ProcessIdentity::Gone,
        };
        let Some((rank, variable)) = environment.rank() else { return ProcessIdentity::Unranked };
        self.ranked(pid, &environment, rank, variable)
    }

    fn ranked(&self, pid: u32, environment: &Environment, rank: u32, variable: &'static str) -> ProcessIdentity {
        ProcessIdentity::Ranked(RankIdentity {
            rank: Rank(rank),
            variable,
            local_rank: environment.first_number(LOCAL_RANK).map(|(number, _)| number),
            world_size: environment.first_number(WORLD_SIZE).map(|(number, _)| number),
            job: JobKey::of(&|name| environment.get(name)),
            visible_devices: environment.get("CUDA_VISIBLE_DEVICES"),
            helper_of: self.rank_above(pid, (rank, variable)),
        })
    }

    /// The oldest ancestor up to which all run the program of `pid` with its rank.
    fn rank_above(&self, pid: u32, rank: (u32, &'static str)) -> Option<u32> {
        let program = self.program(pid)?;
        let mut oldest = None;
        let mut child = pid;
        for _ in 0..GENERATIONS {
            let Some(parent) = self.parent(child) else { break };
            let same_rank = self.environment(parent).is_ok_and(|theirs| theirs.rank() == Some(rank));
            if !same_rank || self.program(parent).as_ref() != Some(&program) {
                break;
            }
            oldest = Some(parent);
            child = parent;
        }
        oldest
    }

    /// When `pid` started: one small read, enough to tell whether it is still the process that was looked at before.
    /// `None` when there is no such process.
    pub fn started(&self, pid: u32) -> Option<u64> {
        let stat = std::fs::read(self.of(pid, "stat")).ok()?;
        // The second field is the name in parentheses, in which anything may stand; the 22nd is the start.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
        rest.split_ascii_whitespace().nth(19)?.parse().ok()
    }

    /// What tells `pid` from others.
    pub fn birth(&self, pid: u32) -> ProcessBirth {
        let inside = self.status(pid, "NSpid:").and_then(|pids| pids.split_ascii_whitespace().last()?.parse().ok());
        ProcessBirth { started: self.started(pid), pid_inside: inside.filter(|inside| *inside != pid) }
    }

    /// The kernel's boot id and the host's name: a boot tells a restart of the node.
    pub fn boot_id(&self) -> Option<String> {
        self.kernel_text("sys/kernel/random/boot_id")
    }

    /// Host name, as this process sees it.
    pub fn host_name(&self) -> Option<String> {
        self.kernel_text("sys/kernel/hostname")
    }

    /// Of this root, else of this machine.
    fn kernel_text(&self, file: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.root.join(file))
            .or_else(|_| std::fs::read_to_string(Path::new("/proc").join(file)))
            .ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// The name it goes by: the program's file name, else what the kernel calls it.
    pub(crate) fn name(&self, pid: u32) -> Option<String> {
        let program = self.program(pid).and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        program.or_else(|| {
            let name = std::fs::read(self.of(pid, "comm")).ok()?;
            Some(String::from_utf8_lossy(&name).trim_end().to_owned())
        })
    }

    fn environment(&self, pid: u32) -> io::Result<Environment> {
        std::fs::read(self.of(pid, "environ")).map(Environment)
    }

    fn parent(&self, pid: u32) -> Option<u32> {
        self.status(pid, "PPid:")?.parse().ok().filter(|parent| *parent != 0)
    }

    fn status(&self, pid: u32, field: &str) -> Option<String> {
        let status = std::fs::read(self.of(pid, "status")).ok()?;
        // The name in the first line is the process's own choice and need not be UTF-8.
        let status = String::from_utf8_lossy(&status);
        status.lines().find_map(|line| line.strip_prefix(field)).map(|value| value.trim().to_owned())
    }

    fn program(&self, pid: u32) -> Option<PathBuf> {
        std::fs::read_link(self.of(pid, "exe")).ok()
    }

    fn of(&self, pid: u32, file: &str) -> PathBuf {
        Path::new(&self.root).join(pid.to_string()).join(file)
    }
}

/// `NAME=value` entries, each ended by a zero byte. Foreign bytes: a process may write anything there.
struct Environment(Vec<u8>);

impl Environment {
    fn get(&self, name: &str) -> Option<String> {
        self.0
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
            .map(|value| String::from_utf8_lossy(value).into_owned())
    }

    /// The global rank and the variable that said so; of a launcher that numbers nodes, from the place on the node.
    fn rank(&self) -> Option<(u32, &'static str)> {
        let number = |name: &'static str| self.first_number(&[name]).map(|(number, _)| number);
        self.first_number(RANK).or_else(|| {
            let before = number("GROUP_RANK")?.checked_mul(number("LOCAL_WORLD_SIZE")?)?;
            Some((before.checked_add(number("LOCAL_RANK")?)?, "GROUP_RANK"))
        })
    }

    /// The first of `names` whose value is a number, and that name.
    fn first_number(&self, names: &[&'static str]) -> Option<(u32, &'static str)> {
        names.iter().find_map(|name| Some((self.get(name)?.trim().parse().ok()?, *name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct FakeProc(tempfile::TempDir);

    impl FakeProc {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn process(&self, pid: u32, parent: u32, program: &str, environment: &[&str]) {
            let folder = self.0.path().join(pid.to_string());
            fs::create_dir(&folder).unwrap();
            let entries: Vec<u8> = environment.iter().flat_map(|entry| [entry.as_bytes(), b"\0"].concat()).collect();
            fs::write(folder.join("environ"), entries).unwrap();
            fs::write(folder.join("status"), format!("Name:\tpt\nPid:\t{pid}\nPPid:\t{parent}\n")).unwrap();
            fs::write(folder.join("comm"), "pt_main_thread\n").unwrap();
            symlink(program, folder.join("exe")).unwrap();
        }

        fn rank_of(&self, pid: u32) -> ProcessIdentity {
            ProcFs::at(self.0.path()).rank_of_process(pid)
        }

        fn ranked(&self, pid: u32) -> RankIdentity {
            match self.rank_of(pid) {
                ProcessIdentity::Ranked(identity) => identity,
                other => panic!("{pid} is {other:?}"),
            }
        }
    }

    #[test]
    fn torchrun_workers_say_everything() {
        let proc = FakeProc::new();
        proc.process(40, 1, "/usr/bin/python3", &["PATH=/bin"]);
        proc.process(
            41,
            40,
            "/usr/bin/python3",
            &["RANK=9", "LOCAL_RANK=1", "WORLD_SIZE=16", "TORCHELASTIC_RUN_ID=none", "CUDA_VISIBLE_DEVICES=0,1"],
        );
        let identity = proc.ranked(41);
        assert_eq!((identity.rank, identity.variable), (Rank(9), "RANK"));
        assert_eq!((identity.local_rank, identity.world_size), (Some(1), Some(16)));
        assert_eq!((identity.job, identity.visible_devices.as_deref()), (None, Some("0,1")));
        assert_eq!(identity.helper_of, None);
        assert_eq!(proc.rank_of(40), ProcessIdentity::Unranked);
    }

    #[test]
    fn rank_is_trusted_over_the_launchers_count() {
        let proc = FakeProc::new();
        proc.process(50, 1, "/usr/bin/python3", &["SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=77", "RANK=12"]);
        proc.process(51, 1, "/usr/bin/python3", &["SLURM_PROCID=1", "SLURM_LOCALID=0", "SLURM_NTASKS=2"]);
        proc.process(52, 1, "/usr/bin/python3", &["OMPI_COMM_WORLD_RANK=3", "SLURM_PROCID=0", "RANK=", "PMI_RANK=4"]);
        assert_eq!(
            (proc.ranked(50).rank, proc.ranked(50).job.map(|job| job.to_string())),
            (Rank(12), Some("slurm:77".into()))
        );
        assert_eq!((proc.ranked(51).rank, proc.ranked(51).world_size), (Rank(1), Some(2)));
        assert_eq!(proc.ranked(52).variable, "OMPI_COMM_WORLD_RANK");
    }

    #[test]
    fn a_launcher_that_numbers_nodes_is_understood() {
        let proc = FakeProc::new();
        let of_node = |more: &[&'static str]| [&["GROUP_RANK=1", "LOCAL_RANK=3"], more].concat();
        proc.process(55, 1, "/usr/bin/python3", &of_node(&["LOCAL_WORLD_SIZE=8"]));
        proc.process(56, 1, "/usr/bin/python3", &of_node(&["LOCAL_WORLD_SIZE=8", "RANK=2"]));
        proc.process(57, 1, "/usr/bin/python3", &of_node(&[]));
        proc.process(58, 1, "/usr/bin/python3", &of_node(&["LOCAL_WORLD_SIZE=4294967295"]));
        assert_eq!((proc.ranked(55).rank, proc.ranked(55).variable), (Rank(11), "GROUP_RANK"));
        assert_eq!(proc.ranked(56).rank, Rank(2));
        assert_eq!(proc.rank_of(57), ProcessIdentity::Unranked, "how many are on a node before it is not known");
        assert_eq!(proc.rank_of(58), ProcessIdentity::Unranked);
    }

    #[test]
    fn a_loader_worker_is_a_helper_and_a_shell_is_not_the_worker() {
        let proc = FakeProc::new();
        proc.process(60, 1, "/usr/bin/bash", &["SLURM_PROCID=2"]);
        proc.process(61, 60, "/usr/bin/python3", &["SLURM_PROCID=2"]);
        proc.process(62, 61, "/usr/bin/python3", &["SLURM_PROCID=2"]);
        assert_eq!(proc.ranked(61).helper_of, None);
        assert_eq!(proc.ranked(62).helper_of, Some(61));
    }

    #[test]
    fn helpers_of_helpers_lead_to_the_rank() {
        let proc = FakeProc::new();
        proc.process(63, 1, "/usr/bin/python3", &["HOME=/root"]);
        proc.process(64, 63, "/usr/bin/python3", &["RANK=3"]);
        proc.process(65, 64, "/usr/bin/python3", &["RANK=3"]);
        proc.process(66, 65, "/usr/bin/python3", &["RANK=3"]);
        assert_eq!(proc.ranked(64).helper_of, None);
        assert_eq!((proc.ranked(65).helper_of, proc.ranked(66).helper_of), (Some(64), Some(64)));
    }

    #[test]
    fn a_pid_that_is_used_again_is_another_process() {
        let proc = FakeProc::new();
        proc.process(67, 1, "/usr/bin/python3", &["RANK=0"]);
        let folder = proc.0.path().join("67");
        let stat = |started: u64| format!("67 (a) b (c) S 1 67 67 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {started} 0 0\n");
        fs::write(folder.join("stat"), stat(4711)).unwrap();
        fs::write(folder.join("status"), "Name:\tpt\nPPid:\t1\nNSpid:\t67\t12\n").unwrap();
        let fs = ProcFs::at(proc.0.path());
        assert_eq!(fs.birth(67), ProcessBirth { started: Some(4711), pid_inside: Some(12) });
        std::fs::write(folder.join("stat"), stat(9000)).unwrap();
        std::fs::write(folder.join("status"), "NSpid:\t67\n").unwrap();
        assert_eq!(fs.birth(67), ProcessBirth { started: Some(9000), pid_inside: None });
        assert_eq!(fs.birth(68), ProcessBirth::default());
        let own = ProcFs::default().started(std::process::id());
        assert!(own.is_some_and(|ticks| ticks > 0), "{own:?}");
    }

    #[test]
    fn the_machine_says_its_name() {
        assert!(ProcFs::default().host_name().is_some_and(|name| !name.contains('\n')));
        let proc = FakeProc::new();
        fs::create_dir_all(proc.0.path().join("sys/kernel")).unwrap();
        fs::write(proc.0.path().join("sys/kernel/hostname"), "gpu7\n").unwrap();
        assert_eq!(ProcFs::at(proc.0.path()).host_name().as_deref(), Some("gpu7"));
    }

    #[test]
    fn a_process_that_is_not_there_is_gone() {
        assert_eq!(FakeProc::new().rank_of(70), ProcessIdentity::Gone);
    }

    #[test]
    fn odd_bytes_are_no_rank() {
        let proc = FakeProc::new();
        proc.process(80, 1, "/usr/bin/python3", &["RANK=-1", "XRANK=3", "RANKS=4", "SLURM_PROCID=99999999999"]);
        fs::write(proc.0.path().join("80/environ"), b"RANK=\xff\xfe\0RANK\0=1\0SLURM_PROCID= 5").unwrap();
        assert_eq!((proc.ranked(80).rank, proc.ranked(80).variable), (Rank(5), "SLURM_PROCID"));
    }

    #[test]
    fn another_users_process_is_a_state() {
        let proc = FakeProc::new();
        proc.process(90, 1, "/usr/bin/python3", &["RANK=0"]);
        let environ = proc.0.path().join("90/environ");
        fs::set_permissions(&environ, fs::Permissions::from_mode(0o000)).unwrap();
        if fs::read(&environ).is_ok() {
            // Root reads it anyway.
            assert!(matches!(proc.rank_of(90), ProcessIdentity::Ranked(_)));
        } else {
            assert_eq!(proc.rank_of(90), ProcessIdentity::NoPermission);
        }
    }

    #[test]
    fn the_real_proc_knows_this_process() {
        let name = ProcFs::default().name(std::process::id()).unwrap();
        assert!(name.starts_with("rankscope_telemetry"), "{name}");
        assert_ne!(ProcFs::default().rank_of_process(std::process::id()), ProcessIdentity::Gone);
    }
}
