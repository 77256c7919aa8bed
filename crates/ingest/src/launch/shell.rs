//! Splits shell text into commands and words: quotes, continuations, comments, here-documents, simple variables.
//!
//! Nothing is run: what only a shell could work out stays as it is written. Knows no launcher.

use std::collections::BTreeMap;

/// One simple command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Command {
    /// 1-based line of its first word.
    pub(super) line: u64,
    /// The words without their quotes, variables not yet replaced.
    pub(super) words: Vec<String>,
    /// The blocks that it stands in (branches, loops, functions, subshells), outermost first, by number. What is behind
    /// `&&` or `||` is a block of its own.
    pub(super) blocks: Vec<u32>,
}

/// Values of variables that the script itself sets to plain text.
pub(super) type Variables = BTreeMap<String, String>;

/// Words of one command looked at.
const MAX_WORDS: usize = 4096;
/// Blocks inside each other that are told apart.
const MAX_DEPTH: usize = 64;
/// Longest word after variables were replaced.
const MAX_WORD: usize = 64 << 10;

/// The commands of a script, in order.
pub(super) fn commands(text: &str) -> Vec<Command> {
    let mut reader = Reader { line: 1, ..Reader::default() };
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\n') => reader.line = reader.line.saturating_add(1),
                Some('\r') if chars.peek() == Some(&'\n') => {
                    chars.next();
                    reader.line = reader.line.saturating_add(1);
                }
                Some(c) => reader.push(c),
                None => {}
            },
            '\'' => {
                reader.open();
                for c in chars.by_ref().take_while(|c| *c != '\'') {
                    reader.push(c);
                }
            }
            '"' => {
                reader.open();
                while let Some(c) = chars.next() {
                    match c {
                        '"' => break,
                        '\\' => match chars.next() {
                            Some('\n') => reader.line = reader.line.saturating_add(1),
                            Some(c @ ('"' | '\\' | '$' | '`')) => reader.push(c),
                            Some(c) => {
                                reader.push('\\');
                                reader.push(c);
                            }
                            None => {}
                        },
                        c => reader.push(c),
                    }
                }
            }
            '#' if reader.word.is_none() => {
                while chars.peek().is_some_and(|c| *c != '\n') {
                    chars.next();
                }
            }
            '<' if chars.peek() == Some(&'<') => {
                chars.next();
                reader.end_word();
                // `<<<` is a word, not a document.
                if chars.peek() == Some(&'<') {
                    chars.next();
                } else {
                    reader.wants_document = true;
                }
            }
            '\n' => {
                reader.end_command();
                reader.line = reader.line.saturating_add(1);
                if let Some(end) = reader.document.take() {
                    skip_document(&mut chars, &end, &mut reader.line);
                }
            }
            // `2>&1`, `&>` belong to a redirection.
            '&' if reader.word.as_deref().is_some_and(|w| w.ends_with('>')) || chars.peek() == Some(&'>') => {
                reader.push(c);
            }
            '(' => {
                reader.end_command();
                // `name()` begins no subshell.
                if chars.peek() == Some(&')') {
                    chars.next();
                } else {
                    reader.open_block();
                    reader.subshells = reader.subshells.saturating_add(1);
                }
            }
            ')' => {
                reader.end_command();
                // Else it ends the pattern of a `case`.
                if let Some(left) = reader.subshells.checked_sub(1) {
                    reader.subshells = left;
                    reader.close_block();
                }
            }
            '&' | '|' if chars.peek() == Some(&c) => {
                chars.next();
                reader.end_command();
                reader.depends = true;
            }
            ';' | '|' | '&' => reader.end_command(),
            c if c.is_whitespace() => reader.end_word(),
            c => reader.push(c),
        }
    }
    reader.end_command();
    reader.done
}

fn skip_document(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, end: &str, line: &mut u64) {
    let mut current = String::new();
    for c in chars.by_ref() {
        if c != '\n' {
            if current.len() <= end.len().saturating_add(64) {
                current.push(c);
            }
            continue;
        }
        *line = (*line).saturating_add(1);
        if current.trim() == end {
            return;
        }
        current.clear();
    }
}

#[derive(Default)]
struct Reader {
    line: u64,
    /// Line on which the command at hand begins.
    first: u64,
    word: Option<String>,
    words: Vec<String>,
    done: Vec<Command>,
    blocks: Vec<u32>,
    /// Open blocks beyond [`MAX_DEPTH`].
    deeper: u32,
    /// Blocks so far.
    counted: u32,
    /// Subshells that are open.
    subshells: u32,
    /// The command at hand runs only if the one before it did as hoped, or not.
    depends: bool,
    /// The next word names the end of a here-document.
    wants_document: bool,
    document: Option<String>,
}

impl Reader {
    fn open(&mut self) {
        if self.words.is_empty() && self.word.is_none() {
            self.first = self.line;
        }
        self.word.get_or_insert_with(String::new);
    }

