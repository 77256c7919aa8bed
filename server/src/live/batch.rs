//! One batch as it was sent: unpacked within bounds, its head checked against its lines. Knows no disk and no HTTP.

use flate2::read::GzDecoder;
use rankscope_model::{LIVE_FORMAT, LiveBatch, LiveLine, LiveRecord, Rank};
use serde::Deserialize;
use std::{borrow::Cow, io::Read};

/// Bytes of a batch as sent.
pub const MAX_BODY: usize = 4 << 20;
/// Bytes of a batch unpacked: a second of 512 devices at 50 Hz has some 400 KB, a probe sends 512 KiB at most.
const MAX_UNPACKED: u64 = 32 << 20;
/// A batch may unpack to this without question, and to a hundred times its size: a second of figures that do not
/// change packs well.
const FREE_UNPACKED: u64 = 1 << 20;
const MAX_RATIO: u64 = 100;
/// Lines of a batch; a probe sends 2000 at most.
const MAX_LINES: usize = 20_000;
/// Longest name of a source or node, in bytes.
const MAX_NAME: usize = 256;

/// Who sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sender {
    /// The agent of this node.
    Agent(String),
    /// The probe of one process, with the rank that it names.
    Probe(Option<Rank>),
}

/// What it holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Lines {
    /// Of an agent, understood.
    Agent(Vec<LiveLine>),
    /// Of a probe: position and text.
    Probe(Vec<(u64, String)>),
}

impl Lines {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Agent(lines) => lines.len(),
            Self::Probe(lines) => lines.len(),
        }
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// One run of one agent or process.
    pub source: String,
    /// Who sent it.
    pub sender: Sender,
    /// Position of the first line.
    pub first: u64,
    /// Position of the last line.
    pub last: u64,
    /// The lines, by position.
    pub lines: Lines,
}

/// Why a batch is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Over a bound.
    #[error("{0}")]
    TooLarge(String),
    /// Not what it should be.
    #[error("{0}")]
    Invalid(String),
}

fn invalid(why: impl Into<String>) -> BatchError {
    BatchError::Invalid(why.into())
}

/// Bytes that a body of this size may unpack to.
fn may_unpack_to(bytes: usize) -> u64 {
    (FREE_UNPACKED + MAX_RATIO * bytes as u64).min(MAX_UNPACKED)
}

/// KiB that a body may take unpacked.
pub fn weight_kib(bytes: usize, compressed: bool) -> u64 {
    (if compressed { may_unpack_to(bytes) } else { bytes as u64 }) / 1024 + 1
}

/// Reads a batch; `compressed` is gzip.
pub fn read(body: &[u8], compressed: bool) -> Result<Batch, BatchError> {
    let unpacked;
    let body = if compressed {
        let mut bytes = Vec::with_capacity((body.len() * 8).min(1 << 20));
        let limit = may_unpack_to(body.len());
        let read = GzDecoder::new(body).take(limit + 1).read_to_end(&mut bytes);
        if bytes.len() as u64 > limit {
            return Err(BatchError::TooLarge(format!(
                "The batch unpacks to more than {limit} bytes; send fewer lines."
            )));
        }
        read.map_err(|error| invalid(format!("The body is not whole gzip data ({error}).")))?;
        unpacked = bytes;
        &unpacked[..]
    } else {
        body
    };
    let text = std::str::from_utf8(body).map_err(|_| invalid("The body is not UTF-8."))?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let head = lines.next().ok_or_else(|| invalid("The body is empty."))?;
    let head = Head::of(head)?;
    // Counted before anything is parsed or kept.
    let count = lines.clone().take(MAX_LINES + 1).count();
    if count > MAX_LINES {
        return Err(BatchError::TooLarge(format!("A batch may have {MAX_LINES} lines; send fewer.")));
    }
    head.with(lines, count)
}

struct Head {
    batch: LiveBatch,
    rank: Option<Rank>,
}

