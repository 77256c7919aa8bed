//! Finds the records in one log line: who, which step, which batch, which memory.
//!
//! Several records may stand in one line when processes share a pipe. Knows no file, and takes nothing for a figure
//! that has no unit.

use super::keys::{Figure, Key, Parts, phase_value, unit};
use super::tokens::{Kind, Number, Token, tokens};
use crate::rank_name::MAX_RANK;
use rankscope_model::{Bytes, GIB, KIB, MIB, Phase, Rank, Step};
use regex::Regex;
use std::sync::LazyLock;

/// What one record says; missing is `None`.
#[allow(clippy::struct_excessive_bools, reason = "what was seen of one record")]
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Draft {
    pub(super) rank: Option<Rank>,
    pub(super) local_rank: Option<Rank>,
    pub(super) device: Option<u32>,
    pub(super) step: Option<Step>,
    pub(super) phase: Option<Phase>,
    pub(super) shape: Option<Vec<u64>>,
    pub(super) samples: Option<u64>,
    pub(super) tokens: Option<u64>,
    pub(super) routed_tokens: Option<u64>,
    pub(super) allocated: Option<Bytes>,
    pub(super) peak_allocated: Option<Bytes>,
    pub(super) reserved: Option<Bytes>,
    pub(super) peak_reserved: Option<Bytes>,
    pub(super) active: Option<Bytes>,
    pub(super) device_used: Option<Bytes>,
    /// A memory figure was printed that cannot be: not a number, negative, or more than any machine has.
    pub(super) has_impossible: bool,
    /// A memory figure was printed whose unit nothing tells.
    pub(super) has_unitless: bool,
    /// The same of the result of a function that gives bytes, too small to be sure that they are.
    pub(super) has_small_result: bool,
    says_init: bool,
}

impl Draft {
    pub(super) fn has_memory(&self) -> bool {
        self.has_allocator_figure() || self.device_used.is_some()
    }

    /// Whether a figure comes from an allocator, so that it is some process's own.
    pub(super) fn has_allocator_figure(&self) -> bool {
        let figures = [self.allocated, self.peak_allocated, self.reserved, self.peak_reserved];
        figures.iter().any(Option::is_some)
    }

    fn is_worth_keeping(&self) -> bool {
        self.says_something() || self.has_impossible || self.has_unitless || self.has_small_result
    }

    /// Whether it says more than that a figure cannot be.
    pub(super) fn says_something(&self) -> bool {
        self.has_memory() || self.has_batch()
    }

    /// A batch alone is worth keeping if it is one of a series; a batch size among settings is not.
    fn has_batch(&self) -> bool {
        self.shape.is_some() || (self.step.is_some() && (self.samples.is_some() || self.tokens.is_some()))
    }

    pub(super) fn set(&mut self, figure: Figure, value: Bytes) {
        *self.figure(figure) = Some(value);
    }

    pub(super) fn has(&self, figure: Figure) -> bool {
        let value = match figure {
            Figure::Allocated => self.allocated,
            Figure::PeakAllocated => self.peak_allocated,
            Figure::Reserved => self.reserved,
            Figure::PeakReserved => self.peak_reserved,
            Figure::Active => self.active,
            Figure::DeviceUsed => self.device_used,
        };
        value.is_some()
    }

    fn figure(&mut self, figure: Figure) -> &mut Option<Bytes> {
        match figure {
            Figure::Allocated => &mut self.allocated,
            Figure::PeakAllocated => &mut self.peak_allocated,
            Figure::Reserved => &mut self.reserved,
            Figure::PeakReserved => &mut self.peak_reserved,
            Figure::Active => &mut self.active,
            Figure::DeviceUsed => &mut self.device_used,
        }
    }
}

/// Longest shape kept.
const MAX_DIMENSIONS: usize = 8;

/// Words of which every key that matters has one.
static MARKS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let marks = "[Aa]lloc|cur|[Mm]em|MEM|[Pp]eak|reserved|used|MA |shape|batch|tokens|samples|input|seqs|utts|bs=|bsz";
    Regex::new(marks).ok()
});

/// Whether a line is worth taking apart: it has a word that could be a key, and a digit.
pub(super) fn may_hold_record(body: &str) -> bool {
    // The largest request ever, and the sum of the regions, in the account of TensorFlow's allocator, are none of a rank's
    // figures.
    if body.trim_start().starts_with("MaxAllocSize:") || body.contains("total_region_allocated_bytes_") {
        return false;
    }
    // The device that the checklist asks each rank to print.
    if body.contains("visible=") && body.contains("current=") {
        return false;
    }
    // `torch.cuda.memory_allocated(): nan` has none, and is not passed over in silence.
    let has_value = body.bytes().any(|b| b.is_ascii_digit())
        || (body.contains("memory_") && body.split([' ', '=']).any(is_no_number));
    has_value && MARKS.as_ref().is_some_and(|marks| marks.is_match(body))
}

/// The records of a line, in order. Records without a memory figure and without a batch are left out.
///
/// `owner` is the rank that the program printed in front of the line and that was taken off with the prefixes.
pub(super) fn records(body: &str, owner: Option<Rank>) -> Vec<Draft> {
    if let Some(peak) = peak_of_accelerate(body) {
        return vec![Draft { rank: owner, peak_allocated: Some(peak), ..Draft::default() }];
    }
    let tokens = tokens(body);
    let mut walk = Walk {
        tokens: &tokens,
        at: 0,
        draft: Draft { rank: owner, ..Draft::default() },
        done: Vec::new(),
        unit: None,
        last: None,
        epoch: false,
        words_at: 0,
        rank_behind: false,
        host: false,
        bare_mib: prints_bare_mib(body),
        before: None,
    };
    if walk.bare_mib && body.contains("(val)") {
        walk.draft.phase = Some(Phase::Eval);
    } else if walk.bare_mib && body.contains("(train)") {
        walk.draft.phase = Some(Phase::Train);
    }
    walk.run();
    walk.done
}

/// Lines of programs that print MiB without a unit: MMEngine and MMCV `Epoch(train) [1][50/1000] … memory: 5432 …`.
fn prints_bare_mib(body: &str) -> bool {
    body.contains("memory: ") && body.contains("eta: ") && (body.contains("Epoch") || body.contains("Iter"))
}

