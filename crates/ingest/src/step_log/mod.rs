//! Training logs: lines that say memory or the batch of one rank (or device) at one step.
//!
//! Reads the plain form `[train] rank=0 step=3 shape=(8, 512) cur=10240.0MB peak=20480.0MB` and what Megatron,
//! DeepSpeed, torchtitan, RETURNN, verl, icefall and hand-written prints make of it. A figure belongs to a rank only
//! if the line, its prefix or the file's name says so; it is never guessed. Knows no rule about imbalance.

mod columns;
mod keys;
mod records;
mod thin;
mod tokens;

use crate::context::{ReadContext, ReadError};
use crate::lines::{Line, RankFrom, Trust};
use crate::rank_name::rank_from_name;
use crate::sniff::TextEncoding;
use crate::text;
use columns::Columns;
use rankscope_model::{Evidence, Provenance, Rank, StepRecord, Subject};
use records::Draft;
use std::io::BufRead;
use thin::Thinned;

/// Reads text and keeps its step records. Text without any gives an empty result, not an error.
pub fn read(input: &mut dyn BufRead, ctx: &ReadContext<'_>) -> Result<Evidence, ReadError> {
    text::read_with(input, TextEncoding::Utf8, ctx, text::Readers { tables: false, steps: true, ooms: false })
}

/// How a record's subject is known, and whose it is if that turns out not to hold.
#[derive(Debug)]
struct Owner {
    from: Option<RankFrom>,
    otherwise: Option<Subject>,
}

/// Gathers step records line by line.
pub(crate) struct StepReader<'c> {
    ctx: &'c ReadContext<'c>,
    file_rank: Option<Rank>,
    columns: Option<Columns>,
    kept: Thinned<Owner>,
    /// Lines with a memory figure and nobody to give it to, and the first of them.
    ownerless: u64,
    first_ownerless: u64,
}

impl<'c> StepReader<'c> {
    pub(crate) fn new(ctx: &'c ReadContext<'c>) -> Self {
        Self {
            ctx,
            file_rank: rank_from_name(ctx.name),
            columns: None,
            kept: Thinned::new(ctx.limits.max_step_records),
            ownerless: 0,
            first_ownerless: 0,
        }
    }

    pub(crate) fn line(&mut self, line: &Line<'_>, trust: &mut Trust) {
        if let Some(columns) = &mut self.columns {
            if let Some(draft) = columns.row(line.body) {
                self.keep(draft, line, trust);
                return;
            }
            if columns.is_over() {
                self.columns = None;
            }
        }
        if let Some(columns) = Columns::head(line.body) {
            self.columns = Some(columns);
            return;
        }
        if records::may_hold_record(line.body) {
            for draft in records::records(line.body) {
                self.keep(draft, line, trust);
            }
        }
    }

    fn keep(&mut self, draft: Draft, line: &Line<'_>, trust: &mut Trust) {
        if let Some(rank) = draft.rank {
            trust.compare(rank, line.label);
        }
        let printed = draft.rank.map(|rank| (rank, RankFrom::Text));
        let local = draft.local_rank.map(|rank| (rank, RankFrom::Prefix));
        let certain = self.file_rank.map(Subject::Rank).or(draft.device.map(Subject::Device));
        let named = printed.or(line.label.rank).or(local);
        let (subject, owner) = match (named, certain) {
            (Some((rank, from)), otherwise) => (Subject::Rank(rank), Owner { from: Some(from), otherwise }),
            (None, Some(subject)) => (subject, Owner { from: None, otherwise: None }),
            (None, None) => {
                if draft.has_allocator_figure() {
                    self.count_ownerless(line.number);
                }
                return;
            }
        };
        let at = Provenance::line(self.ctx.artifact, line.number, line.text);
        let record = StepRecord {
            step: draft.step,
            phase: draft.phase,
            batch_shape: draft.shape,
            batch_samples: draft.samples,
            batch_tokens: draft.tokens,
            allocated: draft.allocated,
            peak_allocated: draft.peak_allocated,
            reserved: draft.reserved,
            peak_reserved: draft.peak_reserved,
            device_used: draft.device_used,
            ..StepRecord::new(at, subject)
        };
        self.kept.push(record, owner);
    }

    fn count_ownerless(&mut self, line: u64) {
        self.ownerless += 1;
        if self.ownerless == 1 {
            self.first_ownerless = line;
        }
    }

    /// The records in the order of the file, and what is doubtful about them.
    pub(crate) fn finish(self, trust: &Trust) -> (Vec<StepRecord>, Vec<String>) {
        let mut warnings = Vec::new();
        let (kept, dropped, width) = self.kept.finish();
        let mut records = Vec::with_capacity(kept.len());
        let mut untrusted = 0u64;
        let mut first_untrusted = 0;
        for mut kept in kept {
            if kept.extra.from.is_none_or(|from| trust.accepts(from)) {
                records.push(kept.record);
            } else if let Some(subject) = kept.extra.otherwise {
                kept.record.subject = subject;
                records.push(kept.record);
            } else {
                untrusted += 1;
                if untrusted == 1 {
                    first_untrusted = line_of(&kept.record);
                }
            }
        }
        if self.ownerless > 0 {
            warnings.push(format!(
                "{} with memory figures, the first at line {}, name no rank and no device, so they were left out; \
                 print the rank on each line, or name the file after it (rank3.log)",
                lines(self.ownerless),
                self.first_ownerless
            ));
        }
        if untrusted > 0 {
            warnings.push(format!(
                "{}, the first at line {first_untrusted}, have a number in front that is not the global rank (the \
                 same number stands for several processes), so they were left out; print the rank on each line",
                lines(untrusted)
            ));
        }
        if dropped > 0 {
            warnings.push(format!(
                "{dropped} records were left out of more than {}: of each rank and each {width} steps the one with \
                 the largest peak was kept",
                self.ctx.limits.max_step_records
            ));
        }
        (records, warnings)
    }
}

fn lines(count: u64) -> String {
    if count == 1 { "1 line".to_owned() } else { format!("{count} lines") }
}

fn line_of(record: &StepRecord) -> u64 {
    match record.at.place {
        rankscope_model::Place::Line(line) | rankscope_model::Place::Lines(line, _) => line,
        rankscope_model::Place::Offset(_) => 0,
    }
}
