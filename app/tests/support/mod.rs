//! A backend in memory, and pages asked for the way a browser asks: through the route handling that the server uses.

#![allow(dead_code)] // each user of this module needs only part of it
#![allow(clippy::unwrap_used)] // tests and the preview stop at the first surprise

pub mod reports;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Request, StatusCode, header};
use leptos::prelude::*;
use leptos_axum::{LeptosRoutes, ResponseOptions, generate_route_list};
use rankscope_app::{
    App, Backend, BackendError, BackendFuture, ComparedReports, LiveNow, NamedSnapshot, RequestFacts, SharedView,
    SiteFacts, shell,
};
use rankscope_diagnosis::{Policy, Side, compare};
use rankscope_model::{ItemNote, NodeStatus, Report, RunStanding, RunSummary, ShareInfo};
use std::sync::Arc;
use tower::ServiceExt;

/// What a site holds.
#[derive(Clone, Default)]
pub struct Memory {
    pub reports: Vec<Report>,
    pub shares: Vec<ShareInfo>,
    /// Run and entry.
    pub notes: Vec<(String, ItemNote)>,
    /// Run and the run after its fix.
    pub after: Vec<(String, String)>,
    /// Tokens and the run that each shows; `None` for an ended share.
    pub tokens: Vec<(String, Option<String>)>,
    /// Memory snapshots of every run.
    pub snapshots: Vec<NamedSnapshot>,
    /// The token whose share asks for the password, and the proof that opens it.
    pub locked: Option<(String, String)>,
    /// The store does not answer.
    pub down: bool,
    /// Nodes as they are now.
    pub nodes: Vec<NodeStatus>,
    /// The run whose job goes on.
    pub goes_on: Option<String>,
}

impl Memory {
    fn find(&self, id: &str) -> Result<Report, BackendError> {
        if self.down {
            return Err(BackendError::Unavailable);
        }
        self.reports.iter().find(|report| report.run.id == id).cloned().ok_or(BackendError::NotFound)
    }
}

impl Backend for Memory {
    fn recent_runs(&self, query: Option<String>, limit: u32) -> BackendFuture<'_, Vec<RunSummary>> {
        let found = self
            .reports
            .iter()
            .map(|report| RunSummary {
                run: report.run.clone(),
                verdict: report.diagnosis.verdict,
                summary: report.diagnosis.summary.clone(),
                artifacts: u32::try_from(report.diagnosis.artifacts.len()).unwrap(),
            })
            .filter(|run| {
                query.as_ref().is_none_or(|query| run.run.title.contains(query) || run.summary.contains(query))
            })
            .take(limit as usize)
            .collect();
        Box::pin(async move { if self.down { Err(BackendError::Unavailable) } else { Ok(found) } })
    }

    fn report(&self, run_id: String, version: Option<u32>) -> BackendFuture<'_, Report> {
        Box::pin(async move {
            let newest = self.find(&run_id)?;
            match version {
                Some(version) if version == 0 || version > newest.version => Err(BackendError::NotFound),
                Some(version) => Ok(Report { version, ..newest }),
                None => Ok(newest),
            }
        })
    }

    fn shares(&self, _run_id: String) -> BackendFuture<'_, Vec<ShareInfo>> {
        Box::pin(async move { Ok(self.shares.clone()) })
    }

    fn notes(&self, run_id: String) -> BackendFuture<'_, Vec<ItemNote>> {
        let of_run = self.notes.iter().filter(move |(run, _)| *run == run_id);
        let notes = of_run.map(|(_, note)| note.clone()).collect();
        Box::pin(async move { Ok(notes) })
    }

    fn after_run(&self, run_id: String) -> BackendFuture<'_, Option<String>> {
        let after = self.after.iter().rev().find(|(run, _)| *run == run_id).map(|(_, after)| after.clone());
        Box::pin(async move { Ok(after) })
    }

    fn compared(&self, base: String, head: String) -> BackendFuture<'_, ComparedReports> {
        Box::pin(async move {
            let (base, head) = (self.find(&base)?, self.find(&head)?);
            let comparison = compare(Side::from(&base), Side::from(&head), &Policy::default());
            Ok(ComparedReports { base, head, comparison })
        })
    }

    fn live(&self) -> BackendFuture<'_, LiveNow> {
        let nodes = self.nodes.clone();
        Box::pin(
            async move { Ok(LiveNow { nodes, cursor: "e-7".into(), needs_token: false, turned_away: Vec::new() }) },
        )
    }

    fn goes_on(&self, run_id: String) -> BackendFuture<'_, Option<RunStanding>> {
        Box::pin(async move { Ok((self.goes_on.as_ref() == Some(&run_id)).then(RunStanding::default)) })
    }

    fn snapshots(&self, _run_id: String) -> BackendFuture<'_, Arc<Vec<NamedSnapshot>>> {
        Box::pin(async move { Ok(Arc::new(self.snapshots.clone())) })
    }

    fn shared_report(&self, token: String, proof: Option<String>) -> BackendFuture<'_, SharedView> {
        Box::pin(async move {
            if let Some((locked, opens)) = &self.locked
                && *locked == token
                && proof.as_ref() != Some(opens)
            {
                return Err(BackendError::Locked);
            }
            match self.tokens.iter().find(|(known, _)| *known == token) {
                None => Err(BackendError::NotFound),
                Some((_, None)) => Err(BackendError::Gone),
                Some((_, Some(id))) => {
                    self.find(id).map(|report| SharedView { report, raw_files: false, masked: false })
                }
            }
        })
    }
}

