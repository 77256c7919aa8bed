//! Where in foreign text names stand: what people, tools and launchers write before, behind and around them. Knows no
//! report.

use super::vocabulary::{is_common, is_known};
use regex::{Captures, Regex};
use std::sync::LazyLock;

/// Patterns whose first group is the name of a user.
const USERS: [&str; 7] = [
    r"(?:/home/|/Users/|/u/|/scratch/|/users/|[A-Za-z]:\\Users\\)(\w[\w.-]*)",
    r"~([^\W\d][\w.-]*)/",
    r#"(?i)(?:^|[^a-z])(?:user|username|user_name|logname|owner)\b["']?\s*[=:]\s*["']?([a-z_][\w.-]*)"#,
    r"(\w[\w.+-]*)@[A-Za-z0-9][\w.-]*",
    r"(?:^|\s)(?:--user|--uid)[= ]([A-Za-z][\w.-]*)",
    // gpustat: `alice(3000M)`, `alice:python/1234(3000M)`.
    r"(?:^|[\s|])([^\W\d][\w.-]*)(?::[^\s(]+)?\(\d+M(?:i?B)?\)",
    // nvitop: index, PID, kind, user, memory.
    r"[│|]\s*\d+\s+\d+\s+[A-Z+]+\s+([^\W\d][\w.-]*)\s+[\d.]+[KMG]i?B",
];

/// Patterns whose first group is the name of a host.
const HOSTS: [&str; 10] = [
    // Written as such.
    r#"(?i)(?:^|[^a-z])(?:host|hostname|host_name|node|nodename|node_name|nodeid|nodelist|master_addr|master-addr|rdzv_endpoint|rdzv-endpoint|address)\b["']?\s*[=:]\s*["']?([\w][\w.-]*)"#,
    r"(?:--master_addr|--master-addr|--rdzv_endpoint|--rdzv-endpoint|--host|--nodelist)[= ](\w[\w.-]*)",
    r#"\b(?:instance|exported_instance)="(\w[\w.-]*)"#,
    r"\b\w[\w.+-]*@([A-Za-z0-9][\w.-]*)",
    // As launchers and NCCL begin their lines.
    r"^\s*([^\W\d][\w.-]*):\d+:\d+ \[\d+\]",
    r"^\s*\[?([A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)+)\]?\s*:\s",
    // As gpustat begins its first line, and syslog every line.
    r"^\s*([^\W\d][\w.-]*)\s+(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ",
    r"^(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d ([^\W\d][\w.-]*) ",
    // Addresses and names in domains.
    r"\b((?:\d{1,3}\.){3}\d{1,3})\b",
    r"\b((?:\w[\w-]*\.)+(?:com|org|net|edu|gov|io|ai|dev|internal|local|lan|cluster|corp|de|fr|uk|cn|jp|ch|eu))\b",
];

