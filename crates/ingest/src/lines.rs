//! Lines of foreign text: decoded, bounded, without colours and prefixes, and with who said them.
//!
//! Knows the ways in which launchers, schedulers and chat programs wrap a line; knows nothing of what lines mean.

use crate::clock;
use crate::context::Limits;
use crate::rank_name::MAX_RANK;
use crate::sniff::TextEncoding;
use rankscope_model::{ArtifactId, Provenance, Rank, UnixMicros};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

/// One line, or one piece of a line that a progress bar rewrote with carriage returns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'a> {
    /// 1-based; pieces between carriage returns share it.
    pub(crate) number: u64,
    /// The line without colours: what is quoted.
    pub(crate) text: &'a str,
    /// The line without prefixes: what is read.
    pub(crate) body: &'a str,
    /// What the prefixes say.
    pub(crate) label: Label,
    /// The time that the outermost prefix with a date tells.
    pub(crate) time: Option<UnixMicros>,
}

/// `1 row`, `3 rows`: how warnings count.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// `line 7 is`, `3 lines, the first is line 7, are`: how warnings name lines, with their verb.
pub(crate) fn lines_from(count: u64, first: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("line {first} {one}") } else { format!("{count} lines, the first is line {first}, {many}") }
}

/// How many lines have something in common, and the number of the first of them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    pub(crate) first: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, line: u64) {
        self.join(line, 1);
    }

    /// Takes in `count` more, of which `line` is the first.
    pub(crate) fn join(&mut self, line: u64, count: u64) {
        if self.count == 0 {
            self.first = line;
        }
        self.count = self.count.saturating_add(count);
    }

    /// Takes in others, whichever of them stands first.
    pub(crate) fn join_any(&mut self, other: Self) {
        let first = if self.count == 0 { other.first } else { self.first.min(other.first) };
        self.join(other.first, other.count);
        self.first = first;
    }

    /// As [`lines_from`] says it; nothing where there are none.
    pub(crate) fn told(self, one: &str, many: &str) -> Option<String> {
        (self.count > 0).then(|| lines_from(self.count, self.first, one, many))
    }
}

impl Line<'_> {
    /// This line as the place where a fact was read.
    pub(crate) fn provenance(&self, artifact: ArtifactId) -> Provenance {
        Provenance { time: self.time, ..Provenance::line(artifact, self.number, self.text) }
    }
}

/// The rank that a line's prefixes name, and how they name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Label {
    pub(crate) rank: Option<(Rank, RankFrom)>,
    /// `srun --label` number, when another prefix stands inside it.
    task: Option<u32>,
}

impl Label {
    /// Which process wrote the line, as far as its prefixes tell: lines of one writer belong together.
    pub(crate) fn writer(self) -> (Option<u32>, Option<u32>) {
        (self.task, self.rank.map(|(rank, _)| rank.0))
    }
}

/// How a rank is known. A launcher's prefix may count processes of one node only, so it is checked
/// against everything else in the file ([`Trust`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RankFrom {
    /// The program printed it: `rank=3`, `[Rank 3]`.
    Text,
    /// Open MPI's `[1,3]<stdout>:`.
    Mpi,
    /// `[default3]:` and `[rank3]:`, which torchrun fills with the local rank and PyTorch with the global one.
    Prefix,
    /// `3: ` of `srun --label`: a task, which is a rank only if each task is one process.
    Task,
    /// The file's name.
    FileName,
}

/// Whether prefixes of one file can be taken for global ranks; complete only after its last line.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    lines: u64,
    task_lines: u64,
    /// The task under which a prefix number was seen first.
    task_of_prefix: BTreeMap<u32, u32>,
    prefix_denied: bool,
    task_denied: bool,
}

/// Prefix numbers remembered by [`Trust`]; more ranks in one file than this are checked no further.
const MAX_PREFIXES: usize = 4096;

impl Trust {
    fn see(&mut self, label: Label) {
        self.lines = self.lines.saturating_add(1);
        let is_task = matches!(label.rank, Some((_, RankFrom::Task))) || label.task.is_some();
        self.task_lines = self.task_lines.saturating_add(u64::from(is_task));
        if let (Some((rank, RankFrom::Prefix)), Some(task)) = (label.rank, label.task)
            && (self.task_of_prefix.len() < MAX_PREFIXES || self.task_of_prefix.contains_key(&rank.0))
        {
            // The same number on two nodes: it counts processes of a node.
            let first = *self.task_of_prefix.entry(rank.0).or_insert(task);
            self.prefix_denied |= first != task;
        }
    }

