//! What the leader does for the log of all replicas: it writes the state down whenever a segment is full, and makes room by
//! whole segments, as `writer` does for the log of a server that is alone.

use super::{Checkpoint, Shared};
use crate::{
    live::{lock, writer::is_needed},
    store::{SegmentRow, StoreError},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// Time between looks.
const LOOK: Duration = Duration::from_secs(5);
/// What is no longer known of is forgotten so often.
const TIDY_EVERY: Duration = Duration::from_mins(10);
/// Sources of which nothing was heard for so long are forgotten, in microseconds.
const FORGET: i64 = 30 * 86_400_000_000;
/// States that were written down lie in these places, by turns: the newest stays while the next is written.
const SLOTS: [&str; 2] = ["a", "b"];

impl Shared {
    /// Works whenever this replica leads.
    pub(super) async fn keep_room(self: Arc<Self>) {
        let mut tidied: Option<Instant> = None;
        loop {
            sleep(LOOK).await;
            if !*self.place.leads.borrow() {
                continue;
            }
            if let Err(error) = self.look_after().await {
                tracing::warn!(%error, "the live log could not be looked after; it grows until that is possible");
            }
            if tidied.is_none_or(|tidied| tidied.elapsed() >= TIDY_EVERY) {
                tidied = Some(Instant::now());
                if let Err(error) = self.place.log.tidy(Self::now().saturating_sub(FORGET)).await {
                    tracing::warn!(%error, "sources that have ended could not be forgotten");
                }
            }
        }
    }

    async fn look_after(&self) -> Result<(), StoreError> {
        let segments = self.place.log.segments().await?;
        let Some(open) = segments.last() else { return Ok(()) };
        let mut newest = self.place.log.checkpoints().await?.first().cloned();
        if newest.as_ref().map_or(1, |(_, position)| position.saturating_add(1)) < open.first
            && self.applied() >= open.first.saturating_sub(1)
        {
            newest = Some(self.write_down(newest.map(|(slot, _)| slot)).await?);
        }
        let Some((_, position)) = newest else { return Ok(()) };
        for (first, next, was_needed) in self.surplus(&segments, position) {
            self.place.log.remove_segment(first, next).await?;
            if was_needed {
                tracing::warn!(segment = first, "made room in the live log: samples of jobs that still run went too");
            } else {
                tracing::info!(segment = first, "made room in the live log");
            }
        }
        Ok(())
    }

    /// Writes the state down beside the one that is there.
    async fn write_down(&self, newest: Option<String>) -> Result<(String, i64), StoreError> {
        let slot = SLOTS.into_iter().find(|slot| newest.as_deref() != Some(slot)).unwrap_or(SLOTS[0]);
        let (position, state) = {
            let state = lock(&self.state);
            (self.applied(), state.clone())
        };
        self.place.log.forget_checkpoint(slot).await?;
        self.place.keep_state(slot, Arc::new(Checkpoint { position, state })).await?;
        self.place.log.checkpoint_at(slot, position).await?;
        tracing::info!(position, "the live state was written down");
        Ok((slot.to_owned(), position))
    }

    /// Segments that are to go: first position, that of the next one, and whether something in it is still needed. First
    /// the oldest of which nothing is, then the oldest. What a start needs stays.
    fn surplus(&self, segments: &[SegmentRow], written_down: i64) -> Vec<(i64, i64, bool)> {
        let keep = i64::try_from(self.keep_bytes).unwrap_or(i64::MAX);
        let mut bytes = segments.iter().fold(0i64, |sum, segment| sum.saturating_add(segment.bytes));
        let mut left: Vec<(i64, i64, i64, bool)> = {
            let state = lock(&self.state);
            let ends = segments.iter().skip(1).map(|next| next.first);
            let sealed = segments.iter().zip(ends).filter(|(_, end)| *end <= written_down.saturating_add(1));
            sealed
                .map(|(segment, end)| {
                    let is_needed = segment.owners.iter().any(|owner| is_needed(&state, owner));
                    (segment.first, end, segment.bytes, is_needed)
                })
                .collect()
        };
        let mut surplus = Vec::new();
        while bytes > keep && !left.is_empty() {
            let at = left.iter().position(|(.., is_needed)| !is_needed).unwrap_or(0);
            let (first, next, size, was_needed) = left.remove(at);
            bytes = bytes.saturating_sub(size);
            surplus.push((first, next, was_needed));
        }
        surplus
    }
}
