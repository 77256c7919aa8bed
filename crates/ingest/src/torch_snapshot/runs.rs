//! Runs of references that came before: most of a snapshot is stacks, each a run of references to its frames, and the
//! same few thousand runs come again and again, byte for byte.
//!
//! Knows the bytes of a run and which stack they gave, not what a stack is.

use super::growth::bytes_of;
use super::intern::SliceInterner;
use super::opcodes as op;

/// Bytes of runs that are kept; a job has some hundred thousand different stacks at most.
const MAX_BYTES: usize = 8 << 20;

/// Which stack a run of references gave. Holds as long as no entry of the memo gets another value.
pub(super) struct KnownRuns {
    runs: SliceInterner<u8>,
    /// By the number of the run.
    stacks: Vec<u32>,
    /// Runs that came lately, by a few of their bytes: to hold one against what stands here costs less than to find out
    /// where it ends and to look it up.
    recent: [u32; RECENT],
    bytes: usize,
}

/// Bits of the place of a recent run.
const PLACE_BITS: u32 = 10;
/// Runs that are held against what stands here.
const RECENT: usize = 1 << PLACE_BITS;
/// No run.
const NONE: u32 = u32::MAX;

impl KnownRuns {
    /// None is known.
    pub(super) fn new() -> Self {
        Self { runs: SliceInterner::new(), stacks: Vec::new(), recent: [NONE; RECENT], bytes: 0 }
    }

    /// The stack of a run that came before.
    #[inline]
    pub(super) fn get(&mut self, run: &[u8], rest: &[u8]) -> Option<u32> {
        let id = self.runs.find(run)?;
        if let Some(recent) = place_of(rest).and_then(|place| self.recent.get_mut(place)) {
            *recent = id;
        }
        self.stacks.get(id as usize).copied()
    }

    /// If `rest` begins with a run that came lately, and APPENDS behind it: its stack, and what follows both.
    #[inline]
    pub(super) fn begins<'a>(&self, rest: &'a [u8]) -> Option<(u32, &'a [u8])> {
        let id = *self.recent.get(place_of(rest)?)?;
        if id == NONE {
            return None;
        }
        // The same bytes are the same references, and APPENDS is none: so the run ends there.
        match rest.strip_prefix(self.runs.get(id)) {
            Some([op::APPENDS, after @ ..]) => Some((*self.stacks.get(id as usize)?, after)),
            _ => None,
        }
    }

    /// Remembers what a new run gave, while there is room.
    pub(super) fn insert(&mut self, run: &[u8], stack: u32) {
        let bytes = self.bytes.saturating_add(run.len());
        if bytes <= MAX_BYTES && self.runs.intern(run).is_some() {
            self.bytes = bytes;
            self.stacks.push(stack);
        }
    }

    /// Forgets all: what a reference means has changed.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Bytes of memory in use.
    pub(super) fn held(&self) -> usize {
        self.runs.held().saturating_add(bytes_of::<u32>(self.stacks.len()))
    }
}

/// Where a run that stands at the beginning of `rest` would be among the recent ones: by three pieces of it, since stacks
/// begin alike.
#[inline]
fn place_of(rest: &[u8]) -> Option<usize> {
    let piece =
        |at: usize| rest.get(at..).and_then(|rest| rest.first_chunk::<8>()).map(|bytes| u64::from_le_bytes(*bytes));
    let mixed = piece(0)? ^ piece(35)?.rotate_left(21) ^ piece(70)?.rotate_left(42);
    usize::try_from(mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - PLACE_BITS)).ok()
}

/// The bytes of the references that `rest` begins with.
#[inline]
pub(super) fn run_of(rest: &[u8]) -> &[u8] {
    let mut length = 0usize;
    loop {
        let step = match rest.get(length) {
            Some(&op::LONG_BINGET) => 5,
            Some(&op::BINGET) => 2,
            _ => break,
        };
        let end = length.saturating_add(step);
        if end > rest.len() {
            break;
        }
        length = end;
    }
    rest.get(..length).unwrap_or_default()
}

/// The indices in a run.
pub(super) fn indices(mut run: &[u8]) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let (index, rest) = match run {
            [op::LONG_BINGET, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]), rest),
            [op::BINGET, index, rest @ ..] => (u32::from(*index), rest),
            _ => return None,
        };
        run = rest;
        Some(index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_whole_references_only() {
        let bytes = [op::BINGET, 7, op::LONG_BINGET, 1, 2, 0, 0, op::BINGET, 9, op::APPENDS];
        assert_eq!(run_of(&bytes), &bytes[..9]);
        assert_eq!(indices(run_of(&bytes)).collect::<Vec<_>>(), [7, 513, 9]);
        // What the window cuts is no part of it.
        assert_eq!(run_of(&bytes[..5]), &bytes[..2]);
        assert_eq!(run_of(&[op::APPENDS]), &[] as &[u8]);
        assert_eq!(run_of(&[]), &[] as &[u8]);
    }

    #[test]
    fn runs_are_known_until_references_change() {
        let mut runs = KnownRuns::new();
        let run = |n: u8| [op::BINGET, n, op::BINGET, n];
        for n in 0..200 {
            runs.insert(&run(n), u32::from(n));
        }
        assert!((0..200).all(|n| runs.get(&run(n), &[]) == Some(u32::from(n))));
        assert_eq!(runs.get(&run(201), &[]), None);
        assert!(runs.held() >= 800);
        runs.insert(&vec![op::BINGET; MAX_BYTES], 1);
        assert_eq!(runs.get(&vec![op::BINGET; MAX_BYTES], &[]), None, "there is no room for it");
        runs.clear();
        assert_eq!(runs.get(&run(1), &[]), None);
    }

    #[test]
    fn a_recent_run_is_known_by_its_bytes_and_only_whole() {
        let mut runs = KnownRuns::new();
        let run: Vec<u8> = (0..40).flat_map(|n| [op::BINGET, n]).collect();
        runs.insert(&run, 7);
        let with = |end: &[u8]| [&run[..], end].concat();
        let whole = with(&[op::APPENDS, 1, 2]);
        assert_eq!(runs.begins(&whole), None, "it was not asked for yet");
        assert_eq!(runs.get(&run, &whole), Some(7));
        assert_eq!(runs.begins(&whole), Some((7, &[1, 2][..])));
        assert_eq!(runs.begins(&with(&[op::BINGET, 9, op::APPENDS])), None, "a longer run");
        assert_eq!(runs.begins(&run), None, "its end is not there yet");
        runs.clear();
        assert_eq!(runs.begins(&whole), None);
    }
}
