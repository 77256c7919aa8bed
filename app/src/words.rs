//! How figures, times and foreign text are put into words. Knows the model's units, no page and no markup.

use rankscope_model::{ArtifactInfo, Bytes, Phase, Quantity, UnixMicros};
use std::fmt::Write as _;

/// Foreign text (names, quotes, titles) as it may be shown: control characters and the marks that turn the direction
/// of text are written out, because they can make a line read as something that it is not. Markup is escaped later,
/// by the renderer.
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            // Bidirectional controls, invisible joiners that hide text, and the byte order mark.
            '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
                let _ = write!(out, "\u{27e8}U+{:04X}\u{27e9}", u32::from(c));
            }
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// [`shown`], in one line: for titles and names.
pub fn shown_line(text: &str) -> String {
    shown(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Foreign text for the document's title, which `leptos_meta` writes as it is: without this a title could end the
/// element and begin another.
pub fn title_text(text: &str) -> String {
    shown_line(text).replace('&', "&amp;").replace('<', "&lt;")
}

/// The first sentence and the rest. A full stop ends a sentence only where a space and then a capital or a digit
/// follow, and not after an abbreviation, so that `train.py`, `1.5` and `e.g. 3` stay whole.
pub fn first_sentence(text: &str) -> (&str, &str) {
    const ABBREVIATIONS: [&str; 6] = ["e.g", "i.e", "vs", "approx", "no", "ca"];
    for (at, _) in text.match_indices(". ") {
        let (first, rest) = text.split_at(at + 1);
        let rest = rest.trim_start();
        let last_word = first.trim_end_matches('.').rsplit([' ', '(']).next().unwrap_or_default();
        let begins = rest.chars().next().is_some_and(|c| c.is_uppercase() || c.is_ascii_digit());
        if begins && !ABBREVIATIONS.contains(&last_word) {
            return (first, rest);
        }
    }
    (text, "")
}

/// `33,608,957,952`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A quantity's value: bytes in binary units, batch sizes as plain numbers.
pub fn value(quantity: Quantity, n: u64) -> String {
    match quantity {
        Quantity::BatchTokens | Quantity::BatchSamples => grouped(n),
        _ => Bytes(n).to_string(),
    }
}

/// A difference with its sign: `+1.2 GiB`, `\u{2212}5.9 GiB`, `0`.
pub fn difference(quantity: Quantity, n: i64) -> String {
    match n {
        0 => "0".to_owned(),
        n if n > 0 => format!("+{}", value(quantity, n.unsigned_abs())),
        n => format!("\u{2212}{}", value(quantity, n.unsigned_abs())),
    }
}

/// What the job did, as a noun; training where a log names no phase.
pub fn phase(phase: Option<Phase>) -> &'static str {
    match phase {
        None => "whole run",
        Some(Phase::Init) => "initialisation",
        Some(Phase::Train) => "training",
        Some(Phase::Eval) => "validation",
        Some(Phase::Save) => "saving",
        Some(Phase::Resume) => "loading",
    }
}

/// Percent-encodes what may not stand in a segment or a value of an address.
pub fn encoded(segment: &str) -> String {
    let mut out = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// A clause as a sentence: a capital first, a full stop last.
pub fn sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// `1 file`, `3 files`.
pub fn count(n: usize, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}

/// The same of a word whose plural is another.
#[cfg(feature = "ssr")]
pub fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// `24 %` of 0.24; one decimal below 10 %, where whole numbers would hide the difference.
pub fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent < 9.95 && percent > 0.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Ascending numbers in runs: `0, 2 to 7`.
pub fn runs(numbers: &[u32]) -> String {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for &n in numbers {
        match spans.last_mut() {
            Some((_, end)) if *end == n => {}
            Some((_, end)) if end.checked_add(1) == Some(n) => *end = n,
            _ => spans.push((n, n)),
        }
    }
    let words: Vec<String> = spans
        .iter()
        .map(|&(from, to)| match to - from {
            0 => from.to_string(),
            1 => format!("{from}, {to}"),
            _ => format!("{from} to {to}"),
        })
        .collect();
    words.join(", ")
}

/// `rank 3`, `ranks 1 to 7`, `GPU 0`; empty for no numbers.
pub fn numbered(one: &str, numbers: &[u32]) -> String {
    match numbers {
        [] => String::new(),
        [n] => format!("{one} {n}"),
        many => format!("{one}s {}", runs(many)),
    }
}

/// What a file speaks of: `ranks 0 to 3, GPUs 0 to 3`; empty when it names none.
pub fn speaks_of(file: &ArtifactInfo) -> String {
    let parts = [numbered("rank", &file.ranks), numbered("GPU", &file.devices)];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// How sure, in a word. The figure always stands beside it with two decimals, so the word follows those.
pub fn confidence(value: f64) -> &'static str {
    match (value * 100.0).round() / 100.0 {
        v if v >= 0.9 => "very likely",
        v if v >= 0.65 => "likely",
        v if v >= 0.2 => "possible",
        _ => "unlikely",
    }
}

/// `16 Dec 2024, 10:41 UTC`.
pub fn time(at: UnixMicros) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day, hour, minute, _) = civil(at);
    let month = MONTHS.get(usize::from(month - 1)).copied().unwrap_or_default();
    format!("{day} {month} {year}, {hour:02}:{minute:02} UTC")
}

