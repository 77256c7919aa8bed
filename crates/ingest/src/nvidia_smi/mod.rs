//! The plain table of `nvidia-smi`, of every driver from 304 to 610: one, many in a loop, of many nodes at once, or
//! inside a job log.
//!
//! Finds the lines that belong together and hands them to a table as rows. Whether figures mean trouble is not known
//! here.

mod rows;
mod table;

use crate::clock;
use crate::context::{ReadContext, ReadError};
use crate::lines::{Label, Line, counted};
use crate::sniff::TextEncoding;
use crate::text;
use rankscope_model::{DeviceTable, Evidence, Provenance, UnixMicros};
use rows::{Header, could_be_row, starts_device, starts_list};
use std::io::BufRead;
use table::Open;

/// Reads text and keeps its `nvidia-smi` tables. Text without any gives an empty result, not an error.
pub fn read(input: &mut dyn BufRead, ctx: &ReadContext<'_>) -> Result<Evidence, ReadError> {
    text::read_with(
        input,
        TextEncoding::Utf8,
        ctx,
        text::Readers { tables: true, steps: false, ooms: false, story: false },
    )
}

/// Lines between a time and its table, and other lines of the same writer inside a table, that are still the same
/// printout.
const MAX_GAP: u64 = 3;
/// Nodes that may print at once; the one that was silent longest is taken for finished.
const MAX_PRINTERS: usize = 256;
/// A row narrower than this was not broken by a terminal.
const MIN_TERMINAL: usize = 40;
/// Bars of the widest row, that of a MIG device.
const MAX_BARS: usize = 5;

/// Gathers tables line by line.
pub(crate) struct TableReader<'c> {
    ctx: &'c ReadContext<'c>,
    tables: Vec<DeviceTable>,
    warnings: Vec<String>,
    /// Who is printing a table, or has just printed the time that stands before one.
    printers: Vec<Printer>,
    /// Characters of the last `+---` line: a row as wide as that was broken by the terminal's edge.
    rule_width: usize,
    lines_used: u64,
    dropped: u64,
}

/// One source of tables: nodes of a job print into one log at the same time.
struct Printer {
    writer: (Option<u32>, Option<u32>),
    /// Text before the row that is no prefix known to [`crate::lines`], such as the host that `pdsh` prints.
    prefix: String,
    open: Option<Open>,
    /// A line that was a time and nothing else belongs to the table that follows at once.
    time: Option<(u64, String, UnixMicros)>,
    /// A row that a narrow terminal broke: its first part.
    held: Option<Held>,
    gap: u64,
}

struct Held {
    row: String,
    has_indent: bool,
    number: u64,
    at: Provenance,
}

impl<'c> TableReader<'c> {
    pub(crate) fn new(ctx: &'c ReadContext<'c>) -> Self {
        Self {
            ctx,
            tables: Vec::new(),
            warnings: Vec::new(),
            printers: Vec::new(),
            rule_width: 0,
            lines_used: 0,
            dropped: 0,
        }
    }

    /// Takes a line; `true` if it was part of a table.
    pub(crate) fn line(&mut self, line: &Line<'_>) -> bool {
        if line.body.is_empty() {
            return false;
        }
        let used = self.try_line(line);
        self.lines_used = self.lines_used.saturating_add(u64::from(used));
        used
    }

