//! Which objects are on their way: a marker file says what an upload is about to write, or which run is about to go.
//!
//! A marker is on disk before the first of its objects is touched and goes before the change is acknowledged. So what
//! a crash has left can be told from what a lost or older database merely does not know: only what a marker names may
//! ever be removed. Markers lie in the data folder also where the objects are in a bucket: each server clears up what it
//! had begun itself, and no other's. Knows no SQL and no HTTP.

use super::{StoreError, new_id, objects::sync_folder};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

/// Names of markers that are still being written begin so.
const HALF_WRITTEN: &str = "new-";

/// What is about to happen to a run's objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "change")]
pub enum Claim {
    /// Artifacts and a version are being added.
    Add {
        /// The run.
        run: String,
        /// Ids of the artifacts.
        artifacts: Vec<String>,
        /// The version that counts them in.
        version: u32,
    },
    /// The run is being deleted.
    Delete {
        /// The run.
        run: String,
    },
}

impl Claim {
    /// The run that it is about.
    pub fn run(&self) -> &str {
        match self {
            Self::Add { run, .. } | Self::Delete { run } => run,
        }
    }
}

/// The folder of the markers.
#[derive(Debug, Clone)]
pub struct Pending {
    folder: PathBuf,
}

/// A marker on disk. It stays when this is dropped: only [`Marker::remove`] says that the change has ended.
#[derive(Debug)]
pub struct Marker {
    path: PathBuf,
}

impl Pending {
    /// Opens (and creates) the folder. Markers that were never finished go: nothing was written under them.
    pub fn open(folder: PathBuf) -> Result<Self, StoreError> {
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(HALF_WRITTEN) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(Self { folder })
    }

    /// Writes a marker; when this returns, it is on disk.
    pub async fn mark(&self, claim: Claim) -> Result<Marker, StoreError> {
        let folder = self.folder.clone();
        let path = folder.join(format!("{}.json", new_id()));
        let marker = Marker { path: path.clone() };
        blocking(move || {
            let mut file = tempfile::Builder::new().prefix(HALF_WRITTEN).tempfile_in(&folder)?;
            file.write_all(&serde_json::to_vec(&claim)?)?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|error| error.error)?;
            sync_folder(&folder)
        })
        .await?;
        Ok(marker)
    }

    /// The markers that an earlier process has left, with what they say; `None` for one that cannot be understood.
    pub fn left_over(&self) -> Result<Vec<(Marker, Option<Claim>)>, StoreError> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let claim = serde_json::from_slice(&fs::read(&path)?).ok();
            found.push((Marker { path }, claim));
        }
        Ok(found)
    }
}

impl Marker {
    /// Ends the change. Also this is on disk when it returns: a marker must not come back after the acknowledgement.
    pub async fn remove(self) -> Result<(), StoreError> {
        blocking(move || {
            fs::remove_file(&self.path)?;
            self.path.parent().map_or(Ok(()), sync_folder)
        })
        .await
    }

    /// Where it lies, for the log.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

async fn blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<(), StoreError> {
    Ok(tokio::task::spawn_blocking(work).await.map_err(StoreError::task)??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn markers_stay_until_they_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let pending = Pending::open(folder.path().to_path_buf()).unwrap();
        let claim = Claim::Add { run: "r".into(), artifacts: vec!["a".into()], version: 2 };
        drop(pending.mark(claim.clone()).await.unwrap());
        fs::write(folder.path().join("new-x"), b"{").unwrap();

        let pending = Pending::open(folder.path().to_path_buf()).unwrap();
        let mut found = pending.left_over().unwrap();
        assert_eq!(found.len(), 1, "the half-written one went");
        let (marker, said) = found.remove(0);
        assert_eq!(said, Some(claim));
        marker.remove().await.unwrap();
        assert!(pending.left_over().unwrap().is_empty());
    }
}
