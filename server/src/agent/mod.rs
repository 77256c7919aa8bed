//! The agent of a node: samples go through a spool on disk to a server.
//!
//! Three threads: the sampler's, one that writes the spool, one that sends. None of them waits for a slower one, and no
//! queue between them grows: what the spool holds is on disk, and what it cannot hold is counted.

mod backoff;
pub mod local;
mod resolver;
mod segment;
mod sender;
mod spool;

pub use sender::Sender;
pub use spool::{Spool, SpoolError};

use rankscope_model::{LiveRecord, LiveStateKind, UnixMicros};
use rankscope_telemetry::sampler::{Delivery, Sampler, Timed};
use sender::Outcome;
use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// About the size of a batch, not compressed: what was spooled while the server was away goes in pieces of it.
const BATCH_BYTES: u64 = 1 << 20;
/// After so many batches were taken, larger ones are tried again.
const LARGER_AFTER: u64 = 64;
/// While lines wait for a server, they are forced to the disk this often.
const SYNC_EVERY: Duration = Duration::from_secs(10);
/// Time for what is left when the agent is told to end, and the longest pause between attempts in it.
const FAREWELL: Duration = Duration::from_secs(2);
const HURRIED_PAUSE: Duration = Duration::from_millis(200);

/// Now, as lines have it.
fn now() -> UnixMicros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// A name for one run of an agent. It begins with the time, so that names sort by age.
pub fn new_source() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// What the threads share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    spool: Spool,
    /// Nothing more is written.
    complete: bool,
    /// When sending must be over.
    until: Option<Instant>,
    /// Since when the server has been away.
    away_since: Option<Instant>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An agent at work.
pub struct Agent {
    shared: Arc<Shared>,
    stop_sampler: Box<dyn Fn() + Send>,
    ended: mpsc::Receiver<()>,
}

impl Agent {
    /// Starts the threads.
    pub fn start(sampler: Sampler, spool: Spool, sender: Sender) -> io::Result<Self> {
        let state = State { spool, complete: false, until: None, away_since: None };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let stop_sampler = Box::new(sampler.stopper());
        let (end, ended) = mpsc::channel();
        spooling(sampler, Arc::clone(&shared))?;
        sending(sender, Arc::clone(&shared), end)?;
        Ok(Self { shared, stop_sampler, ended })
    }

    /// Ends sampling, says so to the server, and gives what is left a moment. What does not arrive in time stays in the
    /// spool for the next run. Whether everything arrived.
    pub fn end(self) -> bool {
        self.shared.lock().until = Some(Instant::now() + FAREWELL);
        self.shared.changed.notify_all();
        (self.stop_sampler)();
        // Somewhat longer than the last attempt may take.
        let arrived = self.ended.recv_timeout(FAREWELL + Duration::from_millis(250)).is_ok();
        let mut state = self.shared.lock();
        arrived && matches!(state.spool.next_batch(1, now()), Ok(None))
    }
}

fn spooling(sampler: Sampler, shared: Arc<Shared>) -> io::Result<()> {
    thread::Builder::new().name("agent-spool".into()).spawn(move || {
        let mut writing = Writing { shared: &shared, failing: false, synced: Instant::now() };
        while let Ok(delivery) = sampler.deliveries.recv() {
            tell(&delivery);
            writing.write(delivery);
        }
        let end = Timed { t: now(), record: LiveRecord::End };
        writing.write(Delivery { lines: vec![end], ..Delivery::default() });
        shared.lock().complete = true;
        shared.changed.notify_all();
    })?;
    Ok(())
}

fn sending(mut sender: Sender, shared: Arc<Shared>, end: mpsc::Sender<()>) -> io::Result<()> {
    thread::Builder::new().name("agent-send".into()).spawn(move || {
        send_all(&mut sender, &shared);
        // Nobody waits for it unless the agent ends.
        let _ = end.send(());
    })?;
    Ok(())
}

/// The writing half.
struct Writing<'a> {
    shared: &'a Shared,
    failing: bool,
    synced: Instant,
}

impl Writing<'_> {
    fn write(&mut self, delivery: Delivery) {
        let lost = (delivery.lost.lines, delivery.lost.samples);
        let (written, to_sync) = {
            let mut state = self.shared.lock();
            let written = state.spool.append(lost, delivery.lines);
            let is_away = state.away_since.is_some_and(|since| since.elapsed() > SYNC_EVERY);
            let is_due = is_away && self.synced.elapsed() > SYNC_EVERY;
            (written, is_due.then(|| state.spool.file()).flatten())
        };
        self.shared.changed.notify_all();
        if let Some(file) = to_sync {
            self.synced = Instant::now();
            if let Err(error) = file.sync_data() {
                tracing::warn!("the spool cannot be forced to the disk: {error}");
            }
        }
        match written {
            Ok(()) if self.failing => tracing::info!("the spool can be written again"),
            Err(error) if !self.failing => {
                tracing::error!(
                    "the spool cannot be written ({error}); what is sampled until it can is lost, and counted"
                );
                self.failing = true;
                return;
            }
            Ok(()) => {}
            Err(_) => return,
        }
        self.failing = false;
    }
}

