//! HTTP: which address does what, and what surrounds every answer. Knows no SQL.

mod accounts;
pub(crate) mod api;
mod assets;
mod charts;
mod exports;
mod forms;
mod guard;
mod humane;
mod observe;
mod ops;
pub(crate) mod page;
mod pages;
mod prometheus;
mod shared;
pub mod small_body;
mod upload_body;

use crate::{
    access::{self, Gate, Principal, Proxies, WithoutUsers},
    accounts::{Accounts, Action, NewUsers},
    backend::StoreBackend,
    errors::Problem,
    live::Live,
    oidc::Provider,
    prometheus::Sources,
    service::Service,
};
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
use std::{any::Any, net::IpAddr, sync::Arc};
use tower_http::{
    catch_panic::CatchPanicLayer,
    compression::{
        CompressionLayer,
        predicate::{DefaultPredicate, NotForContentType, Predicate},
    },
};

pub use guard::{Front, PublicUrl};

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
    /// Servers that may be asked for series.
    pub prometheus: Arc<Sources>,
    /// Who may do what.
    pub gate: Arc<Gate>,
    /// With whom people can sign in instead of with a password.
    pub sign_in: Option<Arc<SignIn>>,
}

/// A provider of sign-ins, and what becomes of who comes from there for the first time.
#[derive(Debug)]
pub struct SignIn {
    /// Says who comes.
    pub provider: Provider,
    /// Who is new.
    pub new_users: NewUsers,
}

impl AppState {
    /// State over an open store. Without an administrator everything is allowed; see [`Self::with_gate`].
    pub fn new(service: Arc<Service>, front: Front) -> Self {
        let site = SiteFacts {
            max_file_bytes: service.limits.max_file_bytes,
            max_request_bytes: service.limits.max_request_bytes,
            prometheus: Vec::new(),
            sign_in: None,
            has_bundle: assets::has_bundle(),
        };
        let backend: Arc<dyn Backend> = Arc::new(StoreBackend::new(Arc::clone(&service), None));
        let gate = Gate::new(Accounts::of(&service.store), WithoutUsers::Open, Proxies::default());
        let prometheus = Arc::new(Sources::new(Vec::new()));
        let (front, gate) = (Arc::new(front), Arc::new(gate));
        Self { service, front, site, backend, live: None, prometheus, gate, sign_in: None }
    }

    /// The same with live data.
    #[must_use]
    pub fn with_live(mut self, live: Arc<Live>) -> Self {
        self.backend = Arc::new(StoreBackend::new(Arc::clone(&self.service), Some(Arc::clone(&live))));
        self.live = Some(live);
        self
    }

    /// The same with servers that may be asked for series.
    #[must_use]
    pub fn with_prometheus(mut self, sources: Sources) -> Self {
        self.site.prometheus = sources.names();
        self.prometheus = Arc::new(sources);
        self
    }

    /// The same with a provider with which people sign in.
    #[must_use]
    pub fn with_sign_in(mut self, provider: Provider, new_users: NewUsers) -> Self {
        self.site.sign_in = Some(provider.label().to_owned());
        self.sign_in = Some(Arc::new(SignIn { provider, new_users }));
        self
    }

    /// The same behind another gate.
    #[must_use]
    pub fn with_gate(self, gate: Arc<Gate>) -> Self {
        Self { gate, ..self }
    }

    /// Records what somebody did, where somebody has to answer for it.
    pub async fn record(&self, who: &Principal, from: Option<IpAddr>, action: Action, subject: &str) {
        if let Some(name) = who.recorded_name() {
            self.gate.accounts.record(&name, action, subject, from).await;
        }
    }
}

/// The whole server as one service.
pub fn router(state: AppState) -> Router {
    pages::prepare();

    // Uploads bring their own limits (see `upload_body`) and may take long; everything else is small and quick.
    let (api_uploads, api) = api::routers();
    let uploads = Router::new()
        .route("/runs", post(forms::create_run).get(pages::list_of_runs))
        .route(
            "/runs/from-prometheus",
            // Takes as long as another server does, but a small body.
            post(prometheus::create_run).get(pages::page).layer(DefaultBodyLimit::max(small_body::MOST)),
        )
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
        .route("/runs/{id}/read-again", post(forms::read_again))
        .route("/live/nodes/remove", post(forms::remove_node))
        .route("/runs/{id}/delete", post(forms::delete_run).get(pages::page))
        .route("/runs/{id}/project", post(accounts::projects::move_run))
        .route("/login", post(accounts::sign_in::sign_in).get(pages::page))
        .route("/login/oidc", get(accounts::oidc::begin))
        .route("/login/oidc/callback", get(accounts::oidc::come_back))
        .route("/logout", post(accounts::sign_in::sign_out))
        .route("/setup/{token}", post(accounts::set_up::set_up).get(pages::page))
        .route("/settings/password", post(accounts::own::set_password))
        .route("/settings/tokens", post(accounts::own::add_token))
        .route("/settings/tokens/{token}/revoke", post(accounts::own::revoke_token))
        .route("/settings/identities/{identity}/link", post(accounts::identities::link_own))
        .route("/settings/identities/{identity}/remove", post(accounts::identities::remove_own))
        .route("/settings/users/identities/{identity}/link", post(accounts::identities::link))
        .route("/settings/users/identities/{identity}/add", post(accounts::identities::add_user))
        .route("/settings/users/identities/{identity}/remove", post(accounts::identities::remove))
        .route("/settings/users", post(accounts::users::add_user).get(pages::page))
        .route("/settings/users/{user}/link", post(accounts::users::new_link))
        .route("/settings/users/{user}/administrator", post(accounts::users::set_administrator))
        .route("/settings/users/{user}/disabled", post(accounts::users::set_disabled))
        .route("/settings/projects", post(accounts::projects::add_project).get(pages::page))
        .route("/settings/projects/{project}/name", post(accounts::projects::rename_project))
        .route("/settings/projects/{project}/members", post(accounts::projects::set_member))
        .route("/settings/projects/{project}/retention", post(accounts::retention::set).get(pages::page))
        .route("/settings/projects/{project}/remove", post(accounts::projects::remove_project))
        .route("/runs/{id}/preview.png", get(charts::preview))
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
        .layer(middleware::from_fn_with_state(state.clone(), observe::deadline))
        .layer(middleware::from_fn_with_state(state.clone(), small_body::take_in));

    let compressible = DefaultPredicate::new().and(NotForContentType::const_new("application/octet-stream"));
    quick
        .merge(uploads)
        .method_not_allowed_fallback(api::method_not_allowed)
        .layer(CompressionLayer::new().compress_when(compressible))
        .layer(middleware::from_fn_with_state(state.clone(), access::gate))
        .layer(middleware::from_fn(humane::humane))
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
