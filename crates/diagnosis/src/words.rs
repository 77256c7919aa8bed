//! Small pieces of wording shared by reasons, claims and the headline.

use rankscope_model::{Bytes, Subject, UnixMicros};

/// `one` to `twelve`, then digits.
pub(crate) fn count(n: usize) -> String {
    const WORDS: [&str; 13] =
        ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
    WORDS.get(n).map_or_else(|| n.to_string(), |word| (*word).to_owned())
}

/// `one process`, `seven processes`.
pub(crate) fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// `1 row`, `3 rows`, where figures stand around it.
pub(crate) fn numbered(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// `both cards`, `all eight cards`.
pub(crate) fn all_of(n: usize, many: &str) -> String {
    if n == 2 { format!("both {many}") } else { format!("all {} {many}", count(n)) }
}

/// First letter in upper case.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// `GPU 0`, `GPUs 1 to 7`, `ranks 0, 2 and 5`; more than six that form no range are counted.
pub(crate) fn subjects(list: &[Subject]) -> String {
    match list {
        [] => return "none".to_owned(),
        [only] => return only.to_string(),
        _ => {}
    }
    let ranks: Option<Vec<u32>> = list.iter().map(|s| s.rank()).collect();
    let devices: Option<Vec<u32>> =
        list.iter().map(|s| if matches!(s, Subject::Device(_)) { s.device() } else { None }).collect();
    match (ranks, devices) {
        (Some(numbers), _) => format!("ranks {}", numbers_text(&numbers)),
        (_, Some(numbers)) => format!("GPUs {}", numbers_text(&numbers)),
        _ => join(&list.iter().map(ToString::to_string).collect::<Vec<_>>()),
    }
}

/// `1 to 7` for a run of at least three, `0 to 3 and 60 to 63`, else `0, 2 and 5`.
fn numbers_text(numbers: &[u32]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs = sorted.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let parts: Vec<String> = runs
        .flat_map(|run| match run {
            [first, _, .., last] => vec![format!("{first} to {last}")],
            few => few.iter().map(ToString::to_string).collect(),
        })
        .collect();
    join(&parts)
}

/// `a`, `a and b`, `a, b and c`; from the seventh on `and 12 more`.
pub(crate) fn join(items: &[String]) -> String {
    const SHOWN: usize = 6;
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [head @ .., last] if items.len() <= SHOWN => format!("{} and {last}", head.join(", ")),
        _ => {
            let shown: Vec<&str> = items.iter().take(SHOWN).map(String::as_str).collect();
            format!("{} and {} more", shown.join(", "), items.len() - SHOWN)
        }
    }
}

/// `training`, `training and validation`.
pub(crate) fn join_words(items: &[&str]) -> String {
    join(&items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>())
}

/// `from 17:40:05 to 17:42:10`; `at 17:40:05` where both are of one second.
pub(crate) fn from_to(from: UnixMicros, to: UnixMicros) -> String {
    match (from.clock(), to.clock()) {
        (from, to) if from == to => format!("at {from}"),
        (from, to) => format!("from {from} to {to}"),
    }
}

/// First letter in lower case; acronyms such as `NCCL` and names such as `GPU 0` stay.
pub(crate) fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), text.chars().nth(1)) {
        (Some(_), Some(second)) if second.is_uppercase() => text.to_owned(),
        (Some(first), _) => first.to_lowercase().chain(chars).collect(),
        (None, _) => String::new(),
    }
}

/// `871 MiB each`, `519 to 523 MiB`; empty when nothing is known.
pub(crate) fn sizes(values: &[u64]) -> String {
    let (Some(min), Some(max)) = (values.iter().min(), values.iter().max()) else {
        return String::new();
    };
    let (low, high) = (Bytes(*min).to_string(), Bytes(*max).to_string());
    match (values.len(), low == high) {
        (1, _) => high,
        (_, true) => format!("{high} each"),
        (_, false) => format!("{low} to {high}"),
    }
}

/// `at 1.7 GiB`, `between 21.0 GiB and 21.2 GiB`.
pub(crate) fn span(min: u64, max: u64) -> String {
    let (low, high) = (Bytes(min).to_string(), Bytes(max).to_string());
    if low == high { format!("at {high}") } else { format!("between {low} and {high}") }
}

/// `3 %` of a share; at least `1 %` when not zero, so that little does not read as nothing.
pub(crate) fn percent(share: f64) -> String {
    if !share.is_finite() {
        return "many %".to_owned();
    }
    let whole = (share * 100.0).round();
    if whole < 1.0 && share > 0.0 { "under 1 %".to_owned() } else { format!("{whole:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{MIB, Rank};

    #[test]
    fn lists_read_as_people_write_them() {
        let gpus: Vec<Subject> = (1..8).map(Subject::Device).collect();
        assert_eq!(subjects(&gpus), "GPUs 1 to 7");
        assert_eq!(subjects(&[Subject::Rank(Rank(0)), Subject::Rank(Rank(2))]), "ranks 0 and 2");
        assert_eq!(subjects(&[Subject::Device(3)]), "GPU 3");
        let ends: Vec<Subject> = [0, 1, 2, 3, 60, 61].map(|rank| Subject::Rank(Rank(rank))).to_vec();
        assert_eq!(subjects(&ends), "ranks 0 to 3, 60 and 61");
        let many: Vec<Subject> = (0..20).map(|n| Subject::Device(n * 2)).collect();
        assert_eq!(subjects(&many), "GPUs 0, 2, 4, 6, 8, 10 and 14 more");
    }

    #[test]
    fn figures_read_as_people_write_them() {
        assert_eq!(sizes(&[871 * MIB; 7]), "871 MiB each");
        assert_eq!(sizes(&[519 * MIB, 523 * MIB]), "519 MiB to 523 MiB");
        assert_eq!(percent(0.2404), "24 %");
        assert_eq!(percent(0.004), "under 1 %");
        assert_eq!(counted(7, "process", "processes"), "seven processes");
    }
}
