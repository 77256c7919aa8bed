//! One reading of a CSV loop: rows until a GPU comes again.
//!
//! Knows rows by field; knows no line of text around them.

use super::layout::{Field, Row, What};
use crate::clock;
use crate::device_tools::sink::{Numbering, Sink, first_line};
use crate::device_tools::values;
use crate::lines::Line;
use rankscope_model::{
    ArtifactKind, DeviceRow, DeviceTable, Place, ProcessListing, ProcessRow, Provenance, Subject, UnixMicros,
};
use std::collections::{BTreeMap, BTreeSet};

/// Rows in one reading beyond this are not real.
const MAX_ROWS: usize = 4096;
/// Rows without any name and time that can be one reading: more GPUs than this in a node are not known.
const MAX_NAMELESS: u64 = 16;
/// Rows of one reading are printed this close to each other, where nothing but the time groups them.
const SAME_READING: i64 = 500_000;
/// A query for processes this soon after one for GPUs speaks of the same moment.
const SAME_MOMENT: i64 = 2_000_000;
/// The same by lines where times are missing.
const SAME_MOMENT_LINES: u64 = 6;

/// How many rows named no GPU, and what became of them.
pub(super) enum Given {
    /// None.
    Whole,
    /// Their GPUs were numbered in printed order.
    ByPosition(u64),
    /// They could not be used.
    LeftOut(u64),
}

/// A reading being gathered.
pub(super) struct Reading {
    table: DeviceTable,
    /// GPUs, or GPU and PID, that were in it.
    seen: BTreeSet<(u32, u32)>,
    last_time: Option<UnixMicros>,
    last_line: u64,
    /// Rows without a name of their GPU; they are in the table by position, or left out.
    nameless: u64,
    has_index: bool,
}

impl Reading {
    /// A reading at `at`, with the time that was printed on a line of its own.
    pub(super) fn new(what: What, at: Provenance, printed: Option<(String, UnixMicros)>) -> Self {
        let mut table = DeviceTable::new(at);
        if what == What::Apps {
            // Graphics processes are not in this list.
            table.listing = ProcessListing::Partial;
        }
        if let Some((text, time)) = printed {
            table.time_text = Some(text);
            table.time = Some(time);
            table.at.time = Some(time);
        }
        Self {
            last_line: first_line(&table.at),
            table,
            seen: BTreeSet::new(),
            last_time: None,
            nameless: 0,
            has_index: true,
        }
    }

    pub(super) fn first_line(&self) -> u64 {
        first_line(&self.table.at)
    }

    /// Whether this is a list of processes that has no row so far.
    pub(super) fn is_of_none(&self) -> bool {
        self.table.listing == ProcessListing::NoneFound
    }

    /// A list of processes with a header only.
    pub(super) fn of_none(at: Provenance, line: u64) -> Self {
        let mut reading = Self::new(What::Apps, at, None);
        reading.table.listing = ProcessListing::NoneFound;
        reading.last_line = line;
        reading
    }

    /// Whether `row` belongs to this reading, and does not begin the next.
    pub(super) fn takes(&self, row: &Row<'_>, line: u64, sink: &mut Sink<'_>) -> bool {
        if self.is_of_none() || self.seen.len() >= MAX_ROWS {
            return false;
        }
        let time = row.text(Field::Timestamp).and_then(clock::parse_stamp);
        let is_close = match (time, self.last_time) {
            (Some(now), Some(last)) => now.0.saturating_sub(last.0).abs() <= SAME_READING,
            _ => true,
        };
        let is_app = row.has(Field::ProcessUsed) || row.has(Field::Pid);
        match device_key(row, sink) {
            Some(device) => !self.seen.contains(&(device, pid_key(row))) && (!is_app || is_close),
            None if is_app => is_close,
            None => is_close && (time.is_some() || line.saturating_sub(self.last_line) <= 1),
        }
    }

    /// Adds a row.
    pub(super) fn add(&mut self, row: &Row<'_>, line: &Line<'_>, sink: &mut Sink<'_>) {
        let mut at = sink.at(line);
        if let Some(text) = row.text(Field::Timestamp)
            && let Some(time) = clock::parse_stamp(text)
        {
            at.time = Some(time);
            self.last_time = Some(time);
            if self.table.devices.is_empty() && self.table.processes.is_empty() {
                self.table.time = Some(time);
                self.table.time_text = Some(text.to_owned());
                self.table.at.time = Some(time);
            }
        } else {
            at.time = at.time.or(self.table.time);
            self.table.time = self.table.time.or(line.time);
        }
        self.last_line = line.number;
        if let Some(driver) = row.text(Field::Driver).and_then(values::word) {
            self.table.driver_version.get_or_insert(driver);
        }
        let key = device_key(row, sink);
        self.has_index &= row.text(Field::Index).and_then(values::index).is_some();
        let is_app = row.has(Field::ProcessUsed) || row.has(Field::Pid);
        let device = if let Some(device) = key {
            device
        } else {
            self.nameless = self.nameless.saturating_add(1);
            if is_app {
                return;
            }
            // Rows of one reading are printed in the order of the indices.
            u32::try_from(self.table.devices.len()).unwrap_or(u32::MAX)
        };
        let subject = Subject::Device(device);
        let is_new = self.seen.range((device, 0)..=(device, u32::MAX)).next().is_none();
        self.seen.insert((device, pid_key(row)));
        if is_app {
            if is_new {
                self.table.devices.push(named(row, at.clone(), subject));
            }
            self.add_process(row, at, subject);
        } else {
            self.table.devices.push(DeviceRow {
                used: row.size(Field::Used),
                total: row.size(Field::Total),
                reserved: row.size(Field::Reserved),
                free: row.size(Field::Free),
                utilization_percent: row.text(Field::Utilization).and_then(values::percent),
                display_active: row.text(Field::DisplayActive).and_then(values::switch),
                mig_enabled: row.text(Field::Mig).and_then(values::switch),
                compute_mode: row.text(Field::ComputeMode).and_then(values::word),
                ecc_enabled: row.text(Field::Ecc).and_then(values::switch),
                ..named(row, at, subject)
            });
        }
    }

