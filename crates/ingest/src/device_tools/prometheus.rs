//! Metrics of GPUs in the text format of Prometheus: `dcgm-exporter` (`DCGM_FI_DEV_FB_USED`, and `dcgm_fb_used` of its
//! first versions) and `nvidia_gpu_exporter` (`nvidia_smi_memory_used_bytes`).
//!
//! One scrape is one reading. Exporters sample every half minute or so: peaks between are not in them.

use super::sink::{Numbering, Sink};
use super::values;
use crate::lines::{Line, Tally, counted};
use rankscope_model::{ArtifactKind, Bytes, DeviceRow, DeviceTable, MIB, Provenance, Subject, UnixMicros};
use std::collections::{BTreeMap, BTreeSet};

/// Devices in one scrape beyond this are not real.
const MAX_ROWS: usize = 4096;
/// Hosts whose scrapes may be mixed line by line.
const MAX_HOSTS: usize = 256;
/// Hosts that a warning names.
const MAX_NAMED: usize = 16;
/// Labels of one sample looked at.
const MAX_LABELS: usize = 64;

/// Gathers scrapes line by line.
#[derive(Default)]
pub(super) struct PrometheusReader {
    /// The scrape of each host; without a host label there is one.
    open: BTreeMap<String, Open>,
    /// Scrapes that have ended, with their hosts.
    done: Vec<(String, Open)>,
    /// Samples of memory that are no size.
    sizeless: Tally,
    /// Samples of GPUs that tell no memory, and whether any does.
    of_others: Tally,
    tells_memory: bool,
}

struct Open {
    table: DeviceTable,
    rows: BTreeMap<Key, DeviceRow>,
    seen: BTreeSet<(&'static str, Key)>,
    numbering: Numbering,
}

/// A device of a scrape: number, and GPU instance under MIG.
type Key = (u32, Option<u32>);

/// What a metric says of a card, with the bytes of its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Metric {
    Used(u64),
    Free(u64),
    Reserved(u64),
    Total(u64),
    /// Times this it is percent.
    Utilization(f64),
    /// Of GPUs, but not of their memory.
    Other,
}

