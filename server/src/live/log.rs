//! The durable log: segment files of frames, each with its length and checksum. What was appended is on disk when the
//! call returns; a torn tail is cut off at the next start. Knows frames of bytes, and nothing of what they say.

use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// First bytes of a segment.
const MAGIC: &[u8; 8] = b"RSLIVE1\n";
/// Length of head and body, checksum of both.
const FRAME_HEAD: usize = 12;
/// A longer frame is none of ours.
const MAX_FRAME: u32 = 64 << 20;

/// What is said of a frame's body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameHead {
    /// One run of one agent or process.
    pub source: String,
    /// When it arrived, microseconds since the epoch.
    pub received: i64,
    /// The body is gzip.
    pub gzip: bool,
    /// Lines up to and with this one were kept before: of these the frame holds nothing new.
    pub known: Option<u64>,
    /// Whose it is, for deciding what may go: the node, or the source itself for a probe.
    pub owner: String,
}

/// A frame to append.
#[derive(Debug)]
pub struct Frame<'a> {
    /// What is said of it.
    pub head: FrameHead,
    /// The batch as it was sent.
    pub body: &'a [u8],
}

/// A sealed or open segment.
#[derive(Debug, Default)]
struct Segment {
    bytes: u64,
    owners: BTreeSet<String>,
}

/// The log of one folder.
#[derive(Debug)]
pub struct Log {
    folder: PathBuf,
    file: File,
    number: u64,
    segments: BTreeMap<u64, Segment>,
    segment_bytes: u64,
    /// A write has failed and could not be undone: nothing more goes into this segment.
    broken: bool,
}

/// What a start found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Frames that were given to the reader.
    pub frames: u64,
    /// Bytes of torn tails that were cut off.
    pub cut: u64,
    /// Segments of which only the beginning could be read although they were sealed.
    pub damaged: Vec<u64>,
}

impl Log {
    /// Opens (and creates) the log, and gives each frame from segment `from` on to `each`, in order. Older segments are
    /// only measured.
    pub fn open(
        folder: &Path,
        segment_bytes: u64,
        from: u64,
        each: &mut dyn FnMut(FrameHead, Vec<u8>),
    ) -> io::Result<(Self, Recovered)> {
        fs::create_dir_all(folder)?;
        let mut recovered = Recovered::default();
        let mut segments = BTreeMap::new();
        let mut numbers = numbers(folder, "seg")?;
        numbers.sort_unstable();
        let newest = numbers.last().copied();
        for number in numbers {
            let path = segment_path(folder, number);
            let mut segment = Segment::default();
            let size = fs::metadata(&path)?.len();
            let whole = read_segment(&path, &mut |head, body| {
                segment.owners.insert(head.owner.clone());
                if number >= from {
                    recovered.frames += 1;
                    each(head, body);
                }
            })?;
            if whole < size {
                if Some(number) == newest {
                    recovered.cut += size - whole;
                    let file = File::options().write(true).open(&path)?;
                    file.set_len(whole)?;
                    file.sync_all()?;
                } else {
                    recovered.damaged.push(number);
                }
            }
            segment.bytes = whole;
            segments.insert(number, segment);
        }
        let number = newest.unwrap_or(0);
        // A segment whose beginning is torn holds nothing, and begins anew.
        let is_new = segments.get(&number).is_none_or(|segment| segment.bytes < MAGIC.len() as u64);
        let file = if is_new { create_segment(folder, number)? } else { append_to(&segment_path(folder, number))? };
        if is_new {
            segments.insert(number, Segment { bytes: MAGIC.len() as u64, owners: BTreeSet::new() });
        }
        let log = Self { folder: folder.to_path_buf(), file, number, segments, segment_bytes, broken: false };
        Ok((log, recovered))
    }

