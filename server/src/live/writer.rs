//! The thread that keeps batches: judges what is new, writes all that wait with one flush to disk, takes them into the
//! state, and answers. Also seals segments, writes down the state at each seal, and makes room.

use super::{
    batch::{self, Batch, Lines, Sender},
    counters::Counters,
    log::{self, Frame, FrameHead, Log},
    removed::Removed,
    sources::{Judged, Sources},
    state::{Origin, State},
};
use bytes::Bytes;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};
use tokio::sync::{mpsc, oneshot, watch};

/// Batches that are written together.
const GROUP: usize = 512;
/// Bytes that are written together.
const GROUP_BYTES: usize = 16 << 20;
/// A segment is sealed at this size, or at an eighth of what may be kept.
const SEGMENT_BYTES: u64 = 32 << 20;

/// A batch on its way to the disk.
pub struct Job {
    /// Understood.
    pub batch: Batch,
    /// As it was sent.
    pub body: Bytes,
    /// The body is gzip.
    pub gzip: bool,
    /// When it arrived.
    pub received: i64,
    /// Gets the answer.
    pub answer: oneshot::Sender<Answer>,
}

impl Job {
    /// With those that wait behind it: they are kept together.
    pub fn with_those_that_wait(self, jobs: &mut mpsc::Receiver<Self>) -> Vec<Self> {
        let mut bytes = self.body.len();
        let mut group = vec![self];
        while group.len() < GROUP
            && bytes < GROUP_BYTES
            && let Ok(job) = jobs.try_recv()
        {
            bytes += job.body.len();
            group.push(job);
        }
        group
    }
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Every line up to and with this one is on disk.
    Kept(u64),
    /// Lines after this one are missing, and nothing says why.
    Gap(u64),
    /// Its source has said before that it is of this node, and now names another.
    Elsewhere(String),
    /// It could not be written.
    Failed {
        /// The disk is full.
        is_full: bool,
    },
}

/// State and positions at the beginning of a segment.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Checkpoint {
    state: State,
    sources: Sources,
}

/// Writes batches of one folder.
pub struct Writer {
    folder: PathBuf,
    log: Log,
    sources: Sources,
    state: Arc<Mutex<State>>,
    counters: Arc<Counters>,
    changed: watch::Sender<u64>,
    keep_bytes: u64,
    /// The newest checkpoint on disk: what a start needs begins there.
    checkpoint: Arc<Mutex<u64>>,
    checkpointing: Option<JoinHandle<()>>,
    clock: fn() -> i64,
}

