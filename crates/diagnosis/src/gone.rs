//! Who held memory beside a job that is watched, and holds none any more: told in the past with its times, and left out of
//! every figure that is about now. Knows device tables with ranks in their lists; names no cause.
//!
//! Only strangers count. What a rank of the job once opened is the job's own doing however the run went on.

use crate::case::Case;
use crate::combine::{Claim, Ledger};
use crate::policy::Policy;
use crate::tables::{Gpu, TableView};
use crate::words;
use rankscope_model::{
    ArtifactKind, Bytes, DeviceEvent, Evidence, Item, LiveStateKind, ProcessListing, ProcessRow, Severity, Subject,
    UnixMicros,
};
use std::collections::{BTreeMap, BTreeSet};

/// Processes that are told one by one; of more the newest.
const MOST_TOLD: usize = 8;
/// Memory of a process is in the figures so long before its first list, in microseconds: lists come once a second.
const LISTED_LATE: i64 = 2_000_000;

/// A process that has left a card.
pub(crate) struct Gone<'a> {
    /// The series of tables of its node (position in [`Case::table_series`]).
    pub series: usize,
    /// Where it held memory.
    pub card: Subject,
    /// When it was listed first and last.
    pub from: UnixMicros,
    /// See [`Self::from`].
    pub until: UnixMicros,
    /// When a list was without it.
    pub since: UnixMicros,
    /// Its row where it held most.
    row: &'a ProcessRow,
}

/// What a table of a series holds of processes that have left since.
enum Beside {
    /// So much of each card, all of it known.
    Held(BTreeMap<Subject, u64>),
    /// Something, but not how much at that moment.
    Unknown,
}

/// All that have left, and the tables in which they still stand.
#[derive(Default)]
pub(crate) struct Left<'a> {
    list: Vec<Gone<'a>>,
    tables: BTreeMap<usize, Beside>,
}

