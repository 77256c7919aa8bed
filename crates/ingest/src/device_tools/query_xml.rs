//! `nvidia-smi -q -x`, all document types: events of an XML parser, line by line, to facts of a report.
//!
//! The parser gets one line at a time, so that facts keep their lines, a log may hold several reports, and memory stays
//! that of a line. No document type is loaded and no entity is expanded but the five of XML itself.

use super::report::{Fact, Report};
use super::sink::Sink;
use crate::lines::Line;
use quick_xml::Reader;
use quick_xml::events::Event;
use rankscope_model::{ArtifactKind, Provenance};

/// Elements inside each other; reports have eight.
const MAX_DEPTH: usize = 32;
/// Lines of other kinds after which a report is over.
const MAX_GAP: u64 = 12;
/// Letters of the root's name in front of `smi_log`: `nvidia_`.
const MAX_PREFIX: usize = 32;
/// Text of one element, and a tag that is broken over lines.
const MAX_TEXT: usize = 4096;

/// Gathers reports line by line.
#[derive(Default)]
pub(super) struct QueryXml {
    open: Option<Open>,
}

struct Open {
    writer: (Option<u32>, Option<u32>),
    report: Report,
    /// Names of the open elements, outermost first.
    path: Vec<String>,
    text: String,
    /// The beginning of a tag whose end is on the next line.
    rest: String,
    /// Lines since the last one of the report.
    gap: u64,
}

impl QueryXml {
    /// Takes a line; `true` if it was part of a report.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let body = line.body;
        if self.open.is_none() {
            if !body.contains('<') {
                return false;
            }
            let Some(at) = root(body) else {
                // The lines before the root belong to the report, whatever comes.
                return body.starts_with("<!DOCTYPE") && body.contains("smi");
            };
            self.open = Some(Open {
                writer: line.label.writer(),
                report: Report::new(sink.at(line)),
                path: Vec::new(),
                text: String::new(),
                rest: String::new(),
                gap: 0,
            });
            self.feed(body.get(at..).unwrap_or_default(), line, sink);
            return true;
        }
        if self.open.as_ref().is_none_or(|open| open.writer != line.label.writer()) {
            return false;
        }
        // A log line between the lines of a report begins with no tag, and is none of its texts.
        let Some(open) = &mut self.open else { return false };
        let is_inside = body.starts_with('<') || open.waits();
        open.gap = if is_inside { 0 } else { open.gap.saturating_add(1) };
        if is_inside {
            self.feed(body, line, sink);
        } else if open.gap > MAX_GAP {
            self.finish(sink);
        }
        is_inside
    }

    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        let Some(open) = self.open.take() else { return };
        if !open.report.is_empty() {
            sink.warn("the XML of nvidia-smi -q -x ends early; what stands before was read".to_owned());
        }
        open.report.finish(sink);
    }

    fn feed(&mut self, body: &str, line: &Line<'_>, sink: &mut Sink<'_>) {
        sink.count(ArtifactKind::NvidiaSmiQuery, 1);
        let at = sink.at(line);
        let Some(open) = &mut self.open else { return };
        match open.feed(body, &at) {
            Fed::Inside => {}
            Fed::Whole => {
                if let Some(open) = self.open.take() {
                    open.report.finish(sink);
                }
            }
            Fed::Broken => self.finish(sink),
        }
    }
}

enum Fed {
    Inside,
    Whole,
    Broken,
}

/// Where the root element begins in a line.
fn root(body: &str) -> Option<usize> {
    body.match_indices("smi_log").find_map(|(at, _)| {
        let from = at.saturating_sub(MAX_PREFIX);
        let start = from.saturating_add(body.as_bytes().get(from..at)?.iter().rposition(|b| *b == b'<')?);
        let name = body.get(start.saturating_add(1)..at)?;
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_').then_some(start)
    })
}

impl Open {
    /// Whether the text of an element, or a tag, goes on over lines.
    fn waits(&self) -> bool {
        !self.rest.is_empty() || self.path.last().is_some_and(|name| name == "mig_devices" || name == "processes")
    }

