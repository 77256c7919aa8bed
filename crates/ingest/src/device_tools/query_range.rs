//! What the HTTP API of Prometheus (Thanos, Mimir, VictoriaMetrics) answers to `query_range` or `query`: series of the
//! memory of GPUs as dcgm-exporter and `nvidia_gpu_exporter` collect them.
//!
//! Read as a stream. Series become readings: one table per moment with the cards of all hosts. The cards of several
//! hosts are numbered through, and a warning says whose which are. Knows no server and no rule about imbalance.

mod envelope;

use super::prometheus::{Metric, metric, numbered_through, size};
use super::values;
use crate::lines::counted;
use crate::live_record::clock;
use crate::{ReadContext, ReadError, json};
use envelope::Document;
use rankscope_model::{
    ArtifactKind, Bytes, CardName, DeviceRow, DeviceTable, Evidence, NUMBERED_BY_ORDER, Provenance, Subject, UnixMicros,
};
use serde::Deserializer;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

/// Cards in one answer beyond this are not real.
const MAX_CARDS: usize = 4096;
/// Samples of used memory that are held: a day of 700 cards every 15 seconds.
const MAX_POINTS: usize = 4 << 20;
/// Samples held of each series that only tells a capacity.
const MAX_OF_CAPACITY: usize = 64;
/// Labels of one series that are looked at.
const MAX_LABELS: usize = 64;
/// Where every answer begins to say what it is.
const MAX_HEAD: usize = 4096;
/// Microseconds between readings when the series do not tell.
const DEFAULT_STEP: i64 = 15_000_000;
/// Readings further apart than this, in microseconds, miss whole phases of a job.
const SPARSE: i64 = 120_000_000;
/// Labels that name the host, most telling first. `instance` is the address of the exporter.
const HOST_LABELS: [&str; 6] = ["Hostname", "hostname", "host", "node", "kubernetes_node", "instance"];

/// Whether a text that begins with `head` is an answer of that API: its envelope, with series or with an error.
pub fn looks_like(head: &str) -> bool {
    let text = head.trim_start_matches('\u{feff}').trim_start();
    let end = text.char_indices().nth(MAX_HEAD).map_or(text.len(), |(end, _)| end);
    let text = text.get(..end).unwrap_or_default();
    let says = |key: &str, values: &[&str]| {
        let after = text.split_once(key).map(|(_, after)| after.trim_start());
        let value = after.and_then(|after| after.strip_prefix(':')).map(str::trim_start);
        value.is_some_and(|value| values.iter().any(|known| value.starts_with(known)))
    };
    text.starts_with('{')
        && (says("\"resultType\"", &["\"matrix\"", "\"vector\"", "\"scalar\"", "\"string\""])
            || (says("\"status\"", &["\"error\""]) && text.contains("\"errorType\"")))
}

/// Reads one answer, or several one after the other. An answer that breaks off is used up to there.
///
/// Errors: [`ReadError::NotThisFormat`] if it is no JSON, says that the query failed, or has no memory of a GPU in it.
pub fn read(input: &mut dyn BufRead, ctx: &ReadContext<'_>) -> Result<Evidence, ReadError> {
    let place = Rc::new(Cell::new(0));
    let counted =
        Counted { input: BufReader::with_capacity(128 << 10, json::Ascii::new(input)), at: Rc::clone(&place) };
    let mut stream = serde_json::Deserializer::from_reader(counted);
    let mut answer = Answer::new(place);
    let mut broken = None;
    loop {
        match (&mut stream).deserialize_map(Document(&mut answer)) {
            Err(error) if answer.points == 0 && answer.failure.is_none() => {
                return Err(json::not_readable(error, "the answer of a Prometheus query"));
            }
            Err(error) => broken = Some(json::what_is_missing(&error)),
            Ok(()) if stream.end().is_err() => continue,
            Ok(()) => {}
        }
        break;
    }
    answer.finish(ctx, broken)
}

/// Counts the bytes that were taken.
struct Counted<R> {
    input: R,
    at: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buf)?;
        self.at.set(self.at.get().saturating_add(n as u64));
        Ok(n)
    }
}

/// Which card of which host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CardKey {
    host: String,
    name: CardLabel,
    /// GPU instance under MIG.
    instance: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum CardLabel {
    Index(u32),
    Uuid(String),
}

