//! What stands on the pickle machine's stack and in its memo: small, typed, copyable.
//!
//! Containers are only named here ([`ObjectId`]); what they hold is folded by [`super::heap`] as it arrives.

use super::growth::{Lean, bytes_of};
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ObjectId(pub(super) u32);

/// One value in eight bytes: the tag in the low three bits, its payload above.
///
/// A packed number rather than an enum, because a large snapshot moves a hundred million of them from memo to stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value(u64);

mod tag {
    /// No value; only in the memo.
    pub(super) const VACANT: u64 = 0;
    pub(super) const PLAIN: u64 = 1;
    pub(super) const TEXT: u64 = 2;
    pub(super) const OBJECT: u64 = 3;
    pub(super) const NUMBER: u64 = 4;
    pub(super) const NEGATIVE: u64 = 5;
    /// The payload is an index into a table of values; only in the memo.
    pub(super) const INDIRECT: u64 = 7;
    pub(super) const BITS: u32 = 3;
    pub(super) const MASK: u64 = (1 << BITS) - 1;
}

impl Value {
    /// Something that means nothing here: `None`, floats, tuples that are not pairs of numbers.
    pub(super) const OPAQUE: Self = Self::plain(0);
    pub(super) const FALSE: Self = Self::plain(1);
    pub(super) const TRUE: Self = Self::plain(2);
    /// A tuple of two numbers, as pool ids are, that are both 0.
    pub(super) const PAIR_OF_ZEROS: Self = Self::plain(3);
    /// Any other tuple of two numbers.
    pub(super) const PAIR: Self = Self::plain(4);
    /// The class `collections.OrderedDict`, the only one that is let in: called without arguments it is an empty dict.
    pub(super) const ORDERED_DICT: Self = Self::plain(5);
    /// No arguments.
    pub(super) const EMPTY_TUPLE: Self = Self::plain(6);
    pub(super) const ZERO: Self = Self::number(0);

    const PAYLOAD_BITS: u32 = u64::BITS - tag::BITS;

    const fn plain(which: u64) -> Self {
        Self(which << tag::BITS | tag::PLAIN)
    }

    pub(super) const fn text(id: TextId) -> Self {
        Self((id.0 as u64) << tag::BITS | tag::TEXT)
    }

    pub(super) const fn object(id: ObjectId) -> Self {
        Self((id.0 as u64) << tag::BITS | tag::OBJECT)
    }

    /// A number from 0.
    ///
    /// From 2^61 on, where no size, time or GPU address lies, it keeps its low 60 bits below a set bit 60: still
    /// huge as a size, and still in order and distinct among the addresses of one range.
    pub(super) const fn number(n: u64) -> Self {
        Self(Self::fold(n) << tag::BITS | tag::NUMBER)
    }

    /// A number below 0; keeps 61 bits.
    pub(super) const fn negative(n: i64) -> Self {
        Self(n.cast_unsigned() << tag::BITS | tag::NEGATIVE)
    }

    const fn fold(n: u64) -> u64 {
        let top = 1 << (Self::PAYLOAD_BITS - 1);
        if n >> Self::PAYLOAD_BITS == 0 { n } else { n & (top - 1) | top }
    }

    /// From a pickled integer: little-endian two's complement of any length. What does not fit saturates.
    pub(super) fn from_long(bytes: &[u8]) -> Self {
        let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
        let fill = if negative { 0xff } else { 0 };
        let (low, high) = bytes.split_at_checked(8).unwrap_or((bytes, &[]));
        let mut word = [fill; 8];
        word.iter_mut().zip(low).for_each(|(to, from)| *to = *from);
        let fits = high.iter().all(|b| *b == fill);
        let n = u64::from_le_bytes(word);
        match (negative, fits) {
            (false, true) => Self::number(n),
            (false, false) => Self::number(u64::MAX),
            (true, true) if n.cast_signed() < 0 => Self::negative(n.cast_signed()),
            (true, _) => Self::negative(i64::MIN),
        }
    }

    const fn tag(self) -> u64 {
        self.0 & tag::MASK
    }

    const fn payload(self) -> u64 {
        self.0 >> tag::BITS
    }

    #[allow(clippy::cast_possible_truncation)] // texts and objects are made from 32 bits
    pub(super) const fn as_text(self) -> Option<TextId> {
        if self.tag() == tag::TEXT { Some(TextId(self.payload() as u32)) } else { None }
    }

    #[allow(clippy::cast_possible_truncation)]
    pub(super) const fn as_object(self) -> Option<ObjectId> {
        if self.tag() == tag::OBJECT { Some(ObjectId(self.payload() as u32)) } else { None }
    }

    /// As an address. One above 2^63 comes as a negative number from some writers: same bits.
    pub(super) const fn as_address(self) -> Option<u64> {
        match self.tag() {
            tag::NUMBER => Some(self.payload()),
            tag::NEGATIVE => Some(Self::fold(self.payload() | 1 << 63)),
            _ => None,
        }
    }

    /// As a size, a count, an ordinal: never negative.
    pub(super) const fn as_size(self) -> Option<u64> {
        if self.tag() == tag::NUMBER { Some(self.payload()) } else { None }
    }

    /// As a time.
    pub(super) const fn as_signed(self) -> Option<i64> {
        match self.tag() {
            tag::NUMBER => Some(self.payload().cast_signed()),
            // An arithmetic shift brings the sign back.
            tag::NEGATIVE => Some(self.0.cast_signed() >> tag::BITS),
            _ => None,
        }
    }

