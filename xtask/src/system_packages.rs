//! Debian packages, where this is Debian and we are root; otherwise the words that tell a person what to install.

use crate::{command, say};
use anyhow::{Result, bail};
use std::process::Command;

/// Whether [`install`] can do anything here.
pub fn can_install() -> bool {
    is_root() && command::on_path(&["apt-get"]).is_some()
}

/// Installs `packages`, which are wanted `purpose` (`for the browser tests`). Refreshes the package lists first: a
/// fresh machine has none.
pub fn install(purpose: &str, packages: &[&str]) -> Result<()> {
    if !can_install() {
        bail!("missing {purpose}: {}", advice(packages));
    }
    say::line(format!("apt-get brings {} {purpose}", packages.join(" ")));
    command::run(apt_get().arg("update").arg("-qq"))?;
    command::run(apt_get().args(install_arguments(packages)))
}

/// What a person can do about missing packages.
pub fn advice(packages: &[&str]) -> String {
    format!("on Debian or Ubuntu, as root: apt-get install {}", packages.join(" "))
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(std::process::Stdio::null());
    command
}

fn install_arguments<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    ["install", "-qq", "--yes", "--no-install-recommends"].into_iter().chain(packages.iter().copied()).collect()
}

/// Whether this process may do everything.
pub fn is_root() -> bool {
    command::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_come_last_and_nothing_is_asked() {
        let arguments = install_arguments(&["chromium", "nodejs"]);
        assert!(arguments.contains(&"--yes"));
        assert_eq!(arguments[arguments.len() - 2..], ["chromium", "nodejs"]);
    }
}
