//! The files of a folder on the command line: recursively, within bounds, and without leaving the folder.
//!
//! Reads names only; knows no format.

use std::{
    fs::{self, FileType},
    io,
    path::{Path, PathBuf},
};

/// Folders inside folders: torchrun writes four, schedulers and users add some.
const MAX_DEPTH: usize = 16;
/// Files taken of one folder: two logs for each of 2048 ranks, as of an archive.
const MAX_FILES: usize = 4096;
/// Entries looked at; a home folder or a source tree given by mistake must not take minutes.
const MAX_ENTRIES: usize = 100_000;

/// What a folder holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Folder {
    /// The files in the order of their names, and their names from the folder on: `rank3/stderr.log`.
    pub files: Vec<(PathBuf, String)>,
    /// What was left out, a sentence each.
    pub notes: Vec<String>,
}

/// Lists the regular files below `root`. Hidden files and folders are left out, links are followed only to files
/// inside the folder.
pub fn list(root: &Path) -> io::Result<Folder> {
    list_within(root, MAX_FILES)
}

fn list_within(root: &Path, max_files: usize) -> io::Result<Folder> {
    let real = root.canonicalize()?;
    let mut walk = Walk { root: &real, max_files, entries: 0, found: Folder::default(), left_out: [0; 4], full: false };
    walk.folder(root, "", 0)?;
    let says = |count: usize, one: &str, many: &str| {
        (count > 0).then(|| format!("{count} {}", if count == 1 { one } else { many }))
    };
    let [hidden, links, special, deep] = walk.left_out;
    walk.found.notes.extend(says(
        hidden,
        "hidden file or folder was not read",
        "hidden files and folders were not read",
    ));
    walk.found.notes.extend(says(links, "link was not followed", "links were not followed"));
    walk.found.notes.extend(says(
        special,
        "entry is no ordinary file and was not read",
        "entries are no ordinary files and were not read",
    ));
    walk.found.notes.extend(says(
        deep,
        "folder is too deep or cannot be opened",
        "folders are too deep or cannot be opened",
    ));
    if walk.full {
        walk.found.notes.push(format!("only the first {} files were read", walk.found.files.len()));
    }
    Ok(walk.found)
}

struct Walk<'r> {
    root: &'r Path,
    max_files: usize,
    entries: usize,
    found: Folder,
    /// Hidden, links, special files, folders that are too deep or closed.
    left_out: [usize; 4],
    full: bool,
}

impl Walk<'_> {
    fn folder(&mut self, path: &Path, name: &str, depth: usize) -> io::Result<()> {
        let mut entries: Vec<(String, PathBuf, FileType)> = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                self.full = true;
                break;
            }
            let own = entry.file_name().to_string_lossy().into_owned();
            if own.starts_with('.') {
                self.left_out[0] += 1;
                continue;
            }
            entries.push((own, entry.path(), entry.file_type()?));
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        for (own, path, kind) in entries {
            if self.full {
                break;
            }
            let name = if name.is_empty() { own } else { format!("{name}/{own}") };
            if kind.is_dir() {
                // One closed folder costs no other.
                if depth + 1 >= MAX_DEPTH || self.folder(&path, &name, depth + 1).is_err() {
                    self.left_out[3] += 1;
                }
            } else if kind.is_symlink() {
                match path.canonicalize() {
                    Ok(real) if real.is_file() && real.starts_with(self.root) => self.file(path, name),
                    _ => self.left_out[1] += 1,
                }
            } else if kind.is_file() {
                self.file(path, name);
            } else {
                self.left_out[2] += 1;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: PathBuf, name: String) {
        if self.found.files.len() >= self.max_files {
            self.full = true;
        } else {
            self.found.files.push((path, name));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails loudly")]

    use super::*;

    fn names(folder: &Folder) -> Vec<&str> {
        folder.files.iter().map(|(_, name)| name.as_str()).collect()
    }

    #[test]
    fn files_below_are_found_in_order_and_hidden_ones_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("attempt_0/1")).unwrap();
        fs::create_dir_all(folder.path().join(".git")).unwrap();
        for file in ["b.log", "a.txt", "attempt_0/1/stderr.log", ".hidden", ".git/config"] {
            fs::write(folder.path().join(file), "x").unwrap();
        }
        let found = list(folder.path()).unwrap();
        assert_eq!(names(&found), ["a.txt", "attempt_0/1/stderr.log", "b.log"]);
        assert_eq!(found.notes, ["2 hidden files and folders were not read"]);
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..5 {
            fs::write(folder.path().join(format!("{n}.log")), "x").unwrap();
        }
        let found = list_within(folder.path(), 3).unwrap();
        assert_eq!(names(&found), ["0.log", "1.log", "2.log"]);
        assert_eq!(found.notes, ["only the first 3 files were read"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_lead_nowhere_outside_and_never_in_circles() {
        use std::os::unix::fs::symlink;
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret.log"), "x").unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.log"), "x").unwrap();
        symlink(folder.path().join("a.log"), folder.path().join("latest.log")).unwrap();
        symlink(outside.path().join("secret.log"), folder.path().join("out.log")).unwrap();
        symlink(outside.path(), folder.path().join("outside")).unwrap();
        symlink(folder.path(), folder.path().join("circle")).unwrap();
        let found = list(folder.path()).unwrap();
        assert_eq!(names(&found), ["a.log", "latest.log"]);
        assert_eq!(found.notes, ["3 links were not followed"]);
    }
}
