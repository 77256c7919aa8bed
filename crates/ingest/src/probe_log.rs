//! The probe's log: JSON lines of one process, or of several one after another.
//!
//! Reads `rankscope.probe/1` as `rankscope_model::ProbeRecord` has it. Unknown fields and types are passed over, lines
//! that are cut or foreign are counted, and of a newer version is read what is known. Knows no rule about imbalance.

use crate::context::ReadContext;
use crate::json;
use crate::lines::{Line, Tally, counted, for_each_line};
use crate::oom;
use crate::rank_name::{MAX_RANK, rank_from_name};
use crate::sniff::TextEncoding;
use crate::step_log::keys::phase_value;
use crate::step_log::thin::{Rest, Thinned};
use rankscope_model::{
    ArtifactKind, Bytes, Evidence, OomEvent, PROBE_FORMAT, Phase, ProbeEnd, ProbeEvidence, ProbeFacts, ProbeLine,
    ProbeMemory, ProbeOom, ProbePhase, ProbeRecord, ProbeStart, ProbeStep, Provenance, Rank, Step, StepRecord, Subject,
    UnixMicros,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

/// Processes kept of one file; a log is of one, and somebody may put those of a whole job into one file.
const MAX_PROCESSES: usize = 4096;
/// Bytes of what the processes of one file tell of themselves, as JSON. The facts of a process have some 20 KB.
const MAX_TOLD: u64 = 64 << 20;
/// Of a batch of many tensors the one with the most elements is kept, up to this many dimensions.
const MAX_DIMENSIONS: usize = 8;

/// Whether the first bytes of a file are a probe's log: its `start` record, or any of its records where the beginning
/// was cut off.
pub fn is_probe_log(head: &[u8]) -> bool {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let line = head.split(|b| *b == b'\n').find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
    let line = String::from_utf8_lossy(line.get(..line.len().min(4096)).unwrap_or_default());
    let line = line.trim();
    let types = ["start", "step", "phase", "facts", "oom", "snapshot", "end", "batch"];
    line.starts_with('{')
        && (line.contains("\"format\":\"rankscope.probe/")
            || types.iter().any(|kind| line.starts_with(&format!("{{\"type\":\"{kind}\",\"seq\":"))))
}

/// Reads a log. Never fails: what cannot be read is a warning.
pub fn read(input: &mut dyn BufRead, ctx: &ReadContext<'_>) -> Evidence {
    read_with(input, TextEncoding::Utf8, ctx)
}

pub(crate) fn read_with(input: &mut dyn BufRead, encoding: TextEncoding, ctx: &ReadContext<'_>) -> Evidence {
    let mut reader = Reader::new(ctx);
    let scan = for_each_line(input, encoding, ctx.limits, &mut |line, _| reader.line(&line));
    let stopped = scan
        .stopped
        .map(|(line, error)| format!("the log ends early, after line {line}: {error}; what stands before was read"));
    reader.finish(stopped)
}

/// A step whose memory is known only when the next record comes.
struct Open {
    record: StepRecord,
    process: usize,
    n: u64,
}

struct Reader<'c> {
    ctx: &'c ReadContext<'c>,
    file_rank: Option<Rank>,
    probes: Vec<ProbeEvidence>,
    /// A record stood before any `start`.
    headless: bool,
    open: Option<Open>,
    /// Process and call of each record, by which they are put in order: what was left out at first is written when
    /// memory runs out.
    steps: Thinned<(usize, u64)>,
    ooms: Vec<OomEvent>,
    dropped_ooms: u64,
    bad: Tally,
    last_bad: u64,
    last_line: u64,
    unknown: u64,
    newer: Option<String>,
    dropped_processes: u64,
    /// Bytes of starts and facts, as JSON, and those of the last process's facts.
    told: u64,
    last_facts: u64,
    /// Of these the loaders, wrappers, modules, optimizers and devices.
    facts_parts: [u64; 5],
    dropped_facts: u64,
}

