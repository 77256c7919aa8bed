//! `torch.cuda.memory_stats_as_nested_dict()` as people print it: on one line, by `pprint`, or as JSON.
//!
//! The same counters as `memory_stats()`, whose keys stand one inside the other and mostly on lines of their own. Only
//! what stands under `all` of a counter of bytes is a figure of one moment.

use super::keys::Figure;
use crate::lines::{Label, Line};
use rankscope_model::Bytes;

/// Counters of one print; the first of them to be opened begins it.
const METRICS: [&str; 9] = [
    "active",
    "active_bytes",
    "allocated_bytes",
    "allocation",
    "inactive_split",
    "inactive_split_bytes",
    "requested_bytes",
    "reserved_bytes",
    "segment",
];
/// Three levels are printed; deeper ones are something else.
const MAX_DEPTH: usize = 4;
/// Lines of others between the lines of a print.
const MAX_GAP: u32 = 64;

/// A print that goes on.
#[derive(Debug)]
struct Open {
    label: Label,
    /// Keys whose braces are open, outermost first.
    path: Vec<String>,
    gap: u32,
}

/// Follows one print at a time.
#[derive(Debug, Default)]
pub(super) struct Nested {
    open: Option<Open>,
}

impl Nested {
    /// Takes a line: its figures, which may be none, if it belongs to a print.
    pub(super) fn line(&mut self, line: &Line<'_>) -> Option<Vec<(Figure, Bytes)>> {
        if let Some(open) = &mut self.open {
            if open.label.writer() != line.label.writer() || line.body.is_empty() {
                open.gap = open.gap.saturating_add(1);
                if open.gap > MAX_GAP {
                    self.open = None;
                }
                return None;
            }
            open.gap = 0;
            if let Some((figures, goes_on)) = walk(line.body, &mut open.path) {
                if !goes_on {
                    self.open = None;
                }
                return Some(figures);
            }
            // Something else of the same writer: the print is over, or was cut.
            self.open = None;
        }
        let mut path = Vec::new();
        let (figures, goes_on) = walk(beginning(line.body)?, &mut path)?;
        if goes_on {
            self.open = Some(Open { label: line.label, path, gap: 0 });
        }
        Some(figures)
    }
}

/// The text from the first counter that opens a brace.
fn beginning(body: &str) -> Option<&str> {
    if !body.contains('{') {
        return None;
    }
    METRICS
        .iter()
        .filter_map(|metric| {
            body.match_indices(metric).map(|(at, _)| at).find(|at| {
                let before = body.get(..*at).unwrap_or_default();
                let after = body.get(at.saturating_add(metric.len())..).unwrap_or_default();
                let is_key = before.ends_with(['\'', '"']) && after.starts_with(['\'', '"']);
                let value = after.get(1..).unwrap_or_default().trim_start();
                is_key && value.strip_prefix(':').is_some_and(|value| value.trim_start().starts_with('{'))
            })
        })
        .min()
        // From the quote in front of it.
        .and_then(|at| body.get(at.saturating_sub(1)..))
}

/// Walks keys, braces and numbers; the figures that stand there, and whether the print goes on behind the line. `None`
/// at anything else.
fn walk(text: &str, path: &mut Vec<String>) -> Option<(Vec<(Figure, Bytes)>, bool)> {
    let mut figures = Vec::new();
    let mut key: Option<String> = None;
    let mut rest = text.trim();
    while let Some(first) = rest.chars().next() {
        match first {
            '\'' | '"' => {
                let inner = rest.get(1..)?;
                let (word, after) = inner.split_at_checked(inner.find(first)?)?;
                key = Some(word.to_owned());
                rest = after.get(1..)?.trim_start().strip_prefix(':')?.trim_start();
                continue;
            }
            '{' => {
                if path.len() >= MAX_DEPTH {
                    return None;
                }
                path.push(key.take()?);
            }
            // The outermost brace was opened before the first counter.
            '}' if path.pop().is_none() => return Some((figures, false)),
            '}' | ',' => {}
            '0'..='9' | '-' => {
                let end = rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '.' | 'e' | '+')).unwrap_or(rest.len());
                let (number, after) = rest.split_at_checked(end)?;
                if let (Some(figure), Ok(value)) = (figure(path, &key.take()?), number.parse()) {
                    figures.push((figure, Bytes(value)));
                }
                rest = after.trim_start();
                continue;
            }
            _ => return None,
        }
        rest = rest.get(1..)?.trim_start();
    }
    Some((figures, true))
}

