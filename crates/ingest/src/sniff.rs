//! What a file is, judged by its first bytes; the name is only a hint between kinds of text.
//!
//! Knows no line readers: the answer names a content, [`crate::read_upload`] decides who reads it.

use crate::launch;
use rankscope_model::LaunchSource;

/// How many first bytes [`sniff`] wants to see (fewer is fine for shorter files).
///
/// A profiler trace that another tool wrapped may have its own keys far behind: 26 kB of settings were seen before them.
pub const HEAD_BYTES: usize = 64 << 10;

/// What the first bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// No bytes at all.
    Empty,
    /// Gzip, RFC 1952.
    Gzip,
    /// A Zstandard frame, RFC 8878.
    Zstd,
    /// A zip file.
    Zip,
    /// A tar file of the POSIX or GNU form.
    Tar,
    /// A Python pickle of protocol 2 to 5: a memory snapshot, or something else.
    Pickle,
    /// Text in UTF-8 or an 8-bit encoding.
    Text(TextEncoding),
    /// `NAME=value` with a NUL behind each: `/proc/PID/environ`.
    Environ,
    /// Something known that holds no evidence, with words for it: `a PNG image`.
    Known(&'static str),
    /// Bytes that are no text and no known format.
    Binary,
}

/// How text is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextEncoding {
    /// UTF-8, or an 8-bit encoding whose letters beyond ASCII do not matter here. May begin with a byte order mark.
    Utf8,
    /// UTF-16, low byte first: what `nvidia-smi > file` writes in Windows PowerShell.
    Utf16Le,
    /// UTF-16, high byte first.
    Utf16Be,
}

/// Formats that people upload by mistake, by their first bytes.
const KNOWN: [(&[u8], &str); 22] = [
    (b"\x89PNG\r\n\x1a\n", "a PNG image; paste the text instead of a screenshot"),
    (b"\xff\xd8\xff", "a JPEG image; paste the text instead of a screenshot"),
    (b"GIF8", "a GIF image; paste the text instead of a screenshot"),
    (b"RIFF", "a WebP image or another RIFF file; paste the text instead of a screenshot"),
    (b"BM", "a BMP image; paste the text instead of a screenshot"),
    (b"%PDF-", "a PDF; upload the text instead"),
    (b"\x7fELF", "an ELF program or library"),
    (b"MZ", "a Windows program or library"),
    (b"BZh", "bzip2 data; compress it with gzip or zstd, or upload it plain"),
    (b"\xfd7zXZ\0", "xz data; compress it with gzip or zstd, or upload it plain"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive; use zip or tar.gz"),
    (b"Rar!\x1a\x07", "a RAR archive; use zip or tar.gz"),
    (b"\x04\x22\x4d\x18", "LZ4 data; compress it with gzip or zstd, or upload it plain"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"PAR1", "a Parquet file"),
    (b"SQLite format 3\0", "an SQLite database; an Nsight Systems export is not read, upload logs or snapshots"),
    (b"ARROW1\0\0", "an Arrow file"),
    (b"GGUF", "model weights (GGUF)"),
    (b"LZIP", "lzip data; compress it with gzip or zstd, or upload it plain"),
    (b"\x1f\x9d", "compress (.Z) data; compress it with gzip or zstd, or upload it plain"),
    (b"\xd0\xcf\x11\xe0", "an old Microsoft Office file; upload the text instead"),
];

/// Says what `head`, the first bytes of a file, looks like.
pub fn sniff(head: &[u8]) -> Content {
    if head.is_empty() {
        return Content::Empty;
    }
    if head.starts_with(b"\x1f\x8b") {
        return Content::Gzip;
    }
    if is_zstd(head) {
        return Content::Zstd;
    }
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") || head.starts_with(b"PK\x07\x08PK") {
        return Content::Zip;
    }
    if head.get(257..262) == Some(b"ustar") {
        return Content::Tar;
    }
    if let [0x80, 2..=5, ..] = head {
        return Content::Pickle;
    }
    if head.starts_with(b"\xff\xfe\0\0") || head.starts_with(b"\0\0\xfe\xff") {
        return Content::Known("text in UTF-32; save it as UTF-8");
    }
    if let Some(version) = text_pickle(head) {
        return Content::Known(version);
    }
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        return Content::Text(match head.first() {
            _ if is_partly_wide(head) => TextEncoding::Utf8,
            Some(0xff) => TextEncoding::Utf16Le,
            _ => TextEncoding::Utf16Be,
        });
    }
    let known = KNOWN.iter().find(|(magic, _)| head.starts_with(magic));
    // A PDF begins like text; but a log may begin with "BM" or "MZ", so short words only count for what is no text.
    if let Some((_, words)) = known.filter(|(magic, _)| magic.len() >= 5 || !magic.is_ascii()) {
        return Content::Known(words);
    }
    if head.contains(&0) && launch::source_of("", head) == Some(LaunchSource::Environment) {
        return Content::Environ;
    }
    if let Some(encoding) = text_encoding(head) {
        return Content::Text(encoding);
    }
    if let Some((_, words)) = known {
        return Content::Known(words);
    }
    if is_safetensors(head) {
        return Content::Known("model weights (safetensors)");
    }
    Content::Binary
}