impl<'c> Reader<'c> {
    fn new(ctx: &'c ReadContext<'c>) -> Self {
        Self {
            ctx,
            file_rank: rank_from_name(ctx.name),
            probes: Vec::new(),
            headless: false,
            open: None,
            steps: Thinned::new(ctx.limits.max_step_records),
            ooms: Vec::new(),
            dropped_ooms: 0,
            bad: Tally::default(),
            last_bad: 0,
            last_line: 0,
            unknown: 0,
            newer: None,
            dropped_processes: 0,
            told: 0,
            last_facts: 0,
            facts_parts: [0; 5],
            dropped_facts: 0,
        }
    }

    fn line(&mut self, line: &Line<'_>) {
        let text = line.text.trim();
        if text.is_empty() {
            return;
        }
        self.last_line = line.number;
        self.steps.read(text.len());
        let Ok(record) = serde_json::from_str::<ProbeRecord>(text) else {
            self.bad.add(line.number);
            self.last_bad = line.number;
            return;
        };
        let mut at = Provenance::line(self.ctx.artifact, line.number, text);
        at.time = serde_json::from_str::<ProbeLine>(text).ok().and_then(|head| head.t).map(UnixMicros);
        match record {
            ProbeRecord::Start(start) => self.start(*start, at),
            ProbeRecord::Step(step) => self.step(&step, at),
            ProbeRecord::Phase(phase) => self.phase(&phase, &at),
            ProbeRecord::Facts(facts) => self.facts(*facts, at),
            ProbeRecord::Oom(oom) => self.oom(&oom, at),
            ProbeRecord::End(end) => self.end(&end),
            ProbeRecord::Snapshot(_) | ProbeRecord::Batch(_) => {}
            ProbeRecord::Unknown => self.unknown = self.unknown.saturating_add(1),
        }
    }

    fn start(&mut self, mut start: ProbeStart, at: Provenance) {
        self.close_open(None);
        if start.format != PROBE_FORMAT && self.newer.is_none() {
            self.newer = Some(start.format.chars().take(40).collect());
        }
        if self.probes.len() >= MAX_PROCESSES {
            self.dropped_processes = self.dropped_processes.saturating_add(1);
            return;
        }
        self.told = self.told.saturating_add(json::size(&start));
        (self.last_facts, self.facts_parts) = (0, [0; 5]);
        if self.told > MAX_TOLD {
            start.arguments = Vec::new();
            start.launcher = None;
            start.environment = BTreeMap::new();
            self.dropped_facts = self.dropped_facts.saturating_add(1);
        }
        let told = start.rank.filter(|rank| rank.0 < MAX_RANK).or(self.file_rank);
        // A process that nothing told its rank is the only one, as far as it knows.
        let rank = told.unwrap_or(Rank(0));
        self.probes.push(ProbeEvidence {
            at,
            rank,
            start,
            facts: None,
            facts_at: None,
            phases: Vec::new(),
            train_steps: 0,
            ended: false,
        });
    }

    /// The process that a record belongs to, made up where the beginning of the log is missing.
    fn process(&mut self, at: &Provenance) -> Option<(usize, Rank)> {
        if self.probes.is_empty() {
            self.headless = true;
            self.file_rank?;
            self.start(ProbeStart { format: PROBE_FORMAT.to_owned(), ..ProbeStart::default() }, at.clone());
        }
        let index = self.probes.len().checked_sub(1)?;
        self.probes.last().map(|probe| (index, probe.rank))
    }

    fn step(&mut self, step: &ProbeStep, at: Provenance) {
        let Some((process, rank)) = self.process(&at) else { return };
        let is_first = self.probes.last().is_some_and(|probe| probe.train_steps == 0 && probe.phases.is_empty());
        let phase = phase_of(&step.phase);
        self.note_phase(phase, &at);
        if let Some(probe) = self.probes.last_mut() {
            probe.train_steps = probe.train_steps.saturating_add(u64::from(phase == Phase::Train));
        }
        if !step.done {
            let had_open = self.open.is_some();
            self.close_open(step.mem.as_ref().map(|mem| (step.n, mem)));
            // What was there before the first step.
            if let (false, true, Some(mem)) = (had_open, is_first, &step.mem) {
                let mut record = StepRecord::new(at.clone(), Subject::Rank(rank));
                record.phase = Some(Phase::Init);
                record.step = Some(Step(step.step));
                set_memory(&mut record, mem);
                self.steps.push(record, (process, step.n));
            }
        }
        let mut record = StepRecord::new(at, Subject::Rank(rank));
        record.step = Some(Step(step.step));
        record.phase = Some(phase);
        record.batch_shape = largest(&step.batch);
        record.batch_samples = step.samples;
        record.batch_tokens = step.tokens;
        record.batch_tokens_unpadded = step.tokens_unpadded;
        if step.done {
            self.close_open(None);
            if let Some(mem) = &step.mem {
                set_memory(&mut record, mem);
            }
            self.steps.push(record, (process, step.n));
        } else {
            self.open = Some(Open { record, process, n: step.n });
        }
    }

