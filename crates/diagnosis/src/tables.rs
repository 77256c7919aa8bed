//! Device tables as the rules see them: who is at home on which GPU, who visits, which cards are comparable.
//!
//! Knows process rows and cards; knows no cause.

use crate::policy::Policy;
use rankscope_model::{Bytes, DeviceRow, DeviceTable, ProcessListing, ProcessRow, Subject};
use std::collections::{BTreeMap, BTreeSet};

/// One table with its processes sorted out.
pub(crate) struct TableView<'a> {
    /// The table.
    pub table: &'a DeviceTable,
    /// Cards that hold memory of their own: physical GPUs, or the slices of those that are split by MIG.
    pub gpus: Vec<Gpu<'a>>,
    /// Every compute process that holds memory somewhere, by PID.
    pub processes: BTreeMap<u32, Process<'a>>,
    /// Rows that say 0 MiB: listed, but holding nothing.
    pub empty_rows: Vec<&'a ProcessRow>,
}

/// One card.
pub(crate) struct Gpu<'a> {
    /// Which.
    pub subject: Subject,
    /// Its row.
    pub row: &'a DeviceRow,
    /// Used bytes, where printed.
    pub used: Option<u64>,
    /// Capacity, where printed.
    pub total: Option<u64>,
    /// Rows of compute processes on it, those with 0 MiB left out.
    pub compute: Vec<&'a ProcessRow>,
    /// Rows of graphics processes on it.
    pub graphics: Vec<&'a ProcessRow>,
}

/// One process and where it holds memory.
pub(crate) struct Process<'a> {
    /// Its rows, 0 MiB left out, in printed order.
    pub rows: Vec<&'a ProcessRow>,
    /// The card where it holds most; `None` when the sizes do not tell.
    pub home: Option<Subject>,
}

impl<'a> Process<'a> {
    /// Bytes at home.
    pub fn home_bytes(&self) -> Option<u64> {
        let home = self.home?;
        self.rows.iter().find(|row| row.subject == home)?.used.map(|b| b.0)
    }

    /// Rows that are clearly smaller than the one at home, or no more than a context.
    pub fn visits(&self, policy: &Policy) -> Vec<&'a ProcessRow> {
        let Some(home) = self.home else { return Vec::new() };
        let home_bytes = self.home_bytes();
        let is_visit = |row: &&&ProcessRow| {
            row.subject != home
                && match (row.used, home_bytes) {
                    (Some(used), Some(base)) => {
                        let is_small_part = (used.0 as f64) < base as f64 * policy.visit_share;
                        // In a small job a context is no small part; it is still a context, and less than home.
                        let is_context = used <= policy.context_max && base.saturating_sub(used.0) >= policy.notice.0;
                        is_small_part || is_context
                    }
                    _ => true,
                }
        };
        self.rows.iter().filter(is_visit).copied().collect()
    }
}

impl<'a> TableView<'a> {
    /// Sorts a table out.
    pub fn new(table: &'a DeviceTable) -> Self {
        let sliced: BTreeSet<u32> = table
            .devices
            .iter()
            .filter(|row| matches!(row.subject, Subject::MigSlice { .. }))
            .filter_map(|row| row.subject.device())
            .collect();
        let mut gpus: Vec<Gpu> = Vec::new();
        for row in &table.devices {
            let is_split = matches!(row.subject, Subject::Device(index) if sliced.contains(&index));
            if is_split || gpus.iter().any(|gpu| gpu.subject == row.subject) {
                continue;
            }
            gpus.push(Gpu {
                subject: row.subject,
                row,
                used: row.used.map(|b| b.0),
                total: row.total.map(|b| b.0).filter(|total| *total > 0),
                compute: Vec::new(),
                graphics: Vec::new(),
            });
        }
        gpus.sort_by_key(|gpu| gpu.subject);

        let mut empty_rows = Vec::new();
        let mut by_pid: BTreeMap<u32, Vec<&ProcessRow>> = BTreeMap::new();
        for row in &table.processes {
            let is_graphics = matches!(row.kind.as_deref().map(str::trim), Some("G"));
            let gpu = gpus.iter_mut().find(|gpu| gpu.subject == row.subject);
            if is_graphics {
                if let Some(gpu) = gpu {
                    gpu.graphics.push(row);
                }
            } else if row.used == Some(Bytes(0)) {
                empty_rows.push(row);
            } else {
                if let Some(gpu) = gpu {
                    gpu.compute.push(row);
                }
                if let Some(pid) = row.pid {
                    by_pid.entry(pid).or_default().push(row);
                }
            }
        }
        let crowded = most_shared(&by_pid);
        let processes =
            by_pid.into_iter().map(|(pid, rows)| (pid, Process { home: home(&rows, crowded), rows })).collect();
        Self { table, gpus, processes, empty_rows }
    }