/// A pickle of a protocol without the mark in front: it begins with a container that is stored under number 0 at once, or
/// with a name to import. No text begins so.
fn text_pickle(head: &[u8]) -> Option<&'static str> {
    if let [b'}' | b']', b'q', 0, ..] = head {
        return Some(
            "a Python pickle of protocol 1; torch writes memory snapshots in 2 to 5: upload the file that \
             `_dump_snapshot` wrote, or write it again with `pickle.dump(snapshot, file)`",
        );
    }
    // Behind the number: a text, a number, a mark, a container, a name to import, or the end.
    let container = |kind: &[u8]| {
        let next = head.strip_prefix(kind)?.strip_prefix(b"p0\n")?.first()?;
        b"VSILFN(gc.0t)".contains(next).then_some(())
    };
    let import = || {
        let mut lines = head.strip_prefix(b"c")?.split(|b| *b == b'\n');
        let is_name = |name: &[u8]| {
            !name.is_empty() && name.len() < 100 && name.iter().all(|b| b.is_ascii_alphanumeric() || b"._".contains(b))
        };
        let named = is_name(lines.next()?) && is_name(lines.next()?);
        (named && lines.next()? == b"p0" && lines.next()?.starts_with(b"(")).then_some(())
    };
    container(b"(d").or_else(|| container(b"(l")).or_else(import)?;
    Some(
        "a Python pickle of protocol 0; torch writes memory snapshots in 2 to 5: upload the file that `_dump_snapshot` \
         wrote, or write it again with `pickle.dump(snapshot, file)`",
    )
}

