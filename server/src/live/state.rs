//! What is known of all nodes, as a pure state machine: lines in, state out. No clock, no file, no task: times are
//! given. Bounded whatever is sent; a clock that runs ahead is held to the time of receipt.

use super::{
    course::Course,
    moments::{Listed, Moment, Moments},
    plausible::{self, RefusedByKind},
    probe_lines::ProbeLines,
    removed::Removed,
};
use rankscope_model::{
    Bytes, LiveDevice, LiveDeviceHealth, LiveDropped, LiveLine, LiveMemory, LiveNode, LiveProcess, LiveProcesses,
    LiveRecord, LiveState, LiveStateKind, MIB, ProbeRecord, ProcessListing, Rank, Subject,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// A job whose processes are gone for so long has ended; one that comes back later is another.
pub const GRACE: i64 = 30_000_000;
/// A rank that is in no list for so long, while others of its job are, has ended.
const RANK_GRACE: i64 = 10_000_000;
/// A clock may be ahead of ours by so much.
const AHEAD: i64 = 60_000_000;
/// The lists of all cards of a node are gathered within this time: one or more at each of the ticks of a second.
const GATHERED: i64 = 900_000;
/// A card that changes by more while they are gathered is not held against its list.
const MOVED: u64 = 64 * MIB;
/// Nodes and probes of which nothing was heard for so long are forgotten.
const FORGET_NODES: i64 = 7 * 86_400_000_000;
const FORGET_PROBES: i64 = 86_400_000_000;

const MAX_NODES: usize = 4096;
const MAX_DEVICES: usize = 512;
const MAX_PROCESSES: usize = 4096;
const MAX_JOBS: usize = 64;
const MAX_PROBES: usize = 8192;
const MAX_STATES: usize = 64;
const MAX_WARNINGS: usize = 16;
/// Longest text that is kept of a line, in characters.
const MAX_TEXT: usize = 240;

/// Everything that is known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    nodes: BTreeMap<String, Node>,
    probes: BTreeMap<String, Probe>,
    /// Nodes that were removed or forgotten, and at which version: pages that show them are told.
    #[serde(skip)]
    gone: BTreeMap<String, u64>,
    /// Counts changes.
    version: u64,
}

/// Where lines come from.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// One run of one agent.
    pub source: &'a str,
    /// The node; for a probe's lines not used.
    pub node: &'a str,
    /// When they arrived, microseconds since the epoch by our clock.
    pub received: i64,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// What it said of itself last.
    pub info: LiveNode,
    /// The agent's current run.
    pub source: String,
    /// When something arrived last, by our clock.
    pub heard: i64,
    /// The newest time of a line, by the node's clock.
    pub time: i64,
    /// The agent ended in order.
    pub ended: bool,
    /// Devices and slices, by subject.
    pub devices: Vec<Device>,
    /// The last list of processes.
    pub listed: Option<Arc<Listed>>,
    /// Changes of state, newest last.
    pub states: VecDeque<(i64, LiveState)>,
    /// What is wrong with the driver or the node as a whole now.
    pub trouble: Option<LiveState>,
    /// Jobs by key.
    pub jobs: BTreeMap<String, Job>,
    /// What a diagnosis reads.
    pub moments: Moments,
    /// Lines and samples of memory that the agent had to give up.
    pub lost: (u64, u64),
    /// When that happened last.
    #[serde(default)]
    pub lost_at: Option<i64>,
    /// It was this server that gave them up last, which samples its own GPUs.
    #[serde(default)]
    pub lost_by_server: bool,
    /// Readings that were none.
    #[serde(default)]
    pub refused: RefusedByKind,
    /// How far the node's clock was ahead, in microseconds, while it is too far.
    pub clock_ahead: Option<i64>,
    /// Version of the last change.
    pub version: u64,
    /// Version of the last change of more than figures: cards, processes, states.
    pub shape: u64,
    /// Version of the last change of what a diagnosis reads.
    pub evidence: u64,
    peak: Option<Height>,
}

/// The highest sample since the last moment: when, how high all cards stood together, and each of them.
type Height = (i64, u64, Vec<(Subject, Bytes)>);

/// A device or slice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Which.
    pub subject: Subject,
    /// Its memory over time.
    pub course: Course,
    /// Used now; `None` when the last read failed.
    pub used: Option<Bytes>,
    /// How it was last.
    pub health: Option<LiveDeviceHealth>,
    /// Something other than well, with words.
    pub trouble: Option<(LiveStateKind, String)>,
    /// Since when.
    #[serde(default)]
    pub trouble_since: Option<i64>,
}

/// A job's part on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// First and last time at which its processes were listed.
    pub first: i64,
    /// See [`Self::first`].
    pub last: i64,
    /// Since when none of its processes is listed.
    pub gone_since: Option<i64>,
    /// PID of each rank.
    pub ranks: BTreeMap<Rank, u32>,
    /// Processes of the whole job, as one of them says.
    pub world_size: Option<u32>,
    /// Cards on which its processes hold memory.
    pub subjects: BTreeSet<Subject>,
    /// Ranks that are in no list any more while others are.
    #[serde(default)]
    pub missing: BTreeMap<Rank, Missing>,
}

