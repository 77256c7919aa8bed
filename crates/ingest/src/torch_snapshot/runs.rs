//! Runs of references that came before: most of a snapshot is stacks, each a run of references to its frames, and the
//! same few thousand runs come again and again, byte for byte.
//!
//! Knows the bytes of a run and which stack they gave, not what a stack is.

use super::opcodes as op;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// Bytes of runs that are kept; a job has some hundred thousand different stacks at most.
const MAX_BYTES: usize = 8 << 20;

/// Which stack a run of references gave. Holds as long as no entry of the memo gets another value.
#[derive(Default)]
pub(super) struct KnownRuns {
    bytes: Vec<u8>,
    table: HashTable<Entry>,
    /// Seeded per process, so that a file cannot be made to collide.
    hasher: DefaultHashBuilder,
}

#[derive(Clone, Copy)]
struct Entry {
    start: u32,
    length: u32,
    stack: u32,
}

impl Entry {
    fn of(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        bytes.get(start..start.saturating_add(self.length as usize)).unwrap_or_default()
    }
}

impl KnownRuns {
    /// The stack of a run that came before.
    #[inline]
    pub(super) fn get(&self, run: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(run);
        self.table.find(hash, |entry| entry.of(&self.bytes) == run).map(|entry| entry.stack)
    }

    /// Remembers what a new run gave, while there is room.
    pub(super) fn insert(&mut self, run: &[u8], stack: u32) {
        let (start, length) = (self.bytes.len(), run.len());
        if start.saturating_add(length) > MAX_BYTES {
            return;
        }
        let (Ok(start), Ok(length)) = (u32::try_from(start), u32::try_from(length)) else { return };
        let hash = self.hasher.hash_one(run);
        self.bytes.extend_from_slice(run);
        let (bytes, hasher) = (&self.bytes, &self.hasher);
        self.table.insert_unique(hash, Entry { start, length, stack }, |entry| hasher.hash_one(entry.of(bytes)));
    }

    /// Forgets all: what a reference means has changed.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.table.clear();
    }

    /// Bytes of memory in use.
    pub(super) fn held(&self) -> usize {
        self.bytes.capacity().saturating_add(self.table.capacity().saturating_mul(size_of::<Entry>().saturating_add(1)))
    }
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
        let mut runs = KnownRuns::default();
        let run = |n: u8| [op::BINGET, n, op::BINGET, n];
        for n in 0..200 {
            runs.insert(&run(n), u32::from(n));
        }
        assert!((0..200).all(|n| runs.get(&run(n)) == Some(u32::from(n))));
        assert_eq!(runs.get(&run(201)), None);
        assert!(runs.held() >= 800);
        runs.insert(&vec![op::BINGET; MAX_BYTES], 1);
        assert_eq!(runs.get(&vec![op::BINGET; MAX_BYTES]), None, "there is no room for it");
        runs.clear();
        assert_eq!(runs.get(&run(1)), None);
    }
}