    fn phase(&mut self, phase: &ProbePhase, at: &Provenance) {
        let Some((process, rank)) = self.process(at) else { return };
        let kind = phase_of(&phase.phase);
        let ends = phase.event == "end";
        let mem = phase.mem.as_ref().map(|mem| (phase.n, mem));
        let is_open = self.open.as_ref().is_some_and(|open| open.record.phase == Some(kind));
        if !ends || is_open {
            self.close_open(mem);
        } else if let Some((n, mem)) = mem {
            // A phase without steps of its own: saving, or an evaluation that does not call `step`.
            self.close_open(None);
            let mut record = StepRecord::new(at.clone(), Subject::Rank(rank));
            record.step = Some(Step(phase.step));
            record.phase = Some(kind);
            set_memory(&mut record, mem);
            self.steps.push(record, (process, n));
        }
        self.note_phase(kind, at);
    }

    fn note_phase(&mut self, phase: Phase, at: &Provenance) {
        if let Some(probe) = self.probes.last_mut()
            && probe.phases.iter().all(|(known, _)| *known != phase)
        {
            probe.phases.push((phase, at.clone()));
        }
    }

    fn facts(&mut self, mut facts: ProbeFacts, at: Provenance) {
        if self.process(&at).is_none() {
            return;
        }
        let Some(probe) = self.probes.last_mut() else { return };
        // Measured before anything is kept from the last record: short records may follow a long one without end.
        let whole = json::size(&facts);
        let mut parts = [
            json::size(&facts.loaders),
            json::size(&facts.wrappers),
            json::size(&facts.modules),
            json::size(&facts.optimizers),
            json::size(&facts.devices),
        ];
        let rest = whole.saturating_sub(sum(&parts));
        if let Some(before) = probe.facts.take() {
            let [loaders, wrappers, modules, optimizers, devices] = &mut parts;
            let sizes = self.facts_parts;
            keep_unless_empty((&mut facts.loaders, loaders), (before.loaders, sizes[0]));
            keep_unless_empty((&mut facts.wrappers, wrappers), (before.wrappers, sizes[1]));
            keep_unless_empty((&mut facts.modules, modules), (before.modules, sizes[2]));
            keep_unless_empty((&mut facts.optimizers, optimizers), (before.optimizers, sizes[3]));
            keep_unless_empty((&mut facts.devices, devices), (before.devices, sizes[4]));
            facts.dist = facts.dist.or(before.dist);
        }
        probe.train_steps = probe.train_steps.max(facts.train_steps);
        let size = rest.saturating_add(sum(&parts));
        self.told = self.told.saturating_sub(self.last_facts).saturating_add(size);
        (self.last_facts, self.facts_parts) = (size, parts);
        if self.told > MAX_TOLD {
            self.dropped_facts = self.dropped_facts.saturating_add(1);
            return;
        }
        probe.facts = Some(facts);
        probe.facts_at = Some(at);
    }