    /// A program printed its rank behind a prefix: if they differ, the prefix is no global rank.
    pub(crate) fn compare(&mut self, printed: Rank, label: Label) {
        match label.rank {
            Some((rank, RankFrom::Prefix)) if rank != printed => self.prefix_denied = true,
            Some((rank, RankFrom::Task)) if rank != printed => self.task_denied = true,
            _ => {}
        }
        if label.task.is_some_and(|task| task != printed.0) {
            self.task_denied = true;
        }
    }

    /// Whether a rank known in this way holds. A leading `3: ` is a label of `srun` only if most lines have one.
    pub(crate) fn accepts(&self, from: RankFrom) -> bool {
        match from {
            RankFrom::Text | RankFrom::Mpi | RankFrom::FileName => true,
            RankFrom::Prefix => !self.prefix_denied,
            RankFrom::Task => !self.task_denied && self.task_lines.saturating_mul(2) > self.lines,
        }
    }
}

/// What is known after the last line.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) trust: Trust,
    /// Lines longer than the limit.
    pub(crate) cut: Tally,
    /// Lines of UTF-16 in a text of another encoding.
    pub(crate) wide: Tally,
    /// What ended the text early, with the number of the last line read.
    pub(crate) stopped: Option<(u64, io::Error)>,
}

