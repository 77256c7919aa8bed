//! Which causes can hold where the ranks are alike. The others make one rank differ from the rest: where none does, there
//! is nothing for them to explain and nothing to mend.
//!
//! Knows what the labels mean (causes.md), no evidence.

use rankscope_model::CauseLabel;

/// The cause may be there on all ranks or cards in the same measure.
pub(crate) fn holds_on_all(label: CauseLabel) -> bool {
    match label {
        // What all processes do to one card, or one of them alone.
        CauseLabel::CtxNoSetDevice
        | CauseLabel::CkptNoMapLocation
        | CauseLabel::HelperThreadOrLibCtx
        | CauseLabel::HardcodedOrDefaultDevice
        | CauseLabel::SingleGpuJobIdleContexts
        | CauseLabel::DataparallelMaster
        | CauseLabel::Rank0Eval
        | CauseLabel::Rank0LoggingOrTrace
        | CauseLabel::Rank0AuxBuffers
        // Unequal shares.
        | CauseLabel::VariableShapeBatches
        | CauseLabel::SamplerMissingOrNoSetEpoch
        | CauseLabel::UnevenBatchSplit
        | CauseLabel::MoeRoutingImbalance
        | CauseLabel::PipelineStageImbalance
        | CauseLabel::EmbeddingTableSharding
        | CauseLabel::ShardedInitAsymmetry => false,
        // Contexts of everybody everywhere, two ranks on each card, gathers on all ranks, other tenants and engines on
        // every card, the allocator's ways, growth, settings.
        CauseLabel::RankGpuMapping
        | CauseLabel::ObjectCollectiveDevice
        | CauseLabel::CtxInWorkerProcesses
        | CauseLabel::CkptStateGather
        | CauseLabel::MetricGatherOnGpu
        | CauseLabel::ColocatedEngineOrDeviceMap
        | CauseLabel::OptimizerOrWrapOrder
        | CauseLabel::AllocatorFragmentation
        | CauseLabel::StreamHeldBlocks
        | CauseLabel::NcclNontorchBuffers
        | CauseLabel::CudnnWorkspace
        | CauseLabel::PerStepLeak
        | CauseLabel::GradAccumOrCkptInconsistent
        | CauseLabel::OtherTenant
        | CauseLabel::ZombieLeftover
        | CauseLabel::HeterogeneousOrDisplayGpu
        | CauseLabel::FrameworkPrealloc
        | CauseLabel::Benign
        | CauseLabel::Unresolved => true,
    }
}