impl Writer {
    /// Opens the folder and brings the state to what was kept.
    pub fn open(
        folder: &Path,
        keep_bytes: u64,
        changed: watch::Sender<u64>,
        clock: fn() -> i64,
        removed: &Removed,
    ) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let (from, Checkpoint { mut state, mut sources }) = newest_checkpoint(folder)?;
        state.forget_removed(removed);
        let segment_bytes = segment_bytes(keep_bytes);
        let mut unread = 0u64;
        let (log, recovered) =
            Log::open(folder, segment_bytes, from, &mut |head, body| match batch::read(&body, head.gzip) {
                Ok(mut batch) => {
                    sources.take(&batch, head.received);
                    if let Some(known) = head.known {
                        batch.keep_after(known);
                    }
                    if !matches!(&batch.sender, Sender::Agent(node) if removed.covers(node, head.received)) {
                        take_in(&mut state, &batch, head.received);
                    }
                }
                Err(_) => unread += 1,
            })?;
        if recovered.cut > 0 {
            tracing::info!(bytes = recovered.cut, "the live log ended in what was never acknowledged; it was cut off");
        }
        for segment in &recovered.damaged {
            tracing::warn!(segment, "a sealed segment of the live log is damaged; only its beginning was read");
        }
        if unread > 0 {
            tracing::warn!(batches = unread, "batches of the live log are not understood by this version");
        }
        changed.send_replace(state.version());
        Ok(Self {
            folder: folder.to_path_buf(),
            log,
            sources,
            state: Arc::new(Mutex::new(state)),
            counters: Arc::default(),
            changed,
            keep_bytes,
            checkpoint: Arc::new(Mutex::new(from)),
            checkpointing: None,
            clock,
        })
    }

    /// What is known, shared with whoever looks at it.
    pub fn state(&self) -> Arc<Mutex<State>> {
        Arc::clone(&self.state)
    }

    /// What is counted, shared with whoever tells it.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Works until the last sender is gone.
    pub fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(job) = jobs.blocking_recv() {
            self.keep(job.with_those_that_wait(&mut jobs));
            if self.log.is_full() {
                self.seal();
            }
        }
        if let Some(running) = self.checkpointing.take() {
            let _ = running.join();
        }
    }

    fn keep(&mut self, group: Vec<Job>) {
        let mut befores = Vec::new();
        let mut new = Vec::new();
        for job in group {
            match self.sources.judge(&job.batch) {
                Judged::Old { known } => {
                    self.counters.duplicate(job.batch.lines.len());
                    let _ = job.answer.send(Answer::Kept(known));
                }
                Judged::Gap { known } => {
                    self.counters.gap();
                    let _ = job.answer.send(Answer::Gap(known));
                }
                Judged::Elsewhere { node } => {
                    let _ = job.answer.send(Answer::Elsewhere(node));
                }
                Judged::New { known } => {
                    befores.push(self.sources.take(&job.batch, job.received));
                    new.push((job, known));
                }
            }
        }
        if new.is_empty() {
            return;
        }
        let frames: Vec<Frame<'_>> = new.iter().map(|(job, known)| frame(job, *known)).collect();
        if let Err(error) = self.log.append(&frames) {
            tracing::error!(%error, batches = new.len(), "live data could not be written; nothing of it was acknowledged");
            befores.into_iter().rev().for_each(|before| self.sources.restore(before));
            let is_full = crate::store::is_full(&error);
            for (job, _) in new {
                let _ = job.answer.send(Answer::Failed { is_full });
            }
            return;
        }
        let version = {
            let mut state = lock(&self.state);
            for (job, known) in &mut new {
                let before = job.batch.lines.len();
                if let Some(known) = known {
                    job.batch.keep_after(*known);
                }
                self.counters.kept(&job.batch, before.saturating_sub(job.batch.lines.len()));
                self.counters.impossible(take_in(&mut state, &job.batch, job.received));
            }
            state.version()
        };
        self.changed.send_replace(version);
        for (job, _) in new {
            let _ = job.answer.send(Answer::Kept(job.batch.last));
        }
    }

    /// Begins the next segment, writes down the state at its beginning, and makes room.
    fn seal(&mut self) {
        let now = (self.clock)();
        let number = match self.log.roll() {
            Ok(number) => number,
            Err(error) => {
                tracing::error!(%error, "no new segment of the live log could be begun; the old one goes on");
                return;
            }
        };
        self.sources.forget(now);
        lock(&self.state).forget(now);
        // One at a time. Where the last is still being written, this seal goes without; a start reads a segment more.
        if self.checkpointing.as_ref().is_none_or(JoinHandle::is_finished) {
            let checkpoint = Checkpoint { state: lock(&self.state).clone(), sources: self.sources.clone() };
            let (folder, newest) = (self.folder.clone(), Arc::clone(&self.checkpoint));
            self.checkpointing = Some(thread::spawn(move || match write_checkpoint(&folder, number, &checkpoint) {
                Ok(()) => *newest.lock().unwrap_or_else(PoisonError::into_inner) = number,
                Err(error) => tracing::warn!(%error, "the live state could not be written down; a start takes longer"),
            }));
        }
        let before = *self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner);
        let state = lock(&self.state);
        match self.log.prune(self.keep_bytes, before, |owner| is_needed(&state, owner)) {
            Ok(removed) => {
                for (segment, was_needed) in removed {
                    if was_needed {
                        tracing::warn!(segment, "made room in the live log: samples of jobs that still run went too");
                    } else {
                        tracing::info!(segment, "made room in the live log");
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "no room could be made in the live log"),
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whose a batch is, for deciding what may go.
pub fn owner_of(batch: &Batch) -> &str {
    match &batch.sender {
        Sender::Agent(node) => node,
        Sender::Probe(_) => &batch.source,
    }
}

/// Whether the samples of this owner are still needed: those of jobs that still run.
pub fn is_needed(state: &State, owner: &str) -> bool {
    state.nodes().get(owner).is_some_and(|node| node.jobs.values().any(|job| job.gone_since.is_none()))
        || state.probes().get(owner).is_some_and(|probe| !probe.ended)
}

/// A segment is sealed at this size, where so much is kept.
pub fn segment_bytes(keep_bytes: u64) -> u64 {
    SEGMENT_BYTES.min(keep_bytes / 8).max(64 << 10)
}

fn frame(job: &Job, known: Option<u64>) -> Frame<'_> {
    let owner = owner_of(&job.batch).to_owned();
    let head = FrameHead { source: job.batch.source.clone(), received: job.received, gzip: job.gzip, known, owner };
    Frame { head, body: &job.body }
}

/// Gives the number of readings that were refused because they cannot be.
pub fn take_in(state: &mut State, batch: &Batch, received: i64) -> u64 {
    match (&batch.sender, &batch.lines) {
        (Sender::Agent(node), Lines::Agent(lines)) => {
            return state.apply(Origin { source: &batch.source, node, received }, lines);
        }
        (Sender::Probe(rank), Lines::Probe(lines)) => {
            let origin = Origin { source: &batch.source, node: "", received };
            state.apply_probe(origin, *rank, lines.iter().map(|(_, text)| text.as_str()));
        }
        _ => {}
    }
    0
}

fn checkpoint_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:012}.state"))
}

/// The newest state that can be read, and the segment at whose beginning it holds.
fn newest_checkpoint(folder: &Path) -> io::Result<(u64, Checkpoint)> {
    let mut found = log::numbers(folder, "state")?;
    found.sort_unstable();
    for number in found.into_iter().rev() {
        let path = checkpoint_path(folder, number);
        let read = GzDecoder::new(BufReader::new(File::open(&path)?));
        match serde_json::from_reader(BufReader::with_capacity(256 << 10, read)) {
            Ok(checkpoint) => return Ok((number, checkpoint)),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "a written-down live state cannot be read; an older one is taken");
            }
        }
    }
    Ok((0, Checkpoint::default()))
}

/// Writes a checkpoint; it takes its name only when it is whole and on disk. Older ones but for one go.
fn write_checkpoint(folder: &Path, number: u64, checkpoint: &Checkpoint) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix("new-").suffix(".part").tempfile_in(folder)?;
    let mut gz = GzEncoder::new(BufWriter::new(file.as_file_mut()), Compression::fast());
    serde_json::to_writer(BufWriter::with_capacity(256 << 10, &mut gz), checkpoint)?;
    gz.finish()?.flush()?;
    file.as_file().sync_all()?;
    file.persist(checkpoint_path(folder, number)).map_err(|error| error.error)?;
    log::sync_folder(folder)?;
    let mut older: Vec<u64> = log::numbers(folder, "state")?.into_iter().filter(|found| *found < number).collect();
    older.sort_unstable();
    older.pop();
    for number in older {
        fs::remove_file(checkpoint_path(folder, number))?;
    }
    Ok(())
}
