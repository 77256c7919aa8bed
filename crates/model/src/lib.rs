//! The words of Rankscope as plain serde types.
//!
//! Everything above speaks in these: readers fill an [`Evidence`], the diagnosis turns it into a
//! [`Diagnosis`] and [`Figures`], and a [`Report`] is both, frozen at a moment. This crate does no I/O, knows no
//! format, no rule and no page, and compiles to wasm.

mod artifact;
mod card;
mod cause;
mod checklist;
mod comparison;
mod diagnosis;
mod evidence;
mod facts;
mod figures;
mod launch;
mod live;
mod median;
mod node_status;
mod note;
mod phase;
mod pool;
mod probe;
mod report;
mod script;
mod subject;
mod timeline;
mod topology;
mod units;

pub use artifact::{ArtifactId, ArtifactInfo, ArtifactKind, EvidenceRef, Place, Provenance, Warning};
pub use card::{CardName, NUMBERED_BY_ORDER};
pub use cause::CauseLabel;
pub use checklist::{Item, ItemStatus, Stage};
pub use comparison::{
    COMPARISON_FORMAT, CauseFate, ComparedCause, ComparedInput, ComparedPhase, ComparedRow, Comparison, Doubt, Outcome,
    SpreadFigures,
};
pub use diagnosis::{
    Cause, ChecklistEntry, Collect, DIAGNOSIS_FORMAT, Diagnosis, Finding, Imbalance, OpensAt, RunEvent, Severity,
    Verdict,
};
pub use evidence::{
    CallSite, DeviceEvent, DeviceRow, DeviceTable, Evidence, Frame, OomEvent, OtherProcess, ProcessListing, ProcessRow,
    RecordedFailure, Series, SeriesAxis, SnapshotDevice, SnapshotEvidence, StepRecord, is_library_frame,
};
pub use facts::{CardFacts, InputFacts, Moment, PhasePeaks, RankInput, RunFacts};
pub use figures::{
    Composition, Figures, Part, PartKind, PeakBar, Peaks, PhaseSpan, Scatter, ScatterCloud, ScatterFit, Timeline,
    TimelineLine, TimelineMark,
};
pub use launch::{LaunchEvidence, LaunchFact, LaunchSetting, LaunchSource, Starter};
pub use live::{
    Acknowledged, LIVE_FORMAT, LiveBatch, LiveColumn, LiveDevice, LiveDeviceHealth, LiveDropped, LiveHealth, LiveLine,
    LiveMemory, LiveNode, LiveProcess, LiveProcesses, LiveRank, LiveRecord, LiveState, LiveStateKind,
};
pub use median::lower_median;
pub use node_status::{DeviceStatus, LiveRunRef, NodeStatus, ProcessRole, ProcessStatus, RunStanding, Silence};
pub use note::{ItemNote, OwnStatus};
pub use phase::PhaseMark;
pub use probe::{
    PROBE_FORMAT, ProbeBatch, ProbeDevice, ProbeEnd, ProbeEvidence, ProbeFacts, ProbeGroup, ProbeLine, ProbeLoader,
    ProbeMemory, ProbeModule, ProbeOom, ProbeOptimizer, ProbeParameters, ProbePhase, ProbeRecord, ProbeSampler,
    ProbeSnapshot, ProbeStart, ProbeStep, ProbeTensor, ProbeTensors, ProbeWrapper,
};
pub use report::{Report, RunInfo, RunSummary, ShareInfo};
pub use script::{
    CopyPlace, DeviceClass, DeviceExpr, Fact, FactKind, Flow, FlowProcess, Framework, Guard, GuardKind, Kept, Launcher,
    LoaderRole, LoopKind, MapLocation, RankWork, SamplerUse, ScriptEvidence, ScriptFact, SetDeviceHow,
};
pub use subject::{Phase, Quantity, Subject};
pub use timeline::{
    Band, CategoryBytes, MemoryCategory, MemoryCurve, MemoryTrace, NeverFreed, SegmentFill, SegmentMap, SiteBand,
    SiteBands, SnapshotPeak, TracePeak, TraceSource,
};
pub use topology::{GpuLink, LinkKind, Topology, TopologyGpu};
pub use units::{Bytes, GIB, KIB, MIB, MOST_BYTES, Rank, Step, UnixMicros};
