//! What readers understood: device tables, step records, out-of-memory messages, snapshots.
//!
//! Missing is `None`, never zero. Every row says where it was read.

use crate::artifact::{ArtifactId, ArtifactInfo, Provenance};
use crate::card::CardName;
use crate::launch::LaunchEvidence;
use crate::live::LiveStateKind;
use crate::phase::PhaseMark;
use crate::probe::ProbeEvidence;
use crate::script::ScriptEvidence;
use crate::subject::{Phase, Quantity, Subject};
use crate::timeline::{MemoryCurve, MemoryTrace, NeverFreed, SegmentMap, SiteBands, SnapshotPeak};
use crate::topology::Topology;
use crate::units::{Bytes, MOST_BYTES, Rank, Step, UnixMicros};
use serde::{Deserialize, Serialize};

/// Everything that was understood of a run's artifacts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// The artifacts; [`ArtifactId`] is the position here.
    pub artifacts: Vec<ArtifactInfo>,
    /// One per reading of a device tool (an `nvidia-smi` table, a row set of a loop, an NVML reading), in order of
    /// appearance.
    #[serde(default)]
    pub device_tables: Vec<DeviceTable>,
    /// One per log line that says memory or batch shape of a rank or device.
    #[serde(default)]
    pub steps: Vec<StepRecord>,
    /// Out-of-memory messages.
    #[serde(default)]
    pub ooms: Vec<OomEvent>,
    /// PyTorch memory snapshots, one per file.
    #[serde(default)]
    pub snapshots: Vec<SnapshotEvidence>,
    /// Memory over time as profilers record it, one per file and device.
    #[serde(default)]
    pub traces: Vec<MemoryTrace>,
    /// Training scripts, one per file.
    #[serde(default)]
    pub scripts: Vec<ScriptEvidence>,
    /// How GPUs are linked, one per printed matrix.
    #[serde(default)]
    pub topologies: Vec<Topology>,
    /// Where logs say that a phase begins or is under way, in the order of each file.
    #[serde(default)]
    pub phases: Vec<PhaseMark>,
    /// How the job was started, one entry per file that says something of it.
    #[serde(default)]
    pub launches: Vec<LaunchEvidence>,
    /// Processes whose probe spoke, in the order of their logs.
    #[serde(default)]
    pub probes: Vec<ProbeEvidence>,
    /// What happened to cards, drivers and ranks while they were watched, in the order of each file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<DeviceEvent>,
    /// Cards whose UUID was printed with their index, each once per file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<CardName>,
    /// Cards whose UUID was printed without an index: the number here is that of their appearance in the file, until
    /// another file tells their index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unnumbered: Vec<CardName>,
}

impl Evidence {
    /// Appends `other` and joins what speaks of the same cards: those that one file names by UUID alone get the indices
    /// that another file tells.
    pub fn merge(&mut self, other: Self) {
        let concerns_cards = !(other.cards.is_empty() && other.unnumbered.is_empty() && other.launches.is_empty());
        self.append(other);
        if concerns_cards {
            self.join_cards();
        }
    }

    /// Appends `other`, renumbering its artifacts. Artifacts that share a name are told apart by a number behind it. Of
    /// many files, [`Self::join_cards`] is called once, behind the last.
    pub fn append(&mut self, mut other: Self) {
        let base = u32::try_from(self.artifacts.len()).unwrap_or(u32::MAX);
        other.shift_artifacts(base);
        for mut info in std::mem::take(&mut other.artifacts) {
            info.name = self.free_name(info.name);
            self.artifacts.push(info);
        }
        join(&mut self.cards, other.cards);
        join(&mut self.unnumbered, other.unnumbered);
        join(&mut self.device_tables, other.device_tables);
        join(&mut self.steps, other.steps);
        join(&mut self.ooms, other.ooms);
        join(&mut self.snapshots, other.snapshots);
        join(&mut self.traces, other.traces);
        join(&mut self.scripts, other.scripts);
        join(&mut self.topologies, other.topologies);
        join(&mut self.phases, other.phases);
        join(&mut self.launches, other.launches);
        join(&mut self.probes, other.probes);
        join(&mut self.events, other.events);
    }

