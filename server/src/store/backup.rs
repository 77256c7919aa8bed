//! A copy of a data folder with the database in it, made while a server goes on writing, and a folder made of it again.
//! Objects in a bucket are read from there into the copy, and go back into one.
//!
//! The copy is one tar file: the database as it was at one moment, every object that its rows name, and last the list of
//! both with sizes and hashes, so that a copy that was cut is known as such. What it can hold is what was acknowledged
//! before it began; live samples that still move, and uploads in flight, are in no row yet and in no copy. Knows no HTTP
//! and no command line.

use super::{BucketSettings, Database, OBJECTS, Objects, Staged, StoreError, database::FILE};
use futures_util::TryStreamExt;
use object_store::path::Path as Key;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::Row;
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Component, Path, PathBuf},
};

/// What the list says it is.
const FORMAT: &str = "rankscope.backup/1";
/// The list's name; it stands last.
const LIST: &str = "manifest.json";
/// How often the database is copied anew because objects that it named went away meanwhile.
const ATTEMPTS: usize = 8;
/// Longest list that is read: some 20 million objects.
const MAX_LIST_BYTES: u64 = 4 << 30;
/// A step of copying.
const CHUNK: usize = 256 << 10;

/// What a copy holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// Rows of runs.
    pub runs: u64,
    /// Objects.
    pub objects: u64,
    /// Bytes of objects and database.
    pub bytes: u64,
    /// Objects that rows name and the folder does not have: they were lost before.
    pub missing: Vec<String>,
}

/// The list at the end of a copy.
#[derive(Debug, Serialize, Deserialize)]
struct List {
    format: String,
    /// Version of the program that wrote it.
    version: String,
    runs: u64,
    #[serde(default)]
    missing: Vec<String>,
    files: Vec<Listed>,
}

/// A file with its size and hash.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Listed {
    /// Below the data folder.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    sha256: String,
}

impl Listed {
    /// The key of an object; `None` of what is none.
    pub(super) fn key(&self) -> Option<Key> {
        self.path.strip_prefix(OBJECTS).and_then(|key| key.strip_prefix('/')).map(Key::from)
    }
}

/// Writes a copy of the data folder, and of the bucket if its objects lie in one, to `out`, also while a server holds the
/// folder.
pub async fn write(data: &Path, bucket: Option<&BucketSettings>, out: impl Write) -> Result<Contents, StoreError> {
    if !data.join(FILE).is_file() {
        let text = format!("{} holds no database; is this the folder of the server?", data.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text).into());
    }
    let objects = match bucket {
        Some(bucket) => Objects::to_read(bucket).await?,
        None => Objects::in_folder(&data.join(OBJECTS))?,
    };
    // Inside the data folder, so that objects can be held by a second name instead of being copied twice. Those of a
    // bucket are copied there first: the tar file wants their sizes, and a run may be deleted meanwhile.
    let held = tempfile::Builder::new().prefix("backup-").tempdir_in(data)?;
    let (rows, missing) = hold_a_moment(data, &objects, held.path()).await?;
    pack(held.path(), rows.runs, missing, out)
}

/// What the rows of a database name.
pub(super) struct Rows {
    runs: u64,
    /// Must be there.
    keys: BTreeSet<String>,
    /// Are there for most rows: of a refused file nothing was understood, and not every report has columns.
    others: BTreeSet<String>,
}

/// Brings the database of one moment and all that it names into `held`. Objects that no longer exist are told.
pub(super) async fn hold_a_moment(
    data: &Path,
    objects: &Objects,
    held: &Path,
) -> Result<(Rows, Vec<String>), StoreError> {
    let source = Database::in_folder(data, 1).await?;
    let mut before: Option<Vec<String>> = None;
    let mut attempt = 1;
    loop {
        let copy = held.join(FILE);
        remove_if_there(&copy)?;
        let name = copy.to_str().ok_or_else(|| io::Error::other("the path of the data folder must be UTF-8"))?;
        // One transaction: whoever writes meanwhile is in the copy whole or not at all.
        sqlx::query("VACUUM INTO $1").bind(name).execute(source.pool()).await?;
        let rows = rows(held).await?;
        let to = held.join(OBJECTS);
        hold_objects(objects, &to, &rows.others).await?;
        let missing = hold_objects(objects, &to, &rows.keys).await?;
        // A run that was deleted, or a live file that was renewed, is gone from the next copy too; what is missing twice
        // was lost before.
        if missing.is_empty() || before.as_ref() == Some(&missing) {
            source.pool().close().await;
            keep_only(&to, &rows)?;
            return Ok((rows, missing));
        }
        if attempt >= ATTEMPTS {
            let text = "objects went away faster than they could be held; try again when less is deleted";
            return Err(io::Error::other(text).into());
        }
        before = Some(missing);
        attempt += 1;
    }
}

