//! What browsers are told. One frame is made for all of them; whoever misses one gets the nodes that changed since, as
//! they are now. So a slow browser holds back nobody, and nothing is queued for it.

use super::{Live, counters::Watcher, lock, view};
use futures_util::{Stream, stream};
use rankscope_model::{DeviceStatus, NodeStatus, RunStanding};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

/// Time between frames.
const FRAME: Duration = Duration::from_millis(400);
/// What the replica that leads has begun is known to the others by then.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// Time between signs of life, so that a lost connection shows.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Notices that are kept for browsers that come back.
const NOTICES: usize = 64;

/// A frame: what changed after `from`, up to and with `to`.
#[derive(Debug, Clone)]
struct Frame {
    from: u64,
    to: u64,
    data: Arc<str>,
}

/// Something worth a notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Position among the notices of the run.
    pub number: u64,
    /// When, microseconds since the epoch.
    pub at: i64,
    /// What, in a sentence.
    pub text: String,
    /// When it stood no longer, if it does not now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<i64>,
}

/// How a run stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTick {
    /// Counts changes.
    pub revision: u64,
    /// The newest version of the report.
    pub version: u32,
    /// When it was made.
    pub diagnosed_at: i64,
    /// The job has ended.
    pub ended: bool,
    /// Whether its nodes still speak.
    pub standing: RunStanding,
    /// The same in words.
    pub word: String,
    /// What was found while it ran, oldest first.
    pub notices: Vec<Notice>,
    /// What its report accuses at the moment, in a few words.
    #[serde(default)]
    pub found: Option<String>,
}

/// What a stream waits for.
enum Heard {
    Change,
    Nothing,
    End,
}

/// The next change, or that there was none for a while, or that the server ends.
async fn hear<T>(changes: &mut watch::Receiver<T>, closing: &mut watch::Receiver<bool>) -> Heard {
    tokio::select! {
        changed = changes.changed() => if changed.is_ok() { Heard::Change } else { Heard::End },
        () = sleep(HEARTBEAT) => Heard::Nothing,
        () = closed(closing) => Heard::End,
    }
}

async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

/// A comment, which no browser shows.
const SIGN_OF_LIFE: &str = ": still here\n\n";

impl RunTick {
    /// The tick as an event.
    fn event(&self) -> String {
        // Plain numbers and texts: writing them as JSON cannot fail.
        let data = serde_json::to_string(self).unwrap_or_default();
        format!("id: {}\nevent: run\ndata: {data}\n\n", self.revision)
    }
}

/// What a browser hears that comes when the job of a run has ended already.
pub fn ended_event(version: u32, diagnosed_at: i64) -> String {
    RunTick { version, diagnosed_at, ended: true, ..RunTick::default() }.event()
}

/// Frames and runs on their way to browsers.
#[derive(Debug)]
pub struct Hub {
    /// Tells this run of the server from others: positions of another mean nothing here.
    epoch: String,
    frames: watch::Sender<Frame>,
    closing: watch::Sender<bool>,
    runs: Mutex<HashMap<String, watch::Sender<RunTick>>>,
}

impl Hub {
    /// A hub without listeners.
    pub fn new() -> Self {
        let (frames, _) = watch::channel(Frame { from: 0, to: 0, data: Arc::from("") });
        let (closing, _) = watch::channel(false);
        let epoch = crate::store::new_id().split('-').next_back().unwrap_or_default().to_owned();
        Self { epoch, frames, closing, runs: Mutex::default() }
    }

    /// Ends all streams.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// A position as browsers know it.
    pub fn cursor(&self, version: u64) -> String {
        format!("{}-{version}", self.epoch)
    }

    /// The version of a position; 0 for one of another run of the server.
    fn version_of(&self, cursor: &str) -> u64 {
        let own = cursor.rsplit_once('-').filter(|(epoch, _)| *epoch == self.epoch);
        own.and_then(|(_, version)| version.parse().ok()).unwrap_or(0)
    }

    /// Tells the listeners of a run how it stands. They still hear that it has ended; then it is forgotten.
    pub fn tick(&self, run: &str, change: impl FnOnce(&mut RunTick)) {
        let mut runs = lock(&self.runs);
        let sender = runs.entry(run.to_owned()).or_insert_with(|| watch::channel(RunTick::default()).0);
        sender.send_modify(|tick| {
            change(tick);
            tick.revision += 1;
            let surplus = tick.notices.len().saturating_sub(NOTICES);
            tick.notices.drain(..surplus);
        });
        runs.retain(|_, sender| !sender.borrow().ended);
    }

