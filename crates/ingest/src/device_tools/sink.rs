//! Where the device-tool readers leave what they found: tables, thinned so that a loop of days stays bounded, links,
//! names of cards, doubts.
//!
//! Knows no format. Numbers cards whose index was not printed as soon as anything in the file tells it.

use super::values::{plain_bus_id, plain_uuid};
use crate::context::ReadContext;
use crate::lines::Line;
use rankscope_model::{
    ArtifactKind, Bytes, CardName, DeviceTable, NUMBERED_BY_ORDER, Place, ProcessListing, Provenance, Subject,
    Topology, UnixMicros,
};
use std::collections::{BTreeMap, BTreeSet};

/// Cards remembered by name; more than this in one file are numbered as they come.
const MAX_CARDS: usize = 4096;
/// Topologies kept of one file.
const MAX_TOPOLOGIES: usize = 64;
/// Lines between a printed time and the reading that it belongs to.
const MAX_TIME_GAP: u64 = 3;

/// How the cards of a table are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// By indices that were printed, or that follow from a complete list in order.
    Printed,
    /// In the order of a list that is not complete.
    ByOrder,
    /// By [`Sink::number`]: no index was printed.
    ByName,
}

/// Cards by the names that tools print for them. The bus id decides where both are known: UUIDs are hidden in some
/// dumps.
#[derive(Default)]
struct Names {
    by_bus_id: BTreeMap<String, Option<u32>>,
    by_uuid: BTreeMap<String, Option<u32>>,
}

impl Names {
    fn get(&self, bus_id: Option<&str>, uuid: Option<&str>) -> Option<u32> {
        let by_bus = bus_id.and_then(|id| self.by_bus_id.get(id));
        by_bus.or_else(|| uuid.and_then(|id| self.by_uuid.get(id))).copied().flatten()
    }

    /// Two nodes in one file may use one bus id for different cards: such a name tells nothing.
    fn put(&mut self, bus_id: Option<&str>, uuid: Option<&str>, number: u32) {
        let put = |map: &mut BTreeMap<String, Option<u32>>, name: Option<&str>| {
            let Some(name) = name else { return };
            if let Some(known) = map.get_mut(name) {
                *known = known.filter(|known| *known == number);
            } else if map.len() < MAX_CARDS {
                map.insert(name.to_owned(), Some(number));
            }
        };
        put(&mut self.by_bus_id, bus_id);
        put(&mut self.by_uuid, uuid);
    }
}

/// A table with what is needed to thin and to number it.
struct Kept {
    table: DeviceTable,
    kind: ArtifactKind,
    numbering: Numbering,
    /// Position among the tables of its kind.
    position: u64,
}

/// What the readers of one file found.
pub(crate) struct Sink<'c> {
    pub(crate) ctx: &'c ReadContext<'c>,
    kept: Vec<Kept>,
    rows: usize,
    seen: BTreeMap<ArtifactKind, u64>,
    /// log2 of the width of a bucket of readings; 0 keeps every one.
    shift: u32,
    thinned: u64,
    topologies: Vec<Topology>,
    /// Cards with a known index.
    known: Names,
    /// The same by UUID, each once, for other files.
    cards: BTreeMap<String, CardName>,
    /// Cards without one, and their numbers until the end.
    unnumbered: Names,
    /// The names of the unnumbered, by number.
    unnumbered_names: Vec<(Option<String>, Option<String>)>,
    lines: BTreeMap<ArtifactKind, u64>,
    /// GPUs that were named, with or without memory.
    devices: BTreeSet<u32>,
    /// Readings that tell no memory: the line of the first.
    without_memory: BTreeMap<ArtifactKind, u64>,
    warnings: Vec<String>,
    time: Option<(u64, String, UnixMicros)>,
}

/// What is handed on at the end.
pub(crate) struct Found {
    pub(crate) tables: Vec<DeviceTable>,
    pub(crate) topologies: Vec<Topology>,
    /// Lines read as each kind.
    pub(crate) lines: BTreeMap<ArtifactKind, u64>,
    pub(crate) warnings: Vec<String>,
    /// GPUs that were named, with or without memory.
    pub(crate) devices: BTreeSet<u32>,
    /// Cards whose UUID was printed with their index.
    pub(crate) cards: Vec<CardName>,
    /// Cards whose UUID was printed without an index, with the numbers that they have here.
    pub(crate) unnumbered: Vec<CardName>,
}