    fn oom(&mut self, oom: &ProbeOom, at: Provenance) {
        let Some((_, rank)) = self.process(&at) else { return };
        let stat = |name: &str| oom.stats.get(name).and_then(|value| u64::try_from(*value).ok()).map(Bytes);
        let mem = ProbeMemory {
            allocated: stat("allocated_bytes.all.current"),
            peak: stat("allocated_bytes.all.peak"),
            reserved: stat("reserved_bytes.all.current"),
            peak_reserved: stat("reserved_bytes.all.peak"),
            free: oom.free,
            total: oom.total,
            ..ProbeMemory::default()
        };
        // Beyond the limit neither the event nor its text is kept.
        let is_full = self.ooms.len() >= self.ctx.limits.max_oom_events;
        let message = oom.message.as_deref().filter(|_| !is_full).and_then(|text| self.message(text));
        if oom.same {
            // The text of the failure that was recorded when it happened.
            if let (Some(event), Some(message)) = (self.ooms.last_mut(), message) {
                event.family = message.family;
                event.this_process = message.this_process;
                event.others = message.others;
                event.reserved_unallocated = message.reserved_unallocated;
                event.total = event.total.or(message.total);
                event.free = event.free.or(message.free);
                event.allocated = event.allocated.or(message.allocated);
            }
            return;
        }
        self.close_open(mem.peak.is_some().then_some((oom.n, &mem)));
        if is_full {
            self.dropped_ooms = self.dropped_ooms.saturating_add(1);
            return;
        }
        let message = message.unwrap_or_else(|| OomEvent::new(at.clone(), "probe"));
        self.ooms.push(OomEvent {
            at,
            rank: Some(rank),
            device: oom.device.or(message.device),
            tried: oom.wanted.or(message.tried),
            total: oom.total.or(message.total),
            free: oom.free.or(message.free),
            allocated: mem.allocated.or(message.allocated),
            reserved: mem.reserved.or(message.reserved),
            reserved_unallocated: mem
                .reserved
                .zip(mem.allocated)
                .map(|(reserved, allocated)| reserved.saturating_sub(allocated))
                .or(message.reserved_unallocated),
            ..message
        });
    }

    /// The figures in the text of an exception.
    fn message(&self, text: &str) -> Option<OomEvent> {
        let found = oom::read(&mut text.as_bytes(), self.ctx).ok()?;
        found.ooms.into_iter().next()
    }

    fn end(&mut self, end: &ProbeEnd) {
        self.close_open(end.mem.as_ref().map(|mem| (end.n, mem)));
        if let Some(probe) = self.probes.last_mut() {
            probe.train_steps = probe.train_steps.max(end.train_steps);
            probe.ended = true;
        }
    }

    /// Finishes the open step: with memory read at call `n`, if that was the next call.
    fn close_open(&mut self, read: Option<(u64, &ProbeMemory)>) {
        let Some(Open { mut record, process, n }) = self.open.take() else { return };
        if let Some((at_call, mem)) = read
            && at_call == n.saturating_add(1)
        {
            set_memory(&mut record, mem);
        }
        self.steps.push(record, (process, n));
    }

    fn finish(mut self, stopped: Option<String>) -> Evidence {
        self.close_open(None);
        let mut info = self.ctx.info(ArtifactKind::ProbeLog);
        let Rest { mut kept, dropped, width, .. } = std::mem::replace(&mut self.steps, Thinned::new(1)).finish();
        let steps = dropped.saturating_add(kept.len() as u64);
        kept.sort_by_key(|kept| kept.extra);
        info.warnings.extend(stopped);
        info.warnings.extend(self.warnings(dropped, steps, width));
        info.warnings.truncate(self.ctx.limits.max_warnings);
        let ranks: BTreeSet<u32> = self.probes.iter().map(|probe| probe.rank.0).collect();
        info.ranks = ranks.into_iter().collect();
        Evidence {
            artifacts: vec![info],
            steps: kept.into_iter().map(|kept| kept.record).collect(),
            ooms: self.ooms,
            probes: self.probes,
            ..Evidence::default()
        }
    }

