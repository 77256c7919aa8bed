//! Which columns a CSV has, and whether a line is a row of it.
//!
//! Knows the names of fields and the look of their values; knows no reading.

use super::{MAX_COLUMNS, cells, has_unit};
use crate::clock;
use crate::device_tools::values;
use rankscope_model::MIB;

/// What one row speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A GPU.
    Gpus,
    /// A process on a GPU.
    Apps,
}

/// The fields that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Timestamp,
    Index,
    Name,
    BusId,
    Uuid,
    Driver,
    Used,
    Total,
    Free,
    Reserved,
    Utilization,
    DisplayActive,
    Mig,
    ComputeMode,
    Ecc,
    Pid,
    ProcessName,
    ProcessUsed,
    Other,
}

impl Field {
    /// By the name in a header or in a query. Both the field names and their aliases of the manual.
    fn named(name: &str) -> Self {
        match name {
            "timestamp" => Self::Timestamp,
            "index" => Self::Index,
            "name" | "gpu_name" => Self::Name,
            "pci.bus_id" | "gpu_bus_id" => Self::BusId,
            "uuid" | "gpu_uuid" => Self::Uuid,
            "driver_version" => Self::Driver,
            "memory.used" => Self::Used,
            "memory.total" => Self::Total,
            "memory.free" => Self::Free,
            "memory.reserved" => Self::Reserved,
            "utilization.gpu" => Self::Utilization,
            "display_active" => Self::DisplayActive,
            "mig.mode.current" => Self::Mig,
            "compute_mode" => Self::ComputeMode,
            "ecc.mode.current" => Self::Ecc,
            "pid" => Self::Pid,
            "process_name" => Self::ProcessName,
            "used_gpu_memory" | "used_memory" => Self::ProcessUsed,
            _ => Self::Other,
        }
    }

    fn is_size(self) -> bool {
        matches!(self, Self::Used | Self::Total | Self::Free | Self::Reserved | Self::ProcessUsed)
    }
}

/// One column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Column {
    field: Field,
    /// Bytes of the unit in the header, for values without one.
    unit: u64,
}

/// The columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) what: What,
    columns: Vec<Column>,
    separator: char,
}

/// The cells of a row, by field.
pub(super) struct Row<'a> {
    cells: Vec<(Field, u64, std::borrow::Cow<'a, str>)>,
    /// Cells that no other text would have in their places: times, ids, sizes with their unit.
    pub(super) certain: usize,
    /// A size came with its unit.
    pub(super) has_units: bool,
    /// A size cannot be, and is none.
    pub(super) has_impossible: bool,
}

impl Row<'_> {
    pub(super) fn text(&self, field: Field) -> Option<&str> {
        self.cells.iter().find(|(f, ..)| *f == field).map(|(.., text)| text.as_ref())
    }

    /// A size in bytes.
    pub(super) fn size(&self, field: Field) -> Option<rankscope_model::Bytes> {
        let (_, unit, text) = self.cells.iter().find(|(f, ..)| *f == field)?;
        values::memory(text, Some(*unit))
    }

    pub(super) fn has(&self, field: Field) -> bool {
        self.cells.iter().any(|(f, ..)| *f == field)
    }
}

impl Layout {
    /// A header: `timestamp, index, memory.used [MiB]`.
    pub(super) fn header(body: &str) -> Option<Self> {
        if !body.starts_with(|c: char| c.is_ascii_lowercase()) {
            return None;
        }
        let mut columns = Vec::new();
        let mut has_unit_names = false;
        // The tool writes commas; spreadsheets save with what their country has.
        let separator = [',', ';', '\t'].into_iter().find(|separator| body.contains(*separator)).unwrap_or(',');
        for cell in body.split(separator) {
            let cell = cell.trim();
            let (name, unit) = match cell.split_once(" [") {
                Some((name, unit)) => (name, Some(unit.strip_suffix(']')?)),
                None => (cell, None),
            };
            if !is_field_name(name) || columns.len() >= MAX_COLUMNS {
                return None;
            }
            let unit = unit.and_then(values::unit);
            has_unit_names |= unit.is_some();
            columns.push(Column { field: Field::named(name), unit: unit.unwrap_or(MIB) });
        }
        // The tool prints the unit of every size. A header by hand counts if it has known names only.
        let is_known = has_unit_names || columns.iter().all(|column| column.field != Field::Other);
        let layout = Self { separator, ..Self::new(columns)? };
        let has_size = layout.columns.iter().any(|column| column.field.is_size());
        (is_known || !has_size).then_some(layout)
    }

