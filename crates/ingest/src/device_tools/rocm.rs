//! `rocm-smi` and `amd-smi`: memory of AMD GPUs, from their tables, lists, CSV and JSON.
//!
//! The default table of `rocm-smi` prints VRAM in percent only; that is no size and none is made of it.

use super::json::amd_size;
use super::sink::{Numbering, Sink};
use super::values;
use crate::lines::Line;
use rankscope_model::{ArtifactKind, Bytes, DeviceRow, DeviceTable, ProcessListing, ProcessRow, Provenance, Subject};
use serde_json::Value;
use std::collections::BTreeMap;

const MAX_ROWS: usize = 4096;
/// Lines of other kinds after which a reading is over: a block of `amd-smi metric` has some 60 lines.
const MAX_GAP: u64 = 100;

/// Gathers readings line by line.
#[derive(Default)]
pub(super) struct RocmReader {
    open: Option<Open>,
}

struct Open {
    writer: (Option<u32>, Option<u32>),
    form: Form,
    at: Provenance,
    rows: BTreeMap<u32, DeviceRow>,
    processes: Vec<ProcessRow>,
    listing: ProcessListing,
    /// Of the block of `amd-smi` that is being read.
    gpu: Option<u32>,
    /// Bus id and name of the box's first row.
    named: Option<(String, String)>,
    in_processes: bool,
    gap: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    /// `======= ROCm System Management Interface =======`
    Rocm,
    /// `GPU[0] : VRAM Total Memory (B): 68702699520` without the lines around.
    RocmLines,
    /// `GPU: 0` with `TOTAL_VRAM: 196592 MB` under it.
    Blocks,
    /// A head of columns with `VRAM_USED`; the columns with sizes, in order.
    Columns(Vec<Size>),
    /// The box of `amd-smi`.
    Box,
    /// `device,VRAM Total Memory (B),VRAM Total Used Memory (B)`: the columns with sizes.
    Csv(Vec<Option<Size>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Used,
    Total,
    Free,
}

impl RocmReader {
    /// Takes a line; `true` if it was part of a reading.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let used = self.try_line(line, sink);
        if used {
            sink.count(ArtifactKind::RocmSmi, 1);
        }
        used
    }

    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        let Some(open) = self.open.take() else { return };
        let mut table = DeviceTable::new(open.at);
        table.devices = open.rows.into_values().collect();
        table.processes = open.processes;
        table.listing = open.listing;
        sink.push(ArtifactKind::RocmSmi, table, Numbering::Printed);
    }

    fn try_line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let body = line.body;
        if let Some(form) = begins(body) {
            self.finish(sink);
            self.open = Some(Open::new(form, line, sink.at(line)));
            return true;
        }
        let is_ours = self.open.as_ref().is_some_and(|open| open.writer == line.label.writer());
        if !is_ours {
            if body.starts_with("GPU[") && list_size(body).is_some() {
                self.finish(sink);
                self.open = Some(Open::new(Form::RocmLines, line, sink.at(line)));
            } else if body.starts_with("GPU: ") && values::index(body.get(5..).unwrap_or_default()).is_some() {
                self.finish(sink);
                self.open = Some(Open::new(Form::Blocks, line, sink.at(line)));
            } else {
                return false;
            }
        }
        let at = sink.at(line);
        let Some(open) = &mut self.open else { return false };
        match open.take(body, &at) {
            Taken::Used => open.gap = 0,
            Taken::Again => {
                // The same GPU again: the next reading of a loop.
                let mut next = Open::new(open.form.clone(), line, at.clone());
                next.take(body, &at);
                self.finish(sink);
                self.open = Some(next);
            }
            Taken::Last => self.finish(sink),
            Taken::No => {
                open.gap = open.gap.saturating_add(1);
                if open.gap > MAX_GAP {
                    self.finish(sink);
                }
                return false;
            }
        }
        true
    }
}

enum Taken {
    Used,
    Again,
    Last,
    No,
}

