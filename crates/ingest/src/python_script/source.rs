//! The text of one script: lines, quotes, and the cells of a notebook.
//!
//! Knows offsets and lines; knows no syntax.

use rankscope_model::{ArtifactId, Place, Provenance, ScriptEvidence};
use ruff_text_size::{TextRange, TextSize};
use std::collections::BTreeMap;

/// Longest piece of an expression that is kept with a fact, in characters.
const TEXT_CHARS: usize = 160;

/// Lines of one statement that are quoted; of a longer one only the first is.
const MAX_QUOTE_LINES: u64 = 8;

/// Lines kept for reading in all; a script that says more about memory than that is generated.
const MAX_MARGINS: usize = 4096;

/// Bytes of a line that are looked at for a quote, which is far shorter. A file may be one line with all facts on it.
const MAX_LINE: usize = 2 << 10;

/// The beginning of a line, as far as it is looked at.
fn beginning(line: &str) -> &str {
    line.get(..line.floor_char_boundary(MAX_LINE)).unwrap_or(line)
}

/// Brackets that are open behind a line, `open` of them in front of it. `None` when a string stays open.
fn open_brackets(line: &str, mut open: u32) -> Option<u32> {
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => {
                chars.next();
            }
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '#') => break,
            (None, '(' | '[' | '{') => open = open.saturating_add(1),
            (None, ')' | ']' | '}') => open = open.saturating_sub(1),
            (Some(_) | None, _) => {}
        }
    }
    quote.is_none().then_some(open)
}

/// Decoded source.
pub(super) struct Source {
    text: String,
    /// Byte offset of each line's beginning.
    starts: Vec<u32>,
    /// First line (0-based) of each code cell, for notebooks.
    cells: Vec<(usize, usize)>,
}

impl Source {
    /// Of a plain file.
    pub(super) fn new(text: String) -> Self {
        Self::with_cells(text, Vec::new())
    }