/// The rows of the copied database.
async fn rows(held: &Path) -> Result<Rows, StoreError> {
    let copy = Database::in_folder(held, 1).await?;
    let runs = sqlx::query("SELECT COUNT(*) FROM runs").fetch_one(copy.pool()).await?.try_get::<i64, _>(0)?;
    let (mut keys, mut others) = (BTreeSet::new(), BTreeSet::new());
    for row in
        sqlx::query("SELECT object_key FROM artifacts WHERE object_key IS NOT NULL").fetch_all(copy.pool()).await?
    {
        keys.insert(row.try_get::<String, _>(0)?);
    }
    for row in sqlx::query("SELECT id, run_id FROM artifacts").fetch_all(copy.pool()).await? {
        let (artifact, run): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        others.insert(super::objects::evidence_key(&run, &artifact).to_string());
    }
    for row in sqlx::query("SELECT run_id, version FROM diagnoses").fetch_all(copy.pool()).await? {
        let run: String = row.try_get(0)?;
        let version = u32::try_from(row.try_get::<i64, _>(1)?).map_err(|_| StoreError::Range("version"))?;
        keys.insert(super::objects::report_key(&run, version).to_string());
        others.insert(super::objects::series_key(&run, version).to_string());
    }
    // Back to one file.
    sqlx::query("PRAGMA journal_mode = DELETE").execute(copy.pool()).await?;
    copy.pool().close().await;
    Ok(Rows { runs: u64::try_from(runs).unwrap_or(0), keys, others })
}

/// Brings every object that is named below `to`, where its bytes stay whatever happens to the object.
async fn hold_objects(objects: &Objects, to: &Path, keys: &BTreeSet<String>) -> Result<Vec<String>, StoreError> {
    let mut missing = Vec::new();
    for key in keys {
        let target = to.join(key);
        if !target.exists() && !objects.hold(&Key::from(key.as_str()), &target).await? {
            missing.push(key.clone());
        }
    }
    Ok(missing)
}

/// Lets go of what an earlier attempt held and the last database does not name.
fn keep_only(folder: &Path, rows: &Rows) -> io::Result<()> {
    for path in files_of(folder)? {
        let key = path.strip_prefix(folder).ok().and_then(Path::to_str).unwrap_or_default();
        if !rows.keys.contains(key) && !rows.others.contains(key) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// All files below a folder, in the order of their names.
fn files_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() { folders.push(entry.path()) } else { files.push(entry.path()) }
        }
    }
    files.sort();
    Ok(files)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn name_in(held: &Path, path: &Path) -> Result<String, StoreError> {
    Ok(path.strip_prefix(held).ok().and_then(Path::to_str).ok_or(StoreError::Range("path"))?.to_owned())
}

/// The objects that are held, with sizes and hashes.
pub(super) fn listed(held: &Path) -> Result<Vec<Listed>, StoreError> {
    let of = |path: PathBuf| {
        let mut reader = Hashing::new(BufReader::with_capacity(CHUNK, File::open(&path)?));
        let bytes = io::copy(&mut reader, &mut io::sink())?;
        Ok(Listed { path: name_in(held, &path)?, bytes, sha256: reader.finish() })
    };
    files_of(&held.join(OBJECTS))?.into_iter().map(of).collect()
}

fn pack(held: &Path, runs: u64, missing: Vec<String>, out: impl Write) -> Result<Contents, StoreError> {
    let mut tar = tar::Builder::new(BufWriter::with_capacity(CHUNK, out));
    let mut files = Vec::new();
    let objects = files_of(&held.join(OBJECTS))?;
    for path in std::iter::once(held.join(FILE)).chain(objects) {
        let name = name_in(held, &path)?;
        let file = File::open(&path)?;
        let bytes = file.metadata()?.len();
        let mut reader = Hashing::new(BufReader::with_capacity(CHUNK, file).take(bytes));
        tar.append_data(&mut header(bytes), &name, &mut reader)?;
        files.push(Listed { path: name, bytes, sha256: reader.finish() });
    }
    let contents = Contents {
        runs,
        objects: files.len().saturating_sub(1) as u64,
        bytes: files.iter().map(|file| file.bytes).sum(),
        missing: missing.clone(),
    };
    let list = List { format: FORMAT.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), runs, missing, files };
    let list = serde_json::to_vec(&list)?;
    tar.append_data(&mut header(list.len() as u64), LIST, list.as_slice())?;
    tar.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?.flush()?;
    Ok(contents)
}