    /// `name`, with a number behind it if an artifact has it already: `nvidia-smi.txt (2)`.
    fn free_name(&self, name: String) -> String {
        let is_free = |name: &str| self.artifacts.iter().all(|info| info.name != name);
        if is_free(&name) {
            return name;
        }
        // The numbers of a name are given in order, so the count of its bearers is nearly always the next free one.
        let bearers = self.artifacts.iter().filter(|info| {
            info.name.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("))
        });
        let mut number = bearers.count();
        loop {
            number = number.saturating_add(1);
            let numbered = format!("{name} ({number})");
            if is_free(&numbered) {
                return numbered;
            }
        }
    }

    /// The artifact's display name, or an empty text for an id that does not exist.
    pub fn artifact_name(&self, id: ArtifactId) -> &str {
        usize::try_from(id.0).ok().and_then(|i| self.artifacts.get(i)).map_or("", |a| a.name.as_str())
    }

    fn shift_artifacts(&mut self, base: u32) {
        let shift = |p: &mut Provenance| p.artifact.0 = p.artifact.0.saturating_add(base);
        for table in &mut self.device_tables {
            shift(&mut table.at);
            table.devices.iter_mut().for_each(|row| shift(&mut row.at));
            table.processes.iter_mut().for_each(|row| shift(&mut row.at));
        }
        self.steps.iter_mut().for_each(|row| shift(&mut row.at));
        self.ooms.iter_mut().for_each(|row| shift(&mut row.at));
        self.snapshots.iter_mut().for_each(|row| shift(&mut row.at));
        self.topologies.iter_mut().for_each(|row| shift(&mut row.at));
        self.traces.iter_mut().for_each(|row| shift(&mut row.at));
        for script in &mut self.scripts {
            shift(&mut script.at);
            script.facts.iter_mut().for_each(|fact| shift(&mut fact.at));
        }
        self.phases.iter_mut().for_each(|mark| shift(&mut mark.at));
        self.cards.iter_mut().for_each(|card| shift(&mut card.at));
        self.unnumbered.iter_mut().for_each(|card| shift(&mut card.at));
        for launch in &mut self.launches {
            shift(&mut launch.at);
            launch.facts.iter_mut().for_each(|fact| shift(&mut fact.at));
        }
        self.events.iter_mut().for_each(|event| shift(&mut event.at));
        for probe in &mut self.probes {
            shift(&mut probe.at);
            probe.facts_at.iter_mut().for_each(shift);
            probe.phases.iter_mut().for_each(|(_, at)| shift(at));
        }
    }
}

/// Appends without a second copy where nothing is there yet: the records of one large file are most of a run.
fn join<T>(all: &mut Vec<T>, mut more: Vec<T>) {
    if all.is_empty() {
        *all = more;
    } else {
        all.append(&mut more);
    }
}

/// A change of state of a card, the driver or a rank, as an agent told it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceEvent {
    /// The line, with its time.
    pub at: Provenance,
    /// The card; `None` where it is about the driver or the node.
    pub subject: Option<Subject>,
    /// What it is from then on.
    pub kind: LiveStateKind,
    /// In a sentence.
    pub text: String,
}

/// One reading of all devices of a node at one instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceTable {
    /// First line of the table.
    pub at: Provenance,
    /// The time as printed (`Wed Dec 16 10:41:07 2020`), which has no zone.
    pub time_text: Option<String>,
    /// The same read as if it were UTC: good for order and distance within one file, not across hosts.
    pub time: Option<UnixMicros>,
    /// Driver version as printed.
    pub driver_version: Option<String>,
    /// CUDA version as printed.
    pub cuda_version: Option<String>,
    /// Device rows, physical GPUs first and then MIG slices, in printed order.
    pub devices: Vec<DeviceRow>,
    /// Process rows in printed order.
    pub processes: Vec<ProcessRow>,
    /// Whether `processes` can be trusted to be the whole list.
    pub listing: ProcessListing,
}

