//! The rules: one module per checklist item, and one per group of causes that is no item of its own.
//!
//! A rule looks at the prepared evidence and writes reasons, claims and statuses into the ledger. No rule knows
//! another one, and none knows where a piece of evidence came from beyond its kind.

use crate::case::Case;
use crate::combine::Ledger;

mod accumulation_checkpointing;
mod batch_divisibility;
mod cached_surplus;
mod data_parallel;
mod device_visibility;
mod distributed_init;
mod distributed_sampler;
mod failing_call;
mod launch;
mod leaks;
mod memory_stats;
mod optimizer_state;
mod other_processes;
mod pipeline;
mod preallocation;
mod probe;
mod rank_only_work;
mod readings;
mod script;
mod sharded_init;
mod unequal_cards;
mod unsynced_buffers;
mod worker_counts;

pub(crate) use memory_stats::is_of;
pub(crate) use readings::takes_turns;

/// The label is one that growth in the log speaks for, and the log shows such growth.
pub(crate) fn rests_on_growth(case: &Case, label: rankscope_model::CauseLabel) -> bool {
    use rankscope_model::CauseLabel::{MetricGatherOnGpu, PerStepLeak};
    matches!(label, PerStepLeak | MetricGatherOnGpu) && leaks::is_seen(case)
}

/// Every rule, in checklist order, so that findings are numbered in the order in which a reader meets the items.
pub(crate) const ALL: &[fn(&Case, &mut Ledger)] = &[
    device_visibility::apply,
    worker_counts::apply,
    data_parallel::apply,
    other_processes::apply,
    crate::gone::tell,
    unequal_cards::apply,
    preallocation::apply,
    distributed_init::apply,
    distributed_sampler::apply,
    batch_divisibility::apply,
    readings::apply,
    optimizer_state::apply,
    sharded_init::apply,
    unsynced_buffers::apply,
    rank_only_work::apply,
    failing_call::apply,
    pipeline::apply,
    memory_stats::apply,
    cached_surplus::apply,
    leaks::apply,
    accumulation_checkpointing::apply,
    probe::apply,
    launch::apply,
    // After the others: what a script says weighs by what memory evidence already supports.
    script::apply,
];
