//! Evidence built by hand: a table of figures in, an [`Evidence`] with plausible provenance out.

#![allow(dead_code, reason = "every test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::unnecessary_wraps,
    reason = "test data: fails loudly, and reads as the fields do"
)]

use rankscope_model::{
    ArtifactId, ArtifactInfo, ArtifactKind, Bytes, DeviceRow, DeviceTable, Evidence, OomEvent, OtherProcess, Place,
    ProcessListing, ProcessRow, Provenance, Rank, Step, StepRecord, Subject, UnixMicros,
};

/// Evidence under construction.
#[derive(Default)]
pub struct Build {
    pub evidence: Evidence,
    line: u64,
}

/// `(gpu, used MiB, total MiB, utilisation)`.
pub type Card = (u32, u64, u64, u8);
/// `(gpu, pid, name, used MiB)`.
pub type Row<'a> = (u32, u32, &'a str, u64);

impl Build {
    /// Starts a file.
    pub fn file(mut self, name: &str, kind: ArtifactKind) -> Self {
        self.line = 0;
        self.evidence.artifacts.push(ArtifactInfo {
            name: name.to_owned(),
            kind,
            ranks: vec![],
            devices: vec![],
            bytes: 1000,
            warnings: vec![],
        });
        self
    }

    fn at(&mut self, text: &str) -> Provenance {
        self.line += 1;
        let last = u32::try_from(self.evidence.artifacts.len()).unwrap() - 1;
        Provenance::line(ArtifactId(last), self.line, text)
    }

    /// A table in the current file. Rows of type `G` have a name that starts with `/usr/`.
    pub fn table(mut self, seconds: Option<i64>, cards: &[Card], rows: &[Row]) -> Self {
        let at = self.at("| NVIDIA-SMI 460.32 |");
        let devices = cards
            .iter()
            .map(|(gpu, used, total, util)| DeviceRow {
                name: Some("Tesla V100".to_owned()),
                used: Some(Bytes::from_mib(*used)),
                total: Some(Bytes::from_mib(*total)),
                utilization_percent: Some(*util),
                display_active: Some(false),
                ..DeviceRow::new(
                    self.at(&format!("|   {gpu}  | {used}MiB / {total}MiB | {util}% |")),
                    Subject::Device(*gpu),
                )
            })
            .collect();
        let processes: Vec<ProcessRow> = rows
            .iter()
            .map(|(gpu, pid, name, used)| ProcessRow {
                at: self.at(&format!("|    {gpu}   {pid}      C   {name}   {used}MiB |")),
                subject: Subject::Device(*gpu),
                pid: Some(*pid),
                kind: Some(if name.starts_with("/usr/") { "G" } else { "C" }.to_owned()),
                name: Some((*name).to_owned()),
                used: Some(Bytes::from_mib(*used)),
                rank: None,
            })
            .collect();
        let listing = if processes.is_empty() { ProcessListing::NoneFound } else { ProcessListing::Listed };
        self.evidence.device_tables.push(DeviceTable {
            at,
            time_text: seconds.map(|s| format!("Wed Dec 16 10:{:02}:{:02} 2020", s / 60 % 60, s % 60)),
            time: seconds.map(|s| UnixMicros(1_608_115_200_000_000 + s * 1_000_000)),
            driver_version: None,
            cuda_version: None,
            devices,
            processes,
            listing,
        });
        self
    }

    /// A step line; `edit` fills it.
    pub fn step(mut self, rank: u32, step: Option<u64>, edit: impl FnOnce(&mut StepRecord)) -> Self {
        let at = self.at(&format!("rank={rank} step={step:?}"));
        let mut record = StepRecord { step: step.map(Step), ..StepRecord::new(at, Subject::Rank(Rank(rank))) };
        edit(&mut record);
        self.evidence.steps.push(record);
        self
    }

    /// An out-of-memory message; `edit` fills it.
    pub fn oom(mut self, edit: impl FnOnce(&mut OomEvent)) -> Self {
        let at = self.at("CUDA out of memory.");
        let mut oom = empty_oom(at);
        edit(&mut oom);
        self.evidence.ooms.push(oom);
        self
    }
}

/// A message that says nothing but that memory ran out.
pub fn empty_oom(at: Provenance) -> OomEvent {
    OomEvent {
        at,
        family: "F6".to_owned(),
        rank: None,
        device: None,
        tried: None,
        total: None,
        free: None,
        this_process: None,
        allocated: None,
        reserved: None,
        reserved_unallocated: None,
        others: vec![],
        host_memory: false,
        frames: vec![],
    }
}

/// Processes listed beside the failing one.
pub fn others(list: &[(u32, u64)]) -> Vec<OtherProcess> {
    list.iter().map(|(pid, mib)| OtherProcess { pid: *pid, used: Bytes::from_mib(*mib) }).collect()
}

pub fn mib(n: u64) -> Option<Bytes> {
    Some(Bytes::from_mib(n))
}

/// Eight V100, one process each, and seven contexts on GPU 0.
pub fn stray_contexts() -> Evidence {
    let mut cards = vec![(0, 32268, 32510, 90)];
    let mut rows = vec![(0, 30412, "/opt/conda/bin/python", 26167)];
    let pid = |gpu: u32| 30412 + 3 * gpu;
    rows.extend((1..8).map(|gpu| (0, pid(gpu), "/opt/conda/bin/python", 871)));
    for gpu in 1..8 {
        cards.push((gpu, 25990 + u64::from(gpu) * 5, 32510, 95));
        rows.push((gpu, pid(gpu), "/opt/conda/bin/python", 25986 + u64::from(gpu) * 5));
    }
    Build::default().file("nvidia-smi.txt", ArtifactKind::NvidiaSmi).table(Some(41 * 60), &cards, &rows).evidence
}

/// The place of a provenance as a line, for assertions.
pub fn line(at: &Provenance) -> u64 {
    match at.place {
        Place::Line(line) | Place::Lines(line, _) => line,
        Place::Offset(offset) => offset,
    }
}
