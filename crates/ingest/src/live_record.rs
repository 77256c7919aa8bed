//! The record of a live run: lines of `rankscope.live/1` of one node, as the server writes them into a run's files or
//! as an agent sends them.
//!
//! A table is made of each line of memory, at its fullest sample, with the processes that were listed last. Unknown
//! types are passed over, lines that are cut or foreign are counted. Knows no rule about imbalance.

mod readings;

use crate::context::{Limits, ReadContext};
use crate::lines::{Line, Tally, counted, for_each_line};
use crate::sniff::TextEncoding;
use rankscope_model::{
    ArtifactKind, Bytes, DeviceEvent, DeviceRow, Evidence, LIVE_FORMAT, LiveColumn, LiveDevice, LiveDropped, LiveLine,
    LiveMemory, LiveNode, LiveProcess, LiveProcesses, LiveRecord, LiveState, LiveStateKind, MIB, ProcessListing,
    ProcessRow, Provenance, Subject, UnixMicros,
};
use readings::{Reading, Readings};
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::rc::Rc;

/// A list of the processes of a large node is longer than an ordinary line.
const MAX_LINE_BYTES: usize = 1 << 20;
/// A card whose use has changed by so much since the list may hold processes that are not listed yet.
const STALE: u64 = 64 * MIB;
/// Figures further from a list than this, in microseconds, do not tell what the cards used then.
const SAME_MOMENT: u64 = 500_000;
/// The lists of all cards are gathered within this time, in microseconds, one card after the other.
const GATHERED: u64 = 900_000;
/// Devices of one node that are read; sixteen cards in seven slices each are 128.
const MAX_DEVICES: usize = 512;
/// Processes of one list that are read.
const MAX_PROCESSES: usize = 4096;
/// Events of one record that are read.
const MAX_EVENTS: usize = 1000;
/// Letters of a name or version that are kept: every table repeats them.
const MAX_NAME: usize = 240;

/// Whether the first bytes of a file are a live record: the head of a batch, or a line of one.
pub fn is_live_record(head: &[u8]) -> bool {
    let line = head.split(|b| *b == b'\n').find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
    let line = String::from_utf8_lossy(line.get(..line.len().min(4096)).unwrap_or_default());
    line.trim_start().starts_with('{') && line.contains("\"format\":\"rankscope.live/")
}

/// Reads a record. Never fails: what cannot be read is a warning.
pub fn read(input: &mut dyn BufRead, ctx: &ReadContext<'_>) -> Evidence {
    let limits = Limits { max_line_bytes: MAX_LINE_BYTES, ..ctx.limits.clone() };
    let mut reader = Reader::new(ctx);
    let scan = for_each_line(input, TextEncoding::Utf8, &limits, &mut |line, _| reader.line(&line));
    let stopped = scan
        .stopped
        .map(|(line, error)| format!("the record ends early, after line {line}: {error}; what stands before was read"));
    reader.finish(stopped)
}

/// The processes as they were listed last, and what the cards used then.
struct Listed {
    time: Option<UnixMicros>,
    listing: ProcessListing,
    rows: Rc<[ProcessRow]>,
    used: BTreeMap<Subject, Bytes>,
    /// How far from the list those figures were read, in microseconds.
    apart: u64,
    /// The least and the most that each card used while the lists were gathered, one card after the other.
    bands: Bands,
}

type Bands = BTreeMap<Subject, (u64, u64)>;

struct Reader<'c> {
    ctx: &'c ReadContext<'c>,
    node: Rc<LiveNode>,
    used: BTreeMap<Subject, Bytes>,
    used_at: Option<UnixMicros>,
    /// Of the last line of samples, which ends at `used_at`.
    bands: Bands,
    listed: Option<Listed>,
    readings: Readings,
    ranks: BTreeSet<u32>,
    devices: BTreeSet<u32>,
    events: Vec<DeviceEvent>,
    warnings: Vec<String>,
    newer: Option<String>,
    bad: Tally,
    lost: u64,
    lost_by_server: bool,
}

