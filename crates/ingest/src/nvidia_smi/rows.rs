//! The rows of a table: which one it is, and what its cells say.
//!
//! Rows are split on `|` and told apart by what stands in them, because widths differ between drivers. Knows no order
//! of rows.

use rankscope_model::{ArtifactId, Bytes, DeviceRow, GIB, KIB, MIB, ProcessRow, Provenance, Subject};

/// Versions in the first row.
#[derive(Default)]
pub(super) struct Header {
    pub(super) driver: Option<String>,
    pub(super) cuda: Option<String>,
}

impl Header {
    pub(super) fn parse(row: &str) -> Option<Self> {
        let (_, after) = row.split_once("NVIDIA-SMI ")?;
        let own = version(after)?;
        let named = |label: &str| after.split_once(label).and_then(|(_, rest)| version(rest));
        let driver = named("Driver Version:").or_else(|| named("KMD Version:"));
        let cuda = named("CUDA Version:").or_else(|| named("CUDA UMD Version:"));
        // `NVIDIA-SMI has failed because ...` has no number behind it and is no header.
        Some(Self { driver: driver.or(Some(own)), cuda })
    }
}

fn version(text: &str) -> Option<String> {
    let word = text.split_ascii_whitespace().next()?.trim_end_matches('|');
    (word.starts_with(|c: char| c.is_ascii_digit()) && word.len() <= 24).then(|| word.to_owned())
}

/// Whether a row, outside any table, opens one that lost its head.
pub(super) fn starts_device(row: &str) -> bool {
    parse_device(&cells(row)).is_some()
}

pub(super) fn starts_list(row: &str) -> bool {
    let inner = row.trim_matches('|').trim();
    matches!(inner, "Processes:" | "MIG devices:")
        || (inner.starts_with("Processes:") && inner.ends_with("GPU Memory"))
        || (inner.starts_with("Compute processes:") && inner.ends_with("GPU Memory"))
}

/// `|====|`, `|----|`, and the words over the columns.
pub(super) fn is_frame_or_head(inner: &str) -> bool {
    let head = |start: &str, also: &str| inner.starts_with(start) && inner.contains(also);
    inner.bytes().all(|b| matches!(b, b'=' | b'-' | b'+' | b'|' | b' '))
        || head("GPU ", "Name")
        || head("Fan ", "Temp")
        || head("GPU ", "PID")
        || head("GPU ", "MIG")
        || head("ID ", "ID")
        || matches!(inner.trim_matches(['|', ' ']), "MIG M." | "ECC")
}

/// Whether what stands behind the first bar could be the beginning of a row of a table, and not of a log line such as
/// `| INFO | …`.
pub(super) fn could_be_row(row: &str) -> bool {
    let inner = row.trim_start_matches('|').trim_start();
    let word = inner.split([' ', '|']).next().unwrap_or_default();
    word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '=' | '-'))
        || matches!(
            word,
            "" | "N/A" | "ERR!" | "GPU" | "Fan" | "ID" | "Processes:" | "Compute" | "MIG" | "No" | "NVIDIA-SMI"
        )
        || word.starts_with("ERR!")
}

/// The cells between the bars, trimmed; at most as many as the widest table has.
pub(super) fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_start_matches('|').split('|').map(str::trim).take(6).collect()
}

/// `0  Tesla V100-SXM2...  On` and `00000000:1A:00.0 Off`.
pub(super) fn parse_device(cells: &[&str]) -> Option<DeviceRow> {
    let (first, second) = (cells.first()?, cells.get(1)?);
    let (index, name) = first.split_once(' ')?;
    let index: u32 = index.parse().ok().filter(|i| *i < 100_000)?;
    let mut words = second.split_ascii_whitespace();
    let bus_id = words.next().filter(|word| is_bus_id(word))?;
    let name = name.trim();
    let (before, last) = name.rsplit_once(char::is_whitespace).unwrap_or(("", name));
    let is_mode = matches!(last, "On" | "Off" | "On-" | "N/A" | "TCC" | "WDDM" | "MCDM" | "ERR!");
    let name = if is_mode && !before.is_empty() { before.trim_end() } else { name };
    Some(DeviceRow {
        name: Some(name.to_owned()),
        bus_id: Some(bus_id.to_owned()),
        display_active: match words.next() {
            Some("On") => Some(true),
            Some("Off") => Some(false),
            _ => None,
        },
        ..DeviceRow::new(Provenance::line(ArtifactId(0), 0, ""), Subject::Device(index))
    })
}

