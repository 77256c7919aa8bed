//! Logs that are a table of their own: a head such as `step rank img_shape n_gt peak_mb`, then rows of values.
//!
//! Columns may be parted by blanks, commas or bars; a shape in brackets is one cell.

use super::keys::{Key, Parts, unit};
use super::records::Draft;
use rankscope_model::{Bytes, Rank, Step};

/// A head that was found.
#[derive(Debug)]
pub(super) struct Columns {
    columns: Vec<Option<(Key, Option<u64>)>>,
    /// Rows in a row that did not fit.
    misses: u32,
}

/// Wider lines are no table of this kind.
const MAX_COLUMNS: usize = 64;
/// Lines of other text inside a table.
const MAX_MISSES: u32 = 3;

impl Columns {
    /// Takes a line for a head if it names a rank and a memory figure with its unit, and holds words only.
    pub(super) fn head(body: &str) -> Option<Self> {
        // A head has none of the signs of an ordinary log line.
        if body.len() > 2048 || body.bytes().any(|b| matches!(b, b'=' | b':')) || !body.contains("rank") {
            return None;
        }
        let cells = cells(body)?;
        let is_word = |cell: &&str| {
            cell.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                && !cell.as_bytes().first().is_some_and(u8::is_ascii_digit)
        };
        if cells.len() < 2 || !cells.iter().all(is_word) {
            return None;
        }
        let columns: Vec<_> = cells
            .iter()
            .map(|cell| {
                let parts = Parts::of(&[cell]);
                Some((parts.key()?, parts.unit))
            })
            .collect();
        let has_rank = columns.iter().flatten().any(|(key, _)| *key == Key::Rank);
        let has_memory = columns.iter().flatten().any(|(key, unit)| matches!(key, Key::Memory(_)) && unit.is_some());
        (has_rank && has_memory).then_some(Self { columns, misses: 0 })
    }

    /// Whether the table is over.
    pub(super) fn is_over(&self) -> bool {
        self.misses > MAX_MISSES
    }

    /// The row's record, if the line is a row.
    pub(super) fn row(&mut self, body: &str) -> Option<Draft> {
        let row = self.read(body);
        self.misses = if row.is_some() { 0 } else { self.misses.saturating_add(1) };
        row
    }

    fn read(&self, body: &str) -> Option<Draft> {
        let cells = cells(body)?;
        if cells.len() != self.columns.len() {
            return None;
        }
        let mut draft = Draft::default();
        for (cell, column) in cells.iter().zip(&self.columns) {
            let Some((key, unit)) = *column else { continue };
            match key {
                Key::Rank => draft.rank = Some(Rank(cell.parse().ok()?)),
                Key::Step => draft.step = cell.parse().ok().map(Step),
                Key::Tokens => draft.tokens = cell.parse().ok(),
                Key::RoutedTokens => draft.routed_tokens = cell.parse().ok(),
                Key::Samples | Key::Batch => draft.samples = cell.parse().ok(),
                Key::Shape => draft.shape = shape(cell),
                Key::Memory(figure) => draft.set(figure, amount(cell, unit)?),
                _ => {}
            }
        }
        draft.has_memory().then_some(draft)
    }
}

/// `4627`, `4627.5`, `4627MB`.
fn amount(cell: &str, column: Option<u64>) -> Option<Bytes> {
    let end = cell.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(cell.len());
    let (number, own) = cell.split_at(end);
    let unit = if own.is_empty() { column? } else { unit(own, true)? };
    Bytes::from_float(number.parse().ok()?, unit)
}

/// `(800, 1088)`, `800x1088`.
fn shape(cell: &str) -> Option<Vec<u64>> {
    let inner = cell.trim_matches(['(', ')', '[', ']']);
    inner.split([',', 'x']).map(|n| n.trim().parse().ok()).collect()
}

fn cells(body: &str) -> Option<Vec<&str>> {
    let mut cells = Vec::new();
    let mut depth = 0u32;
    let mut start = None;
    for (at, c) in body.char_indices() {
        match c {
            '(' | '[' => depth = depth.saturating_add(1),
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let parts = depth == 0 && (c.is_whitespace() || matches!(c, ',' | '|'));
        match (parts, start) {
            (true, Some(from)) => {
                cells.push(body.get(from..at)?);
                start = None;
            }
            (false, None) => start = Some(at),
            _ => {}
        }
        if cells.len() > MAX_COLUMNS {
            return None;
        }
    }
    if let Some(from) = start {
        cells.push(body.get(from..)?);
    }
    Some(cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::MIB;

    #[test]
    fn a_table_of_blanks_or_commas() {
        for (head, row) in [
            ("step rank img_shape n_gt peak_mb", "3 6 (800, 1333) 341 8337"),
            ("step,rank,img_shape,n_gt,peak_mb", "3,6,(800, 1333),341,8337"),
            ("| step | rank | img_shape | n_gt | peak_mb |", "| 3 | 6 | 800x1333 | 341 | 8337MiB |"),
        ] {
            let mut columns = Columns::head(head).unwrap();
            let record = columns.row(row).unwrap();
            assert_eq!((record.rank, record.step), (Some(Rank(6)), Some(Step(3))));
            assert_eq!(record.shape, Some(vec![800, 1333]));
            assert_eq!(record.peak_allocated, Some(Bytes(8337 * MIB)));
        }
    }

    #[test]
    fn other_lines_are_no_head_and_no_row() {
        assert!(Columns::head("the rank of the matrix").is_none());
        assert!(Columns::head("rank loss").is_none());
        assert!(Columns::head("rank peak").is_none());
        let mut columns = Columns::head("step rank peak_mb").unwrap();
        for _ in 0..4 {
            assert!(columns.row("Traceback (most recent call last):").is_none());
        }
        assert!(columns.is_over());
    }
}
