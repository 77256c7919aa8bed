//! Jupyter notebooks: the code cells joined to one source, with magics blanked.
//!
//! Reads the JSON of the notebook and skips outputs without holding them. Knows no Python beyond the magics.

use super::source::Source;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use std::fmt;
use std::io::Read;

/// Reads a notebook. `limit` bounds the joined source; beyond it the rest is left out and `Cut` is set.
pub(super) fn read(input: &mut dyn Read, limit: usize) -> Result<Notebook, serde_json::Error> {
    let document: Document = serde_json::from_reader(std::io::BufReader::new(input))?;
    let cells = document.cells.into_iter().chain(document.worksheets.into_iter().flat_map(|sheet| sheet.cells));
    let mut text = String::new();
    let mut starts = Vec::new();
    let mut lines = 0;
    let mut is_cut = false;
    for (index, cell) in cells.enumerate() {
        if cell.cell_type != "code" {
            continue;
        }
        let source = without_magics(&cell.source.0);
        if text.len() + source.len() >= limit {
            is_cut = true;
            break;
        }
        starts.push((lines, index + 1));
        lines += source.matches('\n').count();
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
    cells: Vec<Cell>,
    /// Notebooks of format 3.
    #[serde(default)]
    worksheets: Vec<Sheet>,
}

#[derive(Deserialize)]
struct Sheet {
    #[serde(default)]
    cells: Vec<Cell>,
}

#[derive(Deserialize)]
struct Cell {
    #[serde(default)]
    cell_type: String,
    /// `input` is its name in format 3.
    #[serde(default, alias = "input")]
    source: Lines,
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

#[derive(Deserialize)]
#[serde(untagged)]
enum LineOrOther {
    Line(String),
    #[allow(dead_code)] // Only there to be skipped.
    Other(IgnoredAny),
}

/// Cell magics behind which the cell is Python. `%%writefile train.py` stores a script that another cell runs: it is
/// the script.
const PYTHON_CELLS: [&str; 5] = ["%%time", "%%timeit", "%%capture", "%%writefile", "%%python"];

/// Blanks lines that are no Python (`%matplotlib`, `!pip`), and whole cells in other languages (`%%bash`). Line
/// numbers stay.
fn without_magics(cell: &str) -> String {
    let first = cell.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim_start();
    let is_foreign = first.starts_with("%%") && !PYTHON_CELLS.iter().any(|magic| first.starts_with(magic));
    let mut text = String::with_capacity(cell.len() + 1);
    let mut continues = false;
    for line in cell.lines() {
        let start = line.trim_start();
        let is_magic = start.starts_with(['%', '!']) || start.starts_with('?') || continues;
        continues = is_magic && line.trim_end().ends_with('\\');
        if !is_foreign && !is_magic {
            text.push_str(line);
        } else if !is_foreign && start.len() < line.len() && !start.is_empty() {
            // The body of a block may be nothing but a magic.
            let indent = line.get(..line.len() - start.len()).unwrap_or_default();
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
    fn format_3_keeps_its_cells_in_worksheets() {
        let json = r#"{"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": ["a = 1"]}]}]}"#;
        assert_eq!(read(&mut json.as_bytes(), 1 << 20).unwrap().source.text(), "a = 1\n");
    }
}