    fn try_line(&mut self, line: &Line<'_>) -> bool {
        if let Some(time) = clock::parse(line.body) {
            // A time starts the next printout of a loop.
            let index = self.printer(line.label, "");
            self.close(index);
            if let Some(printer) = self.printers.get_mut(index) {
                printer.time = Some((line.number, line.body.to_owned(), time));
            }
            return true;
        }
        if self.goes_on(line) {
            return self.other(line);
        }
        let Some((prefix, row)) = split(line.body) else { return self.other(line) };
        if row.starts_with('+') {
            self.rule_width = row.chars().count();
        }
        let known = self.find(line.label, prefix);
        let header = Header::parse(row);
        let begins = header.is_some() || (prefix.is_empty() && (starts_device(row) || starts_list(row)));
        let is_open = known.and_then(|i| self.printers.get(i)).is_some_and(|p| p.open.is_some());
        if !is_open && !begins {
            return self.other(line);
        }
        let index = known.unwrap_or_else(|| self.printer(line.label, prefix));
        let at = Provenance::line(self.ctx.artifact, line.number, line.text);
        if let Some(header) = header {
            self.start(index, line.number, at.clone());
            if let Some(open) = self.printers.get_mut(index).and_then(|p| p.open.as_mut()) {
                open.header(header);
            }
            self.hold(index, row, line, at);
            return true;
        }
        if !is_open {
            self.start(index, line.number, at.clone());
        }
        self.let_go(index);
        if row.starts_with('+') {
            self.rule(index);
            return true;
        }
        if self.hold(index, row, line, at.clone()) {
            return true;
        }
        self.row(index, row, line.number, at)
    }

    /// Whether a line is the rest of a held row although it begins with a bar: behind blanks that the row has not, or
    /// where a row was broken between words, in front of a bar.
    fn goes_on(&self, line: &Line<'_>) -> bool {
        if !line.body.ends_with('|') {
            return false;
        }
        let Some(printer) = self.find(line.label, "").and_then(|index| self.printers.get(index)) else { return false };
        let Some(held) = &printer.held else { return false };
        let is_rest = || {
            line.body.starts_with('|')
                && (!held.row.ends_with('|') || is_blank(&held.row))
                && !line.body.contains(['=', '-', '+'])
                && bars(&held.row).saturating_add(bars(line.body)) <= MAX_BARS
                && printer.open.as_ref().is_some_and(|open| !open.stands_alone(line.body))
        };
        (has_indent(line) && !held.has_indent) || is_rest()
    }

    /// A line that is no row: perhaps the rest of one, else it counts against the table of its writer.
    fn other(&mut self, line: &Line<'_>) -> bool {
        let Some(index) = self.find(line.label, "") else { return false };
        if let Some(held) = self.printers.get_mut(index).and_then(|p| p.held.take()) {
            if line.body.ends_with(['|', '+']) {
                let is_broken_word = held.row.chars().count() >= self.rule_width && !has_indent(line);
                let row = format!("{}{}{}", held.row, if is_broken_word { "" } else { " " }, line.body);
                match Header::parse(&row) {
                    Some(header) => {
                        if let Some(open) = self.printers.get_mut(index).and_then(|p| p.open.as_mut()) {
                            open.header(header);
                        }
                    }
                    None => {
                        self.row(index, &row, held.number, held.at);
                    }
                }
                return true;
            }
            self.give(index, held);
        }
        if line.body.bytes().all(|b| matches!(b, b'-' | b'=' | b'+' | b'|')) {
            return true;
        }
        if let Some(printer) = self.printers.get_mut(index) {
            printer.gap = printer.gap.saturating_add(1);
            if printer.gap > MAX_GAP {
                self.close(index);
                self.printers.remove(index);
            }
        }
        false
    }

    fn find(&self, label: Label, prefix: &str) -> Option<usize> {
        let writer = label.writer();
        self.printers.iter().position(|p| p.writer == writer && p.prefix == prefix)
    }

    fn printer(&mut self, label: Label, prefix: &str) -> usize {
        if let Some(index) = self.find(label, prefix) {
            return index;
        }
        if self.printers.len() >= MAX_PRINTERS {
            self.close(0);
            self.printers.remove(0);
        }
        let prefix = prefix.to_owned();
        self.printers.push(Printer { writer: label.writer(), prefix, open: None, time: None, held: None, gap: 0 });
        self.printers.len().saturating_sub(1)
    }

    fn start(&mut self, index: usize, number: u64, mut at: Provenance) {
        self.close(index);
        let Some(printer) = self.printers.get_mut(index) else { return };
        let near = |at: u64| number.saturating_sub(at) <= MAX_GAP.saturating_mul(MAX_PRINTERS as u64);
        let printed = printer.time.take().filter(|(at, ..)| near(*at));
        let (text, time) = printed.map_or((None, None), |(_, text, time)| (Some(text), Some(time)));
        at.time = time;
        printer.gap = 0;
        printer.open = Some(Open::new(at, text, time));
    }