impl<'c> Sink<'c> {
    pub(crate) fn new(ctx: &'c ReadContext<'c>) -> Self {
        Self {
            ctx,
            kept: Vec::new(),
            rows: 0,
            seen: BTreeMap::new(),
            shift: 0,
            thinned: 0,
            topologies: Vec::new(),
            known: Names::default(),
            cards: BTreeMap::new(),
            unnumbered: Names::default(),
            unnumbered_names: Vec::new(),
            lines: BTreeMap::new(),
            devices: BTreeSet::new(),
            without_memory: BTreeMap::new(),
            warnings: Vec::new(),
            time: None,
        }
    }

    /// Counts lines that were read as `kind`.
    pub(crate) fn count(&mut self, kind: ArtifactKind, lines: u64) {
        *self.lines.entry(kind).or_default() = (*self.lines.entry(kind).or_default()).saturating_add(lines);
    }

    /// This line as a place.
    pub(crate) fn at(&self, line: &Line<'_>) -> Provenance {
        line.provenance(self.ctx.artifact)
    }

    pub(crate) fn warn(&mut self, text: String) {
        if self.warnings.len() < self.ctx.limits.max_warnings && !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// A line that is a time and nothing else belongs to the reading that follows at once.
    pub(crate) fn see_time(&mut self, line: u64, text: &str, time: UnixMicros) {
        self.time = Some((line, text.to_owned(), time));
    }

    /// The time printed right before `line`, if there is one.
    pub(crate) fn time_before(&mut self, line: u64) -> Option<(String, UnixMicros)> {
        let (at, ..) = self.time.as_ref()?;
        if line.saturating_sub(*at) > MAX_TIME_GAP {
            return None;
        }
        self.time.take().map(|(_, text, time)| (text, time))
    }

    /// Learns the index of a card from a tool that prints it.
    pub(crate) fn identify(&mut self, bus_id: Option<&str>, uuid: Option<&str>, index: u32) {
        self.known.put(bus_id.and_then(plain_bus_id).as_deref(), uuid.and_then(plain_uuid).as_deref(), index);
    }

    /// Learns the UUID of a card, or of a MIG device on it.
    pub(crate) fn name_card(&mut self, at: &Provenance, uuid: &str, index: u32, mig: Option<u32>) {
        if let Some(plain) = plain_uuid(uuid)
            && (self.cards.len() < MAX_CARDS)
        {
            let card = CardName { at: at.clone(), uuid: uuid.to_owned(), index, mig };
            self.cards.entry(plain).or_insert(card);
        }
    }

    /// A number for a card whose index was not printed; holds for tables with [`Numbering::ByName`] only.
    pub(crate) fn number(&mut self, bus_id: Option<&str>, uuid: Option<&str>) -> Option<u32> {
        let (bus_id, uuid) = (bus_id.and_then(plain_bus_id), uuid.and_then(plain_uuid));
        if let Some(number) = self.unnumbered.get(bus_id.as_deref(), uuid.as_deref()) {
            return Some(number);
        }
        if (bus_id.is_none() && uuid.is_none()) || self.unnumbered_names.len() >= MAX_CARDS {
            return None;
        }
        let number = u32::try_from(self.unnumbered_names.len()).ok()?;
        self.unnumbered.put(bus_id.as_deref(), uuid.as_deref(), number);
        self.unnumbered_names.push((bus_id, uuid));
        Some(number)
    }

    pub(crate) fn push_topology(&mut self, topology: Topology) {
        if self.topologies.len() < MAX_TOPOLOGIES {
            self.topologies.push(topology);
        }
    }

    /// Notes that a GPU was named.
    pub(crate) fn see_device(&mut self, index: u32) {
        if self.devices.len() < MAX_CARDS {
            self.devices.insert(index);
        }
    }

    /// Takes a finished reading. One that tells neither memory nor processes leaves only the names of its GPUs.
    pub(crate) fn push(&mut self, kind: ArtifactKind, table: DeviceTable, numbering: Numbering) {
        for row in table.devices.iter().filter(|_| numbering != Numbering::ByName) {
            if let Subject::Device(index) = row.subject {
                self.identify(row.bus_id.as_deref(), row.uuid.as_deref(), index);
                self.see_device(index);
                if let Some(uuid) = row.uuid.as_deref().filter(|_| numbering == Numbering::Printed) {
                    self.name_card(&row.at, uuid, index, None);
                }
            }
        }
        let has_memory = table.devices.iter().any(|row| row.used.is_some() || row.total.is_some());
        if !has_memory && table.processes.is_empty() && table.listing != ProcessListing::NoneFound {
            if !table.devices.is_empty() {
                self.without_memory.entry(kind).or_insert(first_line(&table.at));
            }
            return;
        }
        let tells_none = !has_memory && table.processes.iter().all(|row| row.used.is_none());
        if kind == ArtifactKind::NvidiaSmiMonitor && tells_none && !table.processes.is_empty() {
            self.without_memory.entry(kind).or_insert(first_line(&table.at));
        }
        self.rows = self.rows.saturating_add(cost(&table));
        let position = self.seen.entry(kind).or_default();
        *position = (*position).saturating_add(1);
        self.kept.push(Kept { table, kind, numbering, position: *position });
        let limit = self.limit();
        // Half as much again as room, so that thinning is rare and its cost stays linear.
        if self.rows > limit.saturating_add(limit / 2) {
            self.thin();
        }
    }

    /// The last reading of `kind`, to add to it what a second query says of the same moment.
    pub(crate) fn last(&mut self, kind: ArtifactKind) -> Option<(&mut DeviceTable, Numbering)> {
        let kept = self.kept.last_mut().filter(|kept| kept.kind == kind)?;
        Some((&mut kept.table, kept.numbering))
    }

    /// Counts rows that were added to a table handed out by [`Self::last`].
    pub(crate) fn added(&mut self, rows: usize) {
        self.rows = self.rows.saturating_add(rows);
    }

    fn limit(&self) -> usize {
        self.ctx.limits.max_device_rows.max(1)
    }

    /// Keeps of every bucket of readings the fullest, and of every card the reading at its peak.
    fn thin(&mut self) {
        let before = self.kept.len();
        let mut peaks: BTreeMap<(ArtifactKind, Subject), (Bytes, usize)> = BTreeMap::new();
        for (at, kept) in self.kept.iter().enumerate() {
            for (subject, used) in figures(&kept.table) {
                let peak = peaks.entry((kept.kind, subject)).or_insert((used, at));
                if used > peak.0 {
                    *peak = (used, at);
                }
            }
        }
        let at_peak: BTreeSet<(ArtifactKind, u64)> =
            peaks.values().filter_map(|(_, at)| self.kept.get(*at)).map(|kept| (kept.kind, kept.position)).collect();
        self.merge_buckets(&at_peak);
        while self.rows > self.limit() && self.shift < 63 {
            self.shift = self.shift.saturating_add(1);
            self.merge_buckets(&at_peak);
        }
        // More cards than room: no bucket can help.
        while self.rows > self.limit() && self.kept.len() > 1 {
            if let Some(kept) = self.kept.pop() {
                self.rows = self.rows.saturating_sub(cost(&kept.table));
            }
        }
        self.thinned = self.thinned.saturating_add(before.saturating_sub(self.kept.len()) as u64);
    }

    fn merge_buckets(&mut self, at_peak: &BTreeSet<(ArtifactKind, u64)>) {
        let mut best: BTreeMap<(ArtifactKind, u64), (Bytes, u64)> = BTreeMap::new();
        for kept in &self.kept {
            let fullest = figures(&kept.table).map(|(_, used)| used).max().unwrap_or_default();
            let entry = best.entry((kept.kind, kept.position >> self.shift)).or_insert((fullest, kept.position));
            if fullest > entry.0 {
                *entry = (fullest, kept.position);
            }
        }
        let shift = self.shift;
        self.kept.retain(|kept| {
            at_peak.contains(&(kept.kind, kept.position))
                || best
                    .get(&(kept.kind, kept.position >> shift))
                    .is_some_and(|(_, position)| *position == kept.position)
        });
        self.rows = self.kept.iter().map(|kept| cost(&kept.table)).sum();
    }

    /// The tables in the order of the file, numbered, and what is doubtful about them.
    pub(crate) fn finish(mut self, plain: &[DeviceTable]) -> Found {
        if self.rows > self.limit() {
            self.thin();
        }
        for row in plain.iter().flat_map(|table| &table.devices) {
            if let Subject::Device(index) = row.subject {
                self.identify(row.bus_id.as_deref(), row.uuid.as_deref(), index);
            }
        }
        let numbers = self.final_numbers();
        let mut doubtful: BTreeMap<ArtifactKind, Provenance> = BTreeMap::new();
        let mut unnumbered = Unnumbered::default();
        let by_order = self.kept.iter().filter(|kept| kept.numbering == Numbering::ByOrder);
        by_order.for_each(|kept| unnumbered.see(&kept.table));
        for kept in self.kept.iter_mut().filter(|kept| kept.numbering == Numbering::ByName) {
            let mut is_sure = true;
            let mut number = |subject: &mut Subject| {
                if let Subject::Device(at) = *subject
                    && let Some((index, sure)) = usize::try_from(at).ok().and_then(|at| numbers.get(at))
                {
                    *subject = Subject::Device(*index);
                    is_sure &= sure;
                }
            };
            kept.table.devices.iter_mut().for_each(|row| number(&mut row.subject));
            kept.table.processes.iter_mut().for_each(|row| number(&mut row.subject));
            if !is_sure {
                unnumbered.see(&kept.table);
                doubtful.entry(kept.kind).or_insert_with(|| kept.table.at.clone());
            }
        }
        for at in doubtful.into_values() {
            let line = first_line(&at);
            self.warn(format!(
                "line {line}: the rows name GPUs without their index, so they are {NUMBERED_BY_ORDER}; add `index` to the \
                 query, or upload the output of `nvidia-smi -L` too, to have their own numbers"
            ));
        }
        for (kind, line) in std::mem::take(&mut self.without_memory) {
            let advice = match kind {
                ArtifactKind::NvidiaSmiMonitor => "run it with `-s m` (dmon) or `-s um` (pmon)",
                ArtifactKind::NvidiaSmiCsv => "add `memory.used,memory.total` to the query",
                ArtifactKind::RocmSmi => "add `--showmeminfo vram`",
                _ => "upload the output of plain `nvidia-smi`",
            };
            self.warn(format!("line {line}: the {} here shows no memory in bytes; {advice}", kind.title()));
        }
        if self.thinned > 0 {
            let width = 1u64 << self.shift.min(63);
            self.warn(format!(
                "{} readings were left out of a long loop: of each {width} the fullest was kept, and of each GPU the \
                 reading at its peak",
                self.thinned
            ));
        }
        let mut tables: Vec<DeviceTable> = self.kept.into_iter().map(|kept| kept.table).collect();
        tables.sort_by_key(|table| table.at.place);
        Found {
            tables,
            topologies: self.topologies,
            lines: self.lines,
            warnings: self.warnings,
            devices: self.devices,
            cards: self.cards.into_values().collect(),
            unnumbered: unnumbered.finish(),
        }
    }

    /// The index of every unnumbered card, and whether it is certain. Cards that nothing names get what is left.
    fn final_numbers(&self) -> Vec<(u32, bool)> {
        let certain: Vec<Option<u32>> = self
            .unnumbered_names
            .iter()
            .map(|(bus_id, uuid)| self.known.get(bus_id.as_deref(), uuid.as_deref()))
            .collect();
        let mut taken: BTreeSet<u32> = certain.iter().flatten().copied().collect();
        let mut next = 0;
        certain
            .into_iter()
            .map(|index| {
                if let Some(index) = index {
                    return (index, true);
                }
                while taken.contains(&next) {
                    next = next.saturating_add(1);
                }
                taken.insert(next);
                (next, false)
            })
            .collect()
    }
}

/// Cards of one file without an index, for other files to number. A file that names more than a node has is of several
/// nodes, and no index of one node is that of another.
#[derive(Default)]
struct Unnumbered {
    cards: BTreeMap<u32, CardName>,
}

impl Unnumbered {
    const MAX: usize = 64;

