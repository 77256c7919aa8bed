//! The probe's own tests, in Python, and the torch that runs real jobs with it.

use crate::layout::Layout;
use crate::{command, say, system_packages};
use anyhow::{Context, Result, bail};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Names the Python that has torch, here and for the Rust tests that run jobs with it.
pub const TORCH_PYTHON: &str = "RANKSCOPE_TORCH_PYTHON";

/// Debian's own Python is asked last: only it sees Debian's torch.
const DEBIAN_PYTHON: &str = "/usr/bin/python3";
const PYTHON_PACKAGES: &[&str] = &["python3"];
const TORCH_PACKAGES: &[&str] = &["python3-torch"];
const HAS_TORCH: &str =
    "import torch.distributed as d; raise SystemExit(not (d.is_available() and d.is_gloo_available()))";
/// Importing torch from a cold disk takes long.
const IMPORT_LIMIT: Duration = Duration::from_mins(2);

/// Runs the tests of `end2end/probe`, which need Python and nothing else.
pub fn test(layout: &Layout) -> Result<()> {
    let python = bring_python()?;
    command::run(
        Command::new(&python)
            .args(["-m", "unittest", "discover", "--start-directory"])
            .arg(layout.end2end().join("probe"))
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    )
}

fn bring_python() -> Result<PathBuf> {
    if let Some(python) = command::on_path(&["python3", "python"]) {
        return Ok(python);
    }
    system_packages::install("for the probe's tests", PYTHON_PACKAGES)?;
    command::on_path(&["python3"]).context("python3 is installed, but not on the search path")
}

/// A Python that imports torch with gloo: the one that is named, one of the system, or Debian's package.
pub fn bring_torch() -> Result<PathBuf> {
    if let Some(named) = env::var_os(TORCH_PYTHON).filter(|value| !value.is_empty()).map(PathBuf::from) {
        return Ok(named);
    }
    let candidates = [command::on_path(&["python3"]), Some(PathBuf::from(DEBIAN_PYTHON))];
    if let Some(found) = candidates.into_iter().flatten().find(|python| has_torch(python)) {
        return Ok(found);
    }
    if !system_packages::can_install() {
        bail!("no Python here has torch: {}; or name one in {TORCH_PYTHON}", system_packages::advice(TORCH_PACKAGES));
    }
    say::line("Debian's torch comes with its libraries, once, in a few minutes");
    system_packages::install("for real jobs with the probe", TORCH_PACKAGES)?;
    let python = PathBuf::from(DEBIAN_PYTHON);
    if !has_torch(&python) {
        bail!("python3-torch is installed, but {DEBIAN_PYTHON} cannot import it");
    }
    Ok(python)
}

fn has_torch(python: &Path) -> bool {
    command::succeeds_within(Command::new(python).args(["-c", HAS_TORCH]), IMPORT_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_no_python_has_no_torch() {
        assert!(!has_torch(Path::new("/no/such/python")));
        assert!(!has_torch(Path::new("false")));
    }
}
