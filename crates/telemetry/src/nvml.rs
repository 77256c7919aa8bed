//! Opening the driver's library, and the words for the ways in which that fails.
//!
//! Knows nothing of what is read through it.

use nvml_wrapper::error::NvmlError;
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

/// The library's name on Linux; the loader finds it.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// The driver's management library, loaded and initialised. Closed when dropped.
#[derive(Debug)]
pub struct Nvml {
    /// Boxed: it holds one slot per function of the library, 12 kB of them.
    pub(crate) wrapper: Box<nvml_wrapper::Nvml>,
}

/// Whether this machine's devices can be read. [`fmt::Display`] gives one line for people.
#[derive(Debug)]
pub enum NvmlState {
    /// They can.
    Ready(Nvml),
    /// There is no such library here: no NVIDIA driver, or a container without it.
    NoLibrary,
    /// The library is here, the kernel module is not.
    DriverNotLoaded,
    /// The driver is here, and this user may not ask it.
    NoPermission,
    /// The driver was updated and the machine not yet restarted.
    VersionMismatch,
    /// Anything else, in a few words.
    Failed(String),
}

impl NvmlState {
    /// Loads the library: the given file, or the system's. The first call on an idle machine without persistence mode
    /// can take a second, because it loads the driver.
    pub fn open(library: Option<&Path>) -> Self {
        let name = library.map_or_else(|| OsStr::new(LIBRARY), Path::as_os_str);
        match nvml_wrapper::Nvml::builder().lib_path(name).init() {
            // Closing it without this function would panic, so such a library is never used.
            Ok(wrapper) if wrapper.lib().nvmlShutdown.is_err() => {
                std::mem::forget(wrapper);
                Self::Failed("the library has no nvmlShutdown".into())
            }
            Ok(wrapper) => Self::Ready(Nvml { wrapper: Box::new(wrapper) }),
            Err(error) => Self::of(&error),
        }
    }

    /// The library, if it can be used.
    pub fn ready(self) -> Option<Nvml> {
        match self {
            Self::Ready(nvml) => Some(nvml),
            _ => None,
        }
    }

    fn of(error: &NvmlError) -> Self {
        match error {
            NvmlError::LibloadingError(reason) if !reason.to_string().contains("cannot open shared object file") => {
                Self::Failed(reason.to_string())
            }
            NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => Self::NoLibrary,
            NvmlError::DriverNotLoaded => Self::DriverNotLoaded,
            NvmlError::NoPermission => Self::NoPermission,
            NvmlError::LibRmVersionMismatch => Self::VersionMismatch,
            NvmlError::FailedToLoadSymbol(_) => Self::Failed("the library is not NVML, or a very old one".into()),
            other => Self::Failed(words(other)),
        }
    }
}

impl fmt::Display for NvmlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(nvml) => {
                let driver = nvml.wrapper.sys_driver_version().unwrap_or_else(|_| "of unknown version".into());
                match nvml.wrapper.device_count() {
                    Ok(1) => write!(f, "NVML: 1 GPU, driver {driver}"),
                    Ok(count) => write!(f, "NVML: {count} GPUs, driver {driver}"),
                    Err(error) => write!(f, "NVML: driver {driver}, GPUs cannot be counted ({})", words(&error)),
                }
            }
            Self::NoLibrary => write!(f, "NVML: no NVIDIA driver library ({LIBRARY}) on this machine"),
            Self::DriverNotLoaded => f.write_str("NVML: the NVIDIA driver is installed but not loaded"),
            Self::NoPermission => f.write_str("NVML: this user may not ask the NVIDIA driver"),
            Self::VersionMismatch => {
                f.write_str("NVML: library and kernel module differ in version; restart the machine after the update")
            }
            Self::Failed(reason) => write!(f, "NVML: cannot be used ({reason})"),
        }
    }
}

/// A failure in a few words.
pub(crate) fn words(error: &NvmlError) -> String {
    match error {
        NvmlError::NoPermission => "no permission".into(),
        NvmlError::NotSupported => "not supported by this device".into(),
        NvmlError::GpuLost => "the GPU has fallen off the bus".into(),
        NvmlError::ResetRequired => "the GPU needs a reset".into(),
        NvmlError::InsufficientSize(_) => "the list kept growing while it was read".into(),
        NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => "this driver does not have the call".into(),
        NvmlError::Unknown => "the driver gave no reason".into(),
        NvmlError::UnexpectedVariant(code) => format!("NVML code {code}"),
        other => other.to_string(),
    }
}
