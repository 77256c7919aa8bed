//! Follows the log of all replicas: takes what is added into the state, in its order. A message says that there is
//! something; because messages can be missed, it is also looked for.

use super::{Checkpoint, Shared};
use crate::{
    live::{
        batch::{self, Batch},
        lock,
        writer::take_in,
    },
    store::{Entry, EntryKind, StoreError, in_time},
};
use futures_util::TryStreamExt;
use std::{
    collections::BTreeSet,
    pin::pin,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};
use tokio::time::{sleep, timeout};

/// Time between looks where no message comes.
const LOOK: Duration = Duration::from_secs(1);
/// Pause before it is listened again.
const PAUSE: Duration = Duration::from_secs(1);
/// Entries that are asked for at once.
const ASKED: i64 = 1024;
/// Entries, and bytes of them, that are taken in at once.
const GROUP: usize = 256;
const GROUP_BYTES: usize = 8 << 20;
/// The next entry comes within this, or the database does not answer.
const NEXT_WITHIN: Duration = Duration::from_secs(10);
/// Nodes and probes that were not heard of for long are looked for so often.
const FORGET_EVERY: Duration = Duration::from_mins(10);

impl Shared {
    /// Passes messages on as long as the server runs.
    pub(super) async fn listen(self: Arc<Self>) {
        loop {
            if let Ok(mut listener) = self.place.log.listen().await {
                // What was said before is not known.
                self.wake();
                while let Ok(message) = listener.try_recv().await {
                    match message {
                        Some(message) if message.payload() == "runs" => self.runs_changed.notify_one(),
                        Some(_) => self.added.notify_one(),
                        // The connection broke, and is there again.
                        None => self.wake(),
                    }
                }
            }
            sleep(PAUSE).await;
        }
    }

    fn wake(&self) {
        self.added.notify_one();
        self.runs_changed.notify_one();
    }

    /// Takes in what is added, as long as the server runs.
    pub(super) async fn follow(self: Arc<Self>) {
        let mut is_away = false;
        let mut forgotten = Instant::now();
        loop {
            match self.catch_up().await {
                Ok(()) if std::mem::take(&mut is_away) => tracing::info!("the live log can be read again"),
                Ok(()) => {}
                Err(error) => {
                    if !std::mem::replace(&mut is_away, true) {
                        tracing::warn!(%error, "the live log cannot be read; live views stand still");
                    }
                }
            }
            let _ = timeout(LOOK, self.added.notified()).await;
            if forgotten.elapsed() >= FORGET_EVERY {
                forgotten = Instant::now();
                lock(&self.state).forget(Self::now());
            }
        }
    }

    /// Takes in all that is there.
    pub(super) async fn catch_up(self: &Arc<Self>) -> Result<(), StoreError> {
        loop {
            let mut count = 0;
            let from = self.applied();
            {
                let mut entries = pin!(self.place.log.after(from, ASKED));
                let (mut group, mut bytes) = (Vec::new(), 0);
                while let Some((position, entry)) = in_time(NEXT_WITHIN, entries.try_next()).await? {
                    count += 1;
                    bytes += entry.body.len();
                    group.push((position, entry));
                    if group.len() >= GROUP || bytes >= GROUP_BYTES {
                        self.take_in_group(std::mem::take(&mut group)).await?;
                        bytes = 0;
                    }
                }
                self.take_in_group(group).await?;
            }
            *lock(&self.read_at) = Instant::now();
            if count == 0 && in_time(NEXT_WITHIN, self.place.log.end()).await? < self.applied() {
                tracing::warn!(
                    "the live log ends earlier than before, as after an older copy of the database was put back"
                );
                self.begin_anew().await?;
                continue;
            }
            if count < ASKED {
                return Ok(());
            }
        }
    }

    /// Takes the newest state that was written down.
    pub(super) async fn begin_anew(&self) -> Result<(), StoreError> {
        let checkpoint = self.written_down().await?.unwrap_or(Checkpoint { position: 0, state: <_>::default() });
        self.go_on_from(checkpoint);
        Ok(())
    }

    fn go_on_from(&self, Checkpoint { position, state }: Checkpoint) {
        let version = {
            let mut now = lock(&self.state);
            now.go_on_as(state);
            self.applied.store(position, SeqCst);
            now.version()
        };
        self.changed.send_replace(version);
        self.reached.send_replace(position);
    }

    /// The newest state that was written down and can be read.
    async fn written_down(&self) -> Result<Option<Checkpoint>, StoreError> {
        for (slot, position) in self.place.log.checkpoints().await? {
            match self.place.state::<Checkpoint>(&slot).await {
                Ok(checkpoint) => return Ok(Some(checkpoint)),
                Err(error) if error.is_away() => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, position, "a written-down live state cannot be read; an older one is taken");
                }
            }
        }
        Ok(None)
    }

    async fn take_in_group(self: &Arc<Self>, group: Vec<(i64, Entry)>) -> Result<(), StoreError> {
        let Some((first, _)) = group.first() else { return Ok(()) };
        if *first > self.applied().saturating_add(1) {
            // Room was made in what was not read yet, which happens only where a state was written down after it.
            match self.written_down().await? {
                Some(checkpoint) if checkpoint.position > self.applied() => self.go_on_from(checkpoint),
                _ => tracing::warn!(position = first, "a part of the live log is gone; live views leave it out"),
            }
        }
        let shared = Arc::clone(self);
        let taken = tokio::task::spawn_blocking(move || shared.take_in_all(group)).await;
        taken.map_err(|error| StoreError::Task(error.to_string()))
    }

    /// Unpacks entries and takes them in. Blocks.
    fn take_in_all(&self, group: Vec<(i64, Entry)>) {
        let mut unread = 0u64;
        let read: Vec<(i64, Entry, Option<Batch>)> = group
            .into_iter()
            .map(|(position, entry)| {
                let batch = (entry.kind == EntryKind::Batch).then(|| unpacked(&entry));
                unread += u64::from(matches!(batch, Some(None)));
                (position, entry, batch.flatten())
            })
            .collect();
        if unread > 0 {
            tracing::warn!(batches = unread, "batches of the live log are not understood by this version");
        }
        let mut impossible = 0;
        let (version, last) = {
            let own = lock(&self.own);
            let mut state = lock(&self.state);
            let mut applied = self.applied();
            for (position, entry, batch) in read {
                // A state that was written down may go further.
                if position <= applied {
                    continue;
                }
                if let Some(batch) = batch {
                    let refused = take_in(&mut state, &batch, entry.received);
                    impossible += if own.contains(&position) { refused } else { 0 };
                } else if entry.kind == EntryKind::Removed {
                    state.remove_unless_heard_after(&entry.owner, entry.received);
                }
                applied = position;
            }
            self.applied.store(applied, SeqCst);
            (state.version(), applied)
        };
        let mut own = lock(&self.own);
        let later: BTreeSet<i64> = own.split_off(&last.saturating_add(1));
        *own = later;
        drop(own);
        self.counters.impossible(impossible);
        self.changed.send_replace(version);
        self.reached.send_replace(last);
    }
}

fn unpacked(entry: &Entry) -> Option<Batch> {
    let mut batch = batch::read(&entry.body, entry.gzip).ok()?;
    if let Some(known) = entry.known {
        batch.keep_after(known);
    }
    Some(batch)
}
