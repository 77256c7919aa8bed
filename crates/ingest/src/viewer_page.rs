//! Pages that PyTorch's memory tools write: the viewer's page (`_memory_viz.py trace_plot` and the like), which carries
//! snapshots as base64, and the timeline's page, which carries a picture.
//!
//! Hands out what a page carries, streamed; knows no snapshot.

use crate::container::{Member, Notes, display_name};
use std::io::{self, BufRead, Read};
use std::ops::ControlFlow;

/// What a page carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// The memory viewer with embedded files.
    Viewer,
    /// A memory timeline as a picture only.
    Picture,
}

/// Why the timeline's page says nothing.
pub(crate) const ONLY_A_PICTURE: &str = "a memory timeline as a web page, which holds only a picture (PNG) and no figures; \
     export it again with a name that ends in .raw.json.gz or .json, or upload a memory snapshot";

/// Whether a text that begins with `head` is such a page.
pub fn looks_like(head: &str) -> Option<Page> {
    let text = head.trim_start_matches('\u{feff}').trim_start();
    let is_page = ["<!doctype", "<html", "<head", "<script"]
        .iter()
        .any(|tag| text.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag)));
    if !is_page {
        None
    } else if text.contains("MemoryViz.js") || text.contains("add_local_files") {
        Some(Page::Viewer)
    } else if text.contains("Memory Timeline") && text.contains("data:image/png;base64,") {
        Some(Page::Picture)
    } else {
        None
    }
}

/// Text before an embedded file that is kept, to find its name in.
const KEPT: usize = 1024;

/// Calls `visit` for every file that the page embeds. How long one is, is known only after it; `bytes`, the size of the
/// page, stands for it.
pub(crate) fn each_file(
    input: &mut dyn BufRead,
    bytes: u64,
    visit: &mut dyn FnMut(Member<'_>) -> ControlFlow<()>,
) -> Result<Notes, String> {
    let mut notes = Notes::new();
    let mut count = 0u64;
    loop {
        let name = match next_file(input) {
            Ok(Some(name)) => name,
            Ok(None) => break,
            Err(e) => {
                notes.push(format!("the page ends early: {e}"));
                break;
            }
        };
        count = count.saturating_add(1);
        let mut data = Base64 { input: &mut *input, ended: None, bits: 0, held: 0 };
        let next = visit(Member { name: display_name(&name), bytes, data: Ok(&mut data) });
        // What the reader of the file left is passed over, so that the next file is found.
        let passed = io::copy(&mut data, &mut io::sink());
        let unclosed = data.ended == Some(End::OfPage);
        if passed.is_err() || unclosed {
            notes.push(format!("the page ends inside {}; save it again", display_name(&name)));
            break;
        }
        if next.is_break() {
            break;
        }
    }
    if count == 0 {
        return Err("a page of PyTorch's memory viewer that embeds no file: the snapshot was opened in it by hand. \
                    Upload the snapshot itself"
            .to_owned());
    }
    Ok(notes)
}

/// Reads up to the opening quote of the next `"base64": "…"` and gives the name that stands before it.
fn next_file(input: &mut dyn BufRead) -> io::Result<Option<String>> {
    let mut recent: Vec<u8> = Vec::with_capacity(2 * KEPT);
    loop {
        let chunk = input.fill_buf()?;
        if chunk.is_empty() {
            return Ok(None);
        }
        let upto = memchr::memchr(b'"', chunk).map_or(chunk.len(), |at| at.saturating_add(1));
        let piece = chunk.get(..upto).unwrap_or_default();
        let tail = piece.get(piece.len().saturating_sub(KEPT)..).unwrap_or_default();
        recent.extend_from_slice(tail);
        input.consume(upto);
        if recent.len() > 2 * KEPT {
            recent.drain(..recent.len().saturating_sub(KEPT));
        }
        if is_opened(&recent) {
            return Ok(Some(name_in(&recent).unwrap_or_else(|| "snapshot.pickle".to_owned())));
        }
    }
}

fn is_opened(recent: &[u8]) -> bool {
    let before = |text: &'_ [u8], word: &[u8]| text.trim_ascii_end().strip_suffix(word).map(<[u8]>::len);
    let Some(colon) = before(recent, b"\"") else { return false };
    let Some(key) = recent.get(..colon).and_then(|text| before(text, b":")) else { return false };
    recent.get(..key).and_then(|text| before(text, b"\"base64\"")).is_some()
}

/// The value of the last `"name"`.
fn name_in(recent: &[u8]) -> Option<String> {
    let at = memchr::memmem::rfind(recent, b"\"name\"")?;
    let rest = recent.get(at.saturating_add(b"\"name\"".len())..)?.trim_ascii_start();
    let rest = rest.strip_prefix(b":")?.trim_ascii_start().strip_prefix(b"\"")?;
    let end = memchr::memchr(b'"', rest)?;
    Some(String::from_utf8_lossy(rest.get(..end)?).into_owned())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The closing quote.
    OfFile,
    /// The page ends before it.
    OfPage,
}

/// Decodes base64 up to the closing quote, which it takes.
struct Base64<'a> {
    input: &'a mut dyn BufRead,
    ended: Option<End>,
    /// Bits that make no byte yet, and how many they are.
    bits: u32,
    held: u32,
}

