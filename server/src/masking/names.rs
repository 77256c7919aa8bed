//! The names that a report holds, each with the pseudonym that stands for it. Collects; replaces nothing.

use super::{
    mask::Mask,
    patterns::{PATTERNS, base, ending, is_harmless, is_library, is_nobodys},
    vocabulary::{is_common, is_known},
};
use rankscope_model::{ArtifactInfo, ArtifactKind, Report};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Shorter names are only replaced where their place says that they are names.
const LEAST_NAME: usize = 3;

/// Names as they are found, in small letters.
#[derive(Default)]
pub struct Names {
    hosts: BTreeSet<String>,
    users: BTreeSet<String>,
    /// Words beside names that may be ones: of files, folders, processes and titles.
    words: BTreeSet<String>,
    /// How many files were found that are no artifacts.
    others: usize,
    /// Whole artifact names, as they are.
    artifacts: HashMap<String, String>,
    /// The same names, and those without their folders, in small letters.
    known_files: BTreeMap<String, String>,
}

impl Names {
    /// The run's title and the names of its files, which are given by people.
    pub fn given(&mut self, report: &Report) {
        self.words_of(&report.run.title);
        for (n, file) in report.diagnosis.artifacts.iter().enumerate() {
            let given = without_number(&file.name);
            let name = format!("file-{}{}", n + 1, ending(given));
            self.known_files.entry(base(&file.name).to_lowercase()).or_insert_with(|| name.clone());
            self.known_files.insert(file.name.to_lowercase(), name.clone());
            self.artifacts.insert(file.name.clone(), name);
            self.words_of(given.strip_suffix(ending(given)).unwrap_or(given));
            self.node_of(file);
        }
    }

    /// The record of a node is called as the node.
    fn node_of(&mut self, file: &ArtifactInfo) {
        if file.kind == ArtifactKind::LiveRecord
            && let Some(node) = base(&file.name).strip_suffix(".live.jsonl")
        {
            self.host(node);
        }
    }

    /// What a text of the report tells.
    pub fn collect(&mut self, text: &str) {
        PATTERNS.users(text).for_each(|name| self.user(name));
        PATTERNS.hosts(text).for_each(|name| self.host(name));
        PATTERNS.processes(text).filter(|name| !name.contains(['/', '\\'])).for_each(|name| self.words_of(name));
        PATTERNS.hubs(text).for_each(|name| self.words_of(name));
        for path in PATTERNS.paths(text).filter(|path| !is_library(path) && !is_nobodys(path)) {
            self.words_of(path);
            self.file(base(path));
        }
        PATTERNS.bare_files(text).for_each(|name| self.file(name));
    }

    fn user(&mut self, name: &str) {
        if is_name(name) {
            self.users.insert(name.to_lowercase());
            self.words_of(name);
        }
    }

    fn host(&mut self, name: &str) {
        if !is_name(name) {
            return;
        }
        self.hosts.insert(name.to_lowercase());
        if name.chars().any(char::is_alphabetic) {
            self.words_of(name);
        }
    }

    fn words_of(&mut self, text: &str) {
        for word in text.split(|sign: char| !sign.is_alphanumeric()) {
            // `alice2024` may stand as `alice` elsewhere.
            let plain = word.trim_end_matches(|sign: char| sign.is_ascii_digit());
            for word in [word, plain] {
                if is_name(word) && !is_known(word) {
                    self.words.insert(word.to_lowercase());
                }
            }
        }
    }

    fn file(&mut self, name: &str) {
        let lower = name.to_lowercase();
        // Without an ending it is a folder or a program, whose words are replaced one by one.
        if ending(name).is_empty() || is_harmless(name) || self.known_files.contains_key(&lower) {
            return;
        }
        self.others += 1;
        let number = self.artifacts.len() + self.others;
        self.known_files.insert(lower, format!("file-{number}{}", ending(name)));
    }

    /// Every name gets its pseudonym: the same one wherever it stands.
    pub fn finish(self) -> Mask {
        let Self { hosts, users, words, artifacts, known_files, others: _ } = self;
        let mut all: HashMap<String, String> = HashMap::new();
        // `gpu-07` of `gpu-07.example.org` is the same host.
        let short = |name: &str| name.split_once('.').map(|(first, _)| first.to_owned()).filter(|first| is_name(first));
        let shorts: BTreeMap<String, String> =
            hosts.iter().filter_map(|name| Some((short(name)?, name.clone()))).collect();
        let hosts = hosts.into_iter().filter(|name| !shorts.contains_key(name)).collect();
        for (names, word) in [(hosts, "host"), (users, "user"), (words, "name")] {
            let new: Vec<String> = names.into_iter().filter(|name| !all.contains_key(name)).collect();
            all.extend(new.into_iter().enumerate().map(|(n, name)| (name, format!("{word}-{}", n + 1))));
            if word == "host" {
                let named = shorts.iter().filter_map(|(short, name)| Some((short.clone(), all.get(name)?.clone())));
                let named: Vec<(String, String)> = named.collect();
                all.extend(named);
            }
        }
        Mask::new(artifacts, known_files, all)
    }
}

/// `log.txt` of `log.txt (2)`, as artifacts of one name are told apart.
fn without_number(name: &str) -> &str {
    let numbered = name.strip_suffix(')').and_then(|rest| rest.rsplit_once(" ("));
    numbered.filter(|(_, n)| n.chars().all(|sign| sign.is_ascii_digit())).map_or(name, |(name, _)| name)
}

fn is_name(name: &str) -> bool {
    let signs = name.chars().count();
    (signs >= LEAST_NAME || signs == 2 && !name.is_ascii())
        && !is_common(name)
        && !name.chars().all(|sign| sign.is_ascii_digit())
}
