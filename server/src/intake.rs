//! Takes an upload in: the multipart body goes to files on disk as it arrives, within the limits.
//!
//! A file over its limit is refused by name and drained; the others are kept. Nothing is read for meaning here, and a
//! visitor's file name never becomes a path.

use crate::{
    errors::{Problem, ProblemKind, Result},
    limits::{Limits, size},
    store::Store,
};
use axum::extract::{
    Multipart,
    multipart::{Field, MultipartError},
};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::{future::Future, io::Write};
use tempfile::{NamedTempFile, TempPath};
use tokio::time::timeout;

/// Bytes gathered before they are handed to the disk.
const WRITE_BLOCK: usize = 256 << 10;
/// The name that pasted text gets.
const PASTED_NAME: &str = "pasted.txt";

/// A file as it arrived.
#[derive(Debug)]
pub struct Received {
    /// Display name: as sent, without control characters, cut to size.
    pub name: String,
    /// Bytes that arrived.
    pub bytes: u64,
    /// SHA-256 of them, hexadecimal.
    pub sha256: String,
    /// The content, or why it was refused.
    pub content: Result<TempPath, String>,
}

/// An upload, taken in whole.
#[derive(Debug, Default)]
pub struct Upload {
    /// Title that a person gave, if one.
    pub title: Option<String>,
    /// Files and pasted text, in the order in which they were sent.
    pub files: Vec<Received>,
}

/// Reads the whole body. Fails only if nothing of it can be kept.
pub async fn receive(mut body: Multipart, store: &Store, limits: &Limits) -> Result<Upload> {
    let mut upload = Upload::default();
    let mut budget = Budget { left: limits.max_request_bytes, limits };
    while let Some(field) = arrives(limits, body.next_field()).await? {
        match field.name().unwrap_or_default() {
            "title" => {
                let title = read_text(field, &mut budget, 16 * limits.max_title_chars).await?;
                let title = title.ok_or_else(|| {
                    Problem::invalid(format!("A title has at most {} characters.", limits.max_title_chars))
                })?;
                upload.title = clean_line(&title, limits.max_title_chars);
            }
            "text" => {
                let text = read_text(field, &mut budget, limits.max_text_bytes).await?.ok_or_else(|| {
                    let limit = size(limits.max_text_bytes as u64);
                    let detail = format!("Pasted text is limited to {limit}. Upload it as a file instead.");
                    Problem::new(ProblemKind::RequestTooLarge, detail)
                })?;
                if !text.trim().is_empty() {
                    let mut file = Spool::new(store)?;
                    file.push(text.into()).await?;
                    upload.files.push(file.finish(PASTED_NAME.into()).await?);
                }
            }
            // A form without a chosen file still sends one field, with an empty name and no bytes.
            "files" | "file" => {
                if upload.files.len() >= limits.max_files {
                    let detail = format!(
                        "At most {} files at once. Send the rest as more files of the same run, or \
                        as one archive.",
                        limits.max_files
                    );
                    return Err(Problem::new(ProblemKind::TooManyFiles, detail));
                }
                let file = read_file(field, store, &mut budget).await?;
                if file.bytes > 0 || !file.name.is_empty() {
                    upload.files.push(file);
                }
            }
            _ => drain(field, &mut budget).await?,
        }
    }
    name_the_nameless(&mut upload.files);

    if upload.files.iter().all(|file| file.bytes == 0) {
        let detail = match upload.files.as_slice() {
            [] => "The upload has no file and no text. Choose at least one file, or paste text.".to_owned(),
            [file] => format!("{} is empty (0 bytes). Nothing was kept.", file.name),
            files => format!("All {} files are empty (0 bytes). Nothing was kept.", files.len()),
        };
        return Err(Problem::new(ProblemKind::NothingUploaded, detail));
    }
    if upload.files.iter().all(|file| file.content.is_err()) {
        let names: Vec<_> = upload.files.iter().map(|file| file.name.as_str()).collect();
        let limit = size(limits.max_file_bytes);
        let detail = format!("Larger than {limit}, the limit for one file of this server: {}.", names.join(", "));
        return Err(Problem::new(ProblemKind::FileTooLarge, detail));
    }
    Ok(upload)
}

/// What is left of a request's size.
struct Budget<'a> {
    left: u64,
    limits: &'a Limits,
}

impl Budget<'_> {
    fn spend(&mut self, bytes: usize) -> Result<()> {
        let left = self.left.checked_sub(bytes as u64);
        self.left = left.ok_or_else(|| request_too_large(self.limits))?;
        Ok(())
    }

    async fn chunk(&mut self, field: &mut Field<'_>) -> Result<Option<Bytes>> {
        let chunk = arrives(self.limits, field.chunk()).await?;
        if let Some(chunk) = &chunk {
            self.spend(chunk.len())?;
        }
        Ok(chunk)
    }
}

/// The refusal of a request over its limit, also used before anything of it is read.
pub fn request_too_large(limits: &Limits) -> Problem {
    let limit = size(limits.max_request_bytes);
    let detail = format!("One upload may have {limit} in all. Send the files in several uploads to the same run.");
    Problem::new(ProblemKind::RequestTooLarge, detail)
}

