//! The known keys of one dict with their values, whatever kind of dict it is.
//!
//! One is re-used for every dict of the file. Knows the words, not what they mean.

use super::value::{ObjectId, TextId, Value};
use super::words::{Word, WordSet};

/// The known keys of one dict with their values.
#[derive(Debug, Clone)]
pub(super) struct Fields {
    present: WordSet,
    values: [Value; Word::COUNT],
}

impl Fields {
    pub(super) const EMPTY: Self = Self { present: WordSet::NONE, values: [Value::OPAQUE; Word::COUNT] };

    pub(super) fn clear(&mut self) {
        self.present = WordSet::NONE;
    }

    pub(super) fn present(&self) -> WordSet {
        self.present
    }

    /// Takes over the known keys of `pairs` (key, value, key, value, ...).
    pub(super) fn read(&mut self, pairs: &[Value]) {
        for [key, value] in pairs.as_chunks::<2>().0 {
            if let Some(text) = key.as_text()
                && let Some(word) = text.word()
                && let Some(slot) = self.values.get_mut(word as usize)
            {
                *slot = *value;
                self.present.insert(word);
            }
        }
    }

    pub(super) fn has(&self, word: Word) -> bool {
        self.present.has(word)
    }

    pub(super) fn get(&self, word: Word) -> Option<Value> {
        if self.has(word) { self.values.get(word as usize).copied() } else { None }
    }

    pub(super) fn address(&self, word: Word) -> Option<u64> {
        self.get(word)?.as_address()
    }

    pub(super) fn size(&self, word: Word) -> Option<u64> {
        self.get(word)?.as_size()
    }

    /// How many of `words` have a value that is no size: negative, or no whole number.
    pub(super) fn impossible_sizes(&self, words: &[Word]) -> u64 {
        words.iter().filter(|word| self.get(**word).is_some_and(|value| value.as_size().is_none())).count() as u64
    }

    pub(super) fn word(&self, word: Word) -> Option<Word> {
        self.text(word)?.word()
    }

    pub(super) fn text(&self, word: Word) -> Option<TextId> {
        self.get(word)?.as_text()
    }

    pub(super) fn object(&self, word: Word) -> Option<ObjectId> {
        self.get(word)?.as_object()
    }
}
