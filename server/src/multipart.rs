//! Reads a multipart form as it arrives, in bounded memory and in one pass.
//!
//! Every byte of the body counts, framing included; what stands before a part's content may be long only up to a
//! limit. Names are taken as leniently as they are sent: what they mean is for the caller. Knows no file and no limit of
//! its own but that of a head.

use crate::paced::{Pace, Paced, PacedError};
use axum::body::Body;
use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem::Finder;

/// Bytes before the first part, and bytes of one part's head, at most.
const MAX_HEAD: usize = 64 << 10;
/// Characters of a boundary at most (RFC 2046).
const MAX_BOUNDARY: usize = 70;

/// Why a form cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum FormError {
    /// It is no multipart form, or not all of it came.
    #[error("{0}")]
    Broken(&'static str),
    /// A head or what stands before the first part is longer than any honest one.
    #[error("more than {MAX_HEAD} bytes before a part's content")]
    HeadTooLong,
    /// The body does not go on.
    #[error("{0}")]
    Body(PacedError),
}

/// What stands before a part's content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// Name of the field.
    pub name: String,
    /// Name of the file, if there is one; it may be empty.
    pub file_name: Option<String>,
}

/// Where the reading stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first boundary.
    Start,
    /// In a part's content.
    Content,
    /// Right after a boundary.
    Boundary,
    /// After the last boundary.
    End,
}

/// A form that is being read.
#[derive(Debug)]
pub struct Form {
    source: Paced,
    buffer: BytesMut,
    place: Place,
    /// Line break and boundary.
    delimiter: Finder<'static>,
}

impl Form {
    /// A form with the boundary that `content_type` names; `None` if that is no multipart form.
    pub fn new(content_type: &[u8], body: Body, max_bytes: u64, pace: Pace) -> Option<Self> {
        let (kind, parameters) = header_value(content_type);
        let boundary = parameters.into_iter().find(|(name, _)| name == "boundary")?.1;
        if kind != "multipart/form-data" || boundary.is_empty() || boundary.len() > MAX_BOUNDARY {
            return None;
        }
        let delimiter = [b"\r\n--", boundary.as_slice()].concat();
        Some(Self {
            source: Paced::new(body, max_bytes, pace),
            // The first boundary has no line before it.
            buffer: BytesMut::from(&b"\r\n"[..]),
            place: Place::Start,
            delimiter: Finder::new(&delimiter).into_owned(),
        })
    }

    /// The head of the next part. What is left of the part before is passed over.
    pub async fn next_part(&mut self) -> Result<Option<Head>, FormError> {
        match self.place {
            Place::Start => {
                let start = self.find(&self.delimiter.clone()).await?;
                self.buffer.advance(start + self.delimiter.needle().len());
            }
            Place::Content => while self.chunk().await?.is_some() {},
            Place::Boundary => {}
            Place::End => return Ok(None),
        }
        while self.buffer.len() < 2 {
            self.fill().await?;
        }
        if self.buffer.starts_with(b"--") {
            self.place = Place::End;
            return Ok(None);
        }
        let line = self.find(&Finder::new(b"\r\n")).await?;
        if !self.buffer.iter().take(line).all(|byte| matches!(byte, b' ' | b'\t')) {
            return Err(FormError::Broken("a boundary is followed by other bytes"));
        }
        // The line break that ends the boundary's line is the first half of the end of a head without lines.
        self.buffer.advance(line);
        let end = self.find(&Finder::new(b"\r\n\r\n")).await?;
        let head = parse_head(&self.buffer.split_to(end));
        self.buffer.advance(4);
        self.place = Place::Content;
        Ok(Some(head))
    }

    /// The next piece of the current part's content; `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, FormError> {
        while self.place == Place::Content {
            if let Some(end) = self.delimiter.find(&self.buffer) {
                let last = self.buffer.split_to(end).freeze();
                self.buffer.advance(self.delimiter.needle().len());
                self.place = Place::Boundary;
                return Ok(Some(last).filter(|last| !last.is_empty()));
            }
            // What could be the start of a boundary waits for more; all before it is content and not looked at again.
            let safe = (self.buffer.len() + 1).saturating_sub(self.delimiter.needle().len());
            if safe > 0 {
                return Ok(Some(self.buffer.split_to(safe).freeze()));
            }
            self.fill().await?;
        }
        Ok(None)
    }

    /// Where `needle` begins in what comes next; no byte is looked at twice.
    async fn find(&mut self, needle: &Finder<'_>) -> Result<usize, FormError> {
        let mut seen = 0;
        loop {
            if let Some(at) = self.buffer.get(seen..).and_then(|rest| needle.find(rest)) {
                return if seen + at > MAX_HEAD { Err(FormError::HeadTooLong) } else { Ok(seen + at) };
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(FormError::HeadTooLong);
            }
            seen = (self.buffer.len() + 1).saturating_sub(needle.needle().len());
            self.fill().await?;
        }
    }

    /// Takes in the next piece of the body.
    async fn fill(&mut self) -> Result<(), FormError> {
        let piece = self.source.next().await.map_err(FormError::Body)?;
        self.buffer.extend_from_slice(&piece.ok_or(FormError::Broken("the body ends before the form"))?);
        Ok(())
    }
}

