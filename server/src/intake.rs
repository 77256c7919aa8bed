//! Takes an upload in: the multipart body goes to files on disk as it arrives, within the limits.
//!
//! A file over its limit is refused by name and drained; the others are kept. Nothing is read for meaning here, and a
//! visitor's file name never becomes a path.

use crate::{
    errors::{Problem, ProblemKind, Result},
    limits::{Limits, size},
    multipart::{Form, FormError},
    paced::PacedError,
    store::{Staged, Store, StoreError},
    visible::{bends, is_invisible},
};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::{fs::File, io::Write};

/// Bytes gathered before they are handed to the disk.
const WRITE_BLOCK: usize = 256 << 10;
/// The name that pasted text gets.
const PASTED_NAME: &str = "pasted.txt";

/// Longer than any id.
const MAX_ID_BYTES: usize = 128;

/// Parts of a form beside its files: title, text, and what a page may add.
const OTHER_PARTS: usize = 16;

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
    pub content: Result<Staged, String>,
}

/// An upload, taken in whole.
#[derive(Debug, Default)]
pub struct Upload {
    /// Title that a person gave, if one.
    pub title: Option<String>,
    /// Project that was chosen, if one; whoever keeps the upload has to check it.
    pub project: Option<String>,
    /// Files and pasted text, in the order in which they were sent.
    pub files: Vec<Received>,
    /// Files that arrived before, in requests of their own: their ids.
    pub earlier: Vec<String>,
    /// Who sends all this, and alone may use what arrived before.
    pub owner: String,
}

/// Reads the whole body. Fails only if nothing of it can be kept.
pub async fn receive(form: Form, store: &Store, limits: &Limits) -> Result<Upload> {
    let mut form = Arriving { form, limits };
    let mut upload = Upload::default();
    let mut parts = 0;
    while let Some(head) = form.next_part().await? {
        parts += 1;
        // Also parts of which nothing is kept take time.
        if parts > limits.max_files + OTHER_PARTS {
            return Err(too_many_files(limits));
        }
        match head.name.as_str() {
            "title" => {
                // Longer than any title is cut, as a rename is.
                let (title, _) = form.text(16 * limits.max_title_chars).await?;
                form.pass().await?;
                upload.title = clean_line(&title, limits.max_title_chars);
            }
            "project" => {
                let (project, _) = form.text(MAX_ID_BYTES).await?;
                form.pass().await?;
                upload.project = Some(project.trim().to_owned()).filter(|project| !project.is_empty());
            }
            "upload" => {
                let (id, _) = form.text(MAX_ID_BYTES).await?;
                form.pass().await?;
                if !upload.earlier.iter().any(|known| known == id.trim()) {
                    upload.earlier.push(id.trim().to_owned());
                }
            }
            "text" => {
                // As long as a file may be: who has a long log at hand may paste it.
                let (text, is_blank) = form.file(PASTED_NAME, store).await?;
                if !is_blank {
                    upload.add(text, limits)?;
                }
            }
            // A form without a chosen file still sends one field, with an empty name and no bytes.
            "files" | "file" => {
                let (file, _) = form.file(head.file_name.as_deref().unwrap_or_default(), store).await?;
                if file.bytes > 0 || !file.name.is_empty() {
                    upload.add(file, limits)?;
                }
            }
            _ => {
                form.pass().await?;
            }
        }
    }
    name_the_nameless(&mut upload.files);

    if upload.earlier.is_empty() && upload.files.iter().all(|file| file.bytes == 0) {
        let detail = match upload.files.as_slice() {
            [] => "The upload has no file and no text. Choose at least one file, or paste text.".to_owned(),
            [file] => format!("{} is empty (0 bytes). Nothing was kept.", file.name),
            files => format!("All {} files are empty (0 bytes). Nothing was kept.", files.len()),
        };
        return Err(Problem::new(ProblemKind::NothingUploaded, detail));
    }
    if upload.earlier.is_empty() && upload.files.iter().all(|file| file.content.is_err()) {
        let names: Vec<_> = upload.files.iter().map(|file| file.name.as_str()).collect();
        let limit = size(limits.max_file_bytes);
        let detail = format!("Larger than {limit}, the limit for one file of this server: {}.", names.join(", "));
        return Err(Problem::new(ProblemKind::FileTooLarge, detail));
    }
    Ok(upload)
}

