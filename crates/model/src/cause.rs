//! The closed set of causes. Meaning and signals of each: `docs/causes.md`.

use crate::checklist::Item;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! causes {
    ($($variant:ident $code:literal $slug:literal $title:literal $item:ident;)*) => {
        /// A cause that the diagnosis may name; its slug is the public label.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum CauseLabel {
            $(
                #[doc = $title]
                #[serde(rename = $slug)]
                $variant,
            )*
        }

        impl CauseLabel {
            /// Every label, in the order of the catalogue.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Short code of the catalogue, `A1`.
            pub fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// Public label, `ctx_no_set_device`.
            pub fn slug(self) -> &'static str {
                match self { $(Self::$variant => $slug,)* }
            }

            /// The claim in a short sentence without a full stop.
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// The checklist item under which it is shown.
            pub fn item(self) -> Item {
                match self { $(Self::$variant => Item::$item,)* }
            }
        }
    };
}

causes! {
    CtxNoSetDevice "A1" "ctx_no_set_device" "Ranks are never bound to their own GPU" DeviceVisibility;
    CkptNoMapLocation "A2" "ckpt_no_map_location" "A checkpoint is loaded onto the GPU it was saved from" DeviceVisibility;
    HelperThreadOrLibCtx "A3" "helper_thread_or_lib_ctx" "A helper thread or library opens a context on GPU 0" DeviceVisibility;
    HardcodedOrDefaultDevice "A4" "hardcoded_or_default_device" "Code names one device for all ranks" DeviceVisibility;
    RankGpuMapping "A5" "rank_gpu_mapping" "Several ranks run on one GPU" DeviceVisibility;
    ObjectCollectiveDevice "A6" "object_collective_device" "Object collectives carry CUDA tensors" DeviceVisibility;
    CtxInWorkerProcesses "A7" "ctx_in_worker_processes" "Loader workers or side processes hold GPU contexts" DeviceVisibility;
    SingleGpuJobIdleContexts "A8" "single_gpu_job_idle_contexts" "The job trains on one GPU and only opens contexts on the others" DeviceVisibility;
    DataparallelMaster "B1" "dataparallel_master" "One DataParallel process gathers on its first GPU" RankOnlyWork;
    Rank0Eval "B2" "rank0_eval" "Evaluation runs on one rank only" RankOnlyWork;
    CkptStateGather "B3" "ckpt_state_gather" "The full state is gathered on one rank when saving" RankOnlyWork;
    Rank0LoggingOrTrace "B4" "rank0_logging_or_trace" "Logging, tracing or sampling runs on one rank only" RankOnlyWork;
    MetricGatherOnGpu "B5" "metric_gather_on_gpu" "Predictions pile up or are gathered on the GPU" RankOnlyWork;
    Rank0AuxBuffers "B6" "rank0_aux_buffers" "A large buffer lives on one rank only" UnsyncedBuffers;
    VariableShapeBatches "C1" "variable_shape_batches" "Ranks get batches of different size" BatchDivisibility;
    SamplerMissingOrNoSetEpoch "C2" "sampler_missing_or_no_set_epoch" "The sampler is missing or never reshuffles" DistributedSampler;
    UnevenBatchSplit "C3" "uneven_batch_split" "The batch does not divide evenly over ranks" BatchDivisibility;
    MoeRoutingImbalance "C4" "moe_routing_imbalance" "Expert ranks receive unequal numbers of tokens" BatchDivisibility;
    PipelineStageImbalance "D1" "pipeline_stage_imbalance" "Pipeline stages hold different amounts" MemoryStats;
    EmbeddingTableSharding "D2" "embedding_table_sharding" "Embedding tables are dealt by count, not by bytes" UnsyncedBuffers;
    ColocatedEngineOrDeviceMap "D3" "colocated_engine_or_device_map" "Another engine of the job shares the GPU" DeviceVisibility;
    OptimizerOrWrapOrder "D4" "optimizer_or_wrap_order" "The optimizer or the wrapping is built in the wrong order" OptimizerState;
    ShardedInitAsymmetry "D5" "sharded_init_asymmetry" "Ranks initialise the sharded model differently" OptimizerState;
    AllocatorFragmentation "E1" "allocator_fragmentation" "The allocator holds memory that it cannot use" MemoryStats;
    StreamHeldBlocks "E2" "stream_held_blocks" "Freed blocks wait for another stream" MemoryStats;
    NcclNontorchBuffers "E3" "nccl_nontorch_buffers" "NCCL or other memory outside PyTorch is large" MemoryStats;
    CudnnWorkspace "E4" "cudnn_workspace" "A library workspace spikes on new shapes" MemoryStats;
    PerStepLeak "F1" "per_step_leak" "Memory grows with every step" MemoryStats;
    GradAccumOrCkptInconsistent "F2" "grad_accum_or_ckpt_inconsistent" "Accumulation or checkpointing differs between ranks" AccumulationCheckpointing;
    OtherTenant "G1" "other_tenant" "A process outside the job uses the GPU" DeviceVisibility;
    ZombieLeftover "G2" "zombie_leftover" "A dead job's process still holds memory" DeviceVisibility;
    HeterogeneousOrDisplayGpu "G3" "heterogeneous_or_display_gpu" "The cards differ, or one drives a display" DeviceVisibility;
    FrameworkPrealloc "G4" "framework_prealloc" "The framework takes the whole card at start" MemoryStats;
    Benign "H1" "benign" "No imbalance worth a finding" Verified;
    Unresolved "U" "unresolved" "The evidence does not settle the cause" Verified;
}

impl fmt::Display for CauseLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.slug())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_label_and_slug_agree() {
        for label in CauseLabel::ALL {
            assert_eq!(serde_json::to_string(label).unwrap(), format!("\"{}\"", label.slug()));
        }
        assert_eq!(CauseLabel::ALL.len(), 35);
    }
}
