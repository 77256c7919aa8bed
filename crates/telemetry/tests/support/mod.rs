//! The stub library, built once and copied for each test with what it is to play.

// Each test file uses some of this.
#![allow(dead_code)]

use rankscope_telemetry::{Nvml, NvmlState, ProcFs};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A copy of the stub in a folder of its own.
pub struct Stub {
    folder: tempfile::TempDir,
}

impl Stub {
    /// Plays `scenario` (the format is described in `end2end/nvml-stub/src/scenario.rs`).
    pub fn new(scenario: &str) -> Self {
        Self::without_symbol(scenario, None)
    }

    /// The same as an older driver would be: without one of the functions. Its name is spoiled in the library's table
    /// of names, so that the loader does not find it.
    pub fn without_symbol(scenario: &str, symbol: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut library = std::fs::read(built()).unwrap();
        if let Some(symbol) = symbol {
            let name = format!("\0{symbol}\0").into_bytes();
            let places: Vec<usize> =
                library.windows(name.len()).enumerate().filter(|(_, bytes)| *bytes == name).map(|(at, _)| at).collect();
            assert!(!places.is_empty(), "{symbol} is not in the stub");
            for place in places {
                library[place + symbol.len()] = b'#';
            }
        }
        std::fs::write(folder.path().join("libnvidia-ml.so.1"), library).unwrap();
        std::fs::write(folder.path().join("nvml-stub.conf"), scenario).unwrap();
        Self { folder }
    }

    /// The library's file.
    pub fn library(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so.1")
    }

    /// The processes of the scenario's `proc` lines.
    pub fn proc(&self) -> ProcFs {
        ProcFs::at(self.proc_folder())
    }

    /// Where they are.
    pub fn proc_folder(&self) -> PathBuf {
        self.folder.path().join("proc")
    }

    /// Plays something else from the next initialisation on.
    pub fn play(&self, scenario: &str) {
        std::fs::write(self.folder.path().join("nvml-stub.conf"), scenario).unwrap();
    }

    /// Opened as the product opens the driver's.
    pub fn open(&self) -> NvmlState {
        NvmlState::open(Some(&self.library()))
    }

    /// Opened, and it must be usable.
    pub fn ready(&self) -> Nvml {
        match self.open() {
            NvmlState::Ready(nvml) => nvml,
            state => panic!("{state}"),
        }
    }
}

/// The stub in this build's target folder. Cargo does not build a cdylib for another package's tests, so it is asked to.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // `<target>/<profile>/deps/<this test>`
        let test = std::env::current_exe().unwrap();
        let profile_folder = test.parent().and_then(Path::parent).unwrap();
        let profile = match profile_folder.file_name().and_then(|name| name.to_str()).unwrap() {
            "debug" => "dev",
            other => other,
        };
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["build", "--quiet", "--package", "nvml-stub", "--profile", profile, "--target-dir"])
            .arg(profile_folder.parent().unwrap())
            .status()
            .unwrap();
        assert!(status.success());
        profile_folder.join("libnvml_stub.so")
    })
}
