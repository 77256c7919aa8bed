//! The pickle machine: decodes opcodes from a stream and hands containers to [`super::heap`]. Runs nothing.
//!
//! The opcodes are an allow-list. Whatever could import a name or call something ends the reading with a sentence.
//! Knows no key of a snapshot. Memory is bounded by what was read: a length in the file reserves nothing.

use super::growth::bytes_of;
use super::heap::{Heap, TableFull};
use super::opcodes as op;
use super::runs::{KnownRuns, indices, run_of};
use super::value::{Memo, Value};
use crate::ReadError;
use std::io::{self, BufRead};

/// Bytes that are looked at in one piece. Longer than any opcode with its operand, see [`LONG_OPERAND`].
const WINDOW: usize = 256 << 10;
/// Operands up to this are read whole; of longer ones the beginning is kept and the rest skipped.
const LONG_OPERAND: usize = 4 << 10;
/// Memory that one byte of the file may cost, and what is free of charge. Torch's files cost a tenth of that.
const MEMORY_PER_BYTE: u64 = 3;
const FREE_MEMORY: u64 = 48 << 20;
/// Values that may stand on the stack: an event of a writer that does not work in batches takes more than 16 bytes.
const BYTES_PER_STACKED: u64 = 16;
const FREE_STACKED: u64 = 256 << 10;

/// What was read.
pub(super) struct Decoded {
    /// The tables.
    pub(super) heap: Heap,
    /// How it ended.
    pub(super) end: End,
}

/// How a pickle ended.
pub(super) enum End {
    /// With STOP; what follows it was not read.
    Whole {
        /// What the pickle is.
        root: Value,
        /// Where bytes follow that do not belong to it.
        more_from: Option<u64>,
    },
    /// The file ends at `offset` in the middle of things; what was under way stands on the stack.
    Cut {
        /// Bytes that were read.
        offset: u64,
        /// Bottom first.
        stack: Vec<Value>,
    },
}

/// Reads one pickle.
pub(super) fn decode(input: &mut dyn BufRead) -> Result<Decoded, ReadError> {
    let mut machine = Machine::new()?;
    let mut window = vec![0; WINDOW];
    let (mut filled, mut base) = (0usize, 0u64);
    loop {
        let ended = fill(input, &mut window, &mut filled)
            .map_err(|source| ReadError::Io { offset: base.saturating_add(filled as u64), source })?;
        let bytes = window.get(..filled).unwrap_or_default();
        let (used, stopped) = machine.run(bytes, base)?;
        base = base.saturating_add(used as u64);
        if let Some(root) = stopped {
            let more_from = follows(window.get(used..filled).unwrap_or_default(), input).then_some(base);
            return Ok(Decoded { heap: machine.heap, end: End::Whole { root, more_from } });
        }
        if ended {
            let offset = base.saturating_add(filled.saturating_sub(used) as u64);
            return Ok(Decoded { heap: machine.heap, end: End::Cut { offset, stack: machine.stack } });
        }
        machine.check_memory(base)?;
        window.copy_within(used..filled, 0);
        filled = filled.saturating_sub(used);
    }
}

/// Whether anything is said behind the end of the pickle. Pages pad what they carry with NUL, and that is nothing. Apart
/// from the loop above, which is compiled to faster code without it.
#[cold]
#[inline(never)]
fn follows(rest: &[u8], input: &mut dyn BufRead) -> bool {
    let says_more = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
    says_more(rest) || input.fill_buf().is_ok_and(says_more)
}

