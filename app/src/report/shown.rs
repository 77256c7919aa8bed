//! How much of a report is shown and in which order: what its reader chose in the address. Knows no report.

use leptos::prelude::*;
use leptos_router::hooks::use_query_map;

/// What the address of a report says beside which one it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// Long lists whole (`all=1`).
    pub whole: bool,
    /// Peaks by their size instead of by rank (`peaks=size`).
    pub by_size: bool,
    /// The version asked for, as written.
    pub version: Option<String>,
}

impl Shown {
    /// What the page's address says.
    pub fn by_address() -> Self {
        use_query_map().with_untracked(|query| Self {
            whole: query.get("all").is_some(),
            by_size: query.get("peaks").is_some_and(|order| order == "size"),
            version: query.get("version"),
        })
    }

    /// The query that shows the same page so, `?` included.
    pub fn query(&self) -> String {
        let version = self.version.as_ref().map(|version| format!("version={}", crate::words::encoded(version)));
        let parts = [version, self.whole.then(|| "all=1".to_owned()), self.by_size.then(|| "peaks=size".to_owned())];
        format!("?{}", parts.into_iter().flatten().collect::<Vec<_>>().join("&"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_keeps_the_others() {
        let shown = Shown { whole: true, by_size: false, version: Some("2&x".into()) };
        assert_eq!(shown.query(), "?version=2%26x&all=1");
        assert_eq!(Shown { by_size: true, ..shown }.query(), "?version=2%26x&all=1&peaks=size");
        assert_eq!(Shown::default().query(), "?");
    }
}
