//! The C functions. Each keeps to `nvml.h`: its structure layouts, its return codes, its way of answering lists.

use crate::level::Level;
use crate::place;
use crate::player::Player;
use crate::scenario::{Device, List, Process, Scenario};
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Return = c_uint;
/// Opaque to callers; here the device's number plus one.
type Handle = *mut c_void;

const SUCCESS: Return = 0;
const UNINITIALIZED: Return = 1;
const INVALID_ARGUMENT: Return = 2;
const NOT_SUPPORTED: Return = 3;
const NOT_FOUND: Return = 6;
const INSUFFICIENT_SIZE: Return = 7;
const TIMEOUT: Return = 10;
const VERSION_MISMATCH: Return = 25;
const UNKNOWN: Return = 999;

/// All ones: a figure that the driver does not have.
const NO_VALUE: c_ulonglong = c_ulonglong::MAX;
const NO_INSTANCE: c_uint = c_uint::MAX;
/// The bit of an Xid in an event's type.
const CRITICAL_XID: c_ulonglong = 8;
/// Size of the structure and version 2, as `NVML_STRUCT_VERSION` makes it.
const MEMORY_V2: c_uint = 0x0200_0028;

#[repr(C)]
struct MemoryV1 {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[repr(C)]
struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[repr(C)]
struct ProcessInfo {
    pid: c_uint,
    used: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[repr(C)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

#[repr(C)]
struct EventData {
    device: Handle,
    kind: c_ulonglong,
    data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[repr(C)]
struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

static PLAYED: Mutex<Option<Player>> = Mutex::new(None);

fn played() -> MutexGuard<'static, Option<Player>> {
    PLAYED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_player(answer: impl FnOnce(&mut Player) -> Return) -> Return {
    let mut played = played();
    let Some(player) = played.as_mut() else { return UNINITIALIZED };
    player.advance();
    if player.dead { UNINITIALIZED } else { answer(player) }
}

fn with_scenario(answer: impl FnOnce(&mut Scenario) -> Return) -> Return {
    with_player(|player| answer(&mut player.scenario))
}

fn with_device(handle: Handle, answer: impl FnOnce(&Device) -> Return) -> Return {
    with_scenario(|scenario| match number(handle).and_then(|number| scenario.devices.get(number)) {
        Some(device) if device.removed => INVALID_ARGUMENT,
        Some(device) if device.code != 0 => device.code,
        Some(device) => answer(device),
        None => INVALID_ARGUMENT,
    })
}

/// A figure that the device has or does not know.
unsafe fn figure<T>(handle: Handle, place: *mut T, which: impl FnOnce(&Device) -> Option<T>) -> Return {
    with_device(handle, |device| match which(device) {
        Some(value) => {
            // SAFETY: as nvml.h asks of the caller.
            unsafe { place.write(value) };
            SUCCESS
        }
        None => NOT_SUPPORTED,
    })
}

/// Answers with what the device uses now.
fn with_used(handle: Handle, answer: impl FnOnce(&Device, u64) -> Return) -> Return {
    with_player(|player| {
        let now = player.now();
        let found = number(handle).and_then(|number| Some((number, player.scenario.devices.get(number)?)));
        match found {
            Some((_, device)) if device.removed => INVALID_ARGUMENT,
            Some((_, device)) if device.code != 0 => device.code,
            Some((number, device)) => answer(device, player.scenario.used(device, number, now)),
            None => INVALID_ARGUMENT,
        }
    })
}

fn number(handle: Handle) -> Option<usize> {
    handle.addr().checked_sub(1)
}

fn handle(number: usize) -> Handle {
    std::ptr::without_provenance_mut(number + 1)
}

/// Writes `text` with its closing zero into a C buffer of `length` bytes.
unsafe fn write_text(text: &str, buffer: *mut c_char, length: c_uint) -> Return {
    if text.len() >= length as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: the caller gives a buffer of that length, and text with its zero fits.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, text.len());
        buffer.add(text.len()).write(0);
    }
    SUCCESS
}

fn fixed_text<const N: usize>(text: &str) -> [c_char; N] {
    let mut buffer = [0; N];
    // Room for the closing zero stays.
    for (slot, byte) in buffer.iter_mut().take(N - 1).zip(text.bytes()) {
        *slot = byte.cast_signed();
    }
    buffer
}

#[unsafe(export_name = "nvmlInit_v2")]
extern "C" fn init() -> Return {
    let Some(folder) = place::folder() else { return UNKNOWN };
    let text = std::fs::read_to_string(folder.join("nvml-stub.conf")).ok();
    let Some(scenario) = text.as_deref().and_then(Scenario::parse) else { return UNKNOWN };
    match Player::begin(scenario, folder) {
        Ok(player) => {
            *played() = Some(player);
            SUCCESS
        }
        Err(code) => code,
    }
}

#[unsafe(export_name = "nvmlShutdown")]
extern "C" fn shutdown() -> Return {
    if played().take().is_some() { SUCCESS } else { UNINITIALIZED }
}

#[unsafe(export_name = "nvmlSystemGetDriverVersion")]
unsafe extern "C" fn driver_version(buffer: *mut c_char, length: c_uint) -> Return {
    // SAFETY: as nvml.h asks of the caller.
    with_scenario(|scenario| unsafe { write_text(&scenario.driver_version, buffer, length) })
}

#[unsafe(export_name = "nvmlSystemGetCudaDriverVersion_v2")]
unsafe extern "C" fn cuda_version(version: *mut c_int) -> Return {
    with_scenario(|scenario| {
        // SAFETY: as nvml.h asks of the caller.
        unsafe { version.write(scenario.cuda_version) };
        SUCCESS
    })
}

#[unsafe(export_name = "nvmlSystemGetProcessName")]
unsafe extern "C" fn process_name(pid: c_uint, buffer: *mut c_char, length: c_uint) -> Return {
    with_scenario(|scenario| {
        if scenario.processes.iter().any(|process| process.pid == pid) {
            // SAFETY: as nvml.h asks of the caller.
            unsafe { write_text("/usr/bin/python3", buffer, length) }
        } else {
            NOT_FOUND
        }
    })
}

#[unsafe(export_name = "nvmlDeviceGetCount_v2")]
unsafe extern "C" fn count(count: *mut c_uint) -> Return {
    with_scenario(|scenario| {
        // SAFETY: as nvml.h asks of the caller.
        unsafe { count.write(c_uint::try_from(scenario.gpus()).unwrap_or(c_uint::MAX)) };
        SUCCESS
    })
}

#[unsafe(export_name = "nvmlDeviceGetHandleByIndex_v2")]
unsafe extern "C" fn handle_by_index(index: c_uint, device: *mut Handle) -> Return {
    with_scenario(|scenario| {
        let index = index as usize;
        match scenario.devices.get(index).filter(|device| device.slice.is_none()) {
            Some(found) if found.code != 0 => found.code,
            Some(_) => {
                // SAFETY: as nvml.h asks of the caller.
                unsafe { device.write(handle(index)) };
                SUCCESS
            }
            None => INVALID_ARGUMENT,
        }
    })
}

#[unsafe(export_name = "nvmlDeviceGetName")]
unsafe extern "C" fn name(device: Handle, buffer: *mut c_char, length: c_uint) -> Return {
    // SAFETY: as nvml.h asks of the caller.
    with_device(device, |device| unsafe { write_text(&device.name, buffer, length) })
}

#[unsafe(export_name = "nvmlDeviceGetUUID")]
unsafe extern "C" fn uuid(device: Handle, buffer: *mut c_char, length: c_uint) -> Return {
    let number = number(device).unwrap_or_default();
    with_device(device, |found| {
        let kind = if found.slice.is_some() { "MIG" } else { "GPU" };
        let text = format!("{kind}-00000000-0000-4000-8000-{number:012}");
        // SAFETY: as nvml.h asks of the caller.
        unsafe { write_text(&text, buffer, length) }
    })
}

#[unsafe(export_name = "nvmlDeviceGetPciInfo_v3")]
unsafe extern "C" fn pci_info(device: Handle, pci: *mut PciInfo) -> Return {
    let number = number(device).unwrap_or_default();
    with_device(device, |found| {
        if found.slice.is_some() {
            return NOT_SUPPORTED;
        }
        let bus = c_uint::try_from(number + 1).unwrap_or(c_uint::MAX);
        let info = PciInfo {
            bus_id_legacy: fixed_text(&format!("0000:{bus:02X}:00.0")),
            domain: 0,
            bus,
            device: 0,
            device_id: 0x20B2_10DE,
            subsystem_id: 0,
            bus_id: fixed_text(&format!("00000000:{bus:02X}:00.0")),
        };
        // SAFETY: as nvml.h asks of the caller.
        unsafe { pci.write(info) };
        SUCCESS
    })
}

/// Total is used and free; used counts the reserve in.
#[unsafe(export_name = "nvmlDeviceGetMemoryInfo")]
unsafe extern "C" fn memory_v1(device: Handle, memory: *mut MemoryV1) -> Return {
    with_used(device, |device, used| {
        let used = used + device.reserved;
        // SAFETY: as nvml.h asks of the caller.
        unsafe { memory.write(MemoryV1 { total: device.total, free: device.total.saturating_sub(used), used }) };
        SUCCESS
    })
}

/// Total is reserved, used and free. The caller must say which structure it gives.
#[unsafe(export_name = "nvmlDeviceGetMemoryInfo_v2")]
unsafe extern "C" fn memory_v2(device: Handle, memory: *mut MemoryV2) -> Return {
    let code = with_scenario(|scenario| scenario.memory_v2_code);
    if code != 0 {
        return code;
    }
    with_used(device, |device, used| {
        // SAFETY: as nvml.h asks of the caller; the version tells that it is this structure.
        unsafe {
            if (*memory).version != MEMORY_V2 {
                return VERSION_MISMATCH;
            }
            let free = device.total.saturating_sub(used + device.reserved);
            memory.write(MemoryV2 { version: MEMORY_V2, total: device.total, reserved: device.reserved, free, used });
        }
        SUCCESS
    })
}

#[unsafe(export_name = "nvmlDeviceGetUtilizationRates")]
unsafe extern "C" fn utilization(device: Handle, rates: *mut Utilization) -> Return {
    // SAFETY: as nvml.h asks of the caller.
    unsafe { figure(device, rates, |device| device.busy.map(|gpu| Utilization { gpu, memory: gpu / 2 })) }
}

/// Milliwatts.
#[unsafe(export_name = "nvmlDeviceGetPowerUsage")]
unsafe extern "C" fn power(device: Handle, power: *mut c_uint) -> Return {
    // SAFETY: as nvml.h asks of the caller.
    unsafe { figure(device, power, |device| device.power.map(|watts| watts * 1000)) }
}

#[unsafe(export_name = "nvmlDeviceGetTemperature")]
unsafe extern "C" fn temperature(device: Handle, sensor: c_uint, degrees: *mut c_uint) -> Return {
    if sensor != 0 {
        return INVALID_ARGUMENT;
    }
    // SAFETY: as nvml.h asks of the caller.
    unsafe { figure(device, degrees, |device| device.temperature) }
}

/// The same for all kinds of clocks.
#[unsafe(export_name = "nvmlDeviceGetClockInfo")]
unsafe extern "C" fn clock(device: Handle, _kind: c_uint, megahertz: *mut c_uint) -> Return {
    // SAFETY: as nvml.h asks of the caller.
    unsafe { figure(device, megahertz, |device| device.clock) }
}

#[unsafe(export_name = "nvmlDeviceGetCurrentClocksThrottleReasons")]
unsafe extern "C" fn throttle(device: Handle, reasons: *mut c_ulonglong) -> Return {
    // SAFETY: as nvml.h asks of the caller.
    unsafe { figure(device, reasons, |device| device.throttle) }
}

#[unsafe(export_name = "nvmlDeviceGetComputeMode")]
unsafe extern "C" fn compute_mode(device: Handle, mode: *mut c_uint) -> Return {
    // SAFETY: as nvml.h asks of the caller.
    unsafe { figure(device, mode, |device| device.compute_mode) }
}

#[unsafe(export_name = "nvmlDeviceGetEccMode")]
unsafe extern "C" fn ecc_mode(device: Handle, current: *mut c_uint, pending: *mut c_uint) -> Return {
    with_device(device, |device| match device.ecc {
        Some(ecc) => {
            // SAFETY: as nvml.h asks of the caller.
            unsafe {
                current.write(ecc.into());
                pending.write(ecc.into());
            }
            SUCCESS
        }
        None => NOT_SUPPORTED,
    })
}

/// There is one set, which knows all devices.
#[unsafe(export_name = "nvmlEventSetCreate")]
unsafe extern "C" fn event_set_create(set: *mut Handle) -> Return {
    with_scenario(|_| {
        // SAFETY: as nvml.h asks of the caller.
        unsafe { set.write(handle(0)) };
        SUCCESS
    })
}

#[unsafe(export_name = "nvmlEventSetFree")]
extern "C" fn event_set_free(_set: Handle) -> Return {
    SUCCESS
}

#[unsafe(export_name = "nvmlDeviceRegisterEvents")]
extern "C" fn register_events(device: Handle, _types: c_ulonglong, _set: Handle) -> Return {
    with_device(device, |_| SUCCESS)
}

/// Never waits: what has not happened yet is a time-out.
#[unsafe(export_name = "nvmlEventSetWait_v2")]
unsafe extern "C" fn event_set_wait(_set: Handle, data: *mut EventData, _timeout: c_uint) -> Return {
    with_player(|player| match player.xids.pop_front() {
        Some((gpu, number)) => {
            let event = EventData {
                device: handle(gpu),
                kind: CRITICAL_XID,
                data: number,
                gpu_instance: NO_INSTANCE,
                compute_instance: NO_INSTANCE,
            };
            // SAFETY: as nvml.h asks of the caller.
            unsafe { data.write(event) };
            SUCCESS
        }
        None => TIMEOUT,
    })
}

#[unsafe(export_name = "nvmlDeviceGetDisplayActive")]
unsafe extern "C" fn display_active(device: Handle, active: *mut c_uint) -> Return {
    with_device(device, |device| {
        // SAFETY: as nvml.h asks of the caller.
        unsafe { active.write(device.display.into()) };
        SUCCESS
    })
}

#[unsafe(export_name = "nvmlDeviceGetMigMode")]
unsafe extern "C" fn mig_mode(device: Handle, current: *mut c_uint, pending: *mut c_uint) -> Return {
    with_device(device, |device| match device.mig {
        Some(mig) => {
            // SAFETY: as nvml.h asks of the caller.
            unsafe {
                current.write(mig.into());
                pending.write(mig.into());
            }
            SUCCESS
        }
        None => NOT_SUPPORTED,
    })
}

/// Seven places, as an A100 has, whether or not slices were made there.
#[unsafe(export_name = "nvmlDeviceGetMaxMigDeviceCount")]
unsafe extern "C" fn mig_places(device: Handle, count: *mut c_uint) -> Return {
    with_device(device, |device| {
        // SAFETY: as nvml.h asks of the caller.
        unsafe { count.write(if device.mig == Some(true) { 7 } else { 0 }) };
        SUCCESS
    })
}

#[unsafe(export_name = "nvmlDeviceGetMigDeviceHandleByIndex")]
unsafe extern "C" fn mig_handle(device: Handle, place: c_uint, slice: *mut Handle) -> Return {
    let parent = number(device);
    with_scenario(|scenario| {
        let mut slices = scenario
            .devices
            .iter()
            .enumerate()
            .filter(|(_, candidate)| !candidate.removed)
            .filter(|(_, candidate)| candidate.slice.is_some_and(|(gpu, ..)| Some(gpu) == parent));
        match slices.nth(place as usize) {
            Some((number, _)) => {
                // SAFETY: as nvml.h asks of the caller.
                unsafe { slice.write(handle(number)) };
                SUCCESS
            }
            None => NOT_FOUND,
        }
    })
}

#[unsafe(export_name = "nvmlDeviceGetGpuInstanceId")]
unsafe extern "C" fn gpu_instance(device: Handle, id: *mut c_uint) -> Return {
    // SAFETY: as nvml.h asks of the caller.
    unsafe { instance(device, id, |(_, gpu_instance, _)| gpu_instance) }
}

#[unsafe(export_name = "nvmlDeviceGetComputeInstanceId")]
unsafe extern "C" fn compute_instance(device: Handle, id: *mut c_uint) -> Return {
    // SAFETY: as nvml.h asks of the caller.
    unsafe { instance(device, id, |(_, _, compute_instance)| compute_instance) }
}

unsafe fn instance(device: Handle, id: *mut c_uint, which: fn((usize, u32, u32)) -> u32) -> Return {
    with_device(device, |device| match device.slice {
        Some(slice) => {
            // SAFETY: as nvml.h asks of the caller.
            unsafe { id.write(which(slice)) };
            SUCCESS
        }
        None => NOT_SUPPORTED,
    })
}

#[unsafe(export_name = "nvmlDeviceGetComputeRunningProcesses_v3")]
unsafe extern "C" fn compute_processes(device: Handle, count: *mut c_uint, infos: *mut ProcessInfo) -> Return {
    // SAFETY: as nvml.h asks of the caller.
    unsafe { processes(device, List::Compute, count, infos) }
}

#[unsafe(export_name = "nvmlDeviceGetGraphicsRunningProcesses_v3")]
unsafe extern "C" fn graphics_processes(device: Handle, count: *mut c_uint, infos: *mut ProcessInfo) -> Return {
    // SAFETY: as nvml.h asks of the caller.
    unsafe { processes(device, List::Graphics, count, infos) }
}

#[unsafe(export_name = "nvmlDeviceGetMPSComputeRunningProcesses_v3")]
unsafe extern "C" fn mps_processes(device: Handle, count: *mut c_uint, infos: *mut ProcessInfo) -> Return {
    // SAFETY: as nvml.h asks of the caller.
    unsafe { processes(device, List::Mps, count, infos) }
}

/// `SUCCESS` with no processes; `INSUFFICIENT_SIZE` with their number when there is not room for all.
unsafe fn processes(device: Handle, list: List, count: *mut c_uint, infos: *mut ProcessInfo) -> Return {
    let code = with_device(device, |_| SUCCESS);
    if code != SUCCESS {
        return code;
    }
    with_player(|player| {
        let now = player.now();
        let scenario = &mut player.scenario;
        let mut running = running(scenario, device, list);
        // SAFETY: as nvml.h asks of the caller.
        let room = unsafe { *count } as usize;
        // New processes appear after the caller has counted them.
        if room > 0 && !running.is_empty() && scenario.grow_times > 0 {
            scenario.grow_times -= 1;
            let gpu = running.first().map_or(0, |process| process.gpu);
            scenario.processes.extend((0..scenario.grow_by).map(|n| Process {
                gpu,
                pid: 900_000 + n + 100 * scenario.grow_times,
                used: Some(Level::default()),
                list,
                slice: None,
            }));
            running = self::running(scenario, device, list);
        }
        // SAFETY: as nvml.h asks of the caller.
        unsafe { count.write(c_uint::try_from(running.len()).unwrap_or(c_uint::MAX)) };
        if running.len() > room {
            return INSUFFICIENT_SIZE;
        }
        for (position, process) in running.iter().enumerate() {
            let (gpu_instance, compute_instance) = process.slice.unwrap_or((NO_INSTANCE, NO_INSTANCE));
            let info = ProcessInfo {
                pid: process.pid,
                used: process.used.map_or(NO_VALUE, |used| used.at(now)),
                gpu_instance,
                compute_instance,
            };
            // SAFETY: the caller says that there is room for `room` structures, which is enough.
            unsafe { infos.add(position).write(info) };
        }
        SUCCESS
    })
}

fn running(scenario: &Scenario, device: Handle, list: List) -> Vec<Process> {
    let Some(asked) = number(device) else { return Vec::new() };
    let of_slice = scenario.devices.get(asked).and_then(|device| device.slice);
    let runs_there = |process: &&Process| match of_slice {
        Some((gpu, gpu_instance, compute_instance)) => {
            process.gpu == gpu && process.slice == Some((gpu_instance, compute_instance))
        }
        None => process.gpu == asked,
    };
    scenario.processes.iter().filter(|process| process.list == list).filter(runs_there).cloned().collect()
}
