//! One table while it is being read: which section it is in, and what its rows said so far.
//!
//! Knows no line of the text around it.

use super::rows::{
    Header, Parsed, cells, could_be_row, is_frame_or_head, parse_device, parse_process, percent, starts_device,
    used_and_total,
};
use crate::lines::counted;
use rankscope_model::{DeviceRow, DeviceTable, Place, ProcessListing, Provenance, Subject, UnixMicros};

/// GPUs or slices beyond this in one table are not real.
const MAX_ROWS: usize = 4096;

/// A table being read.
pub(super) struct Open {
    pub(super) table: DeviceTable,
    section: Section,
    /// The device whose memory row, and then MIG row, comes next.
    device: Option<usize>,
    /// That device's memory row was there.
    has_memory: bool,
    /// Whether process rows have GI and CI columns; `None` when the head of the list is missing.
    has_instances: Option<bool>,
    list: List,
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

impl Open {
    pub(super) fn new(at: Provenance, time_text: Option<String>, time: Option<UnixMicros>) -> Self {
        Self {
            table: DeviceTable { time_text, time, ..DeviceTable::new(at) },
            section: Section::Devices,
            device: None,
            has_memory: false,
            has_instances: None,
            list: List::default(),
            unread: 0,
            first_unread: 0,
        }
    }

    /// The first row.
    pub(super) fn header(&mut self, header: Header) {
        self.table.driver_version = header.driver;
        self.table.cuda_version = header.cuda;
    }

    /// A line of `+---+`. The one after a process list ends it, and with it the table.
    pub(super) fn rule(&mut self) {
        self.device = None;
        self.list.closed |= self.section == Section::Processes;
    }

    pub(super) fn is_complete(&self) -> bool {
        self.list.closed
    }

    /// Whether a row says something without the line before it.
    pub(super) fn stands_alone(&self, row: &str) -> bool {
        let inner = row.trim_matches('|').trim();
        let is_process = || parse_process(inner, true, self.has_instances).is_some();
        starts_device(row) || (self.section == Section::Processes && (inner.starts_with("No running") || is_process()))
    }

    /// Takes a row; `false` if it is none of this table.
    pub(super) fn row(&mut self, row: &str, number: u64, at: &Provenance) -> bool {
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
        let is_cut_row = !understood && could_be_row(row);
        if is_cut_row {
            self.unread = self.unread.saturating_add(1);
            if self.unread == 1 {
                self.first_unread = number;
            }
        }
        understood || is_cut_row
    }

    fn device_row(&mut self, row: &str, at: &Provenance) -> bool {
        let cells = cells(row);
        if let Some(mut device) = parse_device(&cells) {
            if self.table.devices.len() >= MAX_ROWS {
                return false;
            }
            device.at = at.clone();
            self.table.devices.push(device);
            self.device = Some(self.table.devices.len().saturating_sub(1));
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
        let slice = Subject::MigSlice { device, gpu_instance, compute_instance };
        self.table.devices.push(DeviceRow { used, total, ..DeviceRow::new(at.clone(), slice) });
        true
    }

    fn process_row(&mut self, inner: &str, whole: bool, at: &Provenance) -> bool {
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

    /// The table, and what is doubtful about it; `None` if nothing was in it.
    pub(super) fn finish(mut self) -> Option<(DeviceTable, Vec<String>)> {
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
            let rows = counted(count, "row", "rows");
            warnings.push(format!(
                "line {first}: {rows} of the nvidia-smi table that begins at line {line} could not be read, \
                 probably cut; paste the whole table"
            ));
        }
        if let Some(last) = self.table.devices.last()
            && self.device.is_some()
            && self.table.processes.is_empty()
        {
            // No rule came after the card's rows: the copy was cut inside them.
            let what = if self.has_memory {
                format!("in the rows of {}, so that its processes and what stood after are not known", last.subject)
            } else {
                format!("before the memory of {}", last.subject)
            };
            warnings.push(format!("line {line}: the nvidia-smi table ends {what}; paste the whole table"));
        }
        // Physical GPUs first, whatever order a copy was pasted in.
        self.table.devices.sort_by_key(|row| matches!(row.subject, Subject::MigSlice { .. }));
        Some((self.table, warnings))
    }
}
