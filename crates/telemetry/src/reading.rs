//! One reading of every device of this machine, as evidence.
//!
//! A reading is also written down as text, one line per device and process: that text is the artifact which a report
//! refers to, so that every figure can be looked up.

use crate::devices::{self, Found};
use crate::memory::{self, DeviceMemory};
use crate::nvml::{Nvml, words};
use crate::process_list::{self, Listed, Lists};
use crate::rank::{ProcFs, ProcessIdentity, RankIdentity};
use nvml_wrapper::error::NvmlError;
use rankscope_model::{
    ArtifactId, ArtifactInfo, ArtifactKind, Bytes, DeviceRow, DeviceTable, Evidence, ProcessListing, ProcessRow,
    Provenance, Rank, Subject, UnixMicros, Warning,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest process name asked of the driver, in bytes.
const NAME_BYTES: usize = 256;

/// What the driver said at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The reading written down; the lines that the rows of `table` refer to.
    pub text: String,
    /// The same as rows. Their artifact is [`ArtifactId`] 0.
    pub table: DeviceTable,
    /// What could not be read, in sentences.
    pub warnings: Vec<Warning>,
}

impl Reading {
    /// As evidence with one artifact of this name, whose content is [`Reading::text`].
    pub fn evidence(&self, name: &str) -> Evidence {
        let ranks: BTreeSet<u32> = self.table.processes.iter().filter_map(|row| row.rank).map(|rank| rank.0).collect();
        let devices: BTreeSet<u32> = self.table.devices.iter().filter_map(|row| row.subject.device()).collect();
        Evidence {
            artifacts: vec![ArtifactInfo {
                name: name.to_owned(),
                kind: ArtifactKind::Nvml,
                ranks: ranks.into_iter().collect(),
                devices: devices.into_iter().collect(),
                bytes: u64::try_from(self.text.len()).unwrap_or(u64::MAX),
                warnings: self.warnings.clone(),
            }],
            device_tables: vec![self.table.clone()],
            ..Evidence::default()
        }
    }
}

