//! What a reading cannot be: more than the card has, of a year in which nobody sampled, of a rank that its job does not
//! have. Such a reading is left out and counted, and its node says so; all else of its batch is kept, and the batch is
//! acknowledged, so that no agent sends it for ever. Pure; knows lines, no state.
//!
//! How much a line may hold is another question: `bounds` asks it before a batch is kept.

use rankscope_model::{
    Bytes, LiveColumn, LiveLine, LiveMemory, LiveNode, LiveProcess, LiveRecord, Subject, UnixMicros,
};
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

/// A clock may be wrong by so much and its readings still be told, at the time of receipt where they come from ahead.
const FAR_AHEAD: i64 = 30 * 86_400_000_000;
/// A spool may be as old as this: more than any agent keeps.
const FAR_BACK: i64 = 366 * 86_400_000_000;
/// Bytes that no device has: a pebibyte, a thousand times the largest. The driver's "not available" is more.
const MAX_BYTES: u64 = 1 << 50;
/// Highest rank and size of a job.
const MAX_RANK: u32 = 1_000_000;
/// Highest utilisation, in percent.
const MAX_PERCENT: u8 = 100;

/// Why a reading is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Impossible {
    /// More than the card has, or than any has.
    TooMuch,
    /// One device twice in one line.
    Twice,
    /// Of a time that is far from now.
    OtherTime,
    /// A rank that is not below the size of its job.
    NoSuchRank,
}

/// Readings of one kind that were refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// How many.
    pub count: u64,
    /// When the last one arrived, by our clock.
    pub last: i64,
    /// What it said, in words that follow `the last one:`.
    pub said: String,
}

/// All of one node.
pub type RefusedByKind = BTreeMap<Impossible, Refused>;

/// What is left of a line. `None` where nothing is.
pub fn sift<'l>(
    line: &'l LiveLine,
    known: &LiveNode,
    received: i64,
    refused: &mut RefusedByKind,
) -> Option<Cow<'l, LiveLine>> {
    let mut refuse = |kind: Impossible, said: String| {
        let of_kind = refused.entry(kind).or_default();
        of_kind.count = of_kind.count.saturating_add(1);
        (of_kind.last, of_kind.said) = (of_kind.last.max(received), said);
    };
    let is_timed = !matches!(line.record, LiveRecord::Node(_) | LiveRecord::Dropped(_) | LiveRecord::End);
    if is_timed && (line.t.0 > received.saturating_add(FAR_AHEAD) || line.t.0 < received.saturating_sub(FAR_BACK)) {
        let days = line.t.0.saturating_sub(received).unsigned_abs() / 86_400_000_000;
        let side = if line.t.0 > received { "after" } else { "before" };
        refuse(Impossible::OtherTime, format!("its time is {days} days {side} this server's"));
        return None;
    }
    let record = match &line.record {
        LiveRecord::Memory(memory) => self::memory(memory, known, &mut refuse).map(LiveRecord::Memory),
        LiveRecord::Node(node) => self::node(node, &mut refuse).map(|node| LiveRecord::Node(Box::new(node))),
        LiveRecord::Processes(list) => {
            let mut changed = None;
            for (position, process) in list.processes.iter().enumerate() {
                if let Some(mended) = self::process(process, known, &mut refuse) {
                    let changed = changed.get_or_insert_with(|| list.clone());
                    if let Some(place) = changed.processes.get_mut(position) {
                        *place = mended;
                    }
                }
            }
            changed.map(LiveRecord::Processes)
        }
        LiveRecord::Health(health) if health.devices.iter().any(|d| d.utilization_percent > Some(MAX_PERCENT)) => {
            let mut health = health.clone();
            for device in &mut health.devices {
                if let Some(percent) = device.utilization_percent.take_if(|percent| *percent > MAX_PERCENT) {
                    refuse(Impossible::TooMuch, format!("{} was busy at {percent} %", device.subject));
                }
            }
            Some(LiveRecord::Health(health))
        }
        _ => None,
    };
    Some(match record {
        Some(record) => Cow::Owned(LiveLine { seq: line.seq, t: line.t, record }),
        None => Cow::Borrowed(line),
    })
}

/// Bytes of a card, as it said of itself.
fn capacity(known: &LiveNode, subject: Subject) -> Option<Bytes> {
    known.devices.iter().find(|device| device.subject == subject)?.total.filter(|total| total.0 > 0)
}