/// A rank that is in no list any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Since when.
    pub since: i64,
    /// Where it held memory.
    pub card: Option<Subject>,
    /// It was said.
    pub told: bool,
}

/// A process that speaks for itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Rank as it says.
    pub rank: Option<Rank>,
    /// Job, host, PID and rendezvous as its `start` says.
    pub job: Option<String>,
    /// See [`Self::job`].
    pub host: Option<String>,
    /// See [`Self::job`].
    pub pid: Option<u32>,
    /// See [`Self::job`].
    pub master: Option<String>,
    /// Processes of the job.
    pub world_size: Option<u32>,
    /// When something arrived first and last, by our clock.
    pub began: i64,
    /// See [`Self::began`].
    pub heard: i64,
    /// It ended in order.
    pub ended: bool,
    /// What it said.
    pub lines: ProbeLines,
    /// Version of the last change.
    pub evidence: u64,
}

impl State {
    /// All nodes by name.
    pub fn nodes(&self) -> &BTreeMap<String, Node> {
        &self.nodes
    }

    /// All probes by source.
    pub fn probes(&self) -> &BTreeMap<String, Probe> {
        &self.probes
    }

    /// Nodes that are no more, with the version since which.
    pub fn gone(&self) -> &BTreeMap<String, u64> {
        &self.gone
    }

    /// Counts changes; grows with each.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Takes lines of an agent in. Gives the number of readings that were refused because they cannot be.
    pub fn apply(&mut self, origin: Origin<'_>, lines: &[LiveLine]) -> u64 {
        if !self.nodes.contains_key(origin.node) && self.nodes.len() >= MAX_NODES {
            return 0;
        }
        self.version += 1;
        let version = self.version;
        self.gone.remove(origin.node);
        let node = self.nodes.entry(origin.node.to_owned()).or_default();
        if node.source != origin.source {
            origin.source.clone_into(&mut node.source);
            node.shape = version;
        }
        if node.ended {
            node.ended = false;
            node.shape = version;
        }
        node.heard = node.heard.max(origin.received);
        node.version = version;
        let refused = |node: &Node| node.refused.values().map(|refused| refused.count).sum::<u64>();
        let before = refused(&*node);
        for line in lines {
            let mut by_kind = std::mem::take(&mut node.refused);
            let left = plausible::sift(line, &node.info, origin.received, &mut by_kind);
            node.refused = by_kind;
            if let Some(line) = left {
                node.line(origin.node, &line, origin.received, version);
            }
        }
        let refused = refused(&*node).saturating_sub(before);
        if refused > 0 {
            node.shape = version;
        }
        refused
    }

    /// Takes lines of a probe in, as they were sent.
    pub fn apply_probe<'a>(&mut self, origin: Origin<'_>, rank: Option<Rank>, lines: impl Iterator<Item = &'a str>) {
        if !self.probes.contains_key(origin.source) && self.probes.len() >= MAX_PROBES {
            let oldest = self.probes.iter().min_by_key(|(_, probe)| probe.heard).map(|(source, _)| source.clone());
            oldest.and_then(|source| self.probes.remove(&source));
        }
        self.version += 1;
        let probe = self.probes.entry(origin.source.to_owned()).or_default();
        if probe.began == 0 {
            probe.began = origin.received;
        }
        probe.heard = probe.heard.max(origin.received);
        probe.rank = probe.rank.or(rank);
        probe.evidence = self.version;
        for line in lines {
            probe.line(line);
        }
    }

    /// Something of a node changed that no line says: it looks different.
    pub fn touch(&mut self, node: &str) {
        if let Some(node) = self.nodes.get_mut(node) {
            self.version += 1;
            (node.version, node.shape) = (self.version, self.version);
        }
    }

    /// A node that was removed at this time, if nothing of it came after that.
    pub fn remove_unless_heard_after(&mut self, name: &str, at: i64) {
        if self.nodes.get(name).is_some_and(|node| node.heard <= at) {
            self.remove(name);
        }
    }

    /// The same for all at a start; whoever came back is there, and pages of before that show the others are told.
    pub fn forget_removed(&mut self, removed: &Removed) {
        self.nodes.retain(|name, node| !removed.covers(name, node.heard));
        self.version += 1;
        for name in removed.names().filter(|name| !self.nodes.contains_key(*name)) {
            self.gone.insert(name.clone(), self.version);
        }
    }

    /// Goes on as another state, for instance one that was written down by another server: of all nodes everything has
    /// changed.
    pub fn go_on_as(&mut self, other: Self) {
        let version = self.version.max(other.version).saturating_add(1);
        let Self { nodes: before, gone, .. } = std::mem::replace(self, other);
        self.version = version;
        for node in self.nodes.values_mut() {
            (node.version, node.shape, node.evidence) = (version, version, version);
        }
        for probe in self.probes.values_mut() {
            probe.evidence = version;
        }
        self.gone = gone;
        self.gone.retain(|name, _| !self.nodes.contains_key(name));
        let gone = before.into_keys().filter(|name| !self.nodes.contains_key(name)).map(|name| (name, version));
        self.gone.extend(gone.collect::<Vec<_>>());
    }

    fn remove(&mut self, name: &str) {
        self.version += 1;
        self.nodes.remove(name);
        self.gone.insert(name.to_owned(), self.version);
        if self.gone.len() > MAX_NODES {
            let oldest = self.gone.iter().min_by_key(|(_, version)| **version).map(|(name, _)| name.clone());
            oldest.and_then(|oldest| self.gone.remove(&oldest));
        }
    }

    /// Forgets what was not heard of for long.
    pub fn forget(&mut self, now: i64) {
        let is_old = |node: &Node| now.saturating_sub(node.heard) >= FORGET_NODES;
        let old: Vec<String> =
            self.nodes.iter().filter(|(_, node)| is_old(node)).map(|(name, _)| name.clone()).collect();
        for name in &old {
            self.remove(name);
        }
        self.probes.retain(|_, probe| now.saturating_sub(probe.heard) < FORGET_PROBES);
    }
}