impl Listed {
    /// What the list is worth once the cards use so much.
    fn listing_at(&self, used: &BTreeMap<Subject, Bytes>) -> ProcessListing {
        // A card that moves while the lists are gathered has figures of another moment than its list.
        let moves = |subject: &Subject| {
            self.bands.get(subject).is_some_and(|(least, most)| most.saturating_sub(*least) > STALE)
        };
        let has_moved = |(subject, now): (&Subject, &Bytes)| {
            moves(subject) || self.used.get(subject).is_some_and(|then| now.0.abs_diff(then.0) > STALE)
        };
        match self.listing {
            ProcessListing::Listed if used.iter().any(has_moved) => ProcessListing::Partial,
            listing => listing,
        }
    }
}

impl<'c> Reader<'c> {
    fn new(ctx: &'c ReadContext<'c>) -> Self {
        Self {
            ctx,
            node: Rc::default(),
            used: BTreeMap::new(),
            used_at: None,
            bands: Bands::new(),
            listed: None,
            readings: Readings::new(ctx.limits.max_device_rows, ctx.limits.max_tables),
            ranks: BTreeSet::new(),
            devices: BTreeSet::new(),
            events: Vec::new(),
            warnings: Vec::new(),
            newer: None,
            bad: Tally::default(),
            lost: 0,
            lost_by_server: false,
        }
    }

    fn line(&mut self, line: &Line<'_>) {
        let text = line.text.trim();
        if text.is_empty() {
            return;
        }
        let mut at = Provenance::line(self.ctx.artifact, line.number, text);
        match serde_json::from_str::<LiveLine>(text) {
            Ok(found) => {
                at.time = Some(found.t);
                self.record(found, at);
            }
            Err(_) => self.head(text, line.number),
        }
    }

    /// A line without position and time: the head of a batch, or nothing that is known.
    fn head(&mut self, text: &str, number: u64) {
        #[derive(serde::Deserialize)]
        struct Head {
            #[serde(rename = "type")]
            kind: String,
            #[serde(default)]
            format: String,
        }
        match serde_json::from_str::<Head>(text) {
            Ok(head) if head.kind == "batch" => {
                if !head.format.is_empty() && head.format != LIVE_FORMAT && self.newer.is_none() {
                    self.newer = Some(head.format.chars().take(40).collect());
                }
            }
            _ => self.bad.add(number),
        }
    }

    fn record(&mut self, line: LiveLine, at: Provenance) {
        match line.record {
            LiveRecord::Node(node) => {
                let node = bounded(*node);
                self.devices.extend(node.devices.iter().filter_map(|device| device.subject.device()));
                self.node = Rc::new(node);
            }
            LiveRecord::Memory(memory) => self.memory(line.t, &memory, at),
            LiveRecord::Processes(processes) => self.processes(processes, &at),
            LiveRecord::State(state) => self.state(state, at),
            LiveRecord::Dropped(dropped) => {
                self.lost = self.lost.saturating_add(dropped.samples);
                self.lost_by_server = dropped.by_server;
            }
            LiveRecord::Health(_) | LiveRecord::End | LiveRecord::Unknown => {}
        }
    }

    fn processes(&mut self, processes: LiveProcesses, at: &Provenance) {
        let ranks = processes.processes.iter().filter_map(|process| process.rank.as_ref());
        self.ranks.extend(ranks.map(|rank| rank.rank.0));
        let apart = match (at.time, self.used_at) {
            (Some(listed), Some(read)) => listed.0.abs_diff(read.0),
            _ => u64::MAX,
        };
        let is_whole = processes.processes.len() <= MAX_PROCESSES;
        let listing = match processes.listing {
            ProcessListing::Listed if !is_whole => ProcessListing::Partial,
            listing => listing,
        };
        let rows =
            processes.processes.into_iter().take(MAX_PROCESSES).map(|process| process_row(process, at)).collect();
        // An agent says the samples of a second before the list that was gathered in it. An older line tells nothing.
        let bands = if apart <= GATHERED { self.bands.clone() } else { Bands::new() };
        let used = self.used.clone();
        self.listed = Some(Listed { time: at.time, listing, rows, used, apart, bands });
    }

