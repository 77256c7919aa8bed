//! The state as people see it: each node with its cards, who is on them, and which card stands out among those of its
//! job. A reduction for looking at; knows no page and no clock.

use super::state::{Device, Node, State};
use rankscope_diagnosis::Policy;
use rankscope_model::{
    Bytes, DeviceStatus, LiveDropped, LiveProcess, LiveRunRef, NodeStatus, ProcessRole, ProcessStatus, Subject,
    UnixMicros,
};
use std::collections::{BTreeMap, HashMap};

/// A node of which nothing arrives for so long is silent.
const SILENT: i64 = 10_000_000;
/// A card stands out once it has been above the others for so long: ranks that do the same a little later are not.
const STANDS: i64 = 8_000_000;
/// Lines that were lost are told for so long.
const LOSS_IS_TOLD: i64 = 3_600_000_000;
/// Cards from which on a node's own median says more than that of all nodes, which may do something else just then.
const OWN_GROUP: usize = 3;
/// Processes shown on one card.
const SHOWN: usize = 64;

/// The run of each job, by the job's key.
pub type RunsByJob = HashMap<String, LiveRunRef>;

/// Runs to which the card of a node leads.
const MOST_RUNS: usize = 4;

/// Least and most use within the last seconds.
type Range = (u64, u64);

/// What the cards of each job use at the median.
#[derive(Debug, Default)]
pub struct Medians {
    /// On one node, by node and job.
    by_node: HashMap<(String, String), Range>,
    /// Over all nodes, by job.
    by_job: HashMap<String, Range>,
}

impl Medians {
    fn of(&self, node: &str, job: &str) -> Option<Range> {
        let own = self.by_node.get(&(node.to_owned(), job.to_owned()));
        own.or_else(|| self.by_job.get(job)).copied()
    }
}

/// The key that a job has where processes say none.
pub fn job_key(node: &str, process: &LiveProcess) -> Option<String> {
    let rank = process.rank.as_ref()?;
    Some(rank.job.clone().filter(|job| !job.is_empty()).unwrap_or_else(|| format!("node:{node}")))
}

/// Whether a node is silent.
pub fn is_silent(node: &Node, now: i64) -> bool {
    now.saturating_sub(node.heard) > SILENT
}

/// What the cards of each job use at the median.
pub fn medians(state: &State) -> Medians {
    let mut by_node: HashMap<(String, String), Vec<Range>> = HashMap::new();
    let mut by_job: HashMap<String, Vec<Range>> = HashMap::new();
    for (name, node) in state.nodes() {
        for (subject, key) in homes(name, node) {
            if let Some(range) = node.device(subject).and_then(|device| range(node, device)) {
                by_node.entry((name.clone(), key.clone())).or_default().push(range);
                by_job.entry(key).or_default().push(range);
            }
        }
    }
    let middle = |mut values: Vec<u64>| {
        values.sort_unstable();
        values.get(values.len().saturating_sub(1) / 2).copied()
    };
    // Two cards cannot say which of them is the odd one.
    let median = |ranges: Vec<Range>| {
        let (least, most) = ranges.iter().copied().unzip();
        (ranges.len() >= OWN_GROUP).then(|| Some((middle(least)?, middle(most)?))).flatten()
    };
    Medians {
        by_node: by_node.into_iter().filter_map(|(key, ranges)| Some((key, median(ranges)?))).collect(),
        by_job: by_job.into_iter().filter_map(|(key, ranges)| Some((key, median(ranges)?))).collect(),
    }
}

/// What a card used within the last seconds; `None` for one that was not there all the time, or does not answer.
fn range(node: &Node, device: &Device) -> Option<Range> {
    device.used.and_then(|_| device.course.range(node.time.saturating_sub(STANDS), node.time))
}

/// The card on which each process holds most.
fn home_of(node: &Node) -> BTreeMap<u32, Subject> {
    let mut home: BTreeMap<u32, (u64, Subject)> = BTreeMap::new();
    for process in node.listed.iter().flat_map(|listed| &listed.processes) {
        let used = process.used.map_or(0, |bytes| bytes.0);
        let known = home.entry(process.pid).or_insert((used, process.subject));
        if used > known.0 {
            *known = (used, process.subject);
        }
    }
    home.into_iter().map(|(pid, (_, subject))| (pid, subject)).collect()
}

