//! The browser bundle: the app's islands as wasm, and the glue that loads them.

use crate::layout::Layout;
use crate::wasm_size::Weight;
use crate::{command, fingerprint, say, wasm_toolchain};
use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How the bundle is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WasmProfile {
    /// Quick to build, for tests.
    WasmDev,
    /// Small, for releases.
    WasmRelease,
}

impl WasmProfile {
    /// Cargo's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::WasmDev => "wasm-dev",
            Self::WasmRelease => "wasm-release",
        }
    }
}

/// Name of the bundle's files; `server/build.rs` knows it too.
const OUT_NAME: &str = "rankscope";

/// Brings the bundle up to date and gives back the folder to embed. Files whose content stays the same are left
/// untouched, so that the server is not built again for them.
pub fn bundle(layout: &Layout, profile: WasmProfile) -> Result<PathBuf> {
    let toolchain = wasm_toolchain::bring(layout)?;
    command::run(
        toolchain
            .cargo()
            .current_dir(&layout.root)
            .args(build_arguments(profile))
            .arg("--target-dir")
            .arg(layout.wasm_target()),
    )
    .context("the browser bundle could not be built")?;

    let built = layout.wasm_target().join(wasm_toolchain::TARGET).join(profile.name()).join("rankscope_app.wasm");
    let wasm = fs::read(&built).with_context(|| format!("cannot read {}", built.display()))?;
    let site = layout.site(profile.name());
    let optimizer = Optimizer::find(profile);
    let fingerprint = fingerprint::of(&[
        &wasm,
        // The version of wasm-bindgen, and what this file does with it.
        &fs::read(layout.root.join("Cargo.lock")).context("cannot read Cargo.lock")?,
        include_bytes!("bundle.rs"),
        optimizer.as_ref().map_or(&[], |optimizer| optimizer.version.as_bytes()),
    ]);
    // Beside the folder: everything in it is embedded.
    let stamp = site.with_extension("stamp");
    let package = site.join("pkg");
    if fingerprint::is_current(&stamp, &fingerprint) && package.is_dir() {
        say::line(format!("the {} bundle is up to date", profile.name()));
        return Ok(site);
    }

    let fresh = site.with_extension("fresh");
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    fs::create_dir_all(&fresh)?;
    write_glue(&built, profile, &fresh)?;
    let wasm_file = fresh.join(format!("{OUT_NAME}_bg.wasm"));
    if let Some(optimizer) = optimizer {
        optimizer.shrink(&wasm_file)?;
    }
    take_over(&fresh, &package)?;
    fingerprint::keep(&stamp, &fingerprint)?;
    print_weight(profile, &package)?;
    Ok(site)
}

fn build_arguments(profile: WasmProfile) -> [&'static str; 11] {
    [
        "build",
        "--package",
        "rankscope-app",
        "--lib",
        "--no-default-features",
        "--features",
        "hydrate",
        "--target",
        wasm_toolchain::TARGET,
        "--profile",
        profile.name(),
    ]
}

fn write_glue(wasm: &Path, profile: WasmProfile, folder: &Path) -> Result<()> {
    let mut bindgen = wasm_bindgen_cli_support::Bindgen::new();
    let small = profile == WasmProfile::WasmRelease;
    bindgen
        .input_path(wasm)
        .out_name(OUT_NAME)
        .typescript(false)
        .remove_name_section(small)
        .remove_producers_section(small)
        .web(true)
        .and_then(|bindgen| bindgen.generate(folder))
        .map_err(|error| anyhow!("wasm-bindgen: {error:#}"))
}

/// `wasm-opt`, if this machine has it. A few per cent smaller; never required.
struct Optimizer {
    program: PathBuf,
    version: String,
}

impl Optimizer {
    fn find(profile: WasmProfile) -> Option<Self> {
        if profile != WasmProfile::WasmRelease {
            return None;
        }
        let program = command::on_path(&["wasm-opt"])?;
        let version = command::output(Command::new(&program).arg("--version")).ok()?;
        Some(Self { program, version })
    }

    /// An old `wasm-opt` may not know what a new compiler writes; the bundle then stays as it is.
    fn shrink(&self, wasm: &Path) -> Result<()> {
        let smaller = wasm.with_extension("smaller");
        let ran = command::run(
            Command::new(&self.program)
                .args(["-Oz", "--enable-bulk-memory", "--enable-nontrapping-float-to-int", "--enable-reference-types"])
                .args(["--enable-sign-ext", "--enable-mutable-globals", "--enable-multivalue"])
                .arg(wasm)
                .arg("-o")
                .arg(&smaller),
        );
        match ran {
            Ok(()) => fs::rename(&smaller, wasm).with_context(|| format!("cannot write {}", wasm.display())),
            Err(error) => {
                say::line(format!("goes on without wasm-opt: {error:#}"));
                if smaller.exists() {
                    fs::remove_file(&smaller)?;
                }
                Ok(())
            }
        }
    }
}

/// Makes `package` equal to `fresh`, keeping files that are already equal, and removes `fresh`.
fn take_over(fresh: &Path, package: &Path) -> Result<()> {
    fs::create_dir_all(package)?;
    for entry in fs::read_dir(package)? {
        let entry = entry?;
        if !fresh.join(entry.file_name()).exists() {
            let path = entry.path();
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
    }
    for entry in fs::read_dir(fresh)? {
        let entry = entry?;
        let (source, kept) = (entry.path(), package.join(entry.file_name()));
        if source.is_dir() {
            take_over(&source, &kept)?;
        } else if !fs::read(&kept).is_ok_and(|old| fs::read(&source).is_ok_and(|new| new == old)) {
            fs::rename(&source, &kept)?;
        }
    }
    if fresh.exists() {
        fs::remove_dir_all(fresh)?;
    }
    Ok(())
}

/// What visitors download. Best compression takes a while, so only what is released is weighed.
fn print_weight(profile: WasmProfile, package: &Path) -> Result<()> {
    if profile != WasmProfile::WasmRelease {
        return Ok(());
    }
    let mut total = Weight::default();
    for name in [format!("{OUT_NAME}_bg.wasm"), format!("{OUT_NAME}.js")] {
        let path = package.join(&name);
        let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let weight = Weight::of(&content)?;
        say::line(format!("{name}: {weight}"));
        total += weight;
    }
    say::line(format!("the bundle in all: {total}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_app_is_built_for_the_browser_alone() {
        let arguments = build_arguments(WasmProfile::WasmDev).join(" ");
        assert!(arguments.contains("--package rankscope-app --lib --no-default-features --features hydrate"));
        assert!(arguments.ends_with("--target wasm32-unknown-unknown --profile wasm-dev"));
    }

    #[test]
    fn equal_files_are_left_untouched_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let (fresh, package) = (folder.path().join("fresh"), folder.path().join("pkg"));
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(package.join("same.js"), "same");
        write(package.join("changed.wasm"), "old");
        write(package.join("gone/old.js"), "old");
        let before = fs::metadata(package.join("same.js")).unwrap().modified().unwrap();
        write(fresh.join("same.js"), "same");
        write(fresh.join("changed.wasm"), "new");
        write(fresh.join("snippets/a.js"), "a");

        take_over(&fresh, &package).unwrap();

        assert_eq!(fs::metadata(package.join("same.js")).unwrap().modified().unwrap(), before);
        assert_eq!(fs::read_to_string(package.join("changed.wasm")).unwrap(), "new");
        assert_eq!(fs::read_to_string(package.join("snippets/a.js")).unwrap(), "a");
        assert!(!package.join("gone").exists());
        assert!(!fresh.exists());
    }
}
