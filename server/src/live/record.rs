//! What is known of a job, as the text of files: one record per node, one log per probe. The same text is what people
//! download, and what the readers make evidence of. Knows no store.

use super::{
    moments::Moment,
    state::{Node, State},
};
use rankscope_model::{
    Bytes, LIVE_FORMAT, LiveBatch, LiveColumn, LiveDropped, LiveLine, LiveMemory, LiveNode, LiveProcesses, LiveRecord,
    LiveState, Subject, UnixMicros,
};
use std::collections::BTreeSet;

/// One node's part of a job, taken out of the state.
#[derive(Debug, Clone)]
pub struct NodeRecord {
    node: String,
    source: String,
    info: LiveNode,
    subjects: BTreeSet<Subject>,
    moments: Vec<Moment>,
    states: Vec<(i64, LiveState)>,
    lost: (u64, u64),
    lost_by_server: bool,
}

/// What happens to the cards so soon after a job's last process is part of how it ended.
const AFTERMATH: i64 = 10_000_000;

/// The record of a job on a node: the cards on which its processes hold memory, from when it began.
pub fn of_job(name: &str, node: &Node, key: &str) -> Option<NodeRecord> {
    let job = node.jobs.get(key)?;
    let subjects = job.subjects.clone();
    let mut info = node.info.clone();
    info.devices.retain(|device| subjects.contains(&device.subject));
    // What happens to a whole card happens to its slices.
    let is_sliced = |card: u32| subjects.iter().any(|own| own.device() == Some(card) && *own != Subject::Device(card));
    let is_of_job = |state: &LiveState| match state.subject {
        None => true,
        Some(Subject::Device(card)) => subjects.contains(&Subject::Device(card)) || is_sliced(card),
        Some(subject) => subjects.contains(&subject),
    };
    let last = job.gone_since.unwrap_or(i64::MAX);
    let moments = node
        .moments
        .list()
        .iter()
        .chain(node.moments.quiet())
        .filter(|moment| (job.first..last).contains(&moment.time));
    let until = last.saturating_add(AFTERMATH);
    let states = node.states.iter().filter(|(time, state)| (job.first..until).contains(time) && is_of_job(state));
    Some(NodeRecord {
        node: name.to_owned(),
        source: node.source.clone(),
        info,
        moments: moments.cloned().collect(),
        states: states.cloned().collect(),
        lost: node.lost,
        lost_by_server: node.lost_by_server,
        subjects,
    })
}

impl NodeRecord {
    /// Name of the file.
    pub fn file_name(&self) -> String {
        format!("{}.live.jsonl", file_part(&self.node))
    }

    /// The lines.
    pub fn text(&self) -> String {
        let mut lines = Lines::default();
        let first = self.moments.first().map_or(0, |moment| moment.time);
        lines.add(first, LiveRecord::Node(Box::new(self.info.clone())));
        if self.lost.0 > 0 {
            let dropped =
                LiveDropped { first: 0, last: self.lost.0 - 1, samples: self.lost.1, by_server: self.lost_by_server };
            lines.add(first, LiveRecord::Dropped(dropped));
        }
        let mut states = self.states.iter().peekable();
        let mut before: BTreeSet<(Subject, u32)> = BTreeSet::new();
        for moment in &self.moments {
            // In the order of time: what a card used before it was lost must not stand behind that it was.
            let peaked = moment.peak.as_ref().map_or(i64::MAX, |(time, _)| *time).min(moment.time);
            while let Some((time, state)) = states.next_if(|(time, _)| *time <= peaked) {
                lines.add(*time, LiveRecord::State(state.clone()));
            }
            let processes = moment.listed.processes.iter().filter(|process| self.subjects.contains(&process.subject));
            let processes = LiveProcesses { listing: moment.listed.listing, processes: processes.cloned().collect() };
            let members: BTreeSet<(Subject, u32)> =
                processes.processes.iter().map(|process| (process.subject, process.pid)).collect();
            let has_come = !before.is_empty() && !members.is_subset(&before);
            let listed = LiveRecord::Processes(processes);
            // The fullest state before this moment is read with the list in front of it. Who has come since the list before
            // may be why it is so full, and stands in front of it then.
            let early = moment.peak.as_ref().filter(|(time, _)| *time <= moment.time);
            let late = moment.peak.as_ref().filter(|(time, _)| *time > moment.time);
            if let Some((time, used)) = early {
                if has_come {
                    lines.add(*time, listed.clone());
                }
                lines.add(*time, self.memory(used));
            }
            while let Some((time, state)) = states.next_if(|(time, _)| *time <= moment.time) {
                lines.add(*time, LiveRecord::State(state.clone()));
            }
            lines.add(moment.time, listed);
            lines.add(moment.time, self.memory(&moment.used));
            if let Some((time, used)) = late {
                lines.add(*time, self.memory(used));
            }
            before = members;
        }
        for (time, state) in states {
            lines.add(*time, LiveRecord::State(state.clone()));
        }
        lines.finish(&self.source, &self.node)
    }

