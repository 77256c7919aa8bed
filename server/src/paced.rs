//! A body as it arrives, within a limit of bytes and no slower than somebody sends who means it.

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures_util::StreamExt;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How fast a body must arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// A pause after which it is given up.
    pub idle: Duration,
    /// Bytes per second that must arrive over each `grace`.
    pub rate: u64,
    /// Time spent waiting over which the rate is looked at.
    pub grace: Duration,
}

/// Why a body does not go on.
#[derive(Debug, thiserror::Error)]
pub enum PacedError {
    /// More bytes than it may have.
    #[error("the body is over its limit")]
    TooLarge,
    /// Nothing arrived for too long.
    #[error("nothing arrived")]
    Idle,
    /// It arrives more slowly than a sender does who means it.
    #[error("it arrives too slowly")]
    Dripping,
    /// The connection.
    #[error("{0}")]
    Source(axum::Error),
}

/// A body that is being taken in.
#[derive(Debug)]
pub struct Paced {
    source: BodyDataStream,
    left: u64,
    pace: Pace,
    /// Time spent waiting, and bytes that came, since the rate was last looked at.
    waited: Duration,
    came: u64,
}

impl Paced {
    /// At most so many bytes of it.
    pub fn new(body: Body, max_bytes: u64, pace: Pace) -> Self {
        Self { source: body.into_data_stream(), left: max_bytes, pace, waited: Duration::ZERO, came: 0 }
    }

    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, PacedError> {
        let asked = Instant::now();
        let next = timeout(self.pace.idle, self.source.next()).await;
        self.waited += asked.elapsed();
        match next {
            Err(_) => Err(PacedError::Idle),
            Ok(None) => Ok(None),
            Ok(Some(Err(error))) => Err(PacedError::Source(error)),
            Ok(Some(Ok(piece))) => {
                self.left = self.left.checked_sub(piece.len() as u64).ok_or(PacedError::TooLarge)?;
                self.came += piece.len() as u64;
                self.keeps_pace()?;
                Ok(Some(piece))
            }
        }
    }

    /// Looks at the rate once enough time was spent waiting; what was fast before does not excuse what drips now.
    fn keeps_pace(&mut self) -> Result<(), PacedError> {
        if self.waited < self.pace.grace {
            return Ok(());
        }
        let wanted = self.waited.as_secs_f64() * self.pace.rate as f64;
        let came = std::mem::take(&mut self.came);
        self.waited = Duration::ZERO;
        if (came as f64) < wanted { Err(PacedError::Dripping) } else { Ok(()) }
    }
}
