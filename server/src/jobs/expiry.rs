//! Files on their way that nobody goes on with.

use super::{EXPIRE_UPLOAD, Failure, Outcome};
use crate::{
    service::Service,
    store::{Job, now},
};
use std::sync::Arc;

pub(super) async fn look(service: &Arc<Service>, job: &Job) -> Result<Outcome, Failure> {
    match service.store.upload_expires(&job.subject).await? {
        None => Ok(Outcome::Done),
        Some(expires) if expires > now().0 => Ok(Outcome::Again(expires)),
        Some(_) => {
            // With the file its job goes too.
            service.store.end_upload(&job.subject, EXPIRE_UPLOAD).await?;
            tracing::info!(upload = job.subject, "a file that was never sent to its end has expired");
            Ok(Outcome::Ended)
        }
    }
}
