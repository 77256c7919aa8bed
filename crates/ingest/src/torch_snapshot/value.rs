//! What stands on the pickle machine's stack and in its memo: small, typed, copyable.
//!
//! Containers are only named here ([`ObjectId`]); what they hold is folded by [`super::heap`] as it arrives.

use super::words::Word;

/// A text by its id in the interner; the first ids are those of [`Word`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextId(pub(super) u32);

impl TextId {
    /// The word that is spelled like this text, if it is one.
    pub(super) fn word(self) -> Option<Word> {
        Word::ALL.get(self.0 as usize).copied()
    }
}

/// A dict or list by its order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectId(pub(super) u32);

/// One value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// Something that means nothing here: `None`, floats, tuples that are not pairs of numbers.
    Opaque,
    Bool(bool),
    /// A number from 0; saturates at 2^64 - 1.
    Number(u64),
    /// A number below 0; saturates at -2^63.
    Negative(i64),
    /// A tuple of two numbers, as pool ids are.
    Pair {
        /// Both are 0.
        zero: bool,
    },
    Text(TextId),
    Object(ObjectId),
}

impl Value {
    /// As an unsigned number. Addresses above 2^63 come as negative numbers from some writers: same bits.
    pub(super) fn number(self) -> Option<u64> {
        match self {
            Self::Number(n) => Some(n),
            Self::Negative(n) => Some(n.cast_unsigned()),
            _ => None,
        }
    }

    /// As a size in bytes: never negative.
    pub(super) fn size(self) -> Option<u64> {
        match self {
            Self::Number(n) => Some(n),
            _ => None,
        }
    }

    /// As a time.
    pub(super) fn signed(self) -> Option<i64> {
        match self {
            Self::Number(n) => i64::try_from(n).ok(),
            Self::Negative(n) => Some(n),
            _ => None,
        }
    }

    /// From a pickled integer: little-endian two's complement of any length.
    pub(super) fn from_long(bytes: &[u8]) -> Self {
        let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
        let fill = if negative { 0xff } else { 0 };
        let (low, high) = bytes.split_at_checked(8).unwrap_or((bytes, &[]));
        let mut word = [fill; 8];
        word.iter_mut().zip(low).for_each(|(to, from)| *to = *from);
        let fits = high.iter().all(|b| *b == fill);
        match (negative, fits) {
            (false, true) => Self::Number(u64::from_le_bytes(word)),
            (false, false) => Self::Number(u64::MAX),
            (true, true) if i64::from_le_bytes(word) < 0 => Self::Negative(i64::from_le_bytes(word)),
            (true, _) => Self::Negative(i64::MIN),
        }
    }
}

/// The memo: values by index, four bytes each, because a large snapshot has millions and refers to few.
#[derive(Default)]
pub(super) struct Memo {
    slots: Vec<u32>,
    /// Indices far beyond the dense part, which only odd writers use.
    sparse: std::collections::HashMap<u32, u32>,
    /// Numbers, which no known writer puts into the memo.
    numbers: Vec<Value>,
}

/// A packed value: the tag in the low three bits, its payload above.
mod slot {
    pub(super) const VACANT: u32 = 0;
    pub(super) const OPAQUE: u32 = 1;
    pub(super) const BOOL: u32 = 2;
    pub(super) const PAIR: u32 = 3;
    pub(super) const TEXT: u32 = 4;
    pub(super) const OBJECT: u32 = 5;
    pub(super) const NUMBER: u32 = 6;
    pub(super) const TAG_BITS: u32 = 3;
    pub(super) const TAG_MASK: u32 = (1 << TAG_BITS) - 1;
    pub(super) const MAX_PAYLOAD: u32 = u32::MAX >> TAG_BITS;
}

impl Memo {
    /// Gap that the dense part may grow by in one step.
    const DENSE_GAP: usize = 16;

    /// Stores at the next free index; `None` when there is no room for more.
    pub(super) fn push(&mut self, value: Value) -> Option<()> {
        let packed = self.pack(value)?;
        self.slots.push(packed);
        Some(())
    }

