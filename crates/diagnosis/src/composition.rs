//! What fills each card, or each rank where no card is known: split as far as the evidence tells, and no further.
//!
//! Knows evidence; draws nothing.

use crate::case::Case;
use crate::policy::UNREADABLE_NAMES;
use crate::refs::refs;
use crate::rules::is_of;
use crate::tables::{Gpu, TableView};
use rankscope_model::{
    Bytes, Composition, OomEvent, Part, PartKind, ProcessListing, ProcessRow, Provenance, Rank, StepRecord, Subject,
};
use std::collections::{BTreeMap, BTreeSet};

/// Figures of the allocator further from a list of processes than this, in microseconds, are of another moment.
const SAME_MOMENT: u64 = 10_000_000;
/// Compositions kept.
const MAX_COMPOSITIONS: usize = 1024;

/// What an allocator reserved, by what it is for.
#[derive(Clone, Copy)]
struct Held {
    allocated: u64,
    /// Freed, and active until another stream is done with it.
    waiting: u64,
    cached: u64,
}

impl Held {
    /// `active` is what the allocator counts so, where that is known.
    fn of(allocated: Bytes, active: Option<Bytes>, reserved: Bytes) -> Self {
        let in_use = active.unwrap_or(allocated).max(allocated).min(reserved.max(allocated));
        Self {
            allocated: allocated.0,
            waiting: in_use.saturating_sub(allocated).0,
            cached: reserved.saturating_sub(in_use).0,
        }
    }

    /// `waiting` of what is not allocated are known to be no cache.
    fn with_waiting(allocated: u64, waiting: u64, unallocated: u64) -> Self {
        let waiting = waiting.min(unallocated);
        Self { allocated, waiting, cached: unallocated - waiting }
    }

    fn reserved(self) -> u64 {
        self.allocated.saturating_add(self.waiting).saturating_add(self.cached)
    }

    fn parts(self) -> [(PartKind, u64); 3] {
        [(PartKind::Allocated, self.allocated), (PartKind::Waiting, self.waiting), (PartKind::Cached, self.cached)]
    }
}

/// Of every card or rank.
pub(crate) fn composition(case: &Case, accused: &BTreeSet<Subject>) -> Vec<Composition> {
    let mut found = match case.focus_with_memory() {
        Some(_) if !case.homes.is_empty() => of_nodes(case, accused),
        Some(view) => {
            let series = case.table_series.iter().find(|series| {
                series.iter().any(|index| case.tables.get(*index).is_some_and(|own| std::ptr::eq(own, view)))
            });
            let view = series.and_then(|series| with_whole_list(case, series)).unwrap_or(view);
            view.gpus.iter().filter_map(|gpu| of_card(case, view, gpu, accused)).collect()
        }
        None => Vec::new(),
    };
    if found.is_empty() {
        found = of_messages(case, accused);
    }
    if found.is_empty() {
        found = of_snapshots(case, accused);
    }
    if found.is_empty() {
        found = of_records(case, accused);
    }
    if found.is_empty() {
        found = of_traces(case, accused);
    }
    found.truncate(MAX_COMPOSITIONS);
    found
}

fn source(case: &Case, places: &[&Provenance]) -> String {
    let mut list = refs(case.evidence, places.iter().copied(), usize::MAX);
    // From the first to the last place in the first file: the rows of a table are not all adjacent.
    let Some(first) = list.first().cloned() else { return String::new() };
    list.retain(|r| r.artifact == first.artifact);
    let end = list.iter().filter_map(|r| r.line_end.or(r.line)).max();
    rankscope_model::EvidenceRef { line_end: end, ..first }.to_string()
}

/// Parts with their bytes; empty ones are left out, the order is that of the kinds.
fn parts(list: impl IntoIterator<Item = (PartKind, u64)>) -> Vec<Part> {
    let mut parts: Vec<Part> =
        list.into_iter().filter(|(_, b)| *b > 0).map(|(kind, bytes)| Part { kind, bytes: Bytes(bytes) }).collect();
    parts.sort_by_key(|part| part.kind);
    parts
}

