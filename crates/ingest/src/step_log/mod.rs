//! Training logs: lines that say memory or the batch of one rank (or device) at one step.
//!
//! Reads the plain form `[train] rank=0 step=3 shape=(8, 512) cur=10240.0MB peak=20480.0MB` and what Megatron, DeepSpeed,
//! torchtitan, fairseq, RETURNN, verl, icefall, `memory_stats()` (flat or nested), `memory_summary()` and hand-written
//! prints make of it. A figure belongs to a rank only if the line, its prefix or the file's name says so; it is never
//! guessed. Knows no rule about imbalance.

mod columns;
mod fairseq;
pub(crate) mod keys;
mod nested_stats;
mod records;
mod stats;
mod summary_table;
pub(crate) mod thin;
mod tokens;

use crate::context::{ReadContext, ReadError};
use crate::lines::{Label, Line, RankFrom, Tally, Trust};
use crate::rank_name::{MAX_RANK, rank_from_name};
use crate::sniff::TextEncoding;
use crate::text;
use columns::Columns;
use fairseq::Fairseq;
use keys::Figure;
use nested_stats::Nested;
use rankscope_model::{Bytes, Evidence, Place, Provenance, Rank, StepRecord, Subject};
use records::Draft;
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use summary_table::{Summaries, Summary};
use thin::{Rest, Thinned};

/// Reads text and keeps its step records. Text without any gives an empty result, not an error.
pub fn read(input: &mut dyn BufRead, ctx: &ReadContext<'_>) -> Result<Evidence, ReadError> {
    text::read_with(
        input,
        TextEncoding::Utf8,
        ctx,
        text::Readers { tables: false, steps: true, ooms: false, story: false },
    )
}

/// Ranks whose lines without a unit are remembered.
const MAX_UNITLESS: usize = 4096;

/// How a record's subject is known, and whose it is if that turns out not to hold.
#[derive(Debug)]
struct Owner {
    from: Option<RankFrom>,
    otherwise: Option<Subject>,
}

/// One printed `memory_stats()`.
#[derive(Debug)]
struct Gathered {
    draft: Draft,
    at: Provenance,
    label: Label,
}

/// Gathers step records line by line.
pub(crate) struct StepReader<'c> {
    ctx: &'c ReadContext<'c>,
    file_rank: Option<Rank>,
    columns: Option<Columns>,
    kept: Thinned<Owner>,
    /// Statistics that are spread over lines, still being gathered.
    stats: Option<Gathered>,
    nested: Nested,
    fairseq: Fairseq,
    /// Printed `memory_summary()` tables.
    summaries: Summaries,
    /// Statistics were printed: the line of the first, and whether any had a figure of the moment.
    first_stats: Option<u64>,
    has_stats: bool,
    /// Records that came from such prints.
    of_statistics: u64,
    /// Lines with a memory figure and nobody to give it to.
    ownerless: Ownerless,
    impossible: Impossible,
    /// Lines with a memory figure without a unit, by the rank that printed them.
    unitless: BTreeMap<Option<Rank>, Tally>,
    /// Lines with a result of a function that may be bytes or what somebody divided.
    small_results: Tally,
    /// Printed tables of `memory_summary()` that name a device and no rank.
    rankless: Tally,
    /// Lines with differences of memory, or with what is free of a card that nobody names.
    of_no_moment: Tally,
}

/// Lines with memory figures that cannot be, and the ranks that printed them.
#[derive(Debug, Default)]
struct Impossible {
    lines: Tally,
    ranks: BTreeSet<u32>,
}

impl Impossible {
    /// Ranks that a warning names.
    const MAX_RANKS: usize = 8;

    fn add(&mut self, line: u64, rank: Option<Rank>) {
        self.lines.add(line);
        // One more than is named, to tell that there are more.
        if self.ranks.len() <= Self::MAX_RANKS {
            self.ranks.extend(rank.map(|rank| rank.0));
        }
    }