/// Calls `each` for every line. An error of the source ends the text and is kept in [`Scan::stopped`].
pub(crate) fn for_each_line(
    input: &mut dyn BufRead,
    encoding: TextEncoding,
    limits: &Limits,
    each: &mut dyn FnMut(Line<'_>, &mut Trust),
) -> Scan {
    match encoding {
        TextEncoding::Utf8 => split(input, limits, each),
        TextEncoding::Utf16Le | TextEncoding::Utf16Be => {
            let utf16 = Utf16 { inner: input, big: encoding == TextEncoding::Utf16Be, ready: Vec::new(), given: 0 };
            split(&mut io::BufReader::with_capacity(64 << 10, utf16), limits, each)
        }
    }
}

fn split(input: &mut dyn BufRead, limits: &Limits, each: &mut dyn FnMut(Line<'_>, &mut Trust)) -> Scan {
    let mut scan = Scan::default();
    let mut splitter =
        Splitter { limit: limits.max_line_bytes, number: 1, line: Vec::new(), cut: false, given: false, wide: false };
    loop {
        let chunk = match input.fill_buf() {
            Ok([]) => break,
            Ok(chunk) => chunk,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => {
                scan.stopped = Some((splitter.number, e));
                break;
            }
        };
        let size = chunk.len();
        let mut rest = chunk;
        while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
            let (piece, end) = rest.split_at(at);
            splitter.push(piece);
            let newline = end.first() == Some(&b'\n');
            splitter.give(newline, &mut scan, each);
            rest = end.get(1..).unwrap_or_default();
        }
        splitter.push(rest);
        input.consume(size);
    }
    splitter.give(false, &mut scan, each);
    scan
}

/// Gathers the bytes of one line, up to the limit.
struct Splitter {
    limit: usize,
    number: u64,
    line: Vec<u8>,
    cut: bool,
    /// A piece of this line was given already, so that the newline of CR LF is not an empty line.
    given: bool,
    /// The piece before was UTF-16 in a text of another encoding.
    wide: bool,
}

impl Splitter {
    fn push(&mut self, piece: &[u8]) {
        let room = self.limit.saturating_sub(self.line.len());
        match piece.get(..room) {
            Some(fits) if piece.len() > room => {
                self.line.extend_from_slice(fits);
                self.cut = true;
            }
            _ => self.line.extend_from_slice(piece),
        }
    }

    fn give(&mut self, newline: bool, scan: &mut Scan, each: &mut dyn FnMut(Line<'_>, &mut Trust)) {
        if self.cut {
            scan.cut.add(self.number);
            self.cut = false;
        }
        let behind_wide = std::mem::replace(&mut self.wide, is_wide(&self.line));
        if self.wide {
            self.line.retain(|b| !matches!(b, 0 | 0xfe | 0xff));
            if !self.line.is_empty() {
                scan.wide.add(self.number);
            }
        } else if behind_wide && self.line.first() == Some(&0) {
            // The second half of a line end.
            self.line.remove(0);
        }
        if !self.line.is_empty() || (newline && !self.given) {
            let raw = String::from_utf8_lossy(&self.line);
            let raw = raw.strip_prefix('\u{feff}').unwrap_or(&raw);
            let text = without_colours(raw);
            let text = text.trim_end();
            let mut outer = None;
            for text in pieces(text) {
                let (label, time, body) = label_and_body(text);
                if !text.is_empty() {
                    scan.trust.see(label);
                }
                // A time stands at the beginning of the line and holds for all of it.
                outer = time.or(outer);
                each(Line { number: self.number, text, body, label, time: outer }, &mut scan.trust);
            }
            self.line.clear();
            self.given = true;
        }
        if newline {
            self.number = self.number.saturating_add(1);
            self.given = false;
        }
    }
}

/// Whether a line of bytes is UTF-16, which another shell added to the file: a NUL in every second place, and never two
/// together as where a file has a hole. What is left without them is the text, as far as it is ASCII.
fn is_wide(line: &[u8]) -> bool {
    let line = line.strip_prefix(b"\xff\xfe").or_else(|| line.strip_prefix(b"\xfe\xff")).unwrap_or(line);
    memchr::memchr(0, line).is_some()
        && memchr::memchr_iter(0, line).count().saturating_mul(5) >= line.len().saturating_mul(2)
        && memchr::memmem::find(line, b"\0\0").is_none()
}

/// Writers that may cut one line into each other; what stands behind the last is left to it.
const MAX_PIECES: usize = 16;

/// A line, parted where a process wrote into the middle of another's: `Tried to all[rank1]: Traceback …`. Each piece
/// begins with the prefix of its own writer, so that none takes the words of another.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    let mut given = 0;
    std::iter::from_fn(move || {
        let whole = rest.take()?;
        given = 1usize.saturating_add(given);
        let Some(at) = cut_at(whole).filter(|_| given < MAX_PIECES) else { return Some(whole) };
        let (piece, behind) = whole.split_at_checked(at)?;
        rest = Some(behind);
        Some(piece)
    })
}

/// Where another process began to write.
fn cut_at(text: &str) -> Option<usize> {
    match (prefix_inside(text), rank_behind_figure(text)) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Where `rank=1` touches the figure before it: `peak=40000MiBrank=1 step=1`. No program writes that in one print.
fn rank_behind_figure(text: &str) -> Option<usize> {
    memchr::memmem::find_iter(text.as_bytes(), b"ank").filter_map(|at| at.checked_sub(1)).find(|at| {
        let Some((before, from)) = text.split_at_checked(*at) else { return false };
        let Some(value) = from.strip_prefix("rank").or_else(|| from.strip_prefix("Rank")) else { return false };
        let value = value.strip_prefix(['=', ':', ' ']).unwrap_or_default();
        value.trim_start().starts_with(|c: char| c.is_ascii_digit()) && ends_in_figure(before)
    })
}

/// Units behind which a figure ends.
const UNITS: [&str; 14] = ["MiB", "MB", "GiB", "GB", "KiB", "KB", "kB", "TiB", "TB", "bytes", "Bytes", "B", "M", "G"];

/// `peak=40000MiB`, `1.5 GB`, `step=4`; not `node3`, whose digit belongs to a name.
fn ends_in_figure(text: &str) -> bool {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.get(number.len()..).unwrap_or_default();
    if !(unit.is_empty() || UNITS.contains(&unit)) {
        return false;
    }
    let number = if unit.is_empty() { number } else { number.trim_end_matches(' ') };
    let before = number.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    number.ends_with(|c: char| c.is_ascii_digit())
        && !before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

/// Where the prefix of another process stands behind other text. Only the prefixes that launchers write, with their
/// colon: `[rank 3]` inside a sentence is the program's own.
fn prefix_inside(text: &str) -> Option<usize> {
    memchr::memchr_iter(b'[', text.as_bytes()).skip_while(|at| *at == 0).find(|at| {
        let Some((before, prefix)) = text.split_at_checked(*at) else { return false };
        let could_be = prefix.starts_with("[rank")
            || prefix.starts_with("[default")
            || prefix.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
        let named = if could_be { bracket_prefix(prefix) } else { None };
        let Some((Some((rank, RankFrom::Prefix | RankFrom::Mpi)), _)) = named else { return false };
        // Behind other prefixes, such as a time or a task, it is one of a stack of the same writer.
        let (own, _, said) = label_and_body(before);
        !said.trim().is_empty() && own.rank.is_none_or(|(known, _)| known != rank)
    })
}

/// Removes terminal sequences (`ESC [ … m` and the like).
fn without_colours(text: &str) -> Cow<'_, str> {
    if !text.contains('\x1b') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\x1b' {
            plain.push(c);
            continue;
        }
        match chars.next() {
            // Control sequence: parameters, then one final character.
            Some('[') => {
                chars.by_ref().find(|c| ('\u{40}'..='\u{7e}').contains(c));
            }
            // Operating system command: until BEL, or ESC and the backslash after it.
            Some(']') => {
                let end = chars.by_ref().find(|c| matches!(c, '\x07' | '\x1b'));
                if end == Some('\x1b') {
                    chars.next();
                }
            }
            _ => {}
        }
    }
    Cow::Owned(plain)
}

