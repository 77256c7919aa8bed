//! Jupyter notebooks: the code cells joined to one source, with magics blanked.
//!
//! Reads the JSON of the notebook and skips outputs without holding them. Knows no Python beyond the magics.

use super::MAX_SOURCE;
use super::source::Source;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::{self, Read};

/// Reads a notebook. `limit` bounds the joined source; beyond it the rest is left out and `Cut` is set.
pub(super) fn read(input: &mut dyn Read, limit: usize) -> Result<Notebook, serde_json::Error> {
    let mended = std::io::BufReader::with_capacity(64 << 10, Mended::new(input));
    let Document { mut cells, worksheets } = serde_json::from_reader(mended)?;
    cells.append(worksheets.0);
    let mut text = String::new();
    let mut starts = Vec::new();
    let mut lines = 0usize;
    let mut is_cut = cells.is_cut;
    for (number, cell) in cells.code {
        let source = without_magics(&cell);
        if text.len().saturating_add(source.len()) >= limit {
            is_cut = true;
            break;
        }
        starts.push((lines, number));
        lines = lines.saturating_add(source.matches('\n').count());
        text.push_str(&source);
    }
    Ok(Notebook { source: Source::with_cells(text, starts), is_cut })
}

/// The joined source.
pub(super) struct Notebook {
    pub(super) source: Source,
    /// Some cells were left out.
    pub(super) is_cut: bool,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    cells: Cells,
    /// Notebooks of format 3.
    #[serde(default)]
    worksheets: Sheets,
}

#[derive(Deserialize)]
struct Sheet {
    #[serde(default)]
    cells: Cells,
}

#[derive(Deserialize)]
struct Cell {
    #[serde(default)]
    cell_type: String,
    /// `input` is its name in format 3.
    #[serde(default, alias = "input")]
    source: Lines,
}

/// The code of cells as they stream by; the others leave only their number.
#[derive(Default)]
struct Cells {
    /// 1-based number of the cell, and its source.
    code: Vec<(usize, String)>,
    count: usize,
    bytes: usize,
    is_cut: bool,
}

impl Cells {
    fn push(&mut self, number: usize, source: String) {
        self.bytes = self.bytes.saturating_add(source.len());
        if self.bytes > MAX_SOURCE {
            self.is_cut = true;
        } else if !source.is_empty() {
            self.code.push((number, source));
        }
    }

    fn append(&mut self, other: Self) {
        let before = self.count;
        self.count = self.count.saturating_add(other.count);
        self.is_cut |= other.is_cut;
        for (number, source) in other.code {
            self.push(before.saturating_add(number), source);
        }
    }
}

impl<'de> Deserialize<'de> for Cells {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CellsVisitor;
        impl<'de> Visitor<'de> for CellsVisitor {
            type Value = Cells;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of cells")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Cells, A::Error> {
                let mut cells = Cells::default();
                while let Some(cell) = seq.next_element::<Cell>()? {
                    cells.count = cells.count.saturating_add(1);
                    if cell.cell_type == "code" {
                        cells.push(cells.count, cell.source.0);
                    }
                }
                Ok(cells)
            }
        }
        deserializer.deserialize_seq(CellsVisitor)
    }
}

/// The cells of all sheets.
#[derive(Default)]
struct Sheets(Cells);

impl<'de> Deserialize<'de> for Sheets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SheetsVisitor;
        impl<'de> Visitor<'de> for SheetsVisitor {
            type Value = Sheets;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of worksheets")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Sheets, A::Error> {
                let mut cells = Cells::default();
                while let Some(sheet) = seq.next_element::<Sheet>()? {
                    cells.append(sheet.cells);
                }
                Ok(Sheets(cells))
            }
        }
        deserializer.deserialize_seq(SheetsVisitor)
    }
}

/// One text, or a list of lines that keep their ends.
#[derive(Default)]
struct Lines(String);

impl<'de> Deserialize<'de> for Lines {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LinesVisitor;
        impl<'de> Visitor<'de> for LinesVisitor {
            type Value = Lines;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of lines")
            }