impl PrometheusReader {
    /// Takes a line; `true` if it was a sample of a GPU or its description.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let used = self.try_line(line, sink);
        if used {
            sink.count(ArtifactKind::Prometheus, 1);
        }
        used
    }

    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        self.done.extend(std::mem::take(&mut self.open));
        self.give(sink);
        if self.sizeless.count > 0 {
            sink.warn(format!(
                "line {}: {} of memory {} no size (not a number, negative, or what DCGM prints where it does not know), \
                 so the memory of {} is not known",
                self.sizeless.first,
                counted(self.sizeless.count, "sample", "samples"),
                if self.sizeless.count == 1 { "is" } else { "are" },
                if self.sizeless.count == 1 { "that GPU" } else { "those GPUs" },
            ));
        }
        if let Some(lines) = self.of_others.told("has", "have").filter(|_| !self.tells_memory) {
            sink.warn(format!(
                "{lines} metrics of GPUs, and none tells their memory; add DCGM_FI_DEV_FB_USED and DCGM_FI_DEV_FB_FREE to \
                 the counters of the exporter"
            ));
        }
    }

    /// Hands on what was read. The cards of several hosts are numbered through, and the n-th scrapes of all hosts are one
    /// reading: else cards of one number would be taken for one.
    fn give(&mut self, sink: &mut Sink<'_>) {
        let done = std::mem::take(&mut self.done);
        let mut hosts: BTreeMap<&str, u32> = BTreeMap::new();
        for (host, open) in &done {
            let highest = open.rows.keys().map(|(number, _)| *number).max().unwrap_or(0);
            let width = hosts.entry(host).or_default();
            *width = (*width).max(highest.saturating_add(1));
        }
        if hosts.len() < 2 {
            return done.into_iter().for_each(|(_, open)| {
                let numbering = open.numbering;
                sink.push(ArtifactKind::Prometheus, open.into_table(), numbering);
            });
        }
        let mut next = 0u32;
        let mut ranges: Vec<(String, u32, u32)> = Vec::new();
        for (host, width) in hosts {
            let last = next.saturating_add(width).saturating_sub(1);
            ranges.push((host.to_owned(), next, last));
            next = last.saturating_add(1);
        }
        sink.warn(numbered_through(ranges.len(), &ranges, |_| String::new()));
        let first: BTreeMap<String, u32> = ranges.into_iter().map(|(host, first, _)| (host, first)).collect();
        let mut scrapes: BTreeMap<String, usize> = BTreeMap::new();
        let mut readings: BTreeMap<usize, (DeviceTable, Numbering)> = BTreeMap::new();
        for (host, open) in done {
            let shift = first.get(&host).copied().unwrap_or(0);
            let number = scrapes.entry(host).or_default();
            let numbering = open.numbering;
            let mut table = open.into_table();
            // By name they are numbered through as it is.
            for row in table.devices.iter_mut().filter(|_| numbering != Numbering::ByName) {
                match &mut row.subject {
                    Subject::Device(device) | Subject::MigSlice { device, .. } => {
                        *device = device.saturating_add(shift);
                    }
                    Subject::Rank(_) => {}
                }
            }
            match readings.get_mut(number) {
                Some((reading, _)) => reading.devices.append(&mut table.devices),
                None => drop(readings.insert(*number, (table, numbering))),
            }
            *number = number.saturating_add(1);
        }
        for (table, numbering) in readings.into_values() {
            sink.push(ArtifactKind::Prometheus, table, numbering);
        }
    }

    fn try_line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if let Some(comment) = line.body.strip_prefix("# ") {
            let name = comment.strip_prefix("HELP ").or_else(|| comment.strip_prefix("TYPE "));
            return name.and_then(|rest| rest.split(' ').next()).is_some_and(|name| metric(name).is_some());
        }
        let Some((full_name, _)) = line.body.split_once('{') else { return false };
        let full_name = full_name.trim_end();
        let Some((name, metric)) = metric(full_name) else { return false };
        let Some(sample) = Sample::parse(line.body) else { return false };
        // The exporter that names cards by UUID tells their numbers in a metric of its own.
        if full_name == "nvidia_smi_index"
            && let Some(index) = sample.whole().filter(|index| *index < 1024)
        {
            sink.identify(None, sample.label(&["uuid"]), index);
        }
        if matches!(metric, Metric::Other | Metric::Utilization(_)) {
            self.of_others.add(line.number);
        } else {
            self.tells_memory = true;
        }
        if metric == Metric::Other {
            let index = sample.label(&["gpu"]).and_then(values::index);
            if let Some(index) = index {
                sink.see_device(index);
            }
            return index.is_some() || sample.label(&["uuid", "UUID"]).is_some();
        }
        if let Metric::Used(unit) | Metric::Free(unit) | Metric::Reserved(unit) | Metric::Total(unit) = metric
            && sample.bytes(unit).is_none()
        {
            self.sizeless.add(line.number);
        }
        self.add(name, metric, &sample, sink.at(line), sink);
        true
    }

    fn add(
        &mut self,
        name: &'static str,
        metric: Metric,
        sample: &Sample<'_>,
        mut at: Provenance,
        sink: &mut Sink<'_>,
    ) {
        let uuid = sample.label(&["UUID", "uuid", "gpu_uuid"]);
        let bus_id = sample.label(&["pci_bus_id"]);
        let index = sample.label(&["gpu"]).and_then(values::index);
        let numbering = if index.is_some() { Numbering::Printed } else { Numbering::ByName };
        let Some(number) = index.or_else(|| sink.number(bus_id, uuid)) else { return };
        let instance = sample.label(&["GPU_I_ID"]).and_then(values::index);
        let key = (number, instance);
        let named = sample.label(&["Hostname", "hostname"]);
        // A sample without a host beside those of one host is that host's.
        let only = self.open.keys().next().filter(|_| named.is_none() && self.open.len() == 1).cloned();
        let host = &*only.unwrap_or_else(|| named.unwrap_or_default().to_owned());
        let begins = self.open.get(host).is_none_or(|open| {
            open.seen.contains(&(name, key)) || open.numbering != numbering || open.rows.len() >= MAX_ROWS
        });
        if begins {
            self.done.extend(self.open.remove_entry(host));
            if self.open.len() >= MAX_HOSTS {
                self.done.extend(self.open.pop_first());
            }
            let mut table = DeviceTable::new(at.clone());
            table.time = sample.time;
            table.at.time = sample.time;
            let open = Open { table, rows: BTreeMap::new(), seen: BTreeSet::new(), numbering };
            self.open.insert(host.to_owned(), open);
        }
        let Some(open) = self.open.get_mut(host) else { return };
        open.seen.insert((name, key));
        if let Some(driver) = sample.label(&["DCGM_FI_DRIVER_VERSION", "driver_version"]) {
            open.table.driver_version.get_or_insert_with(|| driver.to_owned());
        }
        at.time = at.time.or(open.table.time);
        let subject = match instance {
            // The memory is the GPU instance's; its first compute instance stands for it.
            Some(gpu_instance) => Subject::MigSlice { device: number, gpu_instance, compute_instance: 0 },
            None => Subject::Device(number),
        };
        let row = open.rows.entry(key).or_insert_with(|| DeviceRow {
            name: sample.label(&["modelName", "name"]).map(str::to_owned),
            uuid: uuid.map(str::to_owned),
            bus_id: bus_id.map(str::to_owned),
            ..DeviceRow::new(at.clone(), subject)
        });
        match metric {
            Metric::Used(unit) => {
                row.used = sample.bytes(unit);
                row.at = at;
            }
            Metric::Free(unit) => row.free = sample.bytes(unit),
            Metric::Reserved(unit) => row.reserved = sample.bytes(unit),
            Metric::Total(unit) => row.total = sample.bytes(unit),
            Metric::Utilization(scale) => row.utilization_percent = sample.percent(scale),
            Metric::Other => {}
        }
    }
}