/// Most prefixes that are stacked in practice: kubectl, time, srun, torchrun, PyTorch, quote signs.
const MAX_PREFIX_DEPTH: usize = 10;

/// Takes the prefixes off a line. The innermost one that names a rank counts.
fn label_and_body(text: &str) -> (Label, Option<UnixMicros>, &str) {
    let mut label = Label::default();
    let mut time = None;
    let mut body = text.trim_start();
    for _ in 0..MAX_PREFIX_DEPTH {
        let stamp = body.strip_prefix('[').unwrap_or(body);
        if time.is_none() && stamp.starts_with(|c: char| c.is_ascii_digit()) {
            time = clock::parse_stamp(stamp);
        }
        let Some((rank, rest)) = take_prefix(body) else { break };
        if let Some(rank) = rank {
            if let Some((task, RankFrom::Task)) = label.rank {
                label.task = Some(task.0);
            }
            label.rank = Some(rank);
        }
        body = rest.trim_start();
    }
    (label, time, body)
}

type Prefix = (Rank, RankFrom);

fn take_prefix(text: &str) -> Option<(Option<Prefix>, &str)> {
    match text.bytes().next()? {
        b'>' => {
            let rest = text.trim_start_matches('>');
            (rest.is_empty() || rest.starts_with([' ', '\t', '|', '+', '['])).then_some((None, rest))
        }
        b'`' => Some((None, text.trim_start_matches('`'))),
        b'[' => bracket_prefix(text),
        b'(' => ray_prefix(text),
        b'0'..=b'9' => time_prefix(text).map(|rest| (None, rest)).or_else(|| task_prefix(text)),
        _ => compose_prefix(text).map(|rest| (None, rest)),
    }
}

/// `[default3]:`, `[rank3]:`, `[rank3] `, `[rank=3] `, `[Rank 3] `, `[1,3]<stdout>:`, `[pod/a/b] `, `[] `, and times.
fn bracket_prefix(text: &str) -> Option<(Option<Prefix>, &str)> {
    let inner_and_rest = text.strip_prefix('[')?;
    let end = inner_and_rest.bytes().take(160).position(|b| b == b']')?;
    let (inner, rest) = (inner_and_rest.get(..end)?, inner_and_rest.get(end.saturating_add(1)..)?);
    let colon = rest.strip_prefix(':');
    if inner.is_empty() || inner.starts_with("pod/") || starts_like_time(inner) {
        return Some((None, colon.unwrap_or(rest)));
    }
    if let Some(number) = inner.strip_prefix("default") {
        return Some((Some((rank(number)?, RankFrom::Prefix)), colon?));
    }
    if let Some((_, number)) = inner.split_once(',') {
        let rest = rest.strip_prefix("<stdout>").or_else(|| rest.strip_prefix("<stderr>"))?;
        return Some((Some((rank(number)?, RankFrom::Mpi)), rest.strip_prefix(':').unwrap_or(rest)));
    }
    let number = strip_prefix_ignore_case(inner, "rank")?;
    let tight = number.starts_with(|c: char| c.is_ascii_digit());
    let number = rank(number.trim_start_matches(['=', ':', ' ']))?;
    Some(match colon {
        Some(rest) if tight => (Some((number, RankFrom::Prefix)), rest),
        _ => (Some((number, RankFrom::Text)), colon.unwrap_or(rest)),
    })
}