    /// What happened becomes an event, what cannot be read a warning.
    fn state(&mut self, state: LiveState, at: Provenance) {
        let who = state.subject.map(|subject| subject.to_string()).filter(|who| !state.detail.contains(who));
        let words = if state.detail.is_empty() { format!("{:?}", state.state) } else { state.detail };
        let words: String = words.chars().take(Provenance::QUOTE_CHARS).collect();
        let text = who.map_or_else(|| words.clone(), |who| format!("{who}: {words}"));
        // What a card used last is not what it uses since it is gone.
        match (state.state, state.subject) {
            (LiveStateKind::Lost, Some(subject)) => drop(self.used.remove(&subject)),
            (LiveStateKind::NoDriver, _) => self.used.clear(),
            _ => {}
        }
        if state.state.is_event() {
            if self.events.len() < MAX_EVENTS {
                self.events.push(DeviceEvent { at, subject: state.subject, kind: state.state, text });
            }
        } else if self.warnings.len() < self.ctx.limits.max_warnings {
            self.warnings.push(format!("{} {text}", clock(at.time.unwrap_or(UnixMicros(0)))));
        }
    }

    /// The fullest sample of a line becomes a reading.
    fn memory(&mut self, t: UnixMicros, memory: &LiveMemory, at: Provenance) {
        let columns = || memory.devices.iter().take(MAX_DEVICES);
        let mut sums: Vec<u64> = Vec::new();
        for column in columns() {
            sums.resize(sums.len().max(column.used.len()), 0);
            for (sum, used) in sums.iter_mut().zip(&column.used) {
                *sum = sum.saturating_add(used.map_or(0, |bytes| bytes.0));
            }
        }
        let Some((fullest, _)) = sums.iter().enumerate().max_by_key(|(_, sum)| **sum) else { return };
        let time_of = |sample: usize| {
            let dt = memory.dt_us.get(sample).copied().unwrap_or(0);
            UnixMicros(t.0.saturating_add(i64::from(dt)))
        };
        let read_at = |sample: usize, mut used: BTreeMap<Subject, Bytes>| {
            for column in columns() {
                match column.used.get(sample).copied().flatten() {
                    Some(bytes) => put(&mut used, column.subject, bytes),
                    None => drop(used.remove(&column.subject)),
                }
            }
            used
        };
        let at_fullest = read_at(fullest, self.used.clone());
        self.devices.extend(at_fullest.keys().filter_map(|subject| subject.device()));
        // What the cards used when the processes were listed is what was read nearest to it, not what was highest: a
        // context that opens within the same second is in the figures before it is in a list.
        if let Some(listed) = &mut self.listed
            && let Some(moment) = listed.time
        {
            let apart = |sample: &usize| moment.0.abs_diff(time_of(*sample).0);
            if let Some(nearest) = (0..sums.len()).min_by_key(apart)
                && apart(&nearest) < listed.apart
                && apart(&nearest) <= SAME_MOMENT
            {
                listed.apart = apart(&nearest);
                listed.used = read_at(nearest, self.used.clone());
                let before = |sample: usize| time_of(sample) <= moment;
                for (subject, (least, most)) in bands_of(columns(), before) {
                    let band = listed.bands.entry(subject).or_insert((least, most));
                    *band = (band.0.min(least), band.1.max(most));
                }
            }
        }
        self.bands = bands_of(columns(), |_| true);
        for column in columns() {
            if let Some(last) = column.used.iter().rev().copied().flatten().next() {
                put(&mut self.used, column.subject, last);
            }
        }
        self.used_at = sums.len().checked_sub(1).map(time_of);
        if at_fullest.is_empty() && self.node.devices.is_empty() {
            return;
        }
        let time = time_of(fullest);
        let listing = self.listed.as_ref().map_or(ProcessListing::Missing, |listed| listed.listing_at(&at_fullest));
        let processes = self.listed.as_ref().map_or_else(Rc::default, |listed| Rc::clone(&listed.rows));
        let node = Rc::clone(&self.node);
        self.readings.push(Reading { at, time, used: at_fullest, node, processes, listing });
    }

