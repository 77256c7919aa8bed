//! Running other programs: with their output shown, kept, or bounded in time.

use anyhow::{Context, Result, bail};
use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// `cargo` as the caller started it, without the variables that `cargo run` adds for xtask's own package: build
/// scripts that watch them would run again each time.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(belongs_to_own_package) {
            command.env_remove(name);
        }
    }
    command
}

fn belongs_to_own_package(variable: &str) -> bool {
    variable.starts_with("CARGO_PKG_") || variable.starts_with("CARGO_MANIFEST_") || variable == "LD_LIBRARY_PATH"
}

/// Runs with its output shown; anything but success is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(command)))?;
    succeeded(command, status)
}

/// Runs and gives back what it printed on standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start `{}`", shown(command)))?;
    succeeded(command, output.status)?;
    String::from_utf8(output.stdout).with_context(|| format!("`{}` printed something that is not text", shown(command)))
}

/// Runs in silence for at most `limit`; `false` if it could not start, failed, or took longer.
pub fn succeeds_within(command: &mut Command, limit: Duration) -> bool {
    let started = Instant::now();
    let Ok(mut child) = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        return false;
    };
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if started.elapsed() < limit => thread::sleep(Duration::from_millis(50)),
            _ => {
                // Both fail only when it has just ended by itself.
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

/// The first of `names` that is an executable file on the search path.
pub fn on_path(names: &[&str]) -> Option<PathBuf> {
    find_in(&env::var_os("PATH")?, names)
}

fn find_in(search_path: &OsStr, names: &[&str]) -> Option<PathBuf> {
    names.iter().find_map(|name| {
        env::split_paths(search_path).map(|folder| folder.join(name)).find(|candidate| is_executable(candidate))
    })
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

/// The command as one would type it, without its environment.
pub fn shown(command: &Command) -> String {
    let mut text = Path::new(command.get_program())
        .file_name()
        .map_or_else(|| command.get_program().to_string_lossy(), OsStr::to_string_lossy)
        .into_owned();
    for argument in command.get_args() {
        let argument = argument.to_string_lossy();
        // Writing to a String does not fail.
        let _ = if argument.is_empty() || argument.contains(' ') {
            write!(text, " '{argument}'")
        } else {
            write!(text, " {argument}")
        };
    }
    text
}

fn succeeded(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["build", "--message", "two words", ""]);
        assert_eq!(shown(&command), "cargo build --message 'two words' ''");
    }

    #[test]
    fn own_package_variables_are_recognised() {
        assert!(belongs_to_own_package("CARGO_PKG_NAME"));
        assert!(belongs_to_own_package("CARGO_MANIFEST_DIR"));
        assert!(!belongs_to_own_package("CARGO_TARGET_DIR"));
        assert!(!belongs_to_own_package("CARGO_NET_OFFLINE"));
    }

    #[cfg(unix)]
    #[test]
    fn the_first_name_wins_over_the_first_folder() {
        use std::os::unix::fs::PermissionsExt;
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = |folder: &Path, name: &str, mode| {
            let path = folder.join(name);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        program(first.path(), "preferred", 0o644);
        let preferred = program(second.path(), "preferred", 0o755);
        program(first.path(), "other", 0o755);
        let search_path = env::join_paths([first.path(), second.path()]).unwrap();
        assert_eq!(find_in(&search_path, &["preferred", "other"]), Some(preferred));
        assert_eq!(find_in(&search_path, &["absent"]), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_slow_command_is_ended() {
        let started = Instant::now();
        assert!(!succeeds_within(Command::new("sleep").arg("30"), Duration::from_millis(100)));
        assert!(started.elapsed() < Duration::from_secs(10));
        assert!(succeeds_within(&mut Command::new("true"), Duration::from_secs(10)));
        assert!(!succeeds_within(&mut Command::new("false"), Duration::from_secs(10)));
        assert!(!succeeds_within(&mut Command::new("no-such-program-here"), Duration::from_secs(10)));
    }
}
