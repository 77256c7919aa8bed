//! The heat strip of a card: signs to shapes. The same on the server, which draws the page, and in the browser, which
//! keeps it moving.

use std::fmt::Write as _;

/// Shapes of a strip: for each level that occurs its digit and the path of its cells, in a box of one unit per sign
/// and one unit high. Cells of equal level that touch are one shape.
pub fn paths(heat: &str) -> Vec<(char, String)> {
    let mut found: Vec<(char, String)> = Vec::new();
    let mut signs = heat.chars().enumerate().peekable();
    while let Some((from, level)) = signs.next() {
        let mut width = 1;
        while signs.next_if(|(_, next)| *next == level).is_some() {
            width += 1;
        }
        if !level.is_ascii_digit() {
            continue;
        }
        let at = found.iter().position(|(known, _)| *known == level).unwrap_or_else(|| {
            found.push((level, String::new()));
            found.len() - 1
        });
        if let Some((_, path)) = found.get_mut(at) {
            let _ = write!(path, "M{from} 0h{width}v1h-{width}z");
        }
    }
    found.sort_by_key(|(level, _)| *level);
    found
}

/// The shapes as the inner markup of the strip's drawing.
pub fn markup(heat: &str) -> String {
    paths(heat).into_iter().fold(String::new(), |mut out, (level, path)| {
        let _ = write!(out, r#"<path class="h{level}" d="{path}"></path>"#);
        out
    })
}

/// The strip in words.
pub fn words(heat: &str) -> String {
    let highest = heat.chars().filter(char::is_ascii_digit).max();
    match highest {
        None => "nothing known of the last minutes".to_owned(),
        Some('9') => "memory of the last five minutes, at most above 90 %".to_owned(),
        Some(level) => {
            let upper = level.to_digit(10).map_or(0, |digit| (digit + 1) * 10);
            format!("memory of the last five minutes, at most {upper} %")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_neighbours_are_one_shape_and_gaps_stay_empty() {
        assert_eq!(paths("..0077.7"), [('0', "M2 0h2v1h-2z".to_owned()), ('7', "M4 0h2v1h-2zM7 0h1v1h-1z".to_owned())]);
        assert!(paths("....").is_empty() && paths("").is_empty());
        assert_eq!(markup("9"), r#"<path class="h9" d="M0 0h1v1h-1z"></path>"#);
        // Only digits become part of markup.
        assert_eq!(markup("<\"&"), "");
    }

    #[test]
    fn strips_are_said() {
        assert_eq!(words("..37"), "memory of the last five minutes, at most 80 %");
        assert_eq!(words("9"), "memory of the last five minutes, at most above 90 %");
        assert_eq!(words("..."), "nothing known of the last minutes");
    }
}