/// What the series of one card say.
#[derive(Debug, Default)]
struct Card {
    model: Option<String>,
    uuid: Option<String>,
    bus_id: Option<String>,
    driver: Option<String>,
    /// Where the series of its used memory begins, and how its quote reads.
    at: u64,
    title: String,
    /// Who had the card, as the labels say: pod or job of the workload.
    holders: BTreeSet<String>,
    /// Used memory: microseconds and bytes, as they came.
    used: Vec<(i64, u64)>,
    /// The first samples of what capacity is made of.
    free: Vec<(i64, u64)>,
    reserved: Vec<(i64, u64)>,
    total: Option<u64>,
}

/// Everything that was read.
struct Answer {
    place: Rc<Cell<u64>>,
    cards: BTreeMap<CardKey, Card>,
    points: usize,
    left_out: u64,
    /// Series without memory of a GPU, and the name of the first.
    other: u64,
    first_other: Option<String>,
    /// Series of which the name was lost.
    nameless: u64,
    said: Vec<String>,
    failure: Option<String>,
}

/// Labels and samples of one series.
#[derive(Default)]
struct Series {
    begins: u64,
    labels: Option<Labels>,
    points: Vec<(i64, f64)>,
}

type Labels = BTreeMap<String, String>;

impl Answer {
    fn new(place: Rc<Cell<u64>>) -> Self {
        Self {
            place,
            cards: BTreeMap::new(),
            points: 0,
            left_out: 0,
            other: 0,
            first_other: None,
            nameless: 0,
            said: Vec::new(),
            failure: None,
        }
    }

    /// Whether samples of a series with these labels are worth holding.
    fn wants(labels: &Labels) -> bool {
        labels.get("__name__").and_then(|name| metric(name)).is_some_and(|(_, metric)| is_memory(metric))
    }