impl Open {
    fn into_table(mut self) -> DeviceTable {
        for row in self.rows.values_mut().filter(|row| row.total.is_none()) {
            // The driver's share is part of `used` where the exporter does not print it.
            row.total = row
                .used
                .zip(row.free)
                .map(|(used, free)| used.saturating_add(free).saturating_add(row.reserved.unwrap_or_default()));
        }
        // A slice of which only the utilisation is printed would hide the memory of its GPU.
        let has_memory = |row: &DeviceRow| row.used.is_some() || row.total.is_some();
        if self.rows.values().any(has_memory) {
            self.rows.retain(|_, row| has_memory(row));
        }
        let (slices, mut devices): (Vec<_>, Vec<_>) =
            self.rows.into_values().partition(|row| matches!(row.subject, Subject::MigSlice { .. }));
        devices.extend(slices);
        self.table.devices = devices;
        self.table
    }
}

/// Whose cards are which where those of `hosts` hosts are numbered through; `of` adds who had those of a host.
pub(super) fn numbered_through(hosts: usize, ranges: &[(String, u32, u32)], of: impl Fn(&str) -> String) -> String {
    let range = |(host, first, last): &(String, u32, u32)| {
        let name = if host.is_empty() { "a host without a name" } else { host };
        let numbers = if first == last { format!("GPU {first}") } else { format!("GPU {first} to {last}") };
        format!("{numbers} on {name}{}", of(host))
    };
    let mut named: Vec<String> = ranges.iter().take(MAX_NAMED).map(range).collect();
    if ranges.len() > MAX_NAMED {
        named.push(format!("and so on for {} hosts", ranges.len()));
    }
    format!("the GPUs of {hosts} hosts are numbered through: {}", named.join("; "))
}