/// What a line opens.
fn begins(body: &str) -> Option<Form> {
    if body.starts_with("===") && body.contains("ROCm System Management Interface") {
        return Some(Form::Rocm);
    }
    if body.starts_with("| AMD-SMI ") {
        return Some(Form::Box);
    }
    if body.starts_with("device,") && body.contains("VRAM Total") {
        return Some(Form::Csv(body.split(',').take(64).map(named_size).collect()));
    }
    if body.starts_with("GPU ") && body.contains("VRAM_USED") {
        let sizes = body.split_ascii_whitespace().take(64).filter_map(|word| match word {
            "VRAM_USED" => Some(Size::Used),
            "VRAM_TOTAL" => Some(Size::Total),
            "VRAM_FREE" => Some(Size::Free),
            _ => None,
        });
        return Some(Form::Columns(sizes.collect()));
    }
    None
}

/// `VRAM Total Memory (B)`; not that part of it which the CPU sees, nor the GTT, which is host memory.
fn named_size(name: &str) -> Option<Size> {
    match name.trim() {
        "VRAM Total Memory (B)" | "vram Total Memory (B)" => Some(Size::Total),
        "VRAM Total Used Memory (B)" | "vram Total Used Memory (B)" => Some(Size::Used),
        _ => None,
    }
}

/// `GPU[0]          : VRAM Total Memory (B): 68702699520`.
fn list_size(body: &str) -> Option<(u32, Size, Bytes)> {
    let (index, rest) = body.strip_prefix("GPU[")?.split_once(']')?;
    let (name, value) = rest.trim_start().strip_prefix(':')?.rsplit_once(':')?;
    Some((values::index(index)?, named_size(name)?, values::memory(value, Some(1))?))
}

impl Open {
    fn new(form: Form, line: &Line<'_>, at: Provenance) -> Self {
        Self {
            writer: line.label.writer(),
            form,
            at,
            rows: BTreeMap::new(),
            processes: Vec::new(),
            listing: ProcessListing::Missing,
            gpu: None,
            named: None,
            in_processes: false,
            gap: 0,
        }
    }

    fn take(&mut self, body: &str, at: &Provenance) -> Taken {
        match self.form.clone() {
            Form::Rocm | Form::RocmLines => self.rocm(body, at),
            Form::Blocks => self.block(body, at),
            Form::Columns(sizes) => self.columns(&sizes, body, at),
            Form::Box => self.boxed(body, at),
            Form::Csv(columns) => self.csv(&columns, body, at),
        }
    }