impl DeviceTable {
    /// A table in which nothing was read yet.
    pub fn new(at: Provenance) -> Self {
        Self {
            at,
            time_text: None,
            time: None,
            driver_version: None,
            cuda_version: None,
            devices: Vec::new(),
            processes: Vec::new(),
            listing: ProcessListing::Missing,
        }
    }
}

/// What is known about the completeness of a process list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessListing {
    /// The list was printed with rows.
    Listed,
    /// The tool said that it found none (also what containers print while memory is in use).
    NoneFound,
    /// Rows were printed, but some could not be read or were withheld.
    Partial,
    /// The text ends before the list, or has none.
    Missing,
}

/// One GPU or MIG slice in a [`DeviceTable`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceRow {
    /// The row.
    pub at: Provenance,
    /// [`Subject::Device`] or [`Subject::MigSlice`].
    pub subject: Subject,
    /// Name as printed (may be shortened with `...`).
    pub name: Option<String>,
    /// PCI bus id as printed.
    pub bus_id: Option<String>,
    /// `GPU-…` where known.
    pub uuid: Option<String>,
    /// Used memory of the device.
    pub used: Option<Bytes>,
    /// Capacity.
    pub total: Option<Bytes>,
    /// Utilisation of the SMs in percent.
    pub utilization_percent: Option<u8>,
    /// A display is driven by this device.
    pub display_active: Option<bool>,
    /// MIG is enabled on this device (its totals then are those of all slices).
    pub mig_enabled: Option<bool>,
    /// Memory that the driver keeps for itself; not part of [`Self::used`] where it is printed (driver 510 and later).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Bytes>,
    /// Free memory as printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<Bytes>,
    /// Compute mode as printed: `Default`, `Exclusive_Process`, `Prohibited`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_mode: Option<String>,
    /// ECC is on, which costs capacity on cards with GDDR memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc_enabled: Option<bool>,
}

impl DeviceRow {
    /// A row of which only the place and the card are known.
    pub fn new(at: Provenance, subject: Subject) -> Self {
        Self {
            at,
            subject,
            name: None,
            bus_id: None,
            uuid: None,
            used: None,
            total: None,
            utilization_percent: None,
            display_active: None,
            mig_enabled: None,
            reserved: None,
            free: None,
            compute_mode: None,
            ecc_enabled: None,
        }
    }
}

/// One process on one device in a [`DeviceTable`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// The row.
    pub at: Provenance,
    /// Where it holds memory.
    pub subject: Subject,
    /// PID as the driver sees it (host namespace).
    pub pid: Option<u32>,
    /// `C`, `G`, `C+G`, `M+C` as printed.
    pub kind: Option<String>,
    /// Name as printed (may be shortened from the left).
    pub name: Option<String>,
    /// Its memory there; `None` when the tool printed N/A.
    pub used: Option<Bytes>,
    /// Global rank, where something tells it.
    pub rank: Option<Rank>,
}

impl ProcessRow {
    /// A row of which only the place and the card are known.
    pub fn new(at: Provenance, subject: Subject) -> Self {
        Self { at, subject, pid: None, kind: None, name: None, used: None, rank: None }
    }
}

