//! The processes on one device, out of NVML's three lists.

use crate::nvml::Nvml;
use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use rankscope_model::Bytes;
use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::mem::MaybeUninit;

/// A burst of new processes between counting and reading makes the driver refuse; it calms down soon.
const ATTEMPTS: usize = 3;

/// Processes for which there is room at the first attempt. Asking for their number first would cost a second call of
/// some milliseconds, during which the driver's lock is held.
const ROOM: c_uint = 64;

/// One process on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// As the driver sees it (host namespace).
    pub pid: u32,
    /// `C`, `G`, `C+G` or `M+C`, as `nvidia-smi` prints it.
    pub kind: &'static str,
    /// `None` where the driver does not say.
    pub used: Option<Bytes>,
    /// GPU and compute instance, where the driver says them.
    pub slice: Slice,
}

/// Which of the three lists are asked for; each costs some milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lists {
    /// All.
    All,
    /// Compute processes only: where training is.
    Compute,
}

/// The processes of `device` in ascending order, and the first reason why the list may lack some.
pub fn read(nvml: &Nvml, device: &Device<'_>, lists: Lists) -> (Vec<Listed>, Option<NvmlError>) {
    let mut merged = Merged::new();
    let mut failure = None;
    let lists: &[List] = match lists {
        Lists::All => &[List::Compute, List::Graphics, List::MpsCompute],
        Lists::Compute => &[List::Compute],
    };
    for list in lists.iter().copied() {
        let processes = match list.read_at_once(nvml, device) {
            Err(NvmlError::InsufficientSize(_)) => patiently(|| list.read(device)),
            answer => answer,
        };
        match processes {
            Ok(processes) => processes.into_iter().for_each(|process| enter(&mut merged, list, &process)),
            // A device without graphics, or a driver without MPS, has no such list: nothing is lacking.
            Err(NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_))
                if list != List::Compute => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    (merged.into_values().collect(), failure)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Compute,
    Graphics,
    MpsCompute,
}

impl List {
    /// One call. Fails where there is not room for all, and where the driver lacks the call.
    fn read_at_once(self, nvml: &Nvml, device: &Device<'_>) -> Result<Vec<ProcessInfo>, NvmlError> {
        let library = nvml.wrapper.lib();
        let call = match self {
            Self::Compute => library.nvmlDeviceGetComputeRunningProcesses_v3.as_ref(),
            Self::Graphics => library.nvmlDeviceGetGraphicsRunningProcesses_v3.as_ref(),
            Self::MpsCompute => library.nvmlDeviceGetMPSComputeRunningProcesses_v3.as_ref(),
        };
        let call = call.map_err(|_| NvmlError::FunctionNotFound)?;
        let mut infos = MaybeUninit::<[_; ROOM as usize]>::zeroed();
        let mut count = ROOM;
        // SAFETY: the handle is of this library, which outlives it; the callee writes at most `count` structures of
        // integers, for which all zeros is a valid value as well.
        let infos = unsafe {
            nvml_try(call(device.handle(), &raw mut count, (*infos.as_mut_ptr()).as_mut_ptr()))?;
            infos.assume_init()
        };
        Ok(infos.into_iter().take(count as usize).map(ProcessInfo::from).collect())
    }

    fn read(self, device: &Device<'_>) -> Result<Vec<ProcessInfo>, NvmlError> {
        match self {
            Self::Compute => device.running_compute_processes(),
            Self::Graphics => device.running_graphics_processes(),
            Self::MpsCompute => device.mps_running_compute_processes(),
        }
    }
}

/// GPU and compute instance, where the driver says them.
type Slice = Option<(u32, u32)>;
type Merged = BTreeMap<(u32, Slice), Listed>;

fn patiently<T>(mut read: impl FnMut() -> Result<T, NvmlError>) -> Result<T, NvmlError> {
    let mut result = read();
    for _ in 1..ATTEMPTS {
        if !matches!(result, Err(NvmlError::InsufficientSize(_))) {
            break;
        }
        result = read();
    }
    result
}

/// One process may stand in several lists.
fn enter(merged: &mut Merged, list: List, process: &ProcessInfo) {
    let used = match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
        UsedGpuMemory::Unavailable => None,
    };
    let slice = process.gpu_instance_id.zip(process.compute_instance_id);
    let kind = match list {
        List::Compute => "C",
        List::Graphics => "G",
        List::MpsCompute => "M+C",
    };
    merged
        .entry((process.pid, slice))
        .and_modify(|known| {
            if (known.kind, kind) == ("C", "G") {
                known.kind = "C+G";
            } else if kind == "M+C" {
                known.kind = kind;
            }
            known.used = known.used.max(used);
        })
        .or_insert(Listed { pid: process.pid, kind, used, slice });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, used: UsedGpuMemory) -> ProcessInfo {
        ProcessInfo { pid, used_gpu_memory: used, gpu_instance_id: None, compute_instance_id: None }
    }

    #[test]
    fn a_process_in_two_lists_is_one_row() {
        let mut merged = Merged::new();
        enter(&mut merged, List::Compute, &process(7, UsedGpuMemory::Unavailable));
        enter(&mut merged, List::Graphics, &process(7, UsedGpuMemory::Used(5)));
        enter(&mut merged, List::Graphics, &process(8, UsedGpuMemory::Used(1)));
        enter(&mut merged, List::Compute, &process(9, UsedGpuMemory::Used(2)));
        enter(&mut merged, List::MpsCompute, &process(9, UsedGpuMemory::Used(2)));
        let rows: Vec<_> = merged.values().map(|row| (row.pid, row.kind, row.used)).collect();
        assert_eq!(rows, [(7, "C+G", Some(Bytes(5))), (8, "G", Some(Bytes(1))), (9, "M+C", Some(Bytes(2)))]);
    }

    #[test]
    fn only_a_growing_list_is_asked_again() {
        let mut calls = 0;
        let grown = patiently(|| {
            calls += 1;
            if calls < ATTEMPTS { Err(NvmlError::InsufficientSize(None)) } else { Ok(calls) }
        });
        assert_eq!(grown.ok(), Some(ATTEMPTS));
        calls = 0;
        let refused: Result<(), _> = patiently(|| {
            calls += 1;
            Err(NvmlError::NoPermission)
        });
        assert!(refused.is_err());
        assert_eq!(calls, 1);
    }
}
