//! What to collect for each item, with the exact command or code line, most telling first.
//!
//! The commands write what the readers understand: device tables, step lines, out-of-memory texts, snapshots.

use crate::case::Case;
use crate::imbalance::Source;
use rankscope_model::{Collect, Item, Phase, Quantity, Subject, Verdict};
use std::collections::BTreeSet;

fn ask(what: &str, command: &str) -> Collect {
    Collect { what: what.to_owned(), command: command.to_owned() }
}

/// One table with its process rows.
pub(crate) fn table_now() -> Collect {
    ask(
        "Which process holds memory on which GPU; run it on the host while the job trains.",
        "nvidia-smi > nvidia-smi.txt",
    )
}

/// Tables from the start on.
pub(crate) fn tables_from_the_start() -> Collect {
    ask(
        "The moment at which the rows on the full card appear: at init_process_group or DDP() it is the binding, at the first batch a helper, only after torch.load the checkpoint. Start it before the job.",
        "while sleep 1; do nvidia-smi; done > nvidia-smi-start.txt",
    )
}

/// A run without checkpoint.
pub(crate) fn fresh_start() -> Collect {
    ask(
        "Whether the rows appear without a checkpoint: start once without --resume, wait for the first steps, then run this.",
        "nvidia-smi > nvidia-smi-fresh.txt",
    )
}

/// How the processes were started, for a job that works on one GPU only.
pub(crate) fn launch() -> Collect {
    ask(
        "How many processes were started and which GPUs each may see: keep the launch script, and run this in the shell that starts the job.",
        "env | grep -E 'CUDA_VISIBLE_DEVICES|RANK|WORLD_SIZE|SLURM_|OMPI_' > env.txt",
    )
}

/// What each rank takes for its GPU.
pub(crate) fn which_gpu() -> Collect {
    ask(
        "Which GPU each rank takes: add the line right after set_device.",
        "print(f\"pid={os.getpid()} rank={os.environ.get('RANK')} local={os.environ.get('LOCAL_RANK')} visible={os.environ.get('CUDA_VISIBLE_DEVICES')} current={torch.cuda.current_device()}\", flush=True)",
    )
}

/// A run in which each process sees one GPU.
pub(crate) fn one_visible_gpu() -> Collect {
    ask(
        "The fix proven, or the rows still there: run with one visible GPU per process (its device is then cuda:0) and record a table.",
        "torchrun --nproc_per_node=gpu --no-python bash -c 'CUDA_VISIBLE_DEVICES=$LOCAL_RANK exec python train.py' & sleep 120; nvidia-smi > nvidia-smi-bound.txt",
    )
}

/// Owners of PIDs.
pub(crate) fn owners(pids: &[u32]) -> Collect {
    let list = if pids.is_empty() {
        "$(nvidia-smi --query-compute-apps=pid --format=csv,noheader | paste -sd,)".to_owned()
    } else {
        pids.iter().take(16).map(u32::to_string).collect::<Vec<_>>().join(",")
    };
    Collect {
        what: "Owner, start time and command of the processes: started before the job, they are not of it.".to_owned(),
        command: format!("ps -o pid,ppid,user,lstart,stat,cmd -p {list}"),
    }
}

/// The step line that the readers know, on every rank.
pub(crate) fn step_line() -> Collect {
    ask(
        "Batch shape, allocated and peak of every rank at the same steps; add the line to the training loop and keep the output of all ranks.",
        "print(f\"[train] rank={dist.get_rank()} step={step} shape={tuple(batch.shape)} cur={torch.cuda.memory_allocated()/2**20:.1f}MB peak={torch.cuda.max_memory_allocated()/2**20:.1f}MB\", flush=True); torch.cuda.reset_peak_memory_stats()",
    )
}

/// The same line around other phases.
pub(crate) fn phase_line() -> Collect {
    ask(
        "The peak of every rank in evaluation and saving; add the line after each, with [eval] or [save].",
        "print(f\"[eval] rank={dist.get_rank()} step={step} cur={torch.cuda.memory_allocated()/2**20:.1f}MB peak={torch.cuda.max_memory_allocated()/2**20:.1f}MB\", flush=True); torch.cuda.reset_peak_memory_stats()",
    )
}

/// A snapshot per rank.
pub(crate) fn snapshots() -> Collect {
    ask(
        "What the heavy rank holds that the others do not, with the code line that made it; record on all ranks, dump at the peak.",
        "torch.cuda.memory._record_memory_history(max_entries=200000)  # before the first step\ntorch.cuda.memory._dump_snapshot(f\"snapshot_rank{dist.get_rank()}.pickle\")  # at the peak",
    )
}

