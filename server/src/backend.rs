//! The store as the pages see it.

use crate::errors::ProblemKind;
use crate::{
    accounts::Accounts,
    live::{Live, Why},
    retention,
    service::Service,
    store::StoreError,
};
use rankscope_app::{
    AskedLimits, Backend, BackendError, BackendFuture, ComparedReports, LiveNow, NamedSnapshot, ProjectChoice,
    Retention, SharedView, TurnedAway,
};
use rankscope_model::{ItemNote, Report, RunStanding, RunSummary, ShareInfo, UnixMicros};
use std::sync::Arc;

/// Implements the pages' seam over a service.
pub struct StoreBackend {
    service: Arc<Service>,
    live: Option<Arc<Live>>,
}

impl StoreBackend {
    /// Pages read through `service`, and see what `live` knows.
    pub fn new(service: Arc<Service>, live: Option<Arc<Live>>) -> Self {
        Self { service, live }
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

    fn notes(&self, run_id: String) -> BackendFuture<'_, Vec<ItemNote>> {
        Box::pin(async move { self.service.store.item_notes(&run_id).await.map_err(for_pages) })
    }

    fn after_run(&self, run_id: String) -> BackendFuture<'_, Option<String>> {
        Box::pin(async move { self.service.store.after_run(&run_id).await.map_err(for_pages) })
    }

    fn compared(&self, base: String, head: String) -> BackendFuture<'_, ComparedReports> {
        Box::pin(async move {
            self.service.compared((&base, None), (&head, None)).await.map_err(|problem| match problem.kind() {
                ProblemKind::NotFound => BackendError::NotFound,
                ProblemKind::FileLost => {
                    tracing::error!(base, head, "two runs could not be compared: an object is missing");
                    BackendError::Lost
                }
                _ => {
                    tracing::error!(detail = problem.detail(), "two runs could not be compared");
                    BackendError::Unavailable
                }
            })
        })
    }

    fn live(&self) -> BackendFuture<'_, LiveNow> {
        Box::pin(async move {
            let Some(live) = self.live.clone() else { return Ok(LiveNow::default()) };
            let needs_token = live.token().is_some();
            let turned_away = live.turned_away().into_iter().map(|(address, tries)| TurnedAway {
                address: address.to_canonical().to_string(),
                times: (UnixMicros(tries.first), UnixMicros(tries.last)),
                count: tries.count,
                unknown_token: tries.why == Why::Token,
            });
            let turned_away = turned_away.collect();
            let nodes = tokio::task::spawn_blocking(move || live.nodes()).await;
            let (nodes, cursor) = nodes.map_err(|_| BackendError::Unavailable)?;
            Ok(LiveNow { nodes, cursor, needs_token, turned_away })
        })
    }

    fn goes_on(&self, run_id: String) -> BackendFuture<'_, Option<RunStanding>> {
        Box::pin(async move { Ok(self.live.as_ref().and_then(|live| live.standing(&run_id))) })
    }

    fn being_read(&self, run_id: String) -> BackendFuture<'_, u64> {
        Box::pin(async move { self.service.store.open_jobs_of(&run_id).await.map_err(for_pages) })
    }

    fn retention(&self, project_id: String, asked: Option<AskedLimits>) -> BackendFuture<'_, Retention> {
        Box::pin(async move {
            let store = &self.service.store;
            let name = Accounts::of(store).project_name(&project_id).await.map_err(for_pages)?;
            let project = ProjectChoice { id: project_id, name };
            retention::of_project(store, project, asked).await.map_err(for_pages)
        })
    }

    fn snapshots(&self, run_id: String) -> BackendFuture<'_, Arc<Vec<NamedSnapshot>>> {
        Box::pin(async move { self.service.snapshots(&run_id).await.map_err(for_pages) })
    }

    fn shared_report(&self, token: String, proof: Option<String>) -> BackendFuture<'_, SharedView> {
        Box::pin(async move {
            let (shared, report) =
                self.service.shared_report(&token, proof.as_deref()).await.map_err(|problem| match problem.kind() {
                    ProblemKind::NotFound => BackendError::NotFound,
                    ProblemKind::ShareEnded => BackendError::Gone,
                    ProblemKind::ShareLocked => BackendError::Locked,
                    ProblemKind::FileLost => BackendError::Lost,
                    _ => {
                        tracing::error!(detail = problem.detail(), "a share could not be shown");
                        BackendError::Unavailable
                    }
                })?;
            if let Err(error) = self.service.store.share_seen(&shared.id).await {
                tracing::warn!(%error, "that a share was looked at could not be noted");
            }
            Ok(SharedView { report, raw_files: shared.raw_files, masked: shared.masked })
        })
    }
}

fn for_pages(error: StoreError) -> BackendError {
    match error {
        StoreError::Missing => BackendError::NotFound,
        StoreError::Gone => BackendError::Gone,
        error => {
            tracing::error!(%error, "a page could not be filled");
            if matches!(error, StoreError::Lost { .. }) { BackendError::Lost } else { BackendError::Unavailable }
        }
    }
}