/// A data frame, or a skippable frame (which may stand first).
fn is_zstd(head: &[u8]) -> bool {
    matches!(head, [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// An 8-byte length, then JSON.
fn is_safetensors(head: &[u8]) -> bool {
    head.get(8..10) == Some(b"{\"")
}

/// Text has no NUL and hardly any control characters; UTF-16 without a mark has a NUL in every second place.
fn text_encoding(head: &[u8]) -> Option<TextEncoding> {
    let head = head.get(..head.len().min(HEAD_BYTES)).unwrap_or(head);
    if is_partly_wide(head) {
        return Some(TextEncoding::Utf8);
    }
    let nul_at = |odd: usize| head.iter().skip(odd).step_by(2).filter(|b| **b == 0).count();
    let (even, odd) = (nul_at(0), nul_at(1));
    let pairs = head.len() / 2;
    if pairs >= 4 && odd.saturating_mul(10) >= pairs.saturating_mul(9) && even.saturating_mul(10) <= pairs {
        return Some(TextEncoding::Utf16Le);
    }
    if pairs >= 4 && even.saturating_mul(10) >= pairs.saturating_mul(9) && odd.saturating_mul(10) <= pairs {
        return Some(TextEncoding::Utf16Be);
    }
    // A log may hold a stray NUL or two (torch 2.3.0 printed one inside its out-of-memory text).
    let control = head.iter().filter(|b| is_control(**b)).count();
    if control.saturating_mul(50) > head.len() && !has_holes(head) {
        return None;
    }
    // Bytes above ASCII must be mostly valid UTF-8, or few enough to be an 8-bit encoding of ordinary text.
    let high = head.iter().filter(|b| **b >= 0x80).count();
    let valid = match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(e) => e.error_len().is_none() && head.len().saturating_sub(e.valid_up_to()) < 4,
    };
    (valid || high.saturating_mul(5) <= head.len()).then_some(TextEncoding::Utf8)
}

/// Bytes that no text has: 9 to 13 are tab and line ends, 27 starts a colour.
fn is_control(b: u8) -> bool {
    matches!(b, 0..=8 | 14..=26 | 28..=31 | 127)
}

/// Runs of NUL in a text: what a log has where the machine lost power or the file was cut while it was written to.
const MAX_HOLES: usize = 4;

/// Whether `head` is text but for a few runs of NUL.
fn has_holes(head: &[u8]) -> bool {
    let holes = head.chunk_by(|a, b| (*a == 0) == (*b == 0)).filter(|chunk| chunk.starts_with(&[0])).count();
    let text: Vec<u8> = head.iter().copied().filter(|b| *b != 0).collect();
    let is_cut = |e: std::str::Utf8Error| e.error_len().is_none() && text.len().saturating_sub(e.valid_up_to()) < 4;
    (1..=MAX_HOLES).contains(&holes)
        && text.contains(&b'\n')
        && !text.iter().any(|b| is_control(*b))
        && std::str::from_utf8(&text).map_or_else(is_cut, |_| true)
}

/// Whether `head` is ASCII in one part and UTF-16 of ASCII in another: a log to which Windows PowerShell's `>>` added. Its
/// NULs stand in every second place of a few stretches, and a whole line stands outside of them.
fn is_partly_wide(head: &[u8]) -> bool {
    let high = head.iter().filter(|b| !b.is_ascii()).count();
    let is_text = |b: &u8| *b == 0 || !is_control(*b);
    if !head.contains(&0) || high.saturating_mul(5) > head.len() || !head.iter().all(is_text) {
        return false;
    }
    let mut stretches = 0usize;
    let mut plain_line = false;
    let mut last = None;
    for at in memchr::memchr_iter(0, head) {
        let between = head.get(last.map_or(0, |last: usize| last.saturating_add(1))..at).unwrap_or_default();
        if between.is_empty() && last.is_some() {
            return false;
        }
        if between.len() > 1 || last.is_none() {
            stretches = stretches.saturating_add(1);
            plain_line |= between.len() > 2 && between.contains(&b'\n');
        }
        last = Some(at);
    }
    let behind = head.get(last.unwrap_or(0)..).unwrap_or_default();
    // The end of the last wide line is a letter and its NUL: more than that is text of its own.
    plain_line |= memchr::memchr_iter(b'\n', behind).count() >= 2;
    plain_line && stretches <= MAX_HOLES
}

/// Whether text is Python source: a name that ends in `.py`, or a beginning that nothing else has.
///
/// By content the first line that is neither blank nor a comment must be an import, a definition, a decorator or a
/// docstring, and a definition or a main guard must follow. So a log that prints source somewhere stays a log.
pub fn is_python(name: &str, head: &str) -> bool {
    let own = name.trim_end_matches(".gz").trim_end_matches(".zst");
    if own.rsplit_once('.').is_some_and(|(_, ext)| ext.eq_ignore_ascii_case("py") || ext.eq_ignore_ascii_case("pyi")) {
        return true;
    }
    if head.starts_with("#!") && head.lines().next().is_some_and(|l| l.contains("python")) {
        return true;
    }
    let mut lines = head.lines().map(|l| l.strip_prefix('\u{feff}').unwrap_or(l));
    let first = lines.find(|l| !l.trim().is_empty() && !l.starts_with('#'));
    first.is_some_and(opens_python) && lines.any(defines_python)
}

fn opens_python(line: &str) -> bool {
    line.starts_with("import ")
        || (line.starts_with("from ") && line.contains(" import "))
        || line.starts_with("\"\"\"")
        || line.starts_with('@')
        || defines_python(line)
}

fn defines_python(line: &str) -> bool {
    let header = line.trim_end().ends_with([':', '(', ',']);
    (header && (line.starts_with("def ") || line.starts_with("class ") || line.starts_with("async def ")))
        || (line.starts_with("if __name__ ") && line.contains("__main__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_told_by_magic() {
        assert_eq!(sniff(b""), Content::Empty);
        assert_eq!(sniff(b"\x1f\x8b\x08\0"), Content::Gzip);
        assert_eq!(sniff(b"\x28\xb5\x2f\xfd\x04"), Content::Zstd);
        assert_eq!(sniff(b"PK\x03\x04rest"), Content::Zip);
        assert_eq!(sniff(b"PK\x05\x06rest"), Content::Zip);
        assert_eq!(sniff(b"\x80\x04\x95"), Content::Pickle);
        assert_eq!(sniff(b"RANK=0\0WORLD_SIZE=2\0PATH=/bin\0"), Content::Environ);
        assert_eq!(sniff(b"BM loss went up"), Content::Text(TextEncoding::Utf8));
        assert!(
            matches!(sniff(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0"), Content::Known(words) if words.contains("PNG"))
        );
        assert_eq!(sniff(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1]), Content::Binary);
    }

    #[test]
    fn a_log_with_holes_is_a_log() {
        let lines = "rank=0 step=1 peak=100MB\n".repeat(100);
        let with_hole = |size: usize| [lines.as_bytes(), &vec![0; size], lines.as_bytes()].concat();
        for size in [1, 100, 4096, 40_000] {
            assert_eq!(sniff(&with_hole(size)), Content::Text(TextEncoding::Utf8), "{size}");
        }
        assert_eq!(sniff(b"\0\0\0\0\0\0\0\0step 1\nstep 2\n"), Content::Text(TextEncoding::Utf8));
        // Many holes, or other controls beside them, are no text.
        assert_eq!(sniff(&b"ab\n\0".repeat(50)), Content::Binary);
        assert_eq!(sniff(&[&with_hole(100)[..], &[1, 2, 3, 4].repeat(40)].concat()), Content::Binary);
    }

    #[test]
    fn a_log_to_which_another_shell_added_is_a_log() {
        let le = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let (plain, wide) = ("rank=0 step=1 peak=100MB\n".repeat(40), le(&"rank=0 step=1 peak=100MB\r\n".repeat(40)));
        for parts in [[plain.as_bytes(), &wide], [&wide, plain.as_bytes()]] {
            assert_eq!(sniff(&parts.concat()), Content::Text(TextEncoding::Utf8));
            assert_eq!(sniff(&[b"\xff\xfe", parts[0], parts[1]].concat()), Content::Text(TextEncoding::Utf8));
        }
        assert_eq!(sniff(&[b"\xff\xfe", wide.as_slice()].concat()), Content::Text(TextEncoding::Utf16Le));
        assert_eq!(sniff(&wide), Content::Text(TextEncoding::Utf16Le));
        assert_eq!(sniff(&[b"\x01\x02\x03", plain.as_bytes(), &wide].concat()), Content::Binary);
    }

    #[test]
    fn pickles_without_a_mark_are_told_from_text() {
        for pickle in [
            &b"(dp0\nVsegments\np1\n(lp2\n(dp3\n"[..],
            b"(dp0\nS'segments'\np1\n(lp2\n",
            b"(lp0\n(dp1\nVdevice\np2\nI0\ns",
            b"(dp0\n.",
            b"ccopy_reg\n_reconstructor\np0\n(c__main__\n",
            b"}q\0(X\x08\0\0\0segmentsq\x01]q\x02",
        ] {
            let content = sniff(pickle);
            assert!(matches!(content, Content::Known(words) if words.contains("pickle of protocol")), "{content:?}");
        }
        for text in
            ["(dp0) is the first group\n", "(lp0\n is where it begins", "class\nname\np0\nx", "c\n\np0\n(", "(dp0\n"]
        {
            assert_eq!(sniff(text.as_bytes()), Content::Text(TextEncoding::Utf8), "{text}");
        }
    }

    #[test]
    fn text_is_told_in_every_encoding_that_tools_write() {
        let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
        assert_eq!(sniff("Überlauf auf Karte 3".as_bytes()), Content::Text(TextEncoding::Utf8));
        assert_eq!(sniff(b"\xdcberlauf auf Karte 3"), Content::Text(TextEncoding::Utf8));
        assert_eq!(
            sniff(b"GPU \0 has a total capacity of 23.65 GiB of which 11.06 MiB is free. Including non-PyTorch"),
            Content::Text(TextEncoding::Utf8)
        );
        let mut marked = b"\xff\xfe".to_vec();
        marked.extend(utf16("NVIDIA-SMI"));
        assert_eq!(sniff(&marked), Content::Text(TextEncoding::Utf16Le));
        assert_eq!(sniff(&utf16("| NVIDIA-SMI 535 |")), Content::Text(TextEncoding::Utf16Le));
        let swapped: Vec<u8> = utf16("| NVIDIA-SMI 535 |").chunks(2).flat_map(|p| [p[1], p[0]]).collect();
        assert_eq!(sniff(&swapped), Content::Text(TextEncoding::Utf16Be));
    }

    #[test]
    fn python_is_told_by_name_or_by_its_beginning() {
        assert!(is_python("train.py", ""));
        assert!(is_python("a.zip/train.PY", ""));
        assert!(is_python("pasted", "# main\n\nimport torch\n\ndef main():\n    pass\n"));
        assert!(is_python("pasted", "#!/usr/bin/env python3\nprint(1)\n"));
        assert!(!is_python("job.log", "import error: no module\nTraceback\n"));
        assert!(!is_python("job.log", "+ cat train.py\nimport torch\ndef main():\n"));
        assert!(!is_python("notes", "from here on, import duties apply\n"));
    }
}
