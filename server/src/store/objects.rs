//! Where bytes lie: artifacts as uploaded, evidence and reports as JSON.gz.
//!
//! Keys are made of ids only; no word from a visitor ever becomes part of one. A successful write is on disk before
//! the call returns. This module knows no SQL and no HTTP.

use super::{Staged, StoreError};
use bytes::Bytes;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use futures_util::{StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, local::LocalFileSystem, path::Path as Key};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

/// All objects of one data folder.
#[derive(Debug, Clone)]
pub struct Objects {
    store: Arc<LocalFileSystem>,
    root: PathBuf,
}

/// Key of an artifact as uploaded.
pub fn artifact_key(run: &str, artifact: &str) -> Key {
    Key::from_iter(["runs", run, "artifacts", artifact])
}

/// Key of what was understood of an artifact.
pub fn evidence_key(run: &str, artifact: &str) -> Key {
    Key::from_iter(["runs", run, "evidence", &format!("{artifact}.json.gz")])
}

/// Key of a version of a run's report.
pub fn report_key(run: &str, version: u32) -> Key {
    Key::from_iter(["runs", run, "reports", &format!("{version}.json.gz")])
}

/// Key of the full columns behind a version's charts.
pub fn series_key(run: &str, version: u32) -> Key {
    Key::from_iter(["runs", run, "series", &format!("{version}.json.gz")])
}

