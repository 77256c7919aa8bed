//! Keeps batches in the log of all replicas: those that wait go together, in one transaction. A source is judged by what
//! the log has of it, so a batch that was sent to two replicas counts once.

use super::{APPEND_WITHIN, Shared};
use crate::{
    live::{
        lock,
        sources::{Judged, Sources},
        writer::{Answer, Job, owner_of},
    },
    store::{Entry, EntryKind, SourceRow, StoreError, in_time},
};
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::mpsc;

impl Shared {
    /// Works until the last sender is gone.
    pub(super) async fn append(self: Arc<Self>, mut jobs: mpsc::Receiver<Job>) {
        while let Some(job) = jobs.recv().await {
            self.keep(job.with_those_that_wait(&mut jobs)).await;
        }
    }

    async fn keep(&self, group: Vec<Job>) {
        match in_time(APPEND_WITHIN, self.add(&group)).await {
            Ok(judged) => {
                self.added.notify_one();
                for (job, judged) in group.into_iter().zip(judged) {
                    self.answer(job, judged);
                }
            }
            Err(error) => {
                tracing::error!(%error, batches = group.len(), "live data could not be written; nothing of it was acknowledged");
                let is_full = error.is_full();
                for job in group {
                    let _ = job.answer.send(Answer::Failed { is_full });
                }
            }
        }
    }

    /// Adds what is new of a group; when this returns, it is on disk.
    async fn add(&self, group: &[Job]) -> Result<Vec<Judged>, StoreError> {
        let names: BTreeSet<&str> = group.iter().map(|job| job.batch.source.as_str()).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let appending = self.place.log.append(&names).await?;
        let kept = appending.known.iter().cloned();
        let mut sources = Sources::of(kept.map(|row| (row.source, row.acknowledged, row.heard, row.node)));
        let mut entries = Vec::new();
        let mut judged = Vec::with_capacity(group.len());
        for job in group {
            let verdict = sources.judge(&job.batch);
            if let Judged::New { known } = &verdict {
                sources.take(&job.batch, job.received);
                entries.push(entry(job, *known));
            }
            judged.push(verdict);
        }
        if !entries.is_empty() {
            let rows = sources.into_kept().map(|(source, acknowledged, heard, node)| SourceRow {
                source,
                acknowledged,
                heard,
                node,
            });
            let last = appending.commit(&entries, &rows.collect::<Vec<_>>(), self.segment_bytes()).await?;
            let count = i64::try_from(entries.len()).unwrap_or(i64::MAX);
            let applied = self.applied();
            let added = (last.saturating_sub(count).saturating_add(1)..=last).filter(|position| *position > applied);
            lock(&self.own).extend(added);
        }
        Ok(judged)
    }

    fn answer(&self, mut job: Job, judged: Judged) {
        let answer = match judged {
            Judged::Old { known } => {
                self.counters.duplicate(job.batch.lines.len());
                Answer::Kept(known)
            }
            Judged::Gap { known } => {
                self.counters.gap();
                Answer::Gap(known)
            }
            Judged::Elsewhere { node } => Answer::Elsewhere(node),
            Judged::New { known } => {
                let before = job.batch.lines.len();
                if let Some(known) = known {
                    job.batch.keep_after(known);
                }
                self.counters.kept(&job.batch, before.saturating_sub(job.batch.lines.len()));
                Answer::Kept(job.batch.last)
            }
        };
        let _ = job.answer.send(answer);
    }
}

fn entry(job: &Job, known: Option<u64>) -> Entry {
    Entry {
        kind: EntryKind::Batch,
        source: job.batch.source.clone(),
        owner: owner_of(&job.batch).to_owned(),
        received: job.received,
        gzip: job.gzip,
        known,
        body: job.body.clone(),
    }
}