fn header(bytes: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes);
    // Passwords' hashes are inside.
    header.set_mode(0o600);
    header
}

/// Makes a data folder of a copy. `data` must not exist, or be empty; nothing is there under its name before all of the
/// copy was read and found whole, and its objects are in the bucket, if they go into one.
pub async fn restore(input: impl Read, data: &Path, bucket: Option<&BucketSettings>) -> Result<Contents, StoreError> {
    let is_free = match fs::read_dir(data) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(error.into()),
    };
    if !is_free {
        let text = format!("{} is not empty; name a folder that does not exist yet", data.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text).into());
    }
    let objects = match bucket {
        Some(bucket) => Some(Objects::in_bucket(bucket).await?),
        None => None,
    };
    let data = std::path::absolute(data)?;
    let beside = data.parent().ok_or_else(|| io::Error::other("the data folder cannot be the root"))?;
    fs::create_dir_all(beside)?;
    // Beside it, so that the last step is one change of a name. Only its owner may look inside.
    let made = tempfile::Builder::new().prefix(".rankscope-restore-").tempdir_in(beside)?;
    let list = unpack(input, made.path())?;
    if let Some(objects) = &objects {
        send(objects, made.path(), &list.files).await?;
        fs::remove_dir_all(made.path().join(OBJECTS)).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
    }
    fs::create_dir_all(made.path().join(OBJECTS))?;
    if fs::exists(&data)? {
        fs::remove_dir(&data)?;
    }
    fs::rename(made.keep(), &data)?;
    File::open(beside)?.sync_all()?;
    Ok(Contents {
        runs: list.runs,
        objects: list.files.len().saturating_sub(1) as u64,
        bytes: list.files.iter().map(|file| file.bytes).sum(),
        missing: list.missing,
    })
}

/// Brings the objects of a copy into a bucket. What is there already stays; where other bytes lie under a key, they are
/// kept beside it. So whoever has lost the folder alone, or was interrupted, sends only what is missing.
pub(super) async fn send(objects: &Objects, from: &Path, files: &[Listed]) -> Result<(), StoreError> {
    for file in files {
        let Some(key) = file.key() else { continue };
        if is_there(objects, &key, file).await? {
            continue;
        }
        if objects.set_aside(&key).await? {
            tracing::warn!(%key, "other bytes lay under this key; they were kept beside it");
        }
        objects.adopt(&key, Staged::of(from.join(&file.path))?).await?;
    }
    Ok(())
}

/// Whether an object has the very bytes of a file of the copy.
pub(super) async fn is_there(objects: &Objects, key: &Key, file: &Listed) -> Result<bool, StoreError> {
    let (size, mut pieces) = match objects.stream(key).await {
        Ok(found) => found,
        Err(StoreError::Missing) => return Ok(false),
        Err(error) => return Err(error),
    };
    if size != file.bytes {
        return Ok(false);
    }
    let mut hash = Sha256::new();
    while let Some(piece) = pieces.try_next().await? {
        hash.update(&piece);
    }
    Ok(crate::hex(&hash.finalize()) == file.sha256)
}

