//! `nvidia-smi -q`: what its text and its XML have in common, which is everything but the notation.
//!
//! Takes facts one by one and makes a table of them; knows no line and no element.

use super::sink::{Numbering, Sink};
use super::values;
use crate::clock;
use rankscope_model::{
    ArtifactKind, DeviceRow, DeviceTable, NUMBERED_BY_ORDER, Place, ProcessListing, ProcessRow, Provenance, Subject,
};

/// GPUs, slices or processes in one report beyond this are not real.
const MAX_ROWS: usize = 4096;

/// A fact of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact {
    Timestamp,
    Driver,
    Cuda,
    Attached,
    /// Of the GPU.
    Name,
    Uuid,
    DisplayActive,
    MigCurrent,
    ComputeMode,
    EccCurrent,
    Utilization,
    /// Of the GPU, or of the MIG device that is being read. Never BAR1, which is address space.
    Total,
    Used,
    Free,
    Reserved,
    GpuInstance,
    ComputeInstance,
    /// Of the process.
    ProcessGpuInstance,
    ProcessComputeInstance,
    Pid,
    Kind,
    ProcessName,
    ProcessUsed,
    /// The list of processes is there; its value is `None` or nothing.
    Processes,
}

/// A report being gathered.
pub(super) struct Report {
    table: DeviceTable,
    attached: Option<usize>,
    gpus: usize,
    /// Position of the GPU's row, and of the MIG device's, in the table.
    gpu: Option<usize>,
    slice: Option<Slice>,
    process: Option<Process>,
    listed_gpus: usize,
    /// GPUs whose memory in use is printed, even if as a word in place of a figure.
    gpus_with_memory: usize,
    is_withheld: bool,
    last_line: u64,
}

/// A MIG device, whose ids come before its memory.
struct Slice {
    row: DeviceRow,
    gpu_instance: Option<u32>,
    compute_instance: Option<u32>,
}

/// A process, whose instance ids come before its PID.
struct Process {
    row: ProcessRow,
    gpu_instance: Option<u32>,
    compute_instance: Option<u32>,
    has_pid: bool,
}

