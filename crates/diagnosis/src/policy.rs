//! Every threshold, prior and weight of the diagnosis, each with the source of its number.
//!
//! Rules read these and hold no numbers of their own. Nothing here looks at evidence.

use rankscope_model::{Bytes, CauseLabel};

/// Thresholds. [`Policy::default`] is what the product ships with; tests and what-if calls may change one.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// A difference below this is noise. 256 MiB: under the usual size of one CUDA context (250 to 600 MiB,
    /// formats.md 5.3) and near the 300 MB that driver and ECC reserves reach (causes.md).
    pub noise: Bytes,
    /// A difference below this share of the median is noise. 2 %: seven stray contexts on an 80 GB card are 4.8 %
    /// and must be seen, while steady ranks of one job differ by 1 % in the reports behind causes.md.
    pub noise_share: f64,
    /// From this share on a difference counts even when it is below [`Policy::noise`]. 10 %: the level at which
    /// published tools begin to notice (formats.md 8).
    pub notice_share: f64,
    /// Smallest difference that [`Policy::notice_share`] may raise. 64 MiB: three allocator segments of 20 MiB.
    pub notice: Bytes,
    /// A device with no listed process is idle below this share of its capacity. 2 %: driver reserve, display
    /// server without clients.
    pub idle_share: f64,
    /// The same where the capacity is not known.
    pub idle: Bytes,
    /// Cards whose capacities differ by less than this share are equal. 5 %: ECC and driver reserve change the
    /// printed total of the same card by about 3 %.
    pub capacity_tolerance: f64,
    /// Largest row that still passes for a bare context: 1.4 GiB, the upper end of what was reported (causes.md).
    pub context_max: Bytes,
    /// Above this a context-size row also holds some tensors (causes.md lists bare contexts up to about 1000 MiB).
    pub context_bare: Bytes,
    /// Smallest size that passes for a context: 150 MiB, the smallest that was reported (causes.md: 153).
    pub context_least: Bytes,
    /// From here on a row is the size of model or optimizer state (causes.md: 1.5 GB).
    pub state_min: Bytes,
    /// A row below this share of the same process's largest row is a visit, not a second home. One half: replicas of
    /// one process hold nearly as much as its master, what strays onto a foreign card far less.
    pub visit_share: f64,
    /// Share of the possible foreign rows (n * (n - 1)) from which every process sits on every card. 0.6 leaves room
    /// for rows that were cut off.
    pub everyone_everywhere: f64,
    /// Used memory that no row accounts for is worth a word above this (causes.md: about 300 MB).
    pub unaccounted_min: Bytes,
    /// Ranks that stay for so long after others of their job have ended are left over, in microseconds.
    pub leftover_after: i64,
    /// Memory of a process outside the allocator is large above this (causes.md: 1.5 GB, well above a context).
    pub outside_pytorch_min: Bytes,
    /// Memory on a card that is neither free nor of the failing process is somebody else's above this, where the
    /// message does not count the process's own context and libraries. 4 GiB: twice the largest context plus what
    /// counts as large outside the allocator.
    pub held_by_others_min: Bytes,
    /// A card is near full from this share of its capacity on. 90 %: less room than the 10 % by which ranks are
    /// allowed to differ.
    pub full_share: f64,
    /// With this share used at 0 % utilisation a framework has taken the whole card (causes.md: 99 %; 95 % leaves
    /// room for the driver's reserve).
    pub prealloc_share: f64,
    /// Cached but not allocated memory is large above this share of reserved. 20 %: the `warn` level of published
    /// tools (formats.md 8).
    pub cached_share: f64,
    /// And above this many bytes: 1 GiB, the largest round-up of one request in the allocator's large pool is far less.
    pub cached_min: Bytes,
    /// Active but not allocated memory is large above this. 512 MiB: more than one batch of one layer.
    pub stream_held_min: Bytes,
    /// Correlation from which peaks follow the input. 0.8: two thirds of the variance.
    pub follow_r: f64,
    /// Pairs of (rank, step) below which a correlation says nothing.
    pub follow_points: usize,
    /// Steps with figures of all ranks from which equal input speaks for the items of stage 2.
    pub even_steps: usize,
    /// Points from which growth can be told from start-up. 8.
    pub growth_points: usize,
    /// Share of the increments that must not fall for steady growth. 0.9.
    pub growth_steady: f64,
    /// Readings that each stretch of a record needs before its lowest tells what is kept between two waves. 3: a step has
    /// a low and a high side, and one reading may fall on the way.
    pub floor_readings: usize,
    /// Growth over the record below this share of the start is drift of the cache, not a leak. 10 %.
    pub growth_share: f64,
    /// Growth that ended is told only if it lasted so long, in microseconds. A minute: loading a model or a checkpoint onto
    /// one card takes less.
    pub growth_lasts: i64,
    /// And once what it reached is held for so long, in microseconds: before that it may only pause between two steps.
    pub held_for: i64,
    /// A gap that was not seen for so long is told with the time when it was there last, in microseconds. A minute: longer
    /// than a step, so that a wave is not taken for an end.
    pub over_after: i64,
    /// Share of a peak that may be left after a spike at the start. Two thirds: what is given back is then more than
    /// what the cache of one more layer or a smaller validation batch would be.
    pub spike_left: f64,
    /// A card this many times above the median is far above. 1.5: half as much again, which neither contexts nor the
    /// jitter of readings between two steps make.
    pub far_above: f64,
    /// Share by which equal ranks may differ when they begin. 0.25: the first batches of different lengths do.
    pub begin_alike: f64,
    /// Jumps to a new plateau that few cards make at a time, from which they tell of input. 4: one or two are what a
    /// save or an evaluation of one rank leaves in its cache.
    pub lone_jumps: usize,
    /// Part of the gap from which a mechanism is said to explain it.
    pub explains_most: f64,
    /// Part of the gap below which a mechanism cannot be its cause.
    pub explains_little: f64,
    /// PIDs within this distance were most likely started together. 64: launchers start all ranks of a node in
    /// a row, with a few threads and helpers between them.
    pub sibling_pids: u32,
    /// Causes below this confidence are not listed.
    pub confidence_floor: f64,
    /// No cause is ever surer than this: the closed set may lack the true one.
    pub confidence_cap: f64,
    /// At most this many causes are listed.
    pub max_causes: usize,
    /// From this (summed over causes with the same mechanism) the headline says `because`.
    pub sure: f64,
    /// From this it says `probably because`.
    pub likely: f64,
    /// From this it says `possibly because`; below, that it is not settled.
    pub leaning: f64,
    /// Points kept per line of the timeline.
    pub timeline_points: usize,
    /// Lines kept in the timeline.
    pub timeline_lines: usize,
    /// References kept with one reason; more would hide the telling ones.
    pub max_refs: usize,
    /// A difference that keeps at least this part of its size after a fix is not fixed at all. 0.7: what is left
    /// explains most of what was there.
    pub remains_share: f64,
    /// Most to fewest tokens at one step up to which ranks count as evenly fed. 1.1: what packing by tokens reaches is
    /// near-equal, not equal (checklist.md).
    pub even_tokens: f64,
    /// A run after the fix with fewer than this share of the steps before may not have reached the moment. One half.
    pub enough_steps: f64,
    /// Ranks that were fed less than this share of the tokens a step before were made lighter, not evened out. 0.8.
    pub same_load: f64,
    /// Causes below this confidence are rivals that nobody acts on; a comparison does not follow them. 0.2: one in five.
    pub followed_cause: f64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            noise: Bytes::from_mib(256),
            noise_share: 0.02,
            notice_share: 0.10,
            notice: Bytes::from_mib(64),
            idle_share: 0.02,
            idle: Bytes::from_mib(256),
            capacity_tolerance: 0.05,
            context_max: Bytes::from_mib(1434),
            context_bare: Bytes::from_mib(1024),
            context_least: Bytes::from_mib(150),
            state_min: Bytes(1_500_000_000),
            visit_share: 0.5,
            everyone_everywhere: 0.6,
            unaccounted_min: Bytes(300_000_000),
            leftover_after: 60_000_000,
            outside_pytorch_min: Bytes(1_500_000_000),
            held_by_others_min: Bytes::from_mib(4096),
            full_share: 0.90,
            prealloc_share: 0.95,
            cached_share: 0.20,
            cached_min: Bytes::from_mib(1024),
            stream_held_min: Bytes::from_mib(512),
            follow_r: 0.8,
            follow_points: 8,
            even_steps: 3,
            growth_points: 8,
            growth_steady: 0.9,
            floor_readings: 3,
            growth_share: 0.10,
            growth_lasts: 60_000_000,
            held_for: 15_000_000,
            over_after: 60_000_000,
            spike_left: 0.67,
            far_above: 1.5,
            begin_alike: 0.25,
            lone_jumps: 4,
            explains_most: 0.7,
            explains_little: 0.1,
            sibling_pids: 64,
            confidence_floor: 0.03,
            confidence_cap: 0.97,
            max_causes: 6,
            sure: 0.75,
            likely: 0.65,
            leaning: 0.45,
            timeline_points: 2000,
            timeline_lines: 1024,
            max_refs: 16,
            remains_share: 0.7,
            even_tokens: 1.1,
            enough_steps: 0.5,
            same_load: 0.8,
            followed_cause: 0.2,
        }
    }
}

