//! The plain table of `nvidia-smi`, of every driver from 340 to 610: one, many in a loop, or inside a job log.
//!
//! Layouts differ in width and in the number of rows per GPU, so rows are split on `|` and told apart by what stands
//! in them, never by column offsets. Reads rows only; whether they mean trouble is not known here.

use crate::clock;
use crate::context::{ReadContext, ReadError};
use crate::lines::Line;
use crate::sniff::TextEncoding;
use crate::text;
use rankscope_model::{
    ArtifactId, Bytes, DeviceRow, DeviceTable, Evidence, GIB, KIB, MIB, Place, ProcessListing, ProcessRow, Provenance,
    Subject, UnixMicros,
};
use std::io::BufRead;

/// Reads text and keeps its `nvidia-smi` tables. Text without any gives an empty result, not an error.
pub fn read(input: &mut dyn BufRead, ctx: &ReadContext<'_>) -> Result<Evidence, ReadError> {
    text::read_with(input, TextEncoding::Utf8, ctx, text::Readers { tables: true, steps: false, ooms: false })
}

/// Lines between a time and its table, and non-table lines inside a table, that are still the same printout.
const MAX_GAP: u64 = 3;

/// GPUs or slices beyond this in one table are not real.
const MAX_ROWS: usize = 4096;

/// Gathers tables line by line.
pub(crate) struct TableReader<'c> {
    ctx: &'c ReadContext<'c>,
    tables: Vec<DeviceTable>,
    warnings: Vec<String>,
    open: Option<Open>,
    /// A line that was a time and nothing else: it belongs to the table that follows at once.
    time: Option<(u64, String, UnixMicros)>,
    lines_used: u64,
    dropped: u64,
}

/// A table being read.
struct Open {
    table: DeviceTable,
    section: Section,
    /// The device whose memory row, and then MIG row, comes next.
    device: Option<usize>,
    /// That device's memory row was there.
    has_memory: bool,
    /// Whether process rows have GI and CI columns; `None` when the head of the list is missing.
    has_instances: Option<bool>,
    list: List,
    gap: u64,
    /// Rows that were not understood, and the line of the first.
    unread: u64,
    first_unread: u64,
}

/// What was seen of the process list besides its rows.
#[derive(Debug, Default)]
struct List {
    said_none: bool,
    withheld: bool,
    closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Devices,
    Mig,
    Processes,
}

impl<'c> TableReader<'c> {
    pub(crate) fn new(ctx: &'c ReadContext<'c>) -> Self {
        Self { ctx, tables: Vec::new(), warnings: Vec::new(), open: None, time: None, lines_used: 0, dropped: 0 }
    }

    /// Takes a line; `true` if it was part of a table.
    pub(crate) fn line(&mut self, line: &Line<'_>) -> bool {
        if line.body.is_empty() {
            return false;
        }
        let used = self.try_line(line);
        if used {
            self.lines_used += 1;
            if let Some(open) = &mut self.open {
                open.gap = 0;
            }
        } else if let Some(open) = &mut self.open {
            open.gap += 1;
            if open.gap > MAX_GAP {
                self.close();
            }
        }
        used
    }

    fn try_line(&mut self, line: &Line<'_>) -> bool {
        if let Some(time) = clock::parse(line.body) {
            self.time = Some((line.number, line.body.to_owned(), time));
            // A time starts the next printout of a loop.
            self.close();
            return true;
        }
        let Some(row) = table_part(line.body, self.open.is_some()) else { return false };
        if let Some(header) = Header::parse(row) {
            self.start(line, header);
            return true;
        }
        if row.starts_with('+') {
            return self.open.as_mut().is_some_and(Open::rule);
        }
        let starts = self.open.is_none() && (starts_device(row) || starts_list(row));
        if starts {
            self.start(line, Header::default());
        }
        let at = self.provenance(line);
        match &mut self.open {
            Some(open) => open.row(row, line.number, &at),
            None => false,
        }
    }