/// One log line that says something of one rank (or device) at one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The line.
    pub at: Provenance,
    /// Whose figures these are.
    pub subject: Subject,
    /// The step, if printed.
    pub step: Option<Step>,
    /// The phase, if printed or evident.
    pub phase: Option<Phase>,
    /// Shape of the batch's first tensor, outermost dimension first.
    pub batch_shape: Option<Vec<u64>>,
    /// Samples in the batch, if printed.
    pub batch_samples: Option<u64>,
    /// Tokens in the batch, if printed.
    pub batch_tokens: Option<u64>,
    /// Tokens without padding, where both are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_tokens_unpadded: Option<u64>,
    /// Tokens that a router inside the model sent to this rank, if printed (`recv_tokens`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routed_tokens: Option<u64>,
    /// Allocated now.
    pub allocated: Option<Bytes>,
    /// Peak allocated; since start or since the last reset, which the log does not say.
    pub peak_allocated: Option<Bytes>,
    /// Reserved now.
    pub reserved: Option<Bytes>,
    /// Peak reserved.
    pub peak_reserved: Option<Bytes>,
    /// Active now: allocated, and freed blocks that wait for another stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<Bytes>,
    /// Used memory of the device, all processes.
    pub device_used: Option<Bytes>,
}

impl StepRecord {
    /// A record with only its place and subject.
    pub fn new(at: Provenance, subject: Subject) -> Self {
        Self {
            at,
            subject,
            step: None,
            phase: None,
            batch_shape: None,
            batch_samples: None,
            batch_tokens: None,
            batch_tokens_unpadded: None,
            routed_tokens: None,
            allocated: None,
            peak_allocated: None,
            reserved: None,
            peak_reserved: None,
            active: None,
            device_used: None,
        }
    }

    /// Active but not allocated: freed blocks that wait for another stream.
    pub fn waiting(&self) -> Option<Bytes> {
        Some(self.active?.saturating_sub(self.allocated?))
    }

    /// The figure for `quantity`, if this line has it.
    pub fn bytes(&self, quantity: Quantity) -> Option<Bytes> {
        match quantity {
            Quantity::Allocated => self.allocated,
            Quantity::PeakAllocated => self.peak_allocated,
            Quantity::Reserved => self.reserved,
            Quantity::PeakReserved => self.peak_reserved,
            Quantity::Active => self.active,
            Quantity::DeviceUsed => self.device_used,
            _ => None,
        }
    }

    /// Whether it tells any memory.
    pub fn has_memory(&self) -> bool {
        let figures = [self.allocated, self.peak_allocated, self.reserved, self.peak_reserved, self.device_used];
        figures.iter().any(Option::is_some)
    }

    /// Whether it tells anything of a batch.
    pub fn has_batch(&self) -> bool {
        let counts = [self.batch_samples, self.batch_tokens, self.routed_tokens];
        self.batch_shape.is_some() || counts.iter().any(Option::is_some)
    }

    /// Samples: as printed, else the outermost dimension of the batch.
    pub fn samples(&self) -> Option<u64> {
        self.batch_samples.or_else(|| self.batch_shape.as_ref()?.first().copied())
    }

    /// Tokens: as printed, else the product of the batch's shape (padding included).
    pub fn elements(&self) -> Option<u64> {
        self.batch_tokens.or_else(|| {
            let shape = self.batch_shape.as_ref().filter(|s| !s.is_empty())?;
            Some(shape.iter().fold(1u64, |n, d| n.saturating_mul(*d)))
        })
    }
}

/// One out-of-memory message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OomEvent {
    /// Its first line.
    pub at: Provenance,
    /// The grammar it follows (`F3`, `tensorflow_bfc`, `cuda_runtime`, ...; see the reader).
    pub family: String,
    /// The rank that said it, if a prefix or the text tells.
    pub rank: Option<Rank>,
    /// The device index in the message, as that process sees it.
    pub device: Option<u32>,
    /// What was asked of the driver (the segment, not the tensor).
    pub tried: Option<Bytes>,
    /// Capacity of the device.
    pub total: Option<Bytes>,
    /// What the allocator may take of the device (`Limit` of TensorFlow's), where its account stands beside the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bytes>,
    /// Free on the device.
    pub free: Option<Bytes>,
    /// All memory of this process on the device, context included.
    pub this_process: Option<Bytes>,
    /// Allocated by PyTorch.
    pub allocated: Option<Bytes>,
    /// Reserved by PyTorch in total.
    pub reserved: Option<Bytes>,
    /// Reserved but not allocated.
    pub reserved_unallocated: Option<Bytes>,
    /// Other processes that the message lists on the device.
    pub others: Vec<OtherProcess>,
    /// The message is about host memory, not VRAM.
    #[serde(default)]
    pub host_memory: bool,
    /// The Python stack that failed, from the traceback in front of the message: innermost frame first, at most
    /// [`OomEvent::MAX_FRAMES`]. Empty where no traceback was printed. Kernels run behind the program, so for a
    /// failure that is not the caching allocator's own the innermost frames may be a later call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
}