    /// Of a notebook. `cells` holds (first line of the cell, 0-based in the joined text; number of the cell).
    pub(super) fn with_cells(text: String, cells: Vec<(usize, usize)>) -> Self {
        let ends =
            memchr::memchr_iter(b'\n', text.as_bytes()).filter_map(|at| u32::try_from(at.saturating_add(1)).ok());
        let starts = std::iter::once(0).chain(ends).collect();
        Self { text, starts, cells }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// 1-based line of an offset.
    pub(super) fn line(&self, at: TextSize) -> u64 {
        self.starts.partition_point(|start| *start <= at.to_u32()) as u64
    }

    /// Text of a 1-based line, without its end.
    pub(super) fn line_text(&self, line: u64) -> &str {
        let index = usize::try_from(line).unwrap_or(usize::MAX).saturating_sub(1);
        let Some(start) = self.starts.get(index) else { return "" };
        let end = self.starts.get(index.saturating_add(1)).map_or(self.text.len(), |end| *end as usize);
        self.text.get(*start as usize..end).unwrap_or_default().trim_end_matches(['\n', '\r'])
    }

    /// The place of an offset, with the text of its line, and of those below it as far as brackets are open: what a
    /// call says may stand in any of them. In a notebook the quote names the cell.
    pub(super) fn place(&self, artifact: ArtifactId, at: TextSize) -> Provenance {
        let line = self.line(at);
        let last = self.last_line(line);
        let mut text = beginning(self.line_text(line)).to_owned();
        for below in line.saturating_add(1)..=last {
            text.push('\n');
            text.push_str(self.line_text(below));
        }
        let mut place = match self.cell(line) {
            Some(cell) => Provenance::line(artifact, line, &format!("[cell {cell}] {text}")),
            None => Provenance::line(artifact, line, &text),
        };
        if last > line {
            place.place = Place::Lines(line, last);
        }
        place
    }

    /// Lines beside `places`, as far as they belong to the same cell.
    pub(super) fn margins(&self, places: impl Iterator<Item = Place>) -> BTreeMap<u64, String> {
        let mut margins = BTreeMap::new();
        for place in places {
            let (first, last) = match place {
                Place::Line(line) => (line, line),
                Place::Lines(first, last) => (first, last),
                Place::Offset(_) => continue,
            };
            let cell = self.cell(first);
            let above = first.saturating_sub(ScriptEvidence::MARGIN_LINES).max(1)..first;
            let below = last.saturating_add(1)
                ..=last.saturating_add(ScriptEvidence::MARGIN_LINES).min(self.starts.len() as u64);
            for line in above.chain(below).filter(|line| self.cell(*line) == cell) {
                if margins.len() >= MAX_MARGINS {
                    return margins;
                }
                margins.entry(line).or_insert_with(|| Provenance::cut(beginning(self.line_text(line))));
            }
        }
        margins
    }

    /// The line on which the brackets that are opened on `line` are closed; `line` itself where that is too far away or
    /// a string goes over several lines.
    fn last_line(&self, line: u64) -> u64 {
        let mut depth = 0u32;
        for at in line..line.saturating_add(MAX_QUOTE_LINES) {
            let text = self.line_text(at);
            if text.len() > MAX_LINE {
                return line;
            }
            match open_brackets(text, depth) {
                Some(0) => return at,
                Some(open) => depth = open,
                None => return line,
            }
        }
        line
    }

    fn cell(&self, line: u64) -> Option<usize> {
        let index = usize::try_from(line).ok()?.saturating_sub(1);
        let after = self.cells.partition_point(|(first, _)| *first <= index);
        self.cells.get(after.checked_sub(1)?).map(|(_, number)| *number)
    }

    /// An expression as written, on one line and cut to size.
    pub(super) fn slice(&self, range: TextRange) -> String {
        let text = self.text.get(range.start().to_usize()..range.end().to_usize()).unwrap_or_default();
        let mut short = String::new();
        let mut in_space = false;
        for (count, c) in text.chars().enumerate() {
            if short.len() >= TEXT_CHARS || count >= TEXT_CHARS * 4 {
                short.push('…');
                break;
            }
            if c.is_whitespace() {
                in_space = true;
            } else {
                if std::mem::take(&mut in_space) && !short.is_empty() && !short.ends_with(['(', '[', '{']) {
                    short.push(' ');
                }
                short.push(c);
            }
        }
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_become_lines_with_their_text() {
        let source = Source::new("a = 1\r\nb = 2\n\nc(\n  3,\n  4)".to_owned());
        assert_eq!(source.line(TextSize::new(0)), 1);
        assert_eq!(source.line(TextSize::new(7)), 2);
        assert_eq!(source.line_text(1), "a = 1");
        assert_eq!(source.line_text(6), "  4)");
        assert_eq!(source.line_text(7), "");
        assert_eq!(source.slice(TextRange::new(TextSize::new(14), TextSize::new(26))), "c(3, 4)");
        let at = source.place(ArtifactId(3), TextSize::new(8));
        assert_eq!((at.place, at.quote.as_str()), (Place::Line(2), "b = 2"));
    }

    #[test]
    fn a_call_over_several_lines_is_quoted_whole() {
        let source = Source::new(
            "m = load(\n    path,  # (the\n    device_map={\"\": 0})\nrun(\"\"\"a\nb\"\"\")\nf(\n".to_owned(),
        );
        let at = source.place(ArtifactId(0), TextSize::new(4));
        assert_eq!(at.place, Place::Lines(1, 3));
        assert_eq!(at.quote, "m = load(\n    path,  # (the\n    device_map={\"\": 0})");
        // A string or bracket that stays open: the line alone.
        let line = |line: usize| source.place(ArtifactId(0), TextSize::new(source.starts[line - 1]));
        assert_eq!((line(4).place, line(6).place), (Place::Line(4), Place::Line(6)));
        let long = Source::new(format!("f({})\ng(\n{}\n)\n", "a, ".repeat(MAX_LINE), "é".repeat(MAX_LINE)));
        let at = long.place(ArtifactId(0), TextSize::new(0));
        assert!(at.place == Place::Line(1) && at.quote.starts_with("f(a, a"));
        let second = u32::try_from(2 + 3 * MAX_LINE + 2).unwrap();
        assert_eq!(long.place(ArtifactId(0), TextSize::new(second)).quote, "g(");
        // The end of a statement that began above.
        assert_eq!(line(3).place, Place::Line(3));
    }

    #[test]
    fn neighbours_stay_within_the_file_and_the_cell() {
        let source = Source::new("a\n\nb\nc\nd\ne\n".to_owned());
        let lines = |source: &Source, at: Place| source.margins([at].into_iter()).into_iter().collect::<Vec<_>>();
        let own = |line: u64, text: &str| (line, text.to_owned());
        assert_eq!(lines(&source, Place::Line(1)), [own(2, ""), own(3, "b")]);
        assert_eq!(lines(&source, Place::Lines(3, 4)), [own(1, "a"), own(2, ""), own(5, "d"), own(6, "e")]);
        let cells = Source::with_cells("a\nb\nc\nd".to_owned(), vec![(0, 1), (2, 4)]);
        assert_eq!(lines(&cells, Place::Line(2)), [own(1, "a")]);
        assert_eq!(lines(&cells, Place::Line(3)), [own(4, "d")]);
        let many = Source::new("x\n".repeat(20_000));
        assert_eq!(many.margins((1..20_000).step_by(3).map(Place::Line)).len(), MAX_MARGINS);
    }

    #[test]
    fn cells_are_named_in_quotes() {
        let source = Source::with_cells("a\nb\nc\n".to_owned(), vec![(0, 1), (2, 4)]);
        let quote = |at| source.place(ArtifactId(0), TextSize::new(at)).quote;
        assert_eq!(quote(2), "[cell 1] b");
        assert_eq!(quote(4), "[cell 4] c");
    }
}