    pub(super) const fn is_number(self) -> bool {
        matches!(self.tag(), tag::NUMBER | tag::NEGATIVE)
    }
}

/// The memo: values by index, four bytes each, because a large snapshot has millions and refers to few.
#[derive(Default)]
pub(super) struct Memo {
    slots: Vec<u32>,
    /// Indices far beyond the dense part, which only odd writers use.
    sparse: std::collections::HashMap<u32, u32>,
    /// Values that need more than four bytes: large numbers, which no known writer puts into the memo.
    large: Vec<Value>,
}

impl Memo {
    /// Gap that the dense part may grow by in one step.
    const DENSE_GAP: usize = 16;

    /// Stores at the next free index; `None` when there is no room for more.
    pub(super) fn push(&mut self, value: Value) -> Option<()> {
        let packed = self.pack(value)?;
        self.slots.push_lean(packed);
        Some(())
    }

    /// Stores at `index`; `None` when there is no room for more.
    pub(super) fn put(&mut self, index: u32, value: Value) -> Option<()> {
        let packed = self.pack(value)?;
        let at = index as usize;
        if at >= self.slots.len() {
            if at.saturating_sub(self.slots.len()) > Self::DENSE_GAP {
                self.sparse.insert(index, packed);
                return Some(());
            }
            let slots = at.saturating_add(1);
            self.slots.reserve_lean(slots.saturating_sub(self.slots.len()));
            self.slots.resize(slots, 0);
        }
        *self.slots.get_mut(at)? = packed;
        Some(())
    }

    /// The value at `index`, if one was stored.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<Value> {
        let value = Value(u64::from(self.slots.get(index as usize).copied().unwrap_or(0)));
        if matches!(value.tag(), tag::VACANT | tag::INDIRECT) { self.get_rare(index) } else { Some(value) }
    }

    #[inline(never)]
    fn get_rare(&self, index: u32) -> Option<Value> {
        let packed = match self.slots.get(index as usize) {
            Some(packed) if *packed != 0 => *packed,
            _ => *self.sparse.get(&index)?,
        };
        let value = Value(u64::from(packed));
        match value.tag() {
            tag::INDIRECT => self.large.get(usize::try_from(value.payload()).ok()?).copied(),
            _ => Some(value),
        }
    }

    #[inline]
    fn pack(&mut self, value: Value) -> Option<u32> {
        u32::try_from(value.0).ok().or_else(|| self.pack_large(value))
    }

    fn pack_large(&mut self, value: Value) -> Option<u32> {
        if !value.is_number() {
            return None;
        }
        self.large.push_lean(value);
        let index = (self.large.len() as u64).saturating_sub(1);
        u32::try_from(index << tag::BITS | tag::INDIRECT).ok()
    }

    /// Bytes of memory in use.
    pub(super) fn held(&self) -> usize {
        let sparse = self.sparse.len().saturating_mul(16);
        self.slots.len().saturating_mul(4).saturating_add(sparse).saturating_add(bytes_of::<Value>(self.large.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longs_of_every_length() {
        let size = |bytes: &[u8]| Value::from_long(bytes).as_size();
        let signed = |bytes: &[u8]| Value::from_long(bytes).as_signed();
        assert_eq!(size(&[]), Some(0));
        assert_eq!(size(&[0x7f]), Some(127));
        assert_eq!(size(&[0xff]), None);
        assert_eq!(signed(&[0xff]), Some(-1));
        assert_eq!(signed(&[0x00, 0x80]), Some(-32768));
        assert_eq!(size(&[0, 0, 0, 0, 0, 0x7f]), Some(0x7f00_0000_0000));
        assert_eq!(signed(&[0, 0, 0, 0, 0, 0, 0, 0, 0x80]), Some(0));
    }

    #[test]
    fn numbers_from_2_to_the_63_stay_apart_and_in_order() {
        let address = |bytes: &[u8]| Value::from_long(bytes).as_address().unwrap();
        // 9 bytes, and the same bits as a negative number of 8.
        let nine = address(&[1, 0, 0, 0, 0, 0, 0, 0x80, 0]);
        assert_eq!(nine, address(&[1, 0, 0, 0, 0, 0, 0, 0x80]));
        assert_eq!(address(&[9, 0, 0, 0, 0, 0, 0, 0x80, 0]) - nine, 8);
        assert!(nine > 1 << 59);
        assert!(Value::from_long(&[0, 0, 0, 0, 0, 0, 0, 0, 1]).as_size().unwrap() > 1 << 59);
    }

    #[test]
    fn the_memo_gives_back_what_it_was_given() {
        let mut memo = Memo::default();
        let values = [
            Value::OPAQUE,
            Value::TRUE,
            Value::number(u64::MAX),
            Value::number(7),
            Value::negative(-3),
            Value::PAIR,
            Value::text(TextId(7)),
            Value::object(ObjectId(9)),
        ];
        for value in values {
            memo.push(value).unwrap();
        }
        memo.put(4_000_000_000, Value::text(TextId(1))).unwrap();
        memo.put(10, Value::FALSE).unwrap();
        for (i, value) in (0..).zip(values) {
            assert_eq!(memo.get(i), Some(value));
        }
        assert_eq!(memo.get(8), None);
        assert_eq!(memo.get(10), Some(Value::FALSE));
        assert_eq!(memo.get(4_000_000_000), Some(Value::text(TextId(1))));
        assert_eq!(memo.get(4_000_000_001), None);
        // An id that needs more than 29 bits cannot be kept.
        assert_eq!(memo.push(Value::object(ObjectId(u32::MAX))), None);
    }
}