impl Nvml {
    /// Asks every device once: some tens of microseconds each for memory, some milliseconds each for processes, during
    /// which the driver's lock is held. Ranks come from `processes`.
    pub fn read_once(&self, processes: &ProcFs) -> Reading {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = UnixMicros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX));
        let mut warnings = Vec::new();
        let mut page = Page::default();

        let found = devices::find(self, &mut warnings);
        let handles: Vec<_> = found.iter().map(|device| device.handle.as_ref()).collect();
        let (meaning, memories) = memory::read(self, &handles);
        let driver_version = self.wrapper.sys_driver_version().ok();
        let cuda_version = self.cuda_version();
        let at = page.line(&format!(
            "NVML reading, driver {}, CUDA {}; {}",
            driver_version.as_deref().unwrap_or("not told"),
            cuda_version.as_deref().unwrap_or("not told"),
            meaning.title()
        ));
        let devices: Vec<_> = found
            .iter()
            .zip(memories)
            .map(|(device, memory)| device_row(device, memory, &mut page, &mut warnings))
            .collect();
        let (processes, listing) = self.process_rows(&found, processes, &mut page, &mut warnings);
        let table = DeviceTable {
            at,
            time_text: None,
            time: Some(time),
            driver_version,
            cuda_version,
            devices,
            processes,
            listing,
        };
        Reading { text: page.text, table, warnings }
    }

    /// `12.4` out of the driver's 12040.
    pub(crate) fn cuda_version(&self) -> Option<String> {
        let version = self.wrapper.sys_cuda_driver_version().ok()?;
        let (major, minor) =
            (nvml_wrapper::cuda_driver_version_major(version), nvml_wrapper::cuda_driver_version_minor(version));
        Some(format!("{major}.{minor}"))
    }

    fn process_rows(
        &self,
        found: &[Found<'_>],
        proc: &ProcFs,
        page: &mut Page,
        warnings: &mut Vec<Warning>,
    ) -> (Vec<ProcessRow>, ProcessListing) {
        let mut listed: BTreeMap<(Subject, u32), Listed> = BTreeMap::new();
        let (mut answered, mut lacking) = (false, false);
        for device in found {
            let Some(handle) = &device.handle else { continue };
            let (processes, failure) = process_list::read(self, handle, Lists::All);
            answered |= failure.is_none() || !processes.is_empty();
            if let Some(error) = failure {
                lacking = true;
                warnings.push(format!("The processes of {} cannot be listed: {}.", device.subject, words(&error)));
            }
            for process in processes {
                // The parent of slices lists their processes too; both ways they are the slice's.
                listed.entry((place(device.subject, process.slice), process.pid)).or_insert(process);
            }
        }

        let pids: BTreeSet<u32> = listed.values().map(|process| process.pid).collect();
        let identities: BTreeMap<u32, ProcessIdentity> =
            pids.into_iter().map(|pid| (pid, proc.rank_of_process(pid))).collect();
        let contested = contested_ranks(&identities);
        for (rank, pids) in &contested {
            let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
            warnings.push(format!(
                "Processes {} all say that they are {rank} (two jobs, or one task that starts several workers); their \
                 ranks are left open.",
                pids.join(", ")
            ));
        }

        let rows: Vec<_> = listed
            .iter()
            .map(|((subject, pid), process)| {
                let identity = identities.get(pid).unwrap_or(&ProcessIdentity::Gone);
                self.process_row(*subject, process, identity, &contested, proc, page)
            })
            .collect();
        let withheld = rows.iter().any(|row| row.used.is_none());
        let listing = match (answered, lacking || withheld, rows.is_empty()) {
            (false, ..) => ProcessListing::Missing,
            (true, true, _) => ProcessListing::Partial,
            (true, false, true) => ProcessListing::NoneFound,
            (true, false, false) => ProcessListing::Listed,
        };
        (rows, listing)
    }

    fn process_row(
        &self,
        subject: Subject,
        process: &Listed,
        identity: &ProcessIdentity,
        contested: &BTreeMap<Rank, Vec<u32>>,
        proc: &ProcFs,
        page: &mut Page,
    ) -> ProcessRow {
        let pid = process.pid;
        let name = self.wrapper.sys_process_name(pid, NAME_BYTES).ok().filter(|name| !name.is_empty());
        let name = name.or_else(|| proc.name(pid));
        let mut line = format!("process {pid} on {subject}, {}", process.kind);
        // Writing to a String does not fail.
        let _ = write!(line, ", {}", name.as_deref().unwrap_or("name not told"));
        let _ = match process.used {
            Some(used) => write!(line, ", {}", mebibytes(used)),
            None => write!(line, ", memory not told"),
        };
        let rank = match identity {
            ProcessIdentity::Ranked(RankIdentity { rank, helper_of: Some(parent), .. }) => {
                let _ = write!(line, ", helper of process {parent} ({rank})");
                None
            }
            ProcessIdentity::Ranked(identity) if contested.contains_key(&identity.rank) => {
                let _ = write!(line, ", {}={} (contested)", identity.variable, identity.rank.0);
                None
            }
            ProcessIdentity::Ranked(identity) => {
                let _ = write!(line, ", {} ({})", identity.rank, identity.variable);
                Some(identity.rank)
            }
            ProcessIdentity::Unranked => {
                let _ = write!(line, ", no rank in its environment");
                None
            }
            ProcessIdentity::NoPermission => {
                let _ = write!(line, ", environment not readable");
                None
            }
            ProcessIdentity::Gone => {
                let _ = write!(line, ", not in this PID namespace");
                None
            }
        };
        let at = page.line(&line);
        ProcessRow { at, subject, pid: Some(pid), kind: Some(process.kind.to_owned()), name, used: process.used, rank }
    }
}