/// A site around a backend.
#[derive(Clone)]
pub struct Site {
    pub memory: Memory,
    pub has_bundle: bool,
    pub prometheus: Vec<String>,
    pub new_share: Option<(String, String)>,
    pub visitor_name: Option<String>,
    pub share_proof: Option<String>,
}

impl Site {
    pub fn new(memory: Memory) -> Self {
        Self {
            memory,
            has_bundle: false,
            prometheus: Vec::new(),
            new_share: None,
            visitor_name: None,
            share_proof: None,
        }
    }

    /// Status and HTML of an address.
    pub async fn get(&self, address: &str) -> (StatusCode, String) {
        let (status, _, html) = self.visit(address).await;
        (status, html)
    }

    /// Status, where the answer leads to, and HTML of an address.
    pub async fn visit(&self, address: &str) -> (StatusCode, Option<String>, String) {
        let options = LeptosOptions::builder().output_name("rankscope").build();
        let context = {
            let site = self.clone();
            move || {
                provide_context::<Arc<dyn Backend>>(Arc::new(site.memory.clone()));
                provide_context(SiteFacts {
                    max_file_bytes: 2 << 30,
                    max_request_bytes: 4 << 30,
                    prometheus: site.prometheus.clone(),
                    sign_in: None,
                    has_bundle: site.has_bundle,
                });
                let response = use_context::<ResponseOptions>();
                let answer = response.clone();
                let redirect = move |address: &str| {
                    if let (Some(answer), Ok(address)) = (&answer, HeaderValue::from_str(address)) {
                        answer.set_status(StatusCode::SEE_OTHER);
                        answer.insert_header(header::LOCATION, address);
                    }
                };
                provide_context(RequestFacts {
                    base_url: "http://gpu.example:3000".into(),
                    new_share: site.new_share.clone(),
                    visitor_name: site.visitor_name.clone(),
                    share_proof: site.share_proof.clone(),
                    redirect: Arc::new(redirect),
                    set_status: Arc::new(move |status| {
                        if let (Some(response), Ok(status)) = (&response, StatusCode::from_u16(status)) {
                            response.set_status(status);
                        }
                    }),
                });
            }
        };
        let render = {
            let options = options.clone();
            move || shell(options.clone())
        };
        let fallback = leptos_axum::render_app_async_with_context(context.clone(), render.clone());
        let router: Router = Router::new()
            .leptos_routes_with_context(&options, generate_route_list(App), context, render)
            .fallback(move |request: Request<Body>| fallback(request))
            .with_state(options);
        let request = Request::builder().uri(address).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status();
        let location = response.headers().get(header::LOCATION).map(|to| to.to_str().unwrap().to_owned());
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, location, String::from_utf8(body.to_vec()).unwrap())
    }
}
