//! What was sampled and not yet acknowledged, on disk. Bounded: when it is full, the oldest lines go, and are counted.
//!
//! Each run of the agent is a source with a folder of its own, because a source must never use a position twice, not
//! even when a power failure has cut off the end of its file. What earlier runs left behind is sent first.
//!
//! Durability: a line is handed to the kernel by one write each second, so the death of the process loses nothing of
//! what was written. Lines are forced to the disk only while the server is away (every ten seconds and at the end of a
//! segment): until then they are on the server's disk within a second.

use super::segment::{Lines, Segment};
use rankscope_model::{LIVE_FORMAT, LiveBatch, LiveDropped, LiveLine, LiveRecord, UnixMicros};
use rankscope_telemetry::sampler::Timed;
use serde::{Deserialize, Serialize};
use std::{
    collections::VecDeque,
    fs::{self, File, TryLockError},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// Sizes of segments: a thirty-second of the spool, within these bounds.
const SEGMENT_BYTES: (u64, u64) = (16 << 10, 4 << 20);

/// A spool in a folder.
#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    node: String,
    most_bytes: u64,
    segment_bytes: u64,
    /// Oldest first; the last one is this run's.
    sources: VecDeque<Source>,
    /// The segment that is written to: the last of the last source.
    open: Option<File>,
    next: u64,
    /// Lost before anything could be written.
    unwritten: Option<LiveDropped>,
    /// Held while this process lives.
    _lock: File,
}

/// One run of an agent.
#[derive(Debug)]
struct Source {
    name: String,
    folder: PathBuf,
    segments: VecDeque<Segment>,
    /// The first position that the server does not have.
    position: u64,
    /// Positions from there on that were given up.
    gap: Option<LiveDropped>,
    /// Where the last batch begins and ends.
    hints: [Option<Hint>; 2],
    acknowledged: Option<File>,
}

/// Where a line begins.
#[derive(Debug, Clone, Copy)]
struct Hint {
    /// The first position of its segment.
    segment: u64,
    position: u64,
    offset: u64,
}

/// Lines to be sent, and what they say of themselves.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    /// The head.
    pub head: LiveBatch,
    /// The lines.
    pub text: Vec<u8>,
    /// How many there are.
    pub count: usize,
}

/// Why a spool cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Another agent has it.
    #[error("{} is in use by another agent", .0.display())]
    InUse(PathBuf),
    /// The disk says no.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What the file of that name keeps of a source's gap.
#[derive(Serialize, Deserialize)]
struct KeptGap {
    first: u64,
    last: u64,
    samples: u64,
}

const ACKNOWLEDGED: &str = "acknowledged";
const GAP: &str = "dropped";

