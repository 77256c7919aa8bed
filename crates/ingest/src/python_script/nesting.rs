//! A bound on how deep a source can nest, found by one linear scan before anything recurses over it.
//!
//! Knows just enough of Python's tokens (brackets, strings, comments, indentation) to never report less than the
//! true depth. Does not judge syntax.

/// Deepest nesting that is read. People write a dozen levels; CPython itself stops at 200 nested brackets and 100
/// levels of indentation. The room above is for long sums and concatenations, which nest to the left.
pub(super) const MAX_DEPTH: usize = 2000;

/// Deepest indentation that is read, that of CPython. What stands within a block is looked through for each block
/// around it.
const MAX_INDENTS: usize = 100;

/// A source nests deeper than is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooDeep {
    /// The 1-based line where it does.
    pub(super) line: u64,
    /// What it may have, with the unit.
    pub(super) limit: String,
}

/// An upper bound of the depth of the syntax tree, unless it passes `limit`.
pub(super) fn bound(text: &str, limit: usize) -> Result<usize, TooDeep> {
    let mut scan = Scan {
        bytes: text.as_bytes(),
        at: 0,
        levels: Vec::new(),
        tokens: 0,
        lambdas: 0,
        outer: 0,
        line: 1,
        indents: vec![0],
        at_line_start: true,
    };
    scan.run(limit)
}

/// What encloses the current position.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// An open bracket; holds its closing byte.
    Bracket(u8),
    /// The text of an f-string or t-string: its quote, and whether that is tripled.
    Format(u8, bool),
    /// The format within a replacement field, text again: `{x:>8}`.
    Spec(u8, bool),
}

/// An enclosing mode, with what was counted outside of it.
struct Level {
    mode: Mode,
    tokens: usize,
    lambdas: usize,
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    levels: Vec<Level>,
    /// Tokens since the last comma or line at this level: an expression cannot nest deeper than it has tokens.
    tokens: usize,
    /// Lambdas since the last line: `lambda a, b: lambda a, b: ...` nests across commas.
    lambdas: usize,
    /// Sum of the counts of all enclosing levels.
    outer: usize,
    line: u64,
    indents: Vec<usize>,
    at_line_start: bool,
}