    fn series(&mut self, series: Series) {
        let labels = series.labels.unwrap_or_default();
        let Some(name) = labels.get("__name__") else {
            self.nameless = self.nameless.saturating_add(1);
            return;
        };
        let Some((_, metric)) = metric(name).filter(|(_, metric)| is_memory(*metric)) else {
            self.other = self.other.saturating_add(1);
            self.first_other.get_or_insert_with(|| name.clone());
            return;
        };
        let Some(key) = key_of(&labels) else {
            self.other = self.other.saturating_add(1);
            return;
        };
        if self.cards.len() >= MAX_CARDS && !self.cards.contains_key(&key) {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let room = MAX_POINTS.saturating_sub(self.points);
        let card = self.cards.entry(key).or_default();
        let keep = |slot: &mut Option<String>, names: &[&str]| {
            if slot.is_none() {
                *slot = label(&labels, names).map(str::to_owned);
            }
        };
        keep(&mut card.model, &["modelName", "name"]);
        keep(&mut card.uuid, &["UUID", "uuid", "gpu_uuid"]);
        keep(&mut card.bus_id, &["pci_bus_id"]);
        keep(&mut card.driver, &["DCGM_FI_DRIVER_VERSION", "driver_version"]);
        let bytes =
            |unit: u64| series.points.iter().filter_map(move |(time, value)| Some((*time, size(*value, unit)?.0)));
        match metric {
            Metric::Used(unit) => {
                if card.used.is_empty() {
                    card.at = series.begins;
                    card.title.clone_from(name);
                }
                card.holders.extend(holder(&labels));
                let before = card.used.len();
                card.used.extend(bytes(unit).take(room));
                let added = card.used.len().saturating_sub(before);
                self.points = self.points.saturating_add(added);
                self.left_out = self.left_out.saturating_add(u64::from(added < series.points.len() && added == room));
            }
            Metric::Free(unit) => card.free.extend(bytes(unit).take(MAX_OF_CAPACITY)),
            Metric::Reserved(unit) => card.reserved.extend(bytes(unit).take(MAX_OF_CAPACITY)),
            Metric::Total(unit) => card.total = card.total.max(bytes(unit).map(|(_, total)| total).max()),
            Metric::Utilization(_) | Metric::Other => {}
        }
    }

    fn say(&mut self, text: &str) {
        if self.said.len() < 8 {
            self.said.push(Provenance::cut(text));
        }
    }

    fn finish(mut self, ctx: &ReadContext<'_>, broken: Option<String>) -> Result<Evidence, ReadError> {
        let seen = self.cards.len();
        self.cards.retain(|_, card| !card.used.is_empty());
        if self.cards.is_empty() {
            return Err(ReadError::NotThisFormat { why: self.why_empty(seen) });
        }
        let step = step_of(self.cards.values());
        let hosts: BTreeSet<String> = self.cards.keys().map(|key| key.host.clone()).collect();
        let numbered = Numbered::new(&self.cards);
        let mut warnings: Vec<String> = broken.into_iter().collect();
        warnings.extend(self.failure.iter().map(|why| format!("one of the answers is an error: {why}")));
        warnings.extend(self.said.iter().map(|text| format!("the server said: {text}")));
        warnings.extend(numbered.whose(&self.cards, &hosts));
        if step >= SPARSE {
            let minutes = step / 60_000_000;
            warnings.push(format!(
                "one reading in {minutes} minutes or more: a peak between two is not in it; ask for a smaller step"
            ));
        }
        if self.left_out > 0 {
            warnings.push(format!(
                "{} left out or cut, over the limits; ask for fewer cards or a larger step",
                counted(self.left_out, "series was", "series were")
            ));
        }
        let readings = Readings::of(self.cards.values(), step);
        let limit = readings.limit(self.cards.len(), ctx.limits.max_device_rows);
        let kept = readings.thinned(self.cards.len(), limit, &mut warnings);
        let rows: Vec<DeviceRow> = self
            .cards
            .iter()
            .zip(&numbered.subjects)
            .map(|((key, card), subject)| card.row(key, *subject, ctx))
            .collect();
        let tables = kept.iter().map(|reading| reading.table(&rows, &self.cards, ctx)).collect();
        let mut info = ctx.info(ArtifactKind::Prometheus);
        info.devices = numbered
            .subjects
            .iter()
            .filter_map(|subject| subject.device())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let (mut cards, mut unnumbered) = (Vec::new(), Vec::new());
        // Of several hosts the numbers are only this file's.
        if hosts.len() == 1 {
            for (key, row) in self.cards.keys().zip(&rows) {
                let (Subject::Device(index), Some(uuid)) = (row.subject, row.uuid.clone()) else { continue };
                let list = if matches!(key.name, CardLabel::Index(_)) { &mut cards } else { &mut unnumbered };
                list.push(CardName { at: row.at.clone(), uuid, index, mig: None });
            }
        }
        warnings.truncate(ctx.limits.max_warnings);
        info.warnings = warnings;
        Ok(Evidence { artifacts: vec![info], device_tables: tables, cards, unnumbered, ..Evidence::default() })
    }

    /// What to say of an answer without used memory of a GPU.
    fn why_empty(&self, cards: usize) -> String {
        if let Some(why) = &self.failure {
            return format!("the query failed: {why}; ask again, and keep the answer that has series in it");
        }
        if cards > 0 {
            return "the answer has series of GPUs, but no sample of their used memory; ask for DCGM_FI_DEV_FB_USED"
                .to_owned();
        }
        match (&self.first_other, self.nameless) {
            (Some(name), _) => format!(
                "the answer has {} series, but none of the memory of a GPU (the first is {name}); ask for \
                 DCGM_FI_DEV_FB_USED",
                self.other
            ),
            (None, 1..) => {
                "the series in the answer have no metric name, which functions such as max_over_time() take \
                            away; ask for the selector alone"
                    .to_owned()
            }
            (None, 0) => "the answer has no series: nothing matches that selector at that time; check the labels, the \
                          time range and that its end is after its begin"
                .to_owned(),
        }
    }
}

fn is_memory(metric: Metric) -> bool {
    !matches!(metric, Metric::Utilization(_) | Metric::Other)
}

/// The first of these labels that says something.
fn label<'l>(labels: &'l Labels, names: &[&str]) -> Option<&'l str> {
    names.iter().find_map(|name| labels.get(*name)).map(String::as_str).filter(|value| !value.is_empty())
}

