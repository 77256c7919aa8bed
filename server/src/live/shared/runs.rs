//! How live runs stand, for the browsers of all replicas: the leader writes it down whenever it changes, the others read it
//! and tell their own browsers the same.

use super::Shared;
use crate::{
    live::{Live, hub::RunTick},
    service::Service,
    store::{OpenRunRow, StoreError},
};
use rankscope_model::LiveRunRef;
use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};
use tokio::time::timeout;

/// Time between looks of the leader at what it tells its own browsers.
const WRITE_EVERY: Duration = Duration::from_millis(500);
/// Time between looks of the others where no message comes.
const READ_EVERY: Duration = Duration::from_secs(2);

impl Shared {
    /// Works as long as the server runs.
    pub async fn share_runs(&self, live: &Live, service: &Service) {
        let mut written = HashMap::new();
        loop {
            let leads = *self.place.leads.borrow();
            let shared = if leads {
                self.write_runs(live, &mut written).await
            } else {
                written.clear();
                self.read_runs(live, service).await
            };
            if let Err(error) = shared {
                tracing::warn!(%error, "how live runs stand could not be shared with the other servers");
            }
            if leads {
                tokio::time::sleep(WRITE_EVERY).await;
            } else {
                let _ = timeout(READ_EVERY, self.runs_changed.notified()).await;
            }
        }
    }

    /// Writes down what has changed since the last time.
    async fn write_runs(&self, live: &Live, written: &mut HashMap<String, u64>) -> Result<(), StoreError> {
        let ticks = live.hub.ticks();
        written.retain(|run, _| ticks.iter().any(|(known, _)| known == run));
        for (run, tick) in ticks {
            if written.get(&run) != Some(&tick.revision) {
                self.place.log.tick(&run, &serde_json::to_string(&tick)?).await?;
                written.insert(run, tick.revision);
            }
        }
        Ok(())
    }

    /// Tells this replica's browsers what the leader has written down.
    async fn read_runs(&self, live: &Live, service: &Service) -> Result<(), StoreError> {
        let rows = self.place.log.open_runs().await?;
        let open: BTreeSet<&str> = rows.iter().map(|row| row.run.as_str()).collect();
        let mut deleted = BTreeSet::new();
        for (run, _) in live.hub.ticks().into_iter().filter(|(run, _)| !open.contains(run.as_str())) {
            let last = service.store.report(&run, None).await.ok();
            if last.is_none() {
                deleted.insert(run.clone());
            }
            service.forget_series(&run);
            live.hub.tick(&run, |tick| {
                if let Some(report) = last {
                    (tick.version, tick.diagnosed_at) = (report.version, report.diagnosed_at.0);
                }
                tick.ended = true;
            });
        }
        for row in &rows {
            // Nothing is written down yet, or by another version.
            let tick = row.tick.as_deref().and_then(|tick| serde_json::from_str::<RunTick>(tick).ok());
            let tick = tick.unwrap_or_default();
            if live.hub.set(&row.run, tick) {
                // The columns of its newest version may be others now.
                service.forget_series(&row.run);
            }
        }
        let found: HashMap<String, Option<String>> =
            live.hub.ticks().into_iter().map(|(run, tick)| (run, tick.found)).collect();
        let named = |row: OpenRunRow| {
            let found = found.get(&row.run).cloned().flatten();
            (row.key, LiveRunRef { id: row.run, title: row.title, found, ended: None })
        };
        live.name_runs(rows.into_iter().map(named).collect(), &deleted);
        Ok(())
    }
}