/// States of driver and devices are worth a line where the agent runs, too.
fn tell(delivery: &Delivery) {
    if delivery.lost.lines > 0 {
        tracing::warn!(lines = delivery.lost.lines, "the disk was too slow for the samples");
    }
    for line in &delivery.lines {
        match &line.record {
            LiveRecord::State(state)
                if matches!(
                    state.state,
                    LiveStateKind::Ok | LiveStateKind::MigChanged | LiveStateKind::NotSupported
                ) =>
            {
                tracing::info!("{}", state.detail);
            }
            LiveRecord::State(state) => tracing::warn!("{}", state.detail),
            _ => {}
        }
    }
}

/// Sends until the agent ends.
fn send_all(sender: &mut Sender, shared: &Shared) {
    let mut room = BATCH_BYTES;
    let mut taken = 0_u64;
    let mut trouble: Option<String> = None;
    loop {
        let Some((batch, within)) = next(shared, room) else { return };
        let outcome = sender.send(&batch, within);
        let pause = sender.pause_after(&outcome);
        let why = match &outcome {
            Outcome::Acknowledged(acknowledged) => {
                let mut state = shared.lock();
                state.spool.acknowledge(&batch.head.source, *acknowledged);
                state.away_since = None;
                taken += 1;
                if taken.is_multiple_of(LARGER_AFTER) {
                    room = room.saturating_mul(2).min(BATCH_BYTES);
                }
                None
            }
            Outcome::Missing(acknowledged) => {
                shared.lock().spool.acknowledge(&batch.head.source, *acknowledged);
                let is_stuck = batch.head.first <= acknowledged.saturating_add(1);
                is_stuck.then(|| "samples were sent, and the server misses them".to_owned())
            }
            Outcome::TooLarge if batch.count > 1 => {
                room = (batch.text.len() as u64 / 2).min(room / 2).max(1);
                taken = 0;
                None
            }
            Outcome::TooLarge => {
                tracing::warn!("a line is too large for the server; it is given up, and counted");
                shared.lock().spool.skip(&batch.head.source, batch.head.last);
                None
            }
            Outcome::Refused(why) => Some(format!("the server refuses samples: {why}")),
            Outcome::Busy(_) => Some("the server is too busy for samples".to_owned()),
            Outcome::Away(why) | Outcome::Failed(why) => Some(format!("samples cannot be sent: {why}")),
        };
        if let Some(why) = why {
            shared.lock().away_since.get_or_insert_with(Instant::now);
            // Once for each reason, not once for each attempt.
            if trouble.as_ref() != Some(&why) {
                tracing::warn!("{why}; they are kept in the spool");
                trouble = Some(why);
            }
        } else if matches!(outcome, Outcome::Acknowledged(_)) && trouble.take().is_some() {
            tracing::info!("the server takes samples again");
        }
        // In the last moments there is no time for patience with a connection that broke.
        let can_hurry = matches!(outcome, Outcome::Away(_) | Outcome::Failed(_) | Outcome::Missing(_));
        if !pause.is_zero() && sleep(shared, pause, can_hurry) {
            return;
        }
    }
}

/// Waits for something to send. `None` when it is time to end, or when everything was sent and nothing more comes. With
/// the time that is left, once the agent ends.
fn next(shared: &Shared, room: u64) -> Option<(spool::Batch, Option<Duration>)> {
    let mut failing = false;
    let mut state = shared.lock();
    loop {
        let left = state.until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return None;
        }
        match state.spool.next_batch(room, now()) {
            Ok(Some(batch)) => return Some((batch, left)),
            Ok(None) if state.complete => return None,
            Ok(None) => {}
            Err(error) => {
                if !failing {
                    tracing::error!("the spool cannot be read: {error}");
                }
                failing = true;
            }
        }
        let patience = left.unwrap_or(Duration::from_secs(5));
        state = shared.changed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Waits before the next attempt; true when there is none. The end of the agent gives one more attempt at once, and
/// shorter pauses after that if it `can_hurry`.
fn sleep(shared: &Shared, pause: Duration, can_hurry: bool) -> bool {
    let mut state = shared.lock();
    let was_ending = state.until.is_some();
    let pause = if was_ending && can_hurry { pause.min(HURRIED_PAUSE) } else { pause };
    let deadline = Instant::now() + pause;
    loop {
        let now = Instant::now();
        match state.until {
            Some(until) if now >= until => return true,
            Some(_) if !was_ending => return false,
            _ if now >= deadline => return false,
            _ => {}
        }
        let until = state.until.map_or(deadline, |until| until.min(deadline));
        let left = until.saturating_duration_since(now);
        state = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}