    /// The queries in a command line: `nvidia-smi --query-gpu=index,memory.used --format=csv,noheader`.
    pub(super) fn commands(body: &str) -> Vec<Self> {
        let queries = ["--query-gpu", "--query-compute-apps"].into_iter().flat_map(|option| {
            body.match_indices(option).filter_map(move |(at, _)| {
                let rest = body.get(at.saturating_add(option.len())..)?;
                let list = rest.strip_prefix(['=', ' '])?;
                let list = list.trim_start_matches(['"', '\'']);
                let end = list.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '|' | ';'));
                list.get(..end.unwrap_or(list.len()))
            })
        });
        queries
            .filter_map(|list| {
                let names: Vec<&str> = list.split(',').take(MAX_COLUMNS).collect();
                names
                    .iter()
                    .all(|name| is_field_name(name))
                    .then(|| names.iter().map(|name| Column { field: Field::named(name), unit: MIB }).collect())
            })
            .filter_map(Self::new)
            .take(4)
            .collect()
    }

    /// Rows of processes tell themselves: a UUID or bus id of a GPU, a PID, a name that is no GPU's, one size at the
    /// end.
    pub(super) fn guess(body: &str) -> Option<Self> {
        let cells = cells(body, ',');
        let (last, before) = cells.split_last()?;
        if !has_unit(last) || before.iter().any(|cell| has_unit(cell)) {
            return None;
        }
        let mut fields: Vec<Field> = before
            .iter()
            .map(|cell| match *cell {
                cell if clock::parse_stamp(cell).is_some() => Field::Timestamp,
                cell if values::is_uuid(cell) => Field::Uuid,
                cell if values::is_bus_id(cell) => Field::BusId,
                _ => Field::Other,
            })
            .collect();
        let pid = before.iter().position(|cell| cell.len() <= 10 && cell.parse::<u32>().is_ok_and(|pid| pid >= 100))?;
        // Behind the PID there is one name, which is no product; nothing else may be unknown.
        let names_gpu = fields.iter().any(|field| matches!(field, Field::Uuid | Field::BusId));
        let name = before.get(pid.saturating_add(1)).filter(|name| !name.is_empty() && !is_product(name))?;
        let others = fields
            .iter()
            .enumerate()
            .filter(|(at, field)| **field == Field::Other && *at != pid && *at != pid.saturating_add(1));
        if !names_gpu || name.parse::<f64>().is_ok() || others.count() > 0 {
            return None;
        }
        *fields.get_mut(pid)? = Field::Pid;
        *fields.get_mut(pid.saturating_add(1))? = Field::ProcessName;
        fields.push(Field::ProcessUsed);
        Self::new(fields.into_iter().map(|field| Column { field, unit: MIB }).collect())
    }

    /// Columns that say something of a GPU's memory or of its names.
    fn new(mut columns: Vec<Column>) -> Option<Self> {
        let has = |field: Field| columns.iter().any(|column| column.field == field);
        let is_apps = has(Field::ProcessUsed) || (has(Field::Pid) && has(Field::ProcessName));
        let has_size = columns.iter().any(|column| column.field.is_size());
        let has_names = has(Field::Index) && (has(Field::Uuid) || has(Field::BusId));
        if !(has_size || is_apps || has_names || (has(Field::Utilization) && columns.len() >= 2)) {
            return None;
        }
        let what = if is_apps { What::Apps } else { What::Gpus };
        // `name` of a query for processes is the name of the process.
        if what == What::Apps && !has(Field::ProcessName) {
            let name = columns.iter_mut().find(|column| column.field == Field::Name);
            if let Some(column) = name {
                column.field = Field::ProcessName;
            }
        }
        Some(Self { what, columns, separator: ',' })
    }

    /// The row in a line, if every cell looks like its column. With `needs_units` a bare number is no size.
    pub(super) fn row<'a>(&self, body: &'a str, needs_units: bool) -> Option<Row<'a>> {
        let texts = cells(body, self.separator);
        let extra = texts.len().checked_sub(self.columns.len())?;
        // A process name may hold commas; everything before it counts from the left, everything behind from the right.
        let name_at = self.columns.iter().position(|column| column.field == Field::ProcessName);
        if extra > 0 && name_at.is_none() {
            return None;
        }
        let mut row = Row { cells: Vec::new(), certain: 0, has_units: false, has_impossible: false };
        let mut texts = texts.into_iter();
        for (at, column) in self.columns.iter().enumerate() {
            let mut text = std::borrow::Cow::Borrowed(texts.next()?);
            if extra > 0 && Some(at) == name_at {
                for _ in 0..extra {
                    text = format!("{text}{} {}", self.separator, texts.next()?).into();
                }
            }
            let certain = plausible(*column, &text, needs_units)?;
            row.certain = row.certain.saturating_add(usize::from(certain));
            row.has_units |= column.field.is_size() && has_unit(&text);
            row.has_impossible |= column.field.is_size() && values::is_impossible(&text, Some(column.unit));
            if column.field != Field::Other {
                row.cells.push((column.field, column.unit, text));
            }
        }
        Some(row)
    }

    /// Whether a line is the beginning of a row.
    pub(super) fn is_cut_row(&self, body: &str) -> bool {
        let texts = cells(body, self.separator);
        let Some((_, whole)) = texts.split_last() else { return false };
        texts.len() <= self.columns.len()
            && !whole.is_empty()
            && whole.iter().zip(&self.columns).all(|(text, column)| plausible(*column, text, false).is_some())
            && whole.iter().zip(&self.columns).any(|(text, column)| plausible(*column, text, false) == Some(true))
    }
}