    fn memory(&self, used: &[(Subject, Bytes)]) -> LiveRecord {
        let used = used.iter().filter(|(subject, _)| self.subjects.contains(subject));
        let devices = used.map(|(subject, used)| LiveColumn { subject: *subject, used: vec![Some(*used)] });
        LiveRecord::Memory(LiveMemory { dt_us: vec![0], devices: devices.collect() })
    }
}

/// Files of the probes of a job: name and lines.
pub fn of_probes(state: &State, sources: &[String]) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = Vec::new();
    for probe in sources.iter().filter_map(|source| state.probes().get(source)) {
        let job = file_part(probe.job.as_deref().unwrap_or("job"));
        let rank = probe.rank.map_or_else(String::new, |rank| format!("_rank{}", rank.0));
        let name = format!("rankscope_{job}{rank}.jsonl");
        match files.iter_mut().find(|(known, _)| *known == name) {
            // The rank was started again: its log goes on.
            Some((_, text)) => text.push_str(&probe.lines.text()),
            None => files.push((name, probe.lines.text())),
        }
    }
    files.sort();
    files
}

/// What a name of strangers becomes as part of a file's name.
fn file_part(name: &str) -> String {
    let fits = |sign: char| if sign.is_alphanumeric() || matches!(sign, '-' | '_' | '.') { sign } else { '-' };
    name.chars().map(fits).take(80).collect()
}

#[derive(Default)]
struct Lines {
    text: String,
    count: u64,
}

impl Lines {
    fn add(&mut self, time: i64, record: LiveRecord) {
        let line = LiveLine { seq: self.count, t: UnixMicros(time), record };
        // Plain structures: writing them as JSON cannot fail.
        self.text.push_str(&serde_json::to_string(&line).unwrap_or_default());
        self.text.push('\n');
        self.count += 1;
    }

