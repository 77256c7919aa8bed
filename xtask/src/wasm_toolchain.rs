//! The compiler and standard library for `wasm32-unknown-unknown`, found or brought in one of three ways.
//!
//! In this order: the active toolchain has it; rustup adds it; Debian's `rustc-web` comes with library sources, from
//! which the standard library is built once and kept in the user's cache. `RANKSCOPE_WASM_TOOLCHAIN=debian` goes
//! straight to the last. Native code is never built with Debian's compiler.

use crate::layout::Layout;
use crate::{command, fingerprint, say, system_packages};
use anyhow::{Context, Result, bail};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The target.
pub const TARGET: &str = "wasm32-unknown-unknown";

const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_PACKAGES: &[&str] = &["rustc-web", "rust-web-src", "lld-19"];
/// Enough for a slow line, and short enough where servers never answer.
const RUSTUP_PATIENCE: Duration = Duration::from_mins(1);

/// What cargo must be told so that it builds for the browser.
#[derive(Debug, Default)]
pub struct WasmToolchain {
    environment: Vec<(&'static str, OsString)>,
}

impl WasmToolchain {
    /// Cargo, set to build with this toolchain.
    pub fn cargo(&self) -> Command {
        let mut command = command::cargo();
        // Flags meant for native code (`-C target-cpu=native`) do not fit the browser.
        command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Finds or brings the toolchain.
pub fn bring(layout: &Layout) -> Result<WasmToolchain> {
    let only_debian = env::var_os("RANKSCOPE_WASM_TOOLCHAIN").is_some_and(|value| value == "debian");
    if !only_debian && active_toolchain_has_target() {
        return Ok(WasmToolchain::default());
    }
    if let Some(kept) = kept_debian_toolchain(layout) {
        return Ok(kept);
    }
    if !only_debian && rustup_adds_target() {
        return Ok(WasmToolchain::default());
    }
    debian_toolchain(layout)
}

fn active_toolchain_has_target() -> bool {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    has_standard_library(&rustc)
}

fn has_standard_library(rustc: &OsString) -> bool {
    let Ok(folder) = command::output(Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET])) else {
        return false;
    };
    holds_standard_library(Path::new(folder.trim()))
}

fn holds_standard_library(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|entries| {
        entries.filter_map(Result::ok).any(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("libstd-") && name.ends_with(".rlib")
        })
    })
}

fn rustup_adds_target() -> bool {
    if command::on_path(&["rustup"]).is_none() {
        return false;
    }
    say::line(format!("rustup brings the {TARGET} standard library"));
    let added = command::succeeds_within(Command::new("rustup").args(["target", "add", TARGET]), RUSTUP_PATIENCE);
    if !added {
        say::line("rustup could not bring it (are its servers out of reach?)");
    }
    added
}

/// Debian's compiler with a standard library that was built earlier.
fn kept_debian_toolchain(layout: &Layout) -> Option<WasmToolchain> {
    let compiler = DebianCompiler::find()?;
    let sysroot = compiler.sysroot(layout);
    holds_standard_library(&library_folder(&sysroot)).then(|| compiler.toolchain(&sysroot))
}

fn debian_toolchain(layout: &Layout) -> Result<WasmToolchain> {
    let compiler = DebianCompiler::find().map_or_else(DebianCompiler::bring, Ok)?;
    let sysroot = compiler.sysroot(layout);
    compiler.build_standard_library(&sysroot)?;
    Ok(compiler.toolchain(&sysroot))
}

/// Debian's compiler, its library sources and its wasm linker, all present.
struct DebianCompiler {
    /// `rustc -vV`.
    version: String,
    linker: PathBuf,
}

impl DebianCompiler {
    fn find() -> Option<Self> {
        let sources = Path::new("/usr/lib/rustlib/src/rust/library/std/Cargo.toml");
        if !Path::new(DEBIAN_RUSTC).is_file() || !sources.is_file() {
            return None;
        }
        let linker = command::on_path(&["wasm-ld-19", "wasm-ld"])?;
        let version = command::output(Command::new(DEBIAN_RUSTC).arg("-vV")).ok()?;
        Some(Self { version, linker })
    }

    fn bring() -> Result<Self> {
        if !system_packages::can_install() {
            bail!(
                "the browser bundle needs the {TARGET} standard library: where rustup's servers can be reached, \
                 `rustup target add {TARGET}`; {}",
                system_packages::advice(DEBIAN_PACKAGES)
            );
        }
        system_packages::install("for the browser bundle", DEBIAN_PACKAGES)?;
        Self::find().context("the packages are installed, but not all their parts are where they should be")
    }

    /// Where its standard library is kept: a sysroot of our own, so that the system's folders stay the system's.
    fn sysroot(&self, layout: &Layout) -> PathBuf {
        layout.cache.join("wasm-sysroot").join(fingerprint::of(&[self.version.as_bytes()]))
    }

