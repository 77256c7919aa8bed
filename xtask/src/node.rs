//! Node.js and the locked packages of the browser tests.

use crate::layout::Layout;
use crate::{command, fingerprint, say, system_packages};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const DEBIAN_PACKAGES: &[&str] = &["nodejs", "npm"];

/// Node.js with the packages of `end2end/package-lock.json` beside it.
pub struct Node {
    folder: PathBuf,
}

impl Node {
    /// Brings Node.js and the packages; does nothing when they are those of the lock file.
    pub fn bring(layout: &Layout) -> Result<Self> {
        if command::on_path(&["node"]).is_none() || command::on_path(&["npm"]).is_none() {
            if !system_packages::can_install() {
                bail!(
                    "the browser tests need Node.js 20 or newer with npm; {}",
                    system_packages::advice(DEBIAN_PACKAGES)
                );
            }
            system_packages::install("for the browser tests", DEBIAN_PACKAGES)?;
        }
        let folder = layout.end2end();
        install_locked_packages(&folder)?;
        Ok(Self { folder })
    }

    /// Where Playwright keeps a browser that it brought itself, if it has one.
    pub fn own_browser(&self) -> Option<PathBuf> {
        let answer = command::output(
            Command::new("node")
                .current_dir(&self.folder)
                .args(["--print", "require('@playwright/test').chromium.executablePath()"]),
        )
        .ok()?;
        Some(PathBuf::from(answer.trim())).filter(|path| path.is_file())
    }

    /// `playwright test` from the locked packages, not from a search path or a download.
    pub fn playwright_test(&self) -> Command {
        let mut command = Command::new("node");
        command.current_dir(&self.folder).arg(Path::new("node_modules/@playwright/test/cli.js")).arg("test");
        command
    }
}

fn install_locked_packages(folder: &Path) -> Result<()> {
    let lock = fs::read(folder.join("package-lock.json")).context("cannot read end2end/package-lock.json")?;
    let fingerprint = fingerprint::of(&[&lock]);
    let stamp = folder.join("node_modules/.rankscope-stamp");
    if fingerprint::is_current(&stamp, &fingerprint) {
        return Ok(());
    }
    say::line("npm brings the packages of end2end/package-lock.json");
    command::run(
        Command::new("npm")
            .current_dir(folder)
            // The browser comes from the system (browser.rs), so a package must not fetch one of its own.
            .env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1")
            .args(["ci", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error"]),
    )?;
    fingerprint::keep(&stamp, &fingerprint)
}
