//! Evidence built by hand: a table of figures in, an [`Evidence`] with plausible provenance out.

#![allow(dead_code, reason = "every test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::unnecessary_wraps,
    reason = "test data: fails loudly, and reads as the fields do"
)]

use rankscope_ingest::{Limits, read_upload};
use rankscope_model::{
    ArtifactId, ArtifactInfo, ArtifactKind, Bytes, CallSite, CauseLabel, DeviceRow, DeviceTable, Diagnosis, Evidence,
    Frame, Item, ItemStatus, OomEvent, OtherProcess, Place, ProcessListing, ProcessRow, Provenance, Rank,
    SnapshotDevice, SnapshotEvidence, Step, StepRecord, Subject, UnixMicros,
};
use std::io::Cursor;

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
    OomEvent::new(at, "F6")
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

/// A device of a snapshot in which all that is reserved is allocated and active, and nothing was recorded.
pub fn snapshot_device(device: u32, total: Bytes) -> SnapshotDevice {
    SnapshotDevice {
        device,
        reserved: total,
        allocated: total,
        active: total,
        requested: None,
        private_pool_inactive: Bytes(0),
        segments: 1,
        blocks: 1,
        events: 0,
        mismatched_segments: 0,
        peak_requested_in_window: None,
        window_truncated: false,
        live: None,
        top_sites: vec![],
        ooms: vec![],
        curve: None,
        peak: None,
        never_freed: None,
        bands: None,
        map: None,
    }
}

/// A snapshot, the only thing in its file.
pub fn snapshot(file: u32, rank: Option<u32>, devices: Vec<SnapshotDevice>) -> SnapshotEvidence {
    SnapshotEvidence {
        at: Provenance::offset(ArtifactId(file), 0),
        rank: rank.map(Rank),
        torch_versions: "2.5 - 2.7".to_owned(),
        devices,
    }
}

/// The snapshot of a rank that holds so many MiB from each function.
pub fn snapshot_of_sites(rank: u32, sites: &[(&str, u64)]) -> SnapshotEvidence {
    let site = |(function, mib): &(&str, u64)| CallSite {
        frames: vec![Frame { function: (*function).to_owned(), file: "train.py".to_owned(), line: 10 }],
        bytes: Bytes::from_mib(*mib),
        blocks: 3,
    };
    let total = sites.iter().map(|(_, mib)| Bytes::from_mib(*mib)).sum();
    let device = SnapshotDevice { top_sites: sites.iter().map(site).collect(), ..snapshot_device(rank, total) };
    snapshot(rank, Some(rank), vec![device])
}

/// Snapshots, each in a file of its own that is named by `name`.
pub fn snapshot_files(count: u32, name: impl Fn(u32) -> String, of: impl Fn(u32) -> SnapshotEvidence) -> Evidence {
    let files = (0..count).fold(Build::default(), |build, n| build.file(&name(n), ArtifactKind::TorchSnapshot));
    Evidence { snapshots: (0..count).map(of).collect(), ..files.evidence }
}

/// A text read as an upload of that name.
pub fn upload(name: &str, text: &str) -> Evidence {
    read_upload(name, &mut Cursor::new(text.as_bytes()), &Limits::default())
}

/// A training script, valid to the last line.
pub fn script(name: &str, text: &str) -> Evidence {
    let evidence = upload(name, text);
    assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new(), "{name}");
    assert_eq!(evidence.scripts.len(), 1, "{name}");
    evidence
}

/// A DDP script whose start is `start` and whose model goes to `device`.
pub fn ddp(start: &str, device: &str, more: &str) -> Evidence {
    script(
        "train.py",
        &format!(
            "import os\nimport torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel\n\
             from net import Net\n\ndef main():\n    local_rank = int(os.environ['LOCAL_RANK'])\n{start}    model = Net().to({device})\n\
             {more}    model = DistributedDataParallel(model, device_ids=[local_rank])\n\nif __name__ == '__main__':\n    main()\n"
        ),
    )
}

/// Starts of [`ddp`]: bound to a GPU, and not.
pub const BOUND: &str = "    torch.cuda.set_device(local_rank)\n    dist.init_process_group('nccl')\n";
pub const UNBOUND: &str = "    dist.init_process_group('nccl')\n";
/// The rank's own device in [`ddp`].
pub const OWN: &str = "torch.device('cuda', local_rank)";

/// Both, as one upload.
pub fn with(mut evidence: Evidence, more: Evidence) -> Evidence {
    evidence.merge(more);
    evidence
}

/// Confidence of a label; zero where it is not among the causes.
pub fn confidence(diagnosis: &Diagnosis, label: CauseLabel) -> f64 {
    diagnosis.causes.iter().find(|cause| cause.label == label).map_or(0.0, |cause| cause.confidence)
}

/// Status of an item.
pub fn status(diagnosis: &Diagnosis, item: Item) -> ItemStatus {
    diagnosis.checklist.iter().find(|entry| entry.item == item).unwrap().status
}

/// The place of a provenance as a line, for assertions.
pub fn line(at: &Provenance) -> u64 {
    match at.place {
        Place::Line(line) | Place::Lines(line, _) => line,
        Place::Offset(offset) => offset,
    }
}