/// `(RayWorker pid=123, ip=10.0.0.1) `, `(Trainer rank=3 pid=123) `.
fn ray_prefix(text: &str) -> Option<(Option<Prefix>, &str)> {
    let inner_and_rest = text.strip_prefix('(')?;
    let end = inner_and_rest.bytes().take(160).position(|b| b == b')')?;
    let (inner, rest) = (inner_and_rest.get(..end)?, inner_and_rest.get(end.saturating_add(1)..)?);
    let named = |key: &str| inner.split([' ', ',']).find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
    let rank = named("rank").and_then(rank).map(|r| (r, RankFrom::Text));
    (rank.is_some() || named("pid").is_some()).then_some((rank, rest))
}

/// `3: ` of `srun --label`.
fn task_prefix(text: &str) -> Option<(Option<Prefix>, &str)> {
    let end = text.bytes().take(8).position(|b| b == b':')?;
    let rest = text.get(end.saturating_add(1)..)?;
    if !(rest.is_empty() || rest.starts_with(' ')) {
        return None;
    }
    Some((Some((rank(text.get(..end)?)?, RankFrom::Task)), rest))
}

/// `2025-11-12T11:25:13.49Z `, `2021-11-30 15:02:10 `, `14:30:14 `.
fn time_prefix(text: &str) -> Option<&str> {
    if !starts_like_time(text) {
        return None;
    }
    let is_date = text.as_bytes().get(4) == Some(&b'-');
    let separated = is_date && text.as_bytes().get(10) == Some(&b' ');
    let from = if separated { 11 } else { 0 };
    let end = text.get(from..)?.find(' ')?;
    let rest = text.get(from.saturating_add(end)..)?;
    // `2021-11-30 rank 0` has a date only; keep what follows it.
    let time = text.get(from..from.saturating_add(end))?;
    (!separated || starts_like_time(time)).then_some(rest)
}

fn starts_like_time(text: &str) -> bool {
    let shape = |pattern: &[u8]| {
        text.as_bytes().get(..pattern.len()).is_some_and(|head| {
            head.iter().zip(pattern).all(|(b, p)| if *p == b'0' { b.is_ascii_digit() } else { b == p })
        })
    };
    shape(b"00:00:00") || shape(b"0000-00-00")
}

/// `trainer-1  | ` of docker compose, only before something that is a table row or a log line of its own.
fn compose_prefix(text: &str) -> Option<&str> {
    let (name, rest) = text.split_once(" | ")?;
    let name = name.trim_end();
    let is_name = name.len() <= 64
        && name.ends_with(|c: char| c.is_ascii_digit())
        && name.contains(['-', '_'])
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    is_name.then_some(rest)
}

fn rank(digits: &str) -> Option<Rank> {
    let digits = digits.trim();
    let number: u32 = if digits.len() <= 7 { digits.parse().ok()? } else { return None };
    (digits.bytes().all(|b| b.is_ascii_digit()) && number < MAX_RANK).then_some(Rank(number))
}

fn strip_prefix_ignore_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| text.get(prefix.len()..))?
}

/// Turns UTF-16 into UTF-8 as it is read. Broken pairs become the replacement character.
struct Utf16<'a> {
    inner: &'a mut dyn BufRead,
    big: bool,
    ready: Vec<u8>,
    given: usize,
}

impl Read for Utf16<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.given >= self.ready.len() {
            self.refill()?;
        }
        let mut left = self.ready.get(self.given..).unwrap_or_default();
        let n = left.read(buf)?;
        self.given = self.given.saturating_add(n);
        Ok(n)
    }
}