    fn warning(&self) -> Option<String> {
        let named: Vec<String> = self.ranks.iter().take(Self::MAX_RANKS).map(u32::to_string).collect();
        let whose = match named.as_slice() {
            [] => String::new(),
            [one] => format!(" of rank {one}"),
            _ if self.ranks.len() > Self::MAX_RANKS => format!(" of ranks {} and more", named.join(", ")),
            [first @ .., last] => format!(" of ranks {} and {last}", first.join(", ")),
        };
        self.lines.told("has", "have").map(|lines| {
            format!(
                "{lines} a memory figure{whose} that cannot be (not a number, negative, or more than any machine has), which \
                 was left out; look at what prints it"
            )
        })
    }
}

/// Lines with memory figures that nobody can be given: by why that is.
#[derive(Debug, Default)]
struct Ownerless {
    unnamed: Tally,
    /// A rank stands there, but not so that the figures are its own.
    mixed: Tally,
    /// The rank that stands there is too large for one; the first such number.
    absurd: Tally,
    number: String,
}

impl Ownerless {
    /// Digits of a number that are shown.
    const SHOWN: usize = 24;

    fn add(&mut self, line: u64, text: &str) {
        match records::named_rank(text) {
            None => self.unnamed.add(line),
            Some(digits) if digits.parse().is_ok_and(|rank: u32| rank < MAX_RANK) => self.mixed.add(line),
            Some(digits) => {
                if self.absurd.count == 0 {
                    self.number = digits.chars().take(Self::SHOWN).collect();
                }
                self.absurd.add(line);
            }
        }
    }

    fn warnings(&self) -> impl Iterator<Item = String> {
        let unnamed = self.unnamed.told("names", "name").map(|lines| {
            format!(
                "{lines} no rank and no device for memory figures, which were left out; print the rank on each line, or \
                 name the file after it (rank3.log)"
            )
        });
        let mixed = self.mixed.told("has", "have").map(|lines| {
            format!(
                "{lines} memory figures beside a rank that cannot be told to be theirs, as where two processes write into \
                 one line; those figures were left out. Print each line with its line end in one call, and flush it"
            )
        });
        let absurd = self.absurd.told("names", "name").map(|lines| {
            let such = if self.absurd.count == 1 { "" } else { " or another such number" };
            format!(
                "{lines} the rank {}{such}, which no rank can be, for memory figures; they were left out. Look at what \
                 prints it",
                self.number
            )
        });
        [unnamed, mixed, absurd].into_iter().flatten()
    }
}

impl<'c> StepReader<'c> {
    pub(crate) fn new(ctx: &'c ReadContext<'c>) -> Self {
        Self {
            ctx,
            file_rank: rank_from_name(ctx.name),
            columns: None,
            stats: None,
            nested: Nested::default(),
            first_stats: None,
            has_stats: false,
            of_statistics: 0,
            fairseq: Fairseq::default(),
            summaries: Summaries::default(),
            kept: Thinned::new(ctx.limits.max_step_records),
            ownerless: Ownerless::default(),
            impossible: Impossible::default(),
            unitless: BTreeMap::new(),
            small_results: Tally::default(),
            rankless: Tally::default(),
            of_no_moment: Tally::default(),
        }
    }

    pub(crate) fn line(&mut self, line: &Line<'_>, trust: &mut Trust) {
        self.kept.read(line.text.len());
        let is_summary = self.summaries.line(line, self.ctx.artifact);
        let done = self.summaries.take_done();
        self.keep_summaries(done);
        if is_summary {
            return;
        }
        if let Some(figures) = self.nested.line(line) {
            self.gather(line, figures);
            return;
        }
        if let Some(columns) = &mut self.columns {
            if let Some(draft) = columns.row(line.body) {
                self.keep_line(draft, line, trust);
                return;
            }
            if columns.is_over() {
                self.columns = None;
            }
        }
        if let Some(columns) = Columns::head(line.body) {
            self.columns = Some(columns);
        } else if stats::is_stats(line.body) {
            self.first_stats.get_or_insert(line.number);
            self.gather(line, stats::figures(line.body));
        } else if let Some(draft) =
            self.fairseq.line(line.body, line.label.rank.map(|(rank, _)| rank).or(self.file_rank))
        {
            self.keep_line(draft, line, trust);
        } else if records::may_hold_record(line.body) {
            let owner = line.label.rank.filter(|(_, from)| *from == RankFrom::Text).map(|(rank, _)| rank);
            for draft in records::records(line.body, owner) {
                self.keep_line(draft, line, trust);
            }
            if tells_no_moment(line.body) {
                self.of_no_moment.add(line.number);
            }
        } else if tells_no_moment(line.body) {
            self.of_no_moment.add(line.number);
        }
    }