/// Patterns whose first group is the name of a process.
const PROCESSES: [&str; 3] =
    [r"\s(?:C|G|C\+G|M\+C)\s+(\S.*?)\s+\d+\s?MiB", r#"([^\s()"'`]+)["'`]? \(PID \d+"#, r"\bPID \d+ \(([^()]+)\)"];

/// Patterns whose first group names a model or a data set on a hub: an owner and what it made, both of which tell who.
const HUBS: [&str; 2] = [
    r#"\b(?:from_pretrained|load_dataset|snapshot_download|hf_hub_download|load_model)\(\s*(?:\w+\s*=\s*)?["']([^"'\s/]+/[^"'\s/]+)["']"#,
    r#"(?i)(?:--(?:model(?:[_-]?(?:id|name|path|name[_-]or[_-]path))?|tokenizer(?:[_-]name)?|dataset(?:[_-]name)?|repo[_-]id|hub[_-]model[_-]id|pretrained)(?:=|\s+)|\b(?:model(?:[_-]?(?:id|name|path|name[_-]or[_-]path))?|tokenizer(?:[_-]name)?|dataset(?:[_-]name)?|repo[_-]id|hub[_-]model[_-]id|pretrained)["']?\s*[:=]\s*)["']?([\w][\w.-]*/[\w][\w.-]*)"#,
];

/// Addresses that everybody knows.
const PUBLIC: [&str; 5] = ["pytorch.org", "github.com", "nvidia.com", "huggingface.co", "readthedocs.io"];

/// Endings of files that tell nothing but their format.
pub const ENDINGS: [&str; 36] = [
    "py",
    "ipynb",
    "sh",
    "sbatch",
    "slurm",
    "log",
    "txt",
    "out",
    "err",
    "json",
    "jsonl",
    "live",
    "trace",
    "yaml",
    "yml",
    "toml",
    "pickle",
    "pkl",
    "pt",
    "pth",
    "ckpt",
    "csv",
    "tsv",
    "xml",
    "html",
    "md",
    "safetensors",
    "db",
    "tar",
    "tgz",
    "gz",
    "zst",
    "bz2",
    "xz",
    "zip",
    "env",
];

/// Names of files without a folder.
const BARE: &str = r"\b(\w[\w.+-]*\.(?:py|ipynb|sh|sbatch|slurm|log|txt|out|err|jsonl?|ya?ml|toml|pickle|pkl|pth?|ckpt|csv|xml|safetensors|h5|parquet|db|tar|gz|zip))\b";

/// A path with at least one folder. The folders may hold what the file's name may not, so that a bracket in the middle
/// of a path does not end it.
const PATH: &str = r#"(?:[A-Za-z]:\\|\\\\|~[\w.-]*/|/|\.{1,2}/|\.{3}[^\s/"']*/)(?:[^\s"'<>|:;\\/]+[\\/]+)+[^\s"'<>|:;,(){}\[\]\\/]*|(?:[\w.+-]+/)+[\w.+-]+\.[A-Za-z]\w*"#;
/// The same in quotes, where it may hold blanks.
const QUOTED_PATH: &str = r#"(["'])((?:[A-Za-z]:\\|\\\\|~[\w.-]*/|/|\.{1,2}/)[^"'\n<>|]*[\\/][^"'\n<>|]*)["']"#;
/// A folder of the root.
const ROOTED: &str = r#"(?:^|[\s"'=(\[,:])/([^\s"'<>|:;,(){}\[\]\\/]{2,})"#;

/// The patterns, ready. A pattern that cannot be read is a defect that the test below finds.
pub struct Patterns {
    users: Vec<Regex>,
    hosts: Vec<Regex>,
    processes: Vec<Regex>,
    hubs: Vec<Regex>,
    bare: Vec<Regex>,
    rooted: Vec<Regex>,
    /// A path in quotes: its second group is the path.
    pub quoted_path: Option<Regex>,
    /// A path.
    pub path: Option<Regex>,
}

/// See [`Patterns`].
pub static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let all = |texts: &[&str]| texts.iter().filter_map(|text| Regex::new(text).ok()).collect();
    Patterns {
        users: all(&USERS),
        hosts: all(&HOSTS),
        processes: all(&PROCESSES),
        hubs: all(&HUBS),
        bare: all(&[BARE]),
        rooted: all(&[ROOTED]),
        quoted_path: Regex::new(QUOTED_PATH).ok(),
        path: Regex::new(PATH).ok(),
    }
});

/// The first groups of all matches.
fn found<'t>(patterns: &'static [Regex], text: &'t str) -> impl Iterator<Item = &'t str> {
    let all = patterns.iter().flat_map(move |pattern| pattern.captures_iter(text));
    all.filter_map(|captures| captures.get(1)).map(|name| name.as_str().trim_matches(['.', '-', '_']))
}

impl Patterns {
    /// Names of users.
    pub fn users<'t>(&'static self, text: &'t str) -> impl Iterator<Item = &'t str> {
        // What stands where gpustat and nvitop write a user may be a program.
        found(&self.users, text).filter(|name| !name.eq_ignore_ascii_case("python"))
    }

    /// Names of hosts.
    pub fn hosts<'t>(&'static self, text: &'t str) -> impl Iterator<Item = &'t str> {
        found(&self.hosts, text).filter(|name| !is_public(name))
    }

    /// Names of processes that are no paths.
    pub fn processes<'t>(&'static self, text: &'t str) -> impl Iterator<Item = &'t str> {
        found(&self.processes, text)
    }

    /// Models and data sets of a hub, with their owners.
    pub fn hubs<'t>(&'static self, text: &'t str) -> impl Iterator<Item = &'t str> {
        found(&self.hubs, text)
    }

    /// Names of files that stand without a folder.
    pub fn bare_files<'t>(&'static self, text: &'t str) -> impl Iterator<Item = &'t str> {
        found(&self.bare, text)
    }

    /// Paths: those in quotes, any other, and folders of the root.
    pub fn paths<'t>(&'static self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let quoted = self.quoted_path.iter().flat_map(move |pattern| pattern.captures_iter(text));
        let quoted = quoted.filter_map(|captures| captures.get(2)).map(|path| path.as_str());
        let plain = self.path.iter().flat_map(move |pattern| pattern.find_iter(text)).map(|path| path.as_str());
        quoted.chain(plain).chain(found(&self.rooted, text))
    }
}