    /// How all runs stand that are told about now.
    pub fn ticks(&self) -> Vec<(String, RunTick)> {
        lock(&self.runs).iter().map(|(run, ticks)| (run.clone(), ticks.borrow().clone())).collect()
    }

    /// Tells the listeners of a run how it stands, as another replica has said it. Returns whether that is news.
    pub fn set(&self, run: &str, tick: RunTick) -> bool {
        let mut runs = lock(&self.runs);
        let sender = runs.entry(run.to_owned()).or_insert_with(|| watch::channel(RunTick::default()).0);
        sender.send_if_modified(|now| {
            let is_news = *now != tick;
            *now = tick;
            is_news
        })
    }

    /// How a run that is told about now stands.
    pub fn standing(&self, run: &str) -> Option<RunStanding> {
        lock(&self.runs).get(run).map(|ticks| ticks.borrow().standing.clone())
    }
}

/// Figures of a node: what changes with every sample.
#[derive(Serialize)]
struct Figures<'a> {
    node: &'a str,
    gpus: Vec<Gpu<'a>>,
}

#[derive(Serialize)]
struct Gpu<'a> {
    k: String,
    u: Option<u64>,
    t: Option<u64>,
    h: &'a str,
    o: bool,
    x: Option<u8>,
    c: Option<u32>,
    p: HashMap<String, u64>,
}

/// A node of which more than figures changed: its markup.
#[derive(Serialize)]
struct Whole {
    node: String,
    html: String,
}

/// A node that is no more.
#[derive(Serialize)]
struct Gone {
    node: String,
    gone: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Changed<'a> {
    Gone(Gone),
    Figures(Figures<'a>),
    Whole(Whole),
}

fn figures(status: &NodeStatus) -> Figures<'_> {
    fn gpu(device: &DeviceStatus) -> Gpu<'_> {
        let DeviceStatus { used, total, heat, outlier, utilization_percent, temperature_c, .. } = device;
        let sizes = device.processes.iter().filter_map(|process| Some((process.pid.to_string(), process.used?.0)));
        Gpu {
            k: device.key(),
            u: used.map(|bytes| bytes.0),
            t: total.map(|bytes| bytes.0),
            h: heat,
            o: *outlier,
            x: *utilization_percent,
            c: *temperature_c,
            p: sizes.collect(),
        }
    }
    Figures { node: &status.node, gpus: status.devices.iter().map(gpu).collect() }
}

impl Live {
    /// What changed after `since`, as one line of JSON, and the version up to which.
    fn update(&self, since: u64) -> (u64, String) {
        let now = crate::store::now().0;
        let runs = lock(&self.runs).clone();
        let (version, changed, gone) = {
            let state = lock(&self.state);
            let medians = view::medians(&state);
            let changed = state.nodes().iter().filter(|(_, node)| node.version > since);
            let status = |(name, node): (&String, &super::state::Node)| {
                (view::node_status(name, node, &runs, &medians, now), node.shape > since)
            };
            let gone = state.gone().iter().filter(|(_, version)| **version > since);
            let gone = gone.map(|(node, _)| Gone { node: node.clone(), gone: true }).collect::<Vec<_>>();
            (state.version(), changed.map(status).collect::<Vec<_>>(), gone)
        };
        let changed: Vec<Changed<'_>> = changed
            .iter()
            .map(|(status, is_whole)| {
                if *is_whole {
                    Changed::Whole(Whole { node: status.node.clone(), html: rankscope_app::live_node_html(status) })
                } else {
                    Changed::Figures(figures(status))
                }
            })
            .chain(gone.into_iter().map(Changed::Gone))
            .collect();
        (version, serde_json::to_string(&changed).unwrap_or_else(|_| "[]".to_owned()))
    }

