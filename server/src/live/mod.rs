//! Live data: what agents and probes send is kept, becomes state, is shown, and becomes runs.
//!
//! Where to look first: [`batch`] for what is accepted, [`writer`] for the way to the disk, [`state`] for what lines
//! mean, [`view`] and [`hub`] for what browsers see, [`runs`] for how a job becomes a run, [`shared`] for what several
//! servers have in common. Knows no route.

pub use hub::{Notice, ended_event};
pub use runs::{Follower, follow};
pub use turned_away::Why;
pub use webhook::Webhook;

pub mod batch;
mod bounds;
mod counters;
mod course;
mod hub;
mod keep;
mod log;
mod moments;
mod plausible;
mod probe_lines;
mod record;
mod removed;
mod runs;
mod shared;
mod sources;
pub mod state;
mod tellings;
#[cfg(test)]
mod testing;
mod turned_away;
mod view;
mod webhook;
mod window;
mod writer;

use crate::store::{LivePlace, StoreError, now};
use batch::{Batch, BatchError, Lines, Sender};
use bytes::Bytes;
use counters::{Counters, Standing};
use flate2::{Compression, write::GzEncoder};
use hub::Hub;
use rankscope_model::{LiveBatch, LiveLine, LiveRunRef, NodeStatus, RunStanding};
use removed::Removed;
use shared::Shared;
use state::State;
use std::{
    collections::{BTreeSet, HashMap},
    io::{self, Write},
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    sync::{Semaphore, mpsc, oneshot, watch},
    task::JoinHandle,
    time::timeout,
};
use turned_away::{Tries, TurnedAway};
use writer::{Answer, Job, Writer};

/// Batches that may wait for the disk.
const QUEUE: usize = 4096;
/// KiB of batches, unpacked, that may be on their way at once.
const BUDGET_KIB: usize = 1 << 20;
/// Batches that are unpacked at once.
const UNPACKED_AT_ONCE: usize = 4;
/// A batch whose turn does not come within this is sent back.
const TURN_WITHIN: Duration = Duration::from_secs(5);

/// Batches of this machine's own GPUs that may wait while the server is busy or its disk stalls, one a second: two minutes
/// in some megabytes. An agent has its spool for that.
const OWN_WAITING: usize = 120;
/// Lines of them that are kept as one batch: what has waited is caught up with at once.
const OWN_LINES: usize = 1000;
/// Pause before a reading of this machine's own GPUs is tried again.
const OWN_PAUSE: Duration = Duration::from_millis(500);

/// What may be set.
#[derive(Debug, Clone)]
pub struct LiveOptions {
    /// Bytes of the log on disk.
    pub keep_bytes: u64,
    /// What senders must show; without one only this machine may send.
    pub token: Option<String>,
}

impl Default for LiveOptions {
    fn default() -> Self {
        Self { keep_bytes: 2 << 30, token: None }
    }
}

/// Why a batch was not kept.
#[derive(Debug)]
pub enum Refused {
    /// It is not what it should be, or too large.
    Batch(BatchError),
    /// Lines after this one are missing, and nothing says why.
    Gap(u64),
    /// Too much is on its way; the same batch later is welcome.
    Busy,
    /// It could not be written.
    Failed {
        /// The disk is full.
        is_full: bool,
    },
}

/// Why a node was not removed.
#[derive(Debug)]
pub enum NotRemoved {
    /// It is not known.
    Unknown,
    /// It still speaks: it would be back with its next batch.
    Speaks,
    /// That it is removed could not be written.
    Failed(StoreError),
}

/// Where batches are kept.
#[derive(Debug)]
enum Kept {
    /// In the data folder, by a server that is alone.
    InFolder(Arc<OwnFolder>),
    /// In the database, by all replicas.
    Shared(Arc<Shared>),
}

/// A folder and the thread that writes into it.
#[derive(Debug)]
struct OwnFolder {
    path: PathBuf,
    removed: Mutex<Removed>,
    writer: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// Live data of one server.
#[derive(Debug)]
pub struct Live {
    options: LiveOptions,
    state: Arc<Mutex<State>>,
    /// The run of each job, by the job's key.
    runs: Mutex<HashMap<String, LiveRunRef>>,
    silent: Mutex<BTreeSet<String>>,
    turned_away: Mutex<TurnedAway>,
    hub: Hub,
    counters: Arc<Counters>,
    kept: Kept,
    changed: watch::Receiver<u64>,
    queue: Mutex<Option<mpsc::Sender<Job>>>,
    budget: Semaphore,
    unpacking: Semaphore,
}

impl Live {
    /// Opens (and creates) the folder and brings the state to what was kept. Blocks.
    pub fn open(folder: &Path, options: LiveOptions) -> io::Result<Arc<Self>> {
        let (changed, changes) = watch::channel(0);
        std::fs::create_dir_all(folder)?;
        let removed = Removed::load(folder)?;
        let writer = Writer::open(folder, options.keep_bytes, changed, || now().0, &removed)?;
        let (state, counters) = (writer.state(), writer.counters());
        let (queue, jobs) = mpsc::channel(QUEUE);
        let writer = std::thread::Builder::new().name("live-log".into()).spawn(move || writer.run(jobs))?;
        let folder =
            OwnFolder { path: folder.to_path_buf(), removed: Mutex::new(removed), writer: Mutex::new(Some(writer)) };
        Ok(Self::over(options, state, counters, Kept::InFolder(Arc::new(folder)), changes, queue))
    }