impl Head {
    fn of(line: &str) -> Result<Self, BatchError> {
        #[derive(Deserialize)]
        struct Told<'a> {
            #[serde(rename = "type", borrow)]
            kind: Cow<'a, str>,
            #[serde(default)]
            rank: Option<Rank>,
        }
        let wrong = |error: serde_json::Error| invalid(format!("The first line is not the head of a batch ({error})."));
        let told: Told<'_> = serde_json::from_str(line).map_err(wrong)?;
        if told.kind != "batch" {
            return Err(invalid(r#"The first line is not the head of a batch: its type is not "batch"."#));
        }
        let batch: LiveBatch = serde_json::from_str(line).map_err(wrong)?;
        for (name, what) in [(&batch.source, "source"), (&batch.node, "node")] {
            if name.len() > MAX_NAME || name.contains(char::is_control) {
                return Err(invalid(format!("The {what} is longer than {MAX_NAME} bytes, or has control characters.")));
            }
        }
        if batch.source.is_empty() {
            return Err(invalid("The batch names no source."));
        }
        if batch.first > batch.last {
            return Err(invalid("The batch ends before it begins."));
        }
        Ok(Self { batch, rank: told.rank })
    }

    fn with<'a>(self, lines: impl Iterator<Item = &'a str>, count: usize) -> Result<Batch, BatchError> {
        let Self { batch: LiveBatch { format, source, node, first, last }, rank } = self;
        let is_agent = format.starts_with("rankscope.live/");
        let (sender, lines) = if is_agent {
            if format != LIVE_FORMAT {
                return Err(invalid(format!("This server reads {LIVE_FORMAT}; update it, or send that.")));
            }
            if node.is_empty() {
                return Err(invalid("The batch names no node."));
            }
            let lines = agent_lines(lines, count)?;
            (Sender::Agent(node), Lines::Agent(lines))
        } else {
            (Sender::Probe(rank), Lines::Probe(probe_lines(lines, count, first)?))
        };
        let batch = Batch { source, sender, first, last, lines };
        batch.check()?;
        Ok(batch)
    }
}

fn agent_lines<'a>(lines: impl Iterator<Item = &'a str>, count: usize) -> Result<Vec<LiveLine>, BatchError> {
    let mut read = Vec::with_capacity(count);
    for (number, line) in (2u32..).zip(lines) {
        let line =
            serde_json::from_str(line).map_err(|error| invalid(format!("Line {number} is no record ({error}).")))?;
        read.push(line);
    }
    Ok(read)
}

/// A probe's lines are kept as text; one that was cut while it was written has no position of its own.
fn probe_lines<'a>(
    lines: impl Iterator<Item = &'a str>,
    count: usize,
    first: u64,
) -> Result<Vec<(u64, String)>, BatchError> {
    #[derive(Deserialize)]
    struct Position {
        #[serde(default)]
        seq: Option<u64>,
    }
    let mut read = Vec::with_capacity(count);
    let mut next = first;
    for line in lines {
        let seq = serde_json::from_str::<Position>(line).ok().and_then(|position| position.seq).unwrap_or(next);
        next = seq.checked_add(1).ok_or_else(|| invalid("A position is out of range."))?;
        read.push((seq, line.to_owned()));
    }
    Ok(read)
}

impl Batch {
    fn positions(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        match &self.lines {
            Lines::Agent(lines) => Box::new(lines.iter().map(|line| line.seq)),
            Lines::Probe(lines) => Box::new(lines.iter().map(|(seq, _)| *seq)),
        }
    }

    fn check(&self) -> Result<(), BatchError> {
        let (mut count, mut before, mut ends) = (0u64, None, (None, None));
        for seq in self.positions() {
            if before.is_some_and(|before| seq <= before) {
                return Err(invalid(format!("Line {seq} does not come after the line before it.")));
            }
            (before, ends) = (Some(seq), (ends.0.or(Some(seq)), Some(seq)));
            count += 1;
        }
        if ends != (Some(self.first), Some(self.last)) {
            return Err(invalid(format!(
                "The batch announces lines {} to {}, and holds others.",
                self.first, self.last
            )));
        }
        let inner_gap = self.last - self.first != count - 1;
        if inner_gap && self.has_gap_after(self.first.checked_sub(1)) {
            return Err(invalid("Lines are missing inside the batch, and no line says that they were dropped."));
        }
        Ok(())
    }

    /// Whether a position after `known` is missing that the batch does not tell to be dropped.
    pub fn has_gap_after(&self, known: Option<u64>) -> bool {
        let mut next = known.map_or(0, |known| known.saturating_add(1));
        let dropped: Vec<(u64, u64)> = match &self.lines {
            Lines::Agent(lines) => lines
                .iter()
                .filter_map(|line| match line.record {
                    LiveRecord::Dropped(dropped) => Some((dropped.first, dropped.last)),
                    _ => None,
                })
                .collect(),
            Lines::Probe(_) => Vec::new(),
        };
        for seq in self.positions().filter(|seq| known.is_none_or(|known| *seq > known)) {
            // Each turn ends a range, so there are no more turns than ranges.
            while next < seq {
                let covers = dropped.iter().find(|(first, last)| (*first..=*last).contains(&next));
                let Some((_, last)) = covers else { return true };
                next = last.saturating_add(1);
            }
            next = next.max(seq.saturating_add(1));
        }
        false
    }