    /// Adds the figures of a line of statistics; a figure that is there already begins the next print.
    fn gather(&mut self, line: &Line<'_>, figures: Vec<(Figure, Bytes)>) {
        self.has_stats |= figures.iter().any(|(figure, _)| *figure != Figure::Active);
        for (figure, value) in figures {
            let open =
                self.stats.as_ref().is_some_and(|s| s.label.writer() == line.label.writer() && !s.draft.has(figure));
            if !open {
                self.keep_stats();
            }
            let gathered = self.stats.get_or_insert_with(|| Gathered {
                draft: Draft::default(),
                at: line.provenance(self.ctx.artifact),
                label: line.label,
            });
            gathered.draft.set(figure, value);
            if let Place::Line(first) | Place::Lines(first, _) = gathered.at.place
                && first < line.number
            {
                gathered.at.place = Place::Lines(first, line.number);
            }
        }
    }

    fn keep_stats(&mut self) {
        if let Some(Gathered { draft, at, label }) = self.stats.take().filter(|stats| stats.draft.has_memory()) {
            self.of_statistics = self.of_statistics.saturating_add(1);
            self.keep(draft, at, label);
        }
    }

    fn keep_summaries(&mut self, done: Vec<Summary>) {
        for Summary { draft, at, label } in done.into_iter().filter(|summary| summary.draft.has_memory()) {
            self.of_statistics = self.of_statistics.saturating_add(1);
            if label.rank.is_none() && self.file_rank.is_none() && draft.rank.is_none() {
                self.rankless.add(first_line(&at));
            }
            self.keep(draft, at, label);
        }
    }

    fn keep_line(&mut self, draft: Draft, line: &Line<'_>, trust: &mut Trust) {
        if let Some(rank) = draft.rank {
            trust.compare(rank, line.label);
        }
        self.keep(draft, line.provenance(self.ctx.artifact), line.label);
    }

    fn keep(&mut self, draft: Draft, at: Provenance, label: Label) {
        let printed = draft.rank.map(|rank| (rank, RankFrom::Text));
        let local = draft.local_rank.map(|rank| (rank, RankFrom::Prefix));
        let certain = self.file_rank.map(Subject::Rank).or(draft.device.map(Subject::Device));
        let named = printed.or(label.rank).or(local);
        if draft.has_impossible {
            self.impossible.add(first_line(&at), named.map(|(rank, _)| rank).or(self.file_rank));
        }
        if draft.has_unitless {
            let owner = named.map(|(rank, _)| rank).or(self.file_rank);
            if self.unitless.len() < MAX_UNITLESS || self.unitless.contains_key(&owner) {
                self.unitless.entry(owner).or_default().add(first_line(&at));
            }
        }
        if draft.has_small_result {
            self.small_results.add(first_line(&at));
        }
        if (draft.has_impossible || draft.has_unitless || draft.has_small_result) && !draft.says_something() {
            return;
        }
        let (subject, owner) = match (named, certain) {
            (Some((rank, from)), otherwise) => (Subject::Rank(rank), Owner { from: Some(from), otherwise }),
            (None, Some(subject)) => (subject, Owner { from: None, otherwise: None }),
            (None, None) => {
                if draft.has_allocator_figure() {
                    self.ownerless.add(first_line(&at), &at.quote);
                }
                return;
            }
        };
        let record = StepRecord {
            step: draft.step,
            phase: draft.phase,
            batch_shape: draft.shape,
            batch_samples: draft.samples,
            batch_tokens: draft.tokens,
            routed_tokens: draft.routed_tokens,
            allocated: draft.allocated,
            peak_allocated: draft.peak_allocated,
            reserved: draft.reserved,
            peak_reserved: draft.peak_reserved,
            active: draft.active,
            device_used: draft.device_used,
            ..StepRecord::new(at, subject)
        };
        self.kept.push(record, owner);
    }