    /// Notes a size; a size that is there already begins the next reading.
    fn set(&mut self, index: u32, size: Size, bytes: Option<Bytes>, at: &Provenance) -> Taken {
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&index) {
            return Taken::No;
        }
        let row = self.rows.entry(index).or_insert_with(|| DeviceRow::new(at.clone(), Subject::Device(index)));
        let place = match size {
            Size::Used => &mut row.used,
            Size::Total => &mut row.total,
            Size::Free => &mut row.free,
        };
        if place.is_some() {
            return Taken::Again;
        }
        *place = bytes;
        if size == Size::Used {
            row.at = at.clone();
        }
        Taken::Used
    }

    fn rocm(&mut self, body: &str, at: &Provenance) -> Taken {
        if body.starts_with("===") {
            return if body.contains("End of ROCm SMI Log") { Taken::Last } else { Taken::Used };
        }
        if let Some((index, size, bytes)) = list_size(body) {
            return self.set(index, size, Some(bytes), at);
        }
        if self.form == Form::RocmLines {
            return Taken::No;
        }
        // The concise table: memory in percent only, so there is nothing but the GPU.
        let words: Vec<&str> = body.split_ascii_whitespace().take(64).collect();
        let index = words.first().and_then(|word| values::index(word));
        let ends_in_shares = words.iter().rev().take(2).filter(|word| word.ends_with('%')).count() == 2;
        match index {
            Some(index) if ends_in_shares && words.len() >= 5 && self.rows.len() < MAX_ROWS => {
                let row = self.rows.entry(index).or_insert_with(|| DeviceRow::new(at.clone(), Subject::Device(index)));
                row.utilization_percent = words.last().and_then(|word| values::percent(word));
                self.gpu = Some(index);
                Taken::Used
            }
            _ if body.starts_with("AMD ") => {
                if let Some(row) = self.gpu.and_then(|index| self.rows.get_mut(&index)) {
                    row.name = values::word(body);
                }
                Taken::Used
            }
            _ if ["Device ", "GPU ", "Name ", "GPU["].iter().any(|start| body.starts_with(start)) => Taken::Used,
            _ => Taken::No,
        }
    }

    fn block(&mut self, body: &str, at: &Provenance) -> Taken {
        let Some((key, value)) = body.split_once(':') else { return Taken::No };
        let size = match key {
            // A log may say `GPU: 0` for its own reasons: the line is left to the others.
            "GPU" => {
                let index = values::index(value);
                if index.and_then(|index| self.rows.get(&index)).is_some_and(|row| row.used.is_some()) {
                    return Taken::Again;
                }
                self.gpu = index;
                return Taken::No;
            }
            "TOTAL_VRAM" => Size::Total,
            "USED_VRAM" => Size::Used,
            "FREE_VRAM" => Size::Free,
            _ => return Taken::No,
        };
        match self.gpu {
            Some(index) => self.set(index, size, values::memory(value, None), at),
            None => Taken::No,
        }
    }

    fn columns(&mut self, sizes: &[Size], body: &str, at: &Provenance) -> Taken {
        let words: Vec<&str> = body.split_ascii_whitespace().take(128).collect();
        let Some(index) = words.first().and_then(|word| values::index(word)) else { return Taken::No };
        let found: Vec<Bytes> = words
            .windows(2)
            .filter_map(|pair| match pair {
                [number, unit @ ("MB" | "GB")] => values::memory(&format!("{number} {unit}"), None),
                _ => None,
            })
            .collect();
        if found.len() != sizes.len() {
            return Taken::No;
        }
        if self.rows.get(&index).is_some_and(|row| row.used.is_some()) {
            return Taken::Again;
        }
        for (size, bytes) in sizes.iter().zip(found) {
            self.set(index, *size, Some(bytes), at);
        }
        Taken::Used
    }

    fn csv(&mut self, columns: &[Option<Size>], body: &str, at: &Provenance) -> Taken {
        let cells: Vec<&str> = body.split(',').take(65).collect();
        let index = cells.first().and_then(|cell| values::index(cell.trim().strip_prefix("card")?));
        let Some(index) = index.filter(|_| cells.len() == columns.len()) else { return Taken::No };
        if self.rows.contains_key(&index) {
            return Taken::Again;
        }
        for (size, cell) in columns.iter().zip(&cells) {
            if let Some(size) = size {
                self.set(index, *size, values::memory(cell, Some(1)), at);
            }
        }
        Taken::Used
    }

    fn boxed(&mut self, body: &str, at: &Provenance) -> Taken {
        if body.starts_with('+') {
            return Taken::Used;
        }
        if !body.starts_with('|') {
            return Taken::No;
        }
        let inner = body.trim_matches('|').trim();
        if inner.starts_with("Processes:") {
            self.in_processes = true;
            return Taken::Used;
        }
        if self.in_processes {
            self.box_process(inner, at);
            return Taken::Used;
        }
        let cells: Vec<&str> = body.trim_matches('|').split('|').map(str::trim).collect();
        let first = cells.first().copied().unwrap_or_default();
        if let Some((bus_id, name)) = first.split_once(' ').filter(|(id, _)| values::is_bus_id(id)) {
            self.named = Some((bus_id.to_owned(), name.trim().to_owned()));
            return Taken::Used;
        }
        let index = first.split_ascii_whitespace().next().and_then(values::index);
        let memory = cells.get(1).and_then(|cell| {
            let (rest, total) = cell.rsplit_once('/')?;
            let used = rest.rsplit(' ').next()?;
            let total = total.trim();
            let unit = values::unit(total.rsplit(' ').next()?)?;
            Some((values::memory(used, Some(unit))?, values::memory(total, None)?))
        });
        if let (Some(index), Some((used, total))) = (index, memory)
            && self.rows.len() < MAX_ROWS
        {
            let (bus_id, name) = self.named.take().unzip();
            let row = DeviceRow {
                used: Some(used),
                total: Some(total),
                bus_id,
                name,
                ..DeviceRow::new(at.clone(), Subject::Device(index))
            };
            self.rows.insert(index, row);
        }
        Taken::Used
    }

    /// `0   12345  python3   10.0 MB   24.5 GB   24.6 GB   N/A`: the second size is the VRAM.
    fn box_process(&mut self, inner: &str, at: &Provenance) {
        if inner.starts_with("No running") {
            self.listing = ProcessListing::NoneFound;
            return;
        }
        let words: Vec<&str> = inner.split_ascii_whitespace().take(64).collect();
        let (Some(index), Some(pid)) = (
            words.first().and_then(|word| values::index(word)),
            words.get(1).and_then(|word| word.parse::<u32>().ok()),
        ) else {
            return;
        };
        let sizes: Vec<Bytes> = words
            .windows(2)
            .filter_map(|pair| match pair {
                [number, unit @ ("B" | "KB" | "MB" | "GB")] => values::memory(&format!("{number} {unit}"), None),
                _ => None,
            })
            .collect();
        if self.processes.len() < MAX_ROWS {
            self.listing = ProcessListing::Listed;
            self.processes.push(ProcessRow {
                pid: Some(pid),
                name: words.get(2).and_then(|word| values::word(word)),
                used: sizes.get(1).copied().filter(|_| sizes.len() >= 2),
                ..ProcessRow::new(at.clone(), Subject::Device(index))
            });
        }
    }
}