/// Fills the window; true at the end of the file. A compressed file that breaks off ends there as well.
fn fill(input: &mut dyn BufRead, window: &mut [u8], filled: &mut usize) -> io::Result<bool> {
    while let Some(free) = window.get_mut(*filled..).filter(|free| !free.is_empty()) {
        match input.read(free) {
            Ok(0) => return Ok(true),
            Ok(n) => *filled = (*filled).saturating_add(n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if crate::container::is_cut(&e) => return Ok(true),
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

struct Machine {
    heap: Heap,
    stack: Vec<Value>,
    /// Heights of the stack where a MARK stands.
    marks: Vec<u32>,
    memo: Memo,
    runs: KnownRuns,
    /// Re-used by every run that is new.
    recalled: Vec<Value>,
    /// Bytes of a long operand that are still to be passed over.
    skip: u64,
    max_stacked: usize,
}

/// What one opcode did.
enum Step<'a> {
    /// It is done; the rest follows.
    Next(&'a [u8]),
    /// Its operand is not all there yet.
    Incomplete,
    /// The pickle is complete.
    Stop(Value),
}

/// Why an opcode could not be carried out.
enum Trouble {
    /// The opcode is not on the allow-list.
    NotAllowed(u8),
    /// PROTO with a protocol that does not exist.
    Protocol(u8),
    /// It needs more values, or a MARK, than there are.
    Underflow,
    /// APPEND or SETITEM on something else than a list or dict.
    NotAContainer,
    /// It asks for a memo entry that was never stored.
    NoMemo(u32),
    /// More values stand on the stack than any snapshot needs.
    Deep,
    /// The tables are full.
    Full,
}

impl From<TableFull> for Trouble {
    fn from(_: TableFull) -> Self {
        Self::Full
    }
}

/// Splits the operand of `$n` bytes off `$rest`, or leaves the opcode for the next window.
macro_rules! operand {
    ($rest:expr, $n:literal) => {
        match $rest.split_first_chunk::<$n>() {
            Some((operand, rest)) => (*operand, rest),
            None => return Ok(Step::Incomplete),
        }
    };
}

/// How `GLOBAL` names the one class that is let in.
const ORDERED_DICT: &[u8] = b"collections\nOrderedDict\n";

impl Machine {
    fn new() -> Result<Self, ReadError> {
        Ok(Self {
            heap: Heap::new().map_err(|TableFull| too_large())?,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Memo::default(),
            runs: KnownRuns::new(),
            recalled: Vec::new(),
            skip: 0,
            max_stacked: 0,
        })
    }

    /// Carries out the opcodes in `window`, which begins at byte `base` of the file. Gives the number of bytes that
    /// are done with, and the root once the pickle is complete.
    fn run(&mut self, window: &[u8], base: u64) -> Result<(usize, Option<Value>), ReadError> {
        let allowed = FREE_STACKED.saturating_add(base.saturating_add(window.len() as u64) / BYTES_PER_STACKED);
        self.max_stacked = usize::try_from(allowed).unwrap_or(usize::MAX);
        let mut rest = self.pass_over(window);
        let done = |rest: &[u8]| window.len().saturating_sub(rest.len());
        while let Some((opcode, after)) = rest.split_first() {
            match self.step(*opcode, after) {
                Ok(Step::Next(next)) => rest = next,
                Ok(Step::Incomplete) => break,
                Ok(Step::Stop(root)) => return Ok((done(rest).saturating_add(1), Some(root))),
                Err(trouble) => {
                    let offset = base.saturating_add(done(rest) as u64);
                    return Err(self.explain(&trouble, *opcode, after, offset));
                }
            }
        }
        Ok((done(rest), None))
    }

    /// Passes over what is left of a long operand.
    fn pass_over<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let here = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
        self.skip = self.skip.saturating_sub(here as u64);
        bytes.get(here..).unwrap_or_default()
    }

    #[inline]
    fn step<'a>(&mut self, opcode: u8, rest: &'a [u8]) -> Result<Step<'a>, Trouble> {
        match opcode {
            op::BINGET => {
                let ([index], rest) = operand!(rest, 1);
                self.recall(u32::from(index), rest)
            }
            op::LONG_BINGET => {
                let (index, rest) = operand!(rest, 4);
                self.recall(u32::from_le_bytes(index), rest)
            }
            op::BININT1 => {
                let ([n], rest) = operand!(rest, 1);
                self.push(Value::number(u64::from(n)), rest)
            }
            op::BININT2 => {
                let (n, rest) = operand!(rest, 2);
                self.push(Value::number(u64::from(u16::from_le_bytes(n))), rest)
            }
            op::BININT => {
                let (n, rest) = operand!(rest, 4);
                let n = i64::from(i32::from_le_bytes(n));
                self.push(u64::try_from(n).map_or(Value::negative(n), Value::number), rest)
            }
            op::LONG1 => {
                let ([length], rest) = operand!(rest, 1);
                let Some((long, rest)) = rest.split_at_checked(usize::from(length)) else {
                    return Ok(Step::Incomplete);
                };
                self.push(Value::from_long(long), rest)
            }
            op::SHORT_BINUNICODE => {
                let ([length], rest) = operand!(rest, 1);
                self.text(u64::from(length), rest)
            }
            op::MEMOIZE => {
                let top = *self.stack.last().ok_or(Trouble::Underflow)?;
                self.memo.push(top).ok_or(Trouble::Full)?;
                Ok(Step::Next(rest))
            }
            op::MARK => {
                if let Some(rest) = self.list_of_references(rest)? {
                    return Ok(Step::Next(rest));
                }
                if self.marks.len() >= self.max_stacked {
                    return Err(Trouble::Deep);
                }
                self.marks.push(u32::try_from(self.stack.len()).map_err(|_| Trouble::Deep)?);
                Ok(Step::Next(rest))
            }
            op::EMPTY_DICT => {
                let dict = self.heap.new_dict()?;
                self.push(Value::object(dict), rest)
            }
            op::EMPTY_LIST => {
                let list = self.heap.new_list()?;
                self.push(Value::object(list), rest)
            }
            op::SETITEMS => self.fill_container(true, None, rest),
            op::APPENDS => self.fill_container(false, None, rest),
            op::SETITEM => self.fill_container(true, Some(2), rest),
            op::APPEND => self.fill_container(false, Some(1), rest),
            op::FRAME => {
                let (_, rest) = operand!(rest, 8);
                Ok(Step::Next(rest))
            }
            op::STOP => Ok(Step::Stop(*self.stack.last().ok_or(Trouble::Underflow)?)),
            _ => self.rare_step(opcode, rest),
        }
    }

    /// Opcodes that come seldom, apart so that the common ones stay small.
    #[inline(never)]
    fn rare_step<'a>(&mut self, opcode: u8, rest: &'a [u8]) -> Result<Step<'a>, Trouble> {
        match opcode {
            op::PROTO => {
                let ([protocol], rest) = operand!(rest, 1);
                if protocol > 5 { Err(Trouble::Protocol(protocol)) } else { Ok(Step::Next(rest)) }
            }
            op::NONE => self.push(Value::OPAQUE, rest),
            op::EMPTY_TUPLE => self.push(Value::EMPTY_TUPLE, rest),
            op::NEWTRUE => self.push(Value::TRUE, rest),
            op::NEWFALSE => self.push(Value::FALSE, rest),
            op::BINFLOAT => {
                let (_, rest) = operand!(rest, 8);
                self.push(Value::OPAQUE, rest)
            }
            op::LONG4 => {
                let (length, rest) = operand!(rest, 4);
                let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
                let kept = length.min(LONG_OPERAND);
                let Some((long, rest)) = rest.split_at_checked(kept) else { return Ok(Step::Incomplete) };
                // A longer number means nothing here.
                let value = if kept == length { Value::from_long(long) } else { Value::OPAQUE };
                self.skip = length.saturating_sub(kept) as u64;
                let rest = self.pass_over(rest);
                self.push(value, rest)
            }
            op::BINUNICODE => {
                let (length, rest) = operand!(rest, 4);
                self.text(u64::from(u32::from_le_bytes(length)), rest)
            }
            op::BINUNICODE8 => {
                let (length, rest) = operand!(rest, 8);
                self.text(u64::from_le_bytes(length), rest)
            }
            op::BINPUT => {
                let ([index], rest) = operand!(rest, 1);
                self.remember(u32::from(index), rest)
            }
            op::LONG_BINPUT => {
                let (index, rest) = operand!(rest, 4);
                self.remember(u32::from_le_bytes(index), rest)
            }
            op::TUPLE1 => self.tuple(1, rest),
            op::TUPLE2 => self.tuple(2, rest),
            op::TUPLE3 => self.tuple(3, rest),
            op::TUPLE => {
                let mark = self.marks.pop().ok_or(Trouble::Underflow)? as usize;
                let members = self.stack.len().checked_sub(mark).ok_or(Trouble::Underflow)?;
                self.tuple(members, rest)
            }
            op::GLOBAL => match rest.strip_prefix(ORDERED_DICT) {
                Some(rest) => self.push(Value::ORDERED_DICT, rest),
                None if ORDERED_DICT.starts_with(rest) => Ok(Step::Incomplete),
                None => Err(Trouble::NotAllowed(opcode)),
            },
            op::STACK_GLOBAL => {
                let [.., module, name] = self.stack.as_slice() else { return Err(Trouble::NotAllowed(opcode)) };
                let is = |value: &Value, text: &[u8]| value.as_text().is_some_and(|id| self.heap.text_of(id) == text);
                if !(is(module, b"collections") && is(name, b"OrderedDict")) {
                    return Err(Trouble::NotAllowed(opcode));
                }
                self.stack.truncate(self.stack.len().saturating_sub(2));
                self.push(Value::ORDERED_DICT, rest)
            }
            // `OrderedDict()`, whose items follow as those of a dict do.
            op::REDUCE if self.stack.ends_with(&[Value::ORDERED_DICT, Value::EMPTY_TUPLE]) => {
                self.stack.truncate(self.stack.len().saturating_sub(2));
                let dict = self.heap.new_dict()?;
                self.push(Value::object(dict), rest)
            }
            other => Err(Trouble::NotAllowed(other)),
        }
    }

    #[inline]
    fn push<'a>(&mut self, value: Value, rest: &'a [u8]) -> Result<Step<'a>, Trouble> {
        if self.stack.len() >= self.max_stacked {
            return Err(Trouble::Deep);
        }
        self.stack.push(value);
        Ok(Step::Next(rest))
    }

    #[inline]
    fn recall<'a>(&mut self, index: u32, rest: &'a [u8]) -> Result<Step<'a>, Trouble> {
        let value = self.memo.get(index).ok_or(Trouble::NoMemo(index))?;
        self.push(value, rest)
    }

    /// After a MARK: a new list that is filled with nothing but references, as stacks are filled with their frames. Such
    /// runs are most of a snapshot; one that came before is not followed again. `None` for whatever else stands there.
    #[inline]
    fn list_of_references<'a>(&mut self, rest: &'a [u8]) -> Result<Option<&'a [u8]>, Trouble> {
        let Some(list) =
            self.stack.last().and_then(|top| top.as_object()).filter(|list| self.heap.is_empty_list(*list))
        else {
            return Ok(None);
        };
        if let Some((stack, after)) = self.runs.begins(rest) {
            self.heap.set_stack(list, stack)?;
            return Ok(Some(after));
        }
        let run = run_of(rest);
        let Some([op::APPENDS, after @ ..]) = rest.get(run.len()..) else { return Ok(None) };
        if let Some(stack) = self.runs.get(run, rest) {
            self.heap.set_stack(list, stack)?;
            return Ok(Some(after));
        }
        self.recalled.clear();
        for index in indices(run) {
            // The ordinary way says what is wrong, and where.
            let Some(value) = self.memo.get(index) else { return Ok(None) };
            self.recalled.push(value);
        }
        let strangers = self.heap.left_out.strangers;
        self.heap.append(list, &self.recalled)?;
        // What was left out is counted each time.
        if let Some(stack) = self.heap.as_stack(list).filter(|_| self.heap.left_out.strangers == strangers) {
            self.runs.insert(run, stack);
        }
        Ok(Some(after))
    }

    fn remember<'a>(&mut self, index: u32, rest: &'a [u8]) -> Result<Step<'a>, Trouble> {
        let top = *self.stack.last().ok_or(Trouble::Underflow)?;
        if self.memo.get(index).is_some_and(|before| before != top) {
            self.runs.clear();
        }
        self.memo.put(index, top).ok_or(Trouble::Full)?;
        Ok(Step::Next(rest))
    }

    fn text<'a>(&mut self, length: u64, rest: &'a [u8]) -> Result<Step<'a>, Trouble> {
        let kept = usize::try_from(length).unwrap_or(usize::MAX).min(LONG_OPERAND);
        let Some((text, rest)) = rest.split_at_checked(kept) else { return Ok(Step::Incomplete) };
        let text = self.heap.text(text)?;
        self.skip = length.saturating_sub(kept as u64);
        let rest = if self.skip == 0 { rest } else { self.pass_over(rest) };
        self.push(Value::text(text), rest)
    }

    fn tuple<'a>(&mut self, members: usize, rest: &'a [u8]) -> Result<Step<'a>, Trouble> {
        let start = self.stack.len().checked_sub(members).ok_or(Trouble::Underflow)?;
        let value = match self.stack.get(start..) {
            Some([Value::ZERO, Value::ZERO]) => Value::PAIR_OF_ZEROS,
            Some([first, second]) if first.is_number() && second.is_number() => Value::PAIR,
            _ => Value::OPAQUE,
        };
        self.stack.truncate(start);
        self.push(value, rest)
    }

    /// Puts the values above the last MARK, or the last `count` ones, into the dict or list right below them.
    #[inline]
    fn fill_container<'a>(&mut self, dict: bool, count: Option<usize>, rest: &'a [u8]) -> Result<Step<'a>, Trouble> {
        let start = match count {
            Some(count) => self.stack.len().checked_sub(count).ok_or(Trouble::Underflow)?,
            None => self.marks.pop().ok_or(Trouble::Underflow)? as usize,
        };
        let (below, items) = self.stack.split_at_checked(start).ok_or(Trouble::Underflow)?;
        let container = below.last().ok_or(Trouble::Underflow)?.as_object().ok_or(Trouble::NotAContainer)?;
        match (dict, self.heap.is_dict(container)) {
            (true, true) => self.heap.set_items(container, items)?,
            (false, false) => self.heap.append(container, items)?,
            _ => return Err(Trouble::NotAContainer),
        }
        self.stack.truncate(start);
        Ok(Step::Next(rest))
    }

    /// Refuses a file that makes the reader remember more than its size allows.
    fn check_memory(&self, read: u64) -> Result<(), ReadError> {
        let held = [
            self.heap.held(),
            self.memo.held(),
            self.runs.held(),
            bytes_of::<Value>(self.stack.len()),
            bytes_of::<u32>(self.marks.len()),
        ]
        .into_iter()
        .fold(0, usize::saturating_add);
        if held as u64 <= FREE_MEMORY.saturating_add(MEMORY_PER_BYTE.saturating_mul(read)) {
            return Ok(());
        }
        Err(ReadError::OverLimit {
            what: format!("what must be remembered of the first {read} bytes ({held} bytes)"),
            limit: format!("{MEMORY_PER_BYTE} times that size and 48 MiB"),
            advice: "torch writes no such snapshot; record a new one".to_owned(),
        })
    }

    fn explain(&self, trouble: &Trouble, opcode: u8, operand: &[u8], offset: u64) -> ReadError {
        let damaged = |why: String| ReadError::Malformed {
            offset,
            why,
            advice: "upload the file again, or record a new snapshot".to_owned(),
        };
        match trouble {
            Trouble::NotAllowed(other) => {
                if let Some(name) = op::runs_code(*other) {
                    ReadError::Refused { offset, why: self.refusal(opcode, name, operand) }
                } else if let Some(name) = op::unused(*other) {
                    ReadError::NotThisFormat {
                        why: format!(
                            "a pickle, but not a memory snapshot: at byte {offset} it uses {name}, which no snapshot \
                             has. Upload the file that torch.cuda.memory._dump_snapshot wrote"
                        ),
                    }
                } else {
                    damaged(format!("{other:#04x} is not a pickle opcode"))
                }
            }
            Trouble::Protocol(protocol) => ReadError::NotThisFormat {
                why: format!("a pickle of protocol {protocol}; 2 to 5 are read. Record the snapshot with Python 3"),
            },
            Trouble::Underflow => damaged(format!("opcode {opcode:#04x} needs values that are not there")),
            Trouble::NotAContainer => damaged("items for something that is neither a dict nor a list".to_owned()),
            Trouble::NoMemo(index) => damaged(format!("it refers to entry {index}, which was never stored")),
            Trouble::Deep => ReadError::OverLimit {
                what: format!("nesting at byte {offset} ({} values under way)", self.stack.len().max(self.marks.len())),
                limit: format!("{FREE_STACKED} and one for every {BYTES_PER_STACKED} bytes read"),
                advice: "torch writes no such snapshot; record a new one".to_owned(),
            },
            Trouble::Full => too_large(),
        }
    }

    /// What an opcode that could run code wanted, and that nothing was run.
    fn refusal(&self, opcode: u8, name: &str, operand: &[u8]) -> String {
        let wanted = match opcode {
            op::GLOBAL | op::INST => {
                let mut lines = operand.split(|b| *b == b'\n').map(readable);
                Some((lines.next().unwrap_or_default(), lines.next().unwrap_or_default()))
            }
            op::STACK_GLOBAL => match self.stack.as_slice() {
                [.., module, name] => module.as_text().zip(name.as_text()),
                _ => None,
            }
            .map(|(module, name)| (readable(self.heap.text_of(module)), readable(self.heap.text_of(name)))),
            _ => None,
        };
        let what = match wanted {
            Some((module, attribute)) => format!("opcode {name} wants to import {module}.{attribute}"),
            None => format!("opcode {name} wants to build a Python object"),
        };
        format!(
            "{what}. Nothing was imported or executed. A memory snapshot holds only dicts, lists, texts and numbers, \
             so this is another pickle (a saved model, tensors) or a hostile one; upload the file that \
             torch.cuda.memory._dump_snapshot wrote"
        )
    }
}

pub(super) fn too_large() -> ReadError {
    ReadError::OverLimit {
        what: "the number of events, frames or containers".to_owned(),
        limit: "134 million".to_owned(),
        advice: "record fewer events (max_entries of _record_memory_history)".to_owned(),
    }
}

/// A foreign name as text that can be shown: printable ASCII, at most 120 characters.
fn readable(name: &[u8]) -> String {
    const MAX: usize = 120;
    let mut text: String =
        name.iter().take(MAX).map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '?' }).collect();
    if name.len() > MAX {
        text.push('…');
    }
    text
}
