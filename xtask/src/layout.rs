//! Where things are: the workspace, its target folder, and the cache shared by all checkouts of one user.

use crate::command;
use anyhow::{Context, Result};
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folders that the tasks work in.
pub struct Layout {
    /// The workspace's root.
    pub root: PathBuf,
    /// Cargo's target folder, wherever the user's configuration puts it.
    pub target: PathBuf,
    /// Things that are costly to make and the same for every checkout.
    pub cache: PathBuf,
}

impl Layout {
    /// Asks cargo.
    pub fn find() -> Result<Self> {
        // Cargo says where the task's own folder is at the moment; the one it was built in may have been another checkout
        // that shares the target folder.
        let own = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        let manifest = own.join("../Cargo.toml");
        let answer = command::output(
            command::cargo().args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"]).arg(manifest),
        )?;
        let answer: serde_json::Value = serde_json::from_str(&answer).context("cargo metadata is not JSON")?;
        let folder = |key| {
            answer
                .get(key)
                .and_then(|value| value.as_str())
                .map(PathBuf::from)
                .with_context(|| format!("cargo metadata has no {key}"))
        };
        let target = folder("target_directory")?;
        let cache = cache_folder(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"), &target);
        Ok(Self { root: folder("workspace_root")?, target, cache })
    }

    /// The folder with `pkg/rankscope.js` and `pkg/rankscope_bg.wasm` that `server/build.rs` embeds.
    pub fn site(&self, profile: &str) -> PathBuf {
        self.target.join("site").join(profile)
    }

    /// Target folder of the browser bundle: apart from the native one, because another compiler may build it.
    pub fn wasm_target(&self) -> PathBuf {
        self.target.join("wasm")
    }

    /// The binary of one cargo profile folder, `debug` or `release`.
    pub fn binary(&self, profile_folder: &str) -> PathBuf {
        self.target.join(profile_folder).join(format!("rankscope{}", env::consts::EXE_SUFFIX))
    }

    /// The browser tests.
    pub fn end2end(&self) -> PathBuf {
        self.root.join("end2end")
    }
}

fn cache_folder(xdg_cache: Option<OsString>, home: Option<OsString>, target: &Path) -> PathBuf {
    // The XDG rule: a relative path is to be ignored.
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(xdg_cache)
        .or_else(|| absolute(home).map(|home| home.join(".cache")))
        .map_or_else(|| target.join("cache"), |base| base.join("rankscope"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_follows_xdg_then_home_then_the_target() {
        let folder = |xdg: Option<&str>, home: Option<&str>| {
            cache_folder(xdg.map(OsString::from), home.map(OsString::from), Path::new("/t"))
        };
        assert_eq!(folder(Some("/x"), Some("/h")), Path::new("/x/rankscope"));
        assert_eq!(folder(Some("relative"), Some("/h")), Path::new("/h/.cache/rankscope"));
        assert_eq!(folder(None, Some("/h")), Path::new("/h/.cache/rankscope"));
        assert_eq!(folder(None, None), Path::new("/t/cache"));
    }
}
