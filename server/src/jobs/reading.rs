//! Reads files of a run once more: one that took too long for its upload, or all of them with the readers of today. The
//! report of before stays; a new version counts in what was read.

use super::{Failure, Outcome, READ_FILE};
use crate::{
    service::Service,
    store::{Job, StoreError},
};
use std::sync::Arc;

pub(super) async fn read(service: &Arc<Service>, job: &Job) -> Result<Outcome, Failure> {
    let run = job.run.clone().ok_or(StoreError::Missing)?;
    let mut files = service.store.readable(&run).await?;
    if job.kind == READ_FILE {
        files.retain(|file| file.id == job.subject);
    }
    if files.is_empty() {
        return Ok(Outcome::Done);
    }
    let mut read = Vec::with_capacity(files.len());
    for file in files {
        let staged = service.store.staged_again(&run, &file.id).await?;
        let evidence = service.read_patiently(&file.name, file.bytes, staged).await?;
        read.push((file.id, Arc::new(evidence)));
    }
    let _lock = service.store.lock_run(&run).await?;
    let row = service.store.run(&run).await?;
    let evidence = service.store.evidence_with(&run, &read).await?;
    let (report, series) = service.diagnose(row.run, row.version.saturating_add(1), evidence).await?;
    service.store.replace_evidence(job, read, report, series).await?;
    Ok(Outcome::Ended)
}