fn parse_head(head: &[u8]) -> Head {
    let mut found = Head::default();
    for line in head.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = line.split_at(colon);
        if !name.trim_ascii().eq_ignore_ascii_case(b"content-disposition") {
            continue;
        }
        let (_, parameters) = header_value(value.get(1..).unwrap_or_default());
        let mut extended = None;
        for (name, value) in parameters {
            match name.as_str() {
                "name" => found.name = String::from_utf8_lossy(&value).into_owned(),
                "filename" => found.file_name = Some(String::from_utf8_lossy(&value).into_owned()),
                "filename*" => extended = extended_value(&value),
                _ => {}
            }
        }
        // The form that can say every sign counts before the one that cannot (RFC 6266).
        found.file_name = extended.or(found.file_name);
    }
    found
}

/// The value of a header, in lower case, and its parameters with names in lower case: `a/b; c=d; e="f; g"`.
fn header_value(text: &[u8]) -> (String, Vec<(String, Vec<u8>)>) {
    let lower = |bytes: &[u8]| String::from_utf8_lossy(bytes.trim_ascii()).to_ascii_lowercase();
    let mut pieces = Vec::new();
    let (mut piece, mut quoted) = (Vec::new(), false);
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => quoted = !quoted,
            // Browsers write a quotation mark as %22, some programs with a backslash before it.
            b'\\' if quoted && bytes.peek().is_some_and(|next| matches!(next, b'"' | b'\\')) => {
                piece.extend(bytes.next());
            }
            b';' if !quoted => pieces.push(std::mem::take(&mut piece)),
            byte => piece.push(byte),
        }
    }
    pieces.push(piece);
    let mut pieces = pieces.into_iter();
    let value = pieces.next().map(|value| lower(&value)).unwrap_or_default();
    let parameter = |piece: Vec<u8>| {
        let equals = piece.iter().position(|byte| *byte == b'=')?;
        let (name, value) = piece.split_at(equals);
        Some((lower(name), value.get(1..)?.trim_ascii().to_vec()))
    };
    (value, pieces.filter_map(parameter).collect())
}

