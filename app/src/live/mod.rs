//! Nodes, their cards and who is on them, as they are now. One view for the page and for what the server sends when a
//! node changes. Knows what a status holds, not where it comes from.

pub mod heat;

#[cfg(feature = "ssr")]
mod node;

#[cfg(feature = "ssr")]
mod standing;

#[cfg(feature = "ssr")]
pub use node::{live_node_html, node_card, summary};
#[cfg(feature = "ssr")]
pub use standing::run_word;