    fn start(&mut self, line: &Line<'_>, header: Header) {
        self.close();
        let printed = self.time.take().filter(|(at, ..)| line.number.saturating_sub(*at) <= MAX_GAP);
        let (time_text, time) = printed.map_or((None, None), |(_, text, time)| (Some(text), Some(time)));
        let mut at = Provenance::line(self.ctx.artifact, line.number, line.text);
        at.time = time;
        self.open = Some(Open {
            table: DeviceTable {
                at,
                time_text,
                time,
                driver_version: header.driver,
                cuda_version: header.cuda,
                devices: Vec::new(),
                processes: Vec::new(),
                listing: ProcessListing::Missing,
            },
            section: Section::Devices,
            device: None,
            has_memory: false,
            has_instances: None,
            list: List::default(),
            gap: 0,
            unread: 0,
            first_unread: 0,
        });
    }

    fn provenance(&self, line: &Line<'_>) -> Provenance {
        let mut at = Provenance::line(self.ctx.artifact, line.number, line.text);
        at.time = self.open.as_ref().and_then(|open| open.table.time);
        at
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let Some((table, warnings)) = open.finish() else { return };
        if self.tables.len() >= self.ctx.limits.max_tables {
            self.dropped += 1;
            return;
        }
        if self.warnings.len() < self.ctx.limits.max_warnings {
            self.warnings.extend(warnings);
        }
        self.tables.push(table);
    }

    /// The tables, how many lines they took, and what is doubtful about them.
    pub(crate) fn finish(mut self) -> (Vec<DeviceTable>, u64, Vec<String>) {
        self.close();
        if self.dropped > 0 {
            self.warnings.push(format!(
                "{} more nvidia-smi tables than the limit of {} were left out; upload a shorter stretch",
                self.dropped, self.ctx.limits.max_tables
            ));
        }
        (self.tables, self.lines_used, self.warnings)
    }
}

impl Open {
    /// A line of `+---+`. The one after a process list ends it.
    fn rule(&mut self) -> bool {
        self.device = None;
        if self.section == Section::Processes {
            self.list.closed = true;
        }
        true
    }

    fn row(&mut self, row: &str, number: u64, at: &Provenance) -> bool {
        let inner = row.trim_matches('|').trim();
        if is_frame_or_head(inner) {
            if self.section == Section::Processes && inner.contains("PID") {
                self.has_instances = Some(inner.contains("GI"));
            }
            return true;
        }
        if inner.starts_with("Processes:") || inner.starts_with("Compute processes:") {
            self.section = Section::Processes;
            self.device = None;
            return true;
        }
        if inner.starts_with("MIG devices:") {
            self.section = Section::Mig;
            self.device = None;
            return true;
        }
        let understood = match self.section {
            Section::Devices => self.device_row(row, at),
            Section::Mig => self.mig_row(row, at),
            Section::Processes => self.process_row(inner, row.ends_with('|'), at),
        };
        // A device row after the list (heads lost in a copy) is told by its bus id.
        if !understood && self.section != Section::Devices && starts_device(row) {
            self.section = Section::Devices;
            return self.device_row(row, at);
        }
        let looks_like_row = row.starts_with('|');
        if !understood && looks_like_row {
            self.unread += 1;
            if self.unread == 1 {
                self.first_unread = number;
            }
        }
        understood || looks_like_row
    }

    fn device_row(&mut self, row: &str, at: &Provenance) -> bool {
        let cells = cells(row);
        if let Some(mut device) = parse_device(&cells) {
            if self.table.devices.len() >= MAX_ROWS {
                return false;
            }
            device.at = at.clone();
            self.table.devices.push(device);
            self.device = Some(self.table.devices.len() - 1);
            self.has_memory = false;
            return true;
        }
        let Some(device) = self.device.and_then(|i| self.table.devices.get_mut(i)) else { return false };
        if let Some((used, total)) = cells.get(1).and_then(|c| used_and_total(c)) {
            device.used = used;
            device.total = total;
            device.utilization_percent = cells.get(2).and_then(|c| percent(c));
            self.has_memory = true;
            // The memory row is quoted, the place is both rows.
            if let (Place::Line(name), Place::Line(memory)) = (device.at.place, at.place) {
                device.at = Provenance { place: Place::Lines(name, memory), ..at.clone() };
            }
            return true;
        }
        if let [first, second, mode, ..] = cells.as_slice()
            && first.is_empty()
            && second.is_empty()
        {
            device.mig_enabled = match mode.trim_end_matches('*') {
                "Enabled" => Some(true),
                "Disabled" => Some(false),
                "N/A" | "[N/A]" | "ERR!" => None,
                _ => return false,
            };
            return true;
        }
        false
    }

