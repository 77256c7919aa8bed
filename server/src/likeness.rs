//! How like two words are: what a slip of the hand may have meant.

/// Signs to change, add or leave out.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (n, sign) in a.chars().enumerate() {
        let mut before = n;
        row[0] = n + 1;
        for (at, other) in b.iter().enumerate() {
            let change = before + usize::from(sign != *other);
            before = row[at + 1];
            row[at + 1] = change.min(before + 1).min(row[at] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// The word of a list that was probably meant; `None` where none is near.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|word| (distance(wanted, word), word));
    let (steps, word) = near.min()?;
    (steps <= (wanted.chars().count() / 3).max(1)).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_changes() {
        for (a, b, steps) in
            [("", "", 0), ("abc", "abc", 0), ("abc", "abd", 1), ("abc", "xabc", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), steps, "{a} {b}");
        }
    }

    #[test]
    fn what_is_far_is_not_offered() {
        let known = ["listen", "data", "max-file-bytes"];
        assert_eq!(nearest("lisen", known), Some("listen"));
        assert_eq!(nearest("max_file_bytes", known), Some("max-file-bytes"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("x", []), None);
    }
}