    /// The card, if the table has it.
    pub fn gpu(&self, subject: Subject) -> Option<&Gpu<'a>> {
        self.gpus.iter().find(|gpu| gpu.subject == subject)
    }

    /// The process list can be taken as what is there.
    pub fn lists_processes(&self) -> bool {
        matches!(self.table.listing, ProcessListing::Listed | ProcessListing::Partial)
            && !(self.processes.is_empty() && self.empty_rows.is_empty())
    }

    /// Rows on `subject` of processes that are at home elsewhere.
    pub fn visitors(&self, subject: Subject, policy: &Policy) -> Vec<&'a ProcessRow> {
        self.processes
            .values()
            .flat_map(|process| process.visits(policy))
            .filter(|row| row.subject == subject)
            .collect()
    }

    /// Rows on `subject` of processes that are at home there, or that hold as much there as at home; largest first.
    pub fn residents(&self, subject: Subject, policy: &Policy) -> Vec<&'a ProcessRow> {
        let mut rows: Vec<&ProcessRow> = self
            .gpu(subject)
            .map(|gpu| gpu.compute.clone())
            .unwrap_or_default()
            .into_iter()
            .filter(|row| {
                row.pid.and_then(|pid| self.processes.get(&pid)).is_none_or(|process| {
                    process.home == Some(subject) || !process.visits(policy).iter().any(|v| std::ptr::eq(*v, *row))
                })
            })
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.used));
        rows
    }

    /// Cards on which someone works. With a process list: those with a resident; without: those above idle.
    pub fn in_use(&self, policy: &Policy) -> Vec<&Gpu<'a>> {
        let is_one_process = is_one_process_job(self, policy);
        self.gpus.iter().filter(|gpu| self.is_in_use(gpu, is_one_process, policy)).collect()
    }

    fn is_in_use(&self, gpu: &Gpu, is_one_process: bool, policy: &Policy) -> bool {
        if self.lists_processes() {
            // One process on several cards uses all of them, however little it holds on some.
            if is_one_process && !gpu.compute.is_empty() {
                return true;
            }
            let has_resident = !self.residents(gpu.subject, policy).is_empty();
            // A card with much memory and no listed process is in use by someone who is not shown.
            return has_resident || (gpu.compute.is_empty() && !gpu.is_idle(policy));
        }
        !gpu.is_idle(policy)
    }

    /// Largest used figure, for choosing the most telling table.
    pub fn max_used(&self) -> Option<u64> {
        self.gpus.iter().filter_map(|gpu| gpu.used).max()
    }

    /// Bytes used on a card that no row accounts for; `None` when a row has no size or the list is not whole.
    pub fn unaccounted(&self, gpu: &Gpu) -> Option<u64> {
        if self.table.listing != ProcessListing::Listed {
            return None;
        }
        let mut listed = 0u64;
        for row in gpu.compute.iter().chain(&gpu.graphics) {
            listed = listed.saturating_add(row.used?.0);
        }
        Some(gpu.used?.saturating_sub(listed))
    }
}

impl Gpu<'_> {
    /// Used memory is what an idle card shows.
    pub fn is_idle(&self, policy: &Policy) -> bool {
        match (self.used, self.total) {
            (Some(used), Some(total)) => (used as f64) < total as f64 * policy.idle_share,
            (Some(used), None) => used < policy.idle.0,
            (None, _) => self.compute.is_empty(),
        }
    }

    /// Used as a share of capacity.
    pub fn fullness(&self) -> Option<f64> {
        Some(self.used? as f64 / self.total? as f64)
    }
}

