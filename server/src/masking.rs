//! A report without the names of machines and people: the same name is always the same pseudonym, paths are cut to the
//! file's name. Works on the frozen report, so that everything that is shown of it is masked alike. Knows no store.

use crate::errors::{Problem, Result};
use rankscope_model::Report;
use regex::{Captures, Regex};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

/// Members whose texts are words of ours, not of a file.
const OURS: [&str; 14] = [
    "format",
    "verdict",
    "label",
    "item",
    "status",
    "severity",
    "kind",
    "quantity",
    "axis",
    "phase",
    "id",
    "reason",
    "input",
    "frameworks",
];
/// Names that tell nothing of a person or machine, and words that may stand where a name stands.
const COMMON: [&str; 24] = [
    "root",
    "user",
    "users",
    "ubuntu",
    "admin",
    "home",
    "local",
    "localhost",
    "worker",
    "master",
    "node",
    "host",
    "gpu",
    "cuda",
    "rank",
    "train",
    "none",
    "null",
    "true",
    "false",
    "data",
    "work",
    "the",
    "static",
];
/// Shorter names are only replaced where their place says that they are names.
const LEAST_NAME: usize = 3;

fn pattern(text: &str) -> Option<Regex> {
    Regex::new(text).ok()
}

/// Patterns whose first group is the name of a user.
static USERS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        r"(?:/home/|/Users/|/u/|/scratch/|[A-Za-z]:\\Users\\)([A-Za-z0-9][\w.-]*)",
        r#"(?i)\b(?:user|username|logname|owner)\b["']?\s*[=:]\s*["']?([A-Za-z][\w.-]*)"#,
        r"\b([A-Za-z][\w.-]*)@[A-Za-z0-9][\w.-]*",
    ]
    .iter()
    .filter_map(|text| pattern(text))
    .collect()
});

/// Patterns whose first group is the name of a host.
static HOSTS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        // Written as such.
        r#"(?i)\b(?:host|hostname|node|nodename|nodelist|slurmd_nodename|master_addr|master-addr|rdzv_endpoint|rdzv-endpoint|address)\b["']?\s*[=:]\s*["']?([A-Za-z0-9][\w.-]*)"#,
        r"(?:--master_addr|--master-addr|--rdzv_endpoint|--rdzv-endpoint|--host)[= ]([A-Za-z0-9][\w.-]*)",
        r"\b[A-Za-z][\w.-]*@([A-Za-z0-9][\w.-]*)",
        // As launchers and NCCL begin their lines.
        r"^\s*([A-Za-z][\w.-]*):\d+:\d+ \[\d+\]",
        r"^\s*\[?([A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)+)\]?\s*:\s",
        // Addresses and names in domains.
        r"\b((?:\d{1,3}\.){3}\d{1,3})\b",
        r"\b((?:[A-Za-z0-9][\w-]*\.)+(?:com|org|net|edu|gov|io|ai|dev|internal|local|lan|cluster|corp|de|fr|uk|cn|jp|ch|eu))\b",
    ]
    .iter()
    .filter_map(|text| pattern(text))
    .collect()
});

/// A path with at least one folder.
static PATHS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r#"(?:[A-Za-z]:\\|\\\\|~?/|\.{1,2}/)(?:[^\s"'<>|:;,(){}\[\]\\/]+[\\/])+[^\s"'<>|:;,(){}\[\]\\/]*|(?:[\w.+-]+/)+[\w.+-]+\.[A-Za-z]\w*"#,
    )
});

/// The report with pseudonyms.
///
/// Errors: [`crate::errors::ProblemKind::Internal`] if what comes out is no report; it is then not shown at all.
pub fn masked(report: &Report) -> Result<Report> {
    let mut value = serde_json::to_value(report).map_err(Problem::internal)?;
    let mut names = Names::default();
    names.files(report);
    walk(&mut value, &mut |text| names.collect(text));
    let names = names.finish();
    walk(&mut value, &mut |text| *text = names.replace(text));
    let mut masked: Report = serde_json::from_value(value).map_err(Problem::internal)?;
    // The address of the run is no name.
    masked.run.id.clone_from(&report.run.id);
    Ok(masked)
}

/// Calls `visit` for every text that may come from a file.
fn walk(value: &mut Value, visit: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, visit)),
        Value::Object(members) => {
            let foreign = members.iter_mut().filter(|(key, _)| !OURS.contains(&key.as_str()));
            foreign.for_each(|(_, member)| walk(member, visit));
        }
        _ => {}
    }
}

/// Names as they are found.
#[derive(Default)]
struct Names {
    hosts: BTreeSet<String>,
    users: BTreeSet<String>,
    files: BTreeMap<String, String>,
}

impl Names {
    /// Names of the report's files without their folders; still different ones where they were different.
    fn files(&mut self, report: &Report) {
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for file in &report.diagnosis.artifacts {
            let base = file.name.rsplit(['/', '\\']).next().unwrap_or(&file.name).to_owned();
            let mut name = base.clone();
            let mut number = 2;
            while !taken.insert(name.clone()) {
                name = format!("{base} ({number})");
                number += 1;
            }
            if name != file.name {
                self.files.insert(file.name.clone(), name);
            }
        }
    }

    fn collect(&mut self, text: &str) {
        let found = |patterns: &[Regex], into: &mut BTreeSet<String>| {
            for captures in patterns.iter().flat_map(|pattern| pattern.captures_iter(text)) {
                if let Some(name) = captures.get(1).map(|name| name.as_str().trim_end_matches(['.', '-']))
                    && name.chars().count() >= LEAST_NAME
                    && !COMMON.contains(&name.to_lowercase().as_str())
                    && !name.chars().all(|sign| sign.is_ascii_digit())
                {
                    into.insert(name.to_owned());
                }
            }
        };
        found(&USERS, &mut self.users);
        found(&HOSTS, &mut self.hosts);
    }

