//! The table of contents. A page of `docs/` that is not listed here is not served; a test holds that none is forgotten.

use super::markdown::{self, Rendered};
use std::sync::LazyLock;

/// A group of pages in the list beside the text.
pub struct Part {
    /// Its heading.
    pub title: &'static str,
    /// Its pages in reading order.
    pub chapters: Vec<Chapter>,
}

/// A page.
pub struct Chapter {
    /// Its address below `/docs/`; empty for the first page, which is `/docs` itself.
    pub slug: &'static str,
    /// The page as HTML.
    pub page: Rendered,
}

impl Chapter {
    /// Its address.
    pub fn address(&self) -> String {
        markdown::address(self.slug)
    }
}

/// `(slug, text)` of every page, by part.
const BOOK: &[(&str, &[(&str, &str)])] = &[
    (
        "Use it",
        &[
            ("start", include_str!("../../../docs/start.md")),
            ("reading-a-report", include_str!("../../../docs/reading-a-report.md")),
            ("inputs", include_str!("../../../docs/inputs.md")),
            ("probe", include_str!("../../../docs/probe.md")),
        ],
    ),
    (
        "The checklist",
        &[
            ("checklist", include_str!("../../../docs/checklist.md")),
            ("stage-environment", include_str!("../../../docs/stage-environment.md")),
            ("stage-data", include_str!("../../../docs/stage-data.md")),
            ("stage-model", include_str!("../../../docs/stage-model.md")),
            ("stage-profiling", include_str!("../../../docs/stage-profiling.md")),
            ("stage-verify", include_str!("../../../docs/stage-verify.md")),
        ],
    ),
    (
        "How it reasons",
        &[
            ("causes", include_str!("../../../docs/causes.md")),
            ("reasoning", include_str!("../../../docs/reasoning.md")),
        ],
    ),
    (
        "Run it",
        &[
            ("install", include_str!("../../../docs/install.md")),
            ("agent", include_str!("../../../docs/agent.md")),
            ("team", include_str!("../../../docs/team.md")),
            ("configuration", include_str!("../../../docs/configuration.md")),
            ("scale", include_str!("../../../docs/scale.md")),
            ("api", include_str!("../../../docs/api.md")),
            ("security", include_str!("../../../docs/security.md")),
        ],
    ),
    (
        "Inside",
        &[
            ("contributing", include_str!("../../../docs/contributing.md")),
            ("architecture", include_str!("../../../docs/architecture.md")),
        ],
    ),
];

static PARTS: LazyLock<Vec<Part>> = LazyLock::new(|| {
    let chapter = |(slug, text): &(&'static str, &str)| Chapter { slug, page: markdown::render(slug, text) };
    BOOK.iter().map(|(title, chapters)| Part { title, chapters: chapters.iter().map(chapter).collect() }).collect()
});

/// The text of every page as it was written.
pub fn texts() -> impl Iterator<Item = &'static str> {
    BOOK.iter().flat_map(|(_, chapters)| chapters.iter().map(|(_, text)| *text))
}

/// All pages, rendered once.
pub fn parts() -> &'static [Part] {
    &PARTS
}

/// The page at `/docs/{slug}`; without a slug the first one.
pub fn chapter(slug: &str) -> Option<&'static Chapter> {
    let mut chapters = parts().iter().flat_map(|part| &part.chapters);
    if slug.is_empty() { chapters.next() } else { chapters.find(|chapter| chapter.slug == slug) }
}