/// Cards on which ranks are at home, with the key of their job.
fn homes(name: &str, node: &Node) -> BTreeMap<Subject, String> {
    let home = home_of(node);
    let processes = node.listed.iter().flat_map(|listed| &listed.processes);
    let ranks = processes.filter(|process| process.rank.as_ref().is_some_and(|rank| rank.helper_of.is_none()));
    ranks
        .filter(|process| home.get(&process.pid) == Some(&process.subject))
        .filter_map(|process| Some((process.subject, job_key(name, process)?)))
        .collect()
}

/// One node.
pub fn node_status(name: &str, node: &Node, runs: &RunsByJob, medians: &Medians, now: i64) -> NodeStatus {
    let home = home_of(node);
    let homes = homes(name, node);
    let policy = Policy::default();
    let devices = node.devices.iter().map(|device| {
        let median = homes.get(&device.subject).and_then(|key| medians.of(name, key));
        // Above them at its lowest and at its highest: a wave of which the others are in another phase is no difference.
        let outlier = median
            .zip(range(node, device))
            .is_some_and(|((least, most), own)| policy.differs(own.0, least) && policy.differs(own.1, most));
        device_status(node, device, &home, outlier)
    });
    let mut found: Vec<LiveRunRef> = node
        .jobs
        .iter()
        .filter_map(|(key, job)| runs.get(key).filter(|run| job.gone_since.is_none() || run.ended.is_some()).cloned())
        .collect();
    // Those that go on first, and of others the newest.
    found.sort_by(|a, b| (a.ended.is_some(), b.ended, &a.id).cmp(&(b.ended.is_some(), a.ended, &b.id)));
    found.truncate(MOST_RUNS);
    NodeStatus {
        node: name.to_owned(),
        heard_at: UnixMicros(node.heard),
        silent: is_silent(node, now),
        ended: node.ended,
        driver_version: node.info.driver_version.clone(),
        notes: notes(node, now),
        devices: devices.collect(),
        runs: found,
    }
}

fn notes(node: &Node, now: i64) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    notes.extend(node.trouble.as_ref().map(|state| {
        if state.detail.is_empty() { "The driver is in trouble.".to_owned() } else { state.detail.clone() }
    }));
    notes.extend(node.devices.iter().filter_map(|device| device.trouble.as_ref()).map(|(_, words)| words.clone()));
    let is_told = node.lost_at.is_some_and(|at| now.saturating_sub(at) < LOSS_IS_TOLD);
    if node.lost.0 > 0 && is_told {
        notes.push(format!(
            "{} lines ({} samples) were lost: {}.",
            node.lost.0,
            node.lost.1,
            LiveDropped::why(node.lost_by_server)
        ));
    }
    if let Some(ahead) = node.clock_ahead {
        notes.push(format!(
            "Its clock is {} s ahead of this server's; times are held to the server's.",
            ahead / 1_000_000
        ));
    }
    notes.extend(super::plausible::words(&node.refused, now, LOSS_IS_TOLD));
    notes.extend(node.info.warnings.iter().cloned());
    notes.retain(|note| !note.trim().is_empty());
    notes
}

fn device_status(node: &Node, device: &Device, home: &BTreeMap<u32, Subject>, outlier: bool) -> DeviceStatus {
    let described = node.described(device.subject);
    let total = described.and_then(|device| device.total);
    let processes = node.listed.iter().flat_map(|listed| &listed.processes);
    let mut processes: Vec<ProcessStatus> = processes
        .filter(|process| process.subject == device.subject)
        .map(|process| process_status(process, home))
        .collect();
    processes.sort_by_key(|process| (process.role, process.rank, std::cmp::Reverse(process.used), process.pid));
    processes.truncate(SHOWN);
    let health = device.health.as_ref();
    DeviceStatus {
        subject: device.subject,
        name: described.and_then(|device| device.name.clone()),
        total,
        used: device.used,
        last_used: device.course.last().filter(|_| device.used.is_none()).map(|(_, used)| Bytes(used)),
        heat: heat(device, total, node.time),
        outlier,
        utilization_percent: health.and_then(|health| health.utilization_percent),
        temperature_c: health.and_then(|health| health.temperature_c),
        state: device.trouble.as_ref().map(|(kind, _)| *kind),
        state_since: device.trouble_since.map(UnixMicros),
        processes,
    }
}