/// What a metric says, and its name for telling samples apart.
pub(super) fn metric(name: &str) -> Option<(&'static str, Metric)> {
    let known = [
        ("DCGM_FI_DEV_FB_USED", Metric::Used(MIB)),
        ("DCGM_FI_DEV_FB_FREE", Metric::Free(MIB)),
        ("DCGM_FI_DEV_FB_RESERVED", Metric::Reserved(MIB)),
        ("DCGM_FI_DEV_FB_TOTAL", Metric::Total(MIB)),
        ("DCGM_FI_DEV_GPU_UTIL", Metric::Utilization(1.0)),
        ("dcgm_fb_used", Metric::Used(MIB)),
        ("dcgm_fb_free", Metric::Free(MIB)),
        ("dcgm_gpu_utilization", Metric::Utilization(1.0)),
        ("nvidia_smi_memory_used_bytes", Metric::Used(1)),
        ("nvidia_smi_memory_free_bytes", Metric::Free(1)),
        ("nvidia_smi_memory_reserved_bytes", Metric::Reserved(1)),
        ("nvidia_smi_memory_total_bytes", Metric::Total(1)),
        ("nvidia_smi_utilization_gpu_ratio", Metric::Utilization(100.0)),
    ];
    known.into_iter().find(|(known, _)| *known == name).or_else(|| {
        ["DCGM_FI_", "nvidia_smi_", "dcgm_"].iter().any(|start| name.starts_with(start)).then_some(("", Metric::Other))
    })
}

/// One line: name, labels, value and perhaps a time in milliseconds.
struct Sample<'a> {
    labels: Vec<(&'a str, &'a str)>,
    value: f64,
    time: Option<UnixMicros>,
}

impl<'a> Sample<'a> {
    fn parse(body: &'a str) -> Option<Self> {
        let (_, mut rest) = body.split_once('{')?;
        let mut labels = Vec::new();
        loop {
            rest = rest.trim_start_matches([',', ' ']);
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (key, after) = rest.split_once('=')?;
            let after = after.trim_start().strip_prefix('"')?;
            let end = unescaped_quote(after)?;
            if labels.len() >= MAX_LABELS {
                return None;
            }
            labels.push((key.trim(), after.get(..end)?));
            rest = after.get(end.saturating_add(1)..)?;
        }
        let mut words = rest.split_ascii_whitespace();
        let value: f64 = words.next()?.parse().ok()?;
        let millis: Option<i64> = match words.next() {
            Some(word) => Some(word.parse().ok()?),
            None => None,
        };
        words.next().is_none().then_some(Self {
            labels,
            value,
            time: millis.and_then(|ms| ms.checked_mul(1000)).map(UnixMicros),
        })
    }

    /// The first of these labels that says something.
    fn label(&self, names: &[&str]) -> Option<&'a str> {
        names.iter().find_map(|name| {
            self.labels.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| *value)
        })
    }

    fn bytes(&self, unit: u64) -> Option<Bytes> {
        size(self.value, unit)
    }

    fn whole(&self) -> Option<u32> {
        let is_whole = self.value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&self.value);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
        is_whole.then_some(self.value as u32)
    }

    fn percent(&self, scale: f64) -> Option<u8> {
        let percent = (self.value * scale).round();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0 and 100")]
        (0.0..=100.0).contains(&percent).then_some(percent as u8)
    }
}

/// `None` for NaN, and for the huge numbers by which DCGM says that it does not know.
pub(super) fn size(value: f64, unit: u64) -> Option<Bytes> {
    // 2^47 is more memory than any GPU has.
    Bytes::from_float(value, unit).filter(|bytes| bytes.0 < 1 << 47)
}

fn unescaped_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|b| {
        let ends = b == b'"' && !is_escaped;
        is_escaped = b == b'\\' && !is_escaped;
        ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_labels_value_and_perhaps_a_time() {
        let sample =
            Sample::parse(r#"DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",pod="a\"}b"} 1024 1600000000000"#).unwrap();
        assert_eq!(sample.label(&["gpu"]), Some("0"));
        assert_eq!(sample.bytes(MIB), Some(Bytes::from_mib(1024)));
        assert_eq!(sample.time, Some(UnixMicros(1_600_000_000_000_000)));
        for broken in ["A{gpu=\"0\" 5", "A{gpu=0} 5", "A{gpu=\"0\"}", "A{gpu=\"0\"} x", "A{gpu=\"0\"} 1 2 3"] {
            assert!(Sample::parse(broken).is_none(), "{broken}");
        }
        assert_eq!(Sample::parse("A{} 9223372036854775794").unwrap().bytes(MIB), None);
        assert_eq!(Sample::parse("A{} NaN").unwrap().bytes(MIB), None);
    }
}