fn key_of(labels: &Labels) -> Option<CardKey> {
    let index = label(labels, &["gpu"])
        .or_else(|| label(labels, &["device"]).and_then(|device| device.strip_prefix("nvidia")))
        .or_else(|| label(labels, &["index", "minor_number"]))
        .and_then(values::index);
    let uuid = label(labels, &["UUID", "uuid", "gpu_uuid"]);
    let name = match (index, uuid) {
        (Some(index), _) => CardLabel::Index(index),
        (None, Some(uuid)) => CardLabel::Uuid(uuid.to_owned()),
        (None, None) => return None,
    };
    let host = HOST_LABELS.iter().find_map(|name| Some((*name, label(labels, &[name])?)));
    let host = host.map_or("", |(name, host)| if name == "instance" { without_port(host) } else { host });
    let instance = label(labels, &["GPU_I_ID"]).and_then(values::index);
    Some(CardKey { host: host.to_owned(), name, instance })
}

fn without_port(address: &str) -> &str {
    match address.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => address,
    }
}

/// Who had the card. A scrape that does not honour labels calls the workload `exported_pod`, and the exporter `pod`.
fn holder(labels: &Labels) -> Option<String> {
    let pod = label(labels, &["exported_pod"])
        .or_else(|| label(labels, &["pod", "pod_name"]).filter(|pod| !pod.contains("exporter")))
        .map(|pod| format!("pod {pod}"));
    pod.or_else(|| label(labels, &["hpc_job"]).map(|job| format!("job {job}")))
}

/// Microseconds between the samples of most series: that of the longest one.
fn step_of<'a>(cards: impl Iterator<Item = &'a Card>) -> i64 {
    let Some(longest) = cards.max_by_key(|card| card.used.len()) else { return DEFAULT_STEP };
    let mut times: Vec<i64> = longest.used.iter().map(|(time, _)| *time).collect();
    times.sort_unstable();
    let mut gaps: Vec<i64> =
        times.iter().zip(times.iter().skip(1)).map(|(a, b)| b.saturating_sub(*a)).filter(|gap| *gap > 0).collect();
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().unwrap_or(DEFAULT_STEP)
}

/// The cards with the numbers that they have here.
struct Numbered {
    /// In the order of the cards.
    subjects: Vec<Subject>,
    /// Host, first and last number.
    ranges: Vec<(String, u32, u32)>,
    by_order: bool,
}

impl Numbered {
    fn new(cards: &BTreeMap<CardKey, Card>) -> Self {
        let mut numbered = Self { subjects: Vec::new(), ranges: Vec::new(), by_order: false };
        let several = cards.keys().any(|key| Some(&key.host) != cards.keys().next().map(|first| &first.host));
        // GPUs of each host by index; those of which only the UUID is known follow in order.
        let (mut base, mut next, mut host): (u32, u32, Option<&str>) = (0, 0, None);
        let mut by_uuid: BTreeMap<&str, u32> = BTreeMap::new();
        for key in cards.keys() {
            if host != Some(key.host.as_str()) {
                host = Some(&key.host);
                base = if several { base.saturating_add(next) } else { 0 };
                next = 0;
                by_uuid.clear();
                numbered.ranges.push((key.host.clone(), base, base));
            }
            let own = match &key.name {
                CardLabel::Index(index) => *index,
                CardLabel::Uuid(uuid) => {
                    numbered.by_order = true;
                    *by_uuid.entry(uuid).or_insert(next)
                }
            };
            next = next.max(own.saturating_add(1));
            let device = base.saturating_add(own);
            if let Some(range) = numbered.ranges.last_mut() {
                range.2 = range.2.max(device);
            }
            numbered.subjects.push(match key.instance {
                // The memory is the GPU instance's; its first compute instance stands for it.
                Some(gpu_instance) => Subject::MigSlice { device, gpu_instance, compute_instance: 0 },
                None => Subject::Device(device),
            });
        }
        numbered
    }

    /// Sentences on whose the cards are.
    fn whose(&self, cards: &BTreeMap<CardKey, Card>, hosts: &BTreeSet<String>) -> Vec<String> {
        let mut said = Vec::new();
        let mut holders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (key, card) in cards {
            holders.entry(&key.host).or_default().extend(card.holders.iter().map(String::as_str));
        }
        let of = |host: &str| {
            let names: Vec<&str> = holders.get(host).into_iter().flatten().copied().take(4).collect();
            if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
        };
        if hosts.len() > 1 {
            said.push(numbered_through(hosts.len(), &self.ranges, of));
        } else if let Some(host) = hosts.first().filter(|host| !of(host).is_empty()) {
            said.push(format!("who had the GPUs, as the labels say:{}", of(host)));
        }
        if self.by_order {
            said.push(format!(
                "the series name GPUs without their index, so they are {NUMBERED_BY_ORDER}; upload the output of \
                 `nvidia-smi -L` too, to have their own numbers"
            ));
        }
        said
    }
}