impl Probe {
    fn line(&mut self, text: &str) {
        // Most lines are steps, of which nothing but the text is needed here.
        let head = text.get(..text.len().min(64)).unwrap_or(text);
        if !head.contains("\"step\"") {
            match serde_json::from_str::<ProbeRecord>(text) {
                Ok(ProbeRecord::Start(start)) => {
                    self.rank = start.rank.or(self.rank);
                    self.job = start.job.map(short);
                    self.host = start.host.map(short);
                    self.master = start.master.map(short);
                    (self.pid, self.world_size) = (start.pid, start.world_size);
                }
                Ok(ProbeRecord::End(_)) => self.ended = true,
                _ => {}
            }
        }
        self.lines.push(text);
    }
}

impl Node {
    /// A device, if it is known.
    pub fn device(&self, subject: Subject) -> Option<&Device> {
        self.devices.binary_search_by_key(&subject, |device| device.subject).ok().and_then(|at| self.devices.get(at))
    }

    /// What a device is.
    pub fn described(&self, subject: Subject) -> Option<&LiveDevice> {
        self.info.devices.iter().find(|device| device.subject == subject)
    }

    fn device_mut(&mut self, subject: Subject, version: u64) -> Option<&mut Device> {
        subject.device()?;
        match self.devices.binary_search_by_key(&subject, |device| device.subject) {
            Ok(at) => self.devices.get_mut(at),
            Err(_) if self.devices.len() >= MAX_DEVICES => None,
            Err(at) => {
                let device = Device {
                    subject,
                    course: Course::default(),
                    used: None,
                    health: None,
                    trouble: None,
                    trouble_since: None,
                };
                self.devices.insert(at, device);
                self.shape = version;
                self.devices.get_mut(at)
            }
        }
    }

    fn line(&mut self, name: &str, line: &LiveLine, received: i64, version: u64) {
        let latest = received.saturating_add(AHEAD);
        let time = if line.t.0 > latest {
            self.clock_ahead = Some(line.t.0.saturating_sub(received));
            received
        } else {
            self.clock_ahead = None;
            line.t.0
        };
        self.time = self.time.max(time);
        match &line.record {
            LiveRecord::Node(info) => self.describe(info, version),
            LiveRecord::Memory(memory) => self.memory(memory, time, latest, version),
            LiveRecord::Health(health) => {
                for found in &health.devices {
                    if let Some(device) = self.device_mut(found.subject, version) {
                        let mut found = found.clone();
                        found.throttle.truncate(MAX_WARNINGS);
                        device.health = Some(found);
                    }
                }
            }
            LiveRecord::Processes(processes) => self.processes(name, processes, time, version),
            LiveRecord::State(state) => self.state(state, time, version),
            LiveRecord::Dropped(LiveDropped { first, last, samples, by_server }) => {
                let lines = last.saturating_sub(*first).saturating_add(1);
                self.lost = (self.lost.0.saturating_add(lines), self.lost.1.saturating_add(*samples));
                self.lost_at = Some(received);
                self.lost_by_server = *by_server;
                (self.shape, self.evidence) = (version, version);
            }
            LiveRecord::End => {
                self.ended = true;
                self.shape = version;
            }
            LiveRecord::Unknown => {}
        }
    }

    fn describe(&mut self, info: &LiveNode, version: u64) {
        let mut info = info.clone();
        info.devices.retain(|device| device.subject.device().is_some());
        info.devices.truncate(MAX_DEVICES);
        for device in &mut info.devices {
            for text in [&mut device.uuid, &mut device.bus_id, &mut device.name, &mut device.compute_mode] {
                *text = text.take().map(short);
            }
        }
        info.warnings.truncate(MAX_WARNINGS);
        info.warnings = info.warnings.into_iter().map(short).collect();
        for text in [&mut info.agent, &mut info.driver_version, &mut info.cuda_version, &mut info.boot_id] {
            *text = text.take().map(short);
        }
        info.host = short(info.host);
        if info == self.info {
            return;
        }
        let known: BTreeSet<Subject> = info.devices.iter().map(|device| device.subject).collect();
        self.devices.retain(|device| known.contains(&device.subject));
        for subject in known {
            self.device_mut(subject, version);
        }
        self.info = info;
        (self.shape, self.evidence) = (version, version);
    }

