//! Unpacking: gzip, Zstandard, zip and tar, streamed, with one budget for all that an upload unpacks to.
//!
//! Hands out bytes and display names. Never writes a file, never uses a name as a path, knows no evidence.

use crate::context::Limits;
use crate::lines::counted;
use crate::upload::ReadSeek;
use flate2::bufread::GzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;

/// Longest display name kept, in characters; longer ones lose their beginning, because the end tells more.
const NAME_CHARS: usize = 240;

/// A name of a stranger made fit for a screen: control, bidirectional and invisible characters become `\u{fffd}`,
/// and it is cut to 240 characters. `../` stays what it is, text: names are never opened.
pub fn display_name(name: &str) -> String {
    let visible = |c: char| match c {
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    let count = name.chars().count();
    if count > NAME_CHARS {
        let tail = name.chars().skip(count.saturating_sub(NAME_CHARS)).map(visible);
        return std::iter::once('…').chain(tail).collect();
    }
    name.chars().map(visible).collect()
}

/// What one upload may unpack to, all layers and members together.
#[derive(Debug)]
pub(crate) struct Budget {
    cap: u64,
    by_ratio: bool,
    ratio: u64,
    used: Cell<u64>,
}

impl Budget {
    pub(crate) fn new(uploaded: u64, limits: &Limits) -> Self {
        let by_ratio = uploaded.saturating_mul(limits.max_ratio).saturating_add(limits.ratio_free_bytes);
        Self {
            cap: by_ratio.min(limits.max_decompressed_bytes),
            by_ratio: by_ratio < limits.max_decompressed_bytes,
            ratio: limits.max_ratio,
            used: Cell::new(0),
        }
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.used.get() > self.cap
    }

    /// Why reading stopped, once the budget is spent.
    pub(crate) fn refusal(&self) -> String {
        let cap = rankscope_model::Bytes(self.cap);
        if self.by_ratio {
            let ratio = self.ratio;
            format!(
                "unpacks to more than {cap}, over {ratio} times its size, as a decompression bomb does; \
                 reading stopped there. If it is genuine, upload the files unpacked, or fewer of them"
            )
        } else {
            format!("unpacks to more than the limit of {cap}; reading stopped there. Upload fewer files at a time")
        }
    }

    pub(crate) fn meter<R: Read>(&self, inner: R) -> Metered<'_, R> {
        Metered { inner, budget: self }
    }
}

/// Counts what a decoder gives and stops it when the budget is spent.
pub(crate) struct Metered<'b, R> {
    inner: R,
    budget: &'b Budget,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.budget.is_spent() {
            return Err(told(self.budget.refusal()));
        }
        let n = self.inner.read(buf).map_err(explained)?;
        self.budget.used.set(self.budget.used.get().saturating_add(n as u64));
        Ok(n)
    }
}

/// What went wrong in a sentence for the user; decoders underneath only know their own words.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Explained {
    text: String,
    /// The packed data ends too early; what came before is as it was packed.
    is_cut: bool,
}

/// Whether packed data ended too early: what was read until then is good.
pub(crate) fn is_cut(error: &io::Error) -> bool {
    let explained = error.get_ref().and_then(|inner| inner.downcast_ref::<Explained>());
    error.kind() == io::ErrorKind::UnexpectedEof || explained.is_some_and(|explained| explained.is_cut)
}

fn told(text: String) -> io::Error {
    io::Error::other(Explained { text, is_cut: false })
}

fn explained(error: io::Error) -> io::Error {
    let is_known = error.get_ref().and_then(|inner| inner.downcast_ref::<Explained>()).is_some();
    // A reader retries what was only interrupted.
    if is_known || error.kind() == io::ErrorKind::Interrupted {
        return error;
    }
    let text = error.to_string();
    let is_cut = error.kind() == io::ErrorKind::UnexpectedEof || text.contains("incomplete deflate stream");
    let text = if text.contains("ethod not supported") {
        format!("it is packed in a way that is not read here ({text}); pack it with deflate, or as .tar.gz")
    } else {
        format!("the packed data is damaged or cut ({text}); upload it again")
    };
    io::Error::other(Explained { text, is_cut })
}