/// `UTF-8''na%C3%AFve.txt` (RFC 8187); `None` for another shape.
fn extended_value(value: &[u8]) -> Option<String> {
    let mut parts = value.splitn(3, |byte| *byte == b'\'');
    let (charset, _language, text) = (parts.next()?, parts.next()?, parts.next()?);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let digit = |n: usize| after.get(n).and_then(|byte| char::from(*byte).to_digit(16));
        if let (b'%', Some(high), Some(low)) = (byte, digit(0), digit(1)) {
            bytes.push(u8::try_from(high * 16 + low).ok()?);
            rest = after.get(2..)?;
        } else {
            bytes.push(*byte);
            rest = after;
        }
    }
    if charset.eq_ignore_ascii_case(b"iso-8859-1") {
        return Some(bytes.into_iter().map(char::from).collect());
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt, stream};
    use std::time::Duration;

    /// No rate is asked for.
    fn pace(idle_millis: u64) -> Pace {
        Pace { idle: Duration::from_millis(idle_millis), rate: 0, grace: Duration::MAX }
    }

    fn form(pieces: Vec<Vec<u8>>, max_bytes: u64) -> Form {
        let pieces = stream::iter(pieces.into_iter().map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece))));
        let kind = b"Multipart/Form-Data; charset=x; boundary=\"B\"";
        Form::new(kind, Body::from_stream(pieces), max_bytes, pace(50)).unwrap()
    }

    async fn parts(mut form: Form) -> Result<Vec<(String, Option<String>, Vec<u8>)>, FormError> {
        let mut parts = Vec::new();
        while let Some(head) = form.next_part().await? {
            let mut content = Vec::new();
            while let Some(chunk) = form.chunk().await? {
                content.extend_from_slice(&chunk);
            }
            parts.push((head.name, head.file_name, content));
        }
        Ok(parts)
    }

    const BODY: &[u8] = b"preamble\r\n--B  \r\nContent-Disposition: form-data; name=\"a\"\r\nX: y\r\n\r\n\r\n-B\r\n--C\r\n--B\r\n\
        content-disposition:form-data;name=f;filename=\"x; \\\"y\\\".txt\"\r\n\r\n\r\n--B\r\n\r\nno head\r\n--B--\r\nepilogue";

    #[tokio::test]
    async fn parts_are_the_same_however_the_body_is_cut() {
        let want = [
            ("a".to_owned(), None, b"\r\n-B\r\n--C".to_vec()),
            ("f".to_owned(), Some("x; \"y\".txt".to_owned()), vec![]),
            (String::new(), None, b"no head".to_vec()),
        ];
        for size in [1, 2, 3, 7, 50, BODY.len()] {
            let pieces = BODY.chunks(size).map(<[u8]>::to_vec).collect();
            assert_eq!(parts(form(pieces, 1000)).await.unwrap(), want, "pieces of {size}");
        }
        let without_preamble = BODY[10..].to_vec();
        assert_eq!(parts(form(vec![without_preamble], 1000)).await.unwrap(), want);
    }

    #[tokio::test]
    async fn heads_and_preambles_are_bounded_and_every_byte_counts() {
        let endless = |start: &[u8]| {
            let mut pieces = vec![start.to_vec()];
            pieces.extend((0..100).map(|_| vec![b'x'; 1024]));
            pieces
        };
        for start in [&b""[..], b"--B", b"--B\r\nContent-Disposition: form-data; name=\""] {
            let error = parts(form(endless(start), u64::MAX)).await.unwrap_err();
            assert!(matches!(error, FormError::HeadTooLong), "{error}");
            let error = parts(form(endless(start), 9000)).await.unwrap_err();
            assert!(matches!(error, FormError::Body(PacedError::TooLarge)), "{error}");
        }
        // Long content is no head.
        let mut long = endless(b"--B\r\n\r\n");
        long.push(b"\r\n--B--".to_vec());
        assert_eq!(parts(form(long, u64::MAX)).await.unwrap()[0].2.len(), 100 * 1024);
    }

    #[tokio::test]
    async fn what_is_no_form_is_told_from_what_stalls() {
        for body in [&b""[..], b"--B", b"--B-", b"--Bx\r\n\r\n", b"--B\r\n\r\nabc", b"--B\r\nX: y\r\n"] {
            let error = parts(form(vec![body.to_vec()], 1000)).await.unwrap_err();
            assert!(matches!(error, FormError::Broken(_)), "{error} for {}", String::from_utf8_lossy(body));
        }
        let stalled = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"--B\r\n"))]).chain(stream::pending());
        let body = Body::from_stream(stalled);
        let form = Form::new(b"multipart/form-data; boundary=B", body, 1000, pace(20)).unwrap();
        assert!(matches!(parts(form).await, Err(FormError::Body(PacedError::Idle))));
        for kind in [&b"multipart/form-data"[..], b"multipart/mixed; boundary=B", b"multipart/form-data; boundary="] {
            assert!(Form::new(kind, Body::empty(), 1, pace(0)).is_none());
        }
    }

    #[tokio::test]
    async fn what_drips_is_given_up_and_what_pauses_is_not() {
        // Pieces of so many bytes, each so many milliseconds after the one before.
        let arrives = |pieces: Vec<(u64, usize)>| {
            let start = (0, b"--B\r\n\r\n".to_vec());
            let pieces = pieces.into_iter().map(|(after, bytes)| (after, vec![b'x'; bytes]));
            let pieces = [start].into_iter().chain(pieces).chain([(0, b"\r\n--B--".to_vec())]);
            let body = stream::iter(pieces).then(|(after, piece)| async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                Ok::<_, std::io::Error>(Bytes::from(piece))
            });
            let pace = Pace { idle: Duration::from_secs(5), rate: 1024, grace: Duration::from_millis(200) };
            let kind = b"multipart/form-data; boundary=B";
            parts(Form::new(kind, Body::from_stream(body), u64::MAX, pace).unwrap())
        };
        let drips = arrives(vec![(10, 1); 10_000]).await;
        assert!(matches!(drips, Err(FormError::Body(PacedError::Dripping))), "{drips:?}");
        // A fast start does not excuse it.
        let slows = [vec![(0, 8 << 20)], vec![(10, 1); 10_000]].concat();
        assert!(matches!(arrives(slows).await, Err(FormError::Body(PacedError::Dripping))));
        // A pause is honest where the rest makes up for it, and so is a slow line.
        assert!(arrives(vec![(150, 1), (60, 64 << 10), (1, 64 << 10), (150, 1)]).await.is_ok());
        assert!(arrives(vec![(5, 2048); 100]).await.is_ok());
    }

    #[test]
    fn names_survive_in_every_spelling() {
        let name = |line: &[u8]| parse_head(line).file_name.unwrap();
        let of = |rest: &[u8]| name(&[b"\r\nContent-Disposition: form-data; ", rest].concat());
        assert_eq!(of(b"filename=\"a.txt\"; filename*=UTF-8''na%C3%AFve%20rank3.txt"), "na\u{ef}ve rank3.txt");
        assert_eq!(of(b"filename*=iso-8859-1'en'%A3.txt"), "\u{a3}.txt");
        assert_eq!(of(b"filename=\"rank\xff3.log\""), "rank\u{fffd}3.log");
        assert_eq!(of(b"filename=\"a\0b.log\""), "a\0b.log");
        assert_eq!(of("filename=\"显.txt\"".as_bytes()), "显.txt");
        assert_eq!(of(b"filename*=odd; filename=b.txt"), "b.txt");
        assert_eq!(of(b"filename*=UTF-8''100%.txt"), "100%.txt");
    }
}
