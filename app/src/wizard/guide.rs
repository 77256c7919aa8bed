//! The words of the wizard: what each stage asks, what each item means and why it matters. All of them stand here.

use rankscope_model::{Item, Stage};

/// A stage as a question, and how it is answered.
pub struct StageGuide {
    /// The heading.
    pub question: &'static str,
    /// One or two sentences.
    pub how: &'static str,
}

/// The words of a stage.
pub fn stage(stage: Stage) -> StageGuide {
    match stage {
        Stage::Environment => StageGuide {
            question: "Does every rank have a GPU of its own?",
            how: "A process on the wrong card, or a context on a second one, is the most frequent cause and the cheapest to see: one table of processes shows it.",
        },
        Stage::Data => StageGuide {
            question: "Is every rank fed alike?",
            how: "Equal sample counts are not equal work: padding makes the batch with the longest sample larger, and the rank that draws it peaks alone.",
        },
        Stage::Model => StageGuide {
            question: "Does every rank hold the same, and do the same?",
            how: "Evaluation, gathering, saving and buffers on one rank sit on top of its training peak. They look like uneven input and are mended differently.",
        },
        Stage::Profiling => StageGuide {
            question: "Where in the allocator does the difference sit?",
            how: "Active, cached and outside PyTorch are three different problems. Separate them before changing a setting.",
        },
        Stage::Verify => StageGuide {
            question: "Is the fix proven?",
            how: "A second run beside the first: the same shapes and tokens on every rank, peaks that meet on all ranks, in training and in validation.",
        },
    }
}

/// The words of an item.
pub struct ItemGuide {
    /// What is checked.
    pub means: &'static str,
    /// What goes wrong if it does not hold.
    pub matters: &'static str,
    /// When it cannot apply to a job.
    pub not_applicable: &'static str,
}

/// The words of an item.
pub fn item(item: Item) -> ItemGuide {
    match item {
        Item::DeviceVisibility => ItemGuide {
            means: "Each process sees the GPUs that it should, and is bound to exactly one of them before it touches CUDA.",
            matters: "A process that is not bound opens a context on GPU 0 beside its own: 250 to 1400 MiB for each rank, all on one card. A checkpoint loaded without map_location, several ranks on one GPU and another tenant show in the same table.",
            not_applicable: "The evidence is of one process on one GPU.",
        },
        Item::DistributedInit => ItemGuide {
            means: "The process is bound and init_process_group is called before the model moves and before any data is touched.",
            matters: "Work before the process group runs on every rank with the default device, which is GPU 0. What it allocates there stays for the whole run.",
            not_applicable: "The job starts no process group.",
        },
        Item::DistributedSampler => ItemGuide {
            means: "A DistributedSampler reaches the loader, is reshuffled with set_epoch, and the loader does not shuffle on its own.",
            matters: "Without it every rank reads the whole data set, or the same order in every epoch: the rank with the longest samples is then the same one again and again.",
            not_applicable: "The job has one rank, or its framework shards the data itself.",
        },
        Item::BatchDivisibility => ItemGuide {
            means: "Per-rank batches are equal in samples and, where lengths vary, in tokens.",
            matters: "Padding makes a batch as wide as its longest sample. Memory follows tokens, not samples: one long sample lifts one rank alone. A global batch that the world size does not divide leaves one rank with more.",
            not_applicable: "The job has one rank, or batches of one fixed shape.",
        },
        Item::OptimizerState => ItemGuide {
            means: "The model is moved, then wrapped, then the optimizer is built; with ZeRO or FSDP the partitions are of equal size.",
            matters: "An optimizer that is built first keeps state for parameters that are no longer used, or keeps it on the wrong device. Two moments in fp32 are twice the size of the model.",
            not_applicable: "The job does not train.",
        },
        Item::UnsyncedBuffers => ItemGuide {
            means: "No large tensor (lookup table, EMA copy, buffer) lives on one rank and not on the others.",
            matters: "A buffer outside the wrapper is invisible in the model's size and stays for the whole run: the rank that holds it is fuller by a constant amount.",
            not_applicable: "The job has one rank.",
        },
        Item::RankOnlyWork => ItemGuide {
            means: "Evaluation, metric gathering, logging and saving run on all ranks, or on the CPU, not on one rank's GPU.",
            matters: "What rank 0 does alone sits on top of its training peak, and the caching allocator keeps the peak reserved. The rank runs out of memory at the first evaluation or save, not in training.",
            not_applicable: "The job has one rank.",
        },
        Item::MemoryStats => ItemGuide {
            means: "The difference is placed: allocated by tensors, cached by the allocator, or outside PyTorch (contexts, NCCL, other processes).",
            matters: "Each has its own cure. Tuning the allocator does nothing for a stray context, and a sampler does nothing for fragmentation.",
            not_applicable: "There is no PyTorch allocator in this job.",
        },
        Item::AccumulationCheckpointing => ItemGuide {
            means: "Gradient accumulation steps, no_sync and activation checkpointing are the same on all ranks.",
            matters: "A rank that accumulates more steps, or checkpoints fewer layers, holds more at every step. The peaks of the ranks then have different periods.",
            not_applicable: "The job neither accumulates nor checkpoints.",
        },
        Item::Verified => ItemGuide {
            means: "A run with the fix stands beside the run without it, and the difference is gone wherever it was seen.",
            matters: "A fix that was not measured is a guess: a smaller batch or a shorter run hides a difference as well as a cure does.",
            not_applicable: "There was no imbalance to mend.",
        },
    }
}

/// What a proof needs, in the order in which it fails most often.
pub const PROOF_NEEDS: [(&str, &str); 4] = [
    ("The same job", "the same number of ranks, the same cards, the same batch size"),
    ("At least as long", "as many steps as it took before the difference opened"),
    ("Every phase", "training and validation, with peaks reset between them"),
    ("Batch shapes", "or token counts of every rank, so that even input is seen and not assumed"),
];
