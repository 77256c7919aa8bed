//! From one uploaded file to evidence: unpacks, sniffs, and gives each file to its readers.
//!
//! Never fails: what cannot be read becomes an artifact that says why. Knows no format itself.

use crate::container::{self, Budget, Member, display_name};
use crate::context::{Limits, ReadContext, ReadError};
use crate::live_record;
use crate::probe_log;
use crate::python_script;
use crate::query_range;
use crate::sniff::{self, Content, TextEncoding};
use crate::step_log::thin::thin_together;
use crate::viewer_page::{self, Page};
use crate::{json, launch, memory_timeline, profiler_trace, text, torch_snapshot};
use rankscope_model::{ArtifactId, ArtifactInfo, ArtifactKind, Evidence, LaunchSource};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes that can be read and searched; a zip file has its directory at its end.
pub trait ReadSeek: Read + Seek {}
impl<T: Read + Seek + ?Sized> ReadSeek for T {}

/// Reads one uploaded file of any kind.
///
/// gzip, Zstandard, zip and tar are unpacked by content, one archive inside another at most; members become
/// artifacts named `archive.zip/member`. The result holds at least one artifact, the upload itself first. A file
/// that cannot be read is [`ArtifactKind::Unreadable`] with the reason in its warnings, and never sinks the others.
pub fn read_upload(name: &str, input: &mut dyn ReadSeek, limits: &Limits) -> Evidence {
    let name = display_name(name);
    let size = input.seek(SeekFrom::End(0)).and_then(|size| input.seek(SeekFrom::Start(0)).map(|_| size));
    let size = match size {
        Ok(size) => size,
        Err(e) => return unreadable(&name, 0, format!("its bytes could not be had ({e}); upload it again")),
    };
    let budget = Budget::new(size, limits);
    let mut upload = Upload { limits, budget: &budget, evidence: Evidence::default(), held: 0, thinned: (0, 0) };
    upload.fenced(&name, size, |upload| upload.seekable(&name, size, input, Depth::default()));
    upload.finish();
    if upload.evidence.artifacts.is_empty() {
        return unreadable(&name, size, "nothing in it could be read".to_owned());
    }
    upload.evidence
}

/// How many layers stand around the bytes at hand.
#[derive(Debug, Clone, Copy, Default)]
struct Depth {
    archives: u8,
    codecs: u8,
}

/// An archive, and one archive inside it.
const MAX_ARCHIVES: u8 = 2;
/// `.gz` inside `.zst` and the like happens by accident once, not three times.
const MAX_CODECS: u8 = 2;

struct Upload<'a> {
    limits: &'a Limits,
    budget: &'a Budget,
    evidence: Evidence,
    /// Bytes of the evidence without its step records, as JSON.
    held: u64,
    /// Step records of all files that were left out, and the width of a bucket in steps.
    thinned: (u64, u64),
}