impl OomEvent {
    /// Frames kept of one traceback: deep enough for a training loop inside two frameworks, module calls included.
    pub const MAX_FRAMES: usize = 64;

    /// A message of which only the place and the grammar are known.
    pub fn new(at: Provenance, family: impl Into<String>) -> Self {
        Self {
            at,
            family: family.into(),
            rank: None,
            device: None,
            tried: None,
            total: None,
            limit: None,
            free: None,
            this_process: None,
            allocated: None,
            reserved: None,
            reserved_unallocated: None,
            others: Vec::new(),
            host_memory: false,
            frames: Vec::new(),
        }
    }
}

/// A process that an out-of-memory message lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherProcess {
    /// PID as the driver sees it.
    pub pid: u32,
    /// Its memory on the device.
    pub used: Bytes,
}

/// One PyTorch CUDA memory snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotEvidence {
    /// Offset 0 of the file.
    pub at: Provenance,
    /// From the file name; the format itself does not say.
    pub rank: Option<Rank>,
    /// Versions of torch that write this shape, `2.5 - 2.7`.
    pub torch_versions: String,
    /// One per CUDA device that holds segments or events.
    pub devices: Vec<SnapshotDevice>,
}

/// One device in a snapshot. All bytes are of the moment of the snapshot unless the name says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotDevice {
    /// CUDA ordinal as that process sees it.
    pub device: u32,
    /// Sum of the segments' `total_size`.
    pub reserved: Bytes,
    /// Sum of the segments' `allocated_size`.
    pub allocated: Bytes,
    /// Sum of the segments' `active_size`.
    pub active: Bytes,
    /// Sum of requested bytes over active blocks, where the file has them.
    pub requested: Option<Bytes>,
    /// Free bytes inside segments of private pools (CUDA graphs): not fragmentation.
    pub private_pool_inactive: Bytes,
    /// Number of segments.
    pub segments: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of recorded events.
    pub events: u64,
    /// Segments whose own sums disagree with their blocks.
    pub mismatched_segments: u64,
    /// Largest requested bytes live at any recorded event; `None` without events.
    pub peak_requested_in_window: Option<Bytes>,
    /// Events before the first retained one were lost (ring buffer): a peak there is invisible.
    pub window_truncated: bool,
    /// Live requested bytes over the recorded events, reduced to min and max per bucket.
    pub live: Option<Series>,
    /// Largest live call sites at the moment of the snapshot, biggest first.
    pub top_sites: Vec<CallSite>,
    /// Out-of-memory events in the trace: (event index, requested bytes, free bytes), as recorded; free bytes that are not
    /// recorded are [`u64::MAX`]. What of it can be told: [`SnapshotDevice::last_failure`].
    pub ooms: Vec<(u64, Bytes, Bytes)>,
    /// All quantities over the recorded events; `None` without events.
    #[serde(default)]
    pub curve: Option<MemoryCurve>,
    /// The peak within the recorded events and what was live then; `None` without events.
    #[serde(default)]
    pub peak: Option<SnapshotPeak>,
    /// What was allocated within the recorded events and never freed; `None` without events.
    #[serde(default)]
    pub never_freed: Option<NeverFreed>,
    /// Live bytes by line of code over the recorded events; `None` without events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bands: Option<SiteBands>,
    /// How the segments are filled; `None` where the file lists no blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<SegmentMap>,
}