/// Decodes gzip, several members one after another included. What is no member behind a whole one is left aside, as
/// `gzip -d` does: a transfer in blocks or a tape leaves such bytes.
pub(crate) struct Gunzip<'a> {
    member: Option<GzDecoder<BufReader<&'a mut dyn Read>>>,
    has_rest: bool,
}

impl<'a> Gunzip<'a> {
    pub(crate) fn new(input: &'a mut dyn Read) -> Self {
        Self { member: Some(GzDecoder::new(BufReader::with_capacity(64 << 10, input))), has_rest: false }
    }

    /// Other bytes than padding were left aside.
    pub(crate) fn has_rest(&self) -> bool {
        self.has_rest
    }
}

impl Read for Gunzip<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        const MAGIC: u8 = 0x1f;
        loop {
            let Some(member) = &mut self.member else { return Ok(0) };
            let n = member.read(buf)?;
            if n > 0 || buf.is_empty() {
                return Ok(n);
            }
            let Some(mut input) = self.member.take().map(GzDecoder::into_inner) else { return Ok(0) };
            match input.fill_buf()?.first() {
                Some(&MAGIC) => self.member = Some(GzDecoder::new(input)),
                first => self.has_rest = first.is_some_and(|byte| *byte != 0),
            }
        }
    }
}

/// Decodes Zstandard, several frames one after another included.
pub(crate) fn unzstd<'a>(input: &'a mut dyn Read, limits: &Limits) -> impl Read + 'a {
    ZstdFrames { source: Some(Lookahead { inner: input, byte: None }), frame: None, window: limits.max_zstd_window }
}

/// `ruzstd` decodes one frame; parallel compressors and `cat` make files of many.
struct ZstdFrames<'a> {
    source: Option<Lookahead<'a>>,
    frame: Option<StreamingDecoder<Lookahead<'a>, FrameDecoder>>,
    window: u64,
}

/// One byte of lookahead, to tell the end of the file from the next frame.
struct Lookahead<'a> {
    inner: &'a mut dyn Read,
    byte: Option<u8>,
}

impl Lookahead<'_> {
    fn at_end(&mut self) -> io::Result<bool> {
        if self.byte.is_some() {
            return Ok(false);
        }
        let mut byte = [0u8; 1];
        match self.inner.read_exact(&mut byte) {
            Ok(()) => {
                self.byte = Some(u8::from_le_bytes(byte));
                Ok(false)
            }
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(true),
            Err(e) => Err(e),
        }
    }
}

impl Read for Lookahead<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match (self.byte, buf.first_mut()) {
            (Some(byte), Some(first)) => {
                *first = byte;
                self.byte = None;
                Ok(1)
            }
            _ => self.inner.read(buf),
        }
    }
}

impl Read for ZstdFrames<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(frame) = &mut self.frame {
                let n = frame.read(buf)?;
                if n > 0 {
                    return Ok(n);
                }
                self.source = self.frame.take().map(StreamingDecoder::into_inner);
            }
            let Some(source) = &mut self.source else { return Ok(0) };
            if source.at_end()? {
                return Ok(0);
            }
            let Some(source) = self.source.take() else { return Ok(0) };
            let frame =
                StreamingDecoder::new_with_max_window_size(source, self.window).map_err(|e| self.explain(&e))?;
            self.frame = Some(frame);
        }
    }
}

impl ZstdFrames<'_> {
    fn explain(&self, error: &ruzstd::decoding::errors::FrameDecoderError) -> io::Error {
        use ruzstd::decoding::errors::FrameDecoderError;
        match error {
            FrameDecoderError::WindowSizeTooBig { requested, .. } => told(format!(
                "the Zstandard frame wants a window of {}, the limit is {}; compress it again at level 19 or lower \
                 and without --long",
                rankscope_model::Bytes(*requested),
                rankscope_model::Bytes(self.window)
            )),
            other => io::Error::other(format!("not a readable Zstandard frame: {other}")),
        }
    }
}