impl Utf16<'_> {
    fn refill(&mut self) -> io::Result<()> {
        self.ready.clear();
        self.given = 0;
        let mut units = Vec::with_capacity(4096);
        while units.len() < 4096 {
            match self.unit()? {
                Some(unit) => units.push(unit),
                None => break,
            }
        }
        // A surrogate pair must not be torn at the end of a refill.
        if units.last().is_some_and(|u| (0xd800..0xdc00).contains(u))
            && let Some(unit) = self.unit()?
        {
            units.push(unit);
        }
        let mut utf8 = [0u8; 4];
        for c in char::decode_utf16(units) {
            let c = c.unwrap_or(char::REPLACEMENT_CHARACTER);
            self.ready.extend_from_slice(c.encode_utf8(&mut utf8).as_bytes());
        }
        Ok(())
    }

    fn unit(&mut self) -> io::Result<Option<u16>> {
        let mut pair = [0u8; 2];
        match self.inner.read_exact(&mut pair) {
            Ok(()) => Ok(Some(if self.big { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) })),
            // An odd last byte is half a character of a cut file.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8], encoding: TextEncoding) -> (Vec<(u64, String)>, Scan) {
        let limits = Limits { max_line_bytes: 100, ..Limits::default() };
        let mut seen = Vec::new();
        let scan = for_each_line(&mut &*bytes, encoding, &limits, &mut |line, _| {
            seen.push((line.number, line.text.to_owned()));
        });
        (seen, scan)
    }

    #[test]
    fn a_line_that_two_processes_wrote_is_parted_between_them() {
        let parts = |text: &str| pieces(text).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            parts("[rank0]: CUDA out of memory. Tried to all[rank1]: CUDA out of memory."),
            ["[rank0]: CUDA out of memory. Tried to all", "[rank1]: CUDA out of memory."]
        );
        assert_eq!(parts("Tried to[default3]:step 4"), ["Tried to", "[default3]:step 4"]);
        assert_eq!(parts("[1,0]<stderr>:Tried[1,2]<stderr>:step"), ["[1,0]<stderr>:Tried", "[1,2]<stderr>:step"]);
        assert_eq!(
            parts("rank=0 step=1 peak=40000MiBrank=1 step=1 peak=30000 MiBRank: 2 peak=1.5rank 3"),
            ["rank=0 step=1 peak=40000MiB", "rank=1 step=1 peak=30000 MiB", "Rank: 2 peak=1.5", "rank 3"]
        );
        // Stacked prefixes, the same process, brackets of a program's own; names that end in `rank`, figures apart.
        for whole in [
            "node3rank=1 dp_rank=2 peak=5MB rank=3",
            "loss=5xrank=3 peak=MiBrank=1 5MBrank=x 5MBranks=3",
            "12:00:01 [default3]:[rank3]: step",
            "3: [rank3]: step",
            "[rank3]: step [rank3]: again",
            "[rank0]: peers are [rank 1] and [Rank 2]",
            "loss [rank]: 3",
            "",
        ] {
            assert_eq!(parts(whole), [whole]);
        }
        assert_eq!(parts(&"[rank1]: a[rank2]: b".repeat(500)).len(), MAX_PIECES);
    }

    #[test]
    fn line_ends_of_every_system_count_once() {
        let (seen, _) = lines(b"a\r\nb\n\nc\rd", TextEncoding::Utf8);
        let expected = [(1, "a"), (2, "b"), (3, ""), (4, "c"), (4, "d")];
        assert_eq!(seen, expected.map(|(n, t)| (n, t.to_owned())));
    }

    #[test]
    fn progress_bars_are_pieces_of_one_line() {
        let (seen, _) = lines(b"10%\r 20%\r 30%\nnext\n", TextEncoding::Utf8);
        assert_eq!(seen.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 1, 1, 2]);
    }

    #[test]
    fn long_lines_are_cut_and_counted() {
        let long = [b"x".repeat(1000), b"\nnext\n".to_vec()].concat();
        let (seen, scan) = lines(&long, TextEncoding::Utf8);
        assert_eq!(seen.first().map(|(_, t)| t.len()), Some(100));
        assert_eq!(seen.get(1), Some(&(2, "next".to_owned())));
        assert_eq!((scan.cut.count, scan.cut.first), (1, 1));
    }

    #[test]
    fn utf16_of_both_orders_is_decoded() {
        let text = "\u{feff}| NVIDIA-SMI |\r\n😀 ok\n";
        let le: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let be: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for (bytes, encoding) in [(le, TextEncoding::Utf16Le), (be, TextEncoding::Utf16Be)] {
            let (seen, _) = lines(&bytes, encoding);
            assert_eq!(seen, [(1, "| NVIDIA-SMI |".to_owned()), (2, "😀 ok".to_owned())]);
        }
    }

    #[test]
    fn utf16_behind_other_text_is_read() {
        let le = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let be = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
        for wide in [le("two\r\nthree\r\n"), be("two\r\nthree\r\n"), le("\u{feff}two\nthree\n")] {
            let (seen, scan) = lines(&[b"one\n", wide.as_slice(), b"four\n"].concat(), TextEncoding::Utf8);
            let seen: Vec<_> =
                seen.iter().filter(|(_, text)| !text.is_empty()).map(|(n, t)| (*n, t.as_str())).collect();
            assert_eq!(seen, [(1, "one"), (2, "two"), (3, "three"), (4, "four")]);
            assert_eq!(scan.wide.first, 2);
        }
        // A hole is none, and neither is a stray NUL.
        let (_, scan) = lines(b"ab\0\0\0\0cd\nGPU \0 has\n", TextEncoding::Utf8);
        assert_eq!(scan.wide.count, 0);
    }

    #[test]
    fn colours_are_removed() {
        assert_eq!(without_colours("\x1b[1;31mred\x1b[0m \x1b]0;title\x07end"), "red end");
        assert_eq!(without_colours("\x1b[31"), "");
        assert_eq!(without_colours("\x1b"), "");
    }

    #[test]
    fn prefixes_name_the_writer() {
        let read = |text: &'static str| {
            let (label, _, body) = label_and_body(text);
            (label.rank.map(|(r, from)| (r.0, from)), body)
        };
        assert_eq!(read("[default4]:CUDA out"), (Some((4, RankFrom::Prefix)), "CUDA out"));
        assert_eq!(read("[rank3]: Traceback"), (Some((3, RankFrom::Prefix)), "Traceback"));
        assert_eq!(read("[rank0] step 1"), (Some((0, RankFrom::Text)), "step 1"));
        assert_eq!(read("[Rank 12] (after"), (Some((12, RankFrom::Text)), "(after"));
        assert_eq!(read("> [] [rank=0] Runtime"), (Some((0, RankFrom::Text)), "Runtime"));
        assert_eq!(read("[1,3]<stderr>:text"), (Some((3, RankFrom::Mpi)), "text"));
        assert_eq!(read("  5: text"), (Some((5, RankFrom::Task)), "text"));
        assert_eq!(read("0: [default3]:text"), (Some((3, RankFrom::Prefix)), "text"));
        assert_eq!(read("(RayWorker pid=12, ip=10.0.0.1) [rank2] x"), (Some((2, RankFrom::Text)), "x"));
        assert_eq!(read("(Trainer rank=7 pid=1) x"), (Some((7, RankFrom::Text)), "x"));
        assert_eq!(read("2025-11-12T11:25:13.4961658Z FAILED"), (None, "FAILED"));
        assert_eq!(read("14:30:14 rank=1 x"), (None, "rank=1 x"));
        assert_eq!(read("[17:26:21] $ python"), (None, "$ python"));
        assert_eq!(read("[2023-10-06 07:40:11,318] x"), (None, "x"));
        assert_eq!(read("trainer-1  | | GPU |"), (None, "| GPU |"));
        assert_eq!(read("[train] rank=0"), (None, "[train] rank=0"));
        assert_eq!(read("(8, 512)"), (None, "(8, 512)"));
        assert_eq!(read(">>> 1"), (None, "1"));
        assert_eq!(read("10:20 late"), (None, "10:20 late"));
    }

    #[test]
    fn a_date_in_front_is_the_time_of_the_line() {
        let time = |text| label_and_body(text).1.map(|t| t.0);
        let expected = Some(1_608_115_267_250_000);
        assert_eq!(time("2020-12-16 10:41:07,250 INFO x"), expected);
        assert_eq!(time("[rank3]: [2020-12-16 10:41:07,250] [INFO] x"), expected);
        assert_eq!(time("10:41:07 x"), None);
    }

    #[test]
    fn a_launcher_prefix_is_dropped_when_the_file_speaks_against_it() {
        let trust = |text: &str| {
            for_each_line(&mut text.as_bytes(), TextEncoding::Utf8, &Limits::default(), &mut |_, _| {}).trust
        };
        assert!(trust("0: [default3]:a\n0: [default4]:a\n").accepts(RankFrom::Prefix));
        assert!(!trust("0: [default3]:a\n1: [default3]:a\n").accepts(RankFrom::Prefix));
        assert!(trust("0: a\n1: a\nb\n").accepts(RankFrom::Task));
        assert!(!trust("0: a\nb\nc\n").accepts(RankFrom::Task));
        let mut against = Trust::default();
        against.compare(Rank(9), Label { rank: Some((Rank(1), RankFrom::Prefix)), task: None });
        assert!(!against.accepts(RankFrom::Prefix));
        assert!(against.accepts(RankFrom::Text));
    }
}