impl Upload {
    fn add(&mut self, file: Received, limits: &Limits) -> Result<()> {
        if self.files.len() + self.earlier.len() >= limits.max_files {
            return Err(too_many_files(limits));
        }
        self.files.push(file);
        Ok(())
    }
}

fn too_many_files(limits: &Limits) -> Problem {
    let most = limits.max_files;
    let detail =
        format!("At most {most} files at once. Send the rest as more files of the same run, or as one archive.");
    Problem::new(ProblemKind::TooManyFiles, detail)
}

/// The refusal of a request over its limit, also used before anything of it is read.
pub fn request_too_large(limits: &Limits) -> Problem {
    let limit = size(limits.max_request_bytes);
    let detail = format!("One upload may have {limit} in all. Send the files in several uploads to the same run.");
    Problem::new(ProblemKind::RequestTooLarge, detail)
}

/// A form on its way in.
struct Arriving<'a> {
    form: Form,
    limits: &'a Limits,
}

impl Arriving<'_> {
    async fn next_part(&mut self) -> Result<Option<crate::multipart::Head>> {
        self.form.next_part().await.map_err(|error| refusal(error, self.limits))
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>> {
        self.form.chunk().await.map_err(|error| refusal(error, self.limits))
    }

    /// A part as a file, and whether it has nothing but white space.
    async fn file(&mut self, name: &str, store: &Store) -> Result<(Received, bool)> {
        let limits = self.limits;
        let name = clean_name(&sent_name(name), limits.max_name_chars).unwrap_or_default();
        let mut spool = Spool::new(store)?;
        let mut is_blank = true;
        while let Some(chunk) = self.chunk().await? {
            is_blank = is_blank && chunk.trim_ascii().is_empty();
            if spool.bytes + chunk.len() as u64 > limits.max_file_bytes {
                let arrived = spool.bytes + chunk.len() as u64 + self.pass().await?;
                let reason = format!(
                    "larger than {}, the limit for one file of this server ({} arrived); it was not kept",
                    size(limits.max_file_bytes),
                    size(arrived),
                );
                let refused = Received { name, bytes: arrived, sha256: String::new(), content: Err(reason) };
                return Ok((refused, false));
            }
            spool.push(chunk).await?;
        }
        Ok((spool.finish(name).await?, is_blank))
    }

    /// The first `max_bytes` of a part, and whether they are all of it.
    async fn text(&mut self, max_bytes: usize) -> Result<(String, bool)> {
        let mut text = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            text.extend_from_slice(&chunk);
            if text.len() > max_bytes {
                text.truncate(max_bytes);
                return Ok((String::from_utf8_lossy(&text).into_owned(), false));
            }
        }
        Ok((String::from_utf8_lossy(&text).into_owned(), true))
    }

    /// Lets the rest of a part pass by, so that the parts after it can be read; bounded by the request's size.
    async fn pass(&mut self) -> Result<u64> {
        let mut passed = 0;
        while let Some(chunk) = self.chunk().await? {
            passed += chunk.len() as u64;
        }
        Ok(passed)
    }
}