/// A failure that the allocator of a snapshot recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedFailure {
    /// Index of its event.
    pub event: u64,
    /// What was asked for, where the snapshot tells a size that can be.
    pub tried: Option<Bytes>,
    /// What was free on the device then, where it tells one.
    pub free: Option<Bytes>,
}

impl SnapshotDevice {
    /// The last out-of-memory event: earlier ones were caught. Nobody runs out of memory asking for nothing, so that a size of
    /// 0 is damage, and more than any machine has is none either.
    pub fn last_failure(&self) -> Option<RecordedFailure> {
        let (event, tried, free) = *self.ooms.last()?;
        Some(RecordedFailure {
            event,
            tried: Some(tried).filter(|tried| *tried > Bytes(0) && *tried <= MOST_BYTES),
            free: Some(free).filter(|free| *free <= MOST_BYTES && (*free > Bytes(0) || tried > Bytes(0))),
        })
    }
}

/// Live bytes that one stack allocated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSite {
    /// Innermost frame first; the user's own code near the end. Empty when no stack was recorded.
    pub frames: Vec<Frame>,
    /// Live bytes: rounded sizes, or as requested where the list says so.
    pub bytes: Bytes,
    /// Live blocks.
    pub blocks: u64,
}

impl CallSite {
    /// The innermost frame of the user's own code, see [`Frame::is_library`]; `None` if no frame is.
    pub fn own_frame(&self) -> Option<&Frame> {
        self.frames.iter().find(|frame| !frame.is_library())
    }
}

/// One stack frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Function.
    pub function: String,
    /// File as recorded.
    pub file: String,
    /// 1-based line; 0 for native frames.
    pub line: u32,
}

impl Frame {
    /// Whether this frame is not the user's own code: native, or inside Python's library, an installed package or a
    /// checkout of PyTorch.
    pub fn is_library(&self) -> bool {
        is_library_frame(&self.file, self.line)
    }
}

/// [`Frame::is_library`] of a frame that is not kept as one.
pub fn is_library_frame(file: &str, line: u32) -> bool {
    /// Endings of compiled languages.
    const NATIVE: [&str; 9] = ["c", "cc", "cpp", "cxx", "cu", "cuh", "h", "hpp", "rs"];
    /// Parts of paths that only installed code has. Windows writes backslashes.
    const INSTALLED: [&str; 6] = ["site-packages", "dist-packages", "/lib/python", "/torch/", "\\torch\\", "\\Lib\\"];
    let file = file.trim();
    // `<frozen runpy>`, `<string>`; but `<ipython-input-3-…>` is a cell of the user's notebook.
    let is_made_up = file.starts_with('<') && !file.starts_with("<ipython-input");
    // Frames of the interpreter and of extensions have lines where debug symbols are there.
    let is_native = file.rsplit_once('.').is_some_and(|(_, ending)| NATIVE.contains(&ending));
    line == 0
        || is_native
        || file.is_empty()
        || is_made_up
        || INSTALLED.iter().any(|part| file.contains(part))
        // torch.compile writes the code that it makes there.
        || file.contains("torchinductor_")
}

/// What the x values of a [`Series`] are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeriesAxis {
    /// Training steps.
    Step,
    /// Microseconds since the Unix epoch.
    UnixMicros,
    /// Microseconds since each subject's own recording began: they were not recorded at the same time.
    SinceStart,
    /// Index of the event or row.
    Index,
}

/// Values of one quantity over time, as parallel columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Meaning of `x`.
    pub axis: SeriesAxis,
    /// Ascending.
    pub x: Vec<i64>,
    /// Bytes, same length as `x`.
    pub y: Vec<u64>,
}
