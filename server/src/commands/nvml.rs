//! The driver of this machine, if it has one.

use rankscope_telemetry::NvmlState;
use std::{env, path::PathBuf};

/// Names another library than the system's, for machines that keep it elsewhere.
const LIBRARY_VARIABLE: &str = "RANKSCOPE_NVML_LIBRARY";

/// Opens the driver's library. May take a second on an idle machine.
pub fn open() -> NvmlState {
    let named = env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    NvmlState::open(named.as_deref())
}