    /// Appends frames; all of them are on disk when this returns, or none counts.
    pub fn append(&mut self, frames: &[Frame<'_>]) -> io::Result<()> {
        if self.broken {
            self.roll()?;
        }
        let mut bytes = Vec::with_capacity(frames.iter().map(|frame| frame.body.len() + 256).sum());
        for frame in frames {
            write_frame(&mut bytes, frame)?;
        }
        let segment = self.segments.entry(self.number).or_default();
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // What was half written must not be taken for whole later: it was not acknowledged, and comes again.
            let length = segment.bytes;
            let undone = self.file.set_len(length).and_then(|()| self.file.seek(SeekFrom::Start(length)).map(drop));
            self.broken = undone.is_err();
            return Err(error);
        }
        segment.bytes += bytes.len() as u64;
        segment.owners.extend(frames.iter().map(|frame| frame.head.owner.clone()));
        Ok(())
    }

    /// The open segment has its size.
    pub fn is_full(&self) -> bool {
        self.segments.get(&self.number).is_some_and(|segment| segment.bytes >= self.segment_bytes)
    }

    /// Seals the open segment and begins the next; returns its number.
    pub fn roll(&mut self) -> io::Result<u64> {
        let next = self.number + 1;
        self.file = create_segment(&self.folder, next)?;
        self.number = next;
        self.broken = false;
        self.segments.insert(next, Segment { bytes: MAGIC.len() as u64, owners: BTreeSet::new() });
        Ok(next)
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum()
    }

    /// Removes sealed segments below `before` until at most `keep` bytes are left: first the oldest of which `is_needed`
    /// says of no owner that it is, then the oldest. Returns number and whether something in it was needed.
    pub fn prune(&mut self, keep: u64, before: u64, is_needed: impl Fn(&str) -> bool) -> io::Result<Vec<(u64, bool)>> {
        let mut removed = Vec::new();
        while self.bytes() > keep {
            let mut sealed = self.segments.range(..before.min(self.number));
            let needed = |segment: &Segment| segment.owners.iter().any(|owner| is_needed(owner));
            let ended = sealed.clone().find(|(_, segment)| !needed(segment)).map(|(number, _)| (*number, false));
            let Some((number, was_needed)) = ended.or_else(|| sealed.next().map(|(number, _)| (*number, true))) else {
                break;
            };
            fs::remove_file(segment_path(&self.folder, number))?;
            self.segments.remove(&number);
            removed.push((number, was_needed));
        }
        Ok(removed)
    }
}

fn write_frame(out: &mut Vec<u8>, frame: &Frame<'_>) -> io::Result<()> {
    let head = serde_json::to_vec(&frame.head)?;
    let too_long = |_| io::Error::other("a frame is too long");
    let head_len = u32::try_from(head.len()).map_err(too_long)?;
    let body_len = u32::try_from(frame.body.len()).map_err(too_long)?;
    let mut sum = crc32fast::Hasher::new();
    sum.update(&head_len.to_le_bytes());
    sum.update(&body_len.to_le_bytes());
    sum.update(&head);
    sum.update(frame.body);
    for number in [head_len, body_len, sum.finalize()] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&head);
    out.extend_from_slice(frame.body);
    Ok(())
}

/// Reads whole frames; returns the length up to which the file is whole.
fn read_segment(path: &Path, each: &mut dyn FnMut(FrameHead, Vec<u8>)) -> io::Result<u64> {
    let mut file = BufReader::with_capacity(256 << 10, File::open(path)?);
    let mut magic = [0; MAGIC.len()];
    if !read_whole(&mut file, &mut magic)? || magic != *MAGIC {
        return Ok(0);
    }
    let mut whole = MAGIC.len() as u64;
    while let Some(lengths) = Lengths::read(&mut file)? {
        let mut head = vec![0; lengths.head as usize];
        let mut body = vec![0; lengths.body as usize];
        if !read_whole(&mut file, &mut head)? || !read_whole(&mut file, &mut body)? || !lengths.are_of(&head, &body) {
            break;
        }
        let Ok(head) = serde_json::from_slice(&head) else { break };
        each(head, body);
        whole += (FRAME_HEAD as u64) + u64::from(lengths.head) + u64::from(lengths.body);
    }
    Ok(whole)
}