impl Report {
    pub(super) fn new(at: Provenance) -> Self {
        Self {
            table: DeviceTable::new(at),
            attached: None,
            gpus: 0,
            gpu: None,
            slice: None,
            process: None,
            listed_gpus: 0,
            gpus_with_memory: 0,
            is_withheld: false,
            last_line: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gpus == 0
    }

    /// A GPU begins. Reports list GPUs in the order of their indices.
    pub(super) fn begin_gpu(&mut self, bus_id: &str, at: Provenance) {
        self.end_gpu();
        if self.table.devices.len() >= MAX_ROWS {
            return;
        }
        let index = u32::try_from(self.gpus).unwrap_or(u32::MAX);
        self.gpus = self.gpus.saturating_add(1);
        self.gpu = Some(self.table.devices.len());
        self.table.devices.push(DeviceRow {
            bus_id: values::word(bus_id),
            ..DeviceRow::new(Provenance { time: self.table.time, ..at }, Subject::Device(index))
        });
    }

    /// A MIG device of the GPU begins.
    pub(super) fn begin_slice(&mut self, at: Provenance) {
        self.end_slice();
        if let Some(gpu) = self.gpu.and_then(|at| self.table.devices.get(at)) {
            let row = DeviceRow::new(Provenance { time: self.table.time, ..at }, gpu.subject);
            self.slice = Some(Slice { row, gpu_instance: None, compute_instance: None });
        }
    }

    pub(super) fn end_slice(&mut self) {
        let Some(Slice { mut row, gpu_instance, compute_instance }) = self.slice.take() else { return };
        let (Some(device), Some(gpu_instance)) = (row.subject.device(), gpu_instance) else { return };
        if self.table.devices.len() < MAX_ROWS {
            let compute_instance = compute_instance.unwrap_or(0);
            row.subject = Subject::MigSlice { device, gpu_instance, compute_instance };
            self.table.devices.push(row);
        }
    }

    /// A process of the GPU begins, or something else ends the one before.
    pub(super) fn end_process(&mut self) {
        let Some(Process { mut row, gpu_instance, compute_instance, has_pid }) = self.process.take() else { return };
        if !has_pid || self.table.processes.len() >= MAX_ROWS {
            return;
        }
        if let (Some(device), Some(gpu_instance), Some(compute_instance)) =
            (row.subject.device(), gpu_instance, compute_instance)
        {
            row.subject = Subject::MigSlice { device, gpu_instance, compute_instance };
        }
        self.is_withheld |= row.pid.is_none();
        self.table.processes.push(row);
    }

    pub(super) fn end_gpu(&mut self) {
        self.end_slice();
        self.end_process();
        self.gpu = None;
    }

    /// Takes a fact.
    pub(super) fn set(&mut self, fact: Fact, value: &str, at: &Provenance) {
        if let Place::Line(line) = at.place {
            self.last_line = line;
        }
        match fact {
            Fact::Timestamp => {
                if let Some(time) = clock::parse(value.trim()) {
                    self.table.time = Some(time);
                    self.table.at.time = Some(time);
                    self.table.time_text = values::word(value);
                }
            }
            Fact::Driver => self.table.driver_version = values::word(value),
            Fact::Cuda => self.table.cuda_version = values::word(value),
            Fact::Attached => self.attached = value.trim().parse().ok(),
            Fact::Total | Fact::Used | Fact::Free | Fact::Reserved => self.set_size(fact, value, at),
            Fact::GpuInstance | Fact::ComputeInstance => {
                if let Some(slice) = &mut self.slice {
                    let id = value.trim().parse().ok();
                    match fact {
                        Fact::GpuInstance => slice.gpu_instance = id,
                        _ => slice.compute_instance = id,
                    }
                }
            }
            Fact::ProcessGpuInstance
            | Fact::ProcessComputeInstance
            | Fact::Pid
            | Fact::Kind
            | Fact::ProcessName
            | Fact::ProcessUsed => self.set_process(fact, value, at),
            Fact::Processes => {
                self.listed_gpus = self.listed_gpus.saturating_add(1);
                self.is_withheld |= values::is_absent(value) && !matches!(value.trim(), "" | "None");
            }
            _ => self.set_gpu(fact, value),
        }
    }

    fn set_gpu(&mut self, fact: Fact, value: &str) {
        let Some(gpu) = self.gpu.and_then(|at| self.table.devices.get_mut(at)) else { return };
        match fact {
            Fact::Name => gpu.name = values::word(value),
            Fact::Uuid => gpu.uuid = values::word(value),
            Fact::DisplayActive => gpu.display_active = values::switch(value),
            Fact::MigCurrent => gpu.mig_enabled = values::switch(value),
            Fact::ComputeMode => gpu.compute_mode = values::word(value),
            Fact::EccCurrent => gpu.ecc_enabled = values::switch(value),
            Fact::Utilization => gpu.utilization_percent = values::percent(value),
            _ => {}
        }
    }

    fn set_size(&mut self, fact: Fact, value: &str, at: &Provenance) {
        if fact == Fact::Used && self.slice.is_none() {
            self.gpus_with_memory = self.gpus_with_memory.saturating_add(1);
        }
        let row = match &mut self.slice {
            Some(slice) => Some(&mut slice.row),
            None => self.gpu.and_then(|at| self.table.devices.get_mut(at)),
        };
        let Some(row) = row else { return };
        let size = values::memory(value, None);
        match fact {
            Fact::Total => row.total = size,
            Fact::Free => row.free = size,
            Fact::Reserved => row.reserved = size,
            _ => {
                row.used = size;
                // The place is the line of the figure that is compared; the name of the GPU is in the row.
                row.at = Provenance { time: self.table.time, ..at.clone() };
            }
        }
    }

    fn set_process(&mut self, fact: Fact, value: &str, at: &Provenance) {
        let begins = match fact {
            Fact::ProcessGpuInstance => true,
            Fact::Pid => self.process.as_ref().is_none_or(|process| process.has_pid),
            _ => false,
        };
        if begins {
            self.end_process();
            let Some(gpu) = self.gpu.and_then(|at| self.table.devices.get(at)) else { return };
            let row = ProcessRow::new(Provenance { time: self.table.time, ..at.clone() }, gpu.subject);
            self.process = Some(Process { row, gpu_instance: None, compute_instance: None, has_pid: false });
        }
        let Some(process) = &mut self.process else { return };
        match fact {
            Fact::ProcessGpuInstance => process.gpu_instance = value.trim().parse().ok(),
            Fact::ProcessComputeInstance => process.compute_instance = value.trim().parse().ok(),
            Fact::Pid => {
                process.has_pid = true;
                process.row.pid = value.trim().parse().ok();
                process.row.at = Provenance { time: self.table.time, ..at.clone() };
            }
            Fact::Kind => process.row.kind = values::word(value),
            Fact::ProcessName => process.row.name = values::word(value),
            _ => process.row.used = values::memory(value, None),
        }
        if let (Place::Line(first) | Place::Lines(first, _), Place::Line(last)) = (process.row.at.place, at.place)
            && last > first
        {
            process.row.at.place = Place::Lines(first, last);
        }
    }

    /// Hands the table on. A report that ends early says so.
    pub(super) fn finish(mut self, sink: &mut Sink<'_>) {
        self.end_gpu();
        if self.is_empty() {
            return;
        }
        let is_whole = self.listed_gpus >= self.gpus;
        self.table.listing = match (self.listed_gpus, self.table.processes.is_empty()) {
            (0, true) => ProcessListing::Missing,
            _ if self.is_withheld || !is_whole => ProcessListing::Partial,
            (_, true) => ProcessListing::NoneFound,
            (_, false) => ProcessListing::Listed,
        };
        let line = super::sink::first_line(&self.table.at);
        let mut numbering = Numbering::Printed;
        if let Some(attached) = self.attached.filter(|attached| *attached != self.gpus) {
            numbering = Numbering::ByOrder;
            sink.warn(format!(
                "line {line}: the report shows {} of {attached} GPUs, so they are {NUMBERED_BY_ORDER}; upload the report \
                 of all GPUs, or the output of `nvidia-smi -L` too",
                self.gpus
            ));
        }
        // Every GPU of a report has the same sections, so one that the last lacks was cut off.
        let lacks = |printed: usize| printed > 0 && printed < self.gpus;
        let missing = match (lacks(self.gpus_with_memory), lacks(self.listed_gpus)) {
            (true, _) => Some("memory"),
            (_, true) => Some("processes"),
            _ => None,
        };
        if let Some(missing) = missing {
            sink.warn(format!(
                "line {}: the report that begins at line {line} ends before the {missing} of its last GPU; upload the \
                 whole report",
                self.last_line
            ));
        }
        // Physical GPUs first.
        self.table.devices.sort_by_key(|row| matches!(row.subject, Subject::MigSlice { .. }));
        sink.push(ArtifactKind::NvidiaSmiQuery, self.table, numbering);
    }
}