/// Tables in the JSON of `rocm-smi` (`card0` with names and values) and of `amd-smi` (a list by `gpu`).
pub(super) fn from_json(value: &Value, at: &Provenance, sink: &mut Sink<'_>) -> Vec<DeviceTable> {
    let mut table = DeviceTable::new(at.clone());
    if let Some(cards) = value.as_object() {
        for (card, facts) in cards.iter().take(MAX_ROWS) {
            let Some(index) = card.strip_prefix("card").and_then(values::index) else { continue };
            sink.see_device(index);
            let text = |key: &str| facts.get(key).and_then(Value::as_str).and_then(values::word);
            let mut row = DeviceRow::new(at.clone(), Subject::Device(index));
            for (key, value) in facts.as_object().into_iter().flatten() {
                let size = value.as_str().and_then(|text| values::memory(text, Some(1)));
                match named_size(key) {
                    Some(Size::Used) => row.used = size,
                    Some(Size::Total) => row.total = size,
                    _ => {}
                }
            }
            row.name = text("Card series").or_else(|| text("Card Series"));
            row.bus_id = text("PCI Bus");
            row.utilization_percent = text("GPU use (%)").as_deref().and_then(values::percent);
            table.devices.push(row);
        }
    }
    let list = value.get("gpu_data").unwrap_or(value).as_array();
    for gpu in list.into_iter().flatten().take(MAX_ROWS) {
        amd_gpu(gpu, at, &mut table);
    }
    table.devices.sort_by_key(|row| row.subject);
    vec![table]
}

fn amd_gpu(gpu: &Value, at: &Provenance, table: &mut DeviceTable) {
    let Some(index) = gpu.get("gpu").and_then(Value::as_u64).and_then(|i| u32::try_from(i).ok()) else { return };
    let subject = Subject::Device(index);
    let memory = ["mem_usage", "fb_memory_usage", "vram_usage"].iter().find_map(|key| gpu.get(key));
    let size = |key: &str| memory.and_then(|memory| memory.get(key)).and_then(amd_size);
    let share = gpu.get("usage").and_then(|usage| usage.get("gfx_activity"));
    table.devices.push(DeviceRow {
        used: size("used_vram"),
        total: size("total_vram"),
        free: size("free_vram"),
        utilization_percent: share
            .map(|share| share.get("value").unwrap_or(share))
            .and_then(Value::as_u64)
            .and_then(|p| u8::try_from(p).ok())
            .filter(|p| *p <= 100),
        ..DeviceRow::new(at.clone(), subject)
    });
    for process in gpu.get("process_list").and_then(Value::as_array).into_iter().flatten() {
        let info = process.get("process_info").unwrap_or(process);
        let Some(pid) = info.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok()) else {
            continue;
        };
        if table.processes.len() >= MAX_ROWS {
            return;
        }
        table.listing = ProcessListing::Listed;
        table.processes.push(ProcessRow {
            pid: Some(pid),
            name: info.get("name").and_then(Value::as_str).and_then(values::word),
            used: info.get("memory_usage").and_then(|m| m.get("vram_mem")).and_then(amd_size),
            ..ProcessRow::new(at.clone(), subject)
        });
    }
}