impl Spool {
    /// Opens (and creates) a spool of at most `most_bytes`, and begins a source of that name.
    pub fn open(folder: &Path, node: &str, source: &str, most_bytes: u64) -> Result<Self, SpoolError> {
        fs::create_dir_all(folder)?;
        let lock = File::options().create(true).truncate(false).write(true).open(folder.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SpoolError::InUse(folder.to_path_buf())),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let mut sources = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                sources.extend(Source::left_behind(entry.path())?);
            }
        }
        // The names begin with the time at which they were given.
        sources.sort_by(|one, other| one.name.cmp(&other.name));
        let mut spool = Self {
            folder: folder.to_path_buf(),
            node: node.to_owned(),
            most_bytes,
            segment_bytes: (most_bytes / 32).clamp(SEGMENT_BYTES.0, SEGMENT_BYTES.1),
            sources: sources.into(),
            open: None,
            next: 0,
            unwritten: None,
            _lock: lock,
        };
        let own = spool.folder.join(source);
        fs::create_dir(&own)?;
        spool.sources.push_back(Source::new(own));
        spool.make_room();
        Ok(spool)
    }

    /// Numbers lines and writes them down. `lost` lines with so many figures of memory were lost before them. An error
    /// says that the lines are lost as well; they are counted, and the next call tries again.
    pub fn append(&mut self, lost: (u64, u64), lines: Vec<Timed>) -> io::Result<()> {
        if lost.0 > 0 {
            self.lose(lost.0, lost.1);
        }
        if lines.is_empty() {
            return Ok(());
        }
        let t = lines.first().map_or(UnixMicros(0), |line| line.t);
        let gap = self.unwritten;
        let begin = gap.map_or(self.next, |gap| gap.first);
        let mut text = Vec::with_capacity(8192);
        let mut last = self.next;
        if let Some(gap) = gap {
            add(&mut text, &LiveLine { seq: gap.last, t, record: LiveRecord::Dropped(gap) })?;
        }
        let (count, mut figures) = (lines.len() as u64, 0);
        for (seq, line) in (self.next..).zip(lines) {
            figures += rankscope_telemetry::sampler::figures(&line.record);
            add(&mut text, &line.numbered(seq))?;
            last = seq;
        }
        if let Err(error) = self.write(begin, last, &text) {
            self.lose(count, figures);
            return Err(error);
        }
        self.unwritten = None;
        self.next = last + 1;
        self.make_room();
        Ok(())
    }

    /// Positions that nothing stands for yet are lost.
    fn lose(&mut self, lines: u64, samples: u64) {
        let (first, last) = (self.next, self.next + lines - 1);
        self.next += lines;
        self.unwritten = Some(match self.unwritten {
            Some(gap) => dropped(gap.first, last, gap.samples + samples),
            None => dropped(first, last, samples),
        });
    }

    fn write(&mut self, begin: u64, last: u64, text: &[u8]) -> io::Result<()> {
        let Some(source) = self.sources.back_mut() else { return Err(io::Error::other("no source")) };
        let is_full = source.segments.back().is_some_and(|segment| segment.bytes >= self.segment_bytes);
        if is_full || self.open.is_none() {
            let path = Segment::path(&source.folder, begin);
            self.open = Some(File::options().create(true).truncate(true).read(true).write(true).open(&path)?);
            source.segments.push_back(Segment { path, first: begin, last: begin, bytes: 0 });
        }
        let (Some(file), Some(segment)) = (&mut self.open, source.segments.back_mut()) else {
            return Err(io::Error::other("no segment"));
        };
        if let Err(error) = write_at(file, segment.bytes, text) {
            let _ = file.set_len(segment.bytes);
            if segment.bytes == 0 {
                // Its name says where it begins, which will be elsewhere.
                let _ = fs::remove_file(&segment.path);
                source.segments.pop_back();
                self.open = None;
            }
            return Err(error);
        }
        segment.bytes += text.len() as u64;
        segment.last = last;
        Ok(())
    }

    /// Gives up the oldest lines until the rest fits.
    fn make_room(&mut self) {
        while self.bytes() > self.most_bytes {
            let newest = self.sources.len() - 1;
            let Some((index, source)) =
                self.sources.iter_mut().enumerate().find(|(_, source)| !source.segments.is_empty())
            else {
                return;
            };
            if index == newest && source.segments.len() == 1 {
                // What is written to goes as a whole, and a new one is begun with the next lines.
                self.open = None;
            }
            source.give_up_oldest();
            if index != newest && source.segments.is_empty() {
                // Nothing of that run is left; it has no lines by which to say so.
                if let Some(source) = self.sources.remove(index) {
                    tracing::warn!(
                        source = source.name,
                        "the spool is full: what was left of an earlier run was given up"
                    );
                    source.remove();
                }
            }
        }
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.sources.iter().flat_map(|source| &source.segments).map(|segment| segment.bytes).sum()
    }

    /// The oldest lines that the server does not have, about `room` bytes of them.
    pub fn next_batch(&mut self, room: u64, now: UnixMicros) -> io::Result<Option<Batch>> {
        let node = self.node.clone();
        for source in &mut self.sources {
            if let Some(Lines { text, first, last, count }) = source.next_lines(room, now)? {
                let head = LiveBatch { format: LIVE_FORMAT.to_owned(), source: source.name.clone(), node, first, last };
                return Ok(Some(Batch { head, text, count }));
            }
        }
        Ok(None)
    }

    /// The server has everything of `source` up to and with `acknowledged`. If that is less than it had said before, what
    /// is still there is sent again.
    pub fn acknowledge(&mut self, source: &str, acknowledged: u64) {
        let newest = self.sources.len() - 1;
        let Some(index) = self.sources.iter().position(|known| known.name == source) else { return };
        let Some(known) = self.sources.get_mut(index) else { return };
        known.acknowledge(acknowledged, index == newest);
        if index != newest
            && known.segments.is_empty()
            && let Some(source) = self.sources.remove(index)
        {
            source.remove();
        }
    }

    /// Gives one line up that the server cannot take.
    pub fn skip(&mut self, source: &str, seq: u64) {
        let newest = self.sources.len() - 1;
        let Some(index) = self.sources.iter().position(|known| known.name == source) else { return };
        let Some(known) = self.sources.get_mut(index) else { return };
        known.give_up_to(seq);
        if index != newest
            && known.segments.back().is_none_or(|segment| segment.last <= seq)
            && let Some(source) = self.sources.remove(index)
        {
            // It was the last line of that run.
            source.remove();
        }
    }

    /// The file that is written to, to be forced to the disk without holding the spool.
    pub fn file(&self) -> Option<File> {
        self.open.as_ref().and_then(|file| file.try_clone().ok())
    }
}