fn unpack(input: impl Read, to: &Path) -> Result<List, StoreError> {
    let damaged = |text: String| StoreError::Io(io::Error::new(io::ErrorKind::InvalidData, text));
    let mut tar = tar::Archive::new(BufReader::with_capacity(CHUNK, input));
    let mut files = Vec::new();
    let mut list: Option<List> = None;
    for entry in tar.entries()? {
        let entry = entry?;
        let path = entry.path()?.to_path_buf();
        if list.is_some() || !entry.header().entry_type().is_file() {
            return Err(damaged(format!("{} does not belong in a backup of rankscope", path.display())));
        }
        if path == Path::new(LIST) {
            list = Some(serde_json::from_reader(entry.take(MAX_LIST_BYTES))?);
            continue;
        }
        let name = path.to_str().filter(|_| is_own(&path)).map(str::to_owned);
        let name =
            name.ok_or_else(|| damaged(format!("{} does not belong in a backup of rankscope", path.display())))?;
        let target = to.join(&path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file = private_file(&target)?;
        let mut reader = Hashing::new(entry);
        let bytes = io::copy(&mut reader, &mut file)?;
        file.sync_all()?;
        files.push(Listed { path: name, bytes, sha256: reader.finish() });
    }
    let list = list.ok_or_else(|| damaged("the backup was cut: its list, which stands last, is missing".to_owned()))?;
    if list.format != FORMAT {
        return Err(damaged(format!("a backup of another kind: {:?}, not {FORMAT}", list.format)));
    }
    if let Some((found, said)) = files.iter().zip(&list.files).find(|(found, said)| found != said) {
        return Err(damaged(format!("{} is damaged: the backup's own list says {}", found.path, said.sha256)));
    }
    if files.len() != list.files.len() || files.first().is_none_or(|first| first.path != FILE) {
        return Err(damaged(format!("{} files, and the list of the backup says {}", files.len(), list.files.len())));
    }
    Ok(list)
}

/// The database, or an object: no way out of the folder, and nothing else in it.
fn is_own(path: &Path) -> bool {
    let mut parts = path.components();
    let all_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let first = parts.next();
    let is = |name: &str| first == Some(Component::Normal(name.as_ref()));
    all_plain && ((is(FILE) && parts.next().is_none()) || (is(OBJECTS) && parts.count() >= 1))
}

fn private_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Passes bytes on and hashes them.
struct Hashing<R> {
    from: R,
    hash: Sha256,
}

impl<R> Hashing<R> {
    fn new(from: R) -> Self {
        Self { from, hash: Sha256::new() }
    }

    /// The hash of all that was read, in hexadecimal digits.
    fn finish(self) -> String {
        crate::hex(&self.hash.finalize())
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(into)?;
        self.hash.update(into.get(..n).unwrap_or_default());
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_data_folder_has_comes_out_of_a_copy() {
        for path in [FILE, "objects/runs/a/artifacts/b", "objects/runs/a/reports/1.json.gz"] {
            assert!(is_own(Path::new(path)), "{path}");
        }
        for path in ["", "/etc/passwd", "objects", "objects/../../x", "../x", "rankscope.sqlite/x", "lock", "live/x"] {
            assert!(!is_own(Path::new(path)), "{path}");
        }
    }

    fn copy_of(files: &[(&str, &[u8])], list: Option<&List>) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = header(bytes.len() as u64);
            // As a hostile writer would: the builder itself refuses such names.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            tar.append(&header, *bytes).unwrap();
        }
        if let Some(list) = list {
            let list = serde_json::to_vec(list).unwrap();
            tar.append_data(&mut header(list.len() as u64), LIST, list.as_slice()).unwrap();
        }
        tar.into_inner().unwrap()
    }

    fn listed(path: &str, bytes: &[u8]) -> Listed {
        let mut reader = Hashing::new(bytes);
        io::copy(&mut reader, &mut io::sink()).unwrap();
        Listed { path: path.into(), bytes: bytes.len() as u64, sha256: reader.finish() }
    }

    fn list(files: Vec<Listed>) -> List {
        List { format: FORMAT.into(), version: "0".into(), runs: 0, missing: vec![], files }
    }

    #[tokio::test]
    async fn a_copy_that_is_cut_damaged_or_hostile_makes_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let whole = [(FILE, &b"rows"[..]), ("objects/runs/a/x", b"bytes")];
        let all = || vec![listed(FILE, b"rows"), listed("objects/runs/a/x", b"bytes")];
        let good = copy_of(&whole, Some(&list(all())));
        let refused = [
            ("cut", copy_of(&whole, None)),
            ("short", good[..good.len() / 2].to_vec()),
            ("damaged", copy_of(&[(FILE, b"rows"), ("objects/runs/a/x", b"bites")], Some(&list(all())))),
            ("one file less", copy_of(&whole[..1], Some(&list(all())))),
            ("one file more", copy_of(&whole, Some(&list(vec![listed(FILE, b"rows")])))),
            ("a way out", copy_of(&[("../out", b"x")], Some(&list(vec![])))),
            ("an absolute path", copy_of(&[("/tmp/rankscope-out", b"x")], Some(&list(vec![])))),
            ("no database", copy_of(&[("objects/a/b", b"x")], Some(&list(vec![listed("objects/a/b", b"x")])))),
            ("another format", copy_of(&whole, Some(&List { format: "x/1".into(), ..list(all()) }))),
            ("no tar", b"not a tar file".to_vec()),
        ];
        for (what, bytes) in refused {
            assert!(restore(bytes.as_slice(), &data, None).await.is_err(), "{what}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{what}: something was left behind");
        }
        assert_eq!(restore(good.as_slice(), &data, None).await.unwrap().objects, 1);
        assert_eq!(fs::read(data.join("objects/runs/a/x")).unwrap(), b"bytes");
        let error = restore(good.as_slice(), &data, None).await.unwrap_err().to_string();
        assert!(error.contains("is not empty"), "{error}");
    }
}