    fn toolchain(&self, sysroot: &Path) -> WasmToolchain {
        let mut environment = self.base_environment();
        environment.push(("CARGO_ENCODED_RUSTFLAGS", encoded_flags(&["--sysroot".into(), sysroot.into()])));
        WasmToolchain { environment }
    }

    fn base_environment(&self) -> Vec<(&'static str, OsString)> {
        vec![("RUSTC", DEBIAN_RUSTC.into()), ("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", self.linker.clone().into())]
    }

    fn build_standard_library(&self, sysroot: &Path) -> Result<()> {
        say::line(format!("builds the {TARGET} standard library once, with Debian's compiler (1 to 2 minutes)"));
        let workshop = sysroot.with_extension("workshop");
        // What an interrupted build left.
        if workshop.exists() {
            fs::remove_dir_all(&workshop)?;
        }
        fs::create_dir_all(workshop.join("src"))?;
        fs::write(workshop.join("src/lib.rs"), "")?;
        fs::write(workshop.join("Cargo.toml"), EMPTY_CRATE)?;

        let mut environment = self.base_environment();
        // Link-time optimisation of the bundle needs the bitcode, which cargo leaves out by default.
        environment.push(("CARGO_ENCODED_RUSTFLAGS", encoded_flags(&["-Cembed-bitcode=yes".into()])));
        let builder = WasmToolchain { environment };
        command::run(
            builder
                .cargo()
                .current_dir(&workshop)
                .env("CARGO_TARGET_DIR", workshop.join("target"))
                // `-Z` flags need a nightly name; this compiler builds its own library as its makers do.
                .env("RUSTC_BOOTSTRAP", "1")
                .args(["build", "--quiet", "--release", "-Zbuild-std=std,panic_abort", "--target", TARGET]),
        )
        .context("the standard library could not be built")?;

        let finished = workshop.join("sysroot");
        let library = library_folder(&finished);
        fs::create_dir_all(&library)?;
        for entry in fs::read_dir(workshop.join("target").join(TARGET).join("release/deps"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "rlib") {
                fs::copy(&path, library.join(path.file_name().unwrap_or_default()))?;
            }
        }
        if !holds_standard_library(&library) {
            bail!("the build gave no standard library in {}", library.display());
        }
        // All or nothing: a half-copied sysroot must never be found.
        if sysroot.exists() {
            fs::remove_dir_all(sysroot)?;
        }
        fs::rename(&finished, sysroot)?;
        fs::remove_dir_all(&workshop)?;
        Ok(())
    }
}

/// A cdylib leaves no rlib of its own beside those of the library. It is its own workspace, wherever the cache is.
const EMPTY_CRATE: &str = r#"[package]
name = "wasm-std-workshop"
version = "0.0.0"
edition = "2024"

[lib]
crate-type = ["cdylib"]

[profile.release]
opt-level = "s"
codegen-units = 1
panic = "abort"

[workspace]
"#;

fn library_folder(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib").join(TARGET).join("lib")
}

/// Compiler flags in the form that allows spaces within one.
fn encoded_flags(flags: &[OsString]) -> OsString {
    flags.join(std::ffi::OsStr::new("\u{1f}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_with_spaces_stay_whole() {
        let flags = encoded_flags(&["--sysroot".into(), "/a folder/x".into()]);
        assert_eq!(flags, "--sysroot\u{1f}/a folder/x");
    }

    #[test]
    fn the_debian_toolchain_sets_compiler_linker_and_sysroot() {
        let compiler = DebianCompiler { version: "rustc 1.96.0".into(), linker: "/usr/bin/wasm-ld-19".into() };
        let command = compiler.toolchain(Path::new("/cache/sysroot")).cargo();
        let value = |wanted: &str| {
            command.get_envs().find(|(name, _)| *name == wanted).and_then(|(_, value)| value).map(OsString::from)
        };
        assert_eq!(value("RUSTC"), Some(DEBIAN_RUSTC.into()));
        assert_eq!(value("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER"), Some("/usr/bin/wasm-ld-19".into()));
        assert_eq!(value("CARGO_ENCODED_RUSTFLAGS"), Some("--sysroot\u{1f}/cache/sysroot".into()));
    }

    #[test]
    fn a_folder_without_std_is_no_standard_library() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!holds_standard_library(folder.path()));
        fs::write(folder.path().join("libcore-0.rlib"), "").unwrap();
        assert!(!holds_standard_library(folder.path()));
        fs::write(folder.path().join("libstd-0.rlib"), "").unwrap();
        assert!(holds_standard_library(folder.path()));
        assert!(!holds_standard_library(&folder.path().join("absent")));
    }
}