    fn memory(&mut self, memory: &LiveMemory, time: i64, latest: i64, version: u64) {
        let at = |sample: usize| {
            let dt = memory.dt_us.get(sample).copied().unwrap_or(0);
            time.saturating_add(i64::from(dt)).min(latest)
        };
        for column in &memory.devices {
            let Some(device) = self.device_mut(column.subject, version) else { continue };
            for (sample, used) in column.used.iter().enumerate() {
                if let Some(used) = used {
                    device.course.push(at(sample), used.0);
                }
            }
            device.used = column.used.last().copied().flatten();
        }
        let samples = memory.dt_us.len();
        let sum = |sample: usize| -> u64 {
            let used = memory.devices.iter().filter_map(|column| column.used.get(sample).copied().flatten());
            used.fold(0, |sum, bytes| sum.saturating_add(bytes.0))
        };
        let Some((height, sample)) = (0..samples).map(|sample| (sum(sample), sample)).max() else { return };
        self.time = self.time.max(at(samples - 1));
        if self.peak.as_ref().is_none_or(|(_, known, _)| height > *known) {
            let used =
                |column: &rankscope_model::LiveColumn| Some((column.subject, column.used.get(sample).copied()??));
            let mut used: Vec<_> = memory.devices.iter().take(MAX_DEVICES).filter_map(used).collect();
            used.sort_by_key(|(subject, _)| *subject);
            self.peak = Some((at(sample), height, used));
        }
    }

    fn processes(&mut self, name: &str, listed: &LiveProcesses, time: i64, version: u64) {
        let mut processes: Vec<LiveProcess> = listed.processes.iter().take(MAX_PROCESSES).cloned().collect();
        processes.retain(|process| process.subject.device().is_some());
        for process in &mut processes {
            process.name = process.name.take().map(short);
            process.kind = process.kind.take().map(short);
            if let Some(rank) = &mut process.rank {
                rank.job = rank.job.take().map(short);
                rank.visible_devices = rank.visible_devices.take().map(short);
            }
        }
        processes.sort_by_key(|process| (process.subject, process.pid));
        let listed = Arc::new(Listed { listing: listed.listing, processes });
        if self.jobs(name, &listed.processes, time) {
            (self.shape, self.evidence) = (version, version);
        }

        let same = |a: &LiveProcess, b: &LiveProcess| (a.subject, a.pid, &a.rank) == (b.subject, b.pid, &b.rank);
        let is_same = self.listed.as_ref().is_some_and(|before| {
            before.processes.len() == listed.processes.len()
                && before.processes.iter().zip(&listed.processes).all(|(a, b)| same(a, b))
        });
        if !is_same {
            self.shape = version;
        }
        self.listed = Some(Arc::clone(&listed));
        // What the cards used when they were listed, not what they used last.
        let nearest = |device: &Device| {
            let near = device.course.between(time.saturating_sub(GATHERED / 2), time.saturating_add(GATHERED / 2));
            near.min_by_key(|(at, _)| at.abs_diff(time)).map(|(_, used)| Bytes(used))
        };
        // A card whose last read failed says nothing.
        let used = |device: &Device| device.used.map(|last| (device.subject, nearest(device).unwrap_or(last)));
        let used = self.devices.iter().filter_map(used).collect();
        let listed = if listed.listing == ProcessListing::Listed && self.moved(time) {
            Arc::new(Listed { listing: ProcessListing::Partial, processes: listed.processes.clone() })
        } else {
            listed
        };
        let peak = self.peak.take().map(|(time, _, used)| (time, used));
        if self.moments.offer(Moment { time, used, peak, listed, turn: false }) {
            self.evidence = version;
        }
    }

    /// Whether a card moved while the lists were gathered, one card after the other: its use and its list are then of two
    /// moments, and what lies between them is no memory that nobody owns.
    fn moved(&self, time: i64) -> bool {
        self.devices.iter().any(|device| {
            let used = || device.course.between(time.saturating_sub(GATHERED), time).map(|(_, used)| used);
            used().max().zip(used().min()).is_some_and(|(most, least)| most.saturating_sub(least) > MOVED)
        })
    }

