//! Objects as files of a folder on the disk of the staged files.

use crate::store::{Staged, StoreError, new_id};
use object_store::{ObjectStore, local::LocalFileSystem, path::Path as Key};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

#[derive(Debug, Clone)]
pub struct Folder {
    store: Arc<LocalFileSystem>,
    root: PathBuf,
}

impl Folder {
    /// Opens (and creates) it.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(root)?;
        let root = root.canonicalize()?;
        let store = LocalFileSystem::new_with_prefix(&root)?.with_fsync(true).with_automatic_cleanup(true);
        Ok(Self { store: Arc::new(store), root })
    }

    pub fn store(&self) -> &dyn ObjectStore {
        &*self.store
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file is flushed and moved, not copied: staging lies on the same disk.
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

    /// A second name for the bytes, so that they are not copied.
    pub async fn hold(&self, key: &Key, target: &Path) -> Result<bool, StoreError> {
        let (source, target) = (self.store.path_to_filesystem(key)?, target.to_path_buf());
        blocking(move || {
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent)?;
            }
            let copied = match fs::hard_link(&source, &target) {
                // A file system without second names.
                Err(error) if error.kind() != io::ErrorKind::NotFound => fs::copy(&source, &target).map(drop),
                other => other,
            };
            match copied {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(error) => Err(error),
            }
        })
        .await
    }

    pub async fn delete_below(&self, prefix: &Key) -> Result<(), StoreError> {
        let folder = self.store.path_to_filesystem(prefix)?;
        blocking(move || match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
        .await
    }

    pub async fn delete(&self, prefix: &Key, keys: Vec<Key>) -> Result<(), StoreError> {
        let paths = keys.iter().map(|key| self.store.path_to_filesystem(key)).collect::<Result<Vec<PathBuf>, _>>()?;
        let top = self.store.path_to_filesystem(prefix)?;
        blocking(move || {
            for path in &paths {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            let folders: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
            for folder in folders.into_iter().chain([top.as_path()]) {
                // Fails where other objects are left, which is as it should be.
                let _ = fs::remove_dir(folder);
            }
            Ok(())
        })
        .await
    }

    pub async fn set_aside(&self, key: &Key) -> Result<bool, StoreError> {
        let path = self.store.path_to_filesystem(key)?;
        blocking(move || {
            if !path.try_exists()? {
                return Ok(false);
            }
            let mut aside = path.clone().into_os_string();
            aside.push(format!(".before-{}", new_id()));
            fs::rename(&path, aside)?;
            path.parent().map_or(Ok(()), sync_folder)?;
            Ok(true)
        })
        .await
    }

    /// Whether it takes writes.
    pub async fn check(&self) -> Result<(), StoreError> {
        let root = self.root.clone();
        blocking(move || tempfile::tempfile_in(root)?.write_all(b"rankscope")).await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, StoreError> {
    Ok(tokio::task::spawn_blocking(work).await.map_err(StoreError::task)??)
}

/// A rename is only safe on disk once its folder is.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}