    fn finish(mut self, stopped: Option<String>) -> Evidence {
        let mut info = self.ctx.info(ArtifactKind::LiveRecord);
        info.warnings.extend(stopped);
        info.warnings.extend(self.newer.map(|format| {
            format!("written as {format}, which is newer than this reader; what it knows of it was read")
        }));
        info.warnings.extend(self.bad.told("is", "are").map(|lines| format!("{lines} no record, and left out")));
        if self.lost > 0 {
            info.warnings.push(format!(
                "{} missing: {}",
                counted(self.lost, "sample of memory is", "samples of memory are"),
                LiveDropped::why(self.lost_by_server)
            ));
        }
        info.warnings
            .extend(self.node.warnings.iter().take(8).map(|w| w.chars().take(Provenance::QUOTE_CHARS).collect()));
        let (device_tables, left_out) = self.readings.finish();
        info.warnings.extend(left_out.map(|(count, width)| {
            format!(
                "{count} readings were left out of a long record: of each {width} the fullest was kept, and of each GPU the \
                 reading at its peak"
            )
        }));
        info.warnings.append(&mut self.warnings);
        info.warnings.truncate(self.ctx.limits.max_warnings);
        info.ranks = self.ranks.into_iter().collect();
        info.devices = self.devices.into_iter().collect();
        Evidence { artifacts: vec![info], device_tables, events: self.events, ..Evidence::default() }
    }
}

/// The least and the most of each column, of the samples that count.
fn bands_of<'c>(columns: impl Iterator<Item = &'c LiveColumn>, counts: impl Fn(usize) -> bool) -> Bands {
    let band = |column: &LiveColumn| {
        let counted = || column.used.iter().enumerate().filter(|(sample, _)| counts(*sample));
        let used = || counted().filter_map(|(_, used)| Some((*used)?.0));
        Some((column.subject, (used().min()?, used().max()?)))
    };
    columns.filter_map(band).collect()
}

fn row_of(device: &LiveDevice, at: &Provenance) -> DeviceRow {
    let mut row = DeviceRow::new(at.clone(), device.subject);
    row.name.clone_from(&device.name);
    row.bus_id.clone_from(&device.bus_id);
    row.uuid.clone_from(&device.uuid);
    row.total = device.total;
    row.reserved = device.reserved;
    row.display_active = device.display_active;
    row.mig_enabled = device.mig_enabled;
    row.compute_mode.clone_from(&device.compute_mode);
    row.ecc_enabled = device.ecc_enabled;
    row
}

/// The quote is the process's own part of the line.
fn process_row(process: LiveProcess, at: &Provenance) -> ProcessRow {
    let text = serde_json::to_string(&process).unwrap_or_default();
    let quote = Provenance::line(at.artifact, 0, &text).quote;
    let mut row = ProcessRow::new(Provenance { quote, ..at.clone() }, process.subject);
    row.pid = Some(process.pid);
    row.kind = process.kind.map(short);
    row.name = process.name.map(short);
    row.used = process.used;
    row.rank = process.rank.filter(|rank| rank.helper_of.is_none()).map(|rank| rank.rank);
    row
}

/// Takes a figure, of a new card only while there are no more than any node has.
fn put(used: &mut BTreeMap<Subject, Bytes>, subject: Subject, bytes: Bytes) {
    if used.len() < MAX_DEVICES || used.contains_key(&subject) {
        used.insert(subject, bytes);
    }
}