impl Upload<'_> {
    /// Runs `read` behind a fence for the decoders underneath, which are not ours and run on hostile bytes.
    fn fenced(&mut self, name: &str, bytes: u64, read: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| read(self))).is_err() {
            let why = "a decoder failed on this file; this is a defect of Rankscope, please report it with the file";
            self.add(unreadable(name, bytes, why.to_owned()));
        }
    }

    /// Bytes in which a zip's directory can be found.
    fn seekable(&mut self, name: &str, bytes: u64, input: &mut dyn ReadSeek, depth: Depth) {
        let mut head = [0u8; 4];
        let is_zip = input.read_exact(&mut head).is_ok() && sniff::sniff(&head) == Content::Zip;
        if let Err(e) = input.seek(SeekFrom::Start(0)) {
            self.add(unreadable(name, bytes, format!("its bytes could not be had ({e}); upload it again")));
        } else if is_zip {
            self.zip(name, bytes, input, depth);
        } else {
            self.stream(name, bytes, &mut BufReader::new(input), depth);
        }
    }

    /// Bytes that come once. `bytes` is the size to show for the artifact.
    fn stream(&mut self, name: &str, bytes: u64, input: &mut dyn Read, depth: Depth) {
        let mut peeked = Peeked::new(input);
        let content = sniff::sniff(&peeked.head);
        match content {
            Content::Empty => {
                let why = peeked.error.map_or_else(
                    || "empty: 0 bytes; if it should hold something, the copy or redirection failed".to_owned(),
                    |e| e.to_string(),
                );
                self.add(unreadable(name, bytes, why));
            }
            Content::Gzip | Content::Zstd if depth.codecs >= MAX_CODECS => {
                self.add(unreadable(
                    name,
                    bytes,
                    "compressed more than twice; unpack it and upload the file".to_owned(),
                ));
            }
            Content::Gzip => {
                let depth = Depth { codecs: depth.codecs.saturating_add(1), ..depth };
                let (budget, first) = (self.budget, self.evidence.artifacts.len());
                let mut unpacked = container::Gunzip::new(&mut peeked);
                self.stream(name, bytes, &mut budget.meter(&mut unpacked), depth);
                if unpacked.has_rest()
                    && let Some(artifact) = self.evidence.artifacts.get_mut(first)
                {
                    artifact.warnings.push("bytes behind the end of the packed data were left aside".to_owned());
                }
            }
            Content::Zstd => {
                let depth = Depth { codecs: depth.codecs.saturating_add(1), ..depth };
                let (budget, limits) = (self.budget, self.limits);
                self.stream(name, bytes, &mut budget.meter(container::unzstd(&mut peeked, limits)), depth);
            }
            Content::Zip => self.spooled_zip(name, bytes, &mut peeked, depth),
            Content::Tar => self.tar(name, bytes, &mut peeked, depth),
            Content::Text(encoding) if probe_log::is_probe_log(&peeked.head) => {
                let mut input = BufReader::with_capacity(256 << 10, peeked);
                self.file(name, bytes, |ctx| probe_log::read_with(&mut input, encoding, ctx));
            }
            Content::Text(TextEncoding::Utf8) if live_record::is_live_record(&peeked.head) => {
                let mut input = BufReader::with_capacity(256 << 10, peeked);
                self.file(name, bytes, |ctx| live_record::read(&mut input, ctx));
            }
            Content::Text(TextEncoding::Utf8) => self.text(name, bytes, peeked, depth),
            Content::Environ => {
                let mut input = BufReader::new(peeked);
                self.file(name, bytes, |ctx| read_launch(LaunchSource::Environment, &mut input, ctx));
            }
            content => {
                let mut input = BufReader::with_capacity(256 << 10, peeked);
                self.file(name, bytes, |ctx| read_file(content, &mut input, ctx));
            }
        }
    }

    /// Text of a kind that its beginning tells goes to that reader alone, all other text to the text readers.
    fn text(&mut self, name: &str, bytes: u64, peeked: Peeked<'_>, depth: Depth) {
        let head = String::from_utf8_lossy(&peeked.head).into_owned();
        let launch = launch::source_of(name, &peeked.head);
        let mut input = BufReader::with_capacity(256 << 10, peeked);
        if python_script::is_notebook(name) || sniff::is_python(name, &head) {
            self.file(name, bytes, |ctx| read_script(&mut input, ctx));
        } else if profiler_trace::looks_like(&head) {
            self.file(name, bytes, |ctx| or_reason(profiler_trace::read(&mut input, ctx), ctx));
        } else if memory_timeline::looks_like(&head) {
            self.file(name, bytes, |ctx| or_reason(memory_timeline::read(&mut input, ctx), ctx));
        } else if query_range::looks_like(&head) {
            self.file(name, bytes, |ctx| or_reason(query_range::read(&mut input, ctx), ctx));
        } else if let Some(page) = viewer_page::looks_like(&head) {
            match page {
                Page::Viewer => {
                    self.archive(name, bytes, depth, |visit| viewer_page::each_file(&mut input, bytes, visit));
                }
                Page::Picture => self.add(unreadable(name, bytes, viewer_page::ONLY_A_PICTURE.to_owned())),
            }
        } else if let Some(source) = launch {
            self.file(name, bytes, |ctx| read_launch(source, &mut input, ctx));
        } else {
            self.file(name, bytes, |ctx| read_file(Content::Text(TextEncoding::Utf8), &mut input, ctx));
        }
    }

    /// A zip that is compressed or a member: its directory is at its end, so it must be held.
    fn spooled_zip(&mut self, name: &str, bytes: u64, input: &mut dyn Read, depth: Depth) {
        let limit = self.limits.max_spooled_bytes;
        let mut held = Vec::new();
        match input.take(limit.saturating_add(1)).read_to_end(&mut held) {
            Err(e) => self.add(unreadable(name, bytes, format!("the zip file inside could not be unpacked: {e}"))),
            Ok(n) if n as u64 > limit => {
                let limit = rankscope_model::Bytes(limit);
                self.add(unreadable(
                    name,
                    bytes,
                    format!("a zip file inside another file may have {limit} at most; upload it on its own"),
                ));
            }
            Ok(_) => self.zip(name, bytes, &mut Cursor::new(held), depth),
        }
    }

    fn zip(&mut self, name: &str, bytes: u64, input: &mut dyn ReadSeek, depth: Depth) {
        let limits = self.limits;
        self.archive(name, bytes, depth, |visit| container::each_zip_member(input, limits, visit));
    }

    fn tar(&mut self, name: &str, bytes: u64, input: &mut dyn Read, depth: Depth) {
        let limits = self.limits;
        self.archive(name, bytes, depth, |visit| Ok(container::each_tar_member(input, limits, visit)));
    }

    fn archive(
        &mut self,
        name: &str,
        bytes: u64,
        depth: Depth,
        each: impl FnOnce(&mut dyn FnMut(Member<'_>) -> ControlFlow<()>) -> Result<container::Notes, String>,
    ) {
        if depth.archives >= MAX_ARCHIVES {
            let why = "an archive inside an archive inside an archive is not opened; upload it on its own".to_owned();
            self.add(unreadable(name, bytes, why));
            return;
        }
        // The archive stands before its members; its warnings are known only after them.
        let own = self.evidence.artifacts.len();
        self.evidence.artifacts.push(info(name, ArtifactKind::Archive, bytes));
        let inside = Depth { archives: depth.archives.saturating_add(1), codecs: 0 };
        let mut members = 0usize;
        let listed = each(&mut |member| {
            members = members.saturating_add(1);
            self.member(name, member, inside);
            if self.budget.is_spent()
                || self.is_full()
                || self.evidence.artifacts.len() > self.limits.max_members as usize
            {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        let is_full = self.is_full();
        let too_many = self.evidence.artifacts.len() > self.limits.max_members as usize;
        let Some(archive) = self.evidence.artifacts.get_mut(own) else { return };
        match listed {
            Ok(notes) => archive.warnings.extend(notes),
            Err(why) => {
                archive.kind = ArtifactKind::Unreadable;
                archive.warnings.push(why);
                return;
            }
        }
        if self.budget.is_spent() {
            archive.warnings.push(self.budget.refusal());
        } else if is_full {
            let limit = rankscope_model::Bytes(self.limits.max_evidence_bytes);
            archive.warnings.push(format!(
                "what was found in the files so far passes the limit of {limit}; the rest was not read. Upload fewer files \
                 at a time"
            ));
        } else if too_many {
            let limit = self.limits.max_members;
            archive.warnings.push(format!("more than {limit} files in one upload; the rest was not read"));
        } else if members == 0 {
            archive.warnings.push("the archive holds no files".to_owned());
        }
    }

    fn member(&mut self, archive: &str, member: Member<'_>, depth: Depth) {
        let name = format!("{archive}/{}", member.name);
        match member.data {
            Err(why) => self.add(unreadable(&name, member.bytes, why)),
            Ok(data) => {
                let budget = self.budget;
                let own = self.evidence.artifacts.len();
                let mut measured = Measured { inner: budget.meter(data), bytes: 0, ended: false };
                self.fenced(&name, member.bytes, |this| this.stream(&name, member.bytes, &mut measured, depth));
                // What the archive claims is a claim; what came out of it is known where all of it was read.
                if measured.ended
                    && let Some(artifact) = self.evidence.artifacts.get_mut(own)
                {
                    artifact.bytes = measured.bytes;
                }
            }
        }
    }

    /// A file that holds no others.
    fn file(&mut self, name: &str, bytes: u64, read: impl FnOnce(&ReadContext<'_>) -> Evidence) {
        let ctx = ReadContext { artifact: ArtifactId(0), name, limits: self.limits };
        let mut evidence = read(&ctx);
        for artifact in &mut evidence.artifacts {
            artifact.bytes = bytes;
        }
        self.add(evidence);
    }

    fn add(&mut self, mut evidence: Evidence) {
        // Each file alone is bounded by its reader; many together are counted.
        if !self.evidence.artifacts.is_empty() {
            let steps = std::mem::take(&mut evidence.steps);
            self.held = self.held.saturating_add(json::size(&evidence));
            evidence.steps = steps;
        }
        self.evidence.append(evidence);
        // A quarter more as room, so that thinning is rare and its cost stays linear.
        let limit = self.limits.max_upload_step_records;
        if self.evidence.steps.len() > limit.saturating_add(limit / 4) {
            self.thin();
        }
    }

    fn is_full(&self) -> bool {
        self.held > self.limits.max_evidence_bytes
    }

    fn thin(&mut self) {
        let (dropped, width) =
            thin_together(&mut self.evidence.steps, self.limits.max_upload_step_records, self.thinned.1);
        self.thinned = (self.thinned.0.saturating_add(dropped), width);
    }

    fn finish(&mut self) {
        if self.evidence.steps.len() > self.limits.max_upload_step_records {
            self.thin();
        }
        self.evidence.join_cards();
        self.name_tables_without_memory();
        let (dropped, width) = self.thinned;
        if dropped > 0
            && let Some(first) = self.evidence.artifacts.first_mut()
        {
            first.warnings.push(format!(
                "{dropped} step records of the files in it were left out, {} are kept: of each file, rank and {width} steps \
                 the one with the largest peak",
                self.evidence.steps.len()
            ));
        }
    }

    fn name_tables_without_memory(&mut self) {
        let mut tells: BTreeMap<u32, bool> = BTreeMap::new();
        for table in self.evidence.device_tables.iter().filter(|table| !table.devices.is_empty()) {
            let told = table.devices.iter().any(|device| device.used.or(device.free).is_some())
                || table.processes.iter().any(|process| process.used.is_some());
            *tells.entry(table.at.artifact.0).or_default() |= told;
        }
        for (artifact, _) in tells.into_iter().filter(|(_, told)| !told) {
            let artifact = usize::try_from(artifact).unwrap_or(usize::MAX);
            // A table that was asked for without it is what its owner wanted.
            let whole = [ArtifactKind::NvidiaSmiQuery, ArtifactKind::Prometheus];
            let artifact = self.evidence.artifacts.get_mut(artifact);
            if let Some(artifact) = artifact.filter(|artifact| whole.contains(&artifact.kind)) {
                artifact.warnings.push(WITHOUT_MEMORY.to_owned());
            }
        }
    }
}

/// A file that names cards and tells of no memory is understood, and helps nobody: its owner can take it again with the
/// figures.
const WITHOUT_MEMORY: &str = "names GPUs but tells no memory of them; take it again with used memory (nvidia-smi's plain table, \
    memory.used of --query-gpu, or DCGM_FI_DEV_FB_USED)";

/// The facts of a training script come from its syntax tree, never from the text readers, which would take sample
/// output in a docstring for evidence. A script that cannot be parsed stays a script, with the reason.
fn read_script(input: &mut dyn BufRead, ctx: &ReadContext<'_>) -> Evidence {
    python_script::read(input, ctx).unwrap_or_else(|error| {
        let mut artifact = ctx.info(ArtifactKind::PythonScript);
        artifact.warnings.push(format!("not read: {error}"));
        Evidence { artifacts: vec![artifact], ..Evidence::default() }
    })
}

/// What a reader gave, or why it gave nothing.
fn or_reason(read: Result<Evidence, ReadError>, ctx: &ReadContext<'_>) -> Evidence {
    read.unwrap_or_else(|error| unreadable(ctx.name, 0, error.to_string()))
}

/// A text that tells how a job was launched; if it turns out not to, it is read as any other text. Holds the whole
/// text, which is small if it is what it looks like.
fn read_launch(source: LaunchSource, input: &mut dyn BufRead, ctx: &ReadContext<'_>) -> Evidence {
    let limit = ctx.limits.max_launch_bytes;
    let mut held = Vec::new();
    if let Err(error) = input.take(limit.saturating_add(1)).read_to_end(&mut held) {
        return unreadable(ctx.name, 0, error.to_string());
    }
    let why = if held.len() as u64 > limit {
        let limit = rankscope_model::Bytes(limit);
        format!("it begins like a launch script or a configuration but is over the limit of {limit} for those")
    } else {
        match launch::read(source, &String::from_utf8_lossy(&held), ctx) {
            Ok(evidence) => return evidence,
            Err(error) => format!("it begins like a launch script or a configuration, but: {error}"),
        }
    };
    let mut whole = Cursor::new(held).chain(input);
    let mut evidence = text::read_with(&mut whole, TextEncoding::Utf8, ctx, text::Readers::ALL)
        .unwrap_or_else(|e| unreadable(ctx.name, 0, e.to_string()));
    if let Some(artifact) = evidence.artifacts.first_mut() {
        artifact.warnings.push(format!("read as a log: {why}"));
    }
    evidence
}

/// Picks the reader.
fn read_file(content: Content, input: &mut dyn BufRead, ctx: &ReadContext<'_>) -> Evidence {
    match content {
        Content::Text(encoding) => or_reason(text::read_with(input, encoding, ctx, text::Readers::ALL), ctx),
        Content::Pickle => or_reason(torch_snapshot::read(input, ctx), ctx),
        Content::Known(words) => unreadable(ctx.name, 0, format!("looks like {words}")),
        _ => unreadable(ctx.name, 0, "binary data of a kind that is not known here".to_owned()),
    }
}

fn unreadable(name: &str, bytes: u64, why: String) -> Evidence {
    let mut artifact = info(name, ArtifactKind::Unreadable, bytes);
    artifact.warnings.push(why);
    Evidence { artifacts: vec![artifact], ..Evidence::default() }
}

fn info(name: &str, kind: ArtifactKind, bytes: u64) -> ArtifactInfo {
    ArtifactInfo { name: name.to_owned(), kind, ranks: Vec::new(), devices: Vec::new(), bytes, warnings: Vec::new() }
}

/// A stream that knows how long it was once it has ended.
struct Measured<R> {
    inner: R,
    bytes: u64,
    ended: bool,
}

impl<R: Read> Read for Measured<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.bytes = self.bytes.saturating_add(n as u64);
        self.ended |= n == 0 && !buf.is_empty();
        Ok(n)
    }
}

/// A stream whose first bytes were looked at and are given again.
struct Peeked<'a> {
    head: Vec<u8>,
    given: usize,
    /// What stopped the look, given after the head.
    error: Option<io::Error>,
    rest: &'a mut dyn Read,
}

impl<'a> Peeked<'a> {
    fn new(rest: &'a mut dyn Read) -> Self {
        let mut head = Vec::new();
        let error = (&mut *rest).take(sniff::HEAD_BYTES as u64).read_to_end(&mut head).err();
        Self { head, given: 0, error, rest }
    }
}

impl Read for Peeked<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut left = self.head.get(self.given..).unwrap_or_default();
        if !left.is_empty() {
            let n = left.read(buf)?;
            self.given = self.given.saturating_add(n);
            return Ok(n);
        }
        match self.error.take() {
            Some(error) => Err(error),
            None => self.rest.read(buf),
        }
    }
}