    /// Takes note of the jobs in a list; whether a rank of one was found to have ended, or to be back.
    fn jobs(&mut self, name: &str, processes: &[LiveProcess], time: i64) -> bool {
        let mut seen: BTreeMap<String, BTreeSet<Rank>> = BTreeMap::new();
        for process in processes {
            let Some(rank) = process.rank.as_ref().filter(|rank| rank.helper_of.is_none()) else { continue };
            let key = rank.job.clone().filter(|job| !job.is_empty()).unwrap_or_else(|| format!("node:{name}"));
            if !self.jobs.contains_key(&key) && self.jobs.len() >= MAX_JOBS {
                let ended = self.jobs.iter().filter(|(_, job)| job.gone_since.is_some());
                let oldest = ended.min_by_key(|(_, job)| job.last).map(|(key, _)| key.clone());
                let Some(oldest) = oldest else { continue };
                self.jobs.remove(&oldest);
            }
            let job = self.jobs.entry(key.clone()).or_insert_with(|| Job { first: time, ..Job::default() });
            if job.gone_since.is_some_and(|since| time.saturating_sub(since) >= GRACE) {
                *job = Job { first: time, ..Job::default() };
            }
            (job.last, job.gone_since) = (job.last.max(time), None);
            job.ranks.insert(rank.rank, process.pid);
            job.world_size = rank.world_size.or(job.world_size);
            job.subjects.insert(process.subject);
            seen.entry(key).or_default().insert(rank.rank);
        }
        for (_, job) in self.jobs.iter_mut().filter(|(key, _)| !seen.contains_key(*key)) {
            job.gone_since.get_or_insert(time);
            // They all end: none of them before the others.
            job.missing.retain(|_, missing| missing.told);
        }
        let said: Vec<(i64, LiveState)> =
            seen.iter().flat_map(|(key, ranks)| self.ranks_that_ended(name, key, ranks, time)).collect();
        let is_news = !said.is_empty();
        for (time, state) in said {
            self.remember(time, state);
        }
        is_news
    }

    /// What is to be said of a job's ranks: which have ended while others go on, and which of those are back.
    fn ranks_that_ended(&mut self, name: &str, key: &str, here: &BTreeSet<Rank>, time: i64) -> Vec<(i64, LiveState)> {
        let is_out = |card: Subject| {
            let parent = card.device().map(Subject::Device);
            [Some(card), parent].into_iter().flatten().any(|card| {
                self.device(card).and_then(|device| device.trouble.as_ref()).is_some_and(|(kind, _)| {
                    // A card that does not answer lists nobody, so nothing is known of who is on it.
                    matches!(kind, LiveStateKind::Lost | LiveStateKind::NoPermission | LiveStateKind::NotSupported)
                })
            })
        };
        let card_of = |rank: Rank| {
            let of_rank = self.listed.iter().flat_map(|listed| &listed.processes).filter(|process| {
                let is_it = |known: &rankscope_model::LiveRank| known.rank == rank && known.helper_of.is_none();
                process.rank.as_ref().is_some_and(is_it) && super::view::job_key(name, process).as_deref() == Some(key)
            });
            of_rank.max_by_key(|process| process.used).map(|process| process.subject)
        };
        let Some(mut job) = self.jobs.get(key).cloned() else { return Vec::new() };
        let mut said = Vec::new();
        let pid = |job: &Job, rank: Rank| job.ranks.get(&rank).map_or_else(String::new, |pid| format!(" (PID {pid})"));
        for rank in here {
            if let Some(Missing { card, told: true, .. }) = job.missing.remove(rank) {
                let detail = format!("Rank {}{} holds GPU memory again.", rank.0, pid(&job, *rank));
                said.push((time, LiveState { subject: card, state: LiveStateKind::Ok, detail }));
            }
        }
        let gone: Vec<Rank> = job.ranks.keys().filter(|rank| !here.contains(rank)).copied().collect();
        for rank in &gone {
            let begin = || Missing { since: time, card: card_of(*rank), told: false };
            let missing = *job.missing.entry(*rank).or_insert_with(begin);
            let is_over = time.saturating_sub(missing.since) >= RANK_GRACE && !missing.card.is_some_and(is_out);
            // Where most are gone the job ends, and the rest is late.
            if !missing.told && is_over && gone.len() < here.len() {
                job.missing.insert(*rank, Missing { told: true, ..missing });
                let place = missing.card.map_or_else(String::new, |card| format!(" on {card}"));
                let others = match here.len() {
                    1 => "another one of its job on this node does".to_owned(),
                    n => format!("{n} others of its job on this node do"),
                };
                let (rank, pid) = (rank.0, pid(&job, *rank));
                let detail = format!("Rank {rank}{pid}{place} ended: it holds no GPU memory any more, while {others}.");
                said.push((missing.since, LiveState { subject: missing.card, state: LiveStateKind::RankGone, detail }));
            }
        }
        self.jobs.insert(key.to_owned(), job);
        said
    }

    /// Keeps what happened, in order of time. When it is too much, what is told again goes first.
    fn remember(&mut self, time: i64, state: LiveState) {
        let at = self.states.partition_point(|(known, _)| *known <= time);
        self.states.insert(at, (time, state));
        if self.states.len() > MAX_STATES {
            let same =
                |a: &LiveState, b: &LiveState| (a.subject, a.state, &a.detail) == (b.subject, b.state, &b.detail);
            let is_again = |(at, (_, state)): (usize, &(i64, LiveState))| {
                let before = self.states.iter().take(at).any(|(_, earlier)| same(earlier, state));
                before.then_some(at)
            };
            let again = self.states.iter().enumerate().find_map(is_again);
            self.states.remove(again.unwrap_or(0));
        }
    }

