//! A large file on its way to a bucket, part by part, so that no more of it is in memory than a few parts. Until the last
//! step nothing stands under its key; where that is not reached, the parts are given up.

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload, UploadPart, path::Path as Key};
use std::{fs::File, io, io::Read};
use tokio::runtime::Handle;

/// A smaller file goes in one request. S3 takes no smaller parts than 5 MiB.
pub const PART: u64 = 8 << 20;
/// S3 takes 10 000 parts.
const MAX_PARTS: u64 = 9_000;
/// Parts on their way at once.
const AT_ONCE: usize = 3;

/// Why it did not arrive.
#[derive(Debug)]
pub enum Broken {
    /// The file here.
    File(io::Error),
    /// The bucket.
    Bucket(object_store::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<object_store::Error> for Broken {
    fn from(error: object_store::Error) -> Self {
        Self::Bucket(error)
    }
}

/// Sends a file of `bytes`.
pub async fn send(store: &dyn ObjectStore, key: &Key, file: File, bytes: u64) -> Result<(), Broken> {
    if bytes <= PART {
        let (_, all) = read(file, bytes).await?;
        store.put(key, PutPayload::from(all)).await?;
        return Ok(());
    }
    let mut upload = Upload(Some(store.put_multipart(key).await?));
    let sent = upload.send(file, bytes, part_bytes(bytes)).await;
    if sent.is_err() {
        upload.give_up().await;
    }
    sent
}

/// All parts but the last have the same size, which some servers demand.
fn part_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(MAX_PARTS).next_multiple_of(1 << 20).max(PART)
}

/// Gives its parts up when it is dropped before its end, as far as the runtime goes on.
struct Upload(Option<Box<dyn MultipartUpload>>);

impl Upload {
    async fn send(&mut self, file: File, bytes: u64, part: u64) -> Result<(), Broken> {
        let Some(upload) = &mut self.0 else { return Ok(()) };
        let mut on_their_way = FuturesUnordered::new();
        if let Err(broken) = send_parts(&mut **upload, &mut on_their_way, file, bytes, part).await {
            // One that arrives when the upload has been given up would stay.
            while on_their_way.next().await.is_some() {}
            return Err(broken);
        }
        upload.complete().await?;
        self.0 = None;
        Ok(())
    }

    async fn give_up(&mut self) {
        if let Some(mut upload) = self.0.take()
            && upload.abort().await.is_err()
        {
            tracing::warn!(
                "parts of an upload that broke off stay in the bucket, as no object; a rule of the bucket can remove them"
            );
        }
    }
}

async fn send_parts(
    upload: &mut dyn MultipartUpload,
    on_their_way: &mut FuturesUnordered<UploadPart>,
    mut file: File,
    bytes: u64,
    part: u64,
) -> Result<(), Broken> {
    let mut left = bytes;
    while left > 0 {
        let size = left.min(part);
        let (rest, read) = read(file, size).await?;
        file = rest;
        left -= size;
        on_their_way.push(upload.put_part(PutPayload::from(read)));
        if on_their_way.len() >= AT_ONCE {
            on_their_way.next().await.transpose()?;
        }
    }
    while let Some(sent) = on_their_way.next().await {
        sent?;
    }
    Ok(())
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let (Some(upload), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move { Upload(Some(upload)).give_up().await });
        }
    }
}

/// The next `bytes` of a file, which must have them.
async fn read(mut file: File, bytes: u64) -> io::Result<(File, Bytes)> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut into = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
        file.read_exact(&mut into)?;
        Ok((file, Bytes::from(into)))
    });
    reading.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_few_enough_and_never_too_small() {
        for bytes in [PART + 1, 2 << 30, 100 << 30, 1 << 40, 5 << 40] {
            let part = part_bytes(bytes);
            assert!(part >= PART && part.is_multiple_of(1 << 20) && bytes.div_ceil(part) <= 10_000, "{bytes}: {part}");
        }
        assert_eq!(part_bytes(3 << 30), PART, "three parts of a file of 3 GiB are 24 MiB in memory");
    }
}
