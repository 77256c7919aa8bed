//! HTTP: which address does what, and what surrounds every answer. Knows no SQL.

pub(crate) mod api;
mod assets;
mod charts;
mod exports;
mod forms;
mod guard;
mod observe;
mod ops;
pub(crate) mod page;
mod pages;
mod shared;
mod upload_body;

use crate::{backend::StoreBackend, errors::Problem, live::Live, service::Service};
use axum::{
    Router,
    body::Body,
    extract::DefaultBodyLimit,
    http::Response,
    middleware,
    response::IntoResponse,
    routing::{get, post},
};
use rankscope_app::{Backend, SiteFacts};
use std::{any::Any, sync::Arc};
use tower_http::{
    catch_panic::CatchPanicLayer,
    compression::{
        CompressionLayer,
        predicate::{DefaultPredicate, NotForContentType, Predicate},
    },
};

pub use guard::{Front, PublicUrl};

/// Bodies of everything that is no upload: forms and small JSON.
const SMALL_BODY: usize = 64 << 10;

/// What every handler can reach.
#[derive(Clone)]
pub struct AppState {
    /// Store, limits, counters.
    pub service: Arc<Service>,
    /// Under which names the server may be addressed.
    pub front: Arc<Front>,
    /// What pages are told of this installation.
    pub site: SiteFacts,
    /// What pages read through.
    pub backend: Arc<dyn Backend>,
    /// What agents and probes send. Without it nothing is taken.
    pub live: Option<Arc<Live>>,
}

impl AppState {
    /// State over an open store.
    pub fn new(service: Arc<Service>, front: Front) -> Self {
        let site = SiteFacts {
            max_file_bytes: service.limits.max_file_bytes,
            max_request_bytes: service.limits.max_request_bytes,
            has_bundle: assets::has_bundle(),
        };
        let backend: Arc<dyn Backend> = Arc::new(StoreBackend::new(Arc::clone(&service), None));
        Self { service, front: Arc::new(front), site, backend, live: None }
    }

    /// The same with live data.
    #[must_use]
    pub fn with_live(mut self, live: Arc<Live>) -> Self {
        self.backend = Arc::new(StoreBackend::new(Arc::clone(&self.service), Some(Arc::clone(&live))));
        self.live = Some(live);
        self
    }
}

/// The whole server as one service.
pub fn router(state: AppState) -> Router {
    pages::prepare();

    // Uploads bring their own limits (see `upload_body`) and may take long; everything else is small and quick.
    let (api_uploads, api) = api::routers();
    let uploads = Router::new()
        .route("/runs", post(forms::create_run).get(pages::page))
        .route("/runs/{id}/files", post(forms::add_files))
        .route("/runs/{id}/after/files", post(forms::create_after))
        .nest("/api/v1", api_uploads)
        .layer(DefaultBodyLimit::disable());
    let quick = Router::new()
        .route("/runs/{id}/shares", post(forms::create_share))
        .route("/runs/{id}/shares/{share}/revoke", post(forms::revoke_share))
        .route("/runs/{id}/checklist/{item}/notes", post(forms::add_note))
        .route("/runs/{id}/after", post(forms::attach_after))
        .route("/runs/{id}/title", post(forms::rename_run))
        .route("/runs/{id}/delete", post(forms::delete_run).get(pages::page))
        .route("/r/{token}/preview.png", get(shared::preview))
        .route("/r/{token}/series", get(shared::series))
        .route("/r/{token}/charts/{chart}", get(shared::chart))
        .route("/r/{token}/artifacts/{n}", get(shared::artifact))
        .route("/r/{token}/unlock", post(shared::unlock))
        .route("/problems/{slug}", get(ops::problem))
        .route("/healthz", get(ops::healthz))
        .route("/readyz", get(ops::readyz))
        .route("/metrics", get(ops::metrics))
        .route("/api/openapi.json", get(api::openapi_json))
        .nest("/api/v1", api)
        .fallback(assets::asset_or_page)
        .layer(DefaultBodyLimit::max(SMALL_BODY))
        .layer(middleware::from_fn_with_state(state.clone(), observe::deadline));

    let compressible = DefaultPredicate::new().and(NotForContentType::const_new("application/octet-stream"));
    quick
        .merge(uploads)
        .method_not_allowed_fallback(api::method_not_allowed)
        .layer(CompressionLayer::new().compress_when(compressible))
        .layer(middleware::from_fn_with_state(state.clone(), guard::guard))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(state.clone(), observe::observe))
        .with_state(state)
}

/// A handler panicked: a defect of ours. The visitor gets a problem, the log gets the words.
#[allow(clippy::needless_pass_by_value)] // the layer's signature
fn panicked(panic: Box<dyn Any + Send>) -> Response<Body> {
    let words = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Problem::internal(format_args!("panic: {}", words.unwrap_or("without words"))).into_response()
}
