//! `nvidia-smi dmon` and `pmon`: columns by the names in their `#` lines, one row a GPU or process, for ever.
//!
//! Their MB are MiB. Without the column `fb` they tell no memory.

use super::sink::{Numbering, Sink};
use super::values;
use crate::clock;
use crate::lines::Line;
use rankscope_model::{
    ArtifactKind, DeviceRow, DeviceTable, MIB, ProcessListing, ProcessRow, Provenance, Subject, UnixMicros,
};
use std::collections::BTreeSet;

const MAX_COLUMNS: usize = 64;
const MAX_ROWS: usize = 4096;
/// Nodes that may print at once.
const MAX_PRINTERS: usize = 256;

/// Gathers readings line by line.
#[derive(Default)]
pub(super) struct MonitorReader {
    printers: Vec<Printer>,
}

struct Printer {
    writer: (Option<u32>, Option<u32>),
    columns: Vec<Column>,
    reading: Option<Reading>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Date,
    Time,
    Gpu,
    Pid,
    Kind,
    Memory,
    Utilization,
    Command,
    Other,
}

struct Reading {
    table: DeviceTable,
    seen: BTreeSet<(u32, u32)>,
    last_gpu: u32,
}

/// The cells of one row that matter.
#[derive(Default)]
struct Cells<'a> {
    gpu: u32,
    date: Option<&'a str>,
    time: Option<&'a str>,
    pid: Option<u32>,
    kind: Option<&'a str>,
    memory: Option<&'a str>,
    utilization: Option<&'a str>,
    command: String,
}

impl MonitorReader {
    /// Takes a line; `true` if it was part of a monitor.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let used = match line.body.strip_prefix('#') {
            Some(head) => self.head(head, line, sink),
            None => !self.printers.is_empty() && self.row(line, sink),
        };
        if used {
            sink.count(ArtifactKind::NvidiaSmiMonitor, 1);
        }
        used
    }

    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        for printer in std::mem::take(&mut self.printers) {
            give(printer.reading, sink);
        }
    }

    fn head(&mut self, head: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let words = words(head);
        let is = |word: &str| words.iter().any(|w| w.eq_ignore_ascii_case(word));
        let writer = line.label.writer();
        let at = self.printers.iter().position(|p| p.writer == writer);
        if is("Idx") && at.is_some() {
            // The second line: units.
            return true;
        }
        let is_monitor = is("gpu") && ["pid", "fb", "sm", "pwr", "mclk", "rxpci"].iter().any(|word| is(word));
        if !is_monitor || words.len() > MAX_COLUMNS {
            return false;
        }
        let is_process = is("pid");
        let columns: Vec<Column> = words
            .iter()
            .map(|word| match word.to_ascii_lowercase().as_str() {
                "date" => Column::Date,
                "time" => Column::Time,
                "gpu" => Column::Gpu,
                "pid" => Column::Pid,
                "type" => Column::Kind,
                "fb" => Column::Memory,
                "sm" if !is_process => Column::Utilization,
                "command" => Column::Command,
                _ => Column::Other,
            })
            .collect();
        let has_room = self.printers.len() < MAX_PRINTERS;
        match at.and_then(|at| self.printers.get_mut(at)) {
            // The head comes again every screenful.
            Some(printer) if printer.columns == columns => {}
            Some(printer) => {
                give(printer.reading.take(), sink);
                printer.columns = columns;
            }
            None if has_room => self.printers.push(Printer { writer, columns, reading: None }),
            None => return false,
        }
        true
    }

    fn row(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if !line.body.starts_with(|c: char| c.is_ascii_digit()) {
            return false;
        }
        let writer = line.label.writer();
        let Some(printer) = self.printers.iter_mut().find(|p| p.writer == writer) else { return false };
        let found = cells(&printer.columns, line.body).or_else(|| {
            // `-o T` begins its rows with a time, which is taken off as a prefix.
            let rest = printer.columns.strip_prefix(&[Column::Time])?;
            cells(rest, line.body)
        });
        let Some(found) = found else { return false };
        let is_process = printer.columns.contains(&Column::Pid);
        let goes_on = printer.reading.as_ref().is_some_and(|reading| {
            let key = (found.gpu, found.pid.unwrap_or(u32::MAX));
            !reading.seen.contains(&key) && reading.seen.len() < MAX_ROWS && found.gpu >= reading.last_gpu
        });
        let mut at = sink.at(line);
        let time = stamp(&found).or(line.time);
        at.time = time;
        if !goes_on {
            give(printer.reading.take(), sink);
            let mut table = DeviceTable::new(at.clone());
            table.time = time;
            table.time_text = found.date.zip(found.time).map(|(date, time)| format!("{date} {time}"));
            printer.reading = Some(Reading { table, seen: BTreeSet::new(), last_gpu: 0 });
        }
        if let Some(reading) = &mut printer.reading {
            reading.add(&found, at, is_process);
        }
        true
    }
}