    fn warnings(&self, dropped: u64, steps: u64, width: u64) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(version) = &self.newer {
            warnings.push(format!(
                "written in the version {version:?}, which is not {PROBE_FORMAT}; what is known of it was read"
            ));
        }
        if self.headless && self.probes.is_empty() {
            warnings.push(
                "the first line is missing, which names the rank, and the file's name does not (…_rank3.jsonl): \
                 nothing was kept"
                    .to_owned(),
            );
        } else if self.headless {
            warnings.push("the first line is missing; the rank was taken from the file's name".to_owned());
        }
        let is_cut = self.last_bad > 0 && self.last_bad == self.last_line;
        let others = Tally { count: self.bad.count.saturating_sub(u64::from(is_cut)), ..self.bad };
        if is_cut {
            warnings.push(format!(
                "the last line ({}) is cut: the process was killed while it wrote, or the file was copied then",
                self.last_bad
            ));
        }
        let others = others.told("is no record", "are no records");
        warnings.extend(others.map(|lines| format!("{lines} of the probe, and passed over")));
        if self.unknown > 0 {
            let records = counted(self.unknown, "record is of a type that is", "records are of types that are");
            warnings.push(format!("{records} not known here"));
        }
        for probe in &self.probes {
            if probe.start.rank.is_none() && self.file_rank.is_none() {
                warnings.push("the log names no rank; it was read as rank 0".to_owned());
                break;
            }
        }
        if dropped > 0 {
            warnings.push(format!(
                "{dropped} of {steps} steps were left out: of each rank and each {width} steps the one with the largest \
                 peak was kept"
            ));
        }
        if self.dropped_facts > 0 {
            warnings.push(format!(
                "what the processes tell of themselves passes the limit of {}; {} left out",
                Bytes(MAX_TOLD),
                counted(self.dropped_facts, "record of it was", "records of it were")
            ));
        }
        if self.dropped_ooms > 0 {
            warnings.push(format!(
                "{} left out beyond the limit of {}",
                counted(self.dropped_ooms, "failed allocation was", "failed allocations were"),
                self.ctx.limits.max_oom_events
            ));
        }
        if self.dropped_processes > 0 {
            warnings.push(format!("more than {MAX_PROCESSES} processes in one file; the rest was not read"));
        }
        warnings
    }
}

/// The phases that programs name; what is none of training, saving, loading and starting is a kind of evaluation.
fn phase_of(word: &str) -> Phase {
    match word {
        "train" => Phase::Train,
        "eval" => Phase::Eval,
        "save" => Phase::Save,
        "resume" => Phase::Resume,
        "init" => Phase::Init,
        other => phase_value(other).unwrap_or(Phase::Eval),
    }
}

fn set_memory(record: &mut StepRecord, mem: &ProbeMemory) {
    record.allocated = mem.allocated;
    record.peak_allocated = mem.peak;
    record.reserved = mem.reserved;
    record.peak_reserved = mem.peak_reserved;
    record.active = mem.active;
    record.device_used = mem.total.zip(mem.free).map(|(total, free)| total.saturating_sub(free));
}

/// The shape that memory follows: of the tensor with the most elements, the first of several.
fn largest(batch: &[(String, Vec<u64>, String)]) -> Option<Vec<u64>> {
    let elements = |shape: &[u64]| shape.iter().fold(1u64, |product, size| product.saturating_mul(*size));
    let mut best: Option<&Vec<u64>> = None;
    for (_, shape, _) in batch {
        if best.is_none_or(|old| elements(shape) > elements(old)) {
            best = Some(shape);
        }
    }
    best.map(|shape| shape.iter().copied().take(MAX_DIMENSIONS).collect())
}

/// Lists with their sizes.
fn keep_unless_empty<T>((latest, size): (&mut Vec<T>, &mut u64), before: (Vec<T>, u64)) {
    if latest.is_empty() {
        (*latest, *size) = before;
    }
}

