//! Processes of a scenario in a folder laid out as the kernel's `/proc`, so that whoever looks a PID up finds it.

use crate::scenario::ProcEntry;
use std::fs;
use std::io;
use std::path::Path;

/// Writes a process, unless it is there. Failures are not told: the test then misses the process.
pub fn write(folder: &Path, entry: &ProcEntry) {
    let root = folder.join("proc");
    let place = root.join(entry.pid.to_string());
    if place.exists() {
        return;
    }
    // Whole or not at all: others may be looking.
    let draft = root.join(format!("draft-{}-{}", std::process::id(), entry.pid));
    let _ = fs::remove_dir_all(&draft);
    if write_into(&draft, entry).is_ok() {
        let _ = fs::rename(&draft, &place);
    }
    let _ = fs::remove_dir_all(&draft);
}

/// Removes a process that ended.
pub fn remove(folder: &Path, pid: u32) {
    let _ = fs::remove_dir_all(folder.join("proc").join(pid.to_string()));
}

fn write_into(draft: &Path, entry: &ProcEntry) -> io::Result<()> {
    let ProcEntry { pid, parent, program, started, inside, environment } = entry;
    fs::create_dir_all(draft)?;
    let name = program.rsplit('/').next().unwrap_or(program);
    let environment: String = environment.iter().flat_map(|variable| [variable.as_str(), "\0"]).collect();
    let inside = inside.map(|inside| format!("\t{inside}")).unwrap_or_default();
    fs::write(draft.join("environ"), environment)?;
    fs::write(draft.join("comm"), format!("{name}\n"))?;
    fs::write(draft.join("cmdline"), format!("{program}\0train.py\0"))?;
    fs::write(draft.join("status"), format!("Name:\t{name}\nPid:\t{pid}\nPPid:\t{parent}\nNSpid:\t{pid}{inside}\n"))?;
    // Of the 52 fields only the name, the parent and the start are looked at.
    fs::write(draft.join("stat"), format!("{pid} ({name}) S {parent} {}{started} 0 0\n", "0 ".repeat(17)))?;
    std::os::unix::fs::symlink(program, draft.join("exe"))
}