impl Objects {
    /// Opens (and creates) the folder.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(root)?;
        let root = root.canonicalize()?;
        let store = LocalFileSystem::new_with_prefix(&root)?.with_fsync(true).with_automatic_cleanup(true);
        Ok(Self { store: Arc::new(store), root })
    }

    /// Makes a staged file an object. The file is flushed and moved, not copied: staging lies on the same disk.
    pub async fn adopt(&self, key: &Key, staged: Staged) -> Result<(), StoreError> {
        let target = self.store.path_to_filesystem(key)?;
        let root = self.root.clone();
        blocking(move || {
            let parent = target.parent().ok_or_else(|| io::Error::other("an object key has a parent"))?.to_path_buf();
            let new_folders: Vec<PathBuf> =
                parent.ancestors().take_while(|folder| *folder != root && !folder.exists()).map(Into::into).collect();
            fs::create_dir_all(&parent)?;
            File::open(staged.path()?)?.sync_all()?;
            staged.persist(&target)?;
            sync_folder(&parent)?;
            for folder in new_folders.iter().filter_map(|folder| folder.parent()) {
                sync_folder(folder)?;
            }
            Ok(())
        })
        .await
    }

    /// Writes a value as JSON.gz.
    pub async fn put_json<T: Serialize + Send + Sync + 'static>(
        &self,
        key: &Key,
        value: Arc<T>,
    ) -> Result<(), StoreError> {
        let bytes = tokio::task::spawn_blocking(move || -> Result<Vec<u8>, StoreError> {
            let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
            serde_json::to_writer(io::BufWriter::with_capacity(64 << 10, &mut gz), &*value)?;
            Ok(gz.finish()?)
        })
        .await
        .map_err(StoreError::task)??;
        self.store.put(key, PutPayload::from(bytes)).await?;
        Ok(())
    }

    /// Reads what [`Self::put_json`] wrote.
    pub async fn get_json<T: DeserializeOwned + Send + 'static>(&self, key: &Key) -> Result<T, StoreError> {
        let bytes = self.store.get(key).await?.bytes().await?;
        tokio::task::spawn_blocking(move || {
            let reader = io::BufReader::with_capacity(64 << 10, GzDecoder::new(&bytes[..]));
            Ok(serde_json::from_reader(reader)?)
        })
        .await
        .map_err(StoreError::task)?
    }

    /// Size and bytes of an object.
    pub async fn stream(&self, key: &Key) -> Result<(u64, BoxStream<'static, io::Result<Bytes>>), StoreError> {
        let found = self.store.get(key).await?;
        let size = found.meta.size;
        Ok((size, found.into_stream().map_err(io::Error::from).boxed()))
    }

    /// Removes every object of a run. Objects that are already gone are no error.
    pub async fn delete_run(&self, run: &str) -> Result<(), StoreError> {
        let folder = self.store.path_to_filesystem(&Key::from_iter(["runs", run]))?;
        blocking(move || match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
        .await
    }

    /// Removes single objects of a run, and its folders where they are empty then. Objects that are already gone are no
    /// error.
    pub async fn delete(&self, run: &str, keys: Vec<Key>) -> Result<(), StoreError> {
        let paths = keys.iter().map(|key| self.store.path_to_filesystem(key)).collect::<Result<Vec<PathBuf>, _>>()?;
        let run = self.store.path_to_filesystem(&Key::from_iter(["runs", run]))?;
        blocking(move || {
            for path in &paths {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            let folders: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
            for folder in folders.into_iter().chain([run.as_path()]) {
                // Fails where other objects are left, which is as it should be.
                let _ = fs::remove_dir(folder);
            }
            Ok(())
        })
        .await
    }

    /// Gives an object that lies where another is about to be written a name of its own, so that nothing is overwritten.
    /// Returns whether there was one.
    pub async fn set_aside(&self, key: &Key) -> Result<bool, StoreError> {
        let path = self.store.path_to_filesystem(key)?;
        tokio::task::spawn_blocking(move || {
            if !path.try_exists()? {
                return Ok(false);
            }
            let mut aside = path.clone().into_os_string();
            aside.push(format!(".before-{}", super::new_id()));
            fs::rename(&path, aside)?;
            path.parent().map_or(Ok(()), sync_folder)?;
            Ok(true)
        })
        .await
        .map_err(StoreError::task)?
    }

    /// The runs of which there are objects.
    pub async fn runs(&self) -> Result<Vec<String>, StoreError> {
        let listed = self.store.list_with_delimiter(Some(&Key::from("runs"))).await?;
        let name = |prefix: &Key| prefix.parts().next_back().map(|run| run.as_ref().to_owned());
        Ok(listed.common_prefixes.iter().filter_map(name).collect())
    }

    /// Whether the folder answers and takes writes.
    pub async fn check(&self) -> Result<(), StoreError> {
        let root = self.root.clone();
        blocking(move || tempfile::tempfile_in(root)?.write_all(b"rankscope")).await
    }
}

async fn blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<(), StoreError> {
    Ok(tokio::task::spawn_blocking(work).await.map_err(StoreError::task)??)
}

/// A rename is only safe on disk once its folder is.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_are_moved_and_values_survive_the_way_through_gzip() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::open(&folder.path().join("objects")).unwrap();

        let store = super::super::Store::open(&folder.path().join("data")).await.unwrap();
        let (mut file, staged) = store.staging_file().unwrap();
        file.write_all(b"as it was").unwrap();
        let staged_path = staged.path().unwrap().to_path_buf();
        objects.adopt(&artifact_key("r", "a"), staged).await.unwrap();
        assert!(!staged_path.exists());
        let (size, stream) = objects.stream(&artifact_key("r", "a")).await.unwrap();
        let bytes: Vec<Bytes> = stream.try_collect().await.unwrap();
        assert_eq!((size, bytes.concat()), (9, b"as it was".to_vec()));

        objects.put_json(&report_key("r", 1), Arc::new(vec![1, 2, 3])).await.unwrap();
        assert_eq!(objects.get_json::<Vec<u8>>(&report_key("r", 1)).await.unwrap(), [1, 2, 3]);
        assert!(matches!(objects.get_json::<Vec<u8>>(&report_key("r", 2)).await, Err(StoreError::Missing)));
        objects.check().await.unwrap();
    }

    #[tokio::test]
    async fn what_lies_in_the_way_is_kept_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::open(folder.path()).unwrap();
        let key = report_key("r", 2);
        assert!(!objects.set_aside(&key).await.unwrap());
        objects.put_json(&key, Arc::new(7)).await.unwrap();
        assert!(objects.set_aside(&key).await.unwrap());
        assert!(matches!(objects.get_json::<u8>(&key).await, Err(StoreError::Missing)));
        let kept: Vec<_> = fs::read_dir(folder.path().join("runs/r/reports")).unwrap().collect();
        assert_eq!(kept.len(), 1);
    }

    #[tokio::test]
    async fn single_objects_go_with_the_folders_that_they_leave_empty() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::open(folder.path()).unwrap();
        for (run, version) in [("r", 1), ("r", 2), ("s", 1)] {
            objects.put_json(&report_key(run, version), Arc::new(1)).await.unwrap();
        }
        objects.delete("r", vec![report_key("r", 2), series_key("r", 2)]).await.unwrap();
        assert!(objects.get_json::<u8>(&report_key("r", 1)).await.is_ok());
        assert!(objects.get_json::<u8>(&report_key("r", 2)).await.is_err());
        objects.delete("s", vec![report_key("s", 1)]).await.unwrap();
        assert_eq!(objects.runs().await.unwrap(), ["r"]);
    }
}
