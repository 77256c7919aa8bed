//! How wide a text will be, and how to make it fit. Knows no chart and no backend.
//!
//! The real font is chosen by the reader's browser, so widths are estimates on the safe side: those of
//! `DejaVu Sans`, which is wider than Inter, Arial, Ubuntu and the other fonts that a page falls back to.

/// Advance of U+0020 to U+007E in hundredths of an em (`DejaVu Sans`).
const ADVANCES: [u8; 95] = [
    32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 34, 34, 84,
    84, 84, 53, 100, 68, 69, 70, 77, 63, 58, 77, 75, 29, 29, 66, 56, 86, 75, 79, 60, 79, 69, 63, 61, 73, 68, 99, 69,
    61, 69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35, 63, 63, 28, 28, 58, 28, 97, 63, 61, 63, 63, 41, 52, 39, 63,
    59, 82, 59, 59, 52, 64, 34, 64, 84,
];

/// Bold faces are wider; `DejaVu Sans Bold` by 11 % on average.
const BOLD: f64 = 1.12;

/// Estimated width in the unit of `size`.
pub(crate) fn width(text: &str, size: f64, bold: bool) -> f64 {
    let hundredths: f64 = text.chars().map(advance).sum();
    hundredths / 100.0 * size * if bold { BOLD } else { 1.0 }
}

fn advance(character: char) -> f64 {
    let code = u32::from(character);
    let known = code.checked_sub(0x20).and_then(|index| ADVANCES.get(usize::try_from(index).ok()?));
    match known {
        Some(&hundredths) => f64::from(hundredths),
        None if code < 0x20 => 0.0,
        // Latin, Greek and Cyrillic letters are rarely wider than this; ideographs take a whole em.
        None if code < 0x0590 => 70.0,
        None => 100.0,
    }
}

/// One line without control characters, which XML cannot hold, and without those that turn the direction of what
/// stands around them.
pub(crate) fn one_line(text: &str) -> String {
    let is_unfit = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
    };
    let clean: String = text.chars().map(|c| if is_unfit(c) { ' ' } else { c }).collect();
    clean.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text, or as much of it as fits, ending in an ellipsis; empty when not even that fits.
pub(crate) fn fit(text: &str, size: f64, bold: bool, max: f64) -> String {
    if width(text, size, bold) <= max {
        return text.to_owned();
    }
    let room = max - width("…", size, bold);
    let mut kept = String::new();
    let mut used = 0.0;
    for character in text.chars() {
        used += width(character.encode_utf8(&mut [0; 4]), size, bold);
        if used > room {
            break;
        }
        kept.push(character);
    }
    let kept = kept.trim_end_matches([' ', ',', '.', ';', ':']);
    if kept.is_empty() { String::new() } else { format!("{kept}…") }
}

/// Breaks a text at spaces into at most `lines` lines of at most `max` by a measure; what is left over ends in an
/// ellipsis.
#[cfg(feature = "native")]
pub(crate) fn wrap(text: &str, max: f64, lines: usize, measure: impl Fn(&str) -> f64) -> Vec<String> {
    let mut wrapped: Vec<String> = Vec::new();
    let mut line = String::new();
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.peek() {
        let longer = if line.is_empty() { (*word).to_owned() } else { format!("{line} {word}") };
        if measure(&longer) <= max || line.is_empty() {
            line = longer;
            words.next();
        } else if wrapped.len() + 1 >= lines {
            line = words.by_ref().fold(line, |rest, word| format!("{rest} {word}"));
        } else {
            wrapped.push(std::mem::take(&mut line));
        }
    }
    if !line.is_empty() && wrapped.len() < lines {
        wrapped.push(line);
    }
    for line in &mut wrapped {
        if measure(line) > max {
            while measure(line) + measure("…") > max && line.pop().is_some() {}
            *line = format!("{}…", line.trim_end_matches([' ', ',', '.', ';', ':']));
        }
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_stay_whole_and_long_ones_end_in_an_ellipsis() {
        assert_eq!(fit("rank 0", 12.0, false, 60.0), "rank 0");
        let short = fit("gap opens at DDP(), +5.95 GiB", 12.0, false, 90.0);
        assert!(short.ends_with('…') && short.starts_with("gap opens"), "{short}");
        assert!(width(&short, 12.0, false) <= 90.0);
        assert_eq!(fit("gap", 12.0, false, 4.0), "");
    }

    #[cfg(feature = "native")]
    #[test]
    fn wrapping_keeps_every_word_when_there_is_room() {
        let text = "Rank 0's card is 24 % fuller because the other seven ranks also opened a CUDA context on it.";
        let measure = |text: &str| width(text, 44.0, true);
        let lines = wrap(text, 1000.0, 4, measure);
        assert_eq!(lines.join(" "), text);
        assert!(lines.iter().all(|line| measure(line) <= 1000.0));
        let cut = wrap(text, 600.0, 2, measure);
        assert_eq!(cut.len(), 2);
        assert!(cut[1].ends_with('…'));
    }

    #[test]
    fn foreign_text_becomes_one_clean_line() {
        assert_eq!(one_line("a\u{1b}[31m\n b\u{0}"), "a [31m b");
    }
}