impl Reading {
    fn add(&mut self, cells: &Cells<'_>, at: Provenance, is_process: bool) {
        let subject = Subject::Device(cells.gpu);
        let is_new = self.seen.range((cells.gpu, 0)..=(cells.gpu, u32::MAX)).next().is_none();
        self.seen.insert((cells.gpu, cells.pid.unwrap_or(u32::MAX)));
        self.last_gpu = cells.gpu;
        let memory = cells.memory.and_then(|text| values::memory(text, Some(MIB)));
        if is_new {
            self.table.devices.push(DeviceRow {
                used: if is_process { None } else { memory },
                utilization_percent: cells.utilization.and_then(values::percent),
                ..DeviceRow::new(at.clone(), subject)
            });
        }
        if !is_process {
            return;
        }
        // A GPU without processes has one row of dashes.
        if cells.pid.is_some() {
            self.table.processes.push(ProcessRow {
                pid: cells.pid,
                kind: cells.kind.filter(|kind| *kind != "-").map(str::to_owned),
                name: values::word(&cells.command),
                used: memory,
                ..ProcessRow::new(at, subject)
            });
            self.table.listing = ProcessListing::Listed;
        } else if self.table.listing == ProcessListing::Missing {
            self.table.listing = ProcessListing::NoneFound;
        }
    }
}

fn give(reading: Option<Reading>, sink: &mut Sink<'_>) {
    if let Some(reading) = reading {
        sink.push(ArtifactKind::NvidiaSmiMonitor, reading.table, Numbering::Printed);
    }
}

/// Words between blanks, or between commas as `--format csv` prints.
fn words(text: &str) -> Vec<&str> {
    text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty()).take(MAX_COLUMNS + 1).collect()
}

/// The row in a line: exactly one word a column, but any number for the command, which is last.
fn cells<'a>(columns: &[Column], body: &'a str) -> Option<Cells<'a>> {
    let words = words(body);
    let has_command = columns.last() == Some(&Column::Command);
    if words.len() < columns.len() || (words.len() > columns.len() && !has_command) {
        return None;
    }
    let mut found = Cells::default();
    for (column, word) in columns.iter().zip(&words) {
        let is_number = word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        if !is_number && *word != "-" && matches!(column, Column::Gpu | Column::Pid | Column::Memory | Column::Other) {
            return None;
        }
        match column {
            Column::Gpu => found.gpu = values::index(word)?,
            Column::Date => found.date = Some(word),
            Column::Time => found.time = Some(word),
            Column::Pid => found.pid = word.parse().ok(),
            Column::Kind => {
                let is_kind = word.len() <= 5 && word.bytes().all(|b| matches!(b, b'C' | b'G' | b'M' | b'+' | b'-'));
                found.kind = is_kind.then_some(Some(*word))?;
            }
            Column::Memory => found.memory = Some(word),
            Column::Utilization => found.utilization = Some(word),
            Column::Command | Column::Other => {}
        }
    }
    if has_command {
        found.command = words.get(columns.len().saturating_sub(1)..).unwrap_or_default().join(" ");
    }
    Some(found)
}

/// `20260714` and `08:12:53` of `-o DT`.
fn stamp(cells: &Cells<'_>) -> Option<UnixMicros> {
    let (date, time) = cells.date.zip(cells.time)?;
    let (year, month, day) = (date.get(..4)?, date.get(4..6)?, date.get(6..8)?);
    clock::parse_stamp(&format!("{year}-{month}-{day} {time}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_one_word_a_column() {
        let columns = [Column::Gpu, Column::Pid, Column::Kind, Column::Memory, Column::Command];
        let found = cells(&columns, "1 1864615 C 535 python -m x").unwrap();
        assert_eq!((found.gpu, found.pid, found.memory), (1, Some(1_864_615), Some("535")));
        assert_eq!(found.command, "python -m x");
        assert!(cells(&columns, "1 - - - -").is_some());
        assert!(cells(&columns, "1 of 5 steps done").is_none());
        assert!(cells(&columns, "1 2 C 535").is_none());
    }
}