fn sum(sizes: &[u64]) -> u64 {
    sizes.iter().fold(0, |sum, size| sum.saturating_add(*size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Limits;
    use rankscope_model::{ArtifactId, GIB, Place};

    fn read_named(name: &str, text: &str) -> Evidence {
        let limits = Limits::default();
        read(&mut text.as_bytes(), &ReadContext { artifact: ArtifactId(0), name, limits: &limits })
    }

    const START: &str = r#"{"type":"start","seq":0,"t":5,"format":"rankscope.probe/1","rank":3,"world_size":8}"#;

    fn step(n: u64, peak: u64) -> String {
        format!(
            r#"{{"type":"step","seq":{n},"t":{n},"n":{n},"step":{n},"phase":"train","batch":[["labels",[4],"int64"],["input_ids",[4,512],"int64"]],"samples":4,"tokens":2048,"tokens_unpadded":1500,"mem":{{"device":0,"allocated":1,"peak":{peak},"free":10,"total":30}}}}"#
        )
    }

    #[test]
    fn a_peak_belongs_to_the_step_before_the_reading() {
        let end = r#"{"type":"end","seq":4,"t":9,"n":3,"mem":{"peak":93}}"#;
        let found = read_named("x", &[START, &step(0, 90), &step(1, 91), &step(2, 92), end].join("\n"));
        let peaks: Vec<_> =
            found.steps.iter().map(|s| (s.phase.unwrap(), s.step.unwrap().0, s.peak_allocated)).collect();
        let peak = |n| Some(Bytes(n));
        assert_eq!(
            peaks,
            [
                (Phase::Init, 0, peak(90)),
                (Phase::Train, 0, peak(91)),
                (Phase::Train, 1, peak(92)),
                (Phase::Train, 2, peak(93))
            ]
        );
        let first = &found.steps[1];
        assert_eq!((first.subject, &first.batch_shape), (Subject::Rank(Rank(3)), &Some(vec![4, 512])));
        assert_eq!((first.batch_tokens, first.batch_tokens_unpadded), (Some(2048), Some(1500)));
        assert_eq!((first.device_used, first.at.place), (Some(Bytes(20)), Place::Line(2)));
        assert_eq!(first.at.time, Some(UnixMicros(0)));
        assert!(found.probes[0].ended && found.artifacts[0].warnings.is_empty());
        assert_eq!((found.artifacts[0].kind, found.artifacts[0].ranks.as_slice()), (ArtifactKind::ProbeLog, &[3][..]));
    }

    #[test]
    fn a_reading_after_a_gap_belongs_to_no_step() {
        let found = read_named("x", &[START, &step(0, 90), &step(50, 91), &step(51, 92)].join("\n"));
        let peaks: Vec<_> = found.steps.iter().skip(1).map(|s| s.peak_allocated).collect();
        assert_eq!(peaks, [None, Some(Bytes(92)), None]);
    }

    #[test]
    fn steps_written_late_are_put_in_order() {
        let oom = r#"{"type":"oom","seq":9,"t":9,"n":54,"wanted":7,"stats":{"allocated_bytes.all.peak":99}}"#;
        let text = [START, &step(50, 90), &step(51, 91), &step(52, 92), &step(53, 93), oom].join("\n");
        let late = [START, &step(52, 92), &step(53, 93), &step(50, 90), &step(51, 91)].join("\n");
        let order = |text: &str| -> Vec<u64> {
            let steps = read_named("x", text).steps;
            steps.iter().filter(|s| s.phase == Some(Phase::Train)).map(|s| s.step.unwrap().0).collect()
        };
        assert_eq!(order(&text), [50, 51, 52, 53]);
        assert_eq!(order(&late), [50, 51, 52, 53]);
        let found = read_named("x", &text);
        assert_eq!(found.steps.last().unwrap().peak_allocated, Some(Bytes(99)), "the failing step's own peak");
        assert_eq!((found.ooms[0].rank, found.ooms[0].tried), (Some(Rank(3)), Some(Bytes(7))));
    }

    #[test]
    fn the_exception_adds_to_what_the_observer_saw() {
        let seen = r#"{"type":"oom","seq":1,"t":1,"n":5,"wanted":1610612736,"total":85019590656,"free":5,"device":5,"stats":{"allocated_bytes.all.current":4,"reserved_bytes.all.current":10}}"#;
        let said = r#"{"type":"oom","seq":2,"t":2,"n":5,"same":true,"message":"CUDA out of memory. Tried to allocate 1.50 GiB. GPU 5 has a total capacity of 79.18 GiB of which 29.69 MiB is free. Including non-PyTorch memory, this process has 75.49 GiB memory in use. Process 1204418 has 534.00 MiB memory in use. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 2.00 GiB is reserved by PyTorch but unallocated."}"#;
        let found = read_named("x", &[START, seen, said].join("\n"));
        assert_eq!(found.ooms.len(), 1);
        let oom = &found.ooms[0];
        assert_eq!((oom.tried, oom.reserved_unallocated), (Some(Bytes(3 * GIB / 2)), Bytes::from_float(2.0, GIB)));
        assert_eq!((oom.others.len(), oom.allocated), (1, Some(Bytes(4))));
        let alone = read_named("x", &[START, &said.replace("\"same\":true,", "")].join("\n"));
        assert_eq!((alone.ooms.len(), alone.ooms[0].device), (1, Some(5)));
    }

    #[test]
    fn phases_without_steps_have_their_peak() {
        let begin =
            r#"{"type":"phase","seq":2,"t":1,"n":1,"step":0,"phase":"validation","event":"begin","mem":{"peak":50}}"#;
        let end =
            r#"{"type":"phase","seq":3,"t":2,"n":1,"step":0,"phase":"validation","event":"end","mem":{"peak":70}}"#;
        let found = read_named("x", &[START, &step(0, 9), begin, end].join("\n"));
        let peaks: Vec<_> = found.steps.iter().map(|s| (s.phase.unwrap(), s.peak_allocated.unwrap().0)).collect();
        assert_eq!(peaks, [(Phase::Init, 9), (Phase::Train, 50), (Phase::Eval, 70)]);
        let phases: Vec<_> = found.probes[0].phases.iter().map(|(phase, _)| *phase).collect();
        assert_eq!(phases, [Phase::Train, Phase::Eval]);
    }

    #[test]
    fn what_is_cut_foreign_or_newer_is_said_and_the_rest_is_read() {
        let newer = START.replace("probe/1", "probe/2");
        let text =
            [&newer, "not json", r#"{"type":"hologram","seq":2}"#, &step(0, 9), r#"{"type":"step","se"#].join("\n");
        let found = read_named("x", &text);
        assert_eq!(found.steps.len(), 2);
        let warnings = &found.artifacts[0].warnings;
        assert_eq!(warnings.len(), 4, "{warnings:?}");
        assert!(warnings[0].contains("rankscope.probe/2"));
        assert!(warnings[1].contains("line (5) is cut"));
        assert!(warnings[2].starts_with("line 2 is no record of the probe"));
    }

    #[test]
    fn without_its_first_line_the_name_tells_the_rank() {
        let found = read_named("rankscope_job_rank5.jsonl", &step(7, 9));
        assert_eq!(found.steps[0].subject, Subject::Rank(Rank(5)));
        let nameless = read_named("x", &step(7, 9));
        assert!(nameless.steps.is_empty() && nameless.artifacts[0].warnings[0].contains("names the rank"));
    }

    #[test]
    fn logs_of_several_processes_in_one_file_stay_apart() {
        let other = START.replace("\"rank\":3", "\"rank\":4");
        let found = read_named("x", &[START, &step(0, 1), &step(1, 2), &other, &step(0, 3), &step(1, 4)].join("\n"));
        assert_eq!(found.artifacts[0].ranks, [3, 4]);
        assert_eq!(found.steps.iter().filter(|s| s.subject == Subject::Rank(Rank(4))).count(), 3);
        assert_eq!(found.probes.len(), 2);
    }

    #[test]
    fn objects_that_are_gone_at_the_end_stay_known() {
        let facts =
            |loaders: &str| format!(r#"{{"type":"facts","seq":1,"t":1,"n":3,"train_steps":3,"loaders":{loaders}}}"#);
        let found = read_named("x", &[START, &facts(r#"[{"class":"DataLoader"}]"#), &facts("[]")].join("\n"));
        assert_eq!(found.probes[0].facts.as_ref().unwrap().loaders.len(), 1);
        assert_eq!(found.probes[0].facts_at.as_ref().unwrap().place, Place::Line(3));
    }

    #[test]
    fn a_log_is_told_by_its_beginning() {
        assert!(is_probe_log(START.as_bytes()));
        assert!(is_probe_log(format!("\n{}", step(3, 1)).as_bytes()));
        for other in ["", "{", "[rank0] start", r#"{"type":"step"}"#, r#"{"format":"rankscope.diagnosis/1"}"#] {
            assert!(!is_probe_log(other.as_bytes()), "{other}");
        }
    }
}