fn device_row(
    device: &Found<'_>,
    memory: Result<DeviceMemory, NvmlError>,
    page: &mut Page,
    warnings: &mut Vec<Warning>,
) -> DeviceRow {
    let subject = device.subject;
    let handle = device.handle.as_ref();
    let name = handle.and_then(|device| device.name().ok());
    let uuid = handle.and_then(|device| device.uuid().ok());
    let bus_id = handle.and_then(|device| device.pci_info().ok()).map(|pci| pci.bus_id);
    let utilization_percent = handle
        .and_then(|device| device.utilization_rates().ok())
        .and_then(|rates| u8::try_from(rates.gpu).ok())
        .filter(|percent| *percent <= 100);
    let display_active = handle.and_then(|device| device.is_display_active().ok());
    let memory = memory
        .inspect_err(|error| {
            // A device without a handle has been complained of already.
            if handle.is_some() {
                warnings.push(format!("The memory of {subject} cannot be read: {}.", words(error)));
            }
        })
        .ok();

    let mut line = format!("{subject}, {}", name.as_deref().unwrap_or("name not told"));
    // Writing to a String does not fail.
    for text in [&uuid, &bus_id].into_iter().flatten() {
        let _ = write!(line, ", {text}");
    }
    let _ = match memory {
        Some(DeviceMemory { used, total, .. }) => {
            write!(line, ", used {} of {}", mebibytes(used), mebibytes(total))
        }
        None => write!(line, ", memory not told"),
    };
    if let Some(percent) = utilization_percent {
        let _ = write!(line, ", busy {percent} %");
    }
    if display_active == Some(true) {
        line.push_str(", drives a display");
    }
    if device.mig_enabled == Some(true) {
        line.push_str(", MIG on");
    }
    DeviceRow {
        name,
        bus_id,
        uuid,
        used: memory.map(|memory| memory.used),
        total: memory.map(|memory| memory.total),
        utilization_percent,
        display_active,
        mig_enabled: device.mig_enabled,
        ..DeviceRow::new(page.line(&line), subject)
    }
}

/// Where a process that `subject` lists holds its memory.
pub(crate) fn place(subject: Subject, slice: Option<(u32, u32)>) -> Subject {
    match (subject, slice) {
        (Subject::Device(device), Some((gpu_instance, compute_instance))) => {
            Subject::MigSlice { device, gpu_instance, compute_instance }
        }
        _ => subject,
    }
}

/// Ranks that several processes claim, helpers aside. None of them can be believed.
fn contested_ranks(identities: &BTreeMap<u32, ProcessIdentity>) -> BTreeMap<Rank, Vec<u32>> {
    let mut claims: BTreeMap<Rank, Vec<u32>> = BTreeMap::new();
    for (pid, identity) in identities {
        if let ProcessIdentity::Ranked(RankIdentity { rank, helper_of: None, .. }) = identity {
            claims.entry(*rank).or_default().push(*pid);
        }
    }
    claims.retain(|_, pids| pids.len() > 1);
    claims
}

/// Exact enough to compare with `nvidia-smi`, which prints whole MiB.
fn mebibytes(bytes: Bytes) -> String {
    format!("{} MiB", bytes.0 / rankscope_model::MIB)
}

/// The text being written, with the number of its last line.
#[derive(Default)]
struct Page {
    text: String,
    lines: u64,
}

impl Page {
    fn line(&mut self, text: &str) -> Provenance {
        // Names are foreign text: a line must stay one line.
        let text: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        self.lines += 1;
        self.text.push_str(&text);
        self.text.push('\n');
        Provenance::line(ArtifactId(0), self.lines, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_line_breaks_stays_on_its_line() {
        let mut page = Page::default();
        page.line("process 1, a\nb");
        let at = page.line("second");
        assert_eq!(page.text.lines().count(), 2);
        assert_eq!(at.place, rankscope_model::Place::Line(2));
    }

    #[test]
    fn a_process_listed_by_the_parent_is_on_its_slice() {
        let slice = Subject::MigSlice { device: 1, gpu_instance: 2, compute_instance: 0 };
        assert_eq!(place(Subject::Device(1), Some((2, 0))), slice);
        assert_eq!(place(Subject::Device(1), None), Subject::Device(1));
        assert_eq!(place(slice, Some((2, 0))), slice);
    }
}
