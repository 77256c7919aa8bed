//! What to do about a name on the command line that leads to nothing: which one, why, and what would help.
//!
//! Knows words and the reasons of the system, no format.

use crate::likeness::distance;
use std::{
    env, io,
    path::{Path, PathBuf},
};

/// What every refusal of the whole ends with: what can be read, the quickest first.
pub const WHAT_IT_READS: &str = "\
What it reads, the quickest first:
  nvidia-smi > smi.txt      the cards and who is on them; also of -q and -q -x
  the job's log             memory per rank and step, or an out-of-memory message
  snap_rank0.pickle         torch.cuda.memory._dump_snapshot() of every rank: what holds the memory
  summaries and traces      torch.cuda.memory_summary(), the profiler's files
  train.py and the like     script, launch script and settings: what binds ranks to GPUs and feeds them
Several files, a folder or an archive make one run. `rankscope diagnose --nvml` reads this machine's cards.";

/// Names in the same folder that may have been meant.
const MEANT: usize = 3;

/// Why a name could not be opened, and what to do.
pub fn of_open(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => missing(path),
        io::ErrorKind::PermissionDenied => {
            "may not be read by this user. Give yourself the right to read it (chmod u+r), or run this as its owner."
                .to_owned()
        }
        _ => format!("could not be opened: {error}"),
    }
}

/// What stands for a folder without a file.
pub fn empty_folder(notes: &[String]) -> String {
    let left_out = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    format!(
        "no files in this folder{left_out}. Put the job's files into it, or name the folder that they are in; folders \
         inside it are looked through too."
    )
}

/// What stands for a device or a socket.
pub fn special(kind: &str) -> String {
    format!("{kind} has no end and is not read. Write what you want diagnosed to a file, or pipe it into -.")
}

fn missing(path: &Path) -> String {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    if !folder.exists() {
        return format!("No such file or folder: not even {} is there. Check the path.", folder.display());
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let meant = similar(&folder, &name);
    let tail = if meant.is_empty() {
        let looked = if path.is_absolute() { folder } else { env::current_dir().unwrap_or_default().join(folder) };
        format!("It was looked for in {}.", looked.components().collect::<PathBuf>().display())
    } else {
        format!("Did you mean {}?", meant.join(" or "))
    };
    format!("No such file or folder. {tail}")
}

/// Files beside it whose names are nearly the same, the nearest first.
fn similar(folder: &Path, name: &str) -> Vec<String> {
    let wanted = name.to_lowercase();
    let entries = folder.read_dir().into_iter().flatten().flatten().take(2000);
    let mut near: Vec<(usize, String)> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .map(|found| (distance(&wanted, &found.to_lowercase()), found))
        .filter(|(steps, _)| *steps <= (wanted.chars().count() / 4).max(1))
        .collect();
    near.sort();
    near.into_iter().take(MEANT).map(|(_, found)| found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_offered() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["train.log", "Train.py", "else.txt"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let text = missing(&folder.path().join("trian.log"));
        assert!(text.contains("Did you mean train.log?"), "{text}");
        assert!(missing(&folder.path().join("train.py")).contains("Train.py"));
        assert!(missing(&folder.path().join("unlike")).contains("It was looked for in "));
        assert!(missing(&folder.path().join("none/x")).contains("not even"));
    }
}