    fn finish(self) -> Mask {
        let Self { hosts, users, files } = self;
        let numbered = |names: BTreeSet<String>, word: &str| -> Vec<(String, String)> {
            names.into_iter().enumerate().map(|(n, name)| (name, format!("{word}-{}", n + 1))).collect()
        };
        let mut names = numbered(hosts, "host");
        let known: BTreeSet<String> = names.iter().map(|(name, _)| name.clone()).collect();
        names.extend(numbered(users.into_iter().filter(|name| !known.contains(name)).collect(), "user"));
        // The longer name first: `gpu-10.example.org` before `gpu-10`.
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let alternatives: Vec<String> = names.iter().map(|(name, _)| regex::escape(name)).collect();
        let any = if alternatives.is_empty() {
            None
        } else {
            pattern(&format!(r"(^|[^A-Za-z0-9])({})($|[^A-Za-z0-9])", alternatives.join("|")))
        };
        let mut files: Vec<(String, String)> = files.into_iter().collect();
        files.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Mask { names: names.into_iter().collect(), any, files }
    }
}

/// What is replaced by what.
struct Mask {
    names: BTreeMap<String, String>,
    any: Option<Regex>,
    files: Vec<(String, String)>,
}

impl Mask {
    fn replace(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, short) in self.files.iter().filter(|(name, _)| name.contains(['/', '\\'])) {
            text = text.replace(name.as_str(), short);
        }
        if let Some((_, short)) = self.files.iter().find(|(name, _)| *name == text) {
            text.clone_from(short);
        }
        if let Some(paths) = PATHS.as_ref() {
            text = paths
                .replace_all(&text, |found: &Captures<'_>| {
                    let path = found.get(0).map_or("", |path| path.as_str());
                    let name = path.trim_end_matches(['/', '\\']).rsplit(['/', '\\']).next().unwrap_or_default();
                    if name.is_empty() { "folder".to_owned() } else { name.to_owned() }
                })
                .into_owned();
        }
        if let Some(any) = &self.any {
            // In names of files a `_` stands between two names, which then share it: one of them waits for the second turn.
            for _ in 0..2 {
                text = any
                    .replace_all(&text, |found: &Captures<'_>| {
                        let part = |index| found.get(index).map_or("", |part| part.as_str());
                        let name = part(2);
                        format!("{}{}{}", part(1), self.names.get(name).map_or(name, String::as_str), part(3))
                    })
                    .into_owned();
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests_report as report;
    use rankscope_model::{ArtifactInfo, ArtifactKind, EvidenceRef, Finding, Item, Severity};

    fn file(name: &str) -> ArtifactInfo {
        ArtifactInfo {
            name: name.into(),
            kind: ArtifactKind::StepLog,
            ranks: vec![],
            devices: vec![],
            bytes: 1,
            warnings: vec![],
        }
    }

    fn with(claims: &[&str], files: &[&str]) -> Report {
        let mut report = report("r", "of ada on gpu-07.example.org", 1, "host=gpu-07.example.org is fuller");
        let report = std::sync::Arc::make_mut(&mut report);
        report.diagnosis.artifacts = files.iter().map(|name| file(name)).collect();
        report.diagnosis.findings = claims
            .iter()
            .map(|claim| Finding {
                id: "f1".into(),
                item: Item::DeviceVisibility,
                label: None,
                severity: Severity::Warning,
                confidence: 0.5,
                claim: (*claim).into(),
                ranks: vec![],
                evidence: files
                    .iter()
                    .map(|name| EvidenceRef { artifact: (*name).into(), line: Some(3), ..EvidenceRef::default() })
                    .collect(),
            })
            .collect();
        report.clone()
    }

    #[test]
    fn names_become_the_same_pseudonym_everywhere() {
        let report = with(
            &[
                "File \"/home/ada/secret/train.py\", line 3, in main",
                "ada@gpu-07.example.org:~$ python train.py",
                "worker-12:881:902 [0] NCCL INFO from 10.1.2.33",
            ],
            &[],
        );
        let masked = masked(&report).unwrap();
        let text = serde_json::to_string(&masked).unwrap();
        for gone in ["ada", "secret", "gpu-07", "example", "worker-12", "10.1.2.33"] {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
        assert_eq!(masked.run.title, "of user-1 on host-2");
        assert!(masked.diagnosis.summary.contains("host=host-2"));
        assert!(masked.diagnosis.findings[0].claim.starts_with("File \"train.py\", line 3"));
        assert!(masked.diagnosis.findings[2].claim.starts_with("host-3:881:902 [0] NCCL INFO from host-1"));
    }

    #[test]
    fn files_keep_different_names_and_references_still_fit() {
        let masked = masked(&with(&["x"], &["a/rank0/log.txt", "a/rank1/log.txt", "smi.txt"])).unwrap();
        let names: Vec<&str> = masked.diagnosis.artifacts.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["log.txt", "log.txt (2)", "smi.txt"]);
        let referred: Vec<&str> =
            masked.diagnosis.findings[0].evidence.iter().map(|place| place.artifact.as_str()).collect();
        assert_eq!(referred, names);
    }

    #[test]
    fn code_and_figures_stay_as_they_are() {
        let said = "torch.nn.parallel.DistributedDataParallel uses 31.5 GiB, 24 % more, 3/4 of steps, r = 0.98";
        assert_eq!(masked(&with(&[said], &["smi.txt"])).unwrap().diagnosis.findings[0].claim, said);
    }
}
