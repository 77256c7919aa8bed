//! What comes to life in the browser. Each island wraps markup that already works without it and takes its facts from
//! `data-` attributes there, so that no island has properties to decode.

mod copy;
mod live_nodes;
mod live_run;
mod share;
mod sites;
mod timeline;
mod upload;

#[cfg(feature = "hydrate")]
mod dom;

#[cfg(feature = "hydrate")]
mod events;

#[cfg(feature = "hydrate")]
mod folders;

#[cfg(feature = "ssr")]
pub use {
    copy::CopyButtons, live_nodes::LiveNodes, live_run::LiveRun, share::ShareBox, sites::SiteTable,
    timeline::TimelineLens, upload::Upload,
};
