//! Memory of all devices, in one and the same meaning of "used".
//!
//! NVML's second memory call leaves the driver's own reserve out of `used`, the first one counts it in: some hundred
//! MiB per device. Mixing both would look like an imbalance, so a reading uses one of them for every device.

use crate::nvml::Nvml;
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use rankscope_model::Bytes;
use std::mem::MaybeUninit;

/// Which call gave the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryMeaning {
    /// Second call (driver 510 and newer): used is without the reserve.
    WithoutReserve,
    /// First call: used is with the reserve.
    WithReserve,
}

impl MemoryMeaning {
    /// Words for the reading.
    pub fn title(self) -> &'static str {
        match self {
            Self::WithoutReserve => "used is without the driver's reserve",
            Self::WithReserve => "used is with the driver's reserve",
        }
    }
}

/// Used memory and capacity of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// In the meaning of the reading.
    pub used: Bytes,
    /// Capacity.
    pub total: Bytes,
    /// What the driver keeps for itself, where `used` leaves it out.
    pub reserved: Option<Bytes>,
}

/// Reads every device (or slice) in `devices`; the results keep its order.
///
/// Falls back to the first call when a device refuses the second and answers the first. A device that answers neither
/// (fallen off the bus) does not change the meaning for the others.
pub fn read(nvml: &Nvml, devices: &[Option<&Device<'_>>]) -> (MemoryMeaning, Vec<Result<DeviceMemory, NvmlError>>) {
    let newer: Vec<_> = devices.iter().map(|device| with(*device, without_reserve)).collect();
    if newer.iter().all(Result::is_ok) {
        return (MemoryMeaning::WithoutReserve, newer);
    }
    let older: Vec<_> = devices.iter().map(|device| with(*device, |device| with_reserve(nvml, device))).collect();
    let gained = newer.iter().zip(&older).any(|(newer, older)| newer.is_err() && older.is_ok());
    if gained { (MemoryMeaning::WithReserve, older) } else { (MemoryMeaning::WithoutReserve, newer) }
}

/// Reads one device in the meaning that [`read`] found for all: one call of some microseconds.
pub fn read_as(meaning: MemoryMeaning, nvml: &Nvml, device: &Device<'_>) -> Result<DeviceMemory, NvmlError> {
    match meaning {
        MemoryMeaning::WithoutReserve => without_reserve(device),
        MemoryMeaning::WithReserve => with_reserve(nvml, device),
    }
}

fn with<'nvml>(
    device: Option<&Device<'nvml>>,
    read: impl Fn(&Device<'nvml>) -> Result<DeviceMemory, NvmlError>,
) -> Result<DeviceMemory, NvmlError> {
    device.map_or(Err(NvmlError::NotFound), read)
}

fn without_reserve(device: &Device<'_>) -> Result<DeviceMemory, NvmlError> {
    let memory = device.memory_info()?;
    Ok(DeviceMemory { used: Bytes(memory.used), total: Bytes(memory.total), reserved: Some(Bytes(memory.reserved)) })
}

/// The wrapper leaves this call out, so it is made here.
fn with_reserve(nvml: &Nvml, device: &Device<'_>) -> Result<DeviceMemory, NvmlError> {
    let call = nvml.wrapper.lib().nvmlDeviceGetMemoryInfo.as_ref().map_err(|_| NvmlError::FunctionNotFound)?;
    let mut memory = MaybeUninit::zeroed();
    // SAFETY: the handle is of this library, which outlives it; the callee writes one whole structure of three
    // integers, for which all zeros is a valid value as well.
    let memory = unsafe {
        nvml_wrapper::error::nvml_try(call(device.handle(), memory.as_mut_ptr()))?;
        memory.assume_init()
    };
    Ok(DeviceMemory { used: Bytes(memory.used), total: Bytes(memory.total), reserved: None })
}
