//! The screen of `nvitop`, copied or printed with `nvitop -1`: boxes drawn with lines, devices above, processes below.
//!
//! The screen is no stable format: rows are told by what stands in them. Its sizes are binary.

use super::sink::{Numbering, Sink};
use super::values;
use crate::clock;
use crate::lines::Line;
use rankscope_model::{ArtifactKind, DeviceRow, DeviceTable, Place, ProcessListing, ProcessRow, Provenance, Subject};

const MAX_ROWS: usize = 4096;
/// Lines of other kinds after which a screen is over.
const MAX_GAP: u64 = 3;

/// Gathers screens line by line.
#[derive(Default)]
pub(super) struct NvitopReader {
    open: Option<Open>,
}

struct Open {
    writer: (Option<u32>, Option<u32>),
    table: DeviceTable,
    /// The device whose memory row comes next.
    device: Option<usize>,
    in_processes: bool,
    gap: u64,
}

impl NvitopReader {
    /// Takes a line; `true` if it was part of a screen.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let used = self.try_line(line, sink);
        if used {
            sink.count(ArtifactKind::Nvitop, 1);
        }
        used
    }

    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        if let Some(open) = self.open.take() {
            sink.push(ArtifactKind::Nvitop, open.table, Numbering::Printed);
        }
    }

    fn try_line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        // `Fri Dec 16 10:41:07 2022      (Press h for help or q to quit)`
        if line.body.starts_with(['M', 'T', 'W', 'F', 'S'])
            && let Some((time, _)) = line.body.split_once("(Press h")
        {
            if let Some(at) = clock::parse(time.trim()) {
                sink.see_time(line.number, time.trim(), at);
            }
            return true;
        }
        let is_box = line.body.starts_with(['│', '╒', '╞', '├', '╘', '┌', '└', '╔', '╚', '╠', '║']);
        let is_open = self.open.as_ref().is_some_and(|open| open.writer == line.label.writer());
        if !is_box {
            if let Some(open) = self.open.as_mut().filter(|_| is_open) {
                open.gap = open.gap.saturating_add(1);
                if open.gap > MAX_GAP {
                    self.finish(sink);
                }
            }
            return false;
        }
        if line.body.contains("NVITOP ") {
            self.finish(sink);
            let mut table = DeviceTable::new(sink.at(line));
            if let Some((text, time)) = sink.time_before(line.number) {
                table.time_text = Some(text);
                table.time = Some(time);
                table.at.time = Some(time);
            }
            let version = |label: &str| {
                let (_, rest) = line.body.split_once(label)?;
                values::word(rest.split_ascii_whitespace().next()?.trim_end_matches('│'))
            };
            table.driver_version = version(" Driver Version: ");
            table.cuda_version = version("CUDA Driver Version: ").or_else(|| version("CUDA Version: "));
            let writer = line.label.writer();
            self.open = Some(Open { writer, table, device: None, in_processes: false, gap: 0 });
            return true;
        }
        if !is_open {
            return false;
        }
        let at = sink.at(line);
        if let Some(open) = &mut self.open {
            open.gap = 0;
            open.row(line.body, Provenance { time: open.table.time.or(at.time), ..at });
        }
        true
    }
}

impl Open {
    fn row(&mut self, body: &str, at: Provenance) {
        let cells: Vec<&str> = body.trim_matches('│').split('│').map(str::trim).take(8).collect();
        let Some(first) = cells.first().copied() else { return };
        if first.starts_with("Processes:") {
            self.in_processes = true;
        } else if self.in_processes {
            self.process(first, at);
        } else {
            self.device(&cells, at);
        }
    }

    fn device(&mut self, cells: &[&str], at: Provenance) {
        let (Some(first), Some(second)) = (cells.first(), cells.get(1)) else { return };
        let index = first.split_once(' ').and_then(|(index, rest)| Some((values::index(index)?, rest.trim())));
        let bus_id = second.split(' ').next().filter(|word| values::is_bus_id(word));
        if self.table.devices.len() >= MAX_ROWS {
            return;
        }
        if let (Some((index, rest)), Some(bus_id)) = (index, bus_id) {
            let mode = rest.rsplit_once(' ').filter(|(_, last)| matches!(*last, "On" | "Off" | "N/A" | "WDDM" | "TCC"));
            let name = mode.map_or(rest, |(name, _)| name.trim_end());
            self.device = Some(self.table.devices.len());
            self.table.devices.push(DeviceRow {
                name: values::word(name),
                bus_id: Some(bus_id.to_owned()),
                display_active: second.split(' ').next_back().and_then(values::switch),
                ..DeviceRow::new(at, Subject::Device(index))
            });
            return;
        }
        let Some((used, total)) = second.split_once(" / ") else { return };
        let (used, total) = (values::memory(used, None), values::memory(total, None));
        let is_watched = used.is_some() || total.is_some();
        // The compact screen has one row a device, which begins with the index.
        if let Some((index, _)) = index.filter(|_| is_watched && self.device.is_none()) {
            self.device = Some(self.table.devices.len());
            self.table.devices.push(DeviceRow::new(at.clone(), Subject::Device(index)));
        }
        let Some(row) = self.device.take().and_then(|at| self.table.devices.get_mut(at)) else { return };
        row.used = used;
        row.total = total;
        row.utilization_percent =
            cells.get(2).and_then(|cell| cell.split(' ').next()).filter(|p| p.ends_with('%')).and_then(values::percent);
        if let (Place::Line(name), Place::Line(memory)) = (row.at.place, at.place)
            && memory > name
        {
            row.at = Provenance { place: Place::Lines(name, memory), ..at };
        }
    }

    /// `0 1234567 C    alice  20.1GiB  33   100   1.2  1:23:45  python train.py`
    fn process(&mut self, row: &str, at: Provenance) {
        let words: Vec<&str> = row.split_ascii_whitespace().take(64).collect();
        let [index, pid, kind, _user, size, rest @ ..] = words.as_slice() else { return };
        let (Some(index), Ok(pid)) = (values::index(index), pid.parse::<u32>()) else { return };
        let is_kind = !kind.is_empty() && kind.bytes().all(|b| matches!(b, b'C' | b'G' | b'X' | b'M' | b'+'));
        if !is_kind || self.table.processes.len() >= MAX_ROWS {
            return;
        }
        // SM, CPU and host memory in percent and the time stand before the command.
        let command = rest.get(4..).unwrap_or_default().join(" ");
        self.table.listing = ProcessListing::Listed;
        self.table.processes.push(ProcessRow {
            pid: Some(pid),
            // `X` is nvitop's short form of both.
            kind: Some(if *kind == "X" { "C+G" } else { kind }.to_owned()),
            name: values::word(&command),
            used: values::memory(size, None),
            ..ProcessRow::new(at, Subject::Device(index))
        });
    }
}