    fn state(&mut self, state: &LiveState, time: i64, version: u64) {
        let state = LiveState { detail: short(state.detail.clone()), ..state.clone() };
        let is_trouble = state.state != LiveStateKind::Ok;
        match state.subject {
            Some(subject) => {
                // What the kernel says of a card that is gone does not bring it back.
                let is_of_lost = |device: &Device| {
                    state.state == LiveStateKind::Xid
                        && device.trouble.as_ref().is_some_and(|(kind, _)| *kind == LiveStateKind::Lost)
                };
                if let Some(device) = self.device_mut(subject, version).filter(|device| !is_of_lost(device)) {
                    // That its slices changed happened, and is no state that lasts.
                    let is_trouble = is_trouble && state.state != LiveStateKind::MigChanged;
                    let is_same = device.trouble.as_ref().is_some_and(|(kind, _)| *kind == state.state);
                    let since = device.trouble_since.filter(|_| is_same).unwrap_or(time);
                    device.trouble = is_trouble.then(|| (state.state, state.detail.clone()));
                    device.trouble_since = is_trouble.then_some(since);
                    if state.state == LiveStateKind::Lost {
                        (device.used, device.health) = (None, None);
                    }
                }
            }
            None => self.trouble = is_trouble.then(|| state.clone()),
        }
        self.remember(time, state);
        (self.shape, self.evidence) = (version, version);
    }
}

/// A list that was never given.
pub fn nothing_listed() -> Arc<Listed> {
    Arc::new(Listed { listing: ProcessListing::Missing, processes: Vec::new() })
}