/// One member of an archive.
pub(crate) struct Member<'a> {
    /// Sanitised name.
    pub(crate) name: String,
    /// Size when unpacked, as the archive claims.
    pub(crate) bytes: u64,
    /// Its bytes, or why there are none.
    pub(crate) data: Result<&'a mut dyn Read, String>,
}

/// What [`each_zip_member`] and [`each_tar_member`] passed over, as sentences for the archive's warnings.
pub(crate) type Notes = Vec<String>;

/// Calls `visit` for every file of a zip. `Err` when it cannot be listed at all.
pub(crate) fn each_zip_member(
    input: &mut dyn ReadSeek,
    limits: &Limits,
    visit: &mut dyn FnMut(Member<'_>) -> ControlFlow<()>,
) -> Result<Notes, String> {
    let mut zip = zip::ZipArchive::new(input).map_err(|e| {
        format!("the zip file cannot be listed ({}); if the upload or copy was cut, upload it again", zip_words(&e))
    })?;
    let mut notes = Notes::new();
    // A checkpoint of torch.save is a zip too: hundreds of members that are all weights.
    if zip.file_names().any(|n| n.is_ok_and(|n| n == "data.pkl" || n.ends_with("/data.pkl"))) {
        return Err(String::from(
            "a PyTorch checkpoint (weights saved with torch.save), not a memory snapshot; a snapshot is written by \
             torch.cuda.memory._dump_snapshot",
        ));
    }
    if zip.has_duplicate_names() {
        notes.push(String::from(
            "several members have the same name, and of those only the last was read; upload the others on their own",
        ));
    }
    let mut passed = Passed::default();
    let mut taken = Taken::default();
    let count = zip.len();
    for index in 0..count {
        if index >= limits.max_members as usize {
            notes.push(format!(
                "only the first {index} of {count} members were read; upload the rest in an archive of its own"
            ));
            break;
        }
        let (name, bytes, encrypted) = match zip.by_index_raw(index) {
            Ok(file) if file.is_dir() => continue,
            Ok(file) if file.is_symlink() => {
                passed.link();
                continue;
            }
            Ok(file) => {
                let name = file.name().map_or_else(|_| String::from_utf8_lossy(file.name_raw()).into(), Into::into);
                (name, file.size(), file.encrypted())
            }
            Err(e) => {
                notes.push(format!(
                    "member {} of {} cannot be read ({})",
                    index.saturating_add(1),
                    count,
                    zip_words(&e)
                ));
                continue;
            }
        };
        let name: String = name;
        if passed.is_hidden(&name) {
            continue;
        }
        let name = display_name(&name);
        let next = if encrypted {
            let why = "encrypted; unpack it and upload the file itself".to_owned();
            visit(Member { name, bytes, data: Err(why) })
        } else {
            match zip.by_index(index) {
                // Entries that share their bytes make a small file of very many large members.
                Ok(file) if !taken.take(file.data_start().unwrap_or(0), file.compressed_size()) => {
                    let why = "its bytes are those of another member too, as in a decompression bomb; not read";
                    visit(Member { name, bytes, data: Err(why.to_owned()) })
                }
                Ok(mut file) => visit(Member { name, bytes, data: Ok(&mut file) }),
                Err(e) => {
                    let why = format!("cannot be unpacked ({}); upload the file itself", zip_words(&e));
                    visit(Member { name, bytes, data: Err(why) })
                }
            }
        };
        if next.is_break() {
            break;
        }
    }
    passed.tell(&mut notes);
    Ok(notes)
}

/// Stretches of a file that members were read from: where each begins and ends.
#[derive(Default)]
struct Taken(BTreeMap<u64, u64>);

impl Taken {
    /// Takes a stretch; `false` if a part of it is taken already.
    fn take(&mut self, start: u64, length: u64) -> bool {
        if length == 0 {
            return true;
        }
        let end = start.saturating_add(length);
        let before = self.0.range(..end).next_back();
        if before.is_some_and(|(_, taken_end)| *taken_end > start) {
            return false;
        }
        self.0.insert(start, end);
        true
    }
}

fn zip_words(error: &zip::result::ZipError) -> String {
    match error {
        zip::result::ZipError::CompressionMethodNotSupported(method) => {
            format!("its compression method {method} is not supported; use deflate")
        }
        other => other.to_string(),
    }
}

/// Calls `visit` for every regular file of a tar. What was read before damage is kept; damage ends as a note.
pub(crate) fn each_tar_member(
    input: &mut dyn Read,
    limits: &Limits,
    visit: &mut dyn FnMut(Member<'_>) -> ControlFlow<()>,
) -> Notes {
    let mut notes = Notes::new();
    let mut tar = tar::Archive::new(input);
    // Raw: the crate would hold the names that stand before a member, of any length.
    let entries = match tar.entries() {
        Ok(entries) => entries.raw(true),
        Err(e) => return vec![format!("the tar file cannot be read ({e})")],
    };
    let mut passed = Passed::default();
    let mut seen = 0u32;
    let mut ahead = Ahead::default();
    for entry in entries {
        let mut entry = match entry {
            Ok(entry) => entry,
            Err(e) => {
                notes.push(format!("the tar file is damaged or cut after member {seen} ({e}); upload it again"));
                break;
            }
        };
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() || kind.is_gnu_longlink() || kind.is_pax_local_extensions() {
            if let Err(why) = ahead.read(kind, &mut entry) {
                notes.push(format!("the tar file was read up to member {seen}: {why}"));
                break;
            }
            continue;
        }
        if kind.is_pax_global_extensions() {
            continue;
        }
        let Ahead { name: long_name, size } = std::mem::take(&mut ahead);
        if size.is_some_and(|size| size != entry.size()) || is_split(entry.header()) {
            notes.push(format!(
                "the tar file was read up to member {seen}: what follows is a sparse file or one of over 8 GiB; upload it \
                 on its own"
            ));
            break;
        }
        if !entry.header().entry_type().is_file() {
            if entry.header().entry_type().is_symlink() || entry.header().entry_type().is_hard_link() {
                passed.link();
            }
            continue;
        }
        let name = long_name.unwrap_or_else(|| String::from_utf8_lossy(&entry.path_bytes()).into_owned());
        if passed.is_hidden(&name) {
            continue;
        }
        if seen >= limits.max_members {
            notes.push(format!("only the first {seen} members were read; upload the rest in an archive of its own"));
            break;
        }
        seen = seen.saturating_add(1);
        let bytes = entry.size();
        if visit(Member { name: display_name(&name), bytes, data: Ok(&mut entry) }).is_break() {
            break;
        }
    }
    passed.tell(&mut notes);
    notes
}

/// Bytes of a name or of extended attributes that stand before a member. Paths are limited to 4 KiB by systems.
const MAX_AHEAD: u64 = 64 << 10;

/// What a tar tells of the next member before its header.
#[derive(Default)]
struct Ahead {
    name: Option<String>,
    size: Option<u64>,
}

impl Ahead {
    fn read(&mut self, kind: tar::EntryType, entry: &mut tar::Entry<'_, impl Read>) -> Result<(), String> {
        let claimed = entry.size();
        if claimed > MAX_AHEAD {
            let (claimed, limit) = (rankscope_model::Bytes(claimed), rankscope_model::Bytes(MAX_AHEAD));
            return Err(format!("a name of {claimed} follows, and {limit} is the limit"));
        }
        let mut bytes = Vec::new();
        entry
            .take(MAX_AHEAD)
            .read_to_end(&mut bytes)
            .map_err(|e| format!("damaged or cut there ({e}); upload it again"))?;
        if kind.is_gnu_longname() {
            let end = memchr::memchr(0, &bytes).unwrap_or(bytes.len());
            self.name = Some(String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned());
        } else if kind.is_pax_local_extensions() {
            for pair in tar::PaxExtensions::new(&bytes).flatten() {
                match pair.key_bytes() {
                    b"path" if self.name.is_none() => {
                        self.name = Some(String::from_utf8_lossy(pair.value_bytes()).into_owned());
                    }
                    b"size" => self.size = pair.value().ok().and_then(|size| size.parse().ok()),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// A sparse file whose map goes on behind its header.
fn is_split(header: &tar::Header) -> bool {
    header.as_gnu().is_some_and(|gnu| header.entry_type().is_gnu_sparse() && gnu.is_extended())
}

/// Members that are passed over, as a folder's entries are.
#[derive(Default)]
struct Passed {
    links: u64,
    hidden: u64,
}

impl Passed {
    fn link(&mut self) {
        self.links = self.links.saturating_add(1);
    }

    /// Whether a member is hidden, by its own name or by that of a folder around it. What desktop systems add to
    /// archives on their own is not worth a word; the rest is counted.
    fn is_hidden(&mut self, name: &str) -> bool {
        let own = name.rsplit('/').next().unwrap_or_default();
        let is_clutter =
            name.starts_with("__MACOSX/") || own.starts_with("._") || own == ".DS_Store" || own == "Thumbs.db";
        let is_hidden = name.split('/').any(|part| part.starts_with('.') && part != "." && part != "..");
        if is_hidden && !is_clutter {
            self.hidden = self.hidden.saturating_add(1);
        }
        is_hidden || is_clutter
    }

    fn tell(self, notes: &mut Notes) {
        if self.links > 0 {
            let links = counted(self.links, "link was", "links were");
            notes.push(format!("{links} not followed; upload the files themselves"));
        }
        if self.hidden > 0 {
            let files = counted(self.hidden, "hidden file was", "hidden files were");
            notes.push(format!("{files} not read; upload what matters of them under another name"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_fit_for_a_screen() {
        assert_eq!(display_name("../../etc/passwd"), "../../etc/passwd");
        assert_eq!(display_name("a\x1b[31m\nb\0"), "a\u{fffd}[31m\u{fffd}b\u{fffd}");
        assert_eq!(display_name("gpj\u{202e}.exe"), "gpj\u{fffd}.exe");
        let long = display_name(&"显".repeat(1000));
        assert_eq!(long.chars().count(), NAME_CHARS + 1);
    }

    #[test]
    fn hidden_members_are_counted_and_clutter_is_not() {
        let mut passed = Passed::default();
        for name in ["__MACOSX/a/._x.log", "logs/.DS_Store", "a/Thumbs.db", ".git/config", "run/.hydra/config.yaml"] {
            assert!(passed.is_hidden(name), "{name}");
        }
        for name in ["./rank0.log", "../up.log", "a.b/c", "rank..log"] {
            assert!(!passed.is_hidden(name), "{name}");
        }
        let mut notes = Notes::new();
        passed.link();
        passed.tell(&mut notes);
        assert_eq!(
            notes,
            [
                "1 link was not followed; upload the files themselves",
                "2 hidden files were not read; upload what matters of them under another name"
            ]
        );
    }

    #[test]
    fn stretches_are_taken_once() {
        let mut taken = Taken::default();
        assert!(taken.take(100, 50) && taken.take(150, 10) && taken.take(0, 100) && taken.take(120, 0));
        assert!(!taken.take(100, 50) && !taken.take(99, 2) && !taken.take(159, 100) && !taken.take(0, 1000));
        assert!(taken.take(160, u64::MAX) && !taken.take(u64::MAX - 1, 1));
    }

    #[test]
    fn the_budget_is_the_smaller_of_size_and_ratio() {
        let limits = Limits { max_decompressed_bytes: 1000, max_ratio: 10, ratio_free_bytes: 50, ..Limits::default() };
        let spent_after = |uploaded| {
            let budget = Budget::new(uploaded, &limits);
            let mut sink = Vec::new();
            let error = budget.meter(io::repeat(1)).read_to_end(&mut sink).unwrap_err();
            (budget.cap, error.to_string())
        };
        assert_eq!(spent_after(1).0, 60);
        assert_eq!(spent_after(20).0, 250);
        assert_eq!(spent_after(20_000).0, 1000);
        assert!(spent_after(1).1.contains("bomb"));
        assert!(spent_after(20_000).1.contains("limit"));
    }
}
