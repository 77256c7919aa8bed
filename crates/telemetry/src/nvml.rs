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
    /// There is no such library here, which was looked for under this name: no NVIDIA driver, or a container without it.
    NoLibrary(String),
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
            Err(error) => match Self::of(&error) {
                Self::NoLibrary(_) => Self::NoLibrary(Path::new(name).display().to_string()),
                other => other,
            },
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
            NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => Self::NoLibrary(LIBRARY.to_owned()),
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
            Self::NoLibrary(name) => write!(f, "NVML: no NVIDIA driver library ({name}) on this machine"),
            Self::DriverNotLoaded => f.write_str("NVML: the NVIDIA driver is installed but not loaded"),
            Self::NoPermission => f.write_str("NVML: this user may not ask the NVIDIA driver"),
            Self::VersionMismatch => {
                f.write_str("NVML: library and kernel module differ in version; restart the machine after the update")
            }
            Self::Failed(reason) => write!(f, "NVML: cannot be used ({reason})"),
        }
    }
}

/// A failure in a few words, with what can be done about it. Every one has words of its own: those of the wrapper speak
/// to its callers, not to people.
#[allow(deprecated, reason = "a driver may still answer so")]
pub(crate) fn words(error: &NvmlError) -> String {
    match error {
        NvmlError::NoPermission => {
            "this user may not ask for it; run as root, or let the administrator allow it".into()
        }
        NvmlError::OperatingSystem => {
            "the operating system keeps the GPU from this process; in a container, give it the device".into()
        }
        NvmlError::NotSupported | NvmlError::VgpuEccNotSupported => "not supported by this card".into(),
        NvmlError::GpuLost => "the GPU has fallen off the bus; restart the node".into(),
        NvmlError::ResetRequired => "the GPU needs a reset (nvidia-smi --gpu-reset, or restart the node)".into(),
        NvmlError::InsufficientPower => "its power cables are not attached, or give too little".into(),
        NvmlError::IrqIssue => "the kernel has trouble with its interrupts; restart the node".into(),
        NvmlError::CorruptedInfoROM => "its infoROM is corrupted; the card needs service".into(),
        NvmlError::Uninitialized | NvmlError::DriverNotLoaded => {
            "the NVIDIA driver is not loaded; load it, or restart the node".into()
        }
        NvmlError::LibRmVersionMismatch => {
            "library and kernel module differ in version; restart the node after the driver's update".into()
        }
        NvmlError::LibraryNotFound | NvmlError::LibloadingError(_) => {
            "the driver's library cannot be loaded; install the driver anew".into()
        }
        NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => {
            "this driver does not have the call; a newer one does".into()
        }
        NvmlError::InsufficientSize(_) => "the list kept growing while it was read".into(),
        NvmlError::InsufficientMemory => "the driver is out of host memory".into(),
        NvmlError::InUse => "the GPU is in use in a way that does not allow it".into(),
        NvmlError::Timeout => "the driver did not answer in time".into(),
        NvmlError::NotFound | NvmlError::NoData => "the driver has nothing on it".into(),
        NvmlError::InvalidArg => "the driver does not know this GPU any more; its number may have changed".into(),
        NvmlError::UnexpectedVariant(code) => {
            format!("the driver answered with code {code}, which is not known here")
        }
        NvmlError::Utf8Error(_)
        | NvmlError::NulError(_)
        | NvmlError::StringTooLong { .. }
        | NvmlError::IncorrectBits(_)
        | NvmlError::GetPciInfoFailed
        | NvmlError::PciInfoToCFailed => "the driver's answer cannot be understood".into(),
        NvmlError::Unknown | NvmlError::AlreadyInitialized | NvmlError::SetReleaseFailed => {
            "the driver gave no reason".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_words_of_ours_and_what_can_be_done_is_said() {
        let all = [
            NvmlError::StringTooLong { max_len: 1, actual_len: 2 },
            NvmlError::UnexpectedVariant(77),
            NvmlError::SetReleaseFailed,
            NvmlError::GetPciInfoFailed,
            NvmlError::PciInfoToCFailed,
            NvmlError::Uninitialized,
            NvmlError::InvalidArg,
            NvmlError::NotSupported,
            NvmlError::NoPermission,
            NvmlError::NotFound,
            NvmlError::InsufficientSize(None),
            NvmlError::InsufficientPower,
            NvmlError::DriverNotLoaded,
            NvmlError::Timeout,
            NvmlError::IrqIssue,
            NvmlError::LibraryNotFound,
            NvmlError::FunctionNotFound,
            NvmlError::CorruptedInfoROM,
            NvmlError::GpuLost,
            NvmlError::ResetRequired,
            NvmlError::OperatingSystem,
            NvmlError::LibRmVersionMismatch,
            NvmlError::InUse,
            NvmlError::InsufficientMemory,
            NvmlError::NoData,
            NvmlError::VgpuEccNotSupported,
            NvmlError::Unknown,
        ];
        for error in all {
            let (ours, theirs) = (words(&error), error.to_string());
            assert!(ours != theirs && !ours.contains("argument") && !ours.ends_with('.'), "{ours} / {theirs}");
        }
        let said = [
            (NvmlError::NoPermission, "root"),
            (NvmlError::GpuLost, "restart the node"),
            (NvmlError::ResetRequired, "reset"),
            (NvmlError::LibRmVersionMismatch, "restart"),
            (NvmlError::NotSupported, "not supported by this card"),
        ];
        for (error, part) in said {
            assert!(words(&error).contains(part), "{}", words(&error));
        }
    }
}