fn of_card(case: &Case, view: &TableView, gpu: &Gpu, accused: &BTreeSet<Subject>) -> Option<Composition> {
    let used = gpu.used?;
    let sum = |bytes: &mut dyn Iterator<Item = u64>| bytes.fold(0u64, u64::saturating_add);
    let residents = view.residents(gpu.subject, case.policy);
    let visitors = view.visitors(gpu.subject, case.policy);
    let is_nameless = |name: Option<&str>| {
        name.is_some_and(|name| {
            UNREADABLE_NAMES.iter().any(|bad| name.trim_matches(['[', ']']).eq_ignore_ascii_case(bad))
        })
    };
    let owner = residents.first().filter(|row| !is_nameless(row.name.as_deref()));
    let own = owner.and_then(|row| row.used).map_or(0, |b| b.0);
    let others = residents.iter().filter(|row| !owner.is_some_and(|o| std::ptr::eq(*o, **row)));
    let beside = sum(&mut others.chain(&gpu.graphics).filter_map(|row| row.used).map(|b| b.0));
    let visiting = sum(&mut visitors.iter().filter_map(|row| row.used).map(|b| b.0));
    let listed = own.saturating_add(beside).saturating_add(visiting);
    // Rows without a size hold part of what is left, and nobody knows how much: it is not memory of no process.
    let has_unsized = gpu.compute.iter().chain(&gpu.graphics).any(|row| row.used.is_none());
    let left = match () {
        // Without a list nothing says that the memory belongs to no process.
        () if !view.lists_processes() => PartKind::Untold,
        () if has_unsized => PartKind::UnsizedProcesses,
        () => PartKind::Unaccounted,
    };

    let split = owner.and_then(|row| split_of(case, gpu.subject, own).or_else(|| split_of_steps(case, row, own)));
    let mut list =
        vec![(PartKind::OtherRanks, visiting), (PartKind::OtherProcesses, beside), (left, used.saturating_sub(listed))];
    match split {
        Some(held) => {
            list.extend(held.parts());
            list.push((PartKind::OutsidePytorch, own.saturating_sub(held.reserved())));
        }
        None => list.push((PartKind::OwnProcess, own)),
    }
    let places: Vec<&Provenance> =
        std::iter::once(&gpu.row.at).chain(gpu.compute.iter().chain(&gpu.graphics).map(|row| &row.at)).collect();
    Some(Composition {
        subject: gpu.subject,
        capacity: gpu.total.map(Bytes),
        parts: parts(list),
        source: source(case, &places),
        accused: accused.contains(&gpu.subject),
    })
}

/// The table of a series to split cards by: the fullest whose list is whole, since what an older list leaves of a card that
/// moved on belongs to nobody in particular; else the one that shows most.
fn with_whole_list<'c, 'a>(case: &'c Case<'a>, series: &[usize]) -> Option<&'c TableView<'a>> {
    let focus = case.focus_of(series).map(|(_, view)| view)?;
    if focus.table.listing == ProcessListing::Listed || focus.table.at.time.is_none() {
        return Some(focus);
    }
    let now = series.iter().filter(|index| !case.left.is_past(**index));
    let views = now.filter_map(|index| case.tables.get(*index));
    let whole =
        views.filter(|view| view.table.listing == ProcessListing::Listed && view.gpus.len() == focus.gpus.len());
    Some(whole.max_by_key(|view| view.max_used()).unwrap_or(focus))
}

