//! `nvidia-smi --query-gpu=… --format=csv` and `--query-compute-apps=…`: any columns in any order, looped or not, with
//! and without units and header, alone or between the lines of a log.
//!
//! Columns come from the header, else from the command if the text echoes it. Without both only rows of processes can
//! be told for sure; which of two sizes is used and which is free cannot, so it is not guessed.

mod layout;
mod reading;

use super::sink::Sink;
use super::values;
use crate::lines::{Line, Tally, counted};
use layout::{Layout, Row, What};
use rankscope_model::ArtifactKind;
use reading::{Given, Reading};

/// Lines of other kinds between rows after which a row must be unmistakable.
const MAX_GAP: u64 = 3;
/// Nodes or ranks that may print at once.
const MAX_PRINTERS: usize = 256;
/// Echoed commands remembered.
const MAX_COMMANDS: usize = 8;

/// Gathers readings line by line.
#[derive(Default)]
pub(super) struct CsvReader {
    printers: Vec<Printer>,
    commands: Vec<Layout>,
    cut: Tally,
    headless: Tally,
    /// Rows that name no GPU, left out.
    nameless: Tally,
    /// The same, numbered by their position.
    positional: Tally,
    /// Rows with a size that cannot be.
    impossible: Tally,
}

fn rows(of: Tally) -> String {
    counted(of.count, "row", "rows")
}

/// One writer of rows: what its columns are, and the reading that it prints.
struct Printer {
    writer: (Option<u32>, Option<u32>),
    layout: Layout,
    reading: Option<Reading>,
    /// Lines since the last row.
    gap: u64,
    /// Values came with units: a bare number is then the rest of a cut row.
    has_units: bool,
}

