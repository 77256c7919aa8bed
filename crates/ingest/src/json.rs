//! JSON of strangers, read as a stream: what the format's readers need of `serde_json`, and words for its errors.
//!
//! Nothing is kept that a reader does not ask for, so a file of a gigabyte needs no more memory than its largest text.

use crate::context::ReadError;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

/// A JSON stream.
pub(crate) type Stream<'a> = serde_json::Deserializer<serde_json::de::IoRead<BufReader<Ascii<'a>>>>;

/// Reads `input` as JSON.
pub(crate) fn stream(input: &mut dyn BufRead) -> Stream<'_> {
    // The buffer is where `serde_json` finds single bytes fast; behind a `dyn` each of them would be a call.
    serde_json::Deserializer::from_reader(BufReader::with_capacity(128 << 10, Ascii(input)))
}

/// Bytes beyond ASCII become `?`. Every name that is looked for is ASCII, and a stray byte in some other text (a path,
/// an annotation in an old encoding) must not end the reading.
pub(crate) struct Ascii<'a>(&'a mut dyn BufRead);

impl<'a> Ascii<'a> {
    pub(crate) fn new(input: &'a mut dyn BufRead) -> Self {
        Self(input)
    }
}

impl Read for Ascii<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.0.read(buf)?;
        for byte in buf.iter_mut().take(n).filter(|byte| !byte.is_ascii()) {
            *byte = b'?';
        }
        Ok(n)
    }
}

/// One value of any kind, of which only numbers and short texts are looked at.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar {
    /// A whole number.
    Int(i128),
    /// Another number.
    Float(f64),
    /// A text, cut to [`Scalar::MAX_TEXT`] bytes.
    Text(String),
    /// Anything else.
    Other,
}

impl Scalar {
    /// Longest text kept.
    const MAX_TEXT: usize = 128;

    pub(crate) fn as_u64(&self) -> Option<u64> {
        if let Self::Int(n) = self { u64::try_from(*n).ok() } else { None }
    }

    pub(crate) fn as_i64(&self) -> Option<i64> {
        if let Self::Int(n) = self { i64::try_from(*n).ok() } else { None }
    }

    pub(crate) fn as_u32(&self) -> Option<u32> {
        if let Self::Int(n) = self { u32::try_from(*n).ok() } else { None }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// A number times 1000, rounded: microseconds with a fraction as nanoseconds.
    pub(crate) fn as_thousandths(&self) -> Option<i64> {
        match self {
            Self::Int(n) => i64::try_from(n.checked_mul(1000)?).ok(),
            #[allow(clippy::cast_possible_truncation, reason = "the range is checked")]
            Self::Float(n) if n.abs() < 9e15 => Some((n * 1000.0).round() as i64),
            _ => None,
        }
    }
}

impl<'de> serde::Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<Scalar, E> {
        Ok(Scalar::Int(n.into()))
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Scalar, E> {
        Ok(Scalar::Int(n.into()))
    }

    fn visit_f64<E: Error>(self, n: f64) -> Result<Scalar, E> {
        Ok(Scalar::Float(n))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.chars().take(Scalar::MAX_TEXT).collect()))
    }

    fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Scalar, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Scalar, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }
}

/// The size of something as JSON, which is near to what it takes in memory, whatever it holds.
pub(crate) fn size(value: &impl serde::Serialize) -> u64 {
    struct Count(u64);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len() as u64);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        Err(_) => u64::MAX,
    }
}

/// What a JSON error means for a file of which something was read before: a sentence for its warnings.
pub(crate) fn what_is_missing(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    match error.classify() {
        Category::Eof => format!(
            "the file ends in the middle, at line {}: the job or the copy was cut; what stands before was read",
            error.line()
        ),
        Category::Io => format!("the file ends early: {error}; what stands before was read"),
        Category::Syntax | Category::Data => {
            format!("not readable as JSON from here on: {error}; what stands before was read")
        }
    }
}

/// A JSON error of a file of which nothing can be used.
pub(crate) fn not_readable(error: serde_json::Error, what: &str) -> ReadError {
    let advice = format!("write {what} again, and copy it when the job has finished");
    match error.classify() {
        serde_json::error::Category::Io => ReadError::Io { offset: 0, source: error.into() },
        _ => ReadError::NotThisFormat {
            why: format!("looks like {what}, but is not readable as JSON: {error}; {advice}"),
        },
    }
}