/// Without what no node has: more devices, and longer names.
fn bounded(mut node: LiveNode) -> LiveNode {
    node.devices.truncate(MAX_DEVICES);
    node.driver_version = node.driver_version.map(short);
    node.cuda_version = node.cuda_version.map(short);
    for device in &mut node.devices {
        for text in [&mut device.name, &mut device.bus_id, &mut device.uuid, &mut device.compute_mode] {
            *text = text.take().map(short);
        }
    }
    node
}

fn short(text: String) -> String {
    match text.char_indices().nth(MAX_NAME) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned(),
        None => text,
    }
}

/// `2026-11-30 01:48:17` in UTC.
pub(crate) fn clock(time: UnixMicros) -> String {
    let seconds = time.0.div_euclid(1_000_000);
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// Year, month and day of a count of days since 1970-01-01, in the proleptic Gregorian calendar.
#[allow(clippy::arithmetic_side_effects, reason = "a 64-bit count of microseconds is a hundred million days at most")]
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468; // days since 0000-03-01
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_upload;
    use std::io::Cursor;

    fn read_text(text: &str) -> Evidence {
        read_upload("node-a.live.jsonl", &mut Cursor::new(text.as_bytes()), &Limits::default())
    }

    const HEAD: &str = r#"{"type":"batch","format":"rankscope.live/1","source":"s","node":"a","first":0,"last":9}"#;
    const NODE: &str = r#"{"seq":0,"t":1764467297000000,"type":"node","host":"a","driver_version":"550.54","devices":[{"subject":{"device":0},"name":"H100","total":1000},{"subject":{"device":1},"total":1000}]}"#;

    #[test]
    fn a_table_is_the_fullest_sample_with_the_last_list() {
        let text = [
            HEAD,
            NODE,
            r#"{"seq":1,"t":1764467298000000,"type":"processes","listing":"listed","processes":[{"subject":{"device":0},"pid":7,"name":"python","used":90,"rank":{"rank":3}}]}"#,
            r#"{"seq":2,"t":1764467298000000,"type":"memory","dt_us":[0,100000,200000],"devices":[{"subject":{"device":0},"used":[100,300,200]},{"subject":{"device":1},"used":[5,5,null]}]}"#,
        ]
        .join("\n");
        let found = read_text(&text);
        let info = &found.artifacts[0];
        assert_eq!(
            (info.kind, info.ranks.as_slice(), info.devices.as_slice()),
            (ArtifactKind::LiveRecord, &[3][..], &[0, 1][..])
        );
        assert!(info.warnings.is_empty(), "{:?}", info.warnings);
        let table = &found.device_tables[0];
        assert_eq!(table.time, Some(UnixMicros(1_764_467_298_100_000)));
        assert_eq!(table.time_text.as_deref(), Some("2025-11-30 01:48:18"));
        assert_eq!(table.devices.iter().map(|row| row.used).collect::<Vec<_>>(), [Some(Bytes(300)), Some(Bytes(5))]);
        assert_eq!((table.processes[0].pid, table.processes[0].rank.map(|r| r.0)), (Some(7), Some(3)));
        assert!(table.processes[0].at.quote.contains("\"pid\":7"));
        assert_eq!(table.listing, ProcessListing::Listed);
    }

    #[test]
    fn a_list_is_not_whole_when_the_card_has_moved_on() {
        let memory = |second: u64, used: u64| {
            format!(
                r#"{{"seq":2,"t":17644672{second}000000,"type":"memory","dt_us":[0],"devices":[{{"subject":{{"device":0}},"used":[{used}]}}]}}"#
            )
        };
        let list = r#"{"seq":1,"t":1764467298000000,"type":"processes","listing":"listed","processes":[]}"#;
        let text = [HEAD, NODE, &memory(97, 0), list, &memory(98, 5), &memory(99, STALE + 5), &memory(99, STALE + 6)]
            .join("\n");
        let listings: Vec<_> = read_text(&text).device_tables.iter().map(|table| table.listing).collect();
        assert_eq!(
            listings,
            [ProcessListing::Missing, ProcessListing::Listed, ProcessListing::Listed, ProcessListing::Partial]
        );
    }

    #[test]
    fn a_card_that_moves_while_the_lists_are_gathered_is_not_held_against_them() {
        let memory = |micros: u64, used: [u64; 3]| {
            let [a, b, c] = used;
            format!(
                r#"{{"seq":2,"t":{micros},"type":"memory","dt_us":[0,300000,600000],"devices":[{{"subject":{{"device":0}},"used":[{a},{b},{c}]}}]}}"#
            )
        };
        let list = r#"{"seq":1,"t":1764467298600000,"type":"processes","listing":"listed","processes":[]}"#;
        let listing = |before: [u64; 3], while_gathered: [u64; 3]| {
            let lines =
                [memory(1_764_467_297_000_000, before), list.to_owned(), memory(1_764_467_298_000_000, while_gathered)];
            let text = [&[HEAD.to_owned(), NODE.to_owned()][..], &lines].concat().join("\n");
            read_text(&text).device_tables.last().unwrap().listing
        };
        // A wave that is back where it was when the last list came.
        assert_eq!(listing([9; 3], [2 * STALE, 9, 2 * STALE]), ProcessListing::Partial);
        assert_eq!(listing([2 * STALE, 9, 9], [9; 3]), ProcessListing::Listed, "that was before");
        assert_eq!(listing([9; 3], [9; 3]), ProcessListing::Listed);
    }

    #[test]
    fn a_context_that_opens_right_after_a_list_is_not_held_against_it() {
        let list = r#"{"seq":1,"t":1764467298000000,"type":"processes","listing":"listed","processes":[]}"#;
        let ramp = format!(
            r#"{{"seq":2,"t":1764467298050000,"type":"memory","dt_us":[0,100000,300000],"devices":[{{"subject":{{"device":0}},"used":[7,{},{}]}}]}}"#,
            STALE,
            3 * STALE
        );
        let found = read_text(&[HEAD, NODE, list, &ramp].join("\n"));
        assert_eq!(found.device_tables[0].devices[0].used, Some(Bytes(3 * STALE)));
        assert_eq!(found.device_tables[0].listing, ProcessListing::Partial);
    }

    #[test]
    fn damage_and_losses_are_told() {
        let text = [
            HEAD,
            "{\"seq\":1,\"t\":",
            r#"{"seq":3,"t":5,"type":"dropped","first":1,"last":2,"samples":70}"#,
            r#"{"seq":4,"t":5,"type":"state","subject":{"device":3},"state":"lost","detail":"GPU 3 has fallen off the bus."}"#,
            r#"{"seq":5,"t":6,"type":"weather"}"#,
            r#"{"seq":6,"t":7,"type":"state","subject":{"device":2},"state":"not_supported","detail":"No power."}"#,
            r#"{"seq":7,"t":8,"type":"state","subject":{"device":2},"state":"xid","detail":"Xid 79."}"#,
        ]
        .join("\n");
        let found = read_text(&text);
        let warnings = found.artifacts[0].warnings.join("\n");
        for part in ["line 2", "70 samples", "GPU 2: No power."] {
            assert!(warnings.contains(part), "{part}: {warnings}");
        }
        assert!(!warnings.contains("fallen") && !warnings.contains("Xid"), "{warnings}");
        let events: Vec<_> =
            found.events.iter().map(|event| (event.at.time, event.kind, event.text.as_str())).collect();
        assert_eq!(
            events,
            [
                (Some(UnixMicros(5)), LiveStateKind::Lost, "GPU 3 has fallen off the bus."),
                (Some(UnixMicros(8)), LiveStateKind::Xid, "GPU 2: Xid 79."),
            ]
        );
        assert_eq!(found.events[0].at.place, rankscope_model::Place::Line(4));
    }

    #[test]
    fn a_card_that_is_lost_has_no_figure_until_it_answers_again() {
        let memory = |seq: u32, cards: &[u32]| {
            let columns: Vec<String> =
                cards.iter().map(|card| format!(r#"{{"subject":{{"device":{card}}},"used":[{seq}]}}"#)).collect();
            format!(r#"{{"seq":{seq},"t":{seq}000000,"type":"memory","dt_us":[0],"devices":[{}]}}"#, columns.join(","))
        };
        let lost = r#"{"seq":2,"t":2000000,"type":"state","subject":{"device":1},"state":"lost","detail":"Gone."}"#;
        let back = r#"{"seq":4,"t":4000000,"type":"state","subject":{"device":1},"state":"ok","detail":"Back."}"#;
        let text = [HEAD, &memory(1, &[0, 1]), lost, &memory(3, &[0]), back, &memory(5, &[0, 1])].join("\n");
        let used: Vec<Vec<u64>> = read_text(&text)
            .device_tables
            .iter()
            .map(|table| table.devices.iter().filter_map(|row| row.used).map(|used| used.0).collect())
            .collect();
        assert_eq!(used, [vec![1, 1], vec![3], vec![5, 5]]);
    }

    #[test]
    fn a_long_list_before_many_readings_costs_little() {
        let process = r#"{"subject":{"device":0},"pid":7,"name":"python","used":90}"#;
        let list = format!(
            r#"{{"seq":1,"t":1,"type":"processes","listing":"listed","processes":[{}]}}"#,
            vec![process; 3_000].join(",")
        );
        let memory = |n: u64| {
            let used = if n == 777 { 1 << 30 } else { 5 };
            format!(r#"{{"seq":2,"t":{n},"type":"memory","devices":[{{"subject":{{"device":0}},"used":[{used}]}}]}}"#)
        };
        let readings: Vec<String> = (0..2_000).map(memory).collect();
        let found = read_text(&[HEAD, NODE, &list, &readings.join("\n")].join("\n"));
        let rows: usize = found.device_tables.iter().map(|table| table.processes.len()).sum();
        assert!(rows <= Limits::default().max_device_rows, "{rows}");
        let used: Vec<_> = found.device_tables.iter().filter_map(|table| table.devices[0].used).collect();
        assert!(used.contains(&Bytes(1 << 30)) && used.len() > 5, "{used:?}");
        let warnings = &found.artifacts[0].warnings;
        assert!(warnings[0].contains("left out of a long record"), "{warnings:?}");
    }

    #[test]
    fn new_devices_in_every_line_and_long_names_are_bounded() {
        let memory = |n: u32| {
            format!(r#"{{"seq":2,"t":{n},"type":"memory","devices":[{{"subject":{{"device":{n}}},"used":[5]}}]}}"#)
        };
        let lines: Vec<String> = (0..3_000).map(memory).collect();
        let node = NODE.replace("H100", &"H".repeat(500_000));
        let found = read_text(&[HEAD, &node, &lines.join("\n")].join("\n"));
        assert!(found.device_tables.iter().all(|table| table.devices.len() <= MAX_DEVICES));
        let name = found.device_tables[0].devices[0].name.as_ref().unwrap();
        assert_eq!(name.len(), MAX_NAME);
    }

    #[test]
    fn days_become_dates() {
        assert_eq!(clock(UnixMicros(0)), "1970-01-01 00:00:00");
        assert_eq!(clock(UnixMicros(951_782_399_000_000)), "2000-02-28 23:59:59");
        assert_eq!(clock(UnixMicros(951_782_400_000_000)), "2000-02-29 00:00:00");
        assert_eq!(clock(UnixMicros(-1)), "1969-12-31 23:59:59");
        // Nothing that a line can hold is too much.
        assert!(!clock(UnixMicros(i64::MAX)).is_empty() && !clock(UnixMicros(i64::MIN)).is_empty());
    }
}
