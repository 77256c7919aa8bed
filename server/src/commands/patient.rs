//! Input that may keep a reader waiting: pipes, standard input, files that a kernel makes up. Says what it waits for,
//! and gives up on what nobody writes to.
//!
//! Knows no format. The source is read on a thread of its own, because opening a pipe alone may block for ever; the
//! thread ends with the program.

use std::{
    io::{self, Read},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

/// After so long without a byte the reader says what it waits for.
const SAYS_AFTER: Duration = Duration::from_secs(2);
/// Bytes that are read at once.
const BLOCK: usize = 64 << 10;
/// Blocks that may wait to be taken.
const AHEAD: usize = 4;

/// A source that is waited for.
pub struct Patient {
    blocks: Receiver<io::Result<Vec<u8>>>,
    block: io::Cursor<Vec<u8>>,
    waits: Waits,
    /// The words were said.
    said: bool,
    over: bool,
}

/// How long it is waited for, and what is said meanwhile.
#[derive(Debug, Clone)]
pub struct Waits {
    /// Said once on standard error while nothing comes; empty for nothing.
    pub words: String,
    /// Without a byte for so long it is given up; `None` to wait as long as it takes.
    pub gives_up: Option<Duration>,
}

impl Patient {
    /// Opens and reads the source on a thread.
    pub fn new<R: Read>(open: impl FnOnce() -> io::Result<R> + Send + 'static, waits: Waits) -> Self {
        let (send, blocks) = sync_channel(AHEAD);
        thread::spawn(move || {
            let mut source = match open() {
                Ok(source) => source,
                Err(error) => return drop(send.send(Err(error))),
            };
            loop {
                let mut block = vec![0; BLOCK];
                let read = source.read(&mut block).map(|bytes| {
                    block.truncate(bytes);
                    block
                });
                let is_last =
                    read.as_ref().map_or_else(|error| error.kind() != io::ErrorKind::Interrupted, Vec::is_empty);
                if send.send(read).is_err() || is_last {
                    return;
                }
            }
        });
        Self { blocks, block: io::Cursor::default(), waits, said: false, over: false }
    }

    /// The next block; `None` at the end.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let began = Instant::now();
        loop {
            let to_say = (!self.said && !self.waits.words.is_empty()).then_some(SAYS_AFTER);
            let wait = match (to_say, self.waits.gives_up) {
                (Some(say), Some(give_up)) => Some(say.min(give_up)),
                (say, give_up) => say.or(give_up),
            };
            let came = match wait {
                Some(wait) => self.blocks.recv_timeout(wait.saturating_sub(began.elapsed())),
                None => self.blocks.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match came {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(block) => return block.map(Some),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(give_up) = self.waits.gives_up
                && began.elapsed() >= give_up
            {
                let words = format!("nothing came for {} seconds, so it was given up", give_up.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, words));
            }
            if to_say.is_some() && began.elapsed() >= SAYS_AFTER {
                self.said = true;
                eprintln!("rankscope: {}", self.waits.words);
            }
        }
    }
}

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let bytes = self.block.read(into)?;
            if bytes > 0 || into.is_empty() || self.over {
                return Ok(bytes);
            }
            match self.next()? {
                Some(block) if !block.is_empty() => self.block = io::Cursor::new(block),
                _ => self.over = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(millis: u64) -> Waits {
        Waits { words: String::new(), gives_up: Some(Duration::from_millis(millis)) }
    }

    #[test]
    fn what_comes_is_read_whole() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let source = io::Cursor::new(bytes.clone());
        let mut read = Vec::new();
        Patient::new(move || Ok(source), waits(10_000)).read_to_end(&mut read).unwrap();
        assert!(read == bytes);
    }

    #[test]
    fn what_nobody_writes_to_is_given_up() {
        let (_writer, held) = std::sync::mpsc::channel::<()>();
        let open = move || {
            // Like a pipe without a writer: opening it does not come back.
            let _ = held.recv();
            Ok(io::empty())
        };
        let error = Patient::new(open, waits(30)).read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_source_that_cannot_be_opened_says_why() {
        let open = || Err::<io::Empty, _>(io::Error::from(io::ErrorKind::PermissionDenied));
        let error = Patient::new(open, waits(10_000)).read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