fn figure(path: &[String], key: &str) -> Option<Figure> {
    let [metric, pool] = path else { return None };
    match (metric.as_str(), pool.as_str(), key) {
        ("active_bytes", "all", "current") => Some(Figure::Active),
        ("allocated_bytes", "all", "current") => Some(Figure::Allocated),
        ("allocated_bytes", "all", "peak") => Some(Figure::PeakAllocated),
        ("reserved_bytes", "all", "current") => Some(Figure::Reserved),
        ("reserved_bytes", "all", "peak") => Some(Figure::PeakReserved),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(Figure, u64)> {
        let mut nested = Nested::default();
        let line = |number, text| Line { number, text, body: text, label: Label::default(), time: None };
        let lines = (1u64..).zip(text.lines().map(str::trim));
        lines.filter_map(|(number, text)| nested.line(&line(number, text))).flatten().map(|(f, b)| (f, b.0)).collect()
    }

    #[test]
    fn every_printed_form_gives_the_same() {
        let expected = [
            (Figure::Active, 3),
            (Figure::Allocated, 2),
            (Figure::PeakAllocated, 4),
            (Figure::Reserved, 8),
            (Figure::PeakReserved, 9),
        ];
        let one_line = "{'active': {'all': {'allocated': 7, 'current': 5, 'freed': 2, 'peak': 6}}, 'active_bytes': {'all': {'allocated': 7, 'current': 3, 'freed': 2, 'peak': 6}}, 'allocated_bytes': {'all': {'allocated': 3, 'current': 2, 'freed': 1, 'peak': 4}, 'large_pool': {'allocated': 0, 'current': 0, 'freed': 0, 'peak': 0}}, 'max_split_size': -1, 'num_ooms': 0, 'oversize_allocations': {'allocated': 0, 'current': 1, 'freed': 0, 'peak': 0}, 'reserved_bytes': {'all': {'allocated': 8, 'current': 8, 'freed': 0, 'peak': 9}}}";
        assert_eq!(read(one_line), expected);
        assert_eq!(read(&format!("rank 0 stats: {one_line}")), expected);
        assert_eq!(read(&one_line.replace('\'', "\"")), expected);
        // pprint breaks behind commas, json.dumps(indent=2) behind braces too.
        assert_eq!(read(&one_line.replace(", ", ",\n    ")), expected);
        assert_eq!(
            read(&one_line.replace('\'', "\"").replace('{', "{\n").replace(", ", ",\n").replace('}', "\n}")),
            expected
        );
    }

    #[test]
    fn other_dictionaries_and_cut_prints_give_nothing_false() {
        assert_eq!(read("{'loss': 1.5, 'memory': {'current': 5}}"), []);
        assert_eq!(read("{'allocated_bytes': {'large_pool': {'current': 2, 'peak': 3}}}"), []);
        // After a cut, a bare pair is of nobody.
        assert_eq!(
            read("{'allocated_bytes': {'all': {'allocated': 3,\nTraceback (most recent call last):\n'current': 2}"),
            []
        );
        assert_eq!(read("{'allocated_bytes': {'all': {'current': 99999999999999999999999}}}"), []);
        assert_eq!(read("{'active': {'a': {'b': {'c': {'d': {'e': 1}}}}}}"), []);
    }
}
