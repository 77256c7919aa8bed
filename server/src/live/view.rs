//! The state as people see it: each node with its cards, who is on them, and which card stands out among those of its
//! job. A reduction for looking at; knows no page and no clock.

use super::state::{Device, Node, State};
use rankscope_diagnosis::Policy;
use rankscope_model::{
    Bytes, DeviceStatus, LiveProcess, LiveRunRef, NodeStatus, ProcessRole, ProcessStatus, Subject, UnixMicros,
};
use std::collections::{BTreeMap, HashMap};

/// A node of which nothing arrives for so long is silent.
const SILENT: i64 = 10_000_000;
/// Processes shown on one card.
const SHOWN: usize = 64;

/// The run of each job, by the job's key.
pub type RunsByJob = HashMap<String, LiveRunRef>;

/// Median use of the cards of each job, over all nodes.
pub type Medians = HashMap<String, u64>;

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
    let mut used: HashMap<String, Vec<u64>> = HashMap::new();
    for (name, node) in state.nodes() {
        for (subject, key) in homes(name, node) {
            if let Some(bytes) = node.device(subject).and_then(|device| device.used) {
                used.entry(key).or_default().push(bytes.0);
            }
        }
    }
    let median = |mut values: Vec<u64>| {
        values.sort_unstable();
        // Two cards cannot say which of them is the odd one.
        if values.len() < 3 { None } else { values.get((values.len() - 1) / 2).copied() }
    };
    used.into_iter().filter_map(|(key, values)| Some((key, median(values)?))).collect()
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
        let median = homes.get(&device.subject).and_then(|key| medians.get(key));
        let outlier = median.zip(device.used).is_some_and(|(median, used)| policy.differs(used.0, *median));
        device_status(node, device, &home, outlier)
    });
    let mut found: Vec<LiveRunRef> = node
        .jobs
        .iter()
        .filter(|(_, job)| job.gone_since.is_none())
        .filter_map(|(key, _)| runs.get(key).cloned())
        .collect();
    found.sort_by(|a, b| a.id.cmp(&b.id));
    NodeStatus {
        node: name.to_owned(),
        heard_at: UnixMicros(node.heard),
        silent: is_silent(node, now),
        ended: node.ended,
        driver_version: node.info.driver_version.clone(),
        notes: notes(node),
        devices: devices.collect(),
        runs: found,
    }
}

fn notes(node: &Node) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    notes.extend(node.trouble.as_ref().map(|state| {
        if state.detail.is_empty() { "The driver is in trouble.".to_owned() } else { state.detail.clone() }
    }));
    notes.extend(node.devices.iter().filter_map(|device| device.trouble.as_ref()).map(|(_, words)| words.clone()));
    if node.lost.0 > 0 {
        notes.push(format!(
            "{} lines ({} samples) were lost: the agent had no room to keep them.",
            node.lost.0, node.lost.1
        ));
    }
    if let Some(ahead) = node.clock_ahead {
        notes.push(format!(
            "Its clock was {} s ahead of this server's; times were held to the server's.",
            ahead / 1_000_000
        ));
    }
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
        heat: heat(device, total, node.time),
        outlier,
        utilization_percent: health.and_then(|health| health.utilization_percent),
        temperature_c: health.and_then(|health| health.temperature_c),
        state: device.trouble.as_ref().map(|(kind, _)| *kind),
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
        let records = [node(&[0, 1, 2, 3].map(device)), memory(&figures), processes(list)];
        let lines: Vec<LiveLine> =
            records.into_iter().map(|record| LiveLine { seq: 0, t: UnixMicros(1_000_000), record }).collect();
        state.apply(Origin { source: "s", node: "a", received: 1_000_000 }, &lines);

        let runs = HashMap::from([("j".to_owned(), LiveRunRef { id: "r".into(), title: "t".into() })]);
        let status = node_status("a", &state.nodes()["a"], &runs, &medians(&state), 2_000_000);
        assert_eq!(status.devices.iter().map(|device| device.outlier).collect::<Vec<_>>(), [true, false, false, false]);
        let roles: Vec<_> = status.devices[0].processes.iter().map(|process| (process.pid, process.role)).collect();
        assert_eq!(roles, [(100, ProcessRole::Home), (101, ProcessRole::Visitor), (7, ProcessRole::Stranger)]);
        assert!(status.devices[0].heat.ends_with("..8") && status.devices[1].heat.ends_with("..7"));
        assert_eq!((status.runs[0].id.as_str(), status.silent), ("r", false));
        assert!(node_status("a", &state.nodes()["a"], &runs, &Medians::new(), 20_000_000).silent);
    }
}