impl<'a> Left<'a> {
    /// Looks through the tables of each node that is watched.
    pub fn new(evidence: &Evidence, tables: &[TableView<'a>], table_series: &[Vec<usize>], policy: &Policy) -> Self {
        let mut left = Self::default();
        for (position, series) in table_series.iter().enumerate() {
            if is_watched(evidence, tables, series) {
                left.look_through(position, series, evidence, tables, policy);
            }
        }
        left
    }

    fn look_through(
        &mut self,
        position: usize,
        series: &[usize],
        evidence: &Evidence,
        tables: &[TableView<'a>],
        policy: &Policy,
    ) {
        let views: Vec<(usize, &TableView<'a>, UnixMicros)> = series
            .iter()
            .filter_map(|index| tables.get(*index).and_then(|view| Some((*index, view, view.table.time?))))
            .collect();
        let Some((_, last, _)) = views.iter().rev().find(|(_, view, _)| view.lists_processes()) else { return };
        let own: BTreeSet<Option<&str>> = views
            .iter()
            .flat_map(|(_, view, _)| &view.table.processes)
            .filter(|row| row.rank.is_some())
            .map(|row| row.name.as_deref())
            .collect();
        let still: BTreeSet<(u32, Subject)> =
            last.table.processes.iter().filter_map(|row| Some((row.pid?, row.subject))).collect();
        let mut found: BTreeMap<(u32, Subject), Gone<'a>> = BTreeMap::new();
        for (_, view, time) in &views {
            for row in &view.table.processes {
                let Some(pid) = row.pid.filter(|pid| !still.contains(&(*pid, row.subject))) else { continue };
                // Helpers bear no rank in a list, but the name of those whom they help.
                if row.rank.is_some() || own.contains(&row.name.as_deref()) || row.used == Some(Bytes(0)) {
                    continue;
                }
                let series = position;
                let begin = || Gone { series, card: row.subject, from: *time, until: *time, since: *time, row };
                let gone = found.entry((pid, row.subject)).or_insert_with(begin);
                gone.until = (*time).max(gone.until);
                if row.used > gone.row.used {
                    gone.row = row;
                }
            }
        }
        found.retain(|_, gone| {
            let is_small = gone.row.used.is_some_and(|used| used < policy.notice);
            !is_small && !is_lost(evidence, gone.row, gone.card)
        });
        for gone in found.values_mut() {
            let without = views.iter().find(|(_, view, time)| *time > gone.until && view.lists_processes());
            gone.since = without.map_or(gone.until, |(.., time)| *time);
        }
        for (index, view, time) in &views {
            if let Some(beside) = beside(&found, view, *time) {
                self.tables.insert(*index, beside);
            }
        }
        // Where they never left it alone, there is no other figure.
        if views.iter().all(|(index, ..)| self.tables.contains_key(index)) {
            for (index, ..) in &views {
                self.tables.remove(index);
            }
        }
        self.list.extend(found.into_values());
        self.list.sort_by_key(|gone| gone.since);
    }

    /// The table shows somebody who has left since.
    pub fn is_past(&self, table: usize) -> bool {
        self.tables.contains_key(&table)
    }

    /// What a card of a table uses without those who have left since; `None` where that is not known.
    pub fn use_without(&self, table: usize, gpu: &Gpu) -> Option<u64> {
        match self.tables.get(&table) {
            None => gpu.used,
            Some(Beside::Unknown) => None,
            Some(Beside::Held(held)) => {
                gpu.used.map(|used| used.saturating_sub(held.get(&gpu.subject).copied().unwrap_or(0)))
            }
        }
    }
}

/// A node's record while its job is watched: every table has a time, and ranks are known.
pub(crate) fn is_watched(evidence: &Evidence, tables: &[TableView], series: &[usize]) -> bool {
    let views = || series.iter().filter_map(|index| tables.get(*index));
    let is_record = |view: &TableView| {
        let artifact = evidence.artifacts.get(view.table.at.artifact.0 as usize);
        artifact.is_some_and(|artifact| artifact.kind == ArtifactKind::LiveRecord) && view.table.time.is_some()
    };
    views().count() >= 2
        && views().all(is_record)
        && views().any(|view| view.table.processes.iter().any(|row| row.rank.is_some()))
}

/// Of a card that does not answer nobody knows who is on it.
fn is_lost(evidence: &Evidence, row: &ProcessRow, card: Subject) -> bool {
    let of_card = |event: &&DeviceEvent| {
        let parent = card.device().map(Subject::Device);
        event.at.artifact == row.at.artifact && (event.subject == Some(card) || event.subject == parent)
    };
    let tells = |event: &&DeviceEvent| matches!(event.kind, LiveStateKind::Lost | LiveStateKind::Ok);
    let last = evidence.events.iter().filter(of_card).filter(tells).max_by_key(|event| event.at.time);
    last.is_some_and(|event| event.kind == LiveStateKind::Lost)
}

/// What a table holds of those who have left since.
fn beside(found: &BTreeMap<(u32, Subject), Gone>, view: &TableView, time: UnixMicros) -> Option<Beside> {
    let mut held: BTreeMap<Subject, u64> = BTreeMap::new();
    let mut is_known = view.table.listing == ProcessListing::Listed;
    for row in &view.table.processes {
        if row.pid.is_some_and(|pid| found.contains_key(&(pid, row.subject))) {
            is_known &= row.used.is_some();
            let sum = held.entry(row.subject).or_default();
            *sum = sum.saturating_add(row.used.map_or(0, |used| used.0));
        }
    }
    let comes = |gone: &Gone| (gone.from.0.saturating_sub(LISTED_LATE)..gone.from.0).contains(&time.0);
    if found.values().any(comes) {
        return Some(Beside::Unknown);
    }
    if held.is_empty() {
        return None;
    }
    Some(if is_known { Beside::Held(held) } else { Beside::Unknown })
}

impl Gone<'_> {
    /// `python3.11 (PID 777)`.
    fn who(&self) -> String {
        let pid = self.row.pid.map_or_else(String::new, |pid| format!(" (PID {pid})"));
        let name = self.row.name.as_deref().map(str::trim).filter(|name| !name.is_empty());
        format!("{}{pid}", name.unwrap_or("a process without a name"))
    }

    /// `from 17:40:05 to 17:42:10`, `at 17:40:05`.
    fn when(&self) -> String {
        words::from_to(self.from, self.until)
    }

    fn how_much(&self) -> String {
        self.row.used.map_or_else(|| "memory of unknown size".to_owned(), |used| format!("up to {used}"))
    }
}

/// One claim for each.
pub(crate) fn tell(case: &Case, ledger: &mut Ledger) {
    let list = &case.left.list;
    let left_out = list.len().saturating_sub(MOST_TOLD);
    for gone in list.iter().skip(left_out) {
        let text = format!(
            "{} {} held {} on {}, and has left it since {}.",
            words::capital(&gone.when()),
            gone.who(),
            gone.how_much(),
            gone.card,
            gone.since.clock()
        );
        claim(ledger, text, case.refs([&gone.row.at]));
    }
    if left_out > 0 {
        let before = words::counted(left_out, "other process", "other processes");
        claim(ledger, format!("Before that {before} came and left the cards of the job."), vec![]);
    }
}

fn claim(ledger: &mut Ledger, text: String, refs: Vec<rankscope_model::EvidenceRef>) {
    ledger.claim(Claim {
        item: Item::DeviceVisibility,
        label: None,
        severity: Severity::Info,
        confidence: 0.95,
        text,
        ranks: vec![],
        refs,
    });
}

/// For the end of the headline: who made a difference, and is gone.
pub(crate) fn sentence(case: &Case) -> Option<String> {
    let mattered = |gone: &&Gone| gone.row.used.is_none_or(|used| used >= case.policy.noise);
    let mut of_note: Vec<&Gone> = case.left.list.iter().filter(mattered).collect();
    let last = of_note.pop()?;
    let node = if case.homes.is_empty() { String::new() } else { format!(" of {}", case.node_of(last.series)?) };
    let (when, who, card, how_much) = (last.when(), last.who(), last.card, last.how_much());
    let text = format!("Earlier, {when}, {who} held {how_much} on {card}{node}; it has left.");
    Some(match of_note.len() {
        0 => text,
        more => format!("{text} Before it, so did {}.", words::counted(more, "other process", "others")),
    })
}