    /// Makes a frame for all listeners whenever something changed, and notices nodes that fall silent.
    pub async fn make_frames(self: Arc<Self>) {
        let mut changes = self.changes();
        let mut closing = self.hub.closing.subscribe();
        let mut last = 0;
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = sleep(Duration::from_secs(1)) => self.note_silence(),
                () = closed(&mut closing) => return,
            }
            if self.hub.frames.receiver_count() == 0 {
                last = lock(&self.state).version();
                continue;
            }
            if lock(&self.state).version() > last {
                let live = Arc::clone(&self);
                let Ok((to, data)) = tokio::task::spawn_blocking(move || live.update(last)).await else { continue };
                self.hub.frames.send_replace(Frame { from: last, to, data: data.into() });
                last = to;
            }
            sleep(FRAME).await;
        }
    }

    /// Nodes that have fallen silent, or speak again, look different.
    fn note_silence(&self) {
        let now = crate::store::now().0;
        let mut state = lock(&self.state);
        let mut known = lock(&self.silent);
        let silent = state.nodes().iter().filter(|(_, node)| view::is_silent(node, now)).map(|(name, _)| name.clone());
        let silent: std::collections::BTreeSet<String> = silent.collect();
        for name in silent.symmetric_difference(&known) {
            state.touch(name);
        }
        *known = silent;
    }

    /// Events of all nodes, as lines of an event stream; `since` is the position of a page or of a lost connection.
    pub fn node_events(self: Arc<Self>, since: Option<&str>) -> impl Stream<Item = String> + Send + use<> {
        struct Listener {
            live: Arc<Live>,
            frames: watch::Receiver<Frame>,
            closing: watch::Receiver<bool>,
            cursor: u64,
            is_first: bool,
            _watcher: Watcher,
        }
        let cursor = since.map_or(0, |since| self.hub.version_of(since));
        let mut frames = self.hub.frames.subscribe();
        frames.borrow_and_update();
        let closing = self.hub.closing.subscribe();
        let watcher = self.counters.watch();
        let listener = Listener { frames, closing, cursor, is_first: true, _watcher: watcher, live: self };
        stream::unfold(listener, |mut listener| async move {
            loop {
                let was_told = !std::mem::take(&mut listener.is_first);
                if was_told {
                    match hear(&mut listener.frames, &mut listener.closing).await {
                        Heard::Change => {}
                        Heard::Nothing => return Some((SIGN_OF_LIFE.to_owned(), listener)),
                        Heard::End => return None,
                    }
                }
                let frame = listener.frames.borrow_and_update().clone();
                // A frame that begins earlier says some of it twice, which does no harm.
                let (to, data) = if frame.from <= listener.cursor && was_told {
                    (frame.to, frame.data)
                } else {
                    let (live, since) = (Arc::clone(&listener.live), listener.cursor);
                    let (to, data) = tokio::task::spawn_blocking(move || live.update(since)).await.ok()?;
                    (to, data.into())
                };
                // Nothing new, except for whoever has just come and sees that there is nothing yet.
                if to <= listener.cursor && was_told {
                    continue;
                }
                listener.cursor = to;
                let id = listener.live.hub.cursor(to);
                return Some((format!("id: {id}\nevent: nodes\ndata: {data}\n\n"), listener));
            }
        })
    }

    /// The same of a run that goes on and is not known here yet, because another replica has just begun it.
    pub async fn run_events_soon(
        self: &Arc<Self>,
        run: &str,
        since: Option<u64>,
    ) -> Option<impl Stream<Item = String> + Send + use<>> {
        self.shared()?;
        let known = async {
            loop {
                if let Some(events) = self.run_events(run, since) {
                    return events;
                }
                sleep(FRAME).await;
            }
        };
        timeout(KNOWN_WITHIN, known).await.ok()
    }

    /// Events of one run that goes on; ends when the run does. `None` for a run that is not followed.
    pub fn run_events(
        self: &Arc<Self>,
        run: &str,
        since: Option<u64>,
    ) -> Option<impl Stream<Item = String> + Send + use<>> {
        let ticks = lock(&self.hub.runs).get(run).map(watch::Sender::subscribe)?;
        let closing = self.hub.closing.subscribe();
        let start = (ticks, closing, since, false, self.counters.watch());
        Some(stream::unfold(start, |(mut ticks, mut closing, mut since, over, watcher)| async move {
            if over {
                return None;
            }
            loop {
                let tick = ticks.borrow_and_update().clone();
                if since.is_none_or(|since| tick.revision != since) {
                    since = Some(tick.revision);
                    return Some((tick.event(), (ticks, closing, since, tick.ended, watcher)));
                }
                match hear(&mut ticks, &mut closing).await {
                    Heard::Change => {}
                    Heard::Nothing => return Some((SIGN_OF_LIFE.to_owned(), (ticks, closing, since, false, watcher))),
                    Heard::End => return None,
                }
            }
        }))
    }
}