fn process_status(process: &LiveProcess, home: &BTreeMap<u32, Subject>) -> ProcessStatus {
    let role = match &process.rank {
        None => ProcessRole::Stranger,
        Some(rank) if rank.helper_of.is_some() => ProcessRole::Helper,
        Some(_) if home.get(&process.pid) == Some(&process.subject) => ProcessRole::Home,
        Some(_) => ProcessRole::Visitor,
    };
    ProcessStatus {
        pid: process.pid,
        name: process.name.clone(),
        rank: process.rank.as_ref().map(|rank| rank.rank),
        role,
        used: process.used,
    }
}

/// Tenths of the capacity; without one, of the largest value that is seen.
fn heat(device: &Device, total: Option<Bytes>, until: i64) -> String {
    let cells = device.course.cells(until);
    let full = total.map(|bytes| bytes.0).or_else(|| cells.iter().flatten().max().copied()).filter(|full| *full > 0);
    cells
        .iter()
        .map(|cell| match (cell, full) {
            (Some(value), Some(full)) => {
                let tenth = u128::from(*value) * 10 / u128::from(full);
                char::from_digit(u32::try_from(tenth.min(9)).unwrap_or(9), 10).unwrap_or('9')
            }
            (Some(_), None) => '0',
            (None, _) => '.',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{
        state::Origin,
        testing::{device, memory, node, process, processes, rank_process},
    };
    use super::*;
    use rankscope_model::{GIB, LiveLine};

    #[test]
    fn the_card_with_visitors_stands_out_and_strangers_are_named() {
        let mut state = State::default();
        let used: Vec<[u64; 1]> = (0..4).map(|index| [if index == 0 { 70 * GIB } else { 60 * GIB }]).collect();
        let figures: Vec<(u32, &[u64])> = (0u32..).zip(&used).map(|(index, used)| (index, &used[..])).collect();
        let mut list: Vec<LiveProcess> = (0..4)
            .map(|rank| LiveProcess { used: Some(Bytes(60 * GIB)), ..rank_process(rank, 100 + rank, rank, "j") })
            .collect();
        list.push(LiveProcess { used: Some(Bytes(GIB / 2)), ..rank_process(0, 101, 1, "j") });
        list.push(process(0, 7));
        let begin = [node(&[0, 1, 2, 3].map(device)), processes(list)];
        let figures = (1..=9).map(|_| memory(&figures));
        let at = |(n, record): (i64, _)| LiveLine { seq: 0, t: UnixMicros(n * 1_000_000), record };
        let lines: Vec<LiveLine> =
            begin.into_iter().map(|record| at((1, record))).chain((1..).zip(figures).map(at)).collect();
        state.apply(Origin { source: "s", node: "a", received: 1_000_000 }, &lines[..3]);
        let status = node_status("a", &state.nodes()["a"], &RunsByJob::new(), &medians(&state), 2_000_000);
        assert!(status.devices.iter().all(|device| !device.outlier), "not at first sight");
        state.apply(Origin { source: "s", node: "a", received: 9_000_000 }, &lines[3..]);

        let runs = HashMap::from([(
            "j".to_owned(),
            LiveRunRef { id: "r".into(), title: "t".into(), ..LiveRunRef::default() },
        )]);
        let status = node_status("a", &state.nodes()["a"], &runs, &medians(&state), 10_000_000);
        assert_eq!(status.devices.iter().map(|device| device.outlier).collect::<Vec<_>>(), [true, false, false, false]);
        let roles: Vec<_> = status.devices[0].processes.iter().map(|process| (process.pid, process.role)).collect();
        assert_eq!(roles, [(100, ProcessRole::Home), (101, ProcessRole::Visitor), (7, ProcessRole::Stranger)]);
        assert!(status.devices[0].heat.ends_with("..88") && status.devices[1].heat.ends_with("..77"));
        assert_eq!((status.runs[0].id.as_str(), status.silent), ("r", false));
        assert!(node_status("a", &state.nodes()["a"], &runs, &Medians::default(), 20_000_000).silent);
    }

    /// Bytes of each card of two nodes, second after second; which cards are marked at the end.
    fn marked(used: impl Fn(usize, u32, u64) -> u64) -> Vec<(String, Subject)> {
        let mut state = State::default();
        for (number, name) in ["a", "b"].into_iter().enumerate() {
            let first = u32::try_from(number).unwrap() * 4;
            let list = (0..4).map(|card| rank_process(card, 100 + card, first + card, "j")).collect();
            let mut records = vec![(0, node(&[0, 1, 2, 3].map(device))), (0, processes(list))];
            records.extend((0..20).map(|second| {
                let of_card = |card| [used(number, card, second)];
                let figures = [0, 1, 2, 3].map(|card| (card, of_card(card)));
                (second, memory(&figures.each_ref().map(|(card, used)| (*card, &used[..]))))
            }));
            let line = |(second, record): (u64, _)| {
                let t = UnixMicros(i64::try_from(second).unwrap() * 1_000_000);
                LiveLine { seq: 0, t, record }
            };
            let lines: Vec<LiveLine> = records.into_iter().map(line).collect();
            state.apply(Origin { source: name, node: name, received: 20_000_000 }, &lines);
        }
        let medians = medians(&state);
        let marked = state.nodes().iter().flat_map(|(name, node)| {
            let status = node_status(name, node, &RunsByJob::new(), &medians, 20_000_000);
            status.devices.into_iter().filter(|device| device.outlier).map(move |device| (name.clone(), device.subject))
        });
        marked.collect()
    }

    #[test]
    fn nodes_and_cards_that_do_the_same_at_another_time_do_not_stand_out() {
        // One node is in its evaluation, the other is not.
        assert!(
            marked(|node, _, second| (20 + 20 * u64::from((second / 10 % 2 == 1) == (node == 1))) * GIB).is_empty()
        );
        // Cards wave, each in its own phase.
        assert!(marked(|_, card, second| (20 + 5 * ((second + u64::from(card) * 2) % 4)) * GIB).is_empty());
        // A spike of a second is no standing.
        assert!(marked(|_, card, second| if card == 2 && second == 19 { 70 * GIB } else { 20 * GIB }).is_empty());
        let above = |node: usize, card: u32, second: u64| {
            (20 + 5 * (second % 4) + if (node, card) == (1, 2) { 8 } else { 0 }) * GIB
        };
        assert_eq!(marked(above), [("b".to_owned(), Subject::Device(2))]);
    }

    #[test]
    fn a_lost_card_shows_no_figure_as_if_it_were_current() {
        use rankscope_model::{LiveDeviceHealth, LiveHealth, LiveRecord, LiveState, LiveStateKind};
        let mut state = State::default();
        let subject = Subject::Device(0);
        let health = LiveDeviceHealth {
            subject,
            utilization_percent: Some(98),
            power_mw: None,
            temperature_c: Some(60),
            sm_clock_mhz: None,
            throttle: vec![],
        };
        let lost = LiveState { subject: Some(subject), state: LiveStateKind::Lost, detail: "GPU 0 is lost.".into() };
        let records = [
            (1, node(&[device(0)])),
            (1, memory(&[(0, &[7 * GIB])])),
            (2, LiveRecord::Health(LiveHealth { devices: vec![health] })),
            (3, LiveRecord::State(lost)),
        ];
        let line = |(second, record): (i64, _)| LiveLine { seq: 0, t: UnixMicros(second * 1_000_000), record };
        let lines: Vec<LiveLine> = records.map(line).into();
        state.apply(Origin { source: "s", node: "a", received: 4_000_000 }, &lines);
        let status = node_status("a", &state.nodes()["a"], &RunsByJob::new(), &medians(&state), 4_000_000);
        let card = &status.devices[0];
        assert_eq!((card.used, card.last_used, card.utilization_percent), (None, Some(Bytes(7 * GIB)), None));
        assert_eq!((card.state, card.state_since), (Some(LiveStateKind::Lost), Some(UnixMicros(3_000_000))));
    }
}