    fn see(&mut self, table: &DeviceTable) {
        for row in &table.devices {
            if let (Subject::Device(index), Some(uuid)) = (row.subject, &row.uuid)
                && self.cards.len() <= Self::MAX
            {
                let card = || CardName { at: row.at.clone(), uuid: uuid.clone(), index, mig: None };
                self.cards.entry(index).or_insert_with(card);
            }
        }
    }

    fn finish(self) -> Vec<CardName> {
        if self.cards.len() > Self::MAX { Vec::new() } else { self.cards.into_values().collect() }
    }
}

/// Rows that a table holds in memory, its own head counted as one.
fn cost(table: &DeviceTable) -> usize {
    table.devices.len().saturating_add(1).saturating_add(table.processes.len())
}

/// The used figures of a table.
fn figures(table: &DeviceTable) -> impl Iterator<Item = (Subject, Bytes)> + '_ {
    let devices = table.devices.iter().filter_map(|row| Some((row.subject, row.used?)));
    let processes = table.processes.iter().filter_map(|row| Some((row.subject, row.used?)));
    devices.chain(processes)
}

/// The first line of a place.
pub(crate) fn first_line(at: &Provenance) -> u64 {
    match at.place {
        Place::Line(line) | Place::Lines(line, _) => line,
        Place::Offset(_) => 0,
    }
}
