//! One file of the spool: lines of JSON, one after the other, each with its `seq` in front. Knows no bounds and no server.

use rankscope_model::{LiveLine, LiveRecord};
use serde::Deserialize;
use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

const EXTENSION: &str = "ndjson";
/// Longest line that is read back. The longest that is written is far below: a second of all devices of a node.
const LONGEST_LINE: u64 = 16 << 20;

/// A file and what it holds.
#[derive(Debug)]
pub struct Segment {
    /// Its place.
    pub path: PathBuf,
    /// The first position that it covers: a line for lost ones covers those.
    pub first: u64,
    /// `seq` of its last line.
    pub last: u64,
    /// Its size.
    pub bytes: u64,
}

/// Some whole lines of a segment.
#[derive(Debug, PartialEq, Eq)]
pub struct Lines {
    /// Their text, each ended by a line break.
    pub text: Vec<u8>,
    /// `seq` of the first.
    pub first: u64,
    /// `seq` of the last.
    pub last: u64,
    /// How many.
    pub count: usize,
}

impl Segment {
    /// Where the segment that begins with `first` lies.
    pub fn path(folder: &Path, first: u64) -> PathBuf {
        folder.join(format!("{first:020}.{EXTENSION}"))
    }

    /// The segments of a folder that a process left behind, in order. A line that was being written when it ended is cut
    /// off, and so is everything from the first line on that makes no sense.
    pub fn find(folder: &Path) -> io::Result<Vec<Self>> {
        let mut segments = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let is_segment = path.extension().is_some_and(|extension| extension == EXTENSION);
            let first = path.file_stem().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
            if let Some(first) = first.filter(|_| is_segment) {
                segments.extend(Self::repair(path, first)?);
            }
        }
        segments.sort_by_key(|segment| segment.first);
        Ok(segments)
    }

    fn repair(path: PathBuf, first: u64) -> io::Result<Option<Self>> {
        let file = File::options().read(true).write(true).open(&path)?;
        let length = file.metadata()?.len();
        let mut reader = BufReader::new(&file);
        let mut line = Vec::new();
        let (mut bytes, mut last) = (0, None);
        loop {
            line.clear();
            let read = (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut line)? as u64;
            let seq = seq_of(&line).filter(|seq| line.ends_with(b"\n") && last.is_none_or(|last| *seq > last));
            match seq.filter(|seq| *seq >= first) {
                Some(seq) => (bytes, last) = (bytes + read, Some(seq)),
                None => break,
            }
        }
        let Some(last) = last else {
            fs::remove_file(&path)?;
            return Ok(None);
        };
        if bytes < length {
            file.set_len(bytes)?;
        }
        Ok(Some(Self { path, first, last, bytes }))
    }

    /// Whole lines from position `from` on, up to about `room` bytes, but at least one; and where they begin and end in
    /// the file. `hint` is a place at which a line begins whose position is not above `from`.
    pub fn read(&self, from: u64, room: u64, hint: u64) -> io::Result<Option<(Lines, u64, u64)>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(hint))?;
        // What lies behind is being written.
        let mut reader = BufReader::with_capacity(16 * 1024, file.take(self.bytes.saturating_sub(hint)));
        let mut lines = Lines { text: Vec::new(), first: 0, last: 0, count: 0 };
        let (mut begins, mut at) = (hint, hint);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut line)? as u64;
            if read == 0 {
                break;
            }
            let seq = seq_of(&line).ok_or_else(|| io::Error::other("a line without its position"))?;
            if seq < from {
                at += read;
                begins = at;
                continue;
            }
            if lines.count > 0 && lines.text.len() as u64 + read > room {
                break;
            }
            if lines.count == 0 {
                lines.first = seq;
            }
            lines.last = seq;
            lines.count += 1;
            lines.text.extend_from_slice(&line);
            at += read;
        }
        Ok((lines.count > 0).then_some((lines, begins, at)))
    }

    /// Figures of memory in the lines from `from` to `to`, those counted in that were lost before.
    pub fn figures(&self, from: u64, to: u64) -> u64 {
        let Ok(file) = File::open(&self.path) else { return 0 };
        let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
        let figures =
            lines.filter_map(|line| serde_json::from_slice::<LiveLine>(&line).ok()).map(|line| match line.record {
                _ if !(from..=to).contains(&line.seq) => 0,
                LiveRecord::Memory(memory) => memory.figures(),
                LiveRecord::Dropped(dropped) => dropped.samples,
                _ => 0,
            });
        figures.sum()
    }
}

/// The position of a line, which stands in front of everything else.
fn seq_of(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Position {
        seq: u64,
    }
    let quick = || {
        let rest = line.strip_prefix(br#"{"seq":"#)?;
        let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
        std::str::from_utf8(rest.get(..end)?).ok()?.parse().ok()
    };
    quick().or_else(|| serde_json::from_slice::<Position>(line).ok().map(|position| position.seq))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seq: u64) -> String {
        format!("{{\"seq\":{seq},\"t\":1,\"type\":\"end\"}}\n")
    }

    fn write(folder: &Path, first: u64, text: &str) -> PathBuf {
        let path = Segment::path(folder, first);
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_line_that_was_being_written_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let whole = line(5) + &line(6);
        for torn in ["{\"seq\":7,\"t\"", "\0\0\0\0", "{\"seq\":6,\"t\":1,\"type\":\"end\"}\n", "nonsense\n"] {
            let path = write(folder.path(), 5, &(whole.clone() + torn));
            let found = Segment::find(folder.path()).unwrap();
            assert_eq!((found[0].first, found[0].last, found[0].bytes), (5, 6, whole.len() as u64), "{torn:?}");
            assert_eq!(fs::read_to_string(path).unwrap(), whole);
        }
        write(folder.path(), 5, "{\"seq");
        assert!(Segment::find(folder.path()).unwrap().is_empty());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn lines_are_read_from_a_position_and_up_to_a_size() {
        let folder = tempfile::tempdir().unwrap();
        let length = line(10).len() as u64;
        write(folder.path(), 10, &(10..20).map(line).collect::<String>());
        let segment = Segment::find(folder.path()).unwrap().remove(0);
        let (lines, begins, ends) = segment.read(12, 3 * length, 0).unwrap().unwrap();
        assert_eq!((lines.first, lines.last, lines.count), (12, 14, 3));
        assert_eq!((begins, ends), (2 * length, 5 * length));
        assert_eq!(lines.text, (12..15).map(line).collect::<String>().into_bytes());
        let (next, ..) = segment.read(15, 1, ends).unwrap().unwrap();
        assert_eq!((next.first, next.last), (15, 15), "one line at least");
        assert_eq!(segment.read(20, 100, 0).unwrap(), None);
    }

    #[test]
    fn figures_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let memory = |seq| {
            format!(
                "{{\"seq\":{seq},\"t\":1,\"type\":\"memory\",\"dt_us\":[0,1],\"devices\":[{{\"subject\":{{\"device\":0}},\"used\":[1,null]}}]}}\n"
            )
        };
        let lost = "{\"seq\":9,\"t\":1,\"type\":\"dropped\",\"first\":3,\"last\":9,\"samples\":100}\n";
        write(folder.path(), 0, &(memory(0) + &memory(1) + &line(2) + lost));
        let segment = Segment::find(folder.path()).unwrap().remove(0);
        assert_eq!((segment.figures(0, 9), segment.figures(1, 8), segment.figures(2, 2)), (104, 2, 0));
    }
}