/// The probe, which the server hands out at `/rankscope_probe.py`.
fn probe(what: &str, lines: &str) -> Collect {
    ask(
        &format!("{what} Upload the files of all ranks."),
        &format!("import rankscope_probe as probe  # the file at /rankscope_probe.py\nprobe.start()\n{lines}"),
    )
}

/// The probe's line at the top of the training loop.
fn probe_step(what: &str) -> Collect {
    probe(what, "probe.step(batch)  # first line of the loop body")
}

/// The kind of evidence in which a difference was seen. Only the same kind can show that it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Device tables.
    Tables,
    /// Step lines, and the phase in which the gap opens.
    Steps(Option<Phase>),
    /// Snapshots.
    Snapshots,
    /// Memory traces of a profiler.
    Traces,
    /// Messages that memory ran out.
    Messages,
    /// Code or settings alone.
    Nothing,
}

impl Seen {
    /// What is compared says; where nothing can be, what there is of figures.
    pub fn of(case: &Case, phase: Option<Phase>) -> Self {
        let evidence = case.evidence;
        match case.main.as_ref().map(|(comparison, _)| &comparison.source) {
            Some(Source::Tables(_) | Source::Nodes) => Self::Tables,
            Some(Source::Steps | Source::Step(_)) => Self::Steps(phase),
            Some(Source::Snapshots) => Self::Snapshots,
            Some(Source::Traces) => Self::Traces,
            Some(Source::Ooms) => Self::Messages,
            None if case.tables.iter().any(|view| view.max_used().is_some()) => Self::Tables,
            None if !evidence.steps.is_empty() => Self::Steps(phase),
            None if !evidence.snapshots.is_empty() => Self::Snapshots,
            None if !evidence.traces.is_empty() => Self::Traces,
            None if !evidence.ooms.is_empty() => Self::Messages,
            None => Self::Nothing,
        }
    }
}

/// What would decide an item that nothing else has asked about.
pub(crate) fn for_item(item: Item, verdict: Verdict, seen: Seen) -> Vec<Collect> {
    match item {
        Item::DeviceVisibility => vec![table_now(), tables_from_the_start(), which_gpu()],
        Item::DistributedInit => vec![
            tables_from_the_start(),
            ask(
                "The order of binding, init_process_group, model and data work in the script.",
                "grep -nE 'set_device|init_process_group|DistributedDataParallel|FSDP|fully_shard|\\.cuda\\(|\\.to\\(' train.py",
            ),
        ],
        Item::DistributedSampler => vec![
            step_line(),
            probe_step("Class, number of replicas, rank, drop_last and epoch of every rank's sampler, by the probe."),
        ],
        Item::BatchDivisibility => vec![
            step_line(),
            probe_step(
                "Shapes, tokens with and without padding, and the peak of each step on every rank, by the probe.",
            ),
        ],
        Item::OptimizerState => {
            vec![snapshots(), probe_step("Optimizer state per device and the wrappers of every rank, by the probe.")]
        }
        Item::UnsyncedBuffers => vec![
            snapshots(),
            probe_step("The largest buffers of every rank by name, and modules that only one rank has, by the probe."),
        ],
        Item::RankOnlyWork => vec![
            phase_line(),
            snapshots(),
            probe(
                "The peak of each phase on every rank, by the probe.",
                "with probe.phase(\"eval\"):  # around the evaluation; \"save\" around saving",
            ),
        ],
        Item::MemoryStats => vec![
            snapshots(),
            ask(
                "Allocated against reserved and retries, on the heavy rank and on another, at the peak.",
                "print(torch.cuda.memory_summary(abbreviated=True), flush=True)",
            ),
            probe(
                "A snapshot of every rank at the same steps, and one at the moment memory runs out, by the probe.",
                "probe.snapshot(steps=3, at=50)\nprobe.step(batch)  # first line of the loop body",
            ),
        ],
        Item::AccumulationCheckpointing => vec![
            ask(
                "Where accumulation, no_sync and checkpointing depend on the rank.",
                "grep -nE 'no_sync|accum|checkpoint_wrapper|checkpoint\\(|gradient_checkpointing|rank *==' train.py",
            ),
            step_line(),
        ],
        Item::Verified => verified(verdict, seen),
    }
}

/// The evidence holds a file of that kind already, of as much of the job as it can show.
pub(crate) fn is_given(case: &Case, wanted: &Collect) -> bool {
    let is_table = || {
        let working = |view: &&crate::tables::TableView| {
            view.lists_processes() && view.max_used().is_some() && !view.in_use(case.policy).is_empty()
        };
        case.tables.iter().any(|view| working(&view))
    };
    let phases = || {
        let in_phase = |phase| case.steps.rows.iter().filter(move |(key, _)| key.phase == Some(phase));
        let ranks = |phase| in_phase(phase).flat_map(|(_, rows)| rows).map(|row| row.subject).collect::<BTreeSet<_>>();
        [Phase::Eval, Phase::Save].into_iter().all(|phase| ranks(phase).len() >= 2)
    };
    let snapshot_ranks = || {
        let ranks = case.evidence.snapshots.iter().filter_map(|snapshot| snapshot.rank.map(Subject::Rank));
        ranks.collect::<BTreeSet<_>>().len()
    };
    (*wanted == table_now() && is_table())
        || (*wanted == step_line() && case.input.steps > 0)
        || (*wanted == phase_line() && phases())
        || (*wanted == snapshots() && snapshot_ranks() >= 2)
}

