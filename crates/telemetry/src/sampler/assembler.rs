//! Turns readings into lines: gathers memory into columns, says devices and states once per change, gives processes
//! their ranks. Has no clock, no driver and no file.

use super::SamplerConfig;
use super::Timed;
use super::known::Known;
use super::refusal::Refusal;
use crate::process_list::Listed;
use crate::rank::{ProcessIdentity, RankIdentity};
use rankscope_model::{Bytes, ProcessListing, Rank, Subject, UnixMicros};
use rankscope_model::{
    LiveColumn, LiveDevice, LiveDeviceHealth, LiveHealth, LiveMemory, LiveNode, LiveProcess, LiveProcesses, LiveRank,
    LiveRecord, LiveState, LiveStateKind,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

/// Failures in a row after which a device that gives no clear reason counts as lost.
const FAILURES: u8 = 3;

/// Looks in a row at which a process must be missing from `/proc` before it is said to be of another namespace: one that
/// just ended is missing once.
const LOOKS: u8 = 3;

/// Letters of `CUDA_VISIBLE_DEVICES` that are sent: sixteen cards by UUID are some 700.
const LONGEST_LIST: usize = 1000;

/// Whether the lists of processes were whole.
#[derive(Debug, Clone, Copy, Default)]
pub struct Listing {
    /// At least one device gave its list.
    pub answered: bool,
    /// At least one did not, or not all of it.
    pub lacking: bool,
}

/// How a device stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Fine,
    Failing(u8),
    Out(LiveStateKind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    NotSeenYet,
    Ready,
    Gone { was_ready: bool },
}

/// Everything that is remembered between readings.
#[derive(Debug)]
pub struct Assembler {
    node_name: String,
    node: LiveNode,
    node_said: bool,
    /// Of the driver and the devices, and of the processes.
    warnings: (Vec<String>, Vec<String>),
    driver: Driver,
    /// The sentence last said about the driver.
    driver_detail: String,
    standings: BTreeMap<Subject, Standing>,
    columns: LiveMemory,
    /// When the first sample of `columns` was read, by both clocks.
    began: Option<(UnixMicros, Instant)>,
    strangers: HashMap<u32, u8>,
    hidden_said: bool,
    not_told: BTreeMap<Subject, String>,
    lines: Vec<Timed>,
}

impl Assembler {
    /// Nothing was read yet.
    pub fn new(config: &SamplerConfig) -> Self {
        let node = LiveNode {
            host: config.proc.host_name().unwrap_or_else(|| config.node.clone()),
            agent: config.agent.clone(),
            boot_id: config.proc.boot_id(),
            hz: Some(config.hz.get()),
            ..LiveNode::default()
        };
        Self {
            node_name: config.node.clone(),
            node,
            node_said: false,
            warnings: (Vec::new(), Vec::new()),
            driver: Driver::NotSeenYet,
            driver_detail: String::new(),
            standings: BTreeMap::new(),
            columns: LiveMemory::default(),
            began: None,
            strangers: HashMap::new(),
            hidden_said: false,
            not_told: BTreeMap::new(),
            lines: Vec::new(),
        }
    }

    /// The devices as they are now. Says them where they changed; whether they did.
    pub fn node(
        &mut self,
        t: UnixMicros,
        devices: Vec<LiveDevice>,
        driver_version: Option<String>,
        cuda_version: Option<String>,
        warnings: Vec<String>,
    ) -> bool {
        let slices = |devices: &[LiveDevice]| -> BTreeSet<(Subject, Option<String>)> {
            let is_slice = |device: &&LiveDevice| matches!(device.subject, Subject::MigSlice { .. });
            devices.iter().filter(is_slice).map(|device| (device.subject, device.uuid.clone())).collect()
        };
        let modes = |devices: &[LiveDevice]| -> BTreeMap<Subject, Option<bool>> {
            devices.iter().map(|device| (device.subject, device.mig_enabled)).collect()
        };
        let (before, after) = (slices(&self.node.devices), slices(&devices));
        let switched: Vec<Subject> = {
            let known = modes(&self.node.devices);
            let is_switched = |(subject, mode): (Subject, Option<bool>)| {
                // A device that does not answer says no mode: no change.
                known
                    .get(&subject)
                    .is_some_and(|was| was.is_some() && mode.is_some() && *was != mode)
                    .then_some(subject)
            };
            modes(&devices).into_iter().filter_map(is_switched).collect()
        };
        let touched: BTreeSet<u32> = before
            .symmetric_difference(&after)
            .map(|(subject, _)| *subject)
            .chain(switched)
            .filter_map(Subject::device)
            .collect();
        let first = self.node.devices.is_empty();
        let changed = self.node.devices != devices;
        if changed {
            self.end_columns();
            let subjects: BTreeSet<Subject> = devices.iter().map(|device| device.subject).collect();
            self.standings.retain(|subject, _| subjects.contains(subject));
            self.columns.devices =
                devices.iter().map(|device| LiveColumn { subject: device.subject, used: Vec::new() }).collect();
            self.node.devices = devices;
        }
        self.node.driver_version = driver_version;
        self.node.cuda_version = cuda_version;
        self.warnings.0 = warnings;
        if changed {
            self.node_said = false;
        }
        self.say_node(t);
        if !first {
            for gpu in touched {
                let slices = after.iter().filter(|(subject, _)| subject.device() == Some(gpu)).count();
                let is_on = self
                    .node
                    .devices
                    .iter()
                    .any(|device| device.subject == Subject::Device(gpu) && device.mig_enabled == Some(true));
                let detail = match slices {
                    0 if is_on => format!("MIG is on for GPU {gpu}, which has no slices yet."),
                    0 => format!("MIG is off for GPU {gpu}: it is one whole card."),
                    1 => format!("GPU {gpu} has 1 MIG slice now."),
                    _ => format!("GPU {gpu} has {slices} MIG slices now."),
                };
                self.state(t, Some(Subject::Device(gpu)), LiveStateKind::MigChanged, detail);
            }
        }
        changed
    }

    /// The driver answers.
    pub fn driver_ready(&mut self, t: UnixMicros) {
        let (kind, detail) = match self.driver {
            Driver::NotSeenYet | Driver::Ready => {
                self.driver = Driver::Ready;
                return;
            }
            Driver::Gone { was_ready: true } => (LiveStateKind::DriverRestarted, "The NVIDIA driver answers again."),
            Driver::Gone { was_ready: false } => (LiveStateKind::Ok, "The NVIDIA driver answers."),
        };
        self.driver = Driver::Ready;
        self.driver_detail.clear();
        self.state(t, None, kind, detail.into());
    }

    /// The driver does not answer, and why. The node is said as well, so that it is seen at all.
    pub fn driver_gone(&mut self, t: UnixMicros, detail: &str) {
        self.end_columns();
        let was_ready = matches!(self.driver, Driver::Ready | Driver::Gone { was_ready: true });
        self.say_node(t);
        let again = matches!(self.driver, Driver::Gone { .. }) && self.driver_detail == detail;
        self.driver = Driver::Gone { was_ready };
        if !again {
            detail.clone_into(&mut self.driver_detail);
            self.state(t, None, LiveStateKind::NoDriver, detail.into());
        }
    }

    /// One sample of all devices, in the order of [`Self::node`]. `at` is the same moment as `t` by a clock that does not
    /// jump.
    pub fn memory(&mut self, t: UnixMicros, at: Instant, values: &[Result<Bytes, Refusal>]) {
        if self.columns.devices.is_empty() {
            return;
        }
        let (_, began) = *self.began.get_or_insert((t, at));
        let distance = at.saturating_duration_since(began).as_micros();
        self.columns.dt_us.push(u32::try_from(distance).unwrap_or(u32::MAX));
        let mut changes = Vec::new();
        for (column, value) in self.columns.devices.iter_mut().zip(values) {
            column.used.push(value.as_ref().ok().copied());
            let standing = self.standings.entry(column.subject).or_insert(Standing::Fine);
            let next = after(*standing, value);
            if next != *standing {
                let said = match (*standing, next) {
                    (_, Standing::Out(kind)) => Some((kind, sentence(column.subject, value))),
                    (Standing::Out(_), Standing::Fine) => {
                        Some((LiveStateKind::Ok, format!("{} answers again.", column.subject)))
                    }
                    _ => None,
                };
                *standing = next;
                changes.extend(said.map(|(kind, detail)| (column.subject, kind, detail)));
            }
        }
        for (subject, kind, detail) in changes {
            self.state(t, Some(subject), kind, detail);
        }
    }

    /// The devices as they were last said.
    pub fn devices(&self) -> impl Iterator<Item = &LiveDevice> {
        self.node.devices.iter()
    }

    /// Whether a device is lost.
    pub fn any_lost(&self) -> bool {
        self.standings.values().any(|standing| *standing == Standing::Out(LiveStateKind::Lost))
    }

    /// How busy and how warm the devices are.
    pub fn health(&mut self, t: UnixMicros, devices: Vec<LiveDeviceHealth>) {
        if !devices.is_empty() {
            self.line(t, LiveRecord::Health(LiveHealth { devices }));
        }
    }

    /// Figures that a device refuses, by their names.
    pub fn not_told(&mut self, t: UnixMicros, subject: Subject, kind: LiveStateKind, figures: &[&str]) {
        let figures = figures.join(", ");
        if self.not_told.insert(subject, figures.clone()).is_some_and(|said| said == figures) {
            return;
        }
        let detail = match kind {
            LiveStateKind::NoPermission => format!("{subject} does not tell this user: {figures}."),
            _ => format!("{subject} does not tell: {figures}."),
        };
        self.state(t, Some(subject), kind, detail);
    }

    /// The driver reported an error of a device.
    pub fn xid(&mut self, t: UnixMicros, subject: Option<Subject>, number: Option<u64>) {
        let place = subject.map_or_else(|| "a GPU".to_owned(), |subject| subject.to_string());
        let detail = match number {
            Some(number) => format!("Xid {number} on {place}. The kernel's log has more (dmesg, \"NVRM: Xid\")."),
            None => format!("An Xid without a number on {place}. The kernel's log has more (dmesg, \"NVRM: Xid\")."),
        };
        self.state(t, subject, LiveStateKind::Xid, detail);
    }

    /// All processes on all devices, with what is known of each.
    pub fn processes(&mut self, t: UnixMicros, listing: Listing, rows: &[(Subject, Listed, Known)]) {
        let contested = contested(rows, &self.node_name);
        let processes: Vec<LiveProcess> = rows
            .iter()
            .map(|(subject, listed, known)| LiveProcess {
                subject: *subject,
                pid: listed.pid,
                pid_inside: known.pid_inside,
                started: known.started,
                kind: Some(listed.kind.to_owned()),
                name: known.name.clone(),
                used: listed.used,
                rank: match &known.identity {
                    ProcessIdentity::Ranked(identity) => self.rank(identity, &contested),
                    _ => None,
                },
                hidden: known.identity == ProcessIdentity::NoPermission,
            })
            .collect();
        let withheld = processes.iter().any(|process| process.used.is_none());
        let listing = match (listing.answered, listing.lacking || withheld, processes.is_empty()) {
            (false, ..) => ProcessListing::Missing,
            (true, true, _) => ProcessListing::Partial,
            (true, false, true) => ProcessListing::NoneFound,
            (true, false, false) => ProcessListing::Listed,
        };
        self.warn_of_processes(t, rows, &contested);
        self.line(t, LiveRecord::Processes(LiveProcesses { listing, processes }));
    }

    /// The lines since the last call, in order of time.
    pub fn take(&mut self) -> Vec<Timed> {
        self.end_columns();
        let mut lines = std::mem::take(&mut self.lines);
        lines.sort_by_key(|line| line.t);
        lines
    }

    /// The last lines were lost: devices and states are to be said anew.
    pub fn say_all_again(&mut self) {
        self.node_said = false;
        self.driver_detail.clear();
        self.hidden_said = false;
        self.not_told.clear();
        // A device that is fine again needs no line: a state lasts until the node is said.
        self.standings.values_mut().for_each(|standing| *standing = Standing::Fine);
    }

    fn rank(&self, identity: &RankIdentity, contested: &BTreeSet<Claim>) -> Option<LiveRank> {
        let job = identity.job.as_ref().map(|job| job.on_node(&self.node_name));
        if identity.helper_of.is_none() && contested.contains(&(job.clone(), identity.rank)) {
            return None;
        }
        Some(LiveRank {
            rank: identity.rank,
            local_rank: identity.local_rank,
            world_size: identity.world_size,
            job,
            // What a server takes.
            visible_devices: identity.visible_devices.as_ref().map(|list| list.chars().take(LONGEST_LIST).collect()),
            helper_of: identity.helper_of,
        })
    }

    fn warn_of_processes(&mut self, t: UnixMicros, rows: &[(Subject, Listed, Known)], contested: &BTreeSet<Claim>) {
        let hidden = rows.iter().any(|(_, _, known)| known.identity == ProcessIdentity::NoPermission);
        let gone: BTreeSet<u32> = rows
            .iter()
            .filter(|(_, _, known)| known.identity == ProcessIdentity::Gone)
            .map(|(_, listed, _)| listed.pid)
            .collect();
        self.strangers.retain(|pid, _| gone.contains(pid));
        let mut elsewhere = false;
        for pid in gone {
            let looks = self.strangers.entry(pid).or_default();
            *looks = looks.saturating_add(1);
            elsewhere |= *looks >= LOOKS;
        }

        let mut warnings = Vec::new();
        if hidden {
            warnings.push(HIDDEN.to_owned());
        }
        if elsewhere {
            warnings.push(ELSEWHERE.to_owned());
        }
        warnings.extend(contested.iter().map(|(job, rank)| {
            let job = job.as_ref().map_or_else(String::new, |job| format!(" of {job}"));
            format!(
                "Several processes say that they are {rank}{job} (two jobs, or one task that starts several workers); \
                 their ranks are left open."
            )
        }));
        self.warnings.1 = warnings;
        self.say_node(t);
        if hidden && !self.hidden_said {
            self.state(t, None, LiveStateKind::NoPermission, HIDDEN.into());
        }
        self.hidden_said = hidden;
    }

    /// Says the node unless what was said last is still true.
    fn say_node(&mut self, t: UnixMicros) {
        let mut warnings = self.warnings.0.clone();
        warnings.extend(self.warnings.1.iter().cloned());
        if self.node.warnings != warnings {
            self.node.warnings = warnings;
            self.node_said = false;
        }
        if !self.node_said {
            self.node_said = true;
            self.line(t, LiveRecord::Node(Box::new(self.node.clone())));
        }
    }

    fn state(&mut self, t: UnixMicros, subject: Option<Subject>, state: LiveStateKind, detail: String) {
        self.line(t, LiveRecord::State(LiveState { subject, state, detail }));
    }

    fn line(&mut self, t: UnixMicros, record: LiveRecord) {
        self.lines.push(Timed { t, record });
    }

    fn end_columns(&mut self) {
        let Some((t, _)) = self.began.take() else { return };
        let next = LiveMemory {
            dt_us: Vec::with_capacity(self.columns.dt_us.len()),
            devices: self
                .columns
                .devices
                .iter()
                .map(|column| LiveColumn { subject: column.subject, used: Vec::with_capacity(column.used.len()) })
                .collect(),
        };
        let full = std::mem::replace(&mut self.columns, next);
        self.line(t, LiveRecord::Memory(full));
    }
}

const HIDDEN: &str = "The environment of some processes on the GPUs may not be read, so their ranks are unknown. Run the \
                      agent as root, as the user of the jobs, or with CAP_SYS_PTRACE.";
const ELSEWHERE: &str = "Some processes on the GPUs are of another PID namespace, so their ranks are unknown. Run the agent \
                         in the PID namespace of the host (hostPID in Kubernetes, --pid=host in Docker).";

fn after(standing: Standing, value: &Result<Bytes, Refusal>) -> Standing {
    match (value, standing) {
        (Ok(_), _) => Standing::Fine,
        // The driver's own state is said apart.
        (Err(Refusal::NoDriver(_)), standing) => standing,
        (Err(Refusal::Other(_)), Standing::Fine) => Standing::Failing(1),
        (Err(Refusal::Other(_)), Standing::Failing(times)) if times + 1 < FAILURES => Standing::Failing(times + 1),
        (Err(Refusal::Other(_)), Standing::Out(kind)) => Standing::Out(kind),
        (Err(refusal), _) => Standing::Out(refusal.state()),
    }
}

fn sentence(subject: Subject, value: &Result<Bytes, Refusal>) -> String {
    match value {
        Ok(_) => String::new(),
        Err(Refusal::Lost(words)) => {
            format!("{subject} is lost: {words}. The kernel's log says more (dmesg, \"NVRM\").")
        }
        Err(Refusal::Other(words)) if matches!(subject, Subject::MigSlice { .. }) => {
            format!("{subject} is no longer there ({words}): slices go when the layout of their GPU is changed.")
        }
        Err(Refusal::NoDriver(words) | Refusal::Other(words)) => format!("{subject} does not answer: {words}."),
        Err(Refusal::NotSupported) => format!("{subject} does not tell its used memory."),
        Err(Refusal::NoPermission) => format!("{subject} does not tell this user its used memory."),
    }
}

/// Job and rank.
type Claim = (Option<String>, Rank);

/// Ranks that several processes claim, helpers aside. None of them can be believed.
fn contested(rows: &[(Subject, Listed, Known)], node: &str) -> BTreeSet<Claim> {
    let mut claims: BTreeMap<Claim, BTreeSet<u32>> = BTreeMap::new();
    for (_, listed, known) in rows {
        if let ProcessIdentity::Ranked(RankIdentity { rank, job, helper_of: None, .. }) = &known.identity {
            let job = job.as_ref().map(|job| job.on_node(node));
            claims.entry((job, *rank)).or_default().insert(listed.pid);
        }
    }
    claims.into_iter().filter(|(_, pids)| pids.len() > 1).map(|(claim, _)| claim).collect()
}

#[cfg(test)]
mod tests;
