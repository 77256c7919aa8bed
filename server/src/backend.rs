//! The store as the pages see it.

use crate::{service::Service, store::StoreError};
use rankscope_app::{Backend, BackendError, BackendFuture};
use rankscope_model::{Report, RunSummary, ShareInfo};
use std::sync::Arc;

/// Implements the pages' seam over a service.
pub struct StoreBackend {
    service: Arc<Service>,
}

impl StoreBackend {
    /// Pages read through `service`.
    pub fn new(service: Arc<Service>) -> Self {
        Self { service }
    }
}

impl Backend for StoreBackend {
    fn recent_runs(&self, query: Option<String>, limit: u32) -> BackendFuture<'_, Vec<RunSummary>> {
        Box::pin(async move { self.service.store.recent_runs(query.as_deref(), limit).await.map_err(for_pages) })
    }

    fn report(&self, run_id: String, version: Option<u32>) -> BackendFuture<'_, Report> {
        Box::pin(async move { self.service.store.report(&run_id, version).await.map_err(for_pages) })
    }

    fn shares(&self, run_id: String) -> BackendFuture<'_, Vec<ShareInfo>> {
        Box::pin(async move { self.service.store.shares(&run_id).await.map_err(for_pages) })
    }

    fn shared_report(&self, token: String) -> BackendFuture<'_, Report> {
        Box::pin(async move { self.service.store.shared_report(&token).await.map_err(for_pages) })
    }
}

fn for_pages(error: StoreError) -> BackendError {
    match error {
        StoreError::Missing => BackendError::NotFound,
        StoreError::Gone => BackendError::Gone,
        error => {
            tracing::error!(%error, "a page could not be filled");
            BackendError::Unavailable
        }
    }
}