    fn mig_row(&mut self, row: &str, at: &Provenance) -> bool {
        let cells = cells(row);
        let Some(first) = cells.first() else { return false };
        if first.starts_with("No MIG devices") || first.is_empty() {
            // The second row of a slice: BAR1, which is not VRAM.
            return true;
        }
        let mut ids = first.split_ascii_whitespace().map(str::parse::<u32>);
        let (Some(Ok(device)), Some(Ok(gpu_instance)), Some(Ok(compute_instance))) =
            (ids.next(), ids.next(), ids.next())
        else {
            return false;
        };
        if self.table.devices.len() >= MAX_ROWS {
            return false;
        }
        let (used, total) = cells.get(1).and_then(|c| used_and_total(c)).unwrap_or_default();
        self.table.devices.push(DeviceRow {
            at: at.clone(),
            subject: Subject::MigSlice { device, gpu_instance, compute_instance },
            name: None,
            bus_id: None,
            uuid: None,
            used,
            total,
            utilization_percent: None,
            display_active: None,
            mig_enabled: None,
        });
        true
    }

    fn process_row(&mut self, inner: &str, whole: bool, at: &Provenance) -> bool {
        if self.list.closed {
            return false;
        }
        if inner.starts_with("No running") {
            self.list.said_none = true;
            return true;
        }
        if self.table.processes.len() >= MAX_ROWS {
            return false;
        }
        match parse_process(inner, whole, self.has_instances) {
            Some(Parsed::Row(mut process)) => {
                process.at = at.clone();
                self.list.withheld |= process.pid.is_none();
                self.table.processes.push(*process);
                true
            }
            // `0   Not Supported`: the driver keeps the list of this card to itself.
            Some(Parsed::Withheld) => {
                self.list.withheld = true;
                true
            }
            None => false,
        }
    }

    fn finish(mut self) -> Option<(DeviceTable, Vec<String>)> {
        if self.table.devices.is_empty() && self.table.processes.is_empty() && !self.list.said_none {
            return None;
        }
        let mut warnings = Vec::new();
        let line = match self.table.at.place {
            Place::Line(line) => line,
            _ => 0,
        };
        self.table.listing = match (self.section, self.table.processes.is_empty()) {
            (Section::Processes, false) if self.list.closed && self.unread == 0 && !self.list.withheld => {
                ProcessListing::Listed
            }
            (Section::Processes, false) => ProcessListing::Partial,
            (Section::Processes, true) if self.list.withheld || self.unread > 0 => ProcessListing::Partial,
            (Section::Processes, true) if self.list.said_none || self.list.closed => ProcessListing::NoneFound,
            _ => ProcessListing::Missing,
        };
        if self.unread > 0 {
            let (count, first) = (self.unread, self.first_unread);
            let rows = if count == 1 { "1 row".to_owned() } else { format!("{count} rows") };
            warnings.push(format!(
                "line {first}: {rows} of the nvidia-smi table that begins at line {line} could not be read, \
                 probably cut; paste the whole table"
            ));
        }
        if let Some(last) = self.table.devices.last()
            && self.device.is_some()
            && !self.has_memory
        {
            warnings.push(format!(
                "line {line}: the nvidia-smi table ends before the memory of {}; paste the whole table",
                last.subject
            ));
        }
        // Physical GPUs first, whatever order a copy was pasted in.
        self.table.devices.sort_by_key(|row| matches!(row.subject, Subject::MigSlice { .. }));
        Some((self.table, warnings))
    }
}

/// Versions in the first row.
#[derive(Default)]
struct Header {
    driver: Option<String>,
    cuda: Option<String>,
}

impl Header {
    fn parse(row: &str) -> Option<Self> {
        let (_, after) = row.split_once("NVIDIA-SMI ")?;
        let own = version(after)?;
        let named = |label: &str| after.split_once(label).and_then(|(_, rest)| version(rest));
        let driver = named("Driver Version:").or_else(|| named("KMD Version:"));
        let cuda = named("CUDA Version:").or_else(|| named("CUDA UMD Version:"));
        // `NVIDIA-SMI has failed because ...` has no number behind it and is no header.
        Some(Self { driver: driver.or(Some(own)), cuda })
    }
}

