//! Where bytes lie: artifacts as uploaded, evidence and reports as JSON.gz; in a folder, or in a bucket.
//!
//! Keys are made of ids only; no word from a visitor ever becomes part of one. A successful write is on disk, or
//! acknowledged by the bucket's server, before the call returns. This module knows no SQL and no HTTP.

mod address;
mod bucket;
mod credentials;
mod fault;
mod folder;
mod multipart;
mod transport;

pub use address::{BucketSettings, BucketUrl, Endpoint, Style};
pub use fault::Fault;
pub(super) use folder::sync_folder;

use super::{Staged, StoreError};
use bucket::Bucket;
use bytes::Bytes;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use folder::Folder;
use futures_util::{StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, path::Path as Key};
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt, io, path::Path, sync::Arc};

/// All objects of one server.
#[derive(Debug, Clone)]
pub struct Objects {
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    Folder(Folder),
    Bucket(Arc<Bucket>),
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

/// Key of a part of a file on its way.
pub fn part_key(upload: &str, part: &str) -> Key {
    Key::from_iter(["uploads", upload, part])
}

/// Key of a state of live data that replicas have written down.
pub fn live_state_key(slot: &str) -> Key {
    Key::from_iter(["live", &format!("state-{slot}.json.gz")])
}

impl Objects {
    /// Opens (and creates) a folder.
    pub fn in_folder(root: &Path) -> Result<Self, StoreError> {
        Ok(Self { place: Place::Folder(Folder::open(root)?) })
    }

    /// Opens a bucket, and sees whether it gives and takes objects.
    pub async fn in_bucket(settings: &BucketSettings) -> Result<Self, StoreError> {
        let bucket = Bucket::new(settings)?;
        bucket.try_out().await?;
        Ok(Self { place: Place::Bucket(Arc::new(bucket)) })
    }

    /// Opens a bucket to read from it; nothing is written to see whether that would do.
    pub async fn to_read(settings: &BucketSettings) -> Result<Self, StoreError> {
        let bucket = Bucket::new(settings)?;
        bucket.look().await?;
        Ok(Self { place: Place::Bucket(Arc::new(bucket)) })
    }

    /// Makes a staged file an object. The file goes once the object is whole; where it cannot become one, nothing stands
    /// under the key that did not before.
    pub async fn adopt(&self, key: &Key, staged: Staged) -> Result<(), StoreError> {
        match &self.place {
            Place::Folder(folder) => folder.adopt(key, staged).await,
            Place::Bucket(bucket) => bucket.adopt(key, staged).await,
        }
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
        self.store().put(key, PutPayload::from(bytes)).await.map_err(|error| self.told(error))?;
        Ok(())
    }

    /// Reads what [`Self::put_json`] wrote.
    pub async fn get_json<T: DeserializeOwned + Send + 'static>(&self, key: &Key) -> Result<T, StoreError> {
        let found = self.store().get(key).await.map_err(|error| self.told(error))?;
        let bytes = found.bytes().await.map_err(|error| self.told(error))?;
        tokio::task::spawn_blocking(move || {
            let reader = io::BufReader::with_capacity(64 << 10, GzDecoder::new(&bytes[..]));
            Ok(serde_json::from_reader(reader)?)
        })
        .await
        .map_err(StoreError::task)?
    }

    /// Size and bytes of an object.
    pub async fn stream(&self, key: &Key) -> Result<(u64, BoxStream<'static, io::Result<Bytes>>), StoreError> {
        let found = self.store().get(key).await.map_err(|error| self.told(error))?;
        let (size, objects) = (found.meta.size, self.clone());
        // In the words of this module: what a server answers may name more than a log should hold.
        let stream = found.into_stream().map_err(move |error| io::Error::other(objects.told(error)));
        Ok((size, stream.boxed()))
    }

    /// Keeps the bytes of an object in a file, whatever becomes of the object. Returns whether there was one.
    pub async fn hold(&self, key: &Key, target: &Path) -> Result<bool, StoreError> {
        match &self.place {
            Place::Folder(folder) => folder.hold(key, target).await,
            Place::Bucket(bucket) => bucket.hold(key, target).await,
        }
    }

    /// Removes every object of a run. Objects that are already gone are no error.
    pub async fn delete_run(&self, run: &str) -> Result<(), StoreError> {
        self.delete_below(Key::from_iter(["runs", run])).await
    }

    /// Removes every part of a file on its way.
    pub async fn delete_upload(&self, upload: &str) -> Result<(), StoreError> {
        self.delete_below(Key::from_iter(["uploads", upload])).await
    }

    async fn delete_below(&self, prefix: Key) -> Result<(), StoreError> {
        match &self.place {
            Place::Folder(folder) => folder.delete_below(&prefix).await,
            Place::Bucket(bucket) => bucket.delete_below(&prefix).await,
        }
    }

    /// Removes single objects of a run, and its folders where they are empty then. Objects that are already gone are no
    /// error.
    pub async fn delete(&self, run: &str, keys: Vec<Key>) -> Result<(), StoreError> {
        self.delete_in(&Key::from_iter(["runs", run]), keys).await
    }

    /// The same of one part of a file on its way.
    pub async fn delete_part(&self, upload: &str, key: Key) -> Result<(), StoreError> {
        self.delete_in(&Key::from_iter(["uploads", upload]), vec![key]).await
    }

    async fn delete_in(&self, prefix: &Key, keys: Vec<Key>) -> Result<(), StoreError> {
        match &self.place {
            Place::Folder(folder) => folder.delete(prefix, keys).await,
            Place::Bucket(bucket) => bucket.delete(keys).await,
        }
    }

    /// How many parts of a file on its way there are.
    #[cfg(test)]
    pub async fn parts(&self, upload: &str) -> Result<usize, StoreError> {
        let listed = self.store().list(Some(&Key::from_iter(["uploads", upload])));
        listed.try_fold(0, async |count, _| Ok(count + 1)).await.map_err(|error| self.told(error))
    }

    /// Gives an object that lies where another is about to be written a name of its own, so that nothing is overwritten.
    /// Returns whether there was one.
    pub async fn set_aside(&self, key: &Key) -> Result<bool, StoreError> {
        match &self.place {
            Place::Folder(folder) => folder.set_aside(key).await,
            Place::Bucket(bucket) => bucket.set_aside(key).await,
        }
    }

    /// The runs of which there are objects.
    pub async fn runs(&self) -> Result<Vec<String>, StoreError> {
        let listed = self.store().list_with_delimiter(Some(&Key::from("runs"))).await;
        let listed = listed.map_err(|error| self.told(error))?;
        let name = |prefix: &Key| prefix.parts().next_back().map(|run| run.as_ref().to_owned());
        Ok(listed.common_prefixes.iter().filter_map(name).collect())
    }

    /// Whether the place answers; a folder also, whether it takes writes.
    pub async fn check(&self) -> Result<(), StoreError> {
        match &self.place {
            Place::Folder(folder) => folder.check().await,
            Place::Bucket(bucket) => bucket.check().await,
        }
    }

    fn store(&self) -> &dyn ObjectStore {
        match &self.place {
            Place::Folder(folder) => folder.store(),
            Place::Bucket(bucket) => bucket.store(),
        }
    }

    fn told(&self, error: object_store::Error) -> StoreError {
        match &self.place {
            Place::Folder(_) => error.into(),
            Place::Bucket(bucket) => bucket.told(&error),
        }
    }
}

/// The place, for the log.
impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Folder(folder) => write!(f, "{}", folder.root().display()),
            Place::Bucket(bucket) => bucket.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