/// Waits for the next piece, but not for ever.
async fn arrives<T>(limits: &Limits, next: impl Future<Output = Result<T, MultipartError>>) -> Result<T> {
    match timeout(limits.upload_idle, next).await {
        Ok(Ok(piece)) => Ok(piece),
        Ok(Err(error)) => {
            Err(Problem::invalid("The upload is not a complete multipart form.").because(error.body_text()))
        }
        Err(_) => {
            let seconds = limits.upload_idle.as_secs();
            let detail =
                format!("Nothing arrived for {seconds} seconds, so the upload was given up. Nothing of it was kept.");
            Err(Problem::new(ProblemKind::TooSlow, detail))
        }
    }
}

async fn read_file(mut field: Field<'_>, store: &Store, budget: &mut Budget<'_>) -> Result<Received> {
    let limits = budget.limits;
    let name = sent_name(field.file_name().unwrap_or_default());
    let name = clean_line(&name, limits.max_name_chars).unwrap_or_default();
    let mut spool = Spool::new(store)?;
    while let Some(chunk) = budget.chunk(&mut field).await? {
        if spool.bytes + chunk.len() as u64 > limits.max_file_bytes {
            let arrived = spool.bytes + chunk.len() as u64 + drain_counting(field, budget).await?;
            let reason = format!(
                "larger than {}, the limit for one file of this server ({} arrived); it was not kept",
                size(limits.max_file_bytes),
                size(arrived),
            );
            return Ok(Received { name, bytes: arrived, sha256: String::new(), content: Err(reason) });
        }
        spool.push(chunk).await?;
    }
    spool.finish(name).await
}

/// A file's name as its owner knows it. Browsers write these three characters as escapes, and no others
/// (HTML standard, multipart/form-data encoding); a line break in a name reads as a space.
fn sent_name(escaped: &str) -> String {
    escaped.replace("%22", "\"").replace("%0D%0A", " ").replace("%0D", " ").replace("%0A", " ")
}