fn version(text: &str) -> Option<String> {
    let word = text.split_ascii_whitespace().next()?.trim_end_matches('|');
    (word.starts_with(|c: char| c.is_ascii_digit()) && word.len() <= 24).then(|| word.to_owned())
}

/// The table row in a line. Prefixes that [`crate::lines`] does not know are passed over inside a table and before
/// a header.
fn table_part(body: &str, inside: bool) -> Option<&str> {
    if body.starts_with('|') || body.starts_with("+-") || body.starts_with("+=") {
        return Some(body);
    }
    let at = body.find('|')?;
    let row = body.get(at..)?;
    (row.starts_with("| NVIDIA-SMI ") || (inside && row.ends_with('|') && row.len() > 2)).then_some(row)
}

/// Whether a row, outside any table, opens one that lost its head.
fn starts_device(row: &str) -> bool {
    parse_device(&cells(row)).is_some()
}

fn starts_list(row: &str) -> bool {
    let inner = row.trim_matches('|').trim();
    matches!(inner, "Processes:" | "MIG devices:")
        || (inner.starts_with("Processes:") && inner.ends_with("GPU Memory"))
        || (inner.starts_with("Compute processes:") && inner.ends_with("GPU Memory"))
}

/// `|====|`, `|----|`, and the words over the columns.
fn is_frame_or_head(inner: &str) -> bool {
    let head = |start: &str, also: &str| inner.starts_with(start) && inner.contains(also);
    inner.bytes().all(|b| matches!(b, b'=' | b'-' | b'+' | b'|' | b' '))
        || head("GPU ", "Name")
        || head("Fan ", "Temp")
        || head("GPU ", "PID")
        || head("GPU ", "MIG")
        || head("ID ", "ID")
        || matches!(inner.trim_matches(['|', ' ']), "MIG M." | "ECC")
}

/// The cells between the bars, trimmed; at most as many as the widest table has.
fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_start_matches('|').split('|').map(str::trim).take(6).collect()
}

/// `0  Tesla V100-SXM2...  On` and `00000000:1A:00.0 Off`.
fn parse_device(cells: &[&str]) -> Option<DeviceRow> {
    let (first, second) = (cells.first()?, cells.get(1)?);
    let (index, name) = first.split_once(' ')?;
    let index: u32 = index.parse().ok().filter(|i| *i < 100_000)?;
    let mut words = second.split_ascii_whitespace();
    let bus_id = words.next().filter(|word| is_bus_id(word))?;
    let name = name.trim();
    let (before, last) = name.rsplit_once(char::is_whitespace).unwrap_or(("", name));
    let is_mode = matches!(last, "On" | "Off" | "On-" | "N/A" | "TCC" | "WDDM" | "MCDM" | "ERR!");
    let name = if is_mode && !before.is_empty() { before.trim_end() } else { name };
    Some(DeviceRow {
        at: Provenance::line(ArtifactId(0), 0, ""),
        subject: Subject::Device(index),
        name: Some(name.to_owned()),
        bus_id: Some(bus_id.to_owned()),
        uuid: None,
        used: None,
        total: None,
        utilization_percent: None,
        display_active: match words.next() {
            Some("On") => Some(true),
            Some("Off") => Some(false),
            _ => None,
        },
        mig_enabled: None,
    })
}