/// Names of one or two letters, which are none elsewhere, where their place says that they are names.
pub fn without_short(text: &str) -> String {
    let patterns = &*PATTERNS;
    let mut text = text.to_owned();
    for (patterns, short) in [(&patterns.users, "user"), (&patterns.hosts, "host")] {
        for pattern in patterns {
            let replaced = pattern.replace_all(&text, |found: &Captures<'_>| {
                let whole = found.get(0).map_or("", |whole| whole.as_str());
                let Some((name, start)) = found.get(1).zip(found.get(0).map(|whole| whole.start())) else {
                    return whole.to_owned();
                };
                let is_short = name.len() < 3 && name.as_str().chars().any(char::is_alphabetic);
                if !is_short || is_common(name.as_str()) {
                    return whole.to_owned();
                }
                let (before, behind) = (whole.get(..name.start() - start), whole.get(name.end() - start..));
                format!("{}{short}{}", before.unwrap_or_default(), behind.unwrap_or_default())
            });
            text = replaced.into_owned();
        }
    }
    text
}

fn is_public(host: &str) -> bool {
    let host = host.to_lowercase();
    PUBLIC.iter().any(|known| host.strip_suffix(known).is_some_and(|sub| sub.is_empty() || sub.ends_with('.')))
}

/// Of the system itself (`/proc/1234/environ`), of a public page, or no path at all (`11/30/2026`): names nobody.
pub fn is_nobodys(path: &str) -> bool {
    let host = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    ["/proc/", "/dev/", "/sys/"].iter().any(|start| path.starts_with(start))
        || !path.chars().any(char::is_alphabetic)
        || is_public(host)
}

/// Its last part, which may be empty.
pub fn base(path: &str) -> &str {
    path.trim_end_matches(['/', '\\']).rsplit(['/', '\\']).next().unwrap_or_default()
}

/// Python's own library or an installed package: the names of its files are public.
pub fn is_library(path: &str) -> bool {
    ["/site-packages/", "/dist-packages/", "/lib/python"].iter().any(|part| path.replace('\\', "/").contains(part))
}

/// The ending that may stay: known ones alone, also two or three in a row (`.pt.trace.json.gz`).
pub fn ending(name: &str) -> &str {
    let mut from = name.len();
    while let Some((before, last)) = name.get(..from).and_then(|rest| rest.rsplit_once('.')) {
        if !ENDINGS.contains(&last.to_lowercase().as_str()) {
            break;
        }
        from = before.len();
    }
    name.get(from..).unwrap_or_default()
}

/// All words of a text are known, so that it tells nothing of who and where.
pub fn is_harmless(text: &str) -> bool {
    text.split(|sign: char| !sign.is_alphanumeric()).all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_can_be_read() {
        let all =
            USERS.iter().chain(&HOSTS).chain(&PROCESSES).chain(&HUBS).chain([&BARE, &PATH, &QUOTED_PATH, &ROOTED]);
        for text in all {
            Regex::new(text).unwrap();
        }
    }

    #[test]
    fn paths_end_where_they_end() {
        let paths = |text| PATTERNS.paths(text).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(paths("(see /home/ada/x.py), and")[0], "/home/ada/x.py");
        assert_eq!(paths("File \"/home/ada/My Work/x.py\", line 3")[0], "/home/ada/My Work/x.py");
        assert_eq!(paths("C:\\Users\\ada\\x.py:3")[0], "C:\\Users\\ada\\x.py");
        assert_eq!(paths("at /data/(ada)/x.py")[0], "/data/(ada)/x.py");
        assert_eq!(paths("24 %, 3/4 of steps, GiB/s, torch.nn.parallel"), [] as [&str; 0]);
    }

    #[test]
    fn endings_stay_only_if_they_are_known() {
        assert_eq!(ending("alice.pt.trace.json.gz"), ".pt.trace.json.gz");
        assert_eq!(ending("run.alice"), "");
        assert_eq!(ending("node07.log"), ".log");
        assert_eq!(ending("müller"), "");
    }

    #[test]
    fn what_tools_write_beside_names_is_known() {
        let users = |text| PATTERNS.users(text).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(users("[0] NVIDIA A100 | 65'C, 90 % | 3000 / 40960 MB | alice(2900M)"), ["alice"]);
        assert_eq!(users("SLURM_JOB_USER=alice"), ["alice"]);
        assert_eq!(users("│ 0  1234 C    alice 2900MiB"), ["alice"]);
        let hosts = |text| PATTERNS.hosts(text).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(hosts("dgx01  Mon Nov 30 19:37:43 2026  535.104.05"), ["dgx01"]);
        assert_eq!(hosts("SLURMD_NODENAME=dgx01"), ["dgx01"]);
        assert_eq!(hosts("see https://docs.pytorch.org/docs"), [] as [&str; 0]);
        assert_eq!(
            PATTERNS.processes("|    0   N/A  N/A   1234   C   alice_train   3000MiB |").next(),
            Some("alice_train")
        );
    }
}