/// The card of each rank of a job on several nodes, under the rank's name.
fn of_nodes(case: &Case, accused: &BTreeSet<Subject>) -> Vec<Composition> {
    let card = |(rank, home): (&Subject, &crate::nodes::Home)| {
        let view = with_whole_list(case, case.table_series.get(home.series)?)?;
        let found = of_card(case, view, view.gpu(home.card)?, accused)?;
        Some(Composition { subject: *rank, accused: accused.contains(rank), ..found })
    };
    case.homes.iter().filter_map(card).collect()
}

/// What the allocator of a card's own process holds, from a message of the same moment: its process figure must agree.
fn split_of(case: &Case, card: Subject, own: u64) -> Option<Held> {
    let is_of_card = |oom: &&OomEvent| oom.device.map(Subject::Device) == Some(card);
    case.evidence.ooms.iter().filter(is_of_card).find_map(|oom| {
        let all = oom.this_process?.0;
        let allocated = oom.allocated?.0;
        let cached = oom.reserved_unallocated?.0;
        let agrees = all.abs_diff(own) as f64 <= own as f64 * case.policy.capacity_tolerance;
        let waiting = waiting_beside(case, oom, Bytes(allocated));
        (agrees && allocated.saturating_add(cached) <= own).then(|| Held::with_waiting(allocated, waiting, cached))
    })
}

/// The same from what the process's own probe or log said nearest to the moment of the list, if it is near and fits into
/// what the driver says of the process.
fn split_of_steps(case: &Case, row: &ProcessRow, own: u64) -> Option<Held> {
    let listed = row.at.time?;
    let rank = row.rank.or_else(|| rank_of_pid(case, row.pid?))?;
    let figures = |step: &StepRecord| {
        let apart = step.at.time?.0.abs_diff(listed.0);
        let fits = step.subject == Subject::Rank(rank) && apart <= SAME_MOMENT;
        Some((apart, step.allocated.filter(|_| fits)?, step.reserved?, step.active))
    };
    let (_, allocated, reserved, active) = case.evidence.steps.iter().filter_map(figures).min()?;
    (allocated <= reserved && reserved.0 <= own).then(|| Held::of(allocated, active, reserved))
}

/// The rank of the one probe that has this PID; in a container it may be another's.
fn rank_of_pid(case: &Case, pid: u32) -> Option<Rank> {
    let mut probes = case.evidence.probes.iter().filter(|probe| probe.start.pid == Some(pid));
    probes.next().filter(|_| probes.next().is_none()).map(|probe| probe.rank)
}

/// What of a message's memory waits for another stream: the statistics of the same rank tell it, if they are of the
/// same moment.
fn waiting_beside(case: &Case, oom: &OomEvent, allocated: Bytes) -> u64 {
    let is_same = |row: &&StepRecord| {
        let known = row.allocated.map_or(u64::MAX, |said| said.0.abs_diff(allocated.0));
        is_of(row.subject, oom) && known as f64 <= allocated.0 as f64 * case.policy.capacity_tolerance
    };
    let rows = case.steps.records().map(|(_, row)| row).filter(is_same);
    rows.filter_map(StepRecord::waiting).max().unwrap_or_default().0
}

