//! From a fresh checkout to a running server.

use crate::bundle::{self, WasmProfile};
use crate::command;
use crate::layout::Layout;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::process::Command;

/// The folder whose bundle `server/build.rs` embeds.
pub const SITE_VARIABLE: &str = "RANKSCOPE_SITE_DIR";

/// Builds the bundle and the binary, then becomes `rankscope serve`.
pub fn serve(layout: &Layout, arguments: &[OsString]) -> Result<()> {
    let site = bundle::bundle(layout, WasmProfile::WasmRelease)?;
    command::run(command::cargo().current_dir(&layout.root).env(SITE_VARIABLE, site).args([
        "build",
        "--release",
        "--package",
        "rankscope",
    ]))
    .context("the server could not be built")?;
    become_program(Command::new(layout.binary("release")).env_remove("LD_LIBRARY_PATH").arg("serve").args(arguments))
}

/// On Unix the server takes xtask's place, so that signals reach it and nobody else.
#[cfg(unix)]
fn become_program(command: &mut Command) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start `{}`", command::shown(command)))
}

#[cfg(not(unix))]
fn become_program(command: &mut Command) -> Result<()> {
    command::run(command)
}
