//! `gpustat` as text: a line with host and time, then one line a GPU. Its MB are MiB.
//!
//! `[0] GeForce RTX 2080 Ti | 45'C,  10 % |  1234 / 11019 MB | alice:python/4321(1200M)`

use super::sink::{Numbering, Sink};
use super::values;
use crate::clock;
use crate::lines::Line;
use rankscope_model::{
    ArtifactKind, DeviceRow, DeviceTable, MIB, ProcessListing, ProcessRow, Provenance, Subject, UnixMicros,
};
use std::collections::BTreeSet;

const MAX_ROWS: usize = 4096;
/// Lines between the line with the time and the first GPU.
const MAX_HEAD_GAP: u64 = 2;
/// Lines of other kinds after which a reading is over.
const MAX_GAP: u64 = 3;

/// Gathers readings line by line.
#[derive(Default)]
pub(super) struct GpustatReader {
    head: Option<Head>,
    open: Option<Open>,
}

struct Head {
    line: u64,
    text: String,
    time: UnixMicros,
    driver: Option<String>,
}

struct Open {
    writer: (Option<u32>, Option<u32>),
    table: DeviceTable,
    seen: BTreeSet<u32>,
    last_line: u64,
}

impl GpustatReader {
    /// Takes a line; `true` if it was part of a reading.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if line.body.starts_with('[') && self.row(line, sink) {
            sink.count(ArtifactKind::Gpustat, 1);
            return true;
        }
        if line.body.len() <= 160 && line.body.contains(':') {
            self.see_head(line);
        }
        false
    }

    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        if let Some(open) = self.open.take() {
            sink.push(ArtifactKind::Gpustat, open.table, Numbering::Printed);
        }
    }

    /// `host  Wed Dec 16 10:41:07 2020  455.45.01`
    fn see_head(&mut self, line: &Line<'_>) {
        let words: Vec<&str> = line.body.split_ascii_whitespace().take(9).collect();
        // Host and five words of time, and perhaps the driver. Most lines of a log end here.
        let is_day = |word: &str| word.len() == 3 && word.starts_with(['M', 'T', 'W', 'F', 'S']);
        if !(6..=8).contains(&words.len()) || words.get(1).is_none_or(|word| !is_day(word)) {
            return;
        }
        let Some(text) = words.get(1..6).map(|words| words.join(" ")) else { return };
        if let Some(time) = clock::parse(&text) {
            let driver = words.get(6).filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
            self.head = Some(Head { line: line.number, text, time, driver: driver.map(|word| (*word).to_owned()) });
        }
    }

    fn row(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some((index, rest)) = line.body.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
            return false;
        };
        let Some(index) = values::index(index) else { return false };
        let cells: Vec<&str> = rest.split('|').map(str::trim).take(16).collect();
        // A progress bar may look like the rest, but has no temperature.
        if !cells.iter().any(|cell| cell.contains("'C") || cell.contains("°C")) {
            return false;
        }
        let Some((memory_at, (used, total))) =
            cells.iter().enumerate().skip(1).find_map(|(at, cell)| Some((at, used_and_total(cell)?)))
        else {
            return false;
        };
        let writer = line.label.writer();
        let goes_on = self.open.as_ref().is_some_and(|open| {
            open.writer == writer
                && !open.seen.contains(&index)
                && open.seen.len() < MAX_ROWS
                && line.number.saturating_sub(open.last_line) <= MAX_GAP
        });
        let at = sink.at(line);
        if !goes_on {
            self.finish(sink);
            self.begin(writer, line, at.clone(), sink);
        }
        let Some(open) = &mut self.open else { return false };
        open.seen.insert(index);
        open.last_line = line.number;
        let subject = Subject::Device(index);
        let at = Provenance { time: open.table.time.or(at.time), ..at };
        let name = cells.first().copied().unwrap_or_default();
        let share = cells.get(1).and_then(|cell| cell.split(',').find_map(|part| part.trim().strip_suffix('%')));
        open.table.devices.push(DeviceRow {
            name: values::word(name),
            used,
            total,
            utilization_percent: share.and_then(values::percent),
            ..DeviceRow::new(at.clone(), subject)
        });
        for cell in cells.iter().skip(memory_at.saturating_add(1)) {
            for word in cell.split_ascii_whitespace().take(MAX_ROWS) {
                if let Some(process) = process(word, &at, subject)
                    && open.table.processes.len() < MAX_ROWS
                {
                    open.table.processes.push(process);
                    open.table.listing = ProcessListing::Listed;
                }
            }
        }
        true
    }

    fn begin(&mut self, writer: (Option<u32>, Option<u32>), line: &Line<'_>, at: Provenance, sink: &mut Sink<'_>) {
        let mut table = DeviceTable::new(at);
        if let Some(head) = self.head.take().filter(|head| line.number.saturating_sub(head.line) <= MAX_HEAD_GAP) {
            table.time = Some(head.time);
            table.time_text = Some(head.text);
            table.driver_version = head.driver;
        } else if let Some((text, time)) = sink.time_before(line.number) {
            table.time = Some(time);
            table.time_text = Some(text);
        } else {
            table.time = line.time;
        }
        table.at.time = table.time;
        self.open = Some(Open { writer, table, seen: BTreeSet::new(), last_line: line.number });
    }
}

type Size = Option<rankscope_model::Bytes>;

/// `1234 / 11019 MB`; `None` when it is no such cell.
fn used_and_total(cell: &str) -> Option<(Size, Size)> {
    let cell = cell.strip_suffix("MB").or_else(|| cell.strip_suffix("MiB"))?;
    let (used, total) = cell.split_once('/')?;
    let is_size = |text: &str| text.trim() == "??" || text.trim().parse::<u64>().is_ok();
    (is_size(used) && is_size(total)).then(|| (values::memory(used, Some(MIB)), values::memory(total, Some(MIB))))
}

/// `alice(1200M)`, `alice:python/4321(1200M)`, `python/4321(?M)`.
fn process(word: &str, at: &Provenance, subject: Subject) -> Option<ProcessRow> {
    let (who, size) = word.strip_suffix("M)")?.rsplit_once('(')?;
    let used = values::memory(size, Some(MIB));
    if used.is_none() && size != "?" {
        return None;
    }
    let command = who.split_once(':').map_or(who, |(_, command)| command);
    let (name, pid) = match command.rsplit_once('/') {
        Some((name, pid)) => (name, pid.parse().ok()),
        None => (command, None),
    };
    // Without `--show-cmd` the only word is the user's name, which is none of the process.
    let has_command = who.contains(':') || pid.is_some();
    Some(ProcessRow {
        pid,
        name: has_command.then(|| name.to_owned()).filter(|name| !name.is_empty()),
        used,
        ..ProcessRow::new(at.clone(), subject)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{ArtifactId, Bytes};

    #[test]
    fn processes_are_read_in_all_their_forms() {
        let at = Provenance::line(ArtifactId(0), 1, "");
        let read = |word| process(word, &at, Subject::Device(0)).map(|p| (p.pid, p.name, p.used));
        assert_eq!(read("alice(12M)"), Some((None, None, Some(Bytes::from_mib(12)))));
        assert_eq!(
            read("alice:python/4321(12M)"),
            Some((Some(4321), Some("python".to_owned()), Some(Bytes::from_mib(12))))
        );
        assert_eq!(read("python/4321(?M)"), Some((Some(4321), Some("python".to_owned()), None)));
        assert_eq!(read("alice"), None);
        assert_eq!(read("(xM)"), None);
    }
}