impl Policy {
    /// Whether `value` is above `base` by more than noise.
    pub fn differs(&self, value: u64, base: u64) -> bool {
        let gap = value.saturating_sub(base);
        let share = if base == 0 { f64::INFINITY } else { gap as f64 / base as f64 };
        (gap >= self.noise.0 && share >= self.noise_share) || (gap >= self.notice.0 && share >= self.notice_share)
    }
}

/// How much one signal says, as the natural logarithm of a likelihood ratio: how many times more often the signal
/// is seen when the cause holds than when it does not. Five steps are enough: the reports behind causes.md are too
/// few for finer ones.
pub(crate) mod weight {
    /// About 55 : 1. The signal is close to the cause's definition.
    pub const DECISIVE: f64 = 4.0;
    /// About 30 : 1.
    pub const STRONG: f64 = 3.4;
    /// About 7 : 1.
    pub const GOOD: f64 = 2.0;
    /// About 2.7 : 1.
    pub const FAIR: f64 = 1.0;
    /// About 1.3 : 1. Breaks ties.
    pub const FAINT: f64 = 0.3;
}

/// How often a cause was established in the catalogue of about 110 reports (causes.md). Where the list there gives
/// one figure for several labels it is split; A1, A2 and A4, which it leaves out, share what the list leaves of the
/// whole. The thin labels get 1, so that evidence can still lift them.
pub(crate) fn catalogue_count(label: CauseLabel) -> f64 {
    match label {
        CauseLabel::CtxNoSetDevice => 12.0,
        CauseLabel::CkptNoMapLocation => 10.0,
        CauseLabel::DataparallelMaster => 9.0,
        CauseLabel::HardcodedOrDefaultDevice | CauseLabel::VariableShapeBatches => 8.0,
        CauseLabel::HelperThreadOrLibCtx | CauseLabel::RankGpuMapping => 6.0,
        CauseLabel::CkptStateGather | CauseLabel::ZombieLeftover => 5.0,
        CauseLabel::CtxInWorkerProcesses
        | CauseLabel::PerStepLeak
        | CauseLabel::HeterogeneousOrDisplayGpu
        | CauseLabel::MetricGatherOnGpu => 4.0,
        CauseLabel::Rank0Eval
        | CauseLabel::NcclNontorchBuffers
        | CauseLabel::ColocatedEngineOrDeviceMap
        | CauseLabel::OtherTenant => 3.0,
        CauseLabel::Rank0LoggingOrTrace
        | CauseLabel::ShardedInitAsymmetry
        | CauseLabel::PipelineStageImbalance
        | CauseLabel::MoeRoutingImbalance
        | CauseLabel::AllocatorFragmentation
        | CauseLabel::StreamHeldBlocks
        | CauseLabel::CudnnWorkspace
        | CauseLabel::OptimizerOrWrapOrder
        | CauseLabel::SamplerMissingOrNoSetEpoch
        | CauseLabel::FrameworkPrealloc => 2.0,
        CauseLabel::ObjectCollectiveDevice
        | CauseLabel::SingleGpuJobIdleContexts
        | CauseLabel::Rank0AuxBuffers
        | CauseLabel::UnevenBatchSplit
        | CauseLabel::EmbeddingTableSharding
        | CauseLabel::GradAccumOrCkptInconsistent
        | CauseLabel::Benign
        | CauseLabel::Unresolved => 1.0,
    }
}