impl Card {
    /// Everything about a card that does not change. Its capacity is the same in all tables: cards are compared by it.
    fn row(&self, key: &CardKey, subject: Subject, ctx: &ReadContext<'_>) -> DeviceRow {
        let mut title = format!("{}{{", self.title);
        if !key.host.is_empty() {
            let _ = write!(title, "host=\"{}\",", key.host);
        }
        // Writing into a String cannot fail.
        let _ = match &key.name {
            CardLabel::Index(index) => write!(title, "gpu=\"{index}\""),
            CardLabel::Uuid(uuid) => write!(title, "UUID=\"{uuid}\""),
        };
        title.extend(key.instance.map(|instance| format!(",GPU_I_ID=\"{instance}\"")));
        title.extend(self.holders.first().map(|holder| format!(",{holder}")));
        title.push('}');
        let at = Provenance { quote: Provenance::cut(&title), ..Provenance::offset(ctx.artifact, self.at) };
        DeviceRow {
            name: self.model.clone(),
            uuid: self.uuid.clone(),
            bus_id: self.bus_id.clone(),
            total: self.capacity().map(Bytes),
            reserved: self.reserved.iter().map(|(_, bytes)| Bytes(*bytes)).max(),
            ..DeviceRow::new(at, subject)
        }
    }

    /// As printed, else what was used, free and reserved at one moment, at most.
    fn capacity(&self) -> Option<u64> {
        self.total.or_else(|| {
            let reserved: BTreeMap<i64, u64> = self.reserved.iter().copied().collect();
            let rest: BTreeMap<i64, u64> = self
                .free
                .iter()
                .map(|(time, free)| (*time, free.saturating_add(reserved.get(time).copied().unwrap_or_default())))
                .collect();
            self.used.iter().filter_map(|(time, used)| Some(used.saturating_add(*rest.get(time)?))).max()
        })
    }
}

/// All samples in order of time.
struct Readings {
    step: i64,
    first: i64,
    /// Number of the step, position of the card, bytes.
    samples: Vec<(i64, u32, u64)>,
}

impl Readings {
    fn of<'a>(cards: impl Iterator<Item = &'a Card> + Clone, step: i64) -> Self {
        let step = step.max(1);
        let first = cards.clone().flat_map(|card| &card.used).map(|(time, _)| *time).min().unwrap_or(0);
        let number = |time: i64| time.saturating_sub(first).saturating_add(step / 2).div_euclid(step);
        let mut samples = Vec::with_capacity(cards.clone().map(|card| card.used.len()).sum());
        for (position, card) in (0u32..).zip(cards) {
            samples.extend(card.used.iter().map(|(time, used)| (number(*time), position, *used)));
        }
        samples.sort_unstable();
        // Two exporters of one card, or two scrapes within a step: the larger counts, and it comes later.
        samples.dedup_by(|later, earlier| {
            let is_same = (later.0, later.1) == (earlier.0, earlier.1);
            if is_same {
                earlier.2 = later.2;
            }
            is_same
        });
        Self { step, first, samples }
    }

    /// Rows that may be made: what is asked for, and no more than a few times what was read.
    fn limit(&self, cards: usize, most: usize) -> usize {
        most.min(self.samples.len().saturating_mul(4).saturating_add(1024))
            .max(cards.saturating_add(1).saturating_mul(2))
    }

    /// The readings that are kept: of each few in a row the fullest, and of every card the one at its peak.
    fn thinned(&self, cards: usize, limit: usize, warnings: &mut Vec<String>) -> Vec<Reading> {
        let (mut last, mut count) = (None, 0usize);
        for (number, ..) in &self.samples {
            if last != Some(*number) {
                last = Some(*number);
                count = count.saturating_add(1);
            }
        }
        let rows = cards.saturating_add(1);
        let room = limit.checked_div(rows).unwrap_or(0).max(2);
        let has_peaks = cards <= room / 2;
        let room = if has_peaks { room.saturating_sub(cards) } else { room };
        let width = count.div_ceil(room.max(1)).max(1);
        let mut peaks: Vec<(u64, i64)> = vec![(0, i64::MIN); if has_peaks && width > 1 { cards } else { 0 }];
        for (number, card, used) in &self.samples {
            let peak = usize::try_from(*card).ok().and_then(|card| peaks.get_mut(card));
            if let Some(peak) = peak.filter(|peak| peak.1 == i64::MIN || *used > peak.0) {
                *peak = (*used, *number);
            }
        }
        let at_peak: BTreeSet<i64> = peaks.iter().map(|(_, number)| *number).collect();
        let mut kept: Vec<Reading> = Vec::new();
        let mut fullest: Option<(u64, Reading)> = None;
        let mut in_group = 0usize;
        for samples in self.samples.chunk_by(|a, b| a.0 == b.0) {
            let Some((number, ..)) = samples.first() else { continue };
            let most = samples.iter().map(|(_, _, used)| *used).max().unwrap_or(0);
            if at_peak.contains(number) {
                kept.push(self.reading(*number, samples));
            } else if fullest.as_ref().is_none_or(|(known, _)| most > *known) {
                fullest = Some((most, self.reading(*number, samples)));
            }
            in_group = in_group.saturating_add(1);
            if in_group >= width {
                in_group = 0;
                kept.extend(fullest.take().map(|(_, reading)| reading));
            }
        }
        kept.extend(fullest.map(|(_, reading)| reading));
        kept.sort_by_key(|reading| reading.time);
        let left_out = count.saturating_sub(kept.len());
        if left_out > 0 {
            let peaks = if has_peaks { ", and of each GPU the reading at its peak" } else { "" };
            warnings.push(format!(
                "{left_out} of {count} readings were left out: of each {width} the fullest was kept{peaks}"
            ));
        }
        kept
    }

    fn reading(&self, number: i64, samples: &[(i64, u32, u64)]) -> Reading {
        let time = self.first.saturating_add(number.saturating_mul(self.step));
        Reading { time, used: samples.iter().map(|(_, card, used)| (*card, *used)).collect() }
    }
}