    /// The records in the order of the file, how many of them came from printed statistics of the allocator, and what
    /// is doubtful about them.
    pub(crate) fn finish(mut self, trust: &Trust) -> (Vec<StepRecord>, u64, Vec<String>) {
        self.keep_stats();
        let rest = self.summaries.finish();
        self.keep_summaries(rest);
        let mut warnings = Vec::new();
        let Rest { kept, dropped, width, of_others } = self.kept.finish();
        let of_all = dropped.saturating_add(kept.len() as u64);
        let mut untrusted = Tally::default();
        // Collected from its own iterator, so that the records are never there twice.
        let records: Vec<StepRecord> = kept
            .into_iter()
            .filter_map(|mut kept| {
                if kept.extra.from.is_some_and(|from| !trust.accepts(from)) {
                    let Some(subject) = kept.extra.otherwise else {
                        untrusted.add(first_line(&kept.record.at));
                        return None;
                    };
                    kept.record.subject = subject;
                }
                Some(kept.record)
            })
            .collect();
        if let Some(line) = self.first_stats.filter(|_| !self.has_stats) {
            warnings.push(format!(
                "line {line}: the memory statistics printed here end before `allocated_bytes` and `reserved_bytes`, the \
                 figures that tell how full the card is; upload the whole print"
            ));
        }
        warnings.extend(self.ownerless.warnings());
        warnings.extend(self.impossible.warning());
        warnings.extend(self.small_results.told("has", "have").map(|lines| {
            format!(
                "{lines} the result of a memory function that is bytes as PyTorch counts them, or MiB if somebody divided \
                 it: too small to tell, and left out; print the unit behind the number"
            )
        }));
        // Where other figures were read, a bare number beside them may be anything. But of a rank without any figure they are all that was printed.
        let measured: BTreeSet<Option<Rank>> =
            records.iter().filter(|record| record.has_memory()).map(|record| record.subject.rank().map(Rank)).collect();
        let mut unitless = Tally::default();
        for (owner, lines) in &self.unitless {
            if measured.is_empty() || (owner.is_some() && !measured.contains(owner)) {
                unitless.join_any(*lines);
            }
        }
        warnings.extend(unitless.told("has", "have").map(|lines| {
            format!(
                "{lines} a memory figure without a unit, which was left out; print MB, MiB, GB or GiB behind the number"
            )
        }));
        let of_no_moment =
            self.of_no_moment.told("tells", "tell").filter(|_| !records.iter().any(StepRecord::has_memory));
        warnings.extend(of_no_moment.map(|lines| {
            format!(
                "{lines} how memory changed, or what is free of a card of unknown size, which no rank can be held against \
                 another by; print torch.cuda.max_memory_allocated() of each rank"
            )
        }));
        if self.rankless.count > 1 {
            warnings.push(format!(
                "{} tables of memory_summary(), the first at line {}, name a device and no rank: those of one device count as \
                 one process over time; if several ranks print them, print the rank on each line, or one file for each",
                self.rankless.count, self.rankless.first
            ));
        }
        warnings.extend(untrusted.told("has", "have").map(|lines| {
            format!(
                "{lines} a number in front that is not the global rank (the same number stands for several processes), \
                 and left out; print the rank on each line"
            )
        }));
        if dropped > 0 {
            warnings.push(format!(
                "{dropped} of {of_all} records were left out: of each rank and each {width} steps the one with the \
                 largest peak was kept"
            ));
        }
        if of_others > 0 {
            warnings.push(format!(
                "{of_others} records were left out because the file names more ranks than any job has; check that what \
                 is printed as the rank is the rank"
            ));
        }
        (records, self.of_statistics, warnings)
    }
}

/// `train_mem_gpu_alloc_delta` of HF's trainer, and fairseq's `gb_free` without its list of cards.
fn tells_no_moment(body: &str) -> bool {
    (body.contains("_mem_gpu_") && body.contains("_delta")) || body.contains("gb_free")
}

fn first_line(at: &Provenance) -> u64 {
    match at.place {
        Place::Line(line) | Place::Lines(line, _) => line,
        Place::Offset(_) => 0,
    }
}