/// Text of strangers, cut to size, without control characters.
fn short(text: String) -> String {
    if text.len() <= MAX_TEXT && !text.contains(char::is_control) {
        return text;
    }
    text.chars().filter(|sign| !sign.is_control()).take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{device, memory, node, process, processes, rank_process};
    use super::*;
    use proptest::prelude::*;
    use rankscope_model::{LiveColumn, LiveRank, UnixMicros};

    fn origin(received: i64) -> Origin<'static> {
        Origin { source: "s", node: "a", received }
    }

    fn apply(state: &mut State, received: i64, records: Vec<(i64, LiveRecord)>) {
        let lines: Vec<LiveLine> =
            records.into_iter().map(|(t, record)| LiveLine { seq: 0, t: UnixMicros(t), record }).collect();
        state.apply(origin(received), &lines);
    }

    #[test]
    fn a_list_is_held_against_what_the_cards_used_when_it_was_gathered() {
        let second = 1_000_000;
        let moment = |samples: &[u64]| {
            let mut state = State::default();
            let begin = vec![
                (second, node(&[device(0)])),
                (second, memory(&[(0, samples)])),
                (second + 600_000, processes(vec![rank_process(0, 7, 0, "j")])),
            ];
            apply(&mut state, 2 * second, begin);
            let moment = state.nodes()["a"].moments.list().last().unwrap().clone();
            (moment.listed.listing, moment.used[0].1.0 / MIB)
        };
        let steady = [7 * MIB; 10];
        assert_eq!(moment(&steady), (ProcessListing::Listed, 7));
        let mut opens_later = steady;
        opens_later[8..].fill(900 * MIB);
        assert_eq!(
            moment(&opens_later),
            (ProcessListing::Listed, 7),
            "what comes after the list is not held against it"
        );
        let wave: Vec<u64> = (0..10).map(|sample| (sample % 4) * 100 * MIB).collect();
        assert_eq!(moment(&wave), (ProcessListing::Partial, 200));
    }

    #[test]
    fn a_job_is_there_while_its_processes_are_and_another_when_it_comes_back() {
        let mut state = State::default();
        let one = || processes(vec![rank_process(0, 7, 0, "slurm:1"), rank_process(1, 8, 1, "slurm:1")]);
        let second = 1_000_000;
        apply(&mut state, second, vec![(second, node(&[device(0), device(1)])), (second, one())]);
        let job = |state: &State| state.nodes()["a"].jobs["slurm:1"].clone();
        assert_eq!(job(&state).ranks.len(), 2);
        assert_eq!(job(&state).subjects, [Subject::Device(0), Subject::Device(1)].into());
        apply(&mut state, 2 * second, vec![(2 * second, processes(vec![]))]);
        apply(&mut state, 9 * second, vec![(9 * second, one())]);
        assert_eq!((job(&state).first, job(&state).gone_since), (second, None), "a short gap is none");
        apply(&mut state, 10 * second, vec![(10 * second, processes(vec![]))]);
        let later = 10 * second + GRACE;
        apply(&mut state, later, vec![(later, one())]);
        assert_eq!(job(&state).first, later);
    }

    #[test]
    fn helpers_and_strangers_make_no_job() {
        let mut state = State::default();
        let helper = LiveRank { helper_of: Some(7), ..rank_process(0, 9, 0, "x").rank.unwrap() };
        let list = vec![process(0, 5), LiveProcess { rank: Some(helper), ..process(0, 9) }];
        apply(&mut state, 1, vec![(1, processes(list))]);
        assert!(state.nodes()["a"].jobs.is_empty());
    }

    #[test]
    fn a_clock_ahead_is_held_to_ours_and_does_no_lasting_harm() {
        let mut state = State::default();
        let now = 1_000_000_000;
        apply(&mut state, now, vec![(i64::MAX - 5, memory(&[(0, &[7])]))]);
        apply(&mut state, now + 1, vec![(now + 1, memory(&[(0, &[9])]))]);
        let node = &state.nodes()["a"];
        assert_eq!(node.device(Subject::Device(0)).unwrap().course.last(), Some((now + 1, 9)));
        assert!(node.clock_ahead.is_none(), "it is right again");
        apply(&mut state, now + 2, vec![(now + 2 * AHEAD, memory(&[(0, &[9])]))]);
        assert!(state.nodes()["a"].clock_ahead.is_some());
    }

    #[test]
    fn a_rank_that_ends_before_the_others_is_said_once_and_an_end_of_all_is_not() {
        let second = 1_000_000;
        let list = |ranks: &[u32]| processes(ranks.iter().map(|n| rank_process(*n, 100 + n, *n, "j")).collect());
        let mut state = State::default();
        let devices = [0, 1, 2, 3].map(device);
        apply(&mut state, second, vec![(second, node(&devices)), (second, list(&[0, 1, 2, 3]))]);
        let said = |state: &State| -> Vec<(i64, LiveStateKind, String)> {
            let states = state.nodes()["a"].states.iter();
            states.map(|(time, state)| (*time, state.state, state.detail.clone())).collect()
        };
        for n in 5..=30 {
            apply(&mut state, n * second, vec![(n * second, list(&[0, 1, 3]))]);
        }
        let ended = "Rank 2 (PID 102) on GPU 2 ended: it holds no GPU memory any more, while 3 others of its job on this node do.";
        assert_eq!(said(&state), [(5 * second, LiveStateKind::RankGone, ended.to_owned())]);
        apply(&mut state, 31 * second, vec![(31 * second, list(&[0, 1, 2, 3]))]);
        assert_eq!(said(&state)[1].2, "Rank 2 (PID 102) holds GPU memory again.");
        // The end: one stays a little longer.
        for n in 32..=60 {
            apply(&mut state, n * second, vec![(n * second, list(&[0]))]);
        }
        apply(&mut state, 61 * second, vec![(61 * second, list(&[]))]);
        assert_eq!(said(&state).len(), 2, "{:?}", said(&state));
    }

    #[test]
    fn a_rank_on_a_card_that_does_not_answer_is_not_known_to_have_ended() {
        let second = 1_000_000;
        let list = |ranks: &[u32]| processes(ranks.iter().map(|n| rank_process(*n, 100 + n, *n, "j")).collect());
        let mut state = State::default();
        let lost = LiveState { subject: Some(Subject::Device(2)), state: LiveStateKind::Lost, detail: "Lost.".into() };
        let begin = vec![(second, node(&[0, 1, 2].map(device))), (second, list(&[0, 1, 2]))];
        apply(&mut state, second, begin);
        apply(&mut state, 2 * second, vec![(2 * second, LiveRecord::State(lost))]);
        for n in 3..=40 {
            apply(&mut state, n * second, vec![(n * second, list(&[0, 1]))]);
        }
        let node = &state.nodes()["a"];
        assert_eq!(node.states.len(), 1);
        assert_eq!(node.device(Subject::Device(2)).unwrap().trouble_since, Some(2 * second));
    }

    #[test]
    fn an_error_without_end_does_not_push_out_what_happened_before() {
        let mut state = State::default();
        let told = |kind, detail: &str| {
            LiveRecord::State(LiveState { subject: Some(Subject::Device(0)), state: kind, detail: detail.into() })
        };
        apply(&mut state, 1, vec![(1, node(&[device(0)])), (2, told(LiveStateKind::Lost, "lost"))]);
        for n in 0..500 {
            apply(&mut state, 10 + n, vec![(10 + n, told(LiveStateKind::Xid, "Xid 31"))]);
        }
        let states = &state.nodes()["a"].states;
        assert_eq!((states.len(), states[0].1.state), (MAX_STATES, LiveStateKind::Lost));
    }

    #[test]
    fn trouble_comes_and_goes() {
        let mut state = State::default();
        let change = |kind| {
            LiveRecord::State(LiveState { subject: Some(Subject::Device(0)), state: kind, detail: "words".into() })
        };
        apply(&mut state, 1, vec![(1, memory(&[(0, &[7])])), (2, change(LiveStateKind::Lost))]);
        let device = state.nodes()["a"].device(Subject::Device(0)).unwrap();
        assert_eq!((device.used, device.trouble.as_ref().map(|t| t.0)), (None, Some(LiveStateKind::Lost)));
        apply(&mut state, 2, vec![(3, change(LiveStateKind::Xid))]);
        let device = state.nodes()["a"].device(Subject::Device(0)).unwrap();
        assert_eq!(device.trouble.as_ref().map(|t| t.0), Some(LiveStateKind::Lost), "an Xid of a lost card");
        apply(&mut state, 3, vec![(4, change(LiveStateKind::Ok))]);
        assert!(state.nodes()["a"].devices[0].trouble.is_none());
    }

    #[test]
    fn slices_that_come_and_go_happened_and_are_no_trouble() {
        let mut state = State::default();
        let subject = Some(Subject::Device(0));
        let off = LiveState { subject, state: LiveStateKind::MigChanged, detail: "MIG is off for GPU 0.".into() };
        apply(&mut state, 1, vec![(1, node(&[device(0)])), (2, LiveRecord::State(off.clone()))]);
        let node = &state.nodes()["a"];
        assert_eq!((node.devices[0].trouble.as_ref(), node.devices[0].trouble_since), (None, None));
        assert_eq!(node.states, [(2, off)]);
    }

    #[test]
    fn figures_alone_do_not_change_the_shape() {
        let mut state = State::default();
        apply(&mut state, 1, vec![(1, node(&[device(0)])), (1, processes(vec![process(0, 5)]))]);
        let shape = state.nodes()["a"].shape;
        let bigger = LiveProcess { used: Some(Bytes(9)), ..process(0, 5) };
        apply(&mut state, 2, vec![(2, memory(&[(0, &[7])])), (2, processes(vec![bigger]))]);
        assert_eq!(state.nodes()["a"].shape, shape);
        assert!(state.nodes()["a"].version > shape);
        apply(&mut state, 3, vec![(3, processes(vec![process(0, 6)]))]);
        assert!(state.nodes()["a"].shape > shape);
    }

    fn any_record() -> impl Strategy<Value = LiveRecord> {
        let subject = prop_oneof![
            (0u32..2000).prop_map(Subject::Device),
            (0u32..9).prop_map(|rank| Subject::Rank(Rank(rank))),
            (0u32..9, 0u32..9).prop_map(|(device, gpu_instance)| Subject::MigSlice {
                device,
                gpu_instance,
                compute_instance: 0
            }),
        ];
        let subjects = proptest::collection::vec(subject, 0..5);
        prop_oneof![
            subjects.clone().prop_map(|subjects| {
                node(&subjects.into_iter().map(|subject| LiveDevice { subject, ..device(0) }).collect::<Vec<_>>())
            }),
            (
                subjects.clone(),
                proptest::collection::vec(proptest::option::of(any::<u64>()), 0..5),
                proptest::collection::vec(any::<u32>(), 0..5)
            )
                .prop_map(|(subjects, used, dt_us)| {
                    let used: Vec<_> = used.into_iter().map(|used| used.map(Bytes)).collect();
                    let devices = subjects.into_iter().map(|subject| LiveColumn { subject, used: used.clone() });
                    LiveRecord::Memory(LiveMemory { dt_us, devices: devices.collect() })
                }),
            (subjects, 0u32..20, proptest::option::of("[a-c]{0,2}")).prop_map(|(subjects, pid, job)| {
                processes(
                    subjects
                        .into_iter()
                        .map(|subject| {
                            let mut process = rank_process(0, pid, pid, "");
                            process.subject = subject;
                            process.rank.as_mut().unwrap().job.clone_from(&job);
                            process
                        })
                        .collect(),
                )
            }),
            (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(first, last, samples)| LiveRecord::Dropped(
                LiveDropped { first, last, samples, by_server: false }
            )),
            Just(LiveRecord::End),
        ]
    }

    proptest! {
        #[test]
        fn any_lines_leave_a_bounded_ordered_state_that_survives_a_restart(
            lines in proptest::collection::vec((any::<i64>(), 0i64..2_000_000, any_record()), 0..120),
        ) {
            let mut state = State::default();
            let mut now = 1_700_000_000_000_000;
            for (t, step, record) in lines {
                now += step;
                // Half of the clocks are right.
                let t = if t % 2 == 0 { now } else { t };
                apply(&mut state, now, vec![(t, record)]);
            }
            for node in state.nodes().values() {
                prop_assert!(node.devices.len() <= MAX_DEVICES && node.jobs.len() <= MAX_JOBS);
                prop_assert!(node.devices.is_sorted_by(|a, b| a.subject < b.subject));
                prop_assert!(node.devices.iter().all(|device| device.subject.device().is_some()));
                prop_assert!(node.time <= now + AHEAD && node.version <= state.version());
                prop_assert!(node.moments.list().is_sorted_by(|a, b| a.time < b.time));
                prop_assert!(node.jobs.values().all(|job| job.first <= job.last && !job.ranks.is_empty()));
            }
            let kept: State = serde_json::from_slice(&serde_json::to_vec(&state).unwrap()).unwrap();
            prop_assert_eq!(kept.version(), state.version());
            for (name, node) in state.nodes() {
                prop_assert_eq!(&kept.nodes()[name].jobs, &node.jobs);
                prop_assert_eq!(&kept.nodes()[name].moments, &node.moments);
            }
        }
    }
}