    fn push(&mut self, c: char) {
        self.open();
        if let Some(word) = &mut self.word {
            word.push(c);
        }
        if c == '\n' {
            self.line = self.line.saturating_add(1);
        }
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if self.wants_document {
            self.wants_document = false;
            self.document = Some(word.trim_start_matches('-').to_owned());
        } else if self.words.len() < MAX_WORDS {
            self.words.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.wants_document = false;
        if self.words.is_empty() {
            return;
        }
        let words = std::mem::take(&mut self.words);
        let first = words.first().map_or("", String::as_str);
        if ["fi", "done", "esac", "}"].contains(&first) {
            self.close_block();
        } else if ["else", "elif"].contains(&first) {
            self.close_block();
            self.open_block();
        } else if ["if", "for", "while", "until", "case", "select", "{"].contains(&first) {
            self.open_block();
        }
        let depends = std::mem::take(&mut self.depends);
        let mut blocks = self.blocks.clone();
        if depends {
            self.counted = self.counted.saturating_add(1);
            blocks.push(self.counted);
        }
        // `then export A=1`, `do torchrun …`: what stands behind the word is the command.
        let is_lead = ["then", "else", "do", "{"].contains(&first) && words.len() > 1;
        let words = if is_lead { words.into_iter().skip(1).collect() } else { words };
        self.done.push(Command { line: self.first, words, blocks });
    }

    fn open_block(&mut self) {
        self.counted = self.counted.saturating_add(1);
        if self.blocks.len() < MAX_DEPTH {
            self.blocks.push(self.counted);
        } else {
            self.deeper = self.deeper.saturating_add(1);
        }
    }

    fn close_block(&mut self) {
        match self.deeper.checked_sub(1) {
            Some(left) => self.deeper = left,
            None => drop(self.blocks.pop()),
        }
    }
}

/// `NAME=value`, taken apart.
pub(super) fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (begins && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')).then_some((name, value))
}

/// The word with the variables that are known, and with the defaults of those that are not (`${GPUS:-8}`).
pub(super) fn expanded(word: &str, variables: &Variables) -> String {
    if !word.contains('$') {
        return word.to_owned();
    }
    let mut out = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('$') {
        out.push_str(rest.get(..at).unwrap_or_default());
        rest = rest.get(at.saturating_add(1)..).unwrap_or_default();
        let (name, default, used) = if let Some(inner) = rest.strip_prefix('{') {
            let Some(end) = inner.find('}') else {
                out.push('$');
                break;
            };
            let inner = inner.get(..end).unwrap_or_default();
            let (name, default) = inner.split_once(":-").map_or((inner, None), |(n, d)| (n, Some(d)));
            (name, default, end.saturating_add(2))
        } else {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            (rest.get(..end).unwrap_or_default(), None, end)
        };
        if let Some(value) = variables.get(name).map(String::as_str).or(default) {
            out.push_str(value);
        } else {
            // Not known: the sign stays, so that nobody takes the word for a value.
            out.push('$');
            out.push_str(rest.get(..used).unwrap_or_default());
        }
        rest = rest.get(used..).unwrap_or_default();
        if out.len() > MAX_WORD {
            return out;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<(u64, String)> {
        commands(text).into_iter().map(|c| (c.line, c.words.join("·"))).collect()
    }

    #[test]
    fn commands_and_words_as_a_shell_splits_them() {
        assert_eq!(
            shown(
                "#!/bin/bash\nA=1 torchrun \\\n  --nproc_per_node=2 'a b' \"c $D\" # comment\necho x; echo y && z | w &\n"
            ),
            [
                (2, "A=1·torchrun·--nproc_per_node=2·a b·c $D".to_owned()),
                (4, "echo·x".to_owned()),
                (4, "echo·y".to_owned()),
                (4, "z".to_owned()),
                (4, "w".to_owned()),
            ]
        );
        assert_eq!(shown("a 2>&1 b\n"), [(1, "a·2>&1·b".to_owned())]);
        assert_eq!(shown("cat <<'EOF'\ntorchrun x.py\nEOF\nnext\n"), [(1, "cat".to_owned()), (4, "next".to_owned())]);
        assert_eq!(shown("bash -c 'x \\\ny'\nnext"), [(1, "bash·-c·x \\\ny".to_owned()), (3, "next".to_owned())]);
        assert_eq!(shown("unclosed 'quote"), [(1, "unclosed·quote".to_owned())]);
    }

    #[test]
    fn variables_that_the_script_sets_are_replaced() {
        let variables = Variables::from([("GPUS".to_owned(), "4".to_owned())]);
        assert_eq!(expanded("$GPUS", &variables), "4");
        assert_eq!(expanded("n=${GPUS}x", &variables), "n=4x");
        assert_eq!(expanded("${NODES:-2}", &variables), "2");
        assert_eq!(expanded("$OTHER/x", &variables), "$OTHER/x");
        assert_eq!(expanded("a$", &variables), "a$");
        assert_eq!(expanded("${broken", &variables), "${broken");
    }

    #[test]
    fn assignments() {
        assert_eq!(assignment("A_1=x=y"), Some(("A_1", "x=y")));
        assert_eq!(assignment("--a=b"), None);
        assert_eq!(assignment("a b=c"), None);
    }
}