/// Whether a cell fits its column: `None` if not, `Some(true)` if hardly anything else would be there.
fn plausible(column: Column, text: &str, needs_units: bool) -> Option<bool> {
    let is_absent = values::is_absent(text);
    match column.field {
        Field::Timestamp => clock::parse_stamp(text).map(|_| true),
        _ if is_absent => Some(false),
        Field::Index => values::index(text).map(|_| false),
        Field::BusId => values::is_bus_id(text).then_some(true),
        Field::Uuid => values::is_uuid(text).then_some(true),
        Field::Pid => text.parse::<u32>().ok().map(|_| false),
        Field::Utilization => values::percent(text).map(|_| text.ends_with('%')),
        Field::DisplayActive | Field::Mig | Field::Ecc => values::switch(text).map(|_| true),
        field if field.is_size() => {
            let unit = (!needs_units).then_some(column.unit);
            if values::is_impossible(text, unit) {
                return Some(false);
            }
            values::memory(text, unit).map(|_| has_unit(text))
        }
        _ => Some(false),
    }
}

/// Whether a line without any header known looks like a row of `nvidia-smi`: every cell a value of its kinds, one of
/// them a size, and a time, an index or a name of a GPU in front.
pub(super) fn is_headless_row(body: &str) -> bool {
    let cells = cells(body, ',');
    let Some(first) = cells.first() else { return false };
    let begins = clock::parse_stamp(first).is_some()
        || values::index(first).is_some()
        || values::is_uuid(first)
        || values::is_bus_id(first)
        || is_product(first);
    let with_unit = |cell: &str| {
        ["%", "W", "MHz", "MiB", "us", "ms"]
            .iter()
            .any(|unit| cell.strip_suffix(unit).is_some_and(|number| number.trim_end().parse::<f64>().is_ok()))
    };
    begins
        && cells.len() >= 2
        && cells.iter().any(|cell| has_unit(cell))
        && cells.iter().all(|cell| {
            with_unit(cell)
                || cell.parse::<f64>().is_ok()
                || values::is_absent(cell)
                || values::is_uuid(cell)
                || values::is_bus_id(cell)
                || is_product(cell)
                || clock::parse_stamp(cell).is_some()
                || matches!(*cell, "Enabled" | "Disabled" | "Default" | "Not Active" | "Active")
                || (cell.len() <= 3 && cell.starts_with('P'))
        })
}

/// Whether a text is the product name of a GPU.
fn is_product(text: &str) -> bool {
    ["NVIDIA ", "Tesla ", "GeForce ", "Quadro ", "TITAN ", "A100", "H100", "GRID "].iter().any(|p| text.starts_with(p))
}

