//! Splits a log line into words, numbers and signs.
//!
//! Quotes are passed over, so JSON and Python dictionaries read like plain text. Knows no key and no unit.

/// A piece of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind<'a> {
    /// Letters, digits and underscores, beginning with a letter or underscore.
    Word(&'a str),
    /// An unsigned number.
    Number(Number),
    /// Any other visible character.
    Sign(char),
}

/// A number as printed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number {
    pub(super) value: f64,
    /// Set when it has neither point nor exponent.
    pub(super) whole: Option<u64>,
}

/// A token and where it stands, to tell `5GB` from `5 GB`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The tokens of a line.
pub(super) fn tokens(line: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = line;
    let mut depth = 0u32;
    while let Some(c) = rest.chars().next() {
        let start = line.len().saturating_sub(rest.len());
        let (kind, used) = if c.is_ascii_alphabetic() || c == '_' {
            let end = rest.bytes().position(|b| !(b.is_ascii_alphanumeric() || b == b'_')).unwrap_or(rest.len());
            (rest.get(..end).map(Kind::Word), end)
        } else if c.is_ascii_digit() {
            let (number, end) = number(rest, depth == 0);
            (number.map(Kind::Number), end)
        } else {
            match c {
                '(' | '[' | '{' => depth = depth.saturating_add(1),
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            let seen = !(c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | '`' | '*'));
            (seen.then_some(Kind::Sign(c)), c.len_utf8())
        };
        tokens.extend(kind.map(|kind| Token { kind, start, end: start.saturating_add(used) }));
        rest = rest.get(used..).unwrap_or_default();
    }
    tokens
}

/// `12`, `12.5`, `1.2e-05`; `4,207` where `grouped` allows it (inside brackets a comma parts two numbers).
fn number(text: &str, grouped: bool) -> (Option<Number>, usize) {
    let digits_from = |from: usize| text.bytes().skip(from).take_while(u8::is_ascii_digit).count();
    let byte = |at: usize| text.as_bytes().get(at).copied();
    let mut end = digits_from(0);
    if grouped && end <= 3 {
        while byte(end) == Some(b',') && digits_from(end.saturating_add(1)) == 3 {
            end = end.saturating_add(4);
        }
    }
    // `1_000_000_000` of Python.
    while byte(end) == Some(b'_') && digits_from(end.saturating_add(1)) == 3 {
        end = end.saturating_add(4);
    }
    let whole_end = end;
    if byte(end) == Some(b'.') {
        let point = end.saturating_add(1);
        let decimals = digits_from(point);
        if decimals > 0 {
            end = point.saturating_add(decimals);
        }
    }
    if matches!(byte(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(byte(end.saturating_add(1)), Some(b'+' | b'-')));
        let first = end.saturating_add(1).saturating_add(sign);
        let exponent = digits_from(first);
        if exponent > 0 {
            end = first.saturating_add(exponent);
        }
    }
    let plain: String = text.get(..end).unwrap_or_default().chars().filter(|c| !matches!(c, ',' | '_')).collect();
    let whole = if end == whole_end { plain.parse().ok() } else { None };
    (plain.parse().ok().map(|value| Number { value, whole }), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        let show = |t: Token<'_>| match t.kind {
            Kind::Word(word) => word.to_owned(),
            Kind::Number(n) => format!("#{}", n.value),
            Kind::Sign(c) => c.to_string(),
        };
        tokens(line).into_iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_line_becomes_words_numbers_and_signs() {
        assert_eq!(shown("shape=(8, 512) cur=10240.0MB"), "shape = ( #8 , #512 ) cur = #10240 MB");
        assert_eq!(shown("tps: 4,207  x (8,512)"), "tps : #4207 x ( #8 , #512 )");
        assert_eq!(shown("{\"rank\": 0, 'loss': 1.5e-05}"), "{ rank : #0 , loss : #0.000015 }");
        assert_eq!(shown("max reserved: 26716.0[Rank 49]"), "max reserved : #26716 [ Rank #49 ]");
        assert_eq!(shown("1_000_000 2_5 3_0000"), "#1000000 #2 _5 #3 _0000");
        assert_eq!(shown("0x7f 1.2.3 5e 显"), "#0 x7f #1.2 . #3 #5 e 显");
    }

    #[test]
    fn absurd_numbers_do_no_harm() {
        assert_eq!(tokens(&"9".repeat(500)).len(), 1);
        assert_eq!(shown("1e99999"), "#inf");
    }
}