    /// Live data that this server has in common with others.
    pub async fn open_shared(place: LivePlace, options: LiveOptions) -> Result<Arc<Self>, StoreError> {
        let (changed, changes) = watch::channel(0);
        let (queue, jobs) = mpsc::channel(QUEUE);
        let shared = Shared::open(place, options.keep_bytes, changed, jobs).await?;
        let (state, counters) = (shared.state(), shared.counters());
        Ok(Self::over(options, state, counters, Kept::Shared(shared), changes, queue))
    }

    fn over(
        options: LiveOptions,
        state: Arc<Mutex<State>>,
        counters: Arc<Counters>,
        kept: Kept,
        changed: watch::Receiver<u64>,
        queue: mpsc::Sender<Job>,
    ) -> Arc<Self> {
        Arc::new(Self {
            options,
            state,
            runs: Mutex::default(),
            silent: Mutex::default(),
            turned_away: Mutex::default(),
            hub: Hub::new(),
            counters,
            kept,
            changed,
            queue: Mutex::new(Some(queue)),
            budget: Semaphore::new(BUDGET_KIB),
            unpacking: Semaphore::new(UNPACKED_AT_ONCE),
        })
    }

    /// What it has in common with other servers, if it has.
    fn shared(&self) -> Option<&Arc<Shared>> {
        match &self.kept {
            Kept::InFolder(_) => None,
            Kept::Shared(shared) => Some(shared),
        }
    }

    /// Whether what others send is seen here; a server that is alone sees all there is.
    pub fn is_current(&self) -> bool {
        self.shared().is_none_or(|shared| shared.is_current())
    }

    /// What senders must show.
    pub fn token(&self) -> Option<&str> {
        self.options.token.as_deref()
    }

    /// Keeps a batch. When this returns a position, everything up to it is on disk.
    pub async fn accept(self: &Arc<Self>, body: Bytes, gzip: bool) -> Result<u64, Refused> {
        let started = Instant::now();
        let kept = self.keep(body, gzip).await;
        match &kept {
            Ok(_) => self.counters.acknowledged(started.elapsed()),
            // The writer has counted it.
            Err(Refused::Gap(_)) => {}
            Err(_) => self.counters.refused(),
        }
        kept
    }

    async fn keep(self: &Arc<Self>, body: Bytes, gzip: bool) -> Result<u64, Refused> {
        let received = now().0;
        let weight = u32::try_from(batch::weight_kib(body.len(), gzip)).unwrap_or(u32::MAX);
        let turn = timeout(TURN_WITHIN, async {
            Some((self.budget.acquire_many(weight).await.ok()?, self.unpacking.acquire().await.ok()?))
        });
        let Ok(Some((budget, unpacking))) = turn.await else { return Err(Refused::Busy) };
        let unpacked = body.clone();
        let read = move || {
            let batch = batch::read(&unpacked, gzip)?;
            bounds::check(&batch)?;
            Ok(batch)
        };
        let batch = tokio::task::spawn_blocking(read).await;
        drop(unpacking);
        let batch = batch.map_err(|_| Refused::Failed { is_full: false })?.map_err(Refused::Batch)?;
        let (answer, answered) = oneshot::channel();
        let job = Job { batch, body, gzip, received, answer };
        let queue = lock(&self.queue).clone();
        let Some(queue) = queue else { return Err(Refused::Failed { is_full: false }) };
        match queue.try_send(job) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return Err(Refused::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(Refused::Failed { is_full: false }),
        }
        let answer = answered.await;
        drop(budget);
        match answer {
            Ok(Answer::Kept(last)) => Ok(last),
            Ok(Answer::Gap(known)) => Err(Refused::Gap(known)),
            Ok(Answer::Elsewhere(node)) => {
                let why = format!(
                    "The field node names another node than before: this source is of {node:?}. A source is one run of one \
                     agent and has one node; an agent that is given another name begins a source of its own."
                );
                Err(Refused::Batch(BatchError::Invalid(why)))
            }
            Ok(Answer::Failed { is_full }) => Err(Refused::Failed { is_full }),
            Err(_) => Err(Refused::Failed { is_full: false }),
        }
    }