fn is_field_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 96
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::Bytes;

    fn layout(header: &str) -> Layout {
        Layout::header(header).unwrap()
    }

    #[test]
    fn headers_are_told_from_prose_and_from_other_csv() {
        for header in [
            "timestamp, index, memory.used [MiB], memory.total [MiB]",
            "memory.used [MiB]",
            "index,uuid",
            "gpu_uuid, pid, used_gpu_memory [MiB]",
            "utilization.gpu [%], name",
            "index,memory.used",
        ] {
            assert!(Layout::header(header).is_some(), "{header}");
        }
        for other in [
            "loss, acc",
            "index, name",
            "memory used, free",
            "step,rank,peak_mb",
            "step,memory.used",
            "name",
            "",
            "a, b [c",
        ] {
            assert!(Layout::header(other).is_none(), "{other}");
        }
    }

    #[test]
    fn cells_go_to_their_columns_in_any_order() {
        let layout = layout("memory.total [MiB], name, memory.used [MiB], index");
        let row = layout.row("16276 MiB, Tesla P100, 12 MiB, 3", false).unwrap();
        assert_eq!(row.text(Field::Index), Some("3"));
        assert_eq!(row.size(Field::Used), Some(Bytes::from_mib(12)));
        assert_eq!(row.size(Field::Total), Some(Bytes::from_mib(16276)));
        assert!(layout.row("16276, Tesla P100, 12, 3", false).is_some());
        assert!(layout.row("16276, Tesla P100, 12, 3", true).is_none());
        assert!(layout.row("16276 MiB, Tesla P100, 12 W, 3", false).is_none());
        assert!(layout.row("16276 MiB, Tesla P100, 12 MiB", false).is_none());
        assert_eq!(layout.row("16276 MiB, x, [N/A], 3", false).unwrap().size(Field::Used), None);
        let impossible = layout.row("16276 MiB, x, -5 MiB, 3", false).unwrap();
        assert_eq!((impossible.size(Field::Used), impossible.has_impossible), (None, true));
    }

    #[test]
    fn spreadsheets_save_with_semicolons_or_tabs() {
        for separator in [";", "\t"] {
            let layout = layout(&["index", "memory.used [MiB]", "memory.total [MiB]"].join(separator));
            let line = ["3", "12 MiB", "16276 MiB"].join(separator);
            let row = layout.row(&line, false).unwrap();
            assert_eq!((row.text(Field::Index), row.size(Field::Used)), (Some("3"), Some(Bytes::from_mib(12))));
            assert!(layout.row("3, 12 MiB, 16276 MiB", false).is_none());
        }
    }

    #[test]
    fn names_of_processes_may_hold_commas() {
        let layout = layout("gpu_uuid, pid, process_name, used_gpu_memory [MiB]");
        let row = layout.row("GPU-09cb2925-9d01, 123, python a,b --c=1, 5, 12 MiB", false).unwrap();
        assert_eq!(row.text(Field::ProcessName), Some("python a, b --c=1, 5"));
        assert_eq!(row.size(Field::ProcessUsed), Some(Bytes::from_mib(12)));
    }

    #[test]
    fn commands_tell_columns() {
        let found = Layout::commands(
            "+ nvidia-smi --query-gpu=index,memory.used --format=csv,noheader; nvidia-smi \
             --query-compute-apps='gpu_uuid,pid,used_memory' --format=csv",
        );
        assert_eq!(found.iter().map(|l| l.what).collect::<Vec<_>>(), [What::Gpus, What::Apps]);
        assert_eq!(found[0].columns.len(), 2);
        assert!(Layout::commands("nvidia-smi --query-gpu=$FIELDS").is_empty());
    }

    #[test]
    fn only_rows_of_processes_tell_their_columns() {
        assert!(Layout::guess("GPU-09cb2925-9d01, 4123, python, 512 MiB").is_some());
        assert!(Layout::guess("GPU-09cb2925-9d01, 0, NVIDIA A100, 512 MiB").is_none());
        assert!(Layout::guess("0, 512 MiB, 1024 MiB").is_none());
        assert!(is_headless_row("2026/04/25 16:06:06.780, 0 %, 0 %, 2 MiB, 20146 MiB, 27, 11.64 W"));
        assert!(!is_headless_row("0, loss 5, 512 MiB"));
    }
}
