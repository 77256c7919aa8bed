//! The four-stage checklist and its closing proof. Meaning of each item: `docs/checklist.md`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A stage of the checklist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// 1: devices, processes, process group.
    Environment,
    /// 2: samplers and batches.
    Data,
    /// 3: optimizer, buffers, work on one rank.
    Model,
    /// 4: allocator, accumulation, checkpointing.
    Profiling,
    /// Closing step: the fix is proven.
    Verify,
}

impl Stage {
    /// In order.
    pub const ALL: &'static [Self] = &[Self::Environment, Self::Data, Self::Model, Self::Profiling, Self::Verify];

    /// The number in the diagnosis JSON, 1 to 4. The closing proof is not a stage of its own there: it closes
    /// stage 4.
    pub fn number(self) -> u8 {
        match self {
            Self::Environment => 1,
            Self::Data => 2,
            Self::Model => 3,
            Self::Profiling | Self::Verify => 4,
        }
    }

    /// Part of the address of its page.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Data => "data",
            Self::Model => "model",
            Self::Profiling => "profiling",
            Self::Verify => "verify",
        }
    }

    /// The stage with this slug, or this number (`5` for the closing step).
    pub fn from_slug(slug: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .zip(1..)
            .find(|(stage, n)| stage.slug() == slug || n.to_string() == slug)
            .map(|(stage, _)| *stage)
    }

    /// Heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Environment => "Environment",
            Self::Data => "Data",
            Self::Model => "Model and code",
            Self::Profiling => "Profiling",
            Self::Verify => "Verify",
        }
    }
}

macro_rules! items {
    ($($variant:ident $slug:literal $stage:ident $title:literal $short:literal;)*) => {
        /// A checklist item; its slug is public.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[allow(clippy::doc_markdown)] // The titles are words for readers.
        pub enum Item {
            $(#[doc = $title] $variant,)*
        }

        impl Item {
            /// Every item, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Public slug.
            pub fn slug(self) -> &'static str {
                match self { $(Self::$variant => $slug,)* }
            }

            /// The item with this slug.
            pub fn from_slug(slug: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|item| item.slug() == slug)
            }

            /// The stage it belongs to.
            pub fn stage(self) -> Stage {
                match self { $(Self::$variant => Stage::$stage,)* }
            }

            /// The full statement that is checked.
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// A few words for narrow places.
            pub fn short_title(self) -> &'static str {
                match self { $(Self::$variant => $short,)* }
            }
        }
    };
}

items! {
    DeviceVisibility "device_visibility" Environment "Every rank sees its GPUs and is bound to one of its own" "GPU visibility and binding";
    DistributedInit "distributed_init" Environment "init_process_group comes first" "init_process_group first";
    DistributedSampler "distributed_sampler" Data "Each rank draws its own shard" "Every rank its own shard";
    BatchDivisibility "batch_divisibility" Data "Batches divide evenly, in samples and in tokens" "Even samples and tokens";
    OptimizerState "optimizer_state" Model "Optimizer state is where it should be" "Optimizer state";
    UnsyncedBuffers "unsynced_buffers" Model "No big buffer lives on one rank only" "Buffers on one rank";
    RankOnlyWork "rank_only_work" Model "No rank carries evaluation, gathering or saving alone on its GPU" "Work on one rank only";
    MemoryStats "memory_stats" Profiling "Active, cached or outside the allocator?" "Active or cached";
    AccumulationCheckpointing "accumulation_checkpointing" Profiling "Gradient accumulation and checkpointing agree on all ranks" "Accumulation, checkpointing";
    Verified "verified" Verify "The fix is proven" "Fix proven";
}

/// What the machine can say of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    /// The evidence shows that it does not hold.
    Fail,
    /// The evidence points that way but does not settle it.
    Suspect,
    /// The evidence speaks for it. Never given for lack of evidence.
    Pass,
    /// No evidence; `collect` says what would decide.
    Unknown,
    /// Cannot apply to this job.
    NotApplicable,
}

impl ItemStatus {
    /// One or two words for readers.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Suspect => "suspect",
            Self::Pass => "pass",
            Self::Unknown => "unknown",
            Self::NotApplicable => "does not apply",
        }
    }
}

impl fmt::Display for ItemStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_slug_and_slug_agree_and_stages_ascend() {
        for item in Item::ALL {
            assert_eq!(serde_json::to_string(item).unwrap(), format!("\"{}\"", item.slug()));
        }
        assert!(Item::ALL.is_sorted_by_key(|item| item.stage()));
        assert_eq!(Item::ALL.len(), 10);
        for item in Item::ALL {
            assert_eq!(Item::from_slug(item.slug()), Some(*item));
        }
        assert_eq!(Item::from_slug("x"), None);
        assert_eq!(Stage::from_slug("verify"), Some(Stage::Verify));
        assert_eq!(Stage::from_slug("2"), Some(Stage::Data));
        assert_eq!(Stage::from_slug("0"), None);
    }
}