    /// Takes batches of this machine's own sampler in until the sender is dropped; the task has then kept the last one.
    /// They go into the log as all others do, but wait for no turn: nothing of them has to be unpacked or judged, and they
    /// have no spool to wait in. What has waited goes together. Only if the server stands still for minutes the sampler is
    /// held up, and counts what it gives up.
    pub fn local_source(self: &Arc<Self>) -> (mpsc::Sender<(LiveBatch, Vec<LiveLine>)>, JoinHandle<()>) {
        let (sender, mut batches) = mpsc::channel::<(LiveBatch, Vec<LiveLine>)>(OWN_WAITING);
        let live = Arc::clone(self);
        let task = tokio::spawn(async move {
            let mut next = None;
            loop {
                let first = match next.take() {
                    Some(batch) => Some(batch),
                    None => batches.recv().await,
                };
                let Some((mut head, mut lines)) = first else { return };
                while lines.len() < OWN_LINES
                    && let Ok((head_after, lines_after)) = batches.try_recv()
                {
                    // A batch that tells of a loss stands at the beginning of one.
                    if head_after.first != head.last.saturating_add(1) {
                        next = Some((head_after, lines_after));
                        break;
                    }
                    head.last = head_after.last;
                    lines.extend(lines_after);
                }
                match packed(&head, &lines) {
                    Ok(body) => live.keep_own(own_batch(head, lines), body).await,
                    Err(error) => tracing::warn!(%error, "a reading of this machine's own GPUs could not be packed"),
                }
            }
        });
        (sender, task)
    }

    /// Keeps a batch of this machine, however long that takes: the next one would leave a gap without it.
    async fn keep_own(self: &Arc<Self>, batch: Batch, body: Bytes) {
        let mut failed = false;
        loop {
            let Some(queue) = lock(&self.queue).clone() else { return };
            let started = Instant::now();
            let (answer, answered) = oneshot::channel();
            let job = Job { batch: batch.clone(), body: body.clone(), gzip: true, received: now().0, answer };
            if queue.send(job).await.is_err() {
                return;
            }
            drop(queue);
            match answered.await {
                Ok(Answer::Kept(_)) => {
                    self.counters.acknowledged(started.elapsed());
                    return;
                }
                Ok(Answer::Failed { .. }) => {
                    self.counters.refused();
                    if !std::mem::replace(&mut failed, true) {
                        tracing::warn!("readings of this machine's own GPUs cannot be kept at the moment");
                    }
                    tokio::time::sleep(OWN_PAUSE).await;
                }
                Ok(refused) => {
                    tracing::warn!(?refused, "a reading of this machine's own GPUs was not kept");
                    return;
                }
                Err(_) => return,
            }
        }
    }

    /// Removes a node that is silent. Its runs stay, and it is there again as soon as its agent speaks. When this returns,
    /// it is gone over a restart too.
    pub async fn remove_node(&self, name: &str) -> Result<(), NotRemoved> {
        let at = now().0;
        {
            let state = lock(&self.state);
            let node = state.nodes().get(name).ok_or(NotRemoved::Unknown)?;
            if !node.ended && !view::is_silent(node, at) {
                return Err(NotRemoved::Speaks);
            }
        }
        match &self.kept {
            Kept::Shared(shared) => shared.remove(name, at).await.map_err(NotRemoved::Failed),
            Kept::InFolder(folder) => {
                let (folder, node) = (Arc::clone(folder), name.to_owned());
                let written = tokio::task::spawn_blocking(move || lock(&folder.removed).add(&folder.path, &node, at));
                let written = written.await.map_err(|error| NotRemoved::Failed(StoreError::Task(error.to_string())))?;
                written.map_err(|error| NotRemoved::Failed(error.into()))?;
                // What arrived meanwhile brings it back.
                lock(&self.state).remove_unless_heard_after(name, at);
                Ok(())
            }
        }
    }

    /// All nodes as they are now, and the position from which on events tell what changes.
    pub fn nodes(&self) -> (Vec<NodeStatus>, String) {
        let now = now().0;
        let runs = lock(&self.runs).clone();
        let state = lock(&self.state);
        let medians = view::medians(&state);
        let nodes = state.nodes().iter().map(|(name, node)| view::node_status(name, node, &runs, &medians, now));
        (nodes.collect(), self.hub.cursor(state.version()))
    }

    /// Takes note of a sender that was turned away, for those who wonder where a node is.
    pub fn turn_away(&self, address: IpAddr, why: Why) {
        self.counters.turned_away();
        if lock(&self.turned_away).note(address, why, now().0) {
            let why = match why {
                Why::Token => "it shows no token that this server knows",
                Why::MayNot => "it may not send live data here",
            };
            tracing::warn!(%address, "a sender was turned away: {why}");
        }
    }

