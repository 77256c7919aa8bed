//! `/api/v1`: JSON for programs and for the page's islands. Routes and their description are one registration.

mod bodies;
mod checklist;
mod compare;
pub mod live;
mod prometheus;
mod runs;
mod shares;
pub mod uploads;

pub use bodies::{ApiJson, ApiPath, ApiQuery};
pub use checklist::{author_of, item_url, stage_url};
pub use runs::{SeriesAnswer, SeriesQuery, VersionQuery, artifact, run_url, series_of};
pub use shares::expiry;

use super::{AppState, charts, exports, small_body};
use crate::errors::{Problem, ProblemBody, ProblemKind};
use axum::{
    Json, Router,
    extract::DefaultBodyLimit,
    http::Uri,
    response::{IntoResponse, Response},
    routing::options,
};
use std::sync::OnceLock;
use utoipa::{OpenApi, openapi::OpenApi as Description};
use utoipa_axum::{router::OpenApiRouter, routes};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Rankscope",
        description = "Why does one card use more memory than the others? Upload what you have, read the diagnosis.\n\n\
            Errors are `application/problem+json` (RFC 9457); their `type` is stable and opens a page that explains it. \
            Sizes are bytes, times are microseconds since the Unix epoch.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/api/v1")),
    components(schemas(ProblemBody)),
)]
struct Api;

static DESCRIPTION: OnceLock<Description> = OnceLock::new();

/// Uploads (whose bodies are limited elsewhere), and everything else.
pub fn routers() -> (Router<AppState>, Router<AppState>) {
    // Takes as long as another server does, but a small body.
    let small =
        OpenApiRouter::new().routes(routes!(prometheus::create_run)).layer(DefaultBodyLimit::max(small_body::MOST));
    let tus = OpenApiRouter::new().routes(routes!(uploads::begin)).routes(routes!(
        uploads::stand,
        uploads::add,
        uploads::give_up
    ));
    let tus = tus.route("/uploads", options(uploads::options));
    let uploads = OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(runs::create_run, runs::list_runs))
        .routes(routes!(runs::add_files))
        .routes(routes!(checklist::create_after))
        .routes(routes!(live::post_samples))
        .merge(tus)
        .merge(small);
    let quick = OpenApiRouter::new()
        .routes(routes!(runs::get_run, runs::rename_run, runs::delete_run))
        .routes(routes!(runs::read_again))
        .routes(routes!(checklist::get_item, checklist::add_note))
        .routes(routes!(checklist::attach_after))
        .routes(routes!(compare::compare))
        .routes(routes!(live::nodes))
        .routes(routes!(live::remove_node))
        .routes(routes!(live::node_events))
        .routes(routes!(live::run_events))
        .routes(routes!(runs::series))
        .routes(routes!(runs::artifact))
        .routes(routes!(charts::chart))
        .routes(routes!(charts::snapshot_chart))
        .routes(routes!(exports::report_html))
        .routes(routes!(exports::report_markdown))
        .routes(routes!(exports::report_json))
        .routes(routes!(shares::create_share, shares::list_shares))
        .routes(routes!(shares::delete_share));
    let (uploads, mut description) = uploads.split_for_parts();
    let (quick, quick_description) = quick.split_for_parts();
    description.merge(quick_description);
    DESCRIPTION.get_or_init(|| description);
    (uploads, quick)
}

/// The `OpenAPI` description.
pub async fn openapi_json() -> Json<&'static Description> {
    Json(DESCRIPTION.get_or_init(|| {
        drop(routers());
        Api::openapi()
    }))
}

/// A known address, but not with this method.
pub async fn method_not_allowed(uri: Uri) -> Response {
    let problem = Problem::new(ProblemKind::MethodNotAllowed, "See /api/openapi.json for what each address takes.");
    if uri.path().starts_with("/api/") { problem.into_response() } else { problem.into_page() }
}