/// Gives `each` the frames that `wanted` accepts, in order, until it says that it is enough. For looking back while the
/// writer goes on: nothing is changed, a segment ends here where it is not whole yet, and one that is removed meanwhile
/// is passed over. Segments that were finished before `since`, by the clock of this machine, are not opened.
pub fn look_back(
    folder: &Path,
    since: SystemTime,
    wanted: &dyn Fn(&FrameHead) -> bool,
    each: &mut dyn FnMut(FrameHead, Vec<u8>) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut numbers = numbers(folder, "seg")?;
    numbers.sort_unstable();
    for number in numbers {
        let path = segment_path(folder, number);
        let is_earlier = fs::metadata(&path).and_then(|data| data.modified()).is_ok_and(|written| written < since);
        if is_earlier {
            continue;
        }
        match File::open(&path) {
            Ok(file) => {
                if look_into(BufReader::with_capacity(256 << 10, file), wanted, each)?.is_break() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn look_into(
    mut file: BufReader<File>,
    wanted: &dyn Fn(&FrameHead) -> bool,
    each: &mut dyn FnMut(FrameHead, Vec<u8>) -> ControlFlow<()>,
) -> io::Result<ControlFlow<()>> {
    let mut magic = [0; MAGIC.len()];
    if !read_whole(&mut file, &mut magic)? || magic != *MAGIC {
        return Ok(ControlFlow::Continue(()));
    }
    let mut head = Vec::new();
    while let Some(lengths) = Lengths::read(&mut file)? {
        head.resize(lengths.head as usize, 0);
        if !read_whole(&mut file, &mut head)? {
            break;
        }
        let Ok(found) = serde_json::from_slice::<FrameHead>(&head) else { break };
        if !wanted(&found) {
            file.seek_relative(i64::from(lengths.body))?;
            continue;
        }
        let mut body = vec![0; lengths.body as usize];
        if !read_whole(&mut file, &mut body)? || !lengths.are_of(&head, &body) {
            break;
        }
        if each(found, body).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// What stands before a frame.
struct Lengths {
    bytes: [u8; FRAME_HEAD],
    head: u32,
    body: u32,
}

impl Lengths {
    /// `None` where the file ends, or what stands there cannot be one.
    fn read(file: &mut impl Read) -> io::Result<Option<Self>> {
        let mut bytes = [0; FRAME_HEAD];
        if !read_whole(file, &mut bytes)? {
            return Ok(None);
        }
        let lengths = Self { head: number(&bytes, 0), body: number(&bytes, 4), bytes };
        Ok(Some(lengths).filter(|lengths| lengths.head <= MAX_FRAME && lengths.body <= MAX_FRAME))
    }

    fn are_of(&self, head: &[u8], body: &[u8]) -> bool {
        let mut found = crc32fast::Hasher::new();
        found.update(self.bytes.get(..8).unwrap_or_default());
        found.update(head);
        found.update(body);
        found.finalize() == number(&self.bytes, 8)
    }
}

fn number(bytes: &[u8; FRAME_HEAD], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(bytes.get(at..at + 4).unwrap_or(&[0; 4]));
    u32::from_le_bytes(four)
}

/// Fills `into`; `false` where the file ends before.
fn read_whole(file: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(into) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn create_segment(folder: &Path, number: u64) -> io::Result<File> {
    let path = segment_path(folder, number);
    let mut file = File::create(&path)?;
    file.write_all(MAGIC)?;
    file.sync_all()?;
    sync_folder(folder)?;
    Ok(file)
}

fn append_to(path: &Path) -> io::Result<File> {
    let mut file = File::options().write(true).open(path)?;
    file.seek(SeekFrom::End(0))?;
    Ok(file)
}

fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:012}.seg"))
}

/// Numbers of the files in `folder` that end in `extension`.
pub fn numbers(folder: &Path, extension: &str) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension)
            && let Some(number) = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok())
        {
            found.push(number);
        }
    }
    Ok(found)
}

/// A new name is only safe on disk once its folder is.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(source: &str) -> FrameHead {
        FrameHead { source: source.into(), received: 7, gzip: false, known: None, owner: source.into() }
    }

    fn open(folder: &Path, from: u64) -> (Log, Recovered, Vec<(String, Vec<u8>)>) {
        let mut read = Vec::new();
        let (log, recovered) = Log::open(folder, 200, from, &mut |head, body| read.push((head.source, body))).unwrap();
        (log, recovered, read)
    }

    fn put(log: &mut Log, source: &str, body: &[u8]) {
        log.append(&[Frame { head: head(source), body }]).unwrap();
    }

    #[test]
    fn whole_frames_come_back_and_a_torn_tail_goes() {
        let folder = tempfile::tempdir().unwrap();
        let (mut log, _, _) = open(folder.path(), 0);
        put(&mut log, "a", b"one");
        put(&mut log, "b", b"two");
        drop(log);
        let path = segment_path(folder.path(), 0);
        let whole = fs::read(&path).unwrap();
        // Cut anywhere inside the second frame, and with a byte of it turned.
        let (mut log, _, _) = open(&folder.path().join("other"), 0);
        put(&mut log, "a", b"one");
        let first = fs::metadata(segment_path(&folder.path().join("other"), 0)).unwrap().len();
        for cut in usize::try_from(first).unwrap()..whole.len() {
            for damage in [whole[..cut].to_vec(), {
                let mut turned = whole.clone();
                turned[cut] ^= 1;
                turned
            }] {
                fs::write(&path, &damage).unwrap();
                let (mut log, recovered, read) = open(folder.path(), 0);
                assert_eq!(read, [("a".to_owned(), b"one".to_vec())]);
                assert_eq!(recovered.cut, damage.len() as u64 - first);
                put(&mut log, "c", b"three");
                drop(log);
                assert_eq!(open(folder.path(), 0).2.len(), 2);
            }
        }
    }

    #[test]
    fn a_start_that_was_cut_short_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(segment_path(folder.path(), 3), b"RSL").unwrap();
        let (mut log, _, read) = open(folder.path(), 0);
        assert!(read.is_empty());
        put(&mut log, "a", b"one");
        drop(log);
        assert_eq!(open(folder.path(), 0).2.len(), 1);
    }

    #[test]
    fn looking_back_finds_what_is_wanted_and_disturbs_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (mut log, _, _) = open(folder.path(), 0);
        for number in 0..6u8 {
            put(&mut log, if number % 2 == 0 { "a" } else { "b" }, &[number; 60]);
            if log.is_full() {
                log.roll().unwrap();
            }
        }
        let path = segment_path(folder.path(), log.number);
        // The writer is in the middle of a frame.
        File::options().append(true).open(&path).unwrap().write_all(&[9, 0, 0]).unwrap();
        let seen = |since, most: usize| {
            let mut found = Vec::new();
            look_back(folder.path(), since, &|head| head.source == "a", &mut |_, body| {
                found.push(body[0]);
                if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
            .unwrap();
            found
        };
        assert_eq!(seen(SystemTime::UNIX_EPOCH, 9), [0, 2, 4]);
        assert_eq!(seen(SystemTime::UNIX_EPOCH, 2), [0, 2]);
        assert!(seen(SystemTime::now() + std::time::Duration::from_mins(1), 9).is_empty());
    }

    #[test]
    fn segments_of_what_has_ended_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let (mut log, _, _) = open(folder.path(), 0);
        for source in ["old", "ended", "old", "new"] {
            put(&mut log, source, &[0; 300]);
            assert!(log.is_full());
            log.roll().unwrap();
        }
        let one = log.bytes() / 4;
        let needed = |owner: &str| owner == "old";
        assert_eq!(log.prune(3 * one + 32, 4, needed).unwrap(), [(1, false)]);
        assert_eq!(log.prune(2 * one + 32, 3, needed).unwrap(), [(0, true)]);
        assert!(log.prune(0, 0, needed).unwrap().is_empty(), "what a start still needs stays");
        drop(log);
        let (_, recovered, read) = open(folder.path(), 3);
        assert_eq!((read.len(), recovered.frames), (1, 1));
    }
}