    fn feed(&mut self, body: &str, at: &Provenance) -> Fed {
        let joined;
        let text = if self.rest.is_empty() {
            body
        } else {
            joined = format!("{} {body}", self.rest);
            &joined
        };
        // A tag without its end is kept for the next line.
        let open_at = text.rfind('<').filter(|open| text.rfind('>').is_none_or(|close| close < *open));
        let (text, rest) = text.split_at(open_at.unwrap_or(text.len()));
        let rest = rest.to_owned();
        if rest.len() > MAX_TEXT {
            return Fed::Broken;
        }
        let mut reader = Reader::from_str(text);
        let config = reader.config_mut();
        config.check_end_names = false;
        config.allow_unmatched_ends = true;
        config.allow_dangling_amp = true;
        config.expand_empty_elements = true;
        let fed = loop {
            match reader.read_event() {
                Ok(Event::Start(tag)) => {
                    let name = tag.local_name();
                    let name: &str = name.as_ref();
                    let id = tag.attributes().flatten().find(|a| a.key.as_ref() == "id").map(|a| a.value.into_owned());
                    if self.path.len() >= MAX_DEPTH || name.len() > MAX_TEXT {
                        break Fed::Broken;
                    }
                    self.path.push(name.to_owned());
                    self.text.clear();
                    self.start(id.as_deref(), at);
                }
                Ok(Event::End(tag)) => {
                    let name = tag.local_name();
                    let name: &str = name.as_ref();
                    if self.path.last().is_some_and(|open| open == name) {
                        self.end(at);
                    }
                    // A lost line may have held the end of an inner element.
                    if let Some(depth) = self.path.iter().rposition(|open| open == name) {
                        self.path.truncate(depth);
                    }
                    self.text.clear();
                    if self.path.is_empty() {
                        break Fed::Whole;
                    }
                }
                Ok(Event::Text(piece)) if self.text.len() < MAX_TEXT => self.text.push_str(&piece),
                Ok(Event::GeneralRef(entity)) => {
                    let known = match &*entity {
                        "amp" => "&",
                        "lt" => "<",
                        "gt" => ">",
                        "quot" => "\"",
                        "apos" => "'",
                        _ => "",
                    };
                    self.text.push_str(known);
                }
                Ok(Event::Eof) => break Fed::Inside,
                Ok(_) => {}
                Err(_) => break Fed::Broken,
            }
        };
        self.rest = rest;
        fed
    }

    fn start(&mut self, id: Option<&str>, at: &Provenance) {
        match self.names() {
            (_, "gpu") if id.is_some() => self.report.begin_gpu(id.unwrap_or_default(), at.clone()),
            ("mig_devices", "mig_device") => self.report.begin_slice(at.clone()),
            ("processes", "process_info") => self.report.end_process(),
            _ => {}
        }
    }

    fn end(&mut self, at: &Provenance) {
        let text = std::mem::take(&mut self.text);
        let value = text.trim();
        let fact = match self.names() {
            (_, "timestamp") => Fact::Timestamp,
            (_, "driver_version") => Fact::Driver,
            (_, "cuda_version") => Fact::Cuda,
            (_, "attached_gpus") => Fact::Attached,
            ("gpu", "product_name") => Fact::Name,
            ("gpu", "uuid") => Fact::Uuid,
            ("gpu", "display_active") => Fact::DisplayActive,
            ("gpu", "compute_mode") => Fact::ComputeMode,
            ("mig_mode", "current_mig") => Fact::MigCurrent,
            ("ecc_mode", "current_ecc") => Fact::EccCurrent,
            ("utilization", "gpu_util") => Fact::Utilization,
            ("fb_memory_usage" | "memory_usage", "total") => Fact::Total,
            ("fb_memory_usage" | "memory_usage", "used") => Fact::Used,
            ("fb_memory_usage" | "memory_usage", "free") => Fact::Free,
            ("fb_memory_usage" | "memory_usage", "reserved") => Fact::Reserved,
            ("mig_device", "gpu_instance_id") => Fact::GpuInstance,
            ("mig_device", "compute_instance_id") => Fact::ComputeInstance,
            ("process_info", "gpu_instance_id") => Fact::ProcessGpuInstance,
            ("process_info", "compute_instance_id") => Fact::ProcessComputeInstance,
            ("process_info", "pid") => Fact::Pid,
            ("process_info", "type") => Fact::Kind,
            ("process_info", "process_name") => Fact::ProcessName,
            ("process_info", "used_memory") => Fact::ProcessUsed,
            ("gpu", "processes") => Fact::Processes,
            (_, "mig_device") => return self.report.end_slice(),
            (_, "process_info") => return self.report.end_process(),
            ("nvidia_smi_log" | "ixsmi_log", "gpu") => return self.report.end_gpu(),
            _ => return,
        };
        self.report.set(fact, value, at);
    }

    /// The innermost two elements.
    fn names(&self) -> (&str, &str) {
        match self.path.as_slice() {
            [.., outer, inner] => (outer, inner),
            [inner] => ("", inner),
            [] => ("", ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_looked_for_near_its_name() {
        assert_eq!(root("<nvidia_smi_log>"), Some(0));
        assert_eq!(root("x <smi_log version=\"2\">"), Some(2));
        assert_eq!(root("<a> smi_log"), None);
        // Each of the names would be looked for from the beginning.
        assert_eq!(root(&format!("<{}smi_log", "_".repeat(MAX_PREFIX))), None);
        assert_eq!(root(&format!("<-{}", "smi_log".repeat(9000))), None);
        assert_eq!(root(&format!("{}<smi_log", "é".repeat(40))), Some(80));
    }
}