/// What the cards used at one moment.
struct Reading {
    time: i64,
    /// Position of the card and bytes, each card once.
    used: Vec<(u32, u64)>,
}

impl Reading {
    fn table(&self, rows: &[DeviceRow], cards: &BTreeMap<CardKey, Card>, ctx: &ReadContext<'_>) -> DeviceTable {
        let time = UnixMicros(self.time);
        let at = cards.values().map(|card| card.at).min().unwrap_or(0);
        let mut table = DeviceTable::new(Provenance { time: Some(time), ..Provenance::offset(ctx.artifact, at) });
        table.time = Some(time);
        table.time_text = Some(clock(time));
        table.driver_version = cards.values().find_map(|card| card.driver.clone());
        table.devices = rows.to_vec();
        for row in &mut table.devices {
            row.at.time = Some(time);
        }
        for (card, used) in &self.used {
            if let Some(row) = usize::try_from(*card).ok().and_then(|card| table.devices.get_mut(card)) {
                row.used = Some(Bytes(*used));
                row.at.quote = Provenance::cut(&format!("{} {}", row.at.quote, Bytes(*used)));
            }
        }
        // Physical GPUs first.
        table.devices.sort_by_key(|row| matches!(row.subject, Subject::MigSlice { .. }));
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_envelope_is_told_from_other_json() {
        assert!(looks_like(r#"{"status":"success","data":{"resultType":"matrix","result":["#));
        assert!(looks_like("\n{\n  \"status\": \"success\",\n  \"data\": {\n    \"resultType\": \"vector\","));
        assert!(looks_like(r#"{"status":"success","isPartial":false,"data":{"resultType":"matrix""#));
        assert!(looks_like(r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#));
        assert!(!looks_like(r#"{"status":"success","data":{"resultType":"streams","result":["#));
        assert!(!looks_like(r#"{"status":"error","message":"no"}"#));
        assert!(!looks_like(r#"{"devices":[{"index":0}]}"#));
        assert!(!looks_like(r#"[rank0]: {"resultType":"matrix"}"#));
        assert!(!looks_like("{"));
    }

    #[test]
    fn the_port_of_an_exporter_is_no_part_of_its_host() {
        assert_eq!(without_port("gpu-07:9400"), "gpu-07");
        assert_eq!(without_port("[fd00::7]:9400"), "[fd00::7]");
        assert_eq!(without_port("gpu-07"), "gpu-07");
    }
}