impl CsvReader {
    /// Takes a line; `true` if it was a header or a row.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let writer = line.label.writer();
        if line.body.contains("--query-") {
            self.command(line.body);
            self.close_all(writer, sink);
            return false;
        }
        if let Some(layout) = Layout::header(line.body) {
            self.close_all(writer, sink);
            self.begin(writer, layout, line, sink);
            sink.count(ArtifactKind::NvidiaSmiCsv, 1);
            return true;
        }
        if !line.body.contains(',') && self.printers.is_empty() {
            return false;
        }
        let used = self.row(line, sink);
        if used {
            sink.count(ArtifactKind::NvidiaSmiCsv, 1);
        }
        used
    }

    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        for mut printer in std::mem::take(&mut self.printers) {
            self.close(&mut printer, sink);
        }
        if self.cut.count > 0 {
            sink.warn(format!(
                "line {}: {} of nvidia-smi CSV have fewer cells than the header, probably cut, and were left out",
                self.cut.first,
                rows(self.cut)
            ));
        }
        if self.headless.count > 0 {
            sink.warn(format!(
                "line {}: {} of nvidia-smi CSV have no header, so which size is used, free or total cannot be told; \
                 leave `noheader` out, or add the command with its columns to the file",
                self.headless.first,
                rows(self.headless)
            ));
        }
        if self.impossible.count > 0 {
            sink.warn(format!(
                "line {}: {} of nvidia-smi CSV have a size that cannot be (negative, not a number, or more than any \
                 machine has); those figures were left out",
                self.impossible.first,
                rows(self.impossible)
            ));
        }
        if self.positional.count > 0 {
            sink.warn(format!(
                "line {}: {} of nvidia-smi CSV name no GPU, so the GPUs are numbered in printed order; add `index` to \
                 the query",
                self.positional.first,
                rows(self.positional)
            ));
        }
        if self.nameless.count > 0 {
            sink.warn(format!(
                "line {}: {} of nvidia-smi CSV do not say which GPU they speak of; add `gpu_uuid` (or `index`) to the \
                 query",
                self.nameless.first,
                rows(self.nameless)
            ));
        }
    }

    /// Remembers the columns of an echoed command.
    fn command(&mut self, body: &str) {
        for layout in Layout::commands(body) {
            self.commands.retain(|known| *known != layout);
            if self.commands.len() >= MAX_COMMANDS {
                self.commands.remove(0);
            }
            self.commands.push(layout);
        }
    }

    fn begin(&mut self, writer: (Option<u32>, Option<u32>), layout: Layout, line: &Line<'_>, sink: &mut Sink<'_>) {
        self.printers.retain(|p| p.writer != writer || p.layout.what != layout.what);
        if self.printers.len() >= MAX_PRINTERS {
            let mut oldest = self.printers.remove(0);
            self.close(&mut oldest, sink);
        }
        // A header of processes with nothing under it says that there are none.
        let reading = (layout.what == What::Apps).then(|| Reading::of_none(sink.at(line), line.number));
        self.printers.push(Printer { writer, layout, reading, gap: 0, has_units: false });
    }

    fn row(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let writer = line.label.writer();
        // The layout seen last goes first: it is the block that is being printed.
        for at in (0..self.printers.len()).rev() {
            let Some(printer) = self.printers.get_mut(at).filter(|p| p.writer == writer) else { continue };
            match printer.layout.row(line.body, printer.has_units) {
                Some(row) if printer.gap <= MAX_GAP || row.certain >= 2 => {
                    printer.gap = 0;
                    printer.has_units |= row.has_units;
                    self.take(at, &row, line, sink);
                    return true;
                }
                _ => printer.gap = printer.gap.saturating_add(1),
            }
            if printer.gap <= 1 && printer.layout.is_cut_row(line.body) {
                self.cut.add(line.number);
                return true;
            }
        }
        self.headless_row(line, sink)
    }

    /// A row that no header covers.
    fn headless_row(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let is_possible = line.body.contains(',')
            && (!self.commands.is_empty() || memchr::memmem::find(line.body.as_bytes(), b" MiB").is_some());
        if !is_possible {
            return false;
        }
        let certain = |layout: &&Layout| layout.row(line.body, false).is_some_and(|row| row.certain >= 1);
        let layout = self.commands.iter().rev().find(certain).cloned().or_else(|| Layout::guess(line.body));
        if let Some(layout) = layout {
            self.begin(line.label.writer(), layout, line, sink);
            let at = self.printers.len().saturating_sub(1);
            if let Some(row) = self.printers.get(at).and_then(|p| p.layout.row(line.body, false)) {
                self.take(at, &row, line, sink);
                return true;
            }
        }
        let is_row = layout::is_headless_row(line.body);
        if is_row {
            self.headless.add(line.number);
        }
        is_row
    }

    fn take(&mut self, at: usize, row: &Row<'_>, line: &Line<'_>, sink: &mut Sink<'_>) {
        if row.has_impossible {
            self.impossible.add(line.number);
        }
        let Some(printer) = self.printers.get_mut(at) else { return };
        let what = printer.layout.what;
        let goes_on = printer.reading.as_ref().is_some_and(|reading| reading.takes(row, line.number, sink));
        if !goes_on {
            if let Some(reading) = printer.reading.take().filter(|reading| !reading.is_of_none()) {
                self.finish_reading(reading, what, sink);
            }
            let printed = sink.time_before(line.number);
            if let Some(printer) = self.printers.get_mut(at) {
                printer.reading = Some(Reading::new(what, sink.at(line), printed));
            }
        }
        if let Some(reading) = self.printers.get_mut(at).and_then(|p| p.reading.as_mut()) {
            reading.add(row, line, sink);
        }
    }

    fn close_all(&mut self, writer: (Option<u32>, Option<u32>), sink: &mut Sink<'_>) {
        for at in 0..self.printers.len() {
            let Some(printer) = self.printers.get_mut(at).filter(|p| p.writer == writer) else { continue };
            let what = printer.layout.what;
            if let Some(reading) = printer.reading.take() {
                self.finish_reading(reading, what, sink);
            }
        }
    }

    fn close(&mut self, printer: &mut Printer, sink: &mut Sink<'_>) {
        if let Some(reading) = printer.reading.take() {
            self.finish_reading(reading, printer.layout.what, sink);
        }
    }

    fn finish_reading(&mut self, reading: Reading, what: What, sink: &mut Sink<'_>) {
        let first = reading.first_line();
        match reading.give(what, sink) {
            Given::Whole => {}
            Given::ByPosition(rows) => self.positional.join(first, rows),
            Given::LeftOut(rows) => self.nameless.join(first, rows),
        }
    }
}

/// The cells of a row, trimmed.
fn cells(body: &str, separator: char) -> Vec<&str> {
    body.split(separator).map(str::trim).take(MAX_COLUMNS + 1).collect()
}

/// Columns of the widest query, twice.
const MAX_COLUMNS: usize = 512;

/// Whether a value is printed with its unit, as `csv` without `nounits` does.
fn has_unit(cell: &str) -> bool {
    cell.ends_with("iB") && values::memory(cell, None).is_some()
}
