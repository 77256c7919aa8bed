//! Which characters a reader sees, and which only change what is seen. Knows nothing of where they are shown.

/// Marks that turn the reading direction: with them a text can look like another.
pub fn bends(sign: char) -> bool {
    matches!(sign, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Characters of which nothing is seen when they stand alone.
pub fn is_invisible(sign: char) -> bool {
    sign.is_whitespace()
        || sign.is_control()
        || bends(sign)
        || matches!(sign, '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
}