/// `00000000:1A:00.0`, `0000:02:00.0`.
fn is_bus_id(word: &str) -> bool {
    let mut parts = word.split(':');
    let (Some(domain), Some(bus), Some(rest), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    matches!(domain.len(), 4 | 8)
        && hex(domain)
        && hex(bus)
        && rest.split_once('.').is_some_and(|(d, f)| hex(d) && hex(f))
}

/// `4438MiB /  4799MiB`; `1%   31MB / 2047MB` of driver 310; `N/A / N/A`. `None` when it is no such cell.
fn used_and_total(cell: &str) -> Option<(Option<Bytes>, Option<Bytes>)> {
    let (used, total) = cell.split_once('/').filter(|_| !cell.starts_with("N/A")).or_else(|| {
        cell.strip_prefix("N/A").and_then(|rest| rest.trim_start().strip_prefix('/')).map(|t| ("N/A", t))
    })?;
    let used = used.split_ascii_whitespace().last().and_then(memory);
    let total = total.split_ascii_whitespace().next().and_then(memory);
    Some((used, total))
}

/// `123MiB`; a driver that prints MB means MiB.
fn memory(word: &str) -> Option<Bytes> {
    let digits = word.len() - word.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = word.get(..digits)?.parse().ok()?;
    let unit = match word.get(digits..)? {
        "MiB" | "MB" => MIB,
        "GiB" | "GB" => GIB,
        "KiB" | "kB" | "KB" => KIB,
        "B" => 1,
        _ => return None,
    };
    number.checked_mul(unit).map(Bytes)
}

fn percent(cell: &str) -> Option<u8> {
    cell.split_ascii_whitespace().next()?.strip_suffix('%')?.parse().ok().filter(|p| *p <= 100)
}

enum Parsed {
    Row(Box<ProcessRow>),
    Withheld,
}

/// `<gpu> [<gi> <ci>] <pid> [<type>] <name> <memory>`. The name may hold blanks and is shortened from its left.
///
/// A row that is not `whole` was cut, and so may be its last word: it is not taken for a PID or a size.
fn parse_process(inner: &str, whole: bool, has_instances: Option<bool>) -> Option<Parsed> {
    let words = bracketed_words(inner);
    let mut left = words.as_slice();
    let device: u32 = take(&mut left)?.parse().ok().filter(|i| *i < 100_000)?;
    if inner.ends_with("Not Supported") {
        return Some(Parsed::Withheld);
    }
    let number_or_none = |word: &&str| word.parse::<u32>().is_ok() || is_absent(word);
    let instances = has_instances.unwrap_or_else(|| left.iter().take(3).filter(|w| number_or_none(w)).count() == 3);
    let subject = if instances {
        let (gi, ci) = (take(&mut left)?, take(&mut left)?);
        match (gi.parse(), ci.parse()) {
            (Ok(gpu_instance), Ok(compute_instance)) => Subject::MigSlice { device, gpu_instance, compute_instance },
            _ if is_absent(gi) && is_absent(ci) => Subject::Device(device),
            _ => return None,
        }
    } else {
        Subject::Device(device)
    };
    let pid = take(&mut left)?;
    if pid.parse::<u32>().is_err() && !is_absent(pid) {
        return None;
    }
    if left.is_empty() {
        return None;
    }
    let kind = left.first().filter(|w| is_kind(w)).copied();
    if kind.is_some() {
        left = left.get(1..).unwrap_or_default();
    }
    let mut used = None;
    if let Some((last, before)) = left.split_last() {
        used = memory(last);
        // What is no memory belongs to the name, unless it is the beginning of a size that was cut.
        let is_cut_size = !whole && last.starts_with(|c: char| c.is_ascii_digit());
        if used.is_some() || is_absent(last) || is_cut_size {
            left = before;
        }
    }
    let name = left.join(" ");
    Some(Parsed::Row(Box::new(ProcessRow {
        at: Provenance::line(ArtifactId(0), 0, ""),
        subject,
        pid: pid.parse().ok(),
        kind: kind.map(str::to_owned),
        name: (!name.is_empty()).then_some(name),
        used,
        rank: None,
    })))
}

fn take<'a>(words: &mut &[&'a str]) -> Option<&'a str> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    Some(first)
}

/// `C`, `G`, `C+G`, `M+C`.
fn is_kind(word: &str) -> bool {
    !word.is_empty() && word.split('+').all(|part| matches!(part, "C" | "G" | "M"))
}

/// What is printed where there is no value.
fn is_absent(word: &str) -> bool {
    matches!(word, "N/A" | "[N/A]" | "ERR!" | "-") || (word.starts_with('[') && word.ends_with(']'))
}

/// Words, with `[Insufficient Permissions]` as one. At most 64: a name that long is cut by the tool itself.
fn bracketed_words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() && words.len() < 64 {
        let bracket = if rest.starts_with('[') { rest.find(']').map(|at| at + 1) } else { None };
        let end = bracket.or_else(|| rest.find(char::is_whitespace)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        words.push(word);
        rest = after.trim_start();
    }
    words
}
