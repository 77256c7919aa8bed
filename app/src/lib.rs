//! The Leptos UI: pages, components, islands.
//!
//! Pages are rendered on the server and complete without JavaScript; islands bring to life only what must move. This
//! crate never calls the server's modules: it asks a [`Backend`], which the server (or a test) provides through
//! context.

#[cfg(feature = "ssr")]
mod accounts;
#[cfg(feature = "ssr")]
mod backend;
#[cfg(feature = "ssr")]
mod compare;
#[cfg(feature = "ssr")]
mod docs;
#[cfg(feature = "ssr")]
mod document;
#[cfg(feature = "ssr")]
mod evidence_form;
#[cfg(feature = "ssr")]
mod icons;
mod islands;
// The browser needs only the heat strips.
#[cfg_attr(not(feature = "ssr"), allow(dead_code))]
mod live;
#[cfg(feature = "ssr")]
mod pages;
#[cfg(feature = "ssr")]
mod prometheus_form;
#[cfg(feature = "ssr")]
mod report;
#[cfg(feature = "ssr")]
mod retention;
#[cfg(feature = "ssr")]
pub mod snapshots;
#[cfg(feature = "ssr")]
mod standalone;
#[cfg(feature = "ssr")]
mod standing;
#[cfg(feature = "ssr")]
mod wizard;
// The browser needs only some of the words.
#[cfg_attr(not(feature = "ssr"), allow(dead_code))]
mod words;

#[cfg(feature = "ssr")]
pub use accounts::{
    AuditLine, IdentityLine, May, MemberLine, ProjectChoice, ProjectLine, RunProject, Said, SetUp, Settings, ShownOnce,
    TokenLine, UserLine, Visitor,
};
#[cfg(feature = "ssr")]
pub use backend::{
    Backend, BackendError, BackendFuture, ComparedReports, LiveNow, NamedSnapshot, RequestFacts, SharedView, SiteFacts,
    TurnedAway,
};
#[cfg(feature = "ssr")]
pub use compare::standalone_comparison_html;
#[cfg(feature = "ssr")]
pub use docs::texts as documentation;
#[cfg(feature = "ssr")]
pub use document::{App, STYLE, shell};
#[cfg(feature = "ssr")]
pub use live::{live_node_html, run_word};
#[cfg(feature = "ssr")]
pub use report::standalone_report_html;
#[cfg(feature = "ssr")]
pub use retention::{AskedLimits, Consequences, ExpiringRun, KeptFor, Retention};
#[cfg(feature = "ssr")]
pub use words::time_iso;

/// Called once by the page's script: islands that are in the page come to life.
#[cfg(feature = "hydrate")]
#[wasm_bindgen::prelude::wasm_bindgen]
pub fn hydrate() {
    leptos::mount::hydrate_islands();
}
