//! How much the server takes. Every limit is stated here, once, and named in the refusal that it causes.

use crate::paced::Pace;
use rankscope_model::{Bytes, GIB, MIB};
use std::time::Duration;

/// Limits of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest accepted file. A larger one is refused by name; the others of its request are kept.
    pub max_file_bytes: u64,
    /// Largest accepted request.
    pub max_request_bytes: u64,
    /// Files in one request.
    pub max_files: usize,
    /// Longest title, in characters; the rest is cut off.
    pub max_title_chars: usize,
    /// Longest display name of a file, in characters; of a longer one the end is kept.
    pub max_name_chars: usize,
    /// Longest note on a checklist item, in characters; a longer one is refused.
    pub max_note_chars: usize,
    /// Longest name beside a note, in characters.
    pub max_author_chars: usize,
    /// Notes kept of one run.
    pub max_notes: u64,
    /// An upload from which nothing arrives for so long is given up.
    pub upload_idle: Duration,
    /// Bytes per second at which an upload must arrive, over each [`Self::upload_grace`]: a body that drips would hold its
    /// connection for ever, without ever being idle.
    pub upload_rate: u64,
    /// How long an upload may be slower than that: the first of it, and any pause or slow stretch later on. Only the time
    /// counts in which the server waits for the sender.
    pub upload_grace: Duration,
    /// The body of everything that is no upload must have arrived within this.
    pub body_within: Duration,
    /// Every request that is no upload must be answered within this, from the moment at which its body is there.
    pub answer_within: Duration,
    /// An upload no longer waits for a file that is not read within this: it is read in the background.
    pub read_within: Duration,
    /// There a file that is not read within this is given up.
    pub read_in_background_within: Duration,
    /// An upload whose turn to be read does not come within this is refused.
    pub reader_wait: Duration,
    /// Files that are read at the same time; each may take a core and some hundred MiB.
    pub parallel_readers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_file_bytes: 2 * GIB,
            max_request_bytes: 8 * GIB,
            max_files: 2048,
            max_title_chars: 200,
            max_name_chars: 240,
            max_note_chars: 4000,
            max_author_chars: 80,
            max_notes: 2000,
            upload_idle: Duration::from_mins(1),
            upload_rate: 1 << 10,
            upload_grace: Duration::from_secs(90),
            body_within: Duration::from_secs(30),
            answer_within: Duration::from_mins(1),
            read_within: Duration::from_mins(2),
            read_in_background_within: Duration::from_hours(2),
            reader_wait: Duration::from_mins(5),
            parallel_readers: 2,
        }
    }
}

impl Limits {
    /// How fast an upload must arrive.
    pub fn pace(&self) -> Pace {
        Pace { idle: self.upload_idle, rate: self.upload_rate, grace: self.upload_grace }
    }
}

/// Reads `2GiB`, `500 MiB`, `1048576`. Units are binary.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => MIB,
        "g" | "gib" => GIB,
        _ => return Err(format!("{text:?} is not a size such as 500MiB or 2GiB")),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| format!("{text:?} is not a size such as 500MiB or 2GiB"))
}

/// A size in a sentence.
pub fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_binary_units() {
        assert_eq!(parse_bytes("2GiB"), Ok(2 * GIB));
        assert_eq!(parse_bytes("500 mib"), Ok(500 * MIB));
        assert_eq!(parse_bytes("17"), Ok(17));
        for wrong in ["", "0", "-1", "GiB", "1.5GiB", "99999999999999GiB", "1TB"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