/// `2024-12-16T10:41:07Z`, for machines.
pub fn time_iso(at: UnixMicros) -> String {
    let (year, month, day, hour, minute, second) = civil(at);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// `10:41:07`.
pub fn clock(at: UnixMicros) -> String {
    let (_, _, _, hour, minute, second) = civil(at);
    format!("{hour:02}:{minute:02}:{second:02}")
}

/// `4.25 s after its start`, `0:01:07 after its start`, of microseconds.
#[cfg(any(feature = "hydrate", test))]
pub fn since_start(micros: i64) -> String {
    let seconds = micros.div_euclid(1_000_000);
    if seconds < 60 {
        return format!("{:.2} s after its start", micros as f64 / 1e6);
    }
    format!("{}:{:02}:{:02} after its start", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Year, month, day, hour, minute, second in UTC (proleptic Gregorian calendar, days counted from 1 March of year 0
/// so that the leap day comes last).
fn civil(at: UnixMicros) -> (i64, u8, u8, u8, u8, u8) {
    let seconds = at.0.div_euclid(1_000_000);
    let (days, second_of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let small = |n: i64| u8::try_from(n).unwrap_or_default();
    (
        year,
        small(month),
        small(day),
        small(second_of_day / 3_600),
        small(second_of_day / 60 % 60),
        small(seconds.rem_euclid(60)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_since_a_start_are_seconds_and_then_a_clock() {
        assert_eq!(since_start(4_250_000), "4.25 s after its start");
        assert_eq!(since_start(3_667_000_000), "1:01:07 after its start");
    }

    #[test]
    fn direction_marks_and_controls_are_written_out() {
        assert_eq!(shown("a\u{202e}txt.exe\u{7}"), "a\u{27e8}U+202E\u{27e9}txt.exe\u{fffd}");
        assert_eq!(shown("显存 ünïcode\tok"), "显存 ünïcode\tok");
        assert_eq!(shown_line("  two\n lines "), "two lines");
    }

    #[test]
    fn the_word_agrees_with_the_figure_beside_it() {
        assert_eq!(confidence(0.1951), "possible", "shown as 0.20");
        assert_eq!(confidence(0.1949), "unlikely", "shown as 0.19");
        assert_eq!(confidence(0.896), "very likely", "shown as 0.90");
    }

    #[test]
    fn sentences_end_before_capitals_only() {
        assert_eq!(first_sentence("See train.py. It binds nothing."), ("See train.py.", "It binds nothing."));
        assert_eq!(first_sentence("14.5 GiB here. 2.6 GiB are open."), ("14.5 GiB here.", "2.6 GiB are open."));
        assert_eq!(first_sentence("About 1.5 GiB, e.g. 3 or more."), ("About 1.5 GiB, e.g. 3 or more.", ""));
        assert_eq!(
            first_sentence("It is at 31.5 GiB. 6.0 GiB are explained."),
            ("It is at 31.5 GiB.", "6.0 GiB are explained.")
        );
    }

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(runs(&[0, 2, 3, 4, 7, 8]), "0, 2 to 4, 7, 8");
        assert_eq!(numbered("rank", &[3]), "rank 3");
        assert_eq!(grouped(33_608_957_952), "33,608,957,952");
        assert_eq!(grouped(871), "871");
        assert_eq!(percent(0.238), "24 %");
        assert_eq!(percent(0.031), "3.1 %");
        assert_eq!(percent(0.0), "0 %");
    }

    #[test]
    fn times_are_utc() {
        let at = UnixMicros(1_734_345_667_000_000);
        assert_eq!(time(at), "16 Dec 2024, 10:41 UTC");
        assert_eq!(time_iso(at), "2024-12-16T10:41:07Z");
        assert_eq!(time_iso(UnixMicros(951_782_400_000_000)), "2000-02-29T00:00:00Z");
        assert_eq!(time_iso(UnixMicros(-1)), "1969-12-31T23:59:59Z");
    }
}