/// The card on which most processes have a row, for rows without sizes.
fn most_shared(by_pid: &BTreeMap<u32, Vec<&ProcessRow>>) -> Option<Subject> {
    let mut rows_on: BTreeMap<Subject, usize> = BTreeMap::new();
    for row in by_pid.values().flatten() {
        *rows_on.entry(row.subject).or_default() += 1;
    }
    let max = rows_on.values().max().copied().filter(|n| *n >= 2)?;
    rows_on.into_iter().find(|(_, n)| *n == max).map(|(subject, _)| subject)
}

fn home(rows: &[&ProcessRow], crowded: Option<Subject>) -> Option<Subject> {
    match rows {
        [] => return None,
        [only] => return Some(only.subject),
        _ => {}
    }
    if rows.iter().all(|row| row.used.is_some()) {
        // The first of equals: rows are in printed order, which is the cards' order.
        return rows.iter().rev().max_by_key(|row| row.used).map(|row| row.subject);
    }
    // Without sizes: on two cards, one of which everybody is on, home is the other one.
    match rows {
        [a, b] if Some(a.subject) == crowded => Some(b.subject),
        [a, b] if Some(b.subject) == crowded => Some(a.subject),
        _ => None,
    }
}

/// Bytes of all rows together; `None` when a size is not printed: a missing size is not zero.
pub(crate) fn sum_of(rows: &[&ProcessRow]) -> Option<u64> {
    rows.iter().try_fold(0u64, |sum, row| Some(sum.saturating_add(row.used?.0)))
}

/// `871 MiB each`; `memory` when a size is not printed.
pub(crate) fn sizes_of(rows: &[&ProcessRow]) -> String {
    let sizes: Option<Vec<u64>> = rows.iter().map(|row| row.used.map(|b| b.0)).collect();
    sizes.filter(|sizes| !sizes.is_empty()).map_or_else(|| "memory".to_owned(), |sizes| crate::words::sizes(&sizes))
}

/// Cards of equal capacity, largest group first; cards of unknown capacity form their own group.
pub(crate) fn by_capacity<'g, 'a>(gpus: &[&'g Gpu<'a>], policy: &Policy) -> Vec<Vec<&'g Gpu<'a>>> {
    let mut groups: Vec<Vec<&Gpu>> = Vec::new();
    for gpu in gpus {
        let fits = |group: &&mut Vec<&'g Gpu<'a>>| {
            group.first().is_some_and(|first| same_capacity(first.total, gpu.total, policy))
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(gpu),
            None => groups.push(vec![gpu]),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

/// Whether two capacities belong to equal cards.
pub(crate) fn same_capacity(a: Option<u64>, b: Option<u64>, policy: &Policy) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a.abs_diff(b) as f64) <= a.max(b) as f64 * policy.capacity_tolerance,
        (None, None) => true,
        _ => false,
    }
}

/// All capacities belong to equal cards.
pub(crate) fn all_same_capacity(totals: &[u64], policy: &Policy) -> bool {
    match (totals.iter().min(), totals.iter().max()) {
        (Some(min), Some(max)) => same_capacity(Some(*min), Some(*max), policy),
        _ => true,
    }
}

/// One process, and it holds memory on several cards as replicas or as a base with idle contexts. A process that works
/// on a later card and holds one context on the first is not meant: that is a stray context like any other.
pub(crate) fn is_one_process_job(view: &TableView, policy: &Policy) -> bool {
    let mut processes = view.processes.values();
    let (Some(process), None) = (processes.next(), processes.next()) else { return false };
    let Some(home) = process.home else { return false };
    let first_row = process.rows.iter().map(|row| row.subject).min();
    let only_contexts_elsewhere = process
        .rows
        .iter()
        .filter(|row| row.subject != home)
        .all(|row| row.used.is_none_or(|b| b <= policy.context_max));
    process.rows.len() >= 2 && !(process.rows.len() == 2 && only_contexts_elsewhere && first_row != Some(home))
}