/// `Total Peak Memory consumed during the train (max): 5432` of accelerate's examples, in MiB.
fn peak_of_accelerate(body: &str) -> Option<Bytes> {
    let (_, value) = body.split_once("Total Peak Memory consumed during the ")?;
    let (_, number) = value.split_once("(max): ")?;
    Bytes::from_float(number.trim().parse::<u32>().ok()?.into(), MIB)
}

/// How the result of one of PyTorch's functions stands there.
enum Call {
    /// Divided, which makes this unit.
    Divided(u64),
    /// As it is.
    Plain,
}

#[allow(clippy::struct_excessive_bools, reason = "what was seen so far on one line")]
struct Walk<'t> {
    tokens: &'t [Token<'t>],
    at: usize,
    draft: Draft,
    done: Vec<Draft>,
    /// Unit in brackets that holds for the figures after it: `memory (MB) | allocated: 12.5 | …`.
    unit: Option<u64>,
    /// The figure before, for `(max=…)`.
    last: Option<Figure>,
    epoch: bool,
    /// Where the words at hand begin.
    words_at: usize,
    /// The rank at hand stood in brackets behind figures without a rank: it may begin a record, or end that one.
    rank_behind: bool,
    /// The figures up to the next bar are of host memory: `CPU Virtual Memory:  used = …`.
    host: bool,
    /// A memory figure without a unit is in MiB.
    bare_mib: bool,
    /// The figure that a key with `before` gave last.
    before: Option<Figure>,
}

