//! Equal slices kept once: texts as bytes, frames as (name, file, line), stacks as frame ids.
//!
//! A snapshot refers to the same few thousand frames millions of times; everything else here keeps ids. Knows no
//! pickle and no shape.

use super::growth::{Lean, bytes_of};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::{BuildHasher, Hash};

/// Slices of `T`, each distinct one stored once and named by its position.
///
/// The hash is seeded per process, so that a file cannot be made to collide.
pub(super) struct SliceInterner<T> {
    items: Vec<T>,
    /// Where slice `i` ends; it begins where the one before ends.
    ends: Vec<u32>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<T: Copy + Eq + Hash> SliceInterner<T> {
    pub(super) fn new() -> Self {
        Self { items: Vec::new(), ends: Vec::new(), table: HashTable::new(), hasher: DefaultHashBuilder::default() }
    }

    /// The id of `slice` if it was stored.
    #[inline]
    pub(super) fn find(&self, slice: &[T]) -> Option<u32> {
        self.find_hashed(self.hasher.hash_one(slice), slice)
    }

    #[inline]
    fn find_hashed(&self, hash: u64, slice: &[T]) -> Option<u32> {
        self.table.find(hash, |id| slice_of(&self.items, &self.ends, *id) == slice).copied()
    }

    /// The id of `slice`; `None` when the arena would pass 2^32 items.
    pub(super) fn intern(&mut self, slice: &[T]) -> Option<u32> {
        let hash = self.hasher.hash_one(slice);
        if let Some(id) = self.find_hashed(hash, slice) {
            return Some(id);
        }
        let id = u32::try_from(self.ends.len()).ok()?;
        let end = u32::try_from(self.items.len().checked_add(slice.len())?).ok()?;
        self.items.reserve_lean(slice.len());
        self.items.extend_from_slice(slice);
        self.ends.push_lean(end);
        let (items, ends, hasher) = (&self.items, &self.ends, &self.hasher);
        self.table.insert_unique(hash, id, |id| hasher.hash_one(slice_of(items, ends, *id)));
        Some(id)
    }

    /// The slice behind `id`; empty for an id that was never given.
    pub(super) fn get(&self, id: u32) -> &[T] {
        slice_of(&self.items, &self.ends, id)
    }

    /// How many distinct slices there are; their ids are the numbers below.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of memory in use.
    pub(super) fn held(&self) -> usize {
        let table = self.table.capacity().saturating_mul(5);
        bytes_of::<T>(self.items.len()).saturating_add(bytes_of::<u32>(self.ends.len())).saturating_add(table)
    }
}

fn slice_of<'a, T>(items: &'a [T], ends: &[u32], id: u32) -> &'a [T] {
    let at = id as usize;
    let start = at.checked_sub(1).and_then(|before| ends.get(before)).map_or(0, |end| *end as usize);
    let end = ends.get(at).map_or(start, |end| *end as usize);
    items.get(start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_slices_get_one_id() {
        let mut texts = SliceInterner::new();
        let a = texts.intern(b"alloc").unwrap();
        let empty = texts.intern(b"").unwrap();
        let b = texts.intern(b"free").unwrap();
        assert_eq!(texts.intern(b"alloc"), Some(a));
        assert_eq!(texts.intern(b""), Some(empty));
        assert_eq!((texts.get(a), texts.get(empty), texts.get(b)), (&b"alloc"[..], &b""[..], &b"free"[..]));
        assert_eq!(texts.get(99), b"");
    }

    #[test]
    fn growth_keeps_ids() {
        let mut stacks = SliceInterner::new();
        let ids: Vec<_> = (0..5000u32).map(|n| stacks.intern(&[n, n / 7, 3]).unwrap()).collect();
        for (n, id) in (0..5000u32).zip(ids) {
            assert_eq!(stacks.intern(&[n, n / 7, 3]), Some(id));
        }
    }
}
