//! Live data of replicas: one log for all of them in the database, which each follows into a state of its own.
//!
//! [`append`] keeps what agents send, whichever replica they reach. [`follow`] takes the log in, in its order, so each
//! replica shows the same. [`room`] is the leader's: it writes the state down, so that a start need not read the whole log,
//! and makes room. [`runs`] tells the others what the leader knows of live runs. Knows no SQL.

mod append;
mod follow;
mod room;
mod runs;

use super::{counters::Counters, lock, state::State, writer::Job};
use crate::{
    metrics::head,
    store::{Entry, EntryKind, LivePlace, StoreError, in_time, now},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fmt::Write,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

/// An addition that the database does not answer within this is given up; senders come again.
const APPEND_WITHIN: Duration = Duration::from_secs(10);
/// A change of the log is seen here within this, or whoever waits for it waits no longer.
const SEEN_WITHIN: Duration = Duration::from_secs(5);
/// A replica that could not read the log for so long shows what was.
const STALE_AFTER: Duration = Duration::from_secs(15);

/// Live data of one replica.
#[derive(Debug)]
pub struct Shared {
    place: LivePlace,
    keep_bytes: u64,
    state: Arc<Mutex<State>>,
    /// The state holds everything up to here. Written under the state's lock.
    applied: AtomicI64,
    reached: watch::Sender<i64>,
    changed: watch::Sender<u64>,
    counters: Arc<Counters>,
    /// Positions that this replica has added and not taken in yet: what they hold is counted here and by no other.
    own: Mutex<BTreeSet<i64>>,
    /// When the log was read last.
    read_at: Mutex<Instant>,
    /// Something was added.
    added: Notify,
    /// How a run stands may have changed.
    runs_changed: Notify,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    appender: Mutex<Option<JoinHandle<()>>>,
}

/// A state and the position of the log up to which it goes.
#[derive(Debug, Serialize, Deserialize)]
struct Checkpoint {
    position: i64,
    state: State,
}

impl Shared {
    /// Brings a state to what is in the log, and goes on from there.
    pub async fn open(
        place: LivePlace,
        keep_bytes: u64,
        changed: watch::Sender<u64>,
        jobs: mpsc::Receiver<Job>,
    ) -> Result<Arc<Self>, StoreError> {
        let (reached, _) = watch::channel(0);
        let shared = Arc::new(Self {
            place,
            keep_bytes,
            state: Arc::default(),
            applied: AtomicI64::new(0),
            reached,
            changed,
            counters: Arc::default(),
            own: Mutex::default(),
            read_at: Mutex::new(Instant::now()),
            added: Notify::new(),
            runs_changed: Notify::new(),
            tasks: Mutex::default(),
            appender: Mutex::default(),
        });
        shared.begin_anew().await?;
        shared.catch_up().await?;
        let tasks = [
            tokio::spawn(Arc::clone(&shared).listen()),
            tokio::spawn(Arc::clone(&shared).follow()),
            tokio::spawn(Arc::clone(&shared).keep_room()),
        ];
        lock(&shared.tasks).extend(tasks);
        *lock(&shared.appender) = Some(tokio::spawn(Arc::clone(&shared).append(jobs)));
        Ok(shared)
    }

    /// What is known, shared with whoever looks at it.
    pub fn state(&self) -> Arc<Mutex<State>> {
        Arc::clone(&self.state)
    }

    /// What is counted, shared with whoever tells it.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Where everything is kept.
    pub fn place(&self) -> &LivePlace {
        &self.place
    }

    /// Whether this replica sees what is added.
    pub fn is_current(&self) -> bool {
        lock(&self.read_at).elapsed() < STALE_AFTER
    }

    /// What only replicas tell of themselves, as Prometheus text.
    pub fn metrics(&self) -> String {
        let mut out = String::new();
        let leads = i64::from(*self.place.leads.borrow());
        for (name, help, value) in [
            ("rankscope_live_leads", "1: this server makes the runs of live jobs; 0: another one does.", leads),
            ("rankscope_live_log_position", "Up to where this server has read the log of all servers.", self.applied()),
        ] {
            head(&mut out, name, "gauge", help);
            let _ = writeln!(out, "{name} {value}"); // writing into a String cannot fail
        }
        out
    }

    /// Removes a node, in all replicas; when this returns, it is gone here.
    pub async fn remove(&self, node: &str, at: i64) -> Result<(), StoreError> {
        let entry = Entry {
            kind: EntryKind::Removed,
            source: String::new(),
            owner: node.to_owned(),
            received: at,
            gzip: false,
            known: None,
            body: Bytes::new(),
        };
        let adding = async { self.place.log.append(&[]).await?.commit(&[entry], &[], self.segment_bytes()).await };
        // Boxed: handlers of forms carry it along.
        let position = in_time(APPEND_WITHIN, Box::pin(adding)).await?;
        self.added.notify_one();
        let mut reached = self.reached.subscribe();
        if timeout(SEEN_WITHIN, reached.wait_for(|reached| *reached >= position)).await.is_err() {
            tracing::warn!(node, "a node was removed, which does not show here yet");
        }
        Ok(())
    }

    /// Waits until what was taken is kept; nothing more may be sent. Then nothing is followed any more.
    pub async fn close(&self) {
        let appender = lock(&self.appender).take();
        if let Some(appender) = appender {
            let _ = appender.await;
        }
        for task in lock(&self.tasks).drain(..) {
            task.abort();
        }
    }

    fn segment_bytes(&self) -> i64 {
        i64::try_from(super::writer::segment_bytes(self.keep_bytes)).unwrap_or(i64::MAX)
    }

    /// Up to where the state goes.
    fn applied(&self) -> i64 {
        self.applied.load(SeqCst)
    }

    fn now() -> i64 {
        now().0
    }
}