fn of_messages(case: &Case, accused: &BTreeSet<Subject>) -> Vec<Composition> {
    let mut found: BTreeMap<Subject, Composition> = BTreeMap::new();
    for oom in case.evidence.ooms.iter().filter(|oom| !oom.host_memory) {
        let subject = match (oom.rank, oom.device) {
            (Some(rank), _) => Subject::Rank(rank),
            (None, Some(device)) => Subject::Device(device),
            (None, None) => continue,
        };
        let Some(allocated) = oom.allocated else { continue };
        let cached =
            oom.reserved_unallocated.or_else(|| Some(oom.reserved?.saturating_sub(allocated))).unwrap_or_default();
        let held = Held::with_waiting(allocated.0, waiting_beside(case, oom, allocated), cached.0);
        let reserved = Bytes(held.reserved());
        let outside = oom.this_process.map_or(Bytes(0), |all| all.saturating_sub(reserved));
        let others: Bytes = oom.others.iter().map(|o| o.used).sum();
        let used = oom.total.zip(oom.free).map(|(total, free)| total.saturating_sub(free));
        let own = reserved.saturating_add(outside);
        // In a container a message does not know its own PID and lists its own process among the others.
        let is_itself = used.is_some_and(|used| case.policy.differs(own.saturating_add(others).0, used.0));
        let others = if is_itself { Bytes(0) } else { others };
        let known = own.saturating_add(others);
        found.insert(
            subject,
            Composition {
                subject,
                capacity: oom.total.filter(|t| t.0 > 0),
                parts: parts(held.parts().into_iter().chain([
                    (PartKind::OutsidePytorch, outside.0),
                    (PartKind::OtherProcesses, others.0),
                    // This process's own context is in it where the message does not tell it apart.
                    (PartKind::Untold, used.map_or(0, |used| used.saturating_sub(known).0)),
                ])),
                source: source(case, &[&oom.at]),
                accused: accused.contains(&subject),
            },
        );
    }
    found.into_values().collect()
}

fn of_snapshots(case: &Case, accused: &BTreeSet<Subject>) -> Vec<Composition> {
    let mut found: BTreeMap<Subject, Composition> = BTreeMap::new();
    for snapshot in &case.evidence.snapshots {
        for device in &snapshot.devices {
            let subject = snapshot.rank.map_or(Subject::Device(device.device), Subject::Rank);
            found.entry(subject).or_insert_with(|| Composition {
                subject,
                capacity: None,
                parts: parts(Held::of(device.allocated, Some(device.active), device.reserved).parts()),
                source: source(case, &[&snapshot.at]),
                accused: accused.contains(&subject),
            });
        }
    }
    found.into_values().collect()
}

/// Of each traced rank or device its peaks. Both are reached within the recording, though perhaps not at one moment.
fn of_traces(case: &Case, accused: &BTreeSet<Subject>) -> Vec<Composition> {
    let of = |(subject, (peak, trace)): (Subject, (Bytes, &rankscope_model::MemoryTrace))| Composition {
        subject,
        capacity: trace.capacity,
        parts: parts([
            (PartKind::Allocated, peak.0),
            (PartKind::Cached, trace.peak_reserved.unwrap_or(peak).saturating_sub(peak).0),
        ]),
        source: source(case, &[&trace.at]),
        accused: accused.contains(&subject),
    };
    crate::traces::fullest(case).into_iter().map(of).collect()
}

/// Of each rank the record with the largest reserved.
fn of_records(case: &Case, accused: &BTreeSet<Subject>) -> Vec<Composition> {
    let mut fullest: BTreeMap<Subject, (Held, &StepRecord)> = BTreeMap::new();
    for (_, row) in case.steps.records() {
        let Some(held) = held_by(row) else { continue };
        let is_fuller = fullest.get(&row.subject).is_none_or(|(known, _)| held.reserved() > known.reserved());
        if is_fuller {
            fullest.insert(row.subject, (held, row));
        }
    }
    let of = |(subject, (held, row)): (Subject, (Held, &StepRecord))| Composition {
        subject,
        capacity: None,
        parts: parts(held.parts()),
        source: source(case, &[&row.at]),
        accused: accused.contains(&subject),
    };
    fullest.into_iter().map(of).collect()
}

/// Peaks where both are known. What waits for another stream is only known of the moment itself.
fn held_by(row: &StepRecord) -> Option<Held> {
    if row.waiting().is_some_and(|waiting| waiting.0 > 0) {
        return Some(Held::of(row.allocated?, row.active, row.reserved?));
    }
    let (allocated, reserved) = match (row.peak_allocated, row.peak_reserved) {
        (Some(allocated), Some(reserved)) => (allocated, reserved),
        _ => row.peak_allocated.or(row.allocated).zip(row.reserved)?,
    };
    Some(Held::of(allocated, None, reserved))
}
