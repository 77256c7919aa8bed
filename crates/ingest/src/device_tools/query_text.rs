//! `nvidia-smi -q` as text: sections by indentation, one `Key : Value` a line.

use super::report::{Fact, Report};
use super::sink::Sink;
use super::values;
use crate::lines::Line;
use rankscope_model::{ArtifactKind, Provenance};

/// Lines of other kinds after which a report is over.
const MAX_GAP: u64 = 12;
/// The same for a report that lost its indentation, of which only known lines can be told.
const MAX_FLAT_GAP: u64 = 200;

/// Gathers reports line by line.
#[derive(Default)]
pub(super) struct QueryText {
    open: Option<Open>,
}

struct Open {
    writer: (Option<u32>, Option<u32>),
    report: Report,
    /// Where the lines of a GPU begin, and whether what belongs to it stands further in (a copy may have lost that).
    gpu_indent: Option<usize>,
    is_flat: bool,
    /// Open sections: where their names begin, and what they are.
    sections: Vec<(usize, Section)>,
    gap: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Memory,
    MigDevice,
    MigMode,
    EccMode,
    Utilization,
    Processes,
    Other,
}

impl QueryText {
    /// Takes a line; `true` if it was part of a report.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let used = self.try_line(line, sink);
        if used {
            sink.count(ArtifactKind::NvidiaSmiQuery, 1);
        }
        used
    }

    fn try_line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let body = line.body;
        // `==============NVSMI LOG==============`
        if body.starts_with("=====") {
            let inner = body.trim_matches('=').trim();
            if !(inner.ends_with("SMI LOG") && inner.len() <= 12) {
                return false;
            }
            self.finish(sink);
            self.begin(line, sink);
            return true;
        }
        if let Some(bus_id) = body.strip_prefix("GPU ").map(str::trim).filter(|id| values::is_bus_id(id)) {
            if self.open.is_none() {
                self.begin(line, sink);
            }
            let at = sink.at(line);
            let Some(open) = self.open.as_mut().filter(|open| open.writer == line.label.writer()) else { return false };
            open.report.begin_gpu(bus_id, at);
            open.gpu_indent = Some(indent(line));
            open.is_flat = false;
            open.sections.clear();
            open.gap = 0;
            return true;
        }
        let Some(open) = self.open.as_mut().filter(|open| open.writer == line.label.writer()) else { return false };
        let at = sink.at(line);
        let used = open.line(line, &at);
        open.gap = if used { 0 } else { open.gap.saturating_add(1) };
        if open.gap > if open.is_flat { MAX_FLAT_GAP } else { MAX_GAP } {
            self.finish(sink);
        }
        used
    }

    fn begin(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) {
        let mut report = Report::new(sink.at(line));
        if let Some((text, _)) = sink.time_before(line.number) {
            report.set(Fact::Timestamp, &text, &sink.at(line));
        }
        self.open = Some(Open {
            writer: line.label.writer(),
            report,
            gpu_indent: None,
            is_flat: false,
            sections: Vec::new(),
            gap: 0,
        });
    }

    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        if let Some(open) = self.open.take() {
            open.report.finish(sink);
        }
    }
}

impl Open {
    fn line(&mut self, line: &Line<'_>, at: &Provenance) -> bool {
        let here = indent(line);
        let pair = key_and_value(line.body);
        let Some(gpu_indent) = self.gpu_indent else { return self.head(pair, at) };
        if self.sections.is_empty() && here <= gpu_indent {
            self.is_flat = true;
        }
        if here <= gpu_indent && !self.is_flat {
            return false;
        }
        if !self.is_flat {
            while self.sections.last().is_some_and(|(indent, _)| *indent >= here) {
                if let Some((_, Section::MigDevice)) = self.sections.pop() {
                    self.report.end_slice();
                }
            }
        }
        let (key, value) = match pair {
            Some(pair) => pair,
            // A line without a value is the name of a section, if it looks like one.
            None if is_section_name(line.body) => (line.body, ""),
            None => return false,
        };
        let section = self.sections.last().map(|(_, section)| *section);
        if pair.is_none() || (key == "Processes" && section != Some(Section::Processes)) {
            let entered = self.enter(key, value, here, at);
            return entered != Section::Other || !self.is_flat;
        }
        // These are printed behind the MIG devices of a GPU: its own memory follows.
        if matches!(key, "Accounting Mode" | "Serial Number" | "GPU UUID") {
            self.report.end_slice();
        }
        let fact = fact(section, key);
        if let Some(fact) = fact {
            self.report.set(fact, value, at);
        }
        fact.is_some() || !self.is_flat
    }