impl<'t> Walk<'t> {
    fn kind(&self, offset: usize) -> Option<Kind<'t>> {
        self.tokens.get(self.at.saturating_add(offset)).map(|t| t.kind)
    }

    fn advance(&mut self, tokens: usize) {
        self.at = self.at.saturating_add(tokens);
    }

    fn is_sign(&self, offset: usize, sign: char) -> bool {
        self.kind(offset) == Some(Kind::Sign(sign))
    }

    /// Whether the token at `offset` touches the one before it.
    fn is_tight(&self, offset: usize) -> bool {
        self.kind(offset).is_some() && self.at.saturating_add(offset) > 0 && self.gap(offset) == 0
    }

    fn run(&mut self) {
        self.bare_rank();
        while let Some(kind) = self.kind(0) {
            match kind {
                Kind::Word(_) => self.words(),
                Kind::Sign('(') if self.rank_of_world() => {}
                Kind::Sign('[') if self.phase_tag() => {}
                Kind::Sign('|' | ';') => {
                    self.host = false;
                    self.advance(1);
                }
                _ => self.advance(1),
            }
        }
        if self.rank_behind && !self.draft.is_worth_keeping() {
            // `peak=1MB [rank 3]` and nothing more.
            let rank = self.draft.rank;
            if let Some(before) = self.done.last_mut() {
                before.rank = before.rank.or(rank);
            }
        }
        self.flush();
    }

    /// `[3] mp: after forward: MA 1.2 GiB | …`: the rank alone in brackets, known by the word behind it.
    fn bare_rank(&mut self) {
        if let (Some(Kind::Sign('[')), Some(Kind::Number(n)), Some(Kind::Sign(']')), Some(Kind::Word("mp"))) =
            (self.kind(0), self.kind(1), self.kind(2), self.kind(3))
        {
            self.set_rank(n);
            self.advance(4);
        }
    }

    /// `[train.py:430] (1/4) `: rank and world size right after the place in the source.
    fn rank_of_world(&mut self) -> bool {
        let after_place = matches!(
            (
                self.tokens.get(self.at.wrapping_sub(2)).map(|t| t.kind),
                self.tokens.get(self.at.wrapping_sub(1)).map(|t| t.kind)
            ),
            (Some(Kind::Number(_)), Some(Kind::Sign(']')))
        );
        let (Some(Kind::Number(rank)), true, Some(Kind::Number(world)), true) =
            (self.kind(1), self.is_sign(2, '/'), self.kind(3), self.is_sign(4, ')'))
        else {
            return false;
        };
        let in_world = rank.whole.zip(world.whole).is_some_and(|(r, w)| r < w);
        if !after_place || !in_world {
            return false;
        }
        self.set_rank(rank);
        self.advance(5);
        true
    }

    /// `[train]`, which also parts two records that were written into one line.
    fn phase_tag(&mut self) -> bool {
        let (Some(Kind::Word(word)), true) = (self.kind(1), self.is_sign(2, ']')) else { return false };
        let Some(phase) = phase_value(word) else { return false };
        if self.draft.is_worth_keeping() || self.draft.step.is_some() {
            self.flush();
        }
        self.draft.phase = Some(phase);
        self.advance(3);
        true
    }

    /// A key of one or more words, and its value.
    fn words(&mut self) {
        let mut words: Vec<&str> = Vec::new();
        self.words_at = self.at;
        while let Some(Kind::Word(word)) = self.kind(0) {
            self.advance(1);
            if let Some(found) = numbered(word) {
                self.numbered(found);
                words.clear();
                continue;
            }
            words.push(word);
            // `used/total`, `memory/max_active`
            if self.is_sign(0, '/') && self.is_tight(0) && matches!(self.kind(1), Some(Kind::Word(_))) {
                self.advance(1);
            }
        }
        if words.is_empty() {
            return;
        }
        let parts = Parts::of(&words);
        let mut is_result = false;
        self.draft.says_init |= parts.says_init();
        self.host = parts.says_host() || (self.host && !parts.says_card());
        let mut hint = parts.unit;
        // `(GB)` behind a key
        if let (true, Some(Kind::Word(word)), true) = (self.is_sign(0, '('), self.kind(1), self.is_sign(2, ')'))
            && let Some(unit) = unit(word, true)
        {
            hint = Some(unit);
            self.unit = Some(unit);
            self.advance(3);
        } else if matches!(parts.key(), Some(Key::Memory(_)))
            && let Some(call) = self.call()
        {
            match call {
                Call::Divided(unit) => hint = Some(unit),
                Call::Plain => is_result = true,
            }
        }
        let equals = self.is_sign(0, '=');
        if equals || self.is_sign(0, ':') {
            // `train:` and `[eval]:` name the phase of what follows
            if !equals && let Some(phase) = parts.phase() {
                self.draft.phase.get_or_insert(phase);
            }
            self.advance(1);
        } else if let Some(phase) = parts.phase()
            && matches!(self.kind(0), Some(Kind::Sign(',' | '|')))
        {
            self.draft.phase.get_or_insert(phase);
            return;
        }
        // A unit right behind the sign is the program's own: `step:  1`, `peak=20480.0MB`.
        let device = self.cuda_device();
        if is_result {
            hint = hint.or(self.unit_of_result());
        }
        match self.kind(0) {
            Some(Kind::Number(number)) => self.number_value(&parts, number, hint, equals, device),
            Some(Kind::Sign('-')) if self.is_tight(1) => self.negative_value(&parts, hint),
            Some(Kind::Word(word)) if is_no_number(word) => self.no_number_value(&parts),
            Some(Kind::Sign('(' | '[')) => self.shape_value(&parts),
            Some(Kind::Word("torch")) if self.is_sign(1, '.') && self.kind(2) == Some(Kind::Word("Size")) => {
                self.advance(3);
                self.shape_value(&parts);
            }
            Some(Kind::Word(word)) if equals && parts.key() == Some(Key::Phase) => {
                if let Some(phase) = phase_value(word) {
                    self.draft.phase = Some(phase);
                    self.advance(1);
                }
            }
            _ => {}
        }
    }

    /// `()`, `(0)`, `('cuda:1')` behind the name of one of PyTorch's functions, and what its result is divided by, as
    /// `f"{torch.cuda.memory_allocated()/2**30=}"` prints it. Stays where it is if no value follows: lines of code look the
    /// same, and the keys of a dictionary in code too.
    fn call(&mut self) -> Option<Call> {
        const LONGEST: usize = 7;
        if !(self.is_sign(0, '(') && self.is_tight(0)) || self.is_key_of_code() {
            return None;
        }
        let (begin, end) = (self.at, (1..=LONGEST).find(|offset| self.is_sign(*offset, ')'))?);
        // `(0)`, `(cuda:0)`, `(device=0)`, `(device=cuda:0)`: the number before the end.
        let argument = match self.kind(end.saturating_sub(1)) {
            Some(Kind::Number(n)) => n.whole,
            _ => None,
        };
        self.advance(end.saturating_add(1));
        let mut divided = self.divided();
        // `…/1e9 GB: 4.5`
        if let Some(Kind::Word(word)) = self.kind(0)
            && let Some(unit) = unit(word, false)
        {
            divided = Some(unit);
            self.advance(1);
        }
        if !(self.is_sign(0, '=') || self.is_sign(0, ':') || matches!(self.kind(0), Some(Kind::Number(_)))) {
            self.at = begin;
            return None;
        }
        if let Some(device) = argument.and_then(|n| u32::try_from(n).ok()).filter(|device| *device < 1024) {
            self.draft.device.get_or_insert(device);
        }
        Some(divided.map_or(Call::Plain, Call::Divided))
    }

    /// `{torch.cuda.memory_allocated(): 3}`: the name at hand begins behind a brace, so it is evaluated there.
    fn is_key_of_code(&self) -> bool {
        let before = self.tokens.get(..self.at).unwrap_or_default().iter().rev();
        let name = |kind: Kind<'_>| matches!(kind, Kind::Word(_) | Kind::Sign('.'));
        before.map(|token| token.kind).find(|kind| !name(*kind)) == Some(Kind::Sign('{'))
    }

    /// The unit of a function's result that stands there as it is. PyTorch's count bytes; programs that print under the
    /// same name what they have divided elsewhere print small numbers, of which nothing tells the unit.
    fn unit_of_result(&mut self) -> Option<u64> {
        const LEAST_BYTES: u64 = MIB;
        let printed = matches!(self.kind(1), Some(Kind::Word(word)) if unit(word, self.is_tight(1)).is_some());
        match self.kind(0) {
            Some(Kind::Number(number)) if !printed && self.unit.is_none() => match number.whole {
                Some(0) => Some(1),
                Some(n) if n >= LEAST_BYTES => Some(1),
                // Not even MiB would be so many.
                None if number.value >= MIB as f64 => Some(1),
                _ => {
                    self.draft.has_small_result = true;
                    None
                }
            },
            Some(Kind::Number(_)) => None,
            // `nan`, or a sign before a number.
            _ => Some(1),
        }
    }

    /// `/1024**3`, `/ 2**20`, `/1e9`, `/ (1024 * 1024)`, `>> 20`: the unit, if it is one.
    fn divided(&mut self) -> Option<u64> {
        const UNITS: [u64; 6] = [KIB, MIB, GIB, 1_000, 1_000_000, 1_000_000_000];
        if let (true, true, Some(Kind::Number(bits))) = (self.is_sign(0, '>'), self.is_sign(1, '>'), self.kind(2)) {
            self.advance(3);
            let unit = bits.whole.and_then(|bits| 1_u64.checked_shl(u32::try_from(bits).ok()?));
            return unit.filter(|unit| UNITS.contains(unit));
        }
        let mut product = 1.0;
        while self.is_sign(0, '/') {
            let floor = usize::from(self.is_sign(1, '/'));
            self.advance(floor.saturating_add(1));
            let is_grouped = self.is_sign(0, '(');
            self.advance(usize::from(is_grouped));
            while let Some(Kind::Number(number)) = self.kind(0) {
                // Asterisks are no tokens: two between numbers, with or without spaces around them, are an even gap.
                let gap = self.gap(1);
                if gap == 2 || gap == 4 {
                    let Some(Kind::Number(power)) = self.kind(1) else { break };
                    product *= number.value.powf(power.value);
                    self.advance(2);
                } else {
                    product *= number.value;
                    self.advance(1);
                }
                if !is_grouped {
                    break;
                }
            }
            self.advance(usize::from(is_grouped && self.is_sign(0, ')')));
        }
        UNITS.into_iter().find(|unit| (product - *unit as f64).abs() < 0.5)
    }

    /// Signs between the token at `offset` and the one before it.
    fn gap(&self, offset: usize) -> usize {
        let at = self.at.saturating_add(offset);
        match (at.checked_sub(1).and_then(|before| self.tokens.get(before)), self.tokens.get(at)) {
            (Some(before), Some(token)) => token.start.saturating_sub(before.end),
            _ => 0,
        }
    }

    /// `rank3` and `gpu2` in one word.
    fn numbered(&mut self, found: Numbered) {
        match found {
            Numbered::Rank(rank) => self.set_rank(Number { value: 0.0, whole: Some(u64::from(rank)) }),
            Numbered::Device(device) => {
                self.draft.device.get_or_insert(device);
            }
        }
    }

    /// `cuda:2` as a value or between a key and its value.
    fn cuda_device(&mut self) -> bool {
        if let (Some(Kind::Word("cuda" | "CUDA")), true, Some(Kind::Number(n))) =
            (self.kind(0), self.is_sign(1, ':'), self.kind(2))
            && let Some(device) = n.whole.and_then(|n| u32::try_from(n).ok()).filter(|d| *d < 1024)
        {
            self.draft.device.get_or_insert(device);
            self.advance(3);
            return true;
        }
        false
    }

    fn number_value(&mut self, parts: &Parts, number: Number, hint: Option<u64>, equals: bool, device: bool) {
        self.advance(1);
        let number = self
            .decimals_behind_comma()
            .map_or(number, |decimals| Number { value: number.value + decimals, whole: None });
        let printed = match self.kind(0) {
            Some(Kind::Word(word)) => unit(word, self.is_tight(0)),
            _ => None,
        };
        if printed.is_some() {
            self.advance(1);
            // A rate is no amount.
            if self.is_sign(0, '/') && self.is_tight(0) {
                return;
            }
        }
        // `memory before: 100MB after: 20000MB`: what stands afterwards counts.
        let after = self.before.filter(|_| parts.is_after_alone());
        let Some(mut key) = after.map(Key::Memory).or_else(|| parts.key()) else {
            self.iterations_after(parts, number);
            return;
        };
        if let Some(figure) = after {
            *self.draft.figure(figure) = None;
            self.before = None;
        }
        if parts.is_usage_alone() && device {
            // returnn prints max_memory_allocated under this name.
            key = Key::Memory(Figure::PeakAllocated);
        }
        if parts.is_memory_alone() && self.percent_follows() {
            // torchtitan prints the peak reserved and its share of the device.
            key = Key::Memory(Figure::PeakReserved);
        }
        let count = number.whole.filter(|_| printed.is_none());
        match key {
            Key::Rank if count.is_some() => self.set_rank(number),
            Key::LocalRank => self.draft.local_rank = self.draft.local_rank.or(rank(number)),
            Key::Device => {
                let index = count.and_then(|n| u32::try_from(n).ok()).filter(|d| *d < 1024);
                self.draft.device = self.draft.device.or(index);
            }
            Key::Step => {
                if let Some(step) = count {
                    self.draft.step.get_or_insert(Step(step));
                    if self.draft.phase.is_none() {
                        self.draft.phase = parts.phase_of_step();
                    }
                }
            }
            Key::Epoch => self.epoch = true,
            // `Epoch 0, batch 0`: the index of the batch; `batch=8`: its size.
            Key::Batch if equals => self.draft.samples = self.draft.samples.or(count),
            Key::Batch if self.epoch => self.draft.step = self.draft.step.or(count.map(Step)),
            Key::Tokens => self.draft.tokens = self.draft.tokens.or(count),
            Key::RoutedTokens => self.draft.routed_tokens = self.draft.routed_tokens.or(count),
            Key::Samples => self.draft.samples = self.draft.samples.or(count),
            Key::Shape if equals => {
                // `shape=8x512`
                self.shape_with_x(number);
            }
            Key::Memory(figure) => self.memory(figure, number, printed.or(hint), parts),
            Key::Max => {
                if let (Some(figure), Some(unit)) = (self.last, printed.or(hint)) {
                    let value = Bytes::from_float(number.value, unit);
                    let peak = self.draft.figure(figure.peak());
                    *peak = peak.or(value);
                }
            }
            Key::Rank | Key::Batch | Key::Shape | Key::Phase => {}
        }
        // `step 100/5000`, `139.77/139.80`: the second number is the limit of the first.
        if self.is_sign(0, '/') && matches!(self.kind(1), Some(Kind::Number(_))) {
            self.advance(2);
        }
    }

    /// `,53 GB` behind `19`: half of the world writes its decimals so. One or two digits, and a unit behind them; three are
    /// thousands, which were read as such.
    fn decimals_behind_comma(&mut self) -> Option<f64> {
        let Some(Kind::Number(decimals)) = self.kind(1).filter(|_| self.is_sign(0, ',') && self.is_tight(0)) else {
            return None;
        };
        let token = self.tokens.get(self.at.saturating_add(1))?;
        let digits = token.end.saturating_sub(token.start);
        let Some(Kind::Word(word)) = self.kind(2) else { return None };
        let is_one = self.is_tight(1) && (1..=2).contains(&digits) && unit(word, self.is_tight(2)).is_some();
        let value = decimals.whole.filter(|_| is_one)? as f64;
        self.advance(2);
        Some(value / if digits == 1 { 10.0 } else { 100.0 })
    }

    fn memory(&mut self, figure: Figure, number: Number, unit: Option<u64>, parts: &Parts) {
        // No card holds 64 TiB, so a large bare integer is bytes; the one bare form in wide use is `max mem: 6121`.
        const SURELY_BYTES: u64 = 1 << 26;
        let bare = || match number.whole {
            Some(n) if n >= SURELY_BYTES => Some(1),
            Some(_) if parts.is_max_mem() || self.bare_mib => Some(MIB),
            _ => None,
        };
        if self.host {
            return;
        }
        let Some(unit) = unit.or(self.unit).or_else(bare) else {
            // Only beside a rank or a step: elsewhere a bare number may be anything.
            self.draft.has_unitless |= self.draft.rank.is_some() || self.draft.step.is_some();
            return;
        };
        let Some(value) = Bytes::from_float(number.value, unit) else {
            self.draft.has_impossible = true;
            return;
        };
        if self.draft.has(figure) {
            self.flush();
        }
        // `100MB -> 20000MB`: the same.
        let value = self.changed_to().unwrap_or(value);
        *self.draft.figure(figure) = Some(value);
        self.last = Some(figure);
        self.before = parts.ends_in_before().then_some(figure);
    }

    /// The figure behind an arrow.
    fn changed_to(&mut self) -> Option<Bytes> {
        let arrow = match (self.kind(0), self.kind(1)) {
            (Some(Kind::Sign('-' | '=')), Some(Kind::Sign('>'))) => 2,
            (Some(Kind::Sign('\u{2192}')), _) => 1,
            _ => return None,
        };
        let (Some(Kind::Number(number)), Some(Kind::Word(word))) =
            (self.kind(arrow), self.kind(arrow.saturating_add(1)))
        else {
            return None;
        };
        let value = Bytes::from_float(number.value, unit(word, self.is_tight(arrow.saturating_add(1)))?)?;
        self.advance(arrow.saturating_add(2));
        Some(value)
    }

    /// `peak=-512.0MB`: no figure, and not to be passed over in silence. Without a unit it may stand for "unknown".
    fn negative_value(&mut self, parts: &Parts, hint: Option<u64>) {
        let Some(Kind::Number(_)) = self.kind(1) else { return };
        self.advance(2);
        let printed = match self.kind(0) {
            Some(Kind::Word(word)) => unit(word, self.is_tight(0)),
            _ => None,
        };
        if printed.or(hint).or(self.unit).is_some() {
            self.refuse(parts);
        }
    }

    /// `peak=nanMB`, `"peak_mb": NaN`.
    fn no_number_value(&mut self, parts: &Parts) {
        self.advance(1);
        // Without a unit too: unlike -1, it stands for nothing else.
        self.refuse(parts);
    }

    fn refuse(&mut self, parts: &Parts) {
        self.draft.has_impossible |= matches!(parts.key(), Some(Key::Memory(_))) && !self.host;
    }

    fn set_rank(&mut self, number: Number) {
        let Some(rank) = rank(number) else { return };
        let in_brackets = self.tokens.get(self.words_at.wrapping_sub(1)).is_some_and(|t| t.kind == Kind::Sign('['));
        if self.draft.rank.is_none() && self.draft.has_memory() && in_brackets {
            self.flush();
            self.rank_behind = true;
        } else if self.draft.rank.is_some_and(|known| known != rank || self.draft.has_memory()) {
            // A record that was cut before its first figure leaves its phase tag to the one that cut it.
            let phase = self.draft.phase.filter(|_| !self.draft.is_worth_keeping());
            self.flush();
            self.draft.phase = phase;
        }
        self.draft.rank = Some(rank);
    }

    /// `(after 20 iterations)`
    fn iterations_after(&mut self, parts: &Parts, number: Number) {
        if let (true, Some(step), Some(Kind::Word("iterations" | "steps"))) =
            (parts.ends_in_after(), number.whole, self.kind(0))
        {
            self.draft.step.get_or_insert(Step(step));
            self.advance(1);
        }
    }

    /// `(98.86%)` behind the value.
    fn percent_follows(&self) -> bool {
        self.is_sign(0, '(') && matches!(self.kind(1), Some(Kind::Number(_))) && self.is_sign(2, '%')
    }

    /// `(8, 512)`, `[8, 512]`, `([8, 512])` behind a key that can have a shape.
    fn shape_value(&mut self, parts: &Parts) {
        if !matches!(parts.key(), Some(Key::Shape | Key::Batch)) {
            return;
        }
        let mut offset = 0;
        while matches!(self.kind(offset), Some(Kind::Sign('(' | '['))) && offset < 2 {
            offset = offset.saturating_add(1);
        }
        let mut shape = Vec::new();
        while let Some(Kind::Number(n)) = self.kind(offset) {
            let Some(size) = n.whole.filter(|_| shape.len() < MAX_DIMENSIONS) else { return };
            shape.push(size);
            offset = offset.saturating_add(1);
            if self.is_sign(offset, ',') {
                offset = offset.saturating_add(1);
            }
        }
        // A tuple that does not end was cut, and its last number may be cut too.
        if matches!(self.kind(offset), Some(Kind::Sign(')' | ']'))) && !shape.is_empty() {
            self.draft.shape.get_or_insert(shape);
            self.advance(offset.saturating_add(1));
        }
    }

    fn shape_with_x(&mut self, first: Number) {
        let (Some(first), Some(Kind::Word(rest))) = (first.whole, self.kind(0)) else { return };
        let sizes: Option<Vec<u64>> =
            rest.strip_prefix('x').map(|r| r.split('x').map(|n| n.parse().ok()).collect()).unwrap_or_default();
        if let Some(mut sizes) = sizes.filter(|s| s.len() < MAX_DIMENSIONS) {
            sizes.insert(0, first);
            self.draft.shape.get_or_insert(sizes);
            self.advance(1);
        }
    }

    fn flush(&mut self) {
        let mut draft = std::mem::take(&mut self.draft);
        self.last = None;
        self.rank_behind = false;
        if draft.phase.is_none() && draft.step.is_none() && draft.says_init {
            draft.phase = Some(Phase::Init);
        }
        // DeepSpeed rounds Max_CA to a whole GB; where that falls below CA it says nothing.
        if draft.peak_reserved.zip(draft.reserved).is_some_and(|(peak, now)| peak < now) {
            draft.peak_reserved = None;
        }
        if draft.is_worth_keeping() {
            self.done.push(draft);
        }
    }
}