fn refusal(error: FormError, limits: &Limits) -> Problem {
    match error {
        FormError::Body(PacedError::TooLarge) => request_too_large(limits),
        FormError::Body(PacedError::Idle) => {
            let seconds = limits.upload_idle.as_secs();
            let detail =
                format!("Nothing arrived for {seconds} seconds, so the upload was given up. Nothing of it was kept.");
            Problem::new(ProblemKind::TooSlow, detail)
        }
        FormError::Body(PacedError::Dripping) => {
            let (rate, seconds) = (size(limits.upload_rate), limits.upload_grace.as_secs());
            let detail = format!(
                "Less than {rate} a second arrived over {seconds} seconds, so the upload was given up. Nothing of it was \
                 kept. Send it over a faster connection, or compressed: gzip and zip archives are read as they are."
            );
            Problem::new(ProblemKind::TooSlow, detail)
        }
        error => Problem::invalid("The upload is not a complete multipart form.").because(error),
    }
}

/// A file's name as its owner knows it. Browsers write these three characters as escapes, and no others
/// (HTML standard, multipart/form-data encoding); a line break in a name reads as a space.
fn sent_name(escaped: &str) -> String {
    escaped.replace("%22", "\"").replace("%0D%0A", " ").replace("%0D", " ").replace("%0A", " ")
}

/// A file on its way to the disk, hashed as it passes.
pub(crate) struct Spool {
    file: File,
    staged: Staged,
    hash: Sha256,
    waiting: Vec<Bytes>,
    waiting_bytes: usize,
    bytes: u64,
}

impl Spool {
    pub(crate) fn new(store: &Store) -> Result<Self> {
        let (file, staged) = store.staging_file()?;
        Ok(Self { file, staged, hash: Sha256::new(), waiting: Vec::new(), waiting_bytes: 0, bytes: 0 })
    }

    /// Bytes that came so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All that came, on disk, without its name.
    pub(crate) async fn staged(mut self) -> Result<Staged> {
        self.flush().await?;
        Ok(self.staged)
    }

    pub(crate) async fn push(&mut self, chunk: Bytes) -> Result<()> {
        self.bytes += chunk.len() as u64;
        self.waiting_bytes += chunk.len();
        self.waiting.push(chunk);
        if self.waiting_bytes >= WRITE_BLOCK { self.flush().await } else { Ok(()) }
    }

    /// Writes at once; for threads that may block.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all(bytes)?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// What was written so far, from its beginning.
    pub(crate) fn written(&self) -> std::io::Result<File> {
        File::open(self.staged.path()?)
    }

