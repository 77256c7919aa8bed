//! The Leptos UI: pages, components, islands.
//!
//! Pages are rendered on the server and complete without JavaScript; islands bring to life only what must move. This
//! crate never calls the server's modules: it asks a [`Backend`], which the server (or a test) provides through
//! context.

#[cfg(feature = "ssr")]
mod backend;

#[cfg(feature = "ssr")]
pub use backend::{Backend, BackendError, BackendFuture, RequestFacts, SiteFacts};
