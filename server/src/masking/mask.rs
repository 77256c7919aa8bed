//! Replaces names in texts: whole words without regard to capitals, the longest name first. Knows which name becomes
//! what, not where names come from.

use super::patterns::{PATTERNS, base, is_nobodys, without_short};
use regex::Captures;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What is replaced by what.
pub struct Mask {
    /// Artifacts by their whole names.
    artifacts: HashMap<String, String>,
    /// Names of files that stand in texts.
    files: Words,
    /// The same and all other names.
    all: Words,
}

impl Mask {
    /// `files` and `names` are in small letters.
    pub fn new(
        artifacts: HashMap<String, String>,
        files: BTreeMap<String, String>,
        names: HashMap<String, String>,
    ) -> Self {
        // A file that is called `out` would take the word from every sentence.
        let is_telling = |name: &str| name.contains('.') || name.contains(['/', '\\', '-', '_', ' ']);
        let files: HashMap<String, String> = files.into_iter().filter(|(name, _)| is_telling(name)).collect();
        let mut all = names;
        all.extend(files.iter().map(|(name, short)| (name.clone(), short.clone())));
        Self { artifacts, files: Words::new(files), all: Words::new(all) }
    }

    /// The text without names.
    pub fn replace(&self, text: &str) -> String {
        if let Some(file) = self.artifacts.get(text) {
            return file.clone();
        }
        // With its folders a file's name is known only as long as they are there.
        let text = self.files.replace(text);
        self.all.replace(&without_folders(&without_short(&text)))
    }
}

/// Paths are cut to what stands behind the last folder.
fn without_folders(text: &str) -> String {
    let last = |path: &str| match base(path) {
        _ if is_nobodys(path) => path.to_owned(),
        "" => "folder".to_owned(),
        name => name.to_owned(),
    };
    let mut text = text.to_owned();
    if let Some(quoted) = PATTERNS.quoted_path.as_ref() {
        text = quoted
            .replace_all(&text, |found: &Captures<'_>| {
                let part = |n| found.get(n).map_or("", |part| part.as_str());
                format!("{quote}{}{quote}", last(part(2)), quote = part(1))
            })
            .into_owned();
    }
    if let Some(path) = PATTERNS.path.as_ref() {
        text = path
            .replace_all(&text, |found: &Captures<'_>| last(found.get(0).map_or("", |path| path.as_str())))
            .into_owned();
    }
    text
}

/// Names and what stands for them.
struct Words {
    names: HashMap<String, String>,
    /// The first two signs of every name: where none begins, nothing is looked up.
    heads: HashSet<[char; 2]>,
    /// Signs of the longest name.
    longest: usize,
}

impl Words {
    fn new(names: HashMap<String, String>) -> Self {
        // Looked up from the first to the last sign of words.
        let trimmed = |name: &str| name.trim_matches(|sign| !is_part(sign)).to_owned();
        let names: HashMap<String, String> = names
            .into_iter()
            .map(|(name, short)| (trimmed(&name), short))
            .filter(|(name, _)| name.chars().nth(1).is_some())
            .collect();
        let heads = names.keys().filter_map(|name| head(name.chars())).collect();
        let longest = names.keys().map(|name| name.chars().count()).max().unwrap_or(0);
        Self { names, heads, longest }
    }

    fn replace(&self, text: &str) -> String {
        if self.names.is_empty() {
            return text.to_owned();
        }
        let signs: Vec<char> = text.chars().collect();
        let small: Vec<char> = signs.iter().copied().map(small).collect();
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(sign) = signs.get(at) {
            if let Some((end, short)) = self.longest_at(&signs, &small, at) {
                out.push_str(short);
                at = end;
            } else {
                out.push(*sign);
                at += 1;
            }
        }
        out
    }

    /// The longest name that begins here, and where it ends.
    fn longest_at(&self, signs: &[char], small: &[char], at: usize) -> Option<(usize, &str)> {
        let ahead = small.get(at..)?;
        if !begins(signs, at) || !head(ahead.iter().copied()).is_some_and(|head| self.heads.contains(&head)) {
            return None;
        }
        let mut word = String::new();
        let mut found = None;
        for (n, sign) in ahead.iter().take(self.longest).enumerate() {
            word.push(*sign);
            let end = at + n + 1;
            if ends(signs, end)
                && let Some(short) = self.names.get(&word)
            {
                found = Some((end, short.as_str()));
            }
        }
        found
    }
}

fn head(mut signs: impl Iterator<Item = char>) -> Option<[char; 2]> {
    Some([signs.next()?, signs.next()?])
}

/// As [`str::to_lowercase`] writes it, where that is one sign.
fn small(sign: char) -> char {
    let mut small = sign.to_lowercase();
    small.next().filter(|_| small.next().is_none()).unwrap_or(sign)
}

/// Belongs to a word; with the marks that are put over a letter as signs of their own.
fn is_part(sign: char) -> bool {
    sign.is_alphanumeric() || ('\u{300}'..='\u{36f}').contains(&sign)
}

/// Of a script that has no capitals, and often no blanks between words.
fn is_caseless(sign: char) -> bool {
    !sign.is_ascii() && sign.is_alphabetic() && !sign.is_lowercase() && !sign.is_uppercase()
}

/// `aB`: a new word begins in the middle.
fn is_turn(before: char, sign: char) -> bool {
    before.is_lowercase() && sign.is_uppercase() || is_caseless(before) || is_caseless(sign)
}

fn begins(signs: &[char], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| signs.get(before).copied());
    signs.get(at).is_some_and(|sign| is_part(*sign) && before.is_none_or(|b| !is_part(b) || is_turn(b, *sign)))
}

fn ends(signs: &[char], end: usize) -> bool {
    let last = end.checked_sub(1).and_then(|last| signs.get(last).copied());
    let next = signs.get(end).copied();
    last.is_some_and(|last| {
        // A number behind a name is another account or card of the same.
        let is_counted = |next: char| last.is_alphabetic() && next.is_ascii_digit();
        is_part(last) && next.is_none_or(|next| !is_part(next) || is_turn(last, next) || is_counted(next))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(names: &[(&str, &str)], text: &str) -> String {
        let own = |(name, short): &(&str, &str)| ((*name).to_owned(), (*short).to_owned());
        Words::new(names.iter().map(own).collect()).replace(text)
    }

    #[test]
    fn names_are_whole_words_of_any_script_and_capitals() {
        let ada = [
            ("ada", "user-1"),
            ("müller", "user-2"),
            ("李雷", "user-3"),
            ("gpu-07", "host-1"),
            ("gpu-07.x.org", "host-2"),
        ];
        assert_eq!(replaced(&ada, "ada ADA_Ada-ada2 adapter canada"), "user-1 user-1_user-1-user-12 adapter canada");
        assert_eq!(replaced(&ada, "MÜLLER's李雷的"), "user-2'suser-3的");
        assert_eq!(replaced(&ada, "gpu-07.x.org GPU-07: adaTrainer"), "host-2 host-1: user-1Trainer");
    }

    #[test]
    fn names_longer_than_one_word_come_before_their_parts() {
        let names = [("my run (ada).log", "file-1.log"), ("ada", "user-1")];
        assert_eq!(replaced(&names, "in My run (Ada).log:3, of ada"), "in file-1.log:3, of user-1");
    }
}