    fn head(&mut self, pair: Option<(&str, &str)>, at: &Provenance) -> bool {
        let Some((key, value)) = pair else { return false };
        let fact = match key {
            "Timestamp" => Fact::Timestamp,
            "Driver Version" => Fact::Driver,
            "CUDA Version" => Fact::Cuda,
            "Attached GPUs" | "Attached GPU device count" => Fact::Attached,
            _ => return false,
        };
        self.report.set(fact, value, at);
        true
    }

    fn enter(&mut self, name: &str, value: &str, here: usize, at: &Provenance) -> Section {
        let section = match name {
            "FB Memory Usage" | "Shared FB Memory Usage" | "Memory Usage" => Section::Memory,
            "MIG Device" => Section::MigDevice,
            "MIG Mode" => Section::MigMode,
            "ECC Mode" | "Ecc Mode" => Section::EccMode,
            "Utilization" => Section::Utilization,
            "Processes" => Section::Processes,
            _ => Section::Other,
        };
        match section {
            Section::MigDevice => self.report.begin_slice(at.clone()),
            Section::Processes => {
                self.report.end_slice();
                self.report.set(Fact::Processes, value, at);
            }
            _ => {}
        }
        if self.is_flat {
            self.sections.clear();
        }
        // Nine levels are printed at most; a text that goes on inward is none of ours.
        if self.sections.len() < 16 {
            self.sections.push((here, section));
        }
        section
    }
}

fn fact(section: Option<Section>, key: &str) -> Option<Fact> {
    Some(match (section, key) {
        (Some(Section::Memory), "Total") => Fact::Total,
        (Some(Section::Memory), "Used") => Fact::Used,
        (Some(Section::Memory), "Free") => Fact::Free,
        (Some(Section::Memory), "Reserved") => Fact::Reserved,
        (Some(Section::MigDevice), "GPU Instance ID") => Fact::GpuInstance,
        (Some(Section::MigDevice), "Compute Instance ID") => Fact::ComputeInstance,
        (Some(Section::MigMode), "Current") => Fact::MigCurrent,
        (Some(Section::EccMode), "Current") => Fact::EccCurrent,
        (Some(Section::Utilization), "Gpu" | "GPU") => Fact::Utilization,
        (Some(Section::Processes), "GPU instance ID") => Fact::ProcessGpuInstance,
        (Some(Section::Processes), "Compute instance ID") => Fact::ProcessComputeInstance,
        (Some(Section::Processes), "Process ID") => Fact::Pid,
        (Some(Section::Processes), "Type") => Fact::Kind,
        (Some(Section::Processes), "Name") => Fact::ProcessName,
        (Some(Section::Processes), "Used GPU Memory") => Fact::ProcessUsed,
        (_, "Product Name") => Fact::Name,
        (_, "GPU UUID") => Fact::Uuid,
        (_, "Display Active") => Fact::DisplayActive,
        (_, "Compute Mode") => Fact::ComputeMode,
        _ => return None,
    })
}

/// `Key                : Value`. The value may hold colons, the key has none before the blank.
fn key_and_value(body: &str) -> Option<(&str, &str)> {
    let (key, value) = body.split_once(" :").or_else(|| body.split_once(": "))?;
    let key = key.trim_end();
    (key.len() <= 64 && key.starts_with(|c: char| c.is_ascii_alphanumeric())).then_some((key, value.trim()))
}

/// Words of letters, digits and a few signs, the first one capital.
fn is_section_name(body: &str) -> bool {
    body.len() <= 64
        && body.starts_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit())
        && body
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b' ' | b'-' | b'/' | b'.' | b'(' | b')' | b'_'))
}

/// Where the text of a line begins.
fn indent(line: &Line<'_>) -> usize {
    line.text.len().saturating_sub(line.body.len())
}
