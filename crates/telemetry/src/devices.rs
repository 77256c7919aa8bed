//! The devices of this machine and their MIG slices, with what identifies them.

use crate::nvml::{Nvml, words};
use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_try};
use rankscope_model::{Subject, Warning};
use std::ffi::c_uint;

/// NVML's number for "MIG is on".
const MIG_ENABLED: u32 = 1;

/// One device or slice, and whether it can be asked at all.
pub struct Found<'nvml> {
    /// [`Subject::Device`] or [`Subject::MigSlice`].
    pub subject: Subject,
    /// `None` when the driver gave no handle (the device has fallen off the bus).
    pub handle: Option<Device<'nvml>>,
    /// MIG is on; `None` for devices that do not know it, and for slices.
    pub mig_enabled: Option<bool>,
}

/// Physical devices first, then slices, each in the driver's (PCI) order.
pub fn find<'nvml>(nvml: &'nvml Nvml, warnings: &mut Vec<Warning>) -> Vec<Found<'nvml>> {
    let count = match nvml.wrapper.device_count() {
        Ok(count) => count,
        Err(error) => {
            warnings.push(format!("The GPUs cannot be counted: {}.", words(&error)));
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    let mut slices = Vec::new();
    for index in 0..count {
        let handle = nvml
            .wrapper
            .device_by_index(index)
            .inspect_err(|error| warnings.push(format!("GPU {index} cannot be read: {}.", words(error))))
            .ok();
        let mig_enabled =
            handle.as_ref().and_then(|device| device.mig_mode().ok()).map(|mode| mode.current == MIG_ENABLED);
        if let Some(device) = handle.as_ref().filter(|_| mig_enabled == Some(true)) {
            slices.extend(find_slices(nvml, device, index, warnings));
        }
        found.push(Found { subject: Subject::Device(index), handle, mig_enabled });
    }
    found.append(&mut slices);
    found
}

fn find_slices<'nvml>(
    nvml: &'nvml Nvml,
    parent: &Device<'nvml>,
    device: u32,
    warnings: &mut Vec<Warning>,
) -> Vec<Found<'nvml>> {
    let places = parent.mig_device_count().unwrap_or_default();
    let mut slices = Vec::new();
    for place in 0..places {
        let slice = match parent.mig_device_by_index(place) {
            Ok(slice) => slice,
            // Places are counted whether or not a slice was made there.
            Err(NvmlError::NotFound) => continue,
            Err(error) => {
                warnings.push(format!("A MIG slice of GPU {device} cannot be read: {}.", words(&error)));
                continue;
            }
        };
        match instance_ids(nvml, &slice) {
            Ok((gpu_instance, compute_instance)) => slices.push(Found {
                subject: Subject::MigSlice { device, gpu_instance, compute_instance },
                handle: Some(slice),
                mig_enabled: None,
            }),
            Err(error) => {
                warnings.push(format!("A MIG slice of GPU {device} cannot be named: {}.", words(&error)));
            }
        }
    }
    slices
}

/// GPU instance and compute instance of a slice. The wrapper leaves both calls out, so they are made here.
fn instance_ids(nvml: &Nvml, slice: &Device<'_>) -> Result<(u32, u32), NvmlError> {
    let library = nvml.wrapper.lib();
    let gpu_instance = library.nvmlDeviceGetGpuInstanceId.as_ref().map_err(|_| NvmlError::FunctionNotFound)?;
    let compute_instance = library.nvmlDeviceGetComputeInstanceId.as_ref().map_err(|_| NvmlError::FunctionNotFound)?;
    let (mut gpu, mut compute): (c_uint, c_uint) = (0, 0);
    // SAFETY: the handle is of this library, which outlives it; each callee writes one integer.
    unsafe {
        nvml_try(gpu_instance(slice.handle(), &raw mut gpu))?;
        nvml_try(compute_instance(slice.handle(), &raw mut compute))?;
    }
    Ok((gpu, compute))
}