/// `nan`, `inf`, and `nanMB` as `f"{peak}MB"` prints it.
fn is_no_number(word: &str) -> bool {
    let Some((head, rest)) = word.split_at_checked(3) else { return false };
    let is_one = head.eq_ignore_ascii_case("nan") || head.eq_ignore_ascii_case("inf");
    is_one && (rest.is_empty() || unit(rest, true).is_some())
}

#[derive(Debug, Clone, Copy)]
enum Numbered {
    Rank(u32),
    Device(u32),
}

/// `rank3`, `Rank3`, `gpu2`, `GPU2`.
fn numbered(word: &str) -> Option<Numbered> {
    let digits = word.trim_start_matches(|c: char| !c.is_ascii_digit());
    let name = word.get(..word.len().saturating_sub(digits.len()))?;
    let number: u32 = digits.parse().ok()?;
    if name.eq_ignore_ascii_case("rank") && number < MAX_RANK {
        return Some(Numbered::Rank(number));
    }
    (name.eq_ignore_ascii_case("gpu") && number < 1024).then_some(Numbered::Device(number))
}

/// The digits of the global rank that a text names anywhere: `rank=3`, `[Rank 3]`, `curank=3` of two lines in one.
pub(super) fn named_rank(text: &str) -> Option<&str> {
    memchr::memmem::find_iter(text.as_bytes(), b"ank").find_map(|at| {
        let (before, from) = text.split_at_checked(at.checked_sub(1)?)?;
        if !from.starts_with(['r', 'R']) {
            return None;
        }
        let value = from.get(4..)?.trim_start_matches(['=', ':', ' ', '"', '\'']);
        let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
        let digits = value.get(..end).filter(|digits| !digits.is_empty())?;
        // `dp_rank` and `lora rank` are others.
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let last = before.trim_end_matches([' ', '-']).rsplit(|c: char| !word(c)).next()?;
        (Parts::of(&[last, "rank"]).key() == Some(Key::Rank)).then_some(digits)
    })
}