    /// Takes out what is known already, up to and with `known`.
    pub fn keep_after(&mut self, known: u64) {
        match &mut self.lines {
            Lines::Agent(lines) => lines.retain(|line| line.seq > known),
            Lines::Probe(lines) => lines.retain(|(seq, _)| *seq > known),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn agent(first: u64, last: u64, lines: &[String]) -> Result<Batch, BatchError> {
        let head = format!(
            r#"{{"type":"batch","format":"{LIVE_FORMAT}","source":"s","node":"a","first":{first},"last":{last}}}"#
        );
        read(format!("{head}\n{}\n", lines.join("\n")).as_bytes(), false)
    }

    fn end(seq: u64) -> String {
        format!(r#"{{"seq":{seq},"t":1,"type":"end"}}"#)
    }

    fn dropped(seq: u64, first: u64, last: u64) -> String {
        format!(r#"{{"seq":{seq},"t":1,"type":"dropped","first":{first},"last":{last},"samples":9}}"#)
    }

    #[test]
    fn heads_and_lines_must_agree() {
        assert!(agent(3, 5, &[end(3), end(4), end(5)]).is_ok());
        for (first, last, lines) in [
            (3, 5, vec![end(3), end(4)]),
            (3, 4, vec![end(4), end(3)]),
            (3, 4, vec![end(3), end(3), end(4)]),
            (3, 6, vec![end(3), end(6)]),
            (3, 2, vec![]),
            (3, 3, vec![]),
            (3, 3, vec!["nonsense".to_owned()]),
            (3, 3, vec![r#"{"seq":"3","t":1,"type":"end"}"#.to_owned()]),
        ] {
            assert!(matches!(agent(first, last, &lines), Err(BatchError::Invalid(_))), "{first} {last} {lines:?}");
        }
        assert!(agent(3, 6, &[end(3), dropped(6, 4, 5)]).is_ok());
        assert!(agent(u64::MAX, u64::MAX, &[end(u64::MAX)]).is_ok());
    }

    #[test]
    fn gaps_are_those_that_nothing_explains() {
        let batch = agent(8, 9, &[dropped(8, 3, 7), end(9)]).unwrap();
        assert!([2, 5, 9].into_iter().all(|known| !batch.has_gap_after(Some(known))));
        assert!(agent(8, 8, &[end(8)]).unwrap().has_gap_after(Some(6)));
        assert!(batch.has_gap_after(Some(1)) && batch.has_gap_after(None));
    }

    #[test]
    fn probes_are_kept_as_they_are() {
        let text = "{\"type\":\"batch\",\"format\":\"rankscope.probe/1\",\"source\":\"j/h/1/2\",\"rank\":3,\"first\":5,\"last\":6}\n\
            {\"type\":\"step\",\"seq\":5,\"x\":NaN}\n{\"type\":\"step\",\"seq\":6}\n";
        let batch = read(text.as_bytes(), false).unwrap();
        assert_eq!(batch.sender, Sender::Probe(Some(Rank(3))));
        assert!(matches!(&batch.lines, Lines::Probe(lines) if lines[0].1.contains("NaN") && lines[1].0 == 6));
    }

    #[test]
    fn bombs_are_refused_before_they_are_unpacked() {
        let mut gz = GzEncoder::new(Vec::new(), Compression::best());
        for _ in 0..40 {
            gz.write_all(&vec![b' '; 1 << 20]).unwrap();
        }
        assert!(matches!(read(&gz.finish().unwrap(), true), Err(BatchError::TooLarge(_))));
        let many = vec![end(0); MAX_LINES + 1];
        assert!(matches!(agent(0, 1, &many), Err(BatchError::TooLarge(_))));
        for junk in [&b""[..], b"\xff\xfe", b"[]", b"{\"type\":\"batch\"}", b"{}", b"\x1f\x8b\x08"] {
            assert!(read(junk, false).is_err() && read(junk, true).is_err(), "{junk:?}");
        }
    }
}