/// The same for `something else or not to be told`: reports whose thread never settled the cause.
pub(crate) const UNKNOWN_COUNT: f64 = 17.0;

/// From this confidence on the next step is to prove the fix rather than to look further: two to one against all
/// rivals together. Not part of [`Policy`], because the next step is read off a finished diagnosis.
pub(crate) const SETTLED: f64 = 0.66;

/// Names by which an inference or serving engine shows itself in a process list.
pub(crate) const ENGINE_NAMES: &[&str] = &["vllm", "sglang", "tritonserver", "text-generation", "lmdeploy", "ray::"];

/// Names that the driver's tools print when the process behind a row cannot be looked up.
pub(crate) const UNREADABLE_NAMES: &[&str] = &["unknown error", "not found", "[n/a]", "-"];

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::MIB;

    #[test]
    fn noise_needs_bytes_and_share() {
        let policy = Policy::default();
        let mib = |n: u64| n * MIB;
        assert!(!policy.differs(mib(1737), mib(1721)), "one percent of jitter");
        assert!(policy.differs(mib(6504), mib(6004)), "one context on a small job");
        assert!(policy.differs(mib(81052), mib(77309)), "seven contexts on an 80 GB card");
        assert!(!policy.differs(mib(80300), mib(80000)), "300 MiB on 80 GB");
        assert!(policy.differs(mib(600), mib(500)), "a fifth of a small job");
        assert!(!policy.differs(mib(60), mib(11)), "an idle card");
    }

    #[test]
    fn every_label_has_a_prior() {
        for label in CauseLabel::ALL {
            assert!(catalogue_count(*label) >= 1.0);
        }
    }
}
