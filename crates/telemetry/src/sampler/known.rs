//! Processes that were looked up before. What a process was started with does not change, so `/proc` is asked again only
//! whether it is still the same process: one small read per process and second.

use crate::rank::{ProcFs, ProcessIdentity};
use std::collections::{HashMap, hash_map};

/// Looks after which a process without a rank is read again: it may have been seen before it became what it is.
const AGAIN: u64 = 30;

/// What is known of a process.
#[derive(Debug, Clone)]
pub struct Known {
    /// When it started, in the kernel's ticks.
    pub started: Option<u64>,
    /// Its PID in its own namespace, where that is another.
    pub pid_inside: Option<u32>,
    /// The name of its program.
    pub name: Option<String>,
    /// Its rank.
    pub identity: ProcessIdentity,
}

#[derive(Debug)]
struct Entry {
    known: Known,
    /// Counted in looks.
    read_at: u64,
    seen_at: u64,
}

/// All of them.
#[derive(Debug)]
pub struct KnownProcesses {
    proc: ProcFs,
    known: HashMap<u32, Entry>,
    look: u64,
}

impl KnownProcesses {
    /// Nothing is known yet.
    pub fn new(proc: ProcFs) -> Self {
        Self { proc, known: HashMap::new(), look: 0 }
    }

    /// A new look at all processes begins: those of the last one that did not come up are forgotten.
    pub fn begin(&mut self) {
        let last = self.look;
        self.known.retain(|_, entry| entry.seen_at == last);
        self.look += 1;
    }

    /// What is known of `pid`; read when it is new, or another process by now.
    pub fn get(&mut self, pid: u32) -> &Known {
        let started = self.proc.started(pid);
        let look = self.look;
        let proc = &self.proc;
        let read = || {
            let birth = proc.birth(pid);
            Known {
                started: birth.started,
                pid_inside: birth.pid_inside,
                name: proc.name(pid),
                identity: proc.rank_of_process(pid),
            }
        };
        let entry = match self.known.entry(pid) {
            hash_map::Entry::Vacant(empty) => empty.insert(Entry { known: read(), read_at: look, seen_at: look }),
            hash_map::Entry::Occupied(old) => {
                let entry = old.into_mut();
                let settled =
                    matches!(entry.known.identity, ProcessIdentity::Ranked(_)) || look - entry.read_at < AGAIN;
                if entry.known.started != started || !settled {
                    entry.known = read();
                    entry.read_at = look;
                }
                entry
            }
        };
        entry.seen_at = look;
        &entry.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn write(root: &Path, pid: u32, started: u64, environment: &str) {
        let folder = root.join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("environ"), environment).unwrap();
        fs::write(folder.join("stat"), format!("{pid} (p) S 1 {}{started} 0\n", "0 ".repeat(17))).unwrap();
    }

    fn rank(known: &mut KnownProcesses, pid: u32) -> Option<u32> {
        match &known.get(pid).identity {
            ProcessIdentity::Ranked(identity) => Some(identity.rank.0),
            _ => None,
        }
    }

    #[test]
    fn a_process_is_read_once_and_again_when_its_pid_is_used_again() {
        let root = tempfile::tempdir().unwrap();
        let mut known = KnownProcesses::new(ProcFs::at(root.path()));
        write(root.path(), 7, 100, "RANK=1");
        known.begin();
        assert_eq!(rank(&mut known, 7), Some(1));
        // Not read again: the environment of a process does not change.
        write(root.path(), 7, 100, "RANK=2");
        known.begin();
        assert_eq!(rank(&mut known, 7), Some(1));
        write(root.path(), 7, 900, "RANK=3");
        known.begin();
        assert_eq!((rank(&mut known, 7), known.get(7).started), (Some(3), Some(900)));
    }

    #[test]
    fn what_has_no_rank_is_read_again_some_time_later() {
        let root = tempfile::tempdir().unwrap();
        let mut known = KnownProcesses::new(ProcFs::at(root.path()));
        write(root.path(), 7, 100, "HOME=/");
        known.begin();
        assert_eq!(rank(&mut known, 7), None);
        write(root.path(), 7, 100, "RANK=4");
        for _ in 1..AGAIN {
            known.begin();
            assert_eq!(rank(&mut known, 7), None);
        }
        known.begin();
        assert_eq!(rank(&mut known, 7), Some(4));
    }

    #[test]
    fn processes_that_end_are_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let mut known = KnownProcesses::new(ProcFs::at(root.path()));
        for pid in 0..100 {
            known.begin();
            assert_eq!(known.get(pid).identity, ProcessIdentity::Gone);
        }
        known.begin();
        assert_eq!(known.known.len(), 1);
    }
}