            fn visit_str<E>(self, text: &str) -> Result<Lines, E> {
                Ok(Lines(text.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<Lines, E> {
                Ok(Lines::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Lines, A::Error> {
                let mut text = String::new();
                while let Some(line) = seq.next_element::<LineOrOther>()? {
                    if let LineOrOther::Line(line) = line {
                        text.push_str(&line);
                    }
                }
                Ok(Lines(text))
            }
        }
        deserializer.deserialize_any(LinesVisitor)
    }
}

/// A text, or whatever else stands in its place.
enum LineOrOther {
    Line(String),
    Other,
}

impl<'de> Deserialize<'de> for LineOrOther {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LineVisitor;
        impl<'de> Visitor<'de> for LineVisitor {
            type Value = LineOrOther;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a line")
            }

            fn visit_str<E>(self, text: &str) -> Result<LineOrOther, E> {
                Ok(LineOrOther::Line(text.to_owned()))
            }

            fn visit_bool<E>(self, _: bool) -> Result<LineOrOther, E> {
                Ok(LineOrOther::Other)
            }

            fn visit_i64<E>(self, _: i64) -> Result<LineOrOther, E> {
                Ok(LineOrOther::Other)
            }

            fn visit_u64<E>(self, _: u64) -> Result<LineOrOther, E> {
                Ok(LineOrOther::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<LineOrOther, E> {
                Ok(LineOrOther::Other)
            }

            fn visit_unit<E>(self) -> Result<LineOrOther, E> {
                Ok(LineOrOther::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LineOrOther, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(LineOrOther::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LineOrOther, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(LineOrOther::Other)
            }
        }
        deserializer.deserialize_any(LineVisitor)
    }
}

/// JSON without what people's tools put into it and JSON forbids: a mark at the beginning, and halves of surrogate
/// pairs (`\ud83d` alone), which become the replacement character.
struct Mended<'i> {
    inner: &'i mut dyn Read,
    chunk: Vec<u8>,
    ready: Vec<u8>,
    given: usize,
    /// Bytes of an escape that is not complete, and of the half in front of it.
    held: Vec<u8>,
    at_start: bool,
}

impl<'i> Mended<'i> {
    const CHUNK: usize = 64 << 10;
    /// An escape with four digits.
    const ESCAPE: usize = 6;
    const REPLACEMENT: &'static [u8] = "\u{fffd}".as_bytes();

    fn new(inner: &'i mut dyn Read) -> Self {
        let (chunk, ready, held) = (vec![0; Self::CHUNK], Vec::new(), Vec::new());
        Self { inner, chunk, ready, given: 0, held, at_start: true }
    }

    /// Reads on; gives the number of bytes read.
    fn refill(&mut self) -> io::Result<usize> {
        self.ready.clear();
        self.given = 0;
        let mut chunk = std::mem::take(&mut self.chunk);
        let read = self.inner.read(&mut chunk);
        if let Ok(n) = read {
            self.feed(chunk.get(..n).unwrap_or_default());
        }
        self.chunk = chunk;
        read
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        if bytes.is_empty() {
            self.ready.append(&mut self.held);
        }
        // A mark that is torn between two chunks is not taken off; the first chunk has more than its three bytes.
        if std::mem::take(&mut self.at_start) {
            bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        }
        while let Some((first, rest)) = bytes.split_first() {
            if self.held.is_empty() {
                let plain = memchr::memchr(b'\\', bytes).unwrap_or(bytes.len());
                let (plain, escape) = bytes.split_at(plain);
                self.ready.extend_from_slice(plain);
                bytes = escape;
                if let Some((backslash, rest)) = bytes.split_first() {
                    self.held.push(*backslash);
                    bytes = rest;
                }
                continue;
            }
            bytes = if self.hold(*first) { rest } else { bytes };
        }
    }

    /// Takes the next byte of an escape; `false` if it belongs to none.
    fn hold(&mut self, byte: u8) -> bool {
        let of_last = self.held.len() % Self::ESCAPE;
        let fits = match of_last {
            0 => byte == b'\\',
            1 => byte == b'u',
            _ => byte.is_ascii_hexdigit(),
        };
        if !fits {
            // A half without its other one, and then whatever this is.
            if self.held.len() >= Self::ESCAPE {
                self.held.drain(..Self::ESCAPE);
                self.ready.extend_from_slice(Self::REPLACEMENT);
            }
            self.ready.append(&mut self.held);
            if of_last == 0 {
                return false;
            }
            self.ready.push(byte);
            return true;
        }
        self.held.push(byte);
        if !self.held.len().is_multiple_of(Self::ESCAPE) {
            return true;
        }
        let unit = |escape: &[u8]| {
            let digits = escape.get(2..Self::ESCAPE).and_then(|digits| std::str::from_utf8(digits).ok());
            digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()).unwrap_or(0)
        };
        let is_low = |unit: u16| (0xdc00..0xe000).contains(&unit);
        let is_high = |unit: u16| (0xd800..0xdc00).contains(&unit);
        if self.held.len() > Self::ESCAPE {
            if is_low(self.held.get(Self::ESCAPE..).map_or(0, unit)) {
                self.ready.append(&mut self.held);
                return true;
            }
            self.held.drain(..Self::ESCAPE);
            self.ready.extend_from_slice(Self::REPLACEMENT);
        }
        let last = unit(&self.held);
        if is_low(last) {
            self.held.clear();
            self.ready.extend_from_slice(Self::REPLACEMENT);
        } else if !is_high(last) {
            self.ready.append(&mut self.held);
        }
        true
    }
}

impl Read for Mended<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.given >= self.ready.len() {
            if self.refill()? == 0 && self.ready.is_empty() {
                return Ok(0);
            }
        }
        let mut left = self.ready.get(self.given..).unwrap_or_default();
        let n = left.read(buf)?;
        self.given = self.given.saturating_add(n);
        Ok(n)
    }
}

/// Cell magics behind which the cell is Python. `%%writefile train.py` stores a script that another cell runs: it is
/// the script.
const PYTHON_CELLS: [&str; 5] = ["%%time", "%%timeit", "%%capture", "%%writefile", "%%python"];

/// Blanks lines that are no Python (`%matplotlib`, `!pip`), and whole cells in other languages (`%%bash`). Line
/// numbers stay.
fn without_magics(cell: &str) -> String {
    let first = cell.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim_start();
    let is_foreign = first.starts_with("%%") && !PYTHON_CELLS.iter().any(|magic| first.starts_with(magic));
    let mut text = String::with_capacity(cell.len().saturating_add(1));
    let mut continues = false;
    for line in cell.lines() {
        let start = line.trim_start();
        let is_magic = start.starts_with(['%', '!']) || start.starts_with('?') || continues;
        continues = is_magic && line.trim_end().ends_with('\\');
        if !is_foreign && !is_magic {
            text.push_str(line);
        } else if !is_foreign && start.len() < line.len() && !start.is_empty() {
            // The body of a block may be nothing but a magic.
            let indent = line.get(..line.len().saturating_sub(start.len())).unwrap_or_default();
            text.push_str(indent);
            text.push_str("pass");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_cells_are_joined_and_magics_blanked() {
        let json = r##"{"nbformat": 4, "cells": [
            {"cell_type": "markdown", "source": ["# Title\n"]},
            {"cell_type": "code", "source": ["%matplotlib inline\n", "import torch"], "outputs": [{"data": {"image/png": "AAAA"}}]},
            {"cell_type": "code", "source": "%%bash\nnvidia-smi\n"},
            {"cell_type": "code", "source": ["if x:\n", "    !pip install y \\\n", "      z\n", "a = 1\n"]}
        ]}"##;
        let notebook = read(&mut json.as_bytes(), 1 << 20).unwrap();
        let text = notebook.source.text();
        assert_eq!(text, "\nimport torch\n\n\nif x:\n    pass\n      pass\na = 1\n");
        assert!(!notebook.is_cut);
        assert!(read(&mut json.as_bytes(), 16).unwrap().is_cut);
    }

    #[test]
    fn what_tools_put_into_json_is_mended() {
        let mended = |text: &str, step: usize| {
            struct Steps<'t>(&'t [u8], usize);
            impl Read for Steps<'_> {
                fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                    let n = self.1.min(buf.len());
                    self.0.read(&mut buf[..n])
                }
            }
            let mut out = String::new();
            Mended::new(&mut Steps(text.as_bytes(), step)).read_to_string(&mut out).unwrap();
            out
        };
        for (text, expected) in [
            (r#""a\\ud83d""#, r#""a\\ud83d""#),
            (r#""\ud83d\ude00 \u00e9\n\"""#, r#""\ud83d\ude00 \u00e9\n\"""#),
            (r#""\ud83d""#, "\"\u{fffd}\""),
            (r#""\ude00x\ud83d\n""#, "\"\u{fffd}x\u{fffd}\\n\""),
            (r#""\ud83d\ud83d\ude00""#, "\"\u{fffd}\\ud83d\\ude00\""),
            (r#""\ud83d\u0041""#, "\"\u{fffd}\\u0041\""),
            (r#""\ud83""#, r#""\ud83""#),
            ("\\u12", "\\u12"),
            ("\\ud83d\\", "\\ud83d\\"),
        ] {
            for step in [1, 5, 1000] {
                assert_eq!(mended(text, step), expected, "{text} by {step}");
            }
        }
        let json = "\u{feff}{\"cells\": [{\"cell_type\": \"code\", \"source\": [\"a = '\\ud83d'\", [1, {}], 2.5, null, true]}]}";
        assert_eq!(read(&mut json.as_bytes(), 1 << 20).unwrap().source.text(), "a = '\u{fffd}'\n");
    }

    #[test]
    fn cells_are_kept_only_as_far_as_they_are_used() {
        let cells = "{\"cell_type\":\"markdown\",\"source\":\"text\"},{},".repeat(10_000);
        let json = format!("{{\"cells\": [{cells}{{\"cell_type\":\"code\",\"source\":\"a = 1\"}}]}}");
        let Document { cells, .. } = serde_json::from_str(&json).unwrap();
        assert_eq!((cells.count, cells.code.len(), cells.bytes), (20_001, 1, 5));
        let code = format!("{{\"cell_type\":\"code\",\"source\":\"{}\"}},", "a".repeat(1000)).repeat(2000);
        let json = format!("{{\"cells\": [{code}{{}}]}}");
        let Document { cells, .. } = serde_json::from_str(&json).unwrap();
        assert!(cells.is_cut && cells.code.len() <= MAX_SOURCE / 1000);
    }

    #[test]
    fn format_3_keeps_its_cells_in_worksheets() {
        let json = r#"{"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": ["a = 1"]}]}]}"#;
        assert_eq!(read(&mut json.as_bytes(), 1 << 20).unwrap().source.text(), "a = 1\n");
    }
}