    /// Senders that try and are turned away, the newest first.
    pub fn turned_away(&self) -> Vec<(IpAddr, Tries)> {
        lock(&self.turned_away).told(now().0)
    }

    /// What is counted, as Prometheus text.
    pub fn metrics(&self) -> String {
        let (now, runs) = (now().0, lock(&self.runs).len() as u64);
        let standing = {
            let state = lock(&self.state);
            let speaks = |node: &&state::Node| !node.ended && !view::is_silent(node, now);
            Standing {
                connected: state.nodes().values().filter(speaks).count() as u64,
                known: state.nodes().len() as u64,
                probes: state.probes().values().filter(|probe| !probe.ended).count() as u64,
                runs,
            }
        };
        let shared = self.shared().map(|shared| shared.metrics());
        self.counters.render(standing) + &shared.unwrap_or_default()
    }

    /// How a run stands whose job goes on, as far as is known.
    pub fn standing(&self, run: &str) -> Option<RunStanding> {
        self.hub.standing(run)
    }

    /// Ends the streams of all browsers; they come back when the server does.
    pub fn end_streams(&self) {
        self.hub.close();
    }

    /// Changes whenever the state does.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.clone()
    }

    /// Takes nothing more in, and waits until what was taken is kept.
    pub async fn close(&self) {
        drop(lock(&self.queue).take());
        match &self.kept {
            Kept::Shared(shared) => shared.close().await,
            Kept::InFolder(folder) => {
                let writer = lock(&folder.writer).take();
                if let Some(writer) = writer {
                    let _ = tokio::task::spawn_blocking(move || writer.join()).await;
                }
            }
        }
    }
}

/// The same as it is read from what an agent sends.
fn own_batch(head: LiveBatch, lines: Vec<LiveLine>) -> Batch {
    let LiveBatch { source, node, first, last, .. } = head;
    Batch { source, sender: Sender::Agent(node), first, last, lines: Lines::Agent(lines) }
}

/// A batch as an agent sends it.
fn packed(head: &LiveBatch, lines: &[LiveLine]) -> io::Result<Bytes> {
    #[derive(serde::Serialize)]
    struct Head<'a> {
        r#type: &'static str,
        #[serde(flatten)]
        batch: &'a LiveBatch,
    }
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    serde_json::to_writer(&mut gz, &Head { r#type: "batch", batch: head })?;
    gz.write_all(b"\n")?;
    for line in lines {
        serde_json::to_writer(&mut gz, line)?;
        gz.write_all(b"\n")?;
    }
    Ok(gz.finish()?.into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{LIVE_FORMAT, LiveDropped, LiveRecord, UnixMicros};
    use testing::{device, memory, node};

    #[tokio::test(flavor = "multi_thread")]
    async fn readings_of_the_own_gpus_are_kept_while_the_server_is_busy_with_those_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_path_buf();
        let live =
            tokio::task::spawn_blocking(move || Live::open(&path, LiveOptions::default())).await.unwrap().unwrap();
        // Others have all turns, and give none back.
        let turns = live.unpacking.acquire_many(u32::try_from(UNPACKED_AT_ONCE).unwrap()).await.unwrap();
        let (sender, kept) = live.local_source();
        let start = now().0;
        let batch = |first: u64, lines: Vec<LiveLine>| {
            let last = lines.last().unwrap().seq;
            let head = LiveBatch { format: LIVE_FORMAT.into(), source: "own".into(), node: "here".into(), first, last };
            (head, lines)
        };
        let line =
            |seq: u64, record| LiveLine { seq, t: UnixMicros(start + i64::try_from(seq).unwrap() * 1000), record };
        let sent = timeout(Duration::from_secs(20), async {
            sender.send(batch(0, vec![line(0, node(&[device(0)]))])).await.unwrap();
            for seq in 1..=200 {
                sender.send(batch(seq, vec![line(seq, memory(&[(0, &[seq << 20])]))])).await.unwrap();
            }
            // A loss in between is told at the beginning of a batch of its own.
            let lost = LiveDropped { first: 201, last: 203, samples: 30, by_server: true };
            let after = vec![line(203, LiveRecord::Dropped(lost)), line(204, memory(&[(0, &[7 << 20])]))];
            sender.send(batch(203, after)).await.unwrap();
            drop(sender);
            kept.await.unwrap();
        });
        sent.await.expect("they wait for nobody");
        let (nodes, _) = live.nodes();
        assert_eq!(nodes[0].devices[0].used.unwrap().0, 7 << 20);
        assert!(nodes[0].notes[0].contains("3 lines (30 samples) were lost: the server,"), "{:?}", nodes[0].notes);
        let metrics = live.metrics();
        assert!(metrics.contains("rankscope_live_lines_total 203"), "{metrics}");
        drop(turns);
        live.close().await;
    }
}
