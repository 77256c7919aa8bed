//! Why a device does not answer, in the few kinds that matter to whoever reads the lines.

use crate::nvml::words;
use nvml_wrapper::error::NvmlError;
use rankscope_model::LiveStateKind;

/// What a failed call means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The device is gone or must be reset.
    Lost(String),
    /// The driver itself is gone: nothing will answer until it is opened anew.
    NoDriver(String),
    /// The device does not know the figure.
    NotSupported,
    /// This user may not ask.
    NoPermission,
    /// Anything else. May pass by itself.
    Other(String),
}

impl Refusal {
    /// The state that it puts a device in.
    pub fn state(&self) -> LiveStateKind {
        match self {
            Self::Lost(_) | Self::NoDriver(_) | Self::Other(_) => LiveStateKind::Lost,
            Self::NotSupported => LiveStateKind::NotSupported,
            Self::NoPermission => LiveStateKind::NoPermission,
        }
    }
}

impl From<&NvmlError> for Refusal {
    fn from(error: &NvmlError) -> Self {
        match error {
            NvmlError::GpuLost | NvmlError::ResetRequired => Self::Lost(words(error)),
            NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch => {
                Self::NoDriver(words(error))
            }
            NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => {
                Self::NotSupported
            }
            NvmlError::NoPermission => Self::NoPermission,
            other => Self::Other(words(other)),
        }
    }
}
