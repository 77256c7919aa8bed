//! The driver of this machine, if it has one.

use rankscope_telemetry::NvmlState;
use std::{
    env,
    path::{Path, PathBuf},
};

/// Names another library than the system's, for machines that keep it elsewhere.
const LIBRARY_VARIABLE: &str = "RANKSCOPE_NVML_LIBRARY";

/// Opens the driver's library: the one that is given, or named by the environment, or the system's. May take a second on
/// an idle machine.
pub fn open(library: Option<&Path>) -> NvmlState {
    NvmlState::open(self::library(library).as_deref())
}

/// Which library that is; `None` is the system's.
pub fn library(given: Option<&Path>) -> Option<PathBuf> {
    let named = || env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    given.map(Path::to_path_buf).or_else(named)
}