/// A short text field; `None` if it is longer than `max_bytes`.
async fn read_text(mut field: Field<'_>, budget: &mut Budget<'_>, max_bytes: usize) -> Result<Option<String>> {
    let mut text = Vec::new();
    while let Some(chunk) = budget.chunk(&mut field).await? {
        if text.len() + chunk.len() > max_bytes {
            return Ok(None);
        }
        text.extend_from_slice(&chunk);
    }
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

async fn drain(field: Field<'_>, budget: &mut Budget<'_>) -> Result<()> {
    drain_counting(field, budget).await.map(drop)
}

/// Lets the rest of a field pass by, so that the fields after it can be read; bounded by the request's budget.
async fn drain_counting(mut field: Field<'_>, budget: &mut Budget<'_>) -> Result<u64> {
    let mut passed = 0;
    while let Some(chunk) = budget.chunk(&mut field).await? {
        passed += chunk.len() as u64;
    }
    Ok(passed)
}

/// A file on its way to the disk, hashed as it passes.
struct Spool {
    file: NamedTempFile,
    hash: Sha256,
    waiting: Vec<Bytes>,
    waiting_bytes: usize,
    bytes: u64,
}

impl Spool {
    fn new(store: &Store) -> Result<Self> {
        let file = store.staging_file()?;
        Ok(Self { file, hash: Sha256::new(), waiting: Vec::new(), waiting_bytes: 0, bytes: 0 })
    }

    async fn push(&mut self, chunk: Bytes) -> Result<()> {
        self.bytes += chunk.len() as u64;
        self.waiting_bytes += chunk.len();
        self.waiting.push(chunk);
        if self.waiting_bytes >= WRITE_BLOCK { self.flush().await } else { Ok(()) }
    }

    /// Writing and hashing a block takes longer than the async threads should be held.
    async fn flush(&mut self) -> Result<()> {
        let chunks = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let mut file = self.file.as_file().try_clone().map_err(write_failed)?;
        let mut hash = std::mem::take(&mut self.hash);
        self.hash = tokio::task::spawn_blocking(move || {
            for chunk in chunks {
                hash.update(&chunk);
                file.write_all(&chunk)?;
            }
            Ok(hash)
        })
        .await
        .map_err(Problem::internal)?
        .map_err(write_failed)?;
        Ok(())
    }

    async fn finish(mut self, name: String) -> Result<Received> {
        self.flush().await?;
        let sha256 = crate::hex(&self.hash.finalize());
        Ok(Received { name, bytes: self.bytes, sha256, content: Ok(self.file.into_temp_path()) })
    }
}

fn write_failed(error: std::io::Error) -> Problem {
    let detail = "The upload could not be written to disk; it may be full. Nothing of it was kept.";
    Problem::new(ProblemKind::Unavailable, detail).because(error)
}

/// One line of visible text, cut to size; `None` if nothing is left.
pub fn clean_line(text: &str, max_chars: usize) -> Option<String> {
    // Marks that turn the reading direction could make a name look like another.
    let bends =
        |sign: char| matches!(sign, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let visible = text.trim().chars().filter(|sign| !sign.is_control() && !bends(*sign));
    let line: String = visible.take(max_chars).collect();
    (!line.is_empty()).then_some(line)
}

fn name_the_nameless(files: &mut [Received]) {
    for (index, file) in files.iter_mut().enumerate().filter(|(_, file)| file.name.is_empty()) {
        file.name = format!("file-{}", index + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{
        body::Body,
        extract::{FromRequest, Request},
    };
    use std::time::Duration;

    /// A multipart body of (field, file name, content).
    fn form(parts: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (field, file_name, content) in parts {
            let file_name = file_name.map(|name| format!("; filename=\"{name}\"")).unwrap_or_default();
            body.extend_from_slice(
                format!("--B\r\nContent-Disposition: form-data; name=\"{field}\"{file_name}\r\n\r\n").as_bytes(),
            );
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--B--\r\n");
        body
    }

    #[test]
    fn names_are_shown_as_their_owner_wrote_them() {
        assert_eq!(sent_name("a %22quoted%22 log.txt"), "a \"quoted\" log.txt");
        assert_eq!(sent_name("two%0D%0Alines%0A.txt"), "two lines .txt");
        assert_eq!(sent_name("50%2F%41.txt"), "50%2F%41.txt", "nothing else is an escape");
    }

    async fn multipart(body: Body) -> Multipart {
        let request = Request::builder().header("content-type", "multipart/form-data; boundary=B").body(body).unwrap();
        Multipart::from_request(request, &()).await.unwrap()
    }

    fn small() -> Limits {
        Limits {
            max_file_bytes: 1000,
            max_request_bytes: 5000,
            max_files: 3,
            max_text_bytes: 100,
            upload_idle: Duration::from_millis(50),
            ..Limits::default()
        }
    }

    async fn take(parts: &[(&str, Option<&str>, &[u8])]) -> Result<Upload> {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        receive(multipart(form(parts).into()).await, &store, &small()).await
    }

    #[tokio::test]
    async fn files_text_and_title_arrive_in_order_byte_for_byte() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let body = form(&[
            ("title", None, " My\u{202e} run\n".as_bytes()),
            ("files", Some("a.txt"), b"abc"),
            ("files", Some("empty.log"), b""),
            ("text", None, b"pasted"),
            ("unknown", None, b"ignored"),
        ]);
        let upload = receive(multipart(body.into()).await, &store, &small()).await.unwrap();
        assert_eq!(upload.title.as_deref(), Some("My run"));
        let names: Vec<_> = upload.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["a.txt", "empty.log", "pasted.txt"]);
        assert_eq!(std::fs::read(upload.files[0].content.as_ref().unwrap()).unwrap(), b"abc");
        assert_eq!(upload.files[0].sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[tokio::test]
    async fn a_file_over_the_limit_is_named_and_the_others_are_kept() {
        let upload = take(&[("files", Some("big.bin"), &[7; 2000]), ("files", Some("a.txt"), b"abc")]).await.unwrap();
        assert_eq!(upload.files[0].bytes, 2000);
        let reason = upload.files[0].content.as_ref().unwrap_err();
        assert!(reason.contains("1000 B") || reason.contains("limit"), "{reason}");
        assert!(upload.files[1].content.is_ok());
    }

    #[tokio::test]
    async fn refusals_say_which_limit() {
        let kind = async |parts: &[(&str, Option<&str>, &[u8])]| take(parts).await.unwrap_err().kind();
        assert_eq!(kind(&[]).await, ProblemKind::NothingUploaded);
        assert_eq!(kind(&[("files", Some(""), b""), ("text", None, b"  \n")]).await, ProblemKind::NothingUploaded);
        assert_eq!(kind(&[("files", Some("a"), b"")]).await, ProblemKind::NothingUploaded);
        assert_eq!(kind(&[("files", Some("a"), &[0; 2000])]).await, ProblemKind::FileTooLarge);
        assert_eq!(kind(&[("text", None, &[b'x'; 101])]).await, ProblemKind::RequestTooLarge);
        assert_eq!(kind(&[("files", Some("a"), &[0; 6000])]).await, ProblemKind::RequestTooLarge);
        assert_eq!(kind(&[("files", Some("a"), &b"1"[..]); 4]).await, ProblemKind::TooManyFiles);
    }

    #[tokio::test]
    async fn broken_and_stalled_bodies_are_refused_and_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let mut broken = form(&[("files", Some("a"), b"abc")]);
        broken.truncate(broken.len() - 9);
        let error = receive(multipart(broken.clone().into()).await, &store, &small()).await.unwrap_err();
        assert_eq!(error.kind(), ProblemKind::InvalidRequest);

        let stalled = futures_util::StreamExt::chain(
            futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from(broken))]),
            futures_util::stream::pending(),
        );
        let error = receive(multipart(Body::from_stream(stalled)).await, &store, &small()).await.unwrap_err();
        assert_eq!(error.kind(), ProblemKind::TooSlow);
        assert_eq!(std::fs::read_dir(folder.path().join("incoming")).unwrap().count(), 0);
    }
}