    /// Keeps a row that does not end, in case the next line is its rest. A row of blanks, or of two cells out of three,
    /// may have been broken right behind a bar.
    fn hold(&mut self, index: usize, row: &str, line: &Line<'_>, at: Provenance) -> bool {
        let bars = bars(row);
        let is_open_ended = !row.ends_with('|') || bars == 3 || is_blank(row);
        let holds = is_open_ended && row.len() >= MIN_TERMINAL && row.starts_with('|') && could_be_row(row);
        if let (true, Some(printer)) = (holds, self.printers.get_mut(index)) {
            printer.held = Some(Held { row: row.to_owned(), has_indent: has_indent(line), number: line.number, at });
        }
        holds
    }

    /// Reads a held row as it is: nothing came after it.
    fn let_go(&mut self, index: usize) {
        if let Some(held) = self.printers.get_mut(index).and_then(|p| p.held.take()) {
            self.give(index, held);
        }
    }

    fn give(&mut self, index: usize, held: Held) {
        if Header::parse(&held.row).is_none() {
            self.row(index, &held.row, held.number, held.at);
        }
    }

    fn row(&mut self, index: usize, row: &str, number: u64, mut at: Provenance) -> bool {
        let Some(printer) = self.printers.get_mut(index) else { return false };
        let Some(open) = &mut printer.open else { return false };
        at.time = open.table.time;
        let used = open.row(row, number, &at);
        printer.gap = if used { 0 } else { printer.gap.saturating_add(1) };
        used
    }

    fn rule(&mut self, index: usize) {
        let Some(printer) = self.printers.get_mut(index) else { return };
        printer.gap = 0;
        if let Some(open) = &mut printer.open {
            open.rule();
            if open.is_complete() {
                self.close(index);
            }
        }
    }

    fn close(&mut self, index: usize) {
        self.let_go(index);
        let Some(open) = self.printers.get_mut(index).and_then(|p| p.open.take()) else { return };
        let Some((table, warnings)) = open.finish() else { return };
        if self.tables.len() >= self.ctx.limits.max_tables {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        if self.warnings.len() < self.ctx.limits.max_warnings {
            self.warnings.extend(warnings);
        }
        self.tables.push(table);
    }

    /// The tables in the order of the file, how many lines they took, and what is doubtful about them.
    pub(crate) fn finish(mut self) -> (Vec<DeviceTable>, u64, Vec<String>) {
        for index in 0..self.printers.len() {
            self.close(index);
        }
        if self.dropped > 0 {
            self.warnings.push(format!(
                "{} left out beyond the limit of {}; upload a shorter stretch",
                counted(self.dropped, "nvidia-smi table was", "nvidia-smi tables were"),
                self.ctx.limits.max_tables
            ));
        }
        self.tables.sort_by_key(|table| table.at.place);
        (self.tables, self.lines_used, self.warnings)
    }
}

fn is_blank(row: &str) -> bool {
    row.bytes().all(|b| matches!(b, b'|' | b' '))
}

fn bars(row: &str) -> usize {
    row.bytes().filter(|b| *b == b'|').count()
}

/// Whether blanks stand in front of a line, beyond the one that ends a prefix.
fn has_indent(line: &Line<'_>) -> bool {
    let before = line.text.strip_suffix(line.body).unwrap_or_default();
    before.ends_with("  ") || (before.ends_with(' ') && before.trim().is_empty())
}

/// The row in a line and the text before it; without a bar or a rule there is none.
fn split(body: &str) -> Option<(&str, &str)> {
    if body.starts_with('|') || body.starts_with("+-") || body.starts_with("+=") {
        return Some(("", body));
    }
    let bar = body.find('|').into_iter();
    let at = bar.chain(body.find("+-")).min()?;
    // The rest of a wrapped row has nothing behind its bar.
    let row = body.get(at..).filter(|row| row.len() > 2)?;
    Some((body.get(..at)?, row))
}