    fn finish(self, source: &str, node: &str) -> String {
        let head = LiveBatch {
            format: LIVE_FORMAT.to_owned(),
            source: source.to_owned(),
            node: node.to_owned(),
            first: 0,
            last: self.count.saturating_sub(1),
        };
        let head = serde_json::to_string(&head).unwrap_or_default();
        let head = head.strip_prefix('{').unwrap_or_default();
        format!("{{\"type\":\"batch\",{head}\n{}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        moments::Listed,
        state::Origin,
        testing::{device, memory, node, process, processes, rank_process},
    };
    use super::*;
    use rankscope_ingest::{Limits, read_upload};
    use rankscope_model::{ArtifactKind, GIB, LiveProcess, ProcessListing};
    use std::{io::Cursor, sync::Arc};

    #[test]
    fn a_record_reads_as_the_tables_that_were_seen_and_holds_only_the_jobs_cards() {
        let mut state = State::default();
        let mut time = 1_700_000_000_000_000;
        for used in [10u64, 10, 30] {
            let list = vec![
                LiveProcess { used: Some(Bytes(used * GIB)), ..rank_process(0, 7, 0, "j") },
                LiveProcess { used: Some(Bytes(5 * GIB)), ..rank_process(1, 8, 1, "j") },
                process(2, 99),
            ];
            let figures = memory(&[(0, &[used * GIB]), (1, &[5 * GIB]), (2, &[9 * GIB])]);
            let records = [node(&[0, 1, 2].map(device)), figures, processes(list)];
            let lines: Vec<LiveLine> =
                records.into_iter().map(|record| LiveLine { seq: 0, t: UnixMicros(time), record }).collect();
            state.apply(Origin { source: "s", node: "gpu/01", received: time }, &lines);
            time += 1_000_000;
        }
        let record = of_job("gpu/01", &state.nodes()["gpu/01"], "j").unwrap();
        assert_eq!(record.file_name(), "gpu-01.live.jsonl");
        let text = record.text();
        let found = read_upload(&record.file_name(), &mut Cursor::new(text.as_bytes()), &Limits::default());
        let info = &found.artifacts[0];
        assert_eq!(
            (info.kind, info.devices.as_slice(), info.ranks.as_slice()),
            (ArtifactKind::LiveRecord, &[0, 1][..], &[0, 1][..])
        );
        assert!(info.warnings.is_empty(), "{:?}", info.warnings);
        assert_eq!(found.device_tables.len(), 3, "and how it was just before it changed");
        let last = &found.device_tables[2];
        assert_eq!(
            last.devices.iter().map(|row| row.used).collect::<Vec<_>>(),
            [Some(Bytes(30 * GIB)), Some(Bytes(5 * GIB))]
        );
        assert_eq!(last.processes.len(), 2);
        assert_eq!(last.listing, rankscope_model::ProcessListing::Listed);
        assert_eq!(text.lines().count(), 8, "{text}");
    }

    #[test]
    fn the_fullest_state_stands_behind_the_list_of_those_who_were_there() {
        let own = || LiveProcess { used: Some(Bytes(10 * GIB)), ..rank_process(0, 7, 0, "j") };
        let stranger = || LiveProcess { used: Some(Bytes(GIB)), ..process(0, 99) };
        let moment = |time: i64, used: u64, peak: Option<(i64, u64)>, processes: Vec<LiveProcess>| Moment {
            time,
            used: vec![(Subject::Device(0), Bytes(used * GIB))],
            peak: peak.map(|(time, used)| (time, vec![(Subject::Device(0), Bytes(used * GIB))])),
            listed: Arc::new(Listed { listing: ProcessListing::Listed, processes }),
            turn: false,
        };
        let start = 1_700_000_000_000_000;
        for peak in [start + 900_000, start + 1_200_000] {
            let record = NodeRecord {
                node: "a".into(),
                source: "s".into(),
                info: LiveNode { host: "a".into(), devices: vec![device(0)], ..LiveNode::default() },
                moments: vec![
                    moment(start, 10, None, vec![own()]),
                    moment(start + 1_000_000, 11, Some((peak, 14)), vec![own(), stranger()]),
                ],
                states: vec![],
                lost: (0, 0),
                lost_by_server: false,
                subjects: BTreeSet::from([Subject::Device(0)]),
            };
            let text = record.text();
            let found = read_upload("a.live.jsonl", &mut Cursor::new(text.as_bytes()), &Limits::default());
            let full = |table: &&rankscope_model::DeviceTable| table.devices[0].used == Some(Bytes(14 * GIB));
            let fullest = found.device_tables.iter().find(full).unwrap();
            assert_eq!(fullest.processes.len(), 2, "{text}");
            let times: Vec<i64> = found.device_tables.iter().filter_map(|table| Some(table.time?.0)).collect();
            assert!(times.is_sorted(), "{times:?}");
        }
    }
}