/// Why a card or a process on it cannot use so much.
fn too_much(known: &LiveNode, subject: Subject, used: Bytes) -> Option<String> {
    match capacity(known, subject) {
        Some(total) if used > total => Some(format!("{used} of the {total} of {subject}")),
        _ if used.0 > MAX_BYTES => Some(format!("{used} on {subject}")),
        _ => None,
    }
}

/// The line without what is impossible; `None` where all of it is possible.
fn memory(memory: &LiveMemory, known: &LiveNode, refuse: &mut impl FnMut(Impossible, String)) -> Option<LiveMemory> {
    let mut seen = BTreeSet::new();
    let is_possible = memory.devices.iter().all(|column| {
        let most = capacity(known, column.subject).unwrap_or(Bytes(MAX_BYTES)).min(Bytes(MAX_BYTES));
        seen.insert(column.subject) && column.used.iter().flatten().all(|used| *used <= most)
    });
    if is_possible {
        return None;
    }
    seen.clear();
    let mut devices = Vec::with_capacity(memory.devices.len());
    for column in &memory.devices {
        if !seen.insert(column.subject) {
            refuse(Impossible::Twice, format!("{} stood twice in one line", column.subject));
            continue;
        }
        let figure = |used: &Option<Bytes>| {
            let used = (*used)?;
            match too_much(known, column.subject, used) {
                Some(said) => {
                    refuse(Impossible::TooMuch, said);
                    None
                }
                None => Some(used),
            }
        };
        devices.push(LiveColumn { subject: column.subject, used: column.used.iter().map(figure).collect() });
    }
    Some(LiveMemory { dt_us: memory.dt_us.clone(), devices })
}

fn node(node: &LiveNode, refuse: &mut impl FnMut(Impossible, String)) -> Option<LiveNode> {
    let is_absurd = |bytes: Option<Bytes>| bytes.is_some_and(|bytes| bytes.0 > MAX_BYTES);
    let mut seen = BTreeSet::new();
    let is_possible = node
        .devices
        .iter()
        .all(|device| seen.insert(device.subject) && !is_absurd(device.total) && !is_absurd(device.reserved));
    if is_possible {
        return None;
    }
    seen.clear();
    let mut node = node.clone();
    node.devices.retain(|device| {
        let is_first = seen.insert(device.subject);
        if !is_first {
            refuse(Impossible::Twice, format!("{} stood twice among the devices", device.subject));
        }
        is_first
    });
    for device in &mut node.devices {
        for figure in [&mut device.total, &mut device.reserved] {
            if let Some(bytes) = figure.take_if(|bytes| bytes.0 > MAX_BYTES) {
                refuse(Impossible::TooMuch, format!("{bytes} of {}", device.subject));
            }
        }
    }
    Some(node)
}

fn process(
    process: &LiveProcess,
    known: &LiveNode,
    refuse: &mut impl FnMut(Impossible, String),
) -> Option<LiveProcess> {
    let too_much = process.used.and_then(|used| too_much(known, process.subject, used));
    let of_job = process.rank.as_ref().and_then(|rank| {
        let (number, size) = (rank.rank.0, rank.world_size);
        match size {
            Some(size) if number >= size => Some(format!("rank {number} of a job of {size}")),
            _ if number > MAX_RANK || size > Some(MAX_RANK) => Some(format!("rank {number}")),
            _ => None,
        }
    });
    if too_much.is_none() && of_job.is_none() {
        return None;
    }
    let mut process = process.clone();
    if let Some(said) = too_much {
        refuse(Impossible::TooMuch, format!("PID {} used {said}", process.pid));
        process.used = None;
    }
    if let Some(said) = of_job {
        refuse(Impossible::NoSuchRank, format!("PID {} is {said}", process.pid));
        // It is there, and nothing is known of its job.
        (process.rank, process.hidden) = (None, true);
    }
    Some(process)
}