fn rank(number: Number) -> Option<Rank> {
    number.whole.and_then(|n| u32::try_from(n).ok()).filter(|n| *n < MAX_RANK).map(Rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::GIB;

    fn one(line: &str) -> Draft {
        assert!(may_hold_record(line), "{line}");
        let mut all = records(line, None);
        assert_eq!(all.len(), 1, "{line}: {all:?}");
        all.remove(0)
    }

    fn mib(value: f64) -> Option<Bytes> {
        Bytes::from_float(value, MIB)
    }

    fn gib(value: f64) -> Option<Bytes> {
        Bytes::from_float(value, GIB)
    }

    #[test]
    fn the_plain_form() {
        let record = one("[train] rank=0 step=3 shape=(8, 512) cur=10240.0MB peak=20480.0MB");
        let expected = Draft {
            rank: Some(Rank(0)),
            step: Some(Step(3)),
            phase: Some(Phase::Train),
            shape: Some(vec![8, 512]),
            allocated: mib(10240.0),
            peak_allocated: mib(20480.0),
            ..Draft::default()
        };
        assert_eq!(record, expected);
    }

    #[test]
    fn a_rank_is_found_wherever_it_stands() {
        for (text, digits) in [
            ("rank=4294967295 peak=5MB", Some("4294967295")),
            ("[rank99999999999]: peak=5MB", Some("99999999999")),
            ("peak=5MB curank=1 step=2", Some("1")),
            ("{\"rank\": 3}", Some("3")),
            ("dp_rank=1 peak=5MB", None),
            ("lora rank: 16", None),
            ("ranks=3", None),
            ("rank=x", None),
            ("thank 5 of you", None),
        ] {
            assert_eq!(named_rank(text), digits, "{text}");
        }
    }

    #[test]
    fn two_records_in_one_line() {
        let all = records(
            "[train] rank=0 step=3 shape=(8, 512) cur=1.0MB peak=2.0MB[eval] rank=1 step=4 cur=3.0MB peak=4.0MB",
            None,
        );
        let short: Vec<_> = all.iter().map(|d| (d.rank, d.step, d.phase, d.peak_allocated)).collect();
        assert_eq!(
            short,
            [
                (Some(Rank(0)), Some(Step(3)), Some(Phase::Train), mib(2.0)),
                (Some(Rank(1)), Some(Step(4)), Some(Phase::Eval), mib(4.0)),
            ]
        );
        let all = records("peak=1MB rank=0 step=3 peak=2MB rank=1 step=3", None);
        assert_eq!(
            all.iter().map(|d| (d.rank, d.peak_allocated)).collect::<Vec<_>>(),
            [(Some(Rank(0)), mib(1.0)), (Some(Rank(1)), mib(2.0))]
        );
    }

    #[test]
    fn a_record_cut_by_another_keeps_only_what_is_whole() {
        let all =
            records("[train] rank=0 step=3 cur=10.0MB peak=204[train] rank=1 step=3 cur=11.0MB peak=20480.0MB", None);
        assert_eq!(
            all.iter().map(|d| (d.rank, d.allocated, d.peak_allocated)).collect::<Vec<_>>(),
            [(Some(Rank(0)), mib(10.0), None), (Some(Rank(1)), mib(11.0), mib(20480.0)),]
        );
        assert_eq!(one("rank=0 step=1 cur=1MB shape=(8, 51").shape, None);
    }

    #[test]
    fn a_glued_record_never_takes_the_figures_of_its_neighbour() {
        let short =
            |all: Vec<Draft>| all.into_iter().map(|d| (d.rank.map(|r| r.0), d.peak_allocated)).collect::<Vec<_>>();
        // The first rank may have been taken off as a prefix, printed (`[Rank 5] `) or of a launcher (`[rank5]: `).
        let printed = records("peak=1MB [Rank 6] peak=2MB", Some(Rank(5)));
        assert_eq!(short(printed), [(Some(5), mib(1.0)), (Some(6), mib(2.0))]);
        let launcher = records("peak=1MB[rank6]: peak=2MB", None);
        assert_eq!(short(launcher), [(None, mib(1.0)), (Some(6), mib(2.0))]);
        assert_eq!(short(records("peak=1MB [rank 6]", None)), [(Some(6), mib(1.0))]);
        assert_eq!(short(records("peak=1MB rank=6", None)), [(Some(6), mib(1.0))]);
        assert_eq!(one("rank=0 [train] step=3 peak=1MB").rank, Some(Rank(0)));
        let cut = records("[train] rank=0 sha[eval] rank=1 peak=2MB", None);
        assert_eq!((cut.len(), cut[0].rank, cut[0].phase), (1, Some(Rank(1)), Some(Phase::Eval)));
    }

    #[test]
    fn forms_of_other_programs() {
        let megatron = records(
            "[Rank 51] (after 20 iterations) memory (MB) | allocated: 19494.5 | max allocated: 22106.0 | reserved: 26716.0 | max reserved: 26716.0[Rank 49] (after 20 iterations) memory (MB) | allocated: 1.0 | max allocated: 2.0 | reserved: 3.0 | max reserved: 4.0",
            None,
        );
        assert_eq!(megatron.len(), 2);
        assert_eq!(
            (megatron[0].rank, megatron[0].step, megatron[0].peak_reserved),
            (Some(Rank(51)), Some(Step(20)), mib(26716.0))
        );
        assert_eq!(
            (megatron[1].rank, megatron[1].allocated, megatron[1].peak_reserved),
            (Some(Rank(49)), mib(1.0), mib(4.0))
        );

        let deepspeed =
            one("[INFO] [logging.py:68:log_dist] [Rank 0] MA 5.87 GB  Max_MA 8.11 GB  CA 8.62 GB  Max_CA 9 GB");
        assert_eq!(
            (deepspeed.rank, deepspeed.allocated, deepspeed.peak_allocated),
            (Some(Rank(0)), gib(5.87), gib(8.11))
        );
        assert_eq!((deepspeed.reserved, deepspeed.peak_reserved), (gib(8.62), gib(9.0)));

        let memstats = one(
            "RANK=3 MEMSTATS before step device=cuda:3 current alloc=4.9000GB (delta=0.1000GB max=5.5000GB) current cache=6.0000GB (delta=0.0000GB max=6.5000GB)",
        );
        assert_eq!((memstats.rank, memstats.device), (Some(Rank(3)), Some(3)));
        assert_eq!((memstats.allocated, memstats.peak_allocated), (gib(4.9), gib(5.5)));
        assert_eq!((memstats.reserved, memstats.peak_reserved), (gib(6.0), gib(6.5)));

        let timer = one(
            "epoch=1/micro_step=2/global_step=3, RunningAvgSamplesPerSec=1.5, MemAllocated=4.5GB, MaxMemAllocated=5.5GB",
        );
        assert_eq!((timer.step, timer.allocated, timer.peak_allocated), (Some(Step(3)), gib(4.5), gib(5.5)));

        let titan =
            one("[titan] root - INFO - step: 11  loss: 11.6400  memory: 78.25GiB(98.93%)  tps: 4,240  mfu: 41.46%");
        assert_eq!((titan.step, titan.peak_reserved, titan.allocated), (Some(Step(11)), gib(78.25), None));

        let returnn = one(
            "ep 13 train, step 95, ctc_4 4.363, num_seqs 10, max_size:time 225760, mem_usage:cuda:2 8.9GB, 0.750 sec/step",
        );
        assert_eq!((returnn.device, returnn.step, returnn.phase), (Some(2), Some(Step(95)), Some(Phase::Train)));
        assert_eq!((returnn.samples, returnn.peak_allocated), (Some(10), gib(8.9)));

        let stas = one(
            "[7] mp: after forward: MA 1.25 GiB | Max_MA 2.50 GiB | CA 3.00 GiB | Max_CA 4.00 GiB | NV 5.00 GiB | CPU mem: 9.00 GiB",
        );
        assert_eq!((stas.rank, stas.allocated, stas.device_used), (Some(Rank(7)), gib(1.25), gib(5.0)));

        let icefall = one(
            "2021-11-12 23:01:49,990 INFO [train.py:430] (1/4) Epoch 0, batch 50, utts 3, total_duration 28.6 s, loss 1.5643, max_mem 11405MB",
        );
        assert_eq!(
            (icefall.rank, icefall.step, icefall.samples, icefall.peak_allocated),
            (Some(Rank(1)), Some(Step(50)), Some(3), mib(11405.0))
        );

        let verl = one(
            "[rank2] step 11 after forward, memory allocated (GB): 57.04, memory reserved (GB): 113.21, device memory used/total (GB): 139.77/139.80",
        );
        assert_eq!((verl.rank, verl.step), (Some(Rank(2)), Some(Step(11))));
        assert_eq!((verl.allocated, verl.reserved, verl.device_used), (gib(57.04), gib(113.21), gib(139.77)));

        let detr = one("Test:  [ 400/2478]  eta: 0:24:14  loss: 20.8  time: 0.70  data: 0.0118  max mem: 6121");
        assert_eq!((detr.rank, detr.peak_allocated), (None, mib(6121.0)));
    }

    #[test]
    fn free_style() {
        assert_eq!(one("Rank 1 | alloc 10.2 GB").allocated, gib(10.2));
        assert_eq!(one("rank=0 step 50 loss 10.986: allocated=6.52GiB reserved=24.10GiB").reserved, gib(24.1));
        assert_eq!(one("rank=0 model built: allocated=4.91GiB reserved=4.97GiB").phase, Some(Phase::Init));
        assert_eq!(
            one("[step  10][rank 0] input=(1, 4096) recv_tokens=4422 peak=44290.4MB").shape,
            Some(vec![1, 4096])
        );
        assert_eq!(
            one("{\"rank\": 2, \"step\": 5, \"peak_mem_mb\": 123.5, \"tokens\": 4096}").peak_allocated,
            mib(123.5)
        );
        assert_eq!(one("rank=1 step=2 max_memory_allocated=21474836480").peak_allocated, Some(Bytes(21_474_836_480)));
        assert_eq!(one("rank=2 first batch (256, 3, 192, 192)").shape, Some(vec![256, 3, 192, 192]));
        assert_eq!(one("rank=2 step=1 batch=8 used=5G").samples, Some(8));
        assert_eq!(one("rank=2 step=1 shape=torch.Size([8, 512]) cur=1MB").shape, Some(vec![8, 512]));
        assert_eq!(one("rank=2 step=1 shape=8x512 cur=1MB").shape, Some(vec![8, 512]));
        assert_eq!(one("GPU 3: mem 10GB").device, Some(3));
        assert_eq!(one("rank=1 step=2 allocated=19,53 GB").allocated, gib(19.53));
        for text in [
            "rank=1 memory before: 100MB after: 20000MB",
            "rank=1 mem: 100MB -> 20000MB",
            "rank=1 mem=100 MB \u{2192} 20000 MB",
            "rank=1 step=1 cpu_mem=90000MB gpu_mem=20000MB",
            "rank=1 step=1 gpu_mem=20000MB cpu_mem=90000MB",
        ] {
            assert_eq!(one(text).allocated, mib(20_000.0), "{text}");
        }
        assert_eq!(one("rank=1 memory before forward: 100MB").allocated, mib(100.0));
        assert_eq!(records("rank=1 estimated memory: 100 MB", None), []);
        assert_eq!(one("rank=1 step=2 allocated=19,5GB").allocated, gib(19.5));
        assert_eq!(one("rank=1 step=2 allocated=19,530 MB").allocated, mib(19530.0));
        assert_eq!(one("rank=0 step=9 phase=eval peak=1GB").phase, Some(Phase::Eval));
        assert_eq!(one("[rank0]: validate step: 20  memory: 30.00GiB(37.5%)").phase, Some(Phase::Eval));
    }

    #[test]
    fn a_call_that_was_printed_with_its_result_is_read() {
        let of = |text: &str| one(&format!("[rank0]: {text}"));
        for text in [
            "torch.cuda.memory_allocated(): 3000000000",
            "torch.cuda.memory_allocated()=3000000000",
            "torch.cuda.memory_allocated() 3000000000",
            "torch.cuda.memory_allocated(device) = 3000000000",
        ] {
            assert_eq!(of(text).allocated, Some(Bytes(3_000_000_000)), "{text}");
        }
        for text in [
            "torch.cuda.max_memory_allocated()/1024**3=4.5",
            "torch.cuda.max_memory_allocated() / 1024 ** 3: 4.5",
            "torch.cuda.max_memory_allocated() / (1024 * 1024 * 1024) = 4.5",
            "torch.cuda.max_memory_allocated()/1024/1024/1024=4.5",
            "torch.cuda.max_memory_allocated()/2**30=4.5",
            "torch.cuda.max_memory_allocated()//2**20=4608",
            "torch.cuda.max_memory_allocated(): 4.50 GiB",
            "max_memory_allocated(0): 4.50 GiB",
        ] {
            assert_eq!(of(text).peak_allocated, gib(4.5), "{text}");
        }
        assert_eq!(of("memory_reserved()/1e9=4.5").reserved, Some(Bytes(4_500_000_000)));
        assert_eq!(of("max_memory_reserved('cuda:3')=4.50GiB").device, Some(3));
        for (text, allocated) in [
            ("torch.cuda.memory_allocated(): 0", Some(Bytes(0))),
            ("torch.cuda.memory_allocated(): 20000000", Some(Bytes(20_000_000))),
            ("torch.cuda.memory_allocated(device=cuda:0)/1e9 = 4.5", Some(Bytes(4_500_000_000))),
            ("torch.cuda.memory_allocated() / 1_000_000_000=4.5", Some(Bytes(4_500_000_000))),
            ("torch.cuda.memory_allocated() / 1e9 GB: 4.5", Bytes::from_float(4.5, GIB)),
            ("torch.cuda.memory_allocated() >> 20 = 4608", gib(4.5)),
        ] {
            assert_eq!(of(text).allocated, allocated, "{text}");
        }
        assert_eq!(of("torch.cuda.memory_allocated(device=cuda:3)/1e9 = 4.5").device, Some(3));
        // Bytes or MiB: nobody can tell, and it is said.
        for text in
            ["torch.cuda.memory_allocated(): 512", "torch.cuda.memory_allocated() = 4608", "memory_allocated(): 4.5"]
        {
            let record = of(text);
            assert!(record.has_small_result && !record.says_something(), "{text}: {record:?}");
        }
        for value in ["nan", "inf", "1e18", "-512"] {
            let record = of(&format!("torch.cuda.memory_allocated(): {value}"));
            assert!(record.has_impossible && !record.says_something(), "{value}: {record:?}");
        }
        assert!(
            may_hold_record("torch.cuda.memory_allocated(): nan") && !may_hold_record("memory_allocated of no finance")
        );
        // Code that prints, and no figure of it.
        for text in [
            "sizes = {torch.cuda.memory_allocated(): 3000000000}",
            "print(torch.cuda.memory_allocated()/2**30, 2)",
            "used = torch.cuda.memory_allocated() / 1e9",
            "if torch.cuda.memory_allocated() > 3000000000:",
        ] {
            let found = super::records(text, None);
            assert!(found.iter().all(|draft| !draft.has_memory()), "{text}: {found:?}");
        }
    }

    #[test]
    fn a_figure_that_cannot_be_leaves_its_trace() {
        for line in [
            "rank=3 step=1 peak=nanMB",
            "rank=3 step=1 peak=nan MB",
            "rank=3 step=1 peak=inf GB",
            "rank=3 step=1 peak=nan",
            "rank=3 step=1 allocated=inf",
            "rank=3 step=1 peak=-512.0MB",
            "rank=3 step=1 peak=1e308GB",
            "{\"rank\": 3, \"step\": 1, \"peak_mb\": NaN}",
            "{\"rank\": 3, \"step\": 1, \"peak_mb\": -1.5}",
        ] {
            let record = one(line);
            assert!(record.has_impossible && !record.says_something(), "{line}: {record:?}");
            assert_eq!(record.rank, Some(Rank(3)), "{line}");
        }
        // The figure that can be is kept beside it.
        let record = one("rank=3 step=1 cur=10MB peak=nanMB");
        assert_eq!((record.allocated, record.has_impossible), (mib(10.0), true));
        // What may stand for "unknown", a difference, a loss and host memory say nothing of a card.
        for line in [
            "rank=3 step=1 peak=-1",
            "rank=3 step=1 delta=-5MB",
            "rank=3 step=1 loss=nan",
            "rank=3 step=1 cpu mem=-5MB",
            "rank=3 info: mem ok",
        ] {
            assert_eq!(records(line, None), [], "{line}");
        }
    }

    #[test]
    fn a_figure_without_a_unit_leaves_its_trace_beside_a_rank_or_a_step() {
        for line in ["rank=0 step=3 peak=8000", "step 3 peak_mem: 8000", "rank=0 mem=12345"] {
            let record = one(line);
            assert!(record.has_unitless && !record.says_something(), "{line}: {record:?}");
        }
        assert_eq!(records("peak 3 of 5", None), []);
        for visible in ["0,1", "None", "GPU-abc10000-1a2b"] {
            assert!(!may_hold_record(&format!("pid=7 rank=0 local=0 visible={visible} current=0")));
        }
    }

    #[test]
    fn what_is_no_record() {
        for line in [
            "rank=3 AdamW state made by the first step: 9026MiB",
            "(SGLangEngine pid=34010) Load weight end. avail mem=44.71 GB",
            "CPU Virtual Memory:  used = 36.72 GB, percent = 19.6%",
            "args: Namespace(batch_size=32, devices=2, fp16=True)",
            "Created device GPU:0 with 14814 MB memory",
            "rank 0 throughput mem 5GB/s",
            "rank 0: train 320000 sentences, valid 92160 sentences",
        ] {
            assert_eq!(records(line, None), [], "{line}");
        }
    }
}
