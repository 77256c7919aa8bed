//! Files of uploads in flight. They go when they are dropped, but never on a thread that serves requests: removing a
//! file of some GiB takes a while. Also what goes to a bucket is staged here first: its size and kind are known before the
//! first request, and a request that fails can be made again.

use super::{Store, StoreError};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};
use tempfile::{Builder, TempPath};
use tokio::runtime::Handle;

/// The path of a staged file, removed when dropped unless it became an object.
#[derive(Debug)]
pub struct Staged(Option<TempPath>);

impl Store {
    /// A new file for an upload in flight, open for writing, on the same disk as the objects.
    pub fn staging_file(&self) -> Result<(File, Staged), StoreError> {
        let (file, path) = Builder::new().prefix("upload-").tempfile_in(&self.incoming)?.into_parts();
        Ok((file, Staged(Some(path))))
    }
}

impl Staged {
    /// A file that is there already.
    pub(super) fn of(path: PathBuf) -> io::Result<Self> {
        Ok(Self(Some(TempPath::try_from_path(path)?)))
    }

    /// Where it lies.
    pub fn path(&self) -> io::Result<&Path> {
        self.0.as_deref().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Moves the file to its place among the objects. Blocks.
    pub(super) fn persist(mut self, target: &Path) -> io::Result<()> {
        match self.0.take() {
            Some(path) => path.persist(target).map_err(|error| error.error),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let (Some(path), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(path));
        }
    }
}
