//! A backend in memory, and pages asked for the way a browser asks: through the route handling that the server uses.

#![allow(dead_code)] // each user of this module needs only part of it
#![allow(clippy::unwrap_used)] // tests and the preview stop at the first surprise

pub mod reports;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use leptos::prelude::*;
use leptos_axum::{LeptosRoutes, ResponseOptions, generate_route_list};
use rankscope_app::{App, Backend, BackendError, BackendFuture, RequestFacts, SiteFacts, shell};
use rankscope_model::{Report, RunSummary, ShareInfo};
use std::sync::Arc;
use tower::ServiceExt;

/// What a site holds.
#[derive(Clone, Default)]
pub struct Memory {
    pub reports: Vec<Report>,
    pub shares: Vec<ShareInfo>,
    /// Tokens and the run that each shows; `None` for an ended share.
    pub tokens: Vec<(String, Option<String>)>,
    /// The store does not answer.
    pub down: bool,
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

    fn report(&self, run_id: String, _version: Option<u32>) -> BackendFuture<'_, Report> {
        Box::pin(async move { self.find(&run_id) })
    }

    fn shares(&self, _run_id: String) -> BackendFuture<'_, Vec<ShareInfo>> {
        Box::pin(async move { Ok(self.shares.clone()) })
    }

    fn shared_report(&self, token: String) -> BackendFuture<'_, Report> {
        Box::pin(async move {
            match self.tokens.iter().find(|(known, _)| *known == token) {
                None => Err(BackendError::NotFound),
                Some((_, None)) => Err(BackendError::Gone),
                Some((_, Some(id))) => self.find(id),
            }
        })
    }
}

/// A site around a backend.
#[derive(Clone)]
pub struct Site {
    pub memory: Memory,
    pub has_bundle: bool,
    pub new_share: Option<(String, String)>,
}

impl Site {
    pub fn new(memory: Memory) -> Self {
        Self { memory, has_bundle: false, new_share: None }
    }

    /// Status and HTML of an address.
    pub async fn get(&self, address: &str) -> (StatusCode, String) {
        let options = LeptosOptions::builder().output_name("rankscope").build();
        let context = {
            let site = self.clone();
            move || {
                provide_context::<Arc<dyn Backend>>(Arc::new(site.memory.clone()));
                provide_context(SiteFacts {
                    max_file_bytes: 2 << 30,
                    max_request_bytes: 4 << 30,
                    has_bundle: site.has_bundle,
                });
                let response = use_context::<ResponseOptions>();
                provide_context(RequestFacts {
                    base_url: "http://gpu.example:3000".into(),
                    new_share: site.new_share.clone(),
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
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}
