//! Deletes the runs of a project that are past its limits, and looks again an hour later. Each deletion is one of its own,
//! and recorded: who comes second finds less to do.

use super::{Failure, Outcome};
use crate::{
    accounts::{Accounts, Action},
    service::Service,
    store::{Job, Reason, now},
};
use std::{sync::Arc, time::Duration};

/// Between the moment at which limits are set and the first deletion: time to think again.
pub const FIRST_LOOK: Duration = Duration::from_hours(1);
/// Between two looks.
const LOOK: Duration = Duration::from_hours(1);
/// Who the record says it was.
const NAME: &str = "retention";

pub(super) async fn look(service: &Arc<Service>, job: &Job) -> Result<Outcome, Failure> {
    let project = &job.subject;
    let keep = service.store.keep_of(project).await?;
    if keep.is_without_end() {
        return Ok(Outcome::Done);
    }
    let accounts = Accounts::of(&service.store);
    for (candidate, reason) in service.store.expiring(project, keep).await?.going {
        // Other limits may have been set meanwhile, which ends this job.
        if !service.store.hold_job(job).await? {
            return Ok(Outcome::Ended);
        }
        if !service.store.delete_expired(&candidate).await? {
            continue;
        }
        let why = match reason {
            Reason::Age => "not changed for too long",
            Reason::Size => "the project has too many bytes",
        };
        let subject = format!("{} {}: {why}", candidate.run, candidate.title);
        tracing::info!(run = candidate.run, bytes = candidate.bytes, why, "a run is past the limits of its project");
        accounts.record(NAME, Action::RunExpired, &subject, None).await;
    }
    Ok(Outcome::Again(now().0.saturating_add(i64::try_from(LOOK.as_micros()).unwrap_or(i64::MAX))))
}
