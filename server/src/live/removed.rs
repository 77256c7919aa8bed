//! Nodes that somebody has removed. The log keeps what they sent until it makes room, and a start reads the log again: so
//! what came before a removal must be known not to bring its node back. One small file, whole on disk before the answer.

use super::log;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

const FILE: &str = "removed.json";
/// Removals that are kept; of more the oldest go, of which the log has nothing any more.
const MOST: usize = 4096;

/// When each node was removed last, by our clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    nodes: BTreeMap<String, i64>,
}

impl Removed {
    /// Of a folder. A file that cannot be read is told, and counts as none: a node too many does no harm.
    pub fn load(folder: &Path) -> io::Result<Self> {
        let bytes = match fs::read(path(folder)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        Ok(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            let path = path(folder);
            tracing::warn!(%error, path = %path.display(), "the list of removed nodes cannot be read; they may come back");
            Self::default()
        }))
    }

    /// Whether what a node sent at this time was removed.
    pub fn covers(&self, node: &str, received: i64) -> bool {
        self.nodes.get(node).is_some_and(|at| received <= *at)
    }

    /// Names of all.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.nodes.keys()
    }

    /// Takes note of a removal. When this returns, it is on disk.
    pub fn add(&mut self, folder: &Path, node: &str, at: i64) -> io::Result<()> {
        let mut next = self.clone();
        next.nodes.insert(node.to_owned(), at);
        while next.nodes.len() > MOST {
            let oldest = next.nodes.iter().min_by_key(|(_, at)| **at).map(|(node, _)| node.clone());
            oldest.and_then(|oldest| next.nodes.remove(&oldest));
        }
        let mut file = tempfile::Builder::new().prefix("new-").suffix(".part").tempfile_in(folder)?;
        file.write_all(&serde_json::to_vec(&next)?)?;
        file.as_file().sync_all()?;
        file.persist(path(folder)).map_err(|error| error.error)?;
        log::sync_folder(folder)?;
        *self = next;
        Ok(())
    }
}

fn path(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_holds_for_what_came_before_it_and_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let mut removed = Removed::load(folder.path()).unwrap();
        removed.add(folder.path(), "gpu/01", 10).unwrap();
        assert_eq!(Removed::load(folder.path()).unwrap(), removed);
        assert!(removed.covers("gpu/01", 10) && !removed.covers("gpu/01", 11) && !removed.covers("b", 1));
        for n in 0..MOST {
            removed.nodes.insert(format!("n{n}"), 100);
        }
        removed.add(folder.path(), "last", 101).unwrap();
        assert!(removed.nodes.len() <= MOST && removed.covers("last", 1) && !removed.covers("gpu/01", 1));
        fs::write(path(folder.path()), "{").unwrap();
        assert_eq!(Removed::load(folder.path()).unwrap(), Removed::default());
    }
}