impl Source {
    fn new(folder: PathBuf) -> Self {
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Self { name, folder, segments: VecDeque::new(), position: 0, gap: None, hints: [None; 2], acknowledged: None }
    }

    /// What an earlier run left in its folder; the folder is removed when that is nothing.
    fn left_behind(folder: PathBuf) -> io::Result<Option<Self>> {
        let mut source = Self::new(folder);
        source.segments = Segment::find(&source.folder)?.into();
        source.position = fs::read_to_string(source.folder.join(ACKNOWLEDGED))
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
            .map_or(0, |acknowledged| acknowledged.saturating_add(1));
        source.gap = fs::read(source.folder.join(GAP))
            .ok()
            .and_then(|text| serde_json::from_slice::<KeptGap>(&text).ok())
            .map(|KeptGap { first, last, samples }| dropped(first, last, samples));
        source.forget_acknowledged(false);
        if source.segments.is_empty() {
            source.remove();
            return Ok(None);
        }
        Ok(Some(source))
    }

    /// The next lines, with one for what was given up before them.
    fn next_lines(&mut self, room: u64, now: UnixMicros) -> io::Result<Option<Lines>> {
        let gap = self.gap_here();
        let from = gap.map_or(self.position, |gap| gap.last + 1);
        let Some(segment) = self.segments.iter().find(|segment| segment.last >= from) else { return Ok(None) };
        let is_before = |hint: &&Hint| hint.segment == segment.first && hint.position <= from;
        let offset = self.hints.iter().flatten().filter(is_before).map(|hint| hint.offset).max().unwrap_or(0);
        let Some((lines, begins, ends)) = segment.read(from, room, offset)? else {
            return Ok(None);
        };
        let hint = |position, offset| Some(Hint { segment: segment.first, position, offset });
        self.hints = [hint(lines.first, begins), hint(lines.last + 1, ends)];
        let Some(gap) = gap else { return Ok(Some(lines)) };
        let mut text = Vec::with_capacity(lines.text.len() + 128);
        add(&mut text, &LiveLine { seq: gap.last, t: now, record: LiveRecord::Dropped(gap) })?;
        text.extend_from_slice(&lines.text);
        Ok(Some(Lines { text, first: gap.last, last: lines.last, count: lines.count + 1 }))
    }