impl Read for Base64<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut written = 0usize;
        while self.ended.is_none() && written < out.len() {
            let chunk = self.input.fill_buf()?;
            if chunk.is_empty() {
                self.ended = Some(End::OfPage);
                break;
            }
            let mut used = 0usize;
            for byte in chunk {
                let Some(slot) = out.get_mut(written) else { break };
                used = used.saturating_add(1);
                if *byte == b'"' {
                    self.ended = Some(End::OfFile);
                    break;
                }
                // Padding, line ends and the backslash of `\/` carry nothing.
                let Some(six) = value_of(*byte) else { continue };
                self.bits = self.bits << 6 | six;
                self.held = self.held.saturating_add(6);
                if let Some(left) = self.held.checked_sub(8) {
                    *slot = u8::try_from(self.bits >> left & 0xff).unwrap_or_default();
                    written = written.saturating_add(1);
                    self.held = left;
                    self.bits &= 0x3f;
                }
            }
            self.input.consume(used);
        }
        Ok(written)
    }
}

fn value_of(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte.wrapping_sub(b'A'),
        b'a'..=b'z' => byte.wrapping_sub(b'a').wrapping_add(26),
        b'0'..=b'9' => byte.wrapping_sub(b'0').wrapping_add(52),
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    type Files = Vec<(String, Vec<u8>)>;

    fn files(page: &[u8], chunk: usize) -> (Files, Result<Notes, String>) {
        let mut found = Vec::new();
        let mut input = BufReader::with_capacity(chunk, page);
        let ended = each_file(&mut input, 9, &mut |member| {
            let mut data = Vec::new();
            member.data.unwrap().read_to_end(&mut data).unwrap();
            found.push((member.name, data));
            ControlFlow::Continue(())
        });
        (found, ended)
    }

    #[test]
    fn embedded_files_come_out_whatever_the_chunks() {
        let page = br#"<script>const local_files = [{"name": "a.pickle", "base64": "gAR9lC4="},
            {"base64" : "TWE=", "name": "late"}, {"name":"b","base64":"TWFu"}]</script>"#;
        for chunk in [1, 2, 7, 4096] {
            let (found, ended) = files(page, chunk);
            assert_eq!(ended, Ok(vec![]));
            let expected: [(&str, &[u8]); 3] =
                [("a.pickle", b"\x80\x04}\x94."), ("snapshot.pickle", b"Ma"), ("b", b"Man")];
            assert_eq!(found.len(), 3, "{found:?}");
            for ((name, data), (expected_name, expected_data)) in found.iter().zip(expected) {
                assert_eq!((name.as_str(), data.as_slice()), (expected_name, expected_data));
            }
        }
    }

    #[test]
    fn a_cut_page_says_so() {
        let (found, ended) = files(br#"<script>[{"name": "a", "base64": "gAR9"#, 4096);
        assert_eq!(found, [("a".to_owned(), b"\x80\x04}".to_vec())]);
        assert!(ended.unwrap()[0].contains("ends inside a"));
        assert!(files(b"<script>add_local_files([])", 9).1.unwrap_err().contains("embeds no file"));
    }

    #[test]
    fn pages_are_told_by_what_they_carry() {
        assert_eq!(
            looks_like("<!DOCTYPE html>\n<script>import {add_local_files} from 'MemoryViz.js'"),
            Some(Page::Viewer)
        );
        let picture = "<html>\n<head><meta charset=\"utf-8\" /><title>GPU Memory Timeline HTML</title></head>\n<body>\n  \
                       <img src='data:image/png;base64,iVBORw0KGgo";
        assert_eq!(looks_like(picture), Some(Page::Picture));
        assert_eq!(looks_like("<html><pre>| NVIDIA-SMI 535"), None);
        assert_eq!(looks_like("# how add_local_files works"), None);
    }
}