/// Of what a step line tells, the lines that were given may lack the batch alone.
pub(crate) fn ask_for_the_rest(case: &Case, wanted: &mut Collect) {
    let tells_memory = case.main.as_ref().is_some_and(|(comparison, _)| {
        comparison.source.is_steps() && matches!(comparison.quantity, Quantity::PeakAllocated | Quantity::Allocated)
    });
    if *wanted == step_line() && case.input.steps == 0 && tells_memory {
        let what = "The shape of each rank's batch beside its memory, which the lines so far tell alone; let the line in \
            the training loop print it too and keep the output of all ranks.";
        what.clone_into(&mut wanted.what);
    }
}

fn verified(verdict: Verdict, seen: Seen) -> Vec<Collect> {
    match verdict {
        Verdict::Balanced => {
            let phases = ask(
                "The phases that are not in the evidence: peaks of an evaluation and of a save, on every rank.",
                &phase_line().command,
            );
            if seen == Seen::Tables { vec![phases, table_now()] } else { vec![phases] }
        }
        Verdict::UniformPressure => vec![
            ask("What fills all cards alike: one snapshot of any rank at its peak.", &snapshots().command),
            step_line(),
        ],
        Verdict::Imbalance | Verdict::Inconclusive => proof(seen),
    }
}

/// The same job after the fix, seen in the way in which the difference was.
fn proof(seen: Seen) -> Vec<Collect> {
    let table = ask(
        "The same job after the fix, at the same moment, as a new run to compare with this one: the difference should be gone.",
        "nvidia-smi > nvidia-smi-after.txt",
    );
    let steps = ask(
        "Peaks of all ranks after the fix, at as many steps, as a new run to compare with this one.",
        &step_line().command,
    );
    let phases = ask(
        "Peaks of all ranks after the fix, in training and in the phase in which the gap opened, as a new run to compare with this one.",
        &format!("{}\n{}", step_line().command, phase_line().command),
    );
    match seen {
        Seen::Tables | Seen::Nothing => vec![table, steps],
        Seen::Steps(Some(Phase::Eval | Phase::Save)) => vec![phases],
        Seen::Steps(_) => vec![steps],
        Seen::Snapshots => vec![
            ask(
                "Snapshots of the same ranks after the fix, at the same moment, as a new run to compare with this one.",
                &snapshots().command,
            ),
            steps,
        ],
        Seen::Traces => vec![
            ask(
                "Traces of the same ranks after the fix, over the same steps, as a new run to compare with this one.",
                "with torch.profiler.profile(profile_memory=True, record_shapes=True) as prof:\n    step()  # the same steps as before\nprof.export_chrome_trace(f\"trace_rank{dist.get_rank()}.json\")",
            ),
            steps,
        ],
        Seen::Messages => vec![
            ask(
                "The output of all ranks after the fix, past the moment at which memory ran out, with their peaks, as a new run to compare with this one.",
                &step_line().command,
            ),
            table,
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: [Seen; 7] = [
        Seen::Tables,
        Seen::Steps(None),
        Seen::Steps(Some(Phase::Eval)),
        Seen::Snapshots,
        Seen::Traces,
        Seen::Messages,
        Seen::Nothing,
    ];

    #[test]
    fn a_proof_is_asked_for_in_the_kind_that_showed_the_difference() {
        let telling =
            ["nvidia-smi", "[train]", "[eval]", "_dump_snapshot", "export_chrome_trace", "[train]", "nvidia-smi"];
        for (seen, telling) in SEEN.into_iter().zip(telling) {
            let first = for_item(Item::Verified, Verdict::Imbalance, seen).remove(0);
            assert!(first.command.contains(telling), "{seen:?}: {}", first.command);
            assert!(first.what.contains("a new run to compare with this one"), "{}", first.what);
        }
    }

    #[test]
    fn every_item_says_what_to_collect() {
        for item in Item::ALL {
            for verdict in [Verdict::Imbalance, Verdict::UniformPressure, Verdict::Balanced, Verdict::Inconclusive] {
                for seen in SEEN {
                    let list = for_item(*item, verdict, seen);
                    assert!(!list.is_empty());
                    assert!(list.iter().all(|c| !c.what.is_empty() && !c.command.is_empty()));
                }
            }
        }
    }
}