    fn add_process(&mut self, row: &Row<'_>, at: Provenance, subject: Subject) {
        self.table.processes.push(ProcessRow {
            pid: row.text(Field::Pid).and_then(|pid| pid.parse().ok()),
            kind: Some("C".to_owned()),
            name: row.text(Field::ProcessName).and_then(values::word),
            used: row.size(Field::ProcessUsed),
            ..ProcessRow::new(at, subject)
        });
    }

    /// Hands the reading on.
    pub(super) fn give(self, what: What, sink: &mut Sink<'_>) -> Given {
        let nameless = self.nameless;
        if what == What::Apps {
            self.give_apps(sink);
            return if nameless > 0 { Given::LeftOut(nameless) } else { Given::Whole };
        }
        // Without names nothing tells where one reading of a loop ends, but a few rows can only be one.
        let rows = self.table.devices.len() as u64;
        if nameless > MAX_NAMELESS || (nameless > 0 && nameless != rows) {
            return Given::LeftOut(rows);
        }
        let numbering = if self.has_index || nameless > 0 { Numbering::Printed } else { Numbering::ByName };
        sink.push(ArtifactKind::NvidiaSmiCsv, self.table, numbering);
        if nameless > 0 { Given::ByPosition(nameless) } else { Given::Whole }
    }

    /// Processes go into the reading of the GPUs before them if that names their GPUs and is of the same moment.
    fn give_apps(self, sink: &mut Sink<'_>) {
        let first = first_line(&self.table.at);
        if let Some((gpus, _)) = sink.last(ArtifactKind::NvidiaSmiCsv)
            && gpus.listing == ProcessListing::Missing
            && is_same_moment(gpus, &self.table, first)
            && let Some(subjects) = subjects_in(gpus, &self.table)
        {
            let added = self.table.processes.len();
            gpus.listing = self.table.listing;
            gpus.processes.extend(
                self.table.processes.into_iter().zip(subjects).map(|(row, subject)| ProcessRow { subject, ..row }),
            );
            sink.added(added);
            return;
        }
        sink.push(ArtifactKind::NvidiaSmiCsv, self.table, Numbering::ByName);
    }
}

/// The names of a GPU in a row.
fn named(row: &Row<'_>, at: Provenance, subject: Subject) -> DeviceRow {
    DeviceRow {
        name: row.text(Field::Name).and_then(values::word),
        bus_id: row.text(Field::BusId).and_then(values::word),
        uuid: row.text(Field::Uuid).and_then(values::word),
        ..DeviceRow::new(at, subject)
    }
}

/// The index, or a number for the GPU by its names.
fn device_key(row: &Row<'_>, sink: &mut Sink<'_>) -> Option<u32> {
    row.text(Field::Index)
        .and_then(values::index)
        .or_else(|| sink.number(row.text(Field::BusId), row.text(Field::Uuid)))
}

fn pid_key(row: &Row<'_>) -> u32 {
    row.text(Field::Pid).and_then(|pid| pid.parse().ok()).unwrap_or(u32::MAX)
}

fn is_same_moment(gpus: &DeviceTable, apps: &DeviceTable, apps_line: u64) -> bool {
    if let (Some(a), Some(b)) = (gpus.time, apps.time) {
        return a.0.saturating_sub(b.0).abs() <= SAME_MOMENT;
    }
    let last = gpus.devices.iter().map(|row| match row.at.place {
        Place::Line(line) | Place::Lines(_, line) => line,
        Place::Offset(_) => 0,
    });
    apps_line.saturating_sub(last.max().unwrap_or(0)) <= SAME_MOMENT_LINES
}

/// The subject of every process by the names of its GPU; `None` if the GPUs do not name one of them.
fn subjects_in(gpus: &DeviceTable, apps: &DeviceTable) -> Option<Vec<Subject>> {
    let bus_id = |row: &DeviceRow| row.bus_id.as_deref().and_then(values::plain_bus_id);
    let uuid = |row: &DeviceRow| row.uuid.as_deref().and_then(values::plain_uuid);
    let by_bus_id: BTreeMap<String, Subject> =
        gpus.devices.iter().filter_map(|row| Some((bus_id(row)?, row.subject))).collect();
    let by_uuid: BTreeMap<String, Subject> =
        gpus.devices.iter().filter_map(|row| Some((uuid(row)?, row.subject))).collect();
    let of = |row: &DeviceRow| {
        let found = bus_id(row).and_then(|id| by_bus_id.get(&id));
        found.or_else(|| uuid(row).and_then(|id| by_uuid.get(&id))).copied()
    };
    let subjects: BTreeMap<Subject, Subject> =
        apps.devices.iter().map(|row| Some((row.subject, of(row)?))).collect::<Option<_>>()?;
    apps.processes.iter().map(|row| subjects.get(&row.subject).copied()).collect()
}