    /// Writing and hashing a block takes longer than the async threads should be held.
    async fn flush(&mut self) -> Result<()> {
        let chunks = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let mut file = self.file.try_clone().map_err(write_failed)?;
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

    pub(crate) async fn finish(mut self, name: String) -> Result<Received> {
        self.flush().await?;
        let sha256 = crate::hex(&self.hash.finalize());
        Ok(Received { name, bytes: self.bytes, sha256, content: Ok(self.staged) })
    }
}

fn write_failed(error: std::io::Error) -> Problem {
    let error = StoreError::Io(error);
    if error.is_full() {
        return error.into();
    }
    let detail = "The upload could not be written to disk. Nothing of it was kept.";
    Problem::new(ProblemKind::Unavailable, detail).because(error)
}

/// One line of visible text, cut to size; `None` if nothing can be seen of it.
pub fn clean_line(text: &str, max_chars: usize) -> Option<String> {
    let line: String = shown(text).take(max_chars).collect();
    Some(line.trim_end().to_owned()).filter(|line| !line.chars().all(is_invisible))
}

/// The same for the name of a file, of which the end tells most: the rank, the extension.
pub(crate) fn clean_name(text: &str, max_chars: usize) -> Option<String> {
    let signs: Vec<char> = shown(text).collect();
    if signs.len() <= max_chars {
        return clean_line(text, max_chars);
    }
    let end = signs.get(signs.len() + 1 - max_chars..).unwrap_or_default();
    Some(std::iter::once('…').chain(end.iter().copied()).collect())
}

/// Without control characters, and without marks that turn the reading direction: a name could look like another.
fn shown(text: &str) -> impl Iterator<Item = char> {
    text.trim().chars().filter(|sign| !sign.is_control() && !bends(*sign))
}

pub(crate) fn name_the_nameless(files: &mut [Received]) {
    for (index, file) in files.iter_mut().enumerate().filter(|(_, file)| file.name.is_empty()) {
        file.name = format!("file-{}", index + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
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

    fn multipart(body: Body) -> Form {
        let limits = small();
        let kind = b"multipart/form-data; boundary=B";
        Form::new(kind, body, limits.max_request_bytes, limits.pace()).unwrap()
    }

    /// Files in flight are removed on another thread.
    async fn nothing_is_left(folder: &std::path::Path) -> bool {
        for _ in 0..100 {
            if std::fs::read_dir(folder.join("incoming")).unwrap().count() == 0 {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    fn small() -> Limits {
        Limits {
            max_file_bytes: 1000,
            max_request_bytes: 5000,
            max_files: 3,
            upload_idle: Duration::from_millis(50),
            ..Limits::default()
        }
    }

    async fn take(parts: &[(&str, Option<&str>, &[u8])]) -> Result<Upload> {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        receive(multipart(form(parts).into()), &store, &small()).await
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
        let upload = receive(multipart(body.into()), &store, &small()).await.unwrap();
        assert_eq!(upload.title.as_deref(), Some("My run"));
        let names: Vec<_> = upload.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["a.txt", "empty.log", "pasted.txt"]);
        assert_eq!(std::fs::read(upload.files[0].content.as_ref().unwrap().path().unwrap()).unwrap(), b"abc");
        assert_eq!(upload.files[0].sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn lines_are_cut_to_what_can_be_seen() {
        assert_eq!(clean_line("\u{200b}", 9), None);
        assert_eq!(clean_line(" \u{feff}\u{2060} \u{7}", 9), None);
        assert_eq!(clean_line("a\u{200d}b", 9).as_deref(), Some("a\u{200d}b"), "joiners inside words stay");
        assert_eq!(clean_line("abc def", 4).as_deref(), Some("abc"));
        assert_eq!(clean_name("very-long-rank12.log", 11).as_deref(), Some("…rank12.log"));
        assert_eq!(clean_name("short.log", 11).as_deref(), Some("short.log"));
    }

    #[tokio::test]
    async fn a_long_title_is_cut() {
        let title = "x".repeat(4000);
        let upload = take(&[("title", None, title.as_bytes()), ("text", None, b"abc")]).await.unwrap();
        assert_eq!(upload.title.unwrap().len(), 200);
        assert_eq!(upload.files.len(), 1);
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
        assert_eq!(kind(&[("text", None, &[b'x'; 1001])]).await, ProblemKind::FileTooLarge);
        assert_eq!(kind(&[("files", Some("a"), &[0; 6000])]).await, ProblemKind::RequestTooLarge);
        assert_eq!(kind(&[("files", Some("a"), &b"1"[..]); 4]).await, ProblemKind::TooManyFiles);
        assert_eq!(kind(&[("text", None, &b"1"[..]); 4]).await, ProblemKind::TooManyFiles);
        assert_eq!(kind(&[("files", Some(""), &b""[..]); 40]).await, ProblemKind::TooManyFiles);
        assert_eq!(kind(&[("other", None, &b""[..]); 40]).await, ProblemKind::TooManyFiles);
    }

    #[tokio::test]
    async fn broken_and_stalled_bodies_are_refused_and_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let mut broken = form(&[("files", Some("a"), b"abc")]);
        broken.truncate(broken.len() - 9);
        let error = receive(multipart(broken.clone().into()), &store, &small()).await.unwrap_err();
        assert_eq!(error.kind(), ProblemKind::InvalidRequest);

        let stalled = futures_util::StreamExt::chain(
            futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from(broken))]),
            futures_util::stream::pending(),
        );
        let error = receive(multipart(Body::from_stream(stalled)), &store, &small()).await.unwrap_err();
        assert_eq!(error.kind(), ProblemKind::TooSlow);
        assert!(nothing_is_left(folder.path()).await);
    }
}
