//! Tells the embedding macro where the browser bundle lies: `RANKSCOPE_SITE_DIR` (written by `cargo xtask bundle`), or
//! an empty folder, with which the server still builds and serves complete pages without islands.

use std::{env, fs, path::PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=RANKSCOPE_SITE_DIR");
    let site = env::var_os("RANKSCOPE_SITE_DIR").map(PathBuf::from).filter(|path| path.is_dir()).unwrap_or_else(|| {
        let empty = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("no-site");
        fs::create_dir_all(&empty).expect("OUT_DIR is writable");
        empty
    });
    println!("cargo::rustc-env=RANKSCOPE_SITE_DIR={}", site.display());
    println!("cargo::rerun-if-changed={}", site.display());
    for folder in ["../style", "../public", "../docs/images", "migrations"] {
        println!("cargo::rerun-if-changed={folder}");
    }
}
