//! JSON of device tools inside a text: `gpustat --json`, `rocm-smi --json`, `amd-smi --json`.
//!
//! A document is gathered from its first brace to its last, bounded, and only parsed if a word of these tools is in it.

use super::rocm;
use super::sink::{Numbering, Sink};
use super::values;
use crate::clock;
use crate::lines::Line;
use rankscope_model::{
    ArtifactKind, Bytes, DeviceRow, DeviceTable, MIB, ProcessListing, ProcessRow, Provenance, Subject,
};
use serde_json::Value;

/// Bytes of one document.
const MAX_BYTES: usize = 1 << 20;
/// Bytes without any word of these tools after which a document is something else.
const MAX_UNKNOWN: usize = 16 << 10;
/// Rows taken of one document.
const MAX_ROWS: usize = 4096;

/// Gathers documents line by line.
#[derive(Default)]
pub(super) struct JsonReader {
    open: Option<Open>,
}

struct Open {
    writer: (Option<u32>, Option<u32>),
    at: Provenance,
    text: String,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    kind: Option<ArtifactKind>,
    lines: u64,
}

impl JsonReader {
    /// Takes a line; `true` if it was part of a document of these tools.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if self.open.is_none() {
            let begins = line.body.starts_with('{') || (line.body.starts_with('[') && begins_array(line.body));
            if !begins {
                return false;
            }
            self.open = Some(Open {
                writer: line.label.writer(),
                at: sink.at(line),
                text: String::new(),
                depth: 0,
                in_string: false,
                is_escaped: false,
                kind: None,
                lines: 0,
            });
        }
        let Some(open) = self.open.as_mut().filter(|open| open.writer == line.label.writer()) else { return false };
        open.push(line.body);
        let kind = open.kind;
        let is_over = open.depth == 0;
        let is_foreign = open.text.len() > MAX_BYTES || (kind.is_none() && open.text.len() > MAX_UNKNOWN);
        if !(is_over || is_foreign) {
            return kind.is_some();
        }
        let Some(open) = self.open.take() else { return false };
        let Some(kind) = kind.filter(|_| !is_foreign) else { return false };
        let Ok(value) = serde_json::from_str::<Value>(&open.text) else { return false };
        sink.count(kind, open.lines);
        let tables = match kind {
            ArtifactKind::Gpustat => gpustat(&value, &open.at).into_iter().collect(),
            _ => rocm::from_json(&value, &open.at, sink),
        };
        for table in tables {
            sink.push(kind, table, Numbering::Printed);
        }
        true
    }
}

/// An array of objects, or one that begins on the next line; not a word in brackets.
fn begins_array(body: &str) -> bool {
    let rest = body.get(1..).unwrap_or_default().trim_start();
    rest.is_empty() || rest.starts_with('{')
}

impl Open {
    fn push(&mut self, body: &str) {
        self.lines = self.lines.saturating_add(1);
        self.text.push_str(body);
        self.text.push('\n');
        for b in body.bytes() {
            match b {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_string => self.is_escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' if !self.in_string => self.depth = self.depth.saturating_add(1),
                b'}' | b']' if !self.in_string => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        if self.kind.is_none() {
            let has = |word: &str| memchr::memmem::find(body.as_bytes(), word.as_bytes()).is_some();
            if has("\"memory.total\"") || has("\"memory.used\"") {
                self.kind = Some(ArtifactKind::Gpustat);
            } else if has("\"VRAM ")
                || has("\"vram ")
                || has("_vram\"")
                || has("\"process_list\"")
                || has("\"vram_mem\"")
            {
                self.kind = Some(ArtifactKind::RocmSmi);
            }
        }
    }
}

/// The output of `gpustat --json`; sizes are MiB.
fn gpustat(value: &Value, at: &Provenance) -> Option<DeviceTable> {
    let mut table = DeviceTable::new(at.clone());
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).and_then(values::word);
    let mib = |value: &Value, key: &str| value.get(key).and_then(Value::as_u64).map(Bytes::from_mib);
    let time = text(value, "query_time");
    table.time = time.as_deref().and_then(clock::parse_stamp);
    table.at.time = table.time;
    table.time_text = time.filter(|_| table.time.is_some());
    table.driver_version = text(value, "driver_version");
    let at = Provenance { time: table.time, ..at.clone() };
    for gpu in value.get("gpus")?.as_array()?.iter().take(MAX_ROWS) {
        let Some(index) = gpu.get("index").and_then(Value::as_u64).and_then(|i| u32::try_from(i).ok()) else {
            continue;
        };
        let subject = Subject::Device(index);
        table.devices.push(DeviceRow {
            name: text(gpu, "name"),
            uuid: text(gpu, "uuid"),
            used: mib(gpu, "memory.used"),
            total: mib(gpu, "memory.total"),
            utilization_percent: gpu
                .get("utilization.gpu")
                .and_then(Value::as_u64)
                .and_then(|p| u8::try_from(p).ok())
                .filter(|p| *p <= 100),
            ..DeviceRow::new(at.clone(), subject)
        });
        let Some(processes) = gpu.get("processes").and_then(Value::as_array) else { continue };
        if table.listing == ProcessListing::Missing {
            table.listing = ProcessListing::NoneFound;
        }
        for process in processes.iter().take(MAX_ROWS.saturating_sub(table.processes.len())) {
            table.listing = ProcessListing::Listed;
            table.processes.push(ProcessRow {
                pid: process.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok()),
                name: text(process, "command"),
                used: mib(process, "gpu_memory_usage"),
                ..ProcessRow::new(at.clone(), subject)
            });
        }
    }
    Some(table)
}

/// A size as `amd-smi` writes it: `{"value": 283, "unit": "MB"}`.
pub(super) fn amd_size(value: &Value) -> Option<Bytes> {
    let unit = value.get("unit").and_then(Value::as_str).and_then(values::unit).unwrap_or(MIB);
    value.get("value").unwrap_or(value).as_u64().and_then(|n| n.checked_mul(unit)).map(Bytes)
}