    /// Stores at `index`; `None` when there is no room for more.
    pub(super) fn put(&mut self, index: u32, value: Value) -> Option<()> {
        let packed = self.pack(value)?;
        let at = index as usize;
        if at >= self.slots.len() {
            if at - self.slots.len() > Self::DENSE_GAP {
                self.sparse.insert(index, packed);
                return Some(());
            }
            self.slots.resize(at + 1, slot::VACANT);
        }
        *self.slots.get_mut(at)? = packed;
        Some(())
    }

    /// The value at `index`, if one was stored.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<Value> {
        let packed = match self.slots.get(index as usize) {
            Some(packed) if *packed != slot::VACANT => *packed,
            _ => *self.sparse.get(&index)?,
        };
        let payload = packed >> slot::TAG_BITS;
        Some(match packed & slot::TAG_MASK {
            slot::TEXT => Value::Text(TextId(payload)),
            slot::OBJECT => Value::Object(ObjectId(payload)),
            slot::NUMBER => *self.numbers.get(payload as usize)?,
            slot::PAIR => Value::Pair { zero: payload != 0 },
            slot::BOOL => Value::Bool(payload != 0),
            _ => Value::Opaque,
        })
    }

    fn pack(&mut self, value: Value) -> Option<u32> {
        let (tag, payload) = match value {
            Value::Opaque => (slot::OPAQUE, 0),
            Value::Bool(b) => (slot::BOOL, u32::from(b)),
            Value::Pair { zero } => (slot::PAIR, u32::from(zero)),
            Value::Text(TextId(id)) => (slot::TEXT, id),
            Value::Object(ObjectId(id)) => (slot::OBJECT, id),
            Value::Number(_) | Value::Negative(_) => {
                self.numbers.push(value);
                (slot::NUMBER, u32::try_from(self.numbers.len() - 1).ok()?)
            }
        };
        (payload <= slot::MAX_PAYLOAD).then_some(payload << slot::TAG_BITS | tag)
    }

    /// Bytes of memory in use.
    pub(super) fn held(&self) -> usize {
        self.slots.len() * 4 + self.sparse.len() * 16 + self.numbers.len() * size_of::<Value>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longs_of_every_length() {
        assert_eq!(Value::from_long(&[]), Value::Number(0));
        assert_eq!(Value::from_long(&[0x7f]), Value::Number(127));
        assert_eq!(Value::from_long(&[0xff]), Value::Negative(-1));
        assert_eq!(Value::from_long(&[0, 0, 0, 0, 0, 0x7f]), Value::Number(0x7f00_0000_0000));
        // 9 bytes: a number from 2^63.
        assert_eq!(Value::from_long(&[1, 0, 0, 0, 0, 0, 0, 0x80, 0]), Value::Number(0x8000_0000_0000_0001));
        assert_eq!(Value::from_long(&[0, 0, 0, 0, 0, 0, 0, 0, 1]), Value::Number(u64::MAX));
        assert_eq!(Value::from_long(&[0, 0, 0, 0, 0, 0, 0, 0x80]), Value::Negative(i64::MIN));
        assert_eq!(Value::from_long(&[0, 0, 0, 0, 0, 0, 0, 0, 0x80]), Value::Negative(i64::MIN));
    }

    #[test]
    fn the_memo_gives_back_what_it_was_given() {
        let mut memo = Memo::default();
        let values = [
            Value::Opaque,
            Value::Bool(true),
            Value::Number(u64::MAX),
            Value::Negative(-3),
            Value::Pair { zero: true },
            Value::Text(TextId(7)),
            Value::Object(ObjectId(9)),
        ];
        for value in values {
            memo.push(value).unwrap();
        }
        memo.put(4_000_000_000, Value::Text(TextId(1))).unwrap();
        memo.put(10, Value::Bool(false)).unwrap();
        for (i, value) in (0..).zip(values) {
            assert_eq!(memo.get(i), Some(value));
        }
        assert_eq!(memo.get(8), None);
        assert_eq!(memo.get(10), Some(Value::Bool(false)));
        assert_eq!(memo.get(4_000_000_000), Some(Value::Text(TextId(1))));
        assert_eq!(memo.get(4_000_000_001), None);
    }
}