impl Scan<'_> {
    fn run(&mut self, limit: usize) -> Result<usize, TooDeep> {
        let mut deepest = 0;
        while let Some(byte) = self.peek(0) {
            match self.levels.last().map(|level| level.mode) {
                Some(Mode::Format(quote, is_triple)) => self.format_text(byte, quote, is_triple),
                Some(Mode::Spec(quote, is_triple)) => self.spec_text(byte, quote, is_triple),
                None if self.at_line_start => self.indentation(),
                _ => self.code(byte),
            }
            let open = [self.outer, self.tokens, self.lambdas, self.levels.len(), self.indents.len()];
            let depth = open.into_iter().fold(0, usize::saturating_add);
            if depth > limit {
                return Err(TooDeep { line: self.line, limit: format!("{limit} levels") });
            }
            // The first is that of the file's own level.
            if self.indents.len() > MAX_INDENTS + 1 {
                return Err(TooDeep { line: self.line, limit: format!("{MAX_INDENTS} levels of indentation") });
            }
            deepest = deepest.max(depth);
        }
        Ok(deepest)
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at.saturating_add(ahead)).copied()
    }

    fn advance(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    fn indentation(&mut self) {
        self.at_line_start = false;
        let start = self.at;
        while matches!(self.peek(0), Some(b' ' | b'\t' | b'\x0c')) {
            self.advance(1);
        }
        if matches!(self.peek(0), None | Some(b'\n' | b'\r' | b'#')) {
            return;
        }
        let width = self.at.saturating_sub(start);
        while self.indents.last().is_some_and(|open| *open > width) {
            self.indents.pop();
        }
        if self.indents.last().is_none_or(|open| *open < width) {
            self.indents.push(width);
        }
    }

    fn open(&mut self, mode: Mode) {
        self.levels.push(Level { mode, tokens: self.tokens, lambdas: self.lambdas });
        self.outer = self.outer.saturating_add(self.tokens.saturating_add(self.lambdas));
        self.tokens = 0;
        self.lambdas = 0;
    }

    fn close(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.outer = self.outer.saturating_sub(level.tokens.saturating_add(level.lambdas));
            self.tokens = level.tokens;
            self.lambdas = level.lambdas;
        }
    }

    fn code(&mut self, byte: u8) {
        match byte {
            b'\n' => {
                self.line = self.line.saturating_add(1);
                self.advance(1);
                if self.levels.is_empty() {
                    self.tokens = 0;
                    self.lambdas = 0;
                    self.at_line_start = true;
                }
            }
            // Outside of texts it takes only the end of the line with it.
            b'\\' if matches!(self.peek(1), Some(b'\n' | b'\r')) => self.skip_escape(),
            b'\\' | b' ' | b'\t' | b'\r' | b'\x0c' => self.advance(1),
            b'#' => {
                let rest = self.bytes.get(self.at..).unwrap_or_default();
                self.advance(memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len()));
            }
            b'(' | b'[' | b'{' => {
                self.tokens = self.tokens.saturating_add(1);
                self.advance(1);
                self.open(Mode::Bracket(match byte {
                    b'(' => b')',
                    b'[' => b']',
                    _ => b'}',
                }));
            }
            b')' | b']' | b'}' => {
                self.advance(1);
                // A closer of another kind closes nothing: what the parser then does can only be shallower.
                if self.levels.last().is_some_and(|level| level.mode == Mode::Bracket(byte)) {
                    self.close();
                } else {
                    self.tokens = self.tokens.saturating_add(1);
                }
            }
            b',' | b';' => {
                self.tokens = 0;
                self.advance(1);
            }
            b':' => {
                self.tokens = self.tokens.saturating_add(1);
                self.advance(1);
                if let [.., Level { mode: Mode::Format(quote, is_triple) | Mode::Spec(quote, is_triple), .. }, field] =
                    self.levels.as_slice()
                    && field.mode == Mode::Bracket(b'}')
                {
                    let (quote, is_triple) = (*quote, *is_triple);
                    self.open(Mode::Spec(quote, is_triple));
                }
            }
            b'"' | b'\'' => self.string(byte, b""),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9' | 0x80.. => self.word(),
            _ => {
                self.tokens = self.tokens.saturating_add(1);
                self.advance(1);
            }
        }
    }

    fn word(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let is_word = |b: &&u8| matches!(b, b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9' | 0x80..);
        let word = rest.get(..rest.iter().take_while(is_word).count()).unwrap_or_default();
        self.advance(word.len());
        if let Some(quote @ (b'"' | b'\'')) = self.peek(0) {
            let prefix = word.to_ascii_lowercase();
            if matches!(
                prefix.as_slice(),
                b"r" | b"u" | b"b" | b"br" | b"rb" | b"f" | b"fr" | b"rf" | b"t" | b"tr" | b"rt"
            ) {
                return self.string(quote, &prefix);
            }
        }
        self.tokens = self.tokens.saturating_add(1);
        self.lambdas = self.lambdas.saturating_add(usize::from(word == b"lambda"));
    }

    fn is_triple(&self, quote: u8) -> bool {
        self.peek(0) == Some(quote) && self.peek(1) == Some(quote) && self.peek(2) == Some(quote)
    }

    /// A backslash and what it takes with it.
    fn skip_escape(&mut self) {
        self.advance(1);
        if self.peek(0) == Some(b'\r') && self.peek(1) == Some(b'\n') {
            self.advance(1);
        }
        self.line = self.line.saturating_add(u64::from(self.peek(0) == Some(b'\n')));
        self.advance(1);
    }

    /// At an opening quote.
    fn string(&mut self, quote: u8, prefix: &[u8]) {
        let is_triple = self.is_triple(quote);
        self.advance(if is_triple { 3 } else { 1 });
        self.tokens = self.tokens.saturating_add(1);
        if prefix.iter().any(|b| matches!(b, b'f' | b't')) {
            return self.open(Mode::Format(quote, is_triple));
        }
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\\' => self.skip_escape(),
                b'\n' | b'\r' if !is_triple => return,
                b if b == quote && (!is_triple || self.is_triple(quote)) => {
                    self.advance(if is_triple { 3 } else { 1 });
                    return;
                }
                b => {
                    self.line = self.line.saturating_add(u64::from(b == b'\n'));
                    self.advance(1);
                }
            }
        }
    }

    /// Inside the text of a format string.
    fn format_text(&mut self, byte: u8, quote: u8, is_triple: bool) {
        match byte {
            b'\\' if matches!(self.peek(1), Some(b'{' | b'}')) => self.advance(1),
            b'\\' => self.skip_escape(),
            b'{' if self.peek(1) == Some(b'{') => self.advance(2),
            b'{' => {
                self.advance(1);
                self.open(Mode::Bracket(b'}'));
            }
            b'\n' | b'\r' if !is_triple => self.close(),
            b if b == quote && (!is_triple || self.is_triple(quote)) => {
                self.advance(if is_triple { 3 } else { 1 });
                self.close();
            }
            b => {
                self.line = self.line.saturating_add(u64::from(b == b'\n'));
                self.advance(1);
            }
        }
    }

    /// Inside the format of a replacement field.
    fn spec_text(&mut self, byte: u8, quote: u8, is_triple: bool) {
        match byte {
            b'{' => {
                self.advance(1);
                self.open(Mode::Bracket(b'}'));
            }
            // The format ends, its field with it.
            b'}' => {
                self.advance(1);
                self.close();
                self.close();
            }
            b'\n' | b'\r' if !is_triple => self.close(),
            // The string ends inside its field: format, field and string are left.
            b if b == quote && (!is_triple || self.is_triple(quote)) => {
                self.close();
                self.close();
            }
            b => {
                self.line = self.line.saturating_add(u64::from(b == b'\n'));
                self.advance(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
    use ruff_python_ast::{Expr, Stmt};

    #[test]
    fn ordinary_sources_pass() {
        let passes = |text: &str| bound(text, MAX_DEPTH).is_ok();
        assert!(passes(&format!("table = {{\n{}}}\n", "    \"key\": [1, 2, 3],  # (((\n".repeat(50_000))));
        assert!(passes(&format!("total = {}0\n", "x + ".repeat(600))));
        assert!(passes(&"f'{a:{width}}' + f\"{{}}\" + f'{x!r:>{n}}'\n".repeat(10_000)));
        assert!(passes(&"s = '((((((((((((((('\n".repeat(10_000)));
        assert!(passes(&"call(a, b)(c)\n".repeat(10_000)));
        assert!(passes(&"if x:\n    if y:\n        z\n".repeat(10_000)));
    }

    #[test]
    fn every_way_to_nest_is_counted() {
        for piece in [
            "(",
            "[",
            "{",
            "-",
            "not ",
            "a.",
            "a + ",
            "a ** ",
            "a if b else ",
            "lambda: ",
            "lambda a, b: ",
            "await ",
            "f(",
            "a[b, ",
            "f\"{",
            "f'{a + ",
            "~",
            "*",
            "x := (",
            "f(a)(",
            "{1, ",
            "t'{",
            "(],",
            "- \\\r\n",
            "{1:f'{a:{",
        ] {
            let text = format!("a = 1\nx = {}", piece.repeat(100_000));
            assert!(bound(&text, MAX_DEPTH).is_err(), "{piece}");
        }
        let line = |text: &str| bound(text, MAX_DEPTH).map_err(|deep| deep.line);
        assert_eq!(line(&format!("x = a{}", "()".repeat(100_000))), Err(1));
        assert_eq!(line(&format!("\nx = a{}", "[0]".repeat(100_000))), Err(2));
        let blocks = |count| (0..count).map(|n| format!("{}if x:\n", " ".repeat(n))).collect::<Vec<_>>().concat();
        assert_eq!(line(&blocks(3000)), Err(102));
        assert!(line(&blocks(101)).is_ok());
    }

    #[test]
    fn a_stray_backslash_does_not_hide_the_quote_behind_it() {
        assert!(bound("\\\"f'''\"\"\"{{{{", usize::MAX).is_ok_and(|depth| depth >= 5));
    }

    #[derive(Default)]
    struct Depth {
        now: usize,
        deepest: usize,
    }

    impl<'a> Visitor<'a> for Depth {
        fn visit_expr(&mut self, expr: &'a Expr) {
            self.now += 1;
            self.deepest = self.deepest.max(self.now);
            walk_expr(self, expr);
            self.now -= 1;
        }

        fn visit_stmt(&mut self, stmt: &'a Stmt) {
            self.now += 1;
            self.deepest = self.deepest.max(self.now);
            walk_stmt(self, stmt);
            self.now -= 1;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_tree_is_never_deeper_than_the_bound(
            pieces in proptest::collection::vec(
                prop::sample::select(vec![
                    "(", ")", "[", "]", "{", "}", ",", ":", ":=", "a", "-", "not ", "+", ".", "f\"", "f'", "\"", "'",
                    "f'''", "'''", "\"\"\"", "{{", "}}", "!r", "\\", "\\\n", "\n", "\n  ", "\n    ", "if ", "else ",
                    "lambda ", "lambda a, b:", "x=", "def f():", "class A:", "for ", " in ", "#", ";", "*", "**", "1",
                    "await ", "yield ", "match a:", "case ", "with ", "as ", "return ", "\r\n", "\\\r\n", "rb'", "t\"",
                ]),
                0..80,
            ),
        ) {
            let text = pieces.concat();
            let parsed = ruff_python_parser::parse_unchecked_source(&text, ruff_python_ast::PySourceType::Python);
            let mut depth = Depth::default();
            for stmt in parsed.suite() {
                depth.visit_stmt(stmt);
            }
            let bound = bound(&text, usize::MAX).unwrap();
            prop_assert!(depth.deepest <= bound + 2, "{} > {bound}: {text:?}", depth.deepest);
        }
    }
}