    /// What was given up from the position on. Files that vanished count, though nobody knows what they held.
    fn gap_here(&self) -> Option<LiveDropped> {
        let kept = self.gap.filter(|gap| gap.last >= self.position);
        let next = self.segments.iter().find(|segment| segment.last >= self.position)?.first;
        let last = kept.map_or(0, |gap| gap.last).max(next.saturating_sub(1));
        let is_gap = kept.is_some() || next > self.position;
        is_gap.then(|| dropped(self.position, last, kept.map_or(0, |gap| gap.samples)))
    }

    fn give_up_oldest(&mut self) {
        if let Some(last) = self.segments.front().map(|segment| segment.last) {
            self.give_up_to(last);
            if let Some(segment) = self.segments.pop_front() {
                let _ = fs::remove_file(&segment.path);
            }
        }
    }

    /// Gives up all lines from the position to `last` that were not given up before.
    fn give_up_to(&mut self, last: u64) {
        if last < self.position {
            return;
        }
        let before = self.gap.filter(|gap| gap.last >= self.position);
        let from = before.map_or(self.position, |gap| gap.last + 1);
        let figures: u64 = self
            .segments
            .iter()
            .take_while(|segment| segment.first <= last)
            .filter(|segment| segment.last >= from)
            .map(|segment| segment.figures(from, last))
            .sum();
        let gap = LiveDropped {
            first: self.position,
            last: before.map_or(last, |gap| gap.last.max(last)),
            samples: before.map_or(0, |gap| gap.samples) + figures,
            by_server: false,
        };
        self.gap = Some(gap);
        // A crash before this is written costs the number of figures, not the gap itself.
        let kept = KeptGap { first: gap.first, last: gap.last, samples: gap.samples };
        if let Ok(text) = serde_json::to_vec(&kept) {
            let _ = fs::write(self.folder.join(GAP), text);
        }
    }

    fn acknowledge(&mut self, acknowledged: u64, is_own: bool) {
        let last = self.segments.back().map(|segment| segment.last).or(self.gap.map(|gap| gap.last));
        let acknowledged = acknowledged.min(last.unwrap_or(acknowledged));
        self.position = acknowledged + 1;
        if self.gap.is_some_and(|gap| gap.last < self.position) {
            self.gap = None;
            let _ = fs::remove_file(self.folder.join(GAP));
        }
        if self.acknowledged.is_none() {
            let path = self.folder.join(ACKNOWLEDGED);
            self.acknowledged = File::options().create(true).truncate(false).write(true).open(path).ok();
        }
        if let Some(file) = &self.acknowledged {
            // One write of fixed length in place. If it is lost, lines are sent again, and count once.
            let _ = write_at(file, 0, format!("{acknowledged:020}\n").as_bytes());
        }
        self.forget_acknowledged(is_own);
    }

    fn forget_acknowledged(&mut self, is_own: bool) {
        // The last one of this run is still written to.
        let kept = usize::from(is_own);
        while self.segments.len() > kept {
            match self.segments.front().filter(|segment| segment.last < self.position) {
                Some(segment) => {
                    let _ = fs::remove_file(&segment.path);
                    self.segments.pop_front();
                }
                None => break,
            }
        }
    }

    fn remove(self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Positioned, so that what a failed write has left is written over.
fn write_at(mut file: &File, place: u64, text: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(place))?;
    file.write_all(text)
}

fn add(text: &mut Vec<u8>, line: &LiveLine) -> io::Result<()> {
    serde_json::to_writer(&mut *text, line)?;
    text.write_all(b"\n")
}

/// What an agent had no room for.
fn dropped(first: u64, last: u64, samples: u64) -> LiveDropped {
    LiveDropped { first, last, samples, by_server: false }
}

#[cfg(test)]
mod tests;
