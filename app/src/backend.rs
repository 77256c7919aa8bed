//! The seam between pages and the server: what a page may ask for, and what it is told of its request.

use crate::accounts::{AuditLine, IdentityLine, ProjectChoice, ProjectLine, RunProject, SetUp, Settings, UserLine};
use crate::retention::{AskedLimits, Retention};
use rankscope_model::{
    Comparison, ItemNote, NodeStatus, Report, RunStanding, RunSummary, ShareInfo, SnapshotEvidence, UnixMicros,
};
use std::{future::Future, pin::Pin, sync::Arc};

/// A boxed answer of a [`Backend`].
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send + 'a>>;

/// Why a page has nothing to show. Says nothing internal; the server logs the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendError {
    /// No such run, report or share.
    NotFound,
    /// The share was revoked or has expired.
    Gone,
    /// The share asks for a password that this visitor has not given.
    Locked,
    /// A stored file is missing; trying again does not help.
    Lost,
    /// The store could not answer; trying again may help.
    Unavailable,
}

/// What pages read. Provided through context as `Arc<dyn Backend>`.
pub trait Backend: Send + Sync + 'static {
    /// Newest runs first; `query` filters by words in title or summary.
    fn recent_runs(&self, query: Option<String>, limit: u32) -> BackendFuture<'_, Vec<RunSummary>>;
    /// A report of a run: the given version, or the newest.
    fn report(&self, run_id: String, version: Option<u32>) -> BackendFuture<'_, Report>;
    /// The shares of a run, newest first, revoked ones included.
    fn shares(&self, run_id: String) -> BackendFuture<'_, Vec<ShareInfo>>;
    /// What people say of a run's checklist, oldest entry first.
    fn notes(&self, run_id: String) -> BackendFuture<'_, Vec<ItemNote>>;
    /// The run that is to prove the fix of a run, if one was named.
    fn after_run(&self, run_id: String) -> BackendFuture<'_, Option<String>>;
    /// The newest reports of two runs, side by side.
    fn compared(&self, base: String, head: String) -> BackendFuture<'_, ComparedReports>;
    /// The memory snapshots of a run, in the order of its files.
    fn snapshots(&self, run_id: String) -> BackendFuture<'_, Arc<Vec<NamedSnapshot>>>;
    /// The report behind a share's token; `proof` is what this visitor shows for its password.
    fn shared_report(&self, token: String, proof: Option<String>) -> BackendFuture<'_, SharedView>;
    /// All nodes as they are now.
    fn live(&self) -> BackendFuture<'_, LiveNow> {
        Box::pin(async { Ok(LiveNow::default()) })
    }
    /// How a run stands whose job goes on, so that its report changes by itself; `None` for any other.
    fn goes_on(&self, _run_id: String) -> BackendFuture<'_, Option<RunStanding>> {
        Box::pin(async { Ok(None) })
    }

    /// Jobs in the background that will still change a run.
    fn being_read(&self, _run_id: String) -> BackendFuture<'_, u64> {
        Box::pin(async { Ok(0) })
    }
    /// How long the runs of a project are kept, and what limits that somebody asks about would delete.
    fn retention(&self, _project_id: String, _asked: Option<AskedLimits>) -> BackendFuture<'_, Retention> {
        Box::pin(async { Err(BackendError::NotFound) })
    }

    // Of accounts. Where there are none, there is nothing to choose, and no settings.

    /// The projects to which this visitor may add runs.
    fn upload_projects(&self) -> BackendFuture<'_, Vec<ProjectChoice>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    /// Where a run belongs.
    fn run_project(&self, _run_id: String) -> BackendFuture<'_, Option<RunProject>> {
        Box::pin(async { Ok(None) })
    }
    /// For whom a set-up link is, as long as it works.
    fn set_up(&self, _token: String) -> BackendFuture<'_, SetUp> {
        Box::pin(async { Err(BackendError::NotFound) })
    }
    /// This visitor's own settings.
    fn settings(&self) -> BackendFuture<'_, Settings> {
        Box::pin(async { Err(BackendError::NotFound) })
    }
    /// Everybody by name, for administrators.
    fn users(&self) -> BackendFuture<'_, Vec<UserLine>> {
        Box::pin(async { Err(BackendError::NotFound) })
    }
    /// Identities of the provider that were shown and open no account yet, for administrators.
    fn waiting(&self) -> BackendFuture<'_, Vec<IdentityLine>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    /// The projects in which this visitor decides, by name.
    fn projects(&self) -> BackendFuture<'_, Vec<ProjectLine>> {
        Box::pin(async { Err(BackendError::NotFound) })
    }
    /// The newest lines of the record, for administrators.
    fn audit(&self) -> BackendFuture<'_, Vec<AuditLine>> {
        Box::pin(async { Err(BackendError::NotFound) })
    }
}

/// The nodes as they are now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LiveNow {
    /// By name.
    pub nodes: Vec<NodeStatus>,
    /// From where on events tell what changes.
    pub cursor: String,
    /// Agents must show a token that the operator has set.
    pub needs_token: bool,
    /// Senders that try and are turned away, the newest first; for those who may do something about it.
    pub turned_away: Vec<TurnedAway>,
}

/// An address from which somebody tries to send live data and may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnedAway {
    /// From where.
    pub address: String,
    /// The first and the last try.
    pub times: (UnixMicros, UnixMicros),
    /// How many tries.
    pub count: u64,
    /// It showed no token that is known here; else it may not send.
    pub unknown_token: bool,
}

/// A share as its visitors see it.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedView {
    /// The frozen report, masked if the share is.
    pub report: Report,
    /// Files can be downloaded as they were uploaded.
    pub raw_files: bool,
    /// Host names, user names and paths are replaced.
    pub masked: bool,
}

/// A memory snapshot with the name of its file.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedSnapshot {
    /// As uploaded.
    pub name: String,
    /// What was read of it.
    pub snapshot: SnapshotEvidence,
}

/// Two reports and what holding them against each other says.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedReports {
    /// The run before.
    pub base: Report,
    /// The run after.
    pub head: Report,
    /// The answer.
    pub comparison: Comparison,
}

/// Facts of this installation. Provided through context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteFacts {
    /// Largest accepted file in bytes, stated beside the upload.
    pub max_file_bytes: u64,
    /// Largest accepted request in bytes.
    pub max_request_bytes: u64,
    /// Prometheus-compatible servers that the operator allowed to ask.
    pub prometheus: Vec<String>,
    /// What people know the provider by with which they can sign in, if there is one.
    pub sign_in: Option<String>,
    /// The browser bundle is inside the binary: islands can come to life. Without it no script tag is written.
    pub has_bundle: bool,
}

/// Facts of the request being answered. Provided through context, anew for each request.
#[derive(Clone)]
pub struct RequestFacts {
    /// Scheme and authority without a slash at the end, `http://127.0.0.1:3000`: for absolute addresses in shares.
    pub base_url: String,
    /// A share that this visitor has just made: its id and token. The only moment at which the link can be shown.
    pub new_share: Option<(String, String)>,
    /// The name under which this visitor wrote a note last.
    pub visitor_name: Option<String>,
    /// What this visitor shows for the password of a share.
    pub share_proof: Option<String>,
    /// Sends the visitor to another address of this server.
    pub redirect: Arc<dyn Fn(&str) + Send + Sync>,
    /// Sets the HTTP status of the page.
    pub set_status: Arc<dyn Fn(u16) + Send + Sync>,
}
