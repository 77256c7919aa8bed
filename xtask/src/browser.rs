//! A Chromium for the browser tests: the system's, else Playwright's own, else Debian's package.

use crate::node::Node;
use crate::{command, say, system_packages};
use anyhow::{Context, Result, bail};
use std::env;
use std::path::PathBuf;

/// Names under which systems install it, the free build first.
const PROGRAMS: &[&str] = &["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
const DEBIAN_PACKAGES: &[&str] = &["chromium"];

/// Finds or brings one. `RANKSCOPE_CHROMIUM` names one and is taken at its word.
pub fn bring(node: &Node) -> Result<PathBuf> {
    let named = env::var_os("RANKSCOPE_CHROMIUM").filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(found) = choose(named, command::on_path(PROGRAMS), || node.own_browser()) {
        say::line(format!("browser tests run in {}", found.display()));
        return Ok(found);
    }
    if !system_packages::can_install() {
        bail!(
            "the browser tests need a Chromium: {}; or `npx playwright install chromium` in end2end/; or name one in \
             RANKSCOPE_CHROMIUM",
            system_packages::advice(DEBIAN_PACKAGES)
        );
    }
    system_packages::install("for the browser tests", DEBIAN_PACKAGES)?;
    command::on_path(PROGRAMS).context("chromium is installed, but not on the search path")
}

fn choose(named: Option<PathBuf>, system: Option<PathBuf>, own: impl FnOnce() -> Option<PathBuf>) -> Option<PathBuf> {
    named.or(system).or_else(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_browser_wins_then_the_systems_then_playwrights() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(choose(path("named"), path("system"), || path("own")), path("named"));
        assert_eq!(choose(None, path("system"), || unreachable!("not asked while the system has one")), path("system"));
        assert_eq!(choose(None, None, || path("own")), path("own"));
        assert_eq!(choose(None, None, || None), None);
    }
}
