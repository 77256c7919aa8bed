//! `torch.cuda.memory_stats()` as people print it: an `OrderedDict`, JSON, or one `key: value` a line.
//!
//! Only five of its many numbers are figures of one moment; the rest (lifetime totals, pools, counts) must not be
//! taken for any.

use super::keys::Figure;
use rankscope_model::Bytes;

/// Whether a line holds statistics of this kind, so that nothing else should be looked for in it.
pub(super) fn is_stats(body: &str) -> bool {
    body.contains("large_pool") || body.contains("small_pool") || body.contains(".all.") || body.contains("/all/")
}

const KEYS: [(&str, Figure); 5] = [
    ("active_bytes.all.current", Figure::Active),
    ("allocated_bytes.all.current", Figure::Allocated),
    ("allocated_bytes.all.peak", Figure::PeakAllocated),
    ("reserved_bytes.all.current", Figure::Reserved),
    ("reserved_bytes.all.peak", Figure::PeakReserved),
];

/// The figures in a line; the keys may be joined by points or by slashes (as in event files).
pub(super) fn figures(body: &str) -> Vec<(Figure, Bytes)> {
    let joined = body.replace('/', ".");
    let mut found: Vec<(usize, Figure, Bytes)> = Vec::new();
    for (key, figure) in KEYS {
        for (at, _) in joined.match_indices(key) {
            // `inactive_allocated_bytes` would be another counter.
            let before = joined.get(..at).unwrap_or_default();
            let alone = !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
            let value = joined.get(at.saturating_add(key.len())..).and_then(value);
            if let (true, Some(value)) = (alone, value) {
                found.push((at, figure, value));
            }
        }
    }
    found.sort_by_key(|(at, ..)| *at);
    found.into_iter().map(|(_, figure, value)| (figure, value)).collect()
}

/// The number behind a key: `', 123)`, `": 123,`, `: 123`, `=123`.
fn value(after: &str) -> Option<Bytes> {
    let digits = after.trim_start_matches(['\'', '"', ',', ':', '=', ' ', '\t', '\u{a0}']);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    // In a dictionary a sign follows each value: where none does, the print was cut, perhaps amid the number.
    if after.starts_with(['\'', '"']) && end == digits.len() {
        return None;
    }
    digits.get(..end)?.parse().ok().map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_printed_form() {
        let peak = [(Figure::PeakAllocated, Bytes(123))];
        assert_eq!(figures("             ('allocated_bytes.all.peak', 123),"), peak);
        assert_eq!(figures(" \"allocated_bytes.all.peak\": 123,"), peak);
        assert_eq!(figures("allocated_bytes.all.peak: 123"), peak);
        assert_eq!(figures("allocated_bytes/all/peak=123"), peak);
        assert_eq!(figures("('allocated_bytes.all.peak', 12"), []);
        assert_eq!(figures("('active_bytes.all.peak', 5), ('allocated_bytes.all.allocated', 6)"), []);
        assert_eq!(figures("('active_bytes.all.current', 5),"), [(Figure::Active, Bytes(5))]);
        assert_eq!(
            figures(
                "OrderedDict([('reserved_bytes.all.current', 2), ('reserved_bytes.all.peak', 3), ('allocated_bytes.all.current', 1)])"
            ),
            [(Figure::Reserved, Bytes(2)), (Figure::PeakReserved, Bytes(3)), (Figure::Allocated, Bytes(1))]
        );
    }
}