/// `00000000:1A:00.0`, `0000:02:00.0`.
fn is_bus_id(word: &str) -> bool {
    let mut parts = word.split(':');
    let (Some(domain), Some(bus), Some(rest), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    matches!(domain.len(), 4 | 8)
        && hex(domain)
        && hex(bus)
        && rest.split_once('.').is_some_and(|(d, f)| hex(d) && hex(f))
}

/// `4438MiB /  4799MiB`; `1%   31MB / 2047MB` of driver 310; `N/A / N/A`. `None` when it is no such cell.
pub(super) fn used_and_total(cell: &str) -> Option<(Option<Bytes>, Option<Bytes>)> {
    let (used, total) = cell.split_once('/').filter(|_| !cell.starts_with("N/A")).or_else(|| {
        cell.strip_prefix("N/A").and_then(|rest| rest.trim_start().strip_prefix('/')).map(|t| ("N/A", t))
    })?;
    let used = used.split_ascii_whitespace().last().and_then(memory);
    let total = total.split_ascii_whitespace().next().and_then(memory);
    Some((used, total))
}

/// `123MiB`; a driver that prints MB means MiB.
fn memory(word: &str) -> Option<Bytes> {
    let digits = word.len().saturating_sub(word.trim_start_matches(|c: char| c.is_ascii_digit()).len());
    let number: u64 = word.get(..digits)?.parse().ok()?;
    let unit = match word.get(digits..)? {
        "MiB" | "MB" => MIB,
        "GiB" | "GB" => GIB,
        "KiB" | "kB" | "KB" => KIB,
        "B" => 1,
        _ => return None,
    };
    number.checked_mul(unit).map(Bytes)
}

pub(super) fn percent(cell: &str) -> Option<u8> {
    cell.split_ascii_whitespace().next()?.strip_suffix('%')?.parse().ok().filter(|p| *p <= 100)
}

pub(super) enum Parsed {
    Row(Box<ProcessRow>),
    Withheld,
}

/// `<gpu> [<gi> <ci>] <pid> [<type>] <name> <memory>`. The name may hold blanks and is shortened from its left.
///
/// A row that is not `whole` was cut, and so may be its last word: it is not taken for a PID or a size.
pub(super) fn parse_process(inner: &str, whole: bool, has_instances: Option<bool>) -> Option<Parsed> {
    let words = bracketed_words(inner);
    let mut left = words.as_slice();
    let device: u32 = take(&mut left)?.parse().ok().filter(|i| *i < 100_000)?;
    if inner.ends_with("Not Supported") {
        return Some(Parsed::Withheld);
    }
    let number_or_none = |word: &&str| word.parse::<u32>().is_ok() || is_absent(word);
    let instances = has_instances.unwrap_or_else(|| left.iter().take(3).filter(|w| number_or_none(w)).count() == 3);
    let subject = if instances {
        let (gi, ci) = (take(&mut left)?, take(&mut left)?);
        match (gi.parse(), ci.parse()) {
            (Ok(gpu_instance), Ok(compute_instance)) => Subject::MigSlice { device, gpu_instance, compute_instance },
            _ if is_absent(gi) && is_absent(ci) => Subject::Device(device),
            _ => return None,
        }
    } else {
        Subject::Device(device)
    };
    let pid = take(&mut left)?;
    if left.is_empty() || (pid.parse::<u32>().is_err() && !is_absent(pid)) {
        return None;
    }
    let kind = left.first().filter(|w| is_kind(w)).copied();
    if kind.is_some() {
        left = left.get(1..).unwrap_or_default();
    }
    let mut used = None;
    if let Some((last, before)) = left.split_last() {
        used = memory(last);
        // What is no memory belongs to the name, unless it is the beginning of a size that was cut.
        let is_cut_size = !whole && last.starts_with(|c: char| c.is_ascii_digit());
        if used.is_some() || is_absent(last) || is_cut_size {
            left = before;
        }
    }
    let name = left.join(" ");
    Some(Parsed::Row(Box::new(ProcessRow {
        at: Provenance::line(ArtifactId(0), 0, ""),
        subject,
        pid: pid.parse().ok(),
        kind: kind.map(str::to_owned),
        name: (!name.is_empty()).then_some(name),
        used,
        rank: None,
    })))
}

fn take<'a>(words: &mut &[&'a str]) -> Option<&'a str> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    Some(first)
}

/// `C`, `G`, `C+G`, `M+C`.
fn is_kind(word: &str) -> bool {
    !word.is_empty() && word.split('+').all(|part| matches!(part, "C" | "G" | "M"))
}

/// What is printed where there is no value.
fn is_absent(word: &str) -> bool {
    matches!(word, "N/A" | "[N/A]" | "ERR!" | "-") || (word.starts_with('[') && word.ends_with(']'))
}

/// Words, with `[Insufficient Permissions]` as one. At most 64: a name that long is cut by the tool itself.
fn bracketed_words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() && words.len() < 64 {
        let bracket = if rest.starts_with('[') { rest.find(']').map(|at| at.saturating_add(1)) } else { None };
        let end = bracket.or_else(|| rest.find(char::is_whitespace)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        words.push(word);
        rest = after.trim_start();
    }
    words
}