/// Refused readings in sentences, those of long ago left out.
pub fn words(refused: &RefusedByKind, now: i64, told_for: i64) -> impl Iterator<Item = String> {
    let lately = refused.iter().filter(move |(_, refused)| now.saturating_sub(refused.last) < told_for);
    lately.map(|(kind, Refused { count, last, said })| {
        let why = match kind {
            Impossible::TooMuch => "more than there can be",
            Impossible::Twice => "the same device twice",
            Impossible::OtherTime => "the node's clock is far off",
            Impossible::NoSuchRank => "a rank that its job does not have",
        };
        let (readings, were) = if *count == 1 { ("reading", "was") } else { ("readings", "were") };
        format!(
            "{count} {readings} {were} refused as impossible ({why}); the last one, at {}: {said}.",
            UnixMicros(*last).clock()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{device, memory, node, processes, rank_process};
    use super::*;
    use rankscope_model::{GIB, LiveDevice};

    const NOW: i64 = 1_764_467_297_000_000;

    /// What is left of a record, and what of it was refused.
    fn sifted(t: i64, record: LiveRecord) -> (Option<LiveRecord>, Vec<(Impossible, u64, String)>) {
        let known =
            LiveNode { devices: vec![LiveDevice { total: Some(Bytes(80 * GIB)), ..device(0) }], ..LiveNode::default() };
        let line = LiveLine { seq: 0, t: UnixMicros(t), record };
        let mut refused = RefusedByKind::new();
        let left = sift(&line, &known, NOW, &mut refused).map(|line| line.into_owned().record);
        let told = refused.into_iter().map(|(kind, refused)| (kind, refused.count, refused.said));
        (left, told.collect())
    }

    #[test]
    fn only_the_impossible_figure_is_refused() {
        let (left, refused) = sifted(NOW, memory(&[(0, &[GIB, 90 * GIB, 2 * GIB]), (0, &[7]), (1, &[u64::MAX])]));
        let Some(LiveRecord::Memory(left)) = left else { panic!("{left:?}") };
        let used: Vec<_> = left.devices.iter().map(|column| column.used.clone()).collect();
        assert_eq!(used, [vec![Some(Bytes(GIB)), None, Some(Bytes(2 * GIB))], vec![None]]);
        assert_eq!(refused[0].1, 2, "{refused:?}");
        assert_eq!((refused[1].0, refused[1].1), (Impossible::Twice, 1));

        let own = rank_process(0, 7, 1, "j");
        let mut other = rank_process(0, 8, 4, "j");
        other.rank.as_mut().unwrap().world_size = Some(4);
        let (left, refused) = sifted(NOW, processes(vec![own.clone(), other]));
        let Some(LiveRecord::Processes(left)) = left else { panic!("{left:?}") };
        assert_eq!(left.processes[0], own);
        assert_eq!(
            (left.processes[1].pid, left.processes[1].rank.is_none(), left.processes[1].hidden),
            (8, true, true)
        );
        assert_eq!(refused, [(Impossible::NoSuchRank, 1, "PID 8 is rank 4 of a job of 4".to_owned())]);

        let (left, refused) = sifted(NOW, node(&[device(0), device(1), device(0)]));
        assert!(matches!(left, Some(LiveRecord::Node(node)) if node.devices.len() == 2));
        assert_eq!((refused[0].0, refused[0].1), (Impossible::Twice, 1));
    }

    #[test]
    fn times_far_from_now_are_none_and_a_spool_of_a_week_is() {
        for t in [0, -1, i64::MIN, i64::MAX, NOW + 90 * 86_400_000_000] {
            let (left, refused) = sifted(t, memory(&[(0, &[7])]));
            assert!(left.is_none() && refused[0].0 == Impossible::OtherTime, "{t}: {refused:?}");
        }
        for t in [NOW - 7 * 86_400_000_000, NOW, NOW + 3_600_000_000] {
            assert_eq!(sifted(t, memory(&[(0, &[7])])), (Some(memory(&[(0, &[7])])), vec![]));
        }
        let (left, _) = sifted(0, node(&[device(0)]));
        assert!(left.is_some(), "what a node is holds at any time");
        assert_eq!(sifted(0, memory(&[])).1[0].2, "its time is 20422 days before this server's");
    }

    #[test]
    fn a_node_says_what_was_refused_for_a_while() {
        let mut refused = RefusedByKind::new();
        let line = LiveLine { seq: 0, t: UnixMicros(0), record: memory(&[(0, &[7])]) };
        for _ in 0..3 {
            sift(&line, &LiveNode::default(), NOW, &mut refused);
        }
        let said: Vec<String> = words(&refused, NOW + 1, 1000).collect();
        assert_eq!(
            said,
            ["3 readings were refused as impossible (the node's clock is far off); the last one, at 01:48:17: its \
              time is 20422 days before this server's."]
        );
        assert_eq!(words(&refused, NOW + 2000, 1000).count(), 0);
    }
}
