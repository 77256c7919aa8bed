//! Every label: evidence that speaks for it, evidence in which the deciding trait is missing or contradicted, and
//! evidence of its nearest neighbour in causes.md, which must be told apart. A label without all three fails the test.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

mod support;

use rankscope_diagnosis::{Policy, diagnose};
use rankscope_model::{
    ArtifactKind, Bytes, CauseLabel, CauseLabel as L, Diagnosis, Evidence, Frame, GIB, Phase, SnapshotDevice, Verdict,
};
use std::collections::BTreeSet;
use support::{
    BOUND, Build, OWN, UNBOUND, confidence, ddp, mib, script, snapshot, snapshot_device, snapshot_files,
    snapshot_of_sites, stray_contexts, upload, with,
};

/// One label on trial.
struct Trial {
    label: CauseLabel,
    /// The label must come first.
    speaks: Evidence,
    /// Close to it, and yet the label must lose.
    against: Evidence,
    /// The neighbour must come first.
    neighbour: (CauseLabel, Evidence),
}

fn run(evidence: &Evidence) -> Diagnosis {
    diagnose(evidence, &Policy::default())
}

fn smi() -> Build {
    Build::default().file("nvidia-smi.txt", ArtifactKind::NvidiaSmi)
}

fn log() -> Build {
    Build::default().file("train.log", ArtifactKind::StepLog)
}

// ---- evidence of one kind each ----

const LOAD: &str = "    model.load_state_dict(torch.load('last.pt'))\n";
const SAFE_LOAD: &str = "    model.load_state_dict(torch.load('last.pt', map_location='cpu'))\n";
const NAMED: &str = "    table = torch.zeros(1000, 1000, device='cuda:0')\n";
const CURRENT: &str = "    table = torch.zeros(1000, 1000, device='cuda')\n";

/// Seven contexts on GPU 0, and a script that starts so.
fn strays(start: &str, more: &str) -> Evidence {
    with(stray_contexts(), ddp(start, OWN, more))
}

fn unbound() -> Evidence {
    strays(UNBOUND, "")
}

/// Four processes that are all at home on GPU 0.
fn one_card() -> Evidence {
    let cards: Vec<_> =
        (0..4).map(|g| (g, if g == 0 { 8030 } else { 11 }, 16130, if g == 0 { 100 } else { 0 })).collect();
    let rows: Vec<_> = (0..4).map(|n| (0, 27001 + n, "python3", 2005)).collect();
    smi().table(None, &cards, &rows).evidence
}

fn everywhere() -> Evidence {
    let cards: Vec<_> = (0..4).map(|g| (g, 33400, 81559, 95)).collect();
    let rows: Vec<_> =
        (0..4).flat_map(|g| (0..4).map(move |p| (g, 70101 + p, "python", if p == g { 31800 } else { 524 }))).collect();
    smi().table(None, &cards, &rows).evidence
}

fn workers() -> Evidence {
    let rows: Vec<_> = (0..12).map(|n| (0, 418_800 + 3 * n, "python", 312)).collect();
    smi().table(None, &[(0, 3748, 24576, 0), (1, 6, 24576, 0)], &rows).evidence
}

/// One process on three cards.
fn one_process(home: u64, others: u64, utilisation: u8) -> Evidence {
    let card = |gpu, used| (gpu, used + 8, 81920, if gpu == 0 { 100 } else { utilisation });
    let row = |gpu, used| (gpu, 5120, "python", used);
    let cards = [card(0, home), card(1, others), card(2, others)];
    smi().table(None, &cards, &[row(0, home), row(1, others), row(2, others)]).evidence
}

fn replicas() -> Evidence {
    one_process(30931, 18963, 93)
}

/// Equal batches; rank 0 peaks higher by so much in training and in `phase`.
fn phases(phase: Phase, in_training: u64, in_phase: u64) -> Evidence {
    let mut build = log();
    for (at, step) in [(Phase::Train, 1), (Phase::Train, 2), (phase, 2), (Phase::Train, 3)] {
        for rank in 0..4u32 {
            let more = if at == phase { in_phase } else { in_training };
            build = build.step(rank, Some(step), |row| {
                row.phase = Some(at);
                row.batch_shape = Some(vec![8, 128]);
                row.peak_allocated = mib(if rank == 0 { 20_000 + more } else { 20_000 });
            });
        }
    }
    build.evidence
}

/// An out-of-memory message behind a stack of `(file, function)`, innermost first.
fn failing(stack: &[(&str, &str)]) -> Evidence {
    let frame =
        |(file, function): &(&str, &str)| Frame { function: (*function).to_owned(), file: (*file).to_owned(), line: 7 };
    let frames: Vec<Frame> = stack.iter().map(frame).collect();
    Build::default().file("job.log", ArtifactKind::JobLog).oom(|oom| oom.frames = frames).evidence
}

const SAMPLING: &[(&str, &str)] =
    &[("x/attention.py", "forward"), ("x/ddim.py", "ddim_sampling"), ("x/cldm.py", "log_images")];
const SAVING: &[(&str, &str)] = &[("x/torch/nn/modules/module.py", "state_dict"), ("t.py", "save")];
const EVALUATING: &[(&str, &str)] = &[("x/conv.py", "forward"), ("t.py", "evaluate"), ("t.py", "main")];

/// Memory that grows record by record, over `passes` of the phase.
fn growing(phase: Phase, passes: u64) -> Evidence {
    let mut build = log();
    for _ in 0..passes {
        for step in 0..12 {
            for rank in 0..2 {
                build = build.step(rank, Some(step), |row| {
                    row.phase = Some(phase);
                    row.allocated = mib(4000 + 500 * step);
                });
            }
        }
    }
    build.evidence
}

fn sites(first: &[(&str, u64)], others: &[(&str, u64)]) -> Evidence {
    let name = |rank: u32| format!("snapshot_rank{rank}.pickle");
    snapshot_files(2, name, |rank| snapshot_of_sites(rank, if rank == 0 { first } else { others }))
}

fn lone_ema() -> Evidence {
    let light = [("forward", 4000), ("small", 10)];
    sites(&[("forward", 4000), ("update_ema", 3000), ("small", 10)], &light)
}

/// `(samples, length)` of each rank at each step; the peak follows the elements.
fn batches(table: &[Vec<(u64, u64)>]) -> Evidence {
    let mut build = log();
    for (step, ranks) in table.iter().enumerate() {
        for (rank, (samples, length)) in ranks.iter().enumerate() {
            build = build.step(u32::try_from(rank).unwrap(), Some(step as u64), |row| {
                row.phase = Some(Phase::Train);
                row.batch_shape = Some(vec![*samples, *length]);
                row.peak_allocated = mib(8000 + samples * length / 4);
            });
        }
    }
    build.evidence
}

fn lengths() -> Evidence {
    batches(&[
        vec![(8, 512), (8, 498), (8, 505), (8, 934)],
        vec![(8, 700), (8, 480), (8, 505), (8, 600)],
        vec![(8, 512), (8, 1498), (8, 505), (8, 634)],
        vec![(8, 312), (8, 498), (8, 505), (8, 500)],
    ])
}

fn equal_batches() -> Evidence {
    let mut build = log();
    for step in 0..5 {
        for rank in 0..4 {
            build = build.step(rank, Some(step), |row| {
                row.batch_shape = Some(vec![8, 512]);
                row.peak_allocated = mib(if rank == 0 { 30_000 } else { 20_000 });
            });
        }
    }
    build.evidence
}

/// Two epochs of six steps; the second in the same order, or shifted.
fn epochs(shift: u64) -> Evidence {
    let mut build = log();
    for epoch in 0..2u64 {
        for step in 0..6u64 {
            for rank in 0..2u32 {
                let length = 400 + ((step + epoch * shift) * 7 + u64::from(rank) * 3) % 11 * 60;
                build = build.step(rank, Some(step), |row| {
                    row.batch_shape = Some(vec![16, length]);
                    row.peak_allocated = mib(4000 + length * 4 + epoch);
                });
            }
        }
    }
    build.evidence
}

fn samples(of_first: u64) -> Evidence {
    batches(&(0..4).map(|_| vec![(of_first, 256), (8, 256), (8, 256), (8, 256)]).collect::<Vec<_>>())
}

/// Equal shapes; a router deals rank 2 so many tokens.
fn routed(heavy: u64) -> Evidence {
    let mut build = log();
    for step in 0..6u64 {
        for rank in 0..4u32 {
            let tokens = if rank == 2 { heavy } else { 4_000 };
            build = build.step(rank, Some(step), |row| {
                (row.batch_shape, row.routed_tokens) = (Some(vec![1, 4096]), Some(tokens));
                row.peak_allocated = mib(36_000 + tokens * 18 / 10);
            });
        }
    }
    build.evidence
}

/// Peaks of the ranks in order, at three steps.
fn by_position(peaks: &[u64]) -> Evidence {
    let mut build = log();
    for step in 0..3 {
        for (rank, peak) in (0..).zip(peaks) {
            build = build.step(rank, Some(step), |row| row.peak_allocated = mib(*peak));
        }
    }
    build.evidence
}

fn torchrec() -> Evidence {
    script(
        "train.py",
        "import os, torch\nimport torch.distributed as dist\nfrom torchrec import EmbeddingBagCollection\nfrom torchrec.distributed import \
         DistributedModelParallel\n\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\ndist.init_process_group('nccl')\n\
         model = DistributedModelParallel(EmbeddingBagCollection(tables=tables, device='meta'))\nfor batch in loader:\n    \
         loss = model(batch).sum()\n    loss.backward()\n",
    )
}

/// A card whose surplus is a second process of that name.
fn beside(name: &str, size: u64) -> Evidence {
    let cards = [(0, 10_000 + size, 40_000, 90), (1, 10_000, 40_000, 90), (2, 10_000, 40_000, 90)];
    let rows = [(0, 5, "python", 9990), (0, 77, name, size), (1, 6, "python", 9990), (2, 7, "python", 9990)];
    smi().table(None, &cards, &rows).evidence
}

fn fsdp(lines: &str) -> Evidence {
    script(
        "train.py",
        &format!(
            "import os\nimport torch\nimport torch.distributed as dist\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\
             from net import Net\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\ndist.init_process_group('nccl')\n\
             model = Net().cuda()\n{lines}for epoch in range(3):\n    for x in loader:\n        model(x).backward()\n"
        ),
    )
}

fn early_optimizer() -> Evidence {
    fsdp("opt = torch.optim.AdamW(model.parameters())\nmodel = FSDP(model)\n")
}

fn reserved_from_the_start(of_zero: u64) -> Evidence {
    let mut build = log();
    for rank in 0..8 {
        build = build.step(rank, Some(1), |row| row.reserved = mib(if rank == 0 { of_zero } else { 79_900 }));
    }
    build.evidence
}

fn oom(edit: impl FnOnce(&mut rankscope_model::OomEvent)) -> Evidence {
    Build::default().file("oom.txt", ArtifactKind::OomMessage).oom(edit).evidence
}

fn cached() -> Evidence {
    oom(|o| (o.tried, o.total, o.allocated, o.reserved) = (mib(648), mib(40540), mib(23511), mib(37058)))
}

fn little_cached() -> Evidence {
    oom(|o| (o.tried, o.total, o.allocated, o.reserved) = (mib(648), mib(40540), mib(36511), mib(37058)))
}

fn outside(all: u64) -> Evidence {
    oom(|o| (o.this_process, o.allocated, o.reserved_unallocated) = (mib(all), mib(75694), mib(304)))
}

/// A snapshot with so much active beyond what is allocated.
fn held(beyond: u64) -> Evidence {
    let total = Bytes(30 * GIB);
    let device =
        SnapshotDevice { allocated: Bytes(18 * GIB), active: Bytes((18 + beyond) * GIB), ..snapshot_device(0, total) };
    snapshot_files(1, |n| format!("snapshot_rank{n}.pickle"), |n| snapshot(n, Some(n), vec![device.clone()]))
}

/// Two cards, one reading a second.
fn readings(curve: &[u64], other: &[u64]) -> Evidence {
    let mut build = smi();
    for (second, (a, b)) in curve.iter().zip(other).enumerate() {
        let cards = [(0, *a, 24_000, 95), (1, *b, 24_000, 95)];
        build = build.table(Some(i64::try_from(second).unwrap()), &cards, &[]);
    }
    build.evidence
}

fn spike() -> Evidence {
    let curve = [2210, 12_756, 12_756, 12_756, 4689, 4689, 4689, 4689, 4689, 4689];
    readings(&curve, &curve)
}

fn staircase() -> Evidence {
    readings(
        &[9000, 9600, 9600, 9600, 10_400, 10_400, 10_400, 11_900, 11_900, 11_900],
        &[9000, 9000, 9900, 9900, 9900, 9900, 11_200, 11_200, 11_200, 11_200],
    )
}

/// Two runs of the same batches; the second peaks so much higher on all ranks.
fn two_runs(more: u64) -> Evidence {
    let mut build = Build::default();
    for (file, above) in [("a.log", 0), ("b.log", more)] {
        build = build.file(file, ArtifactKind::StepLog);
        for step in 0..5 {
            for rank in 0..4 {
                build = build.step(rank, Some(step), |row| {
                    row.batch_shape = Some(vec![8, 512]);
                    (row.allocated, row.peak_allocated) = (mib(6000), mib(20_000 + above));
                });
            }
        }
    }
    build.evidence
}

fn nameless(name: &str) -> Evidence {
    let cards = [(0, 6382, 12_287, 0), (1, 0, 12_287, 0)];
    smi().table(None, &cards, &[(0, 28_114, name, 5371), (0, 28_390, name, 1011)]).evidence
}

/// A desktop of that size on GPU 0, which is fuller by 900 MiB.
fn desktop(size: u64) -> Evidence {
    let cards = [(0, 6862, 7982, 95), (1, 5955, 7982, 96)];
    let rows = [(0, 1377, "/usr/lib/xorg/Xorg", size), (0, 9714, "python", 5940), (1, 9715, "python", 5940)];
    smi().table(None, &cards, &rows).evidence
}

fn taken(utilisation: u8) -> Evidence {
    let cards: Vec<_> = (0..4).map(|g| (g, 15_981, 16_130, utilisation)).collect();
    let rows: Vec<_> = (0..4).map(|g| (g, 2102, "python", 15_937)).collect();
    smi().table(None, &cards, &rows).evidence
}

/// Each rank's log says that it sees one GPU, and each another one.
fn each_its_own() -> Evidence {
    let lines = |rank: u32| format!("[rank{rank}]: LOCAL_RANK: {rank} - CUDA_VISIBLE_DEVICES: [{rank}]\n");
    upload("job.log", &(0..4).map(lines).collect::<String>())
}

// ---- the trials ----

fn trials() -> Vec<Trial> {
    let trial = |label, speaks, against, neighbour| Trial { label, speaks, against, neighbour };
    vec![
        trial(L::CtxNoSetDevice, unbound(), strays(BOUND, ""), (L::CkptNoMapLocation, strays(BOUND, LOAD))),
        trial(L::CkptNoMapLocation, strays(BOUND, LOAD), strays(BOUND, SAFE_LOAD), (L::CtxNoSetDevice, unbound())),
        trial(L::HelperThreadOrLibCtx, strays(BOUND, ""), unbound(), (L::CtxNoSetDevice, unbound())),
        trial(
            L::HardcodedOrDefaultDevice,
            strays(BOUND, NAMED),
            strays(BOUND, CURRENT),
            (L::CtxNoSetDevice, unbound()),
        ),
        trial(L::RankGpuMapping, one_card(), with(one_card(), each_its_own()), (L::CtxNoSetDevice, unbound())),
        trial(
            L::ObjectCollectiveDevice,
            everywhere(),
            with(everywhere(), ddp(BOUND, OWN, "")),
            (L::CtxNoSetDevice, unbound()),
        ),
        trial(L::CtxInWorkerProcesses, workers(), stray_contexts(), (L::CtxNoSetDevice, unbound())),
        trial(
            L::SingleGpuJobIdleContexts,
            one_process(76_000, 400, 0),
            one_process(76_000, 400, 90),
            (L::DataparallelMaster, replicas()),
        ),
        trial(
            L::DataparallelMaster,
            replicas(),
            with(replicas(), ddp(BOUND, OWN, "")),
            (L::SingleGpuJobIdleContexts, one_process(76_000, 400, 0)),
        ),
        trial(
            L::Rank0Eval,
            phases(Phase::Eval, 0, 11_000),
            phases(Phase::Eval, 11_000, 11_000),
            (L::CkptStateGather, phases(Phase::Save, 0, 11_000)),
        ),
        trial(
            L::CkptStateGather,
            phases(Phase::Save, 0, 11_000),
            phases(Phase::Save, 0, 0),
            (L::Rank0Eval, phases(Phase::Eval, 0, 11_000)),
        ),
        trial(L::Rank0LoggingOrTrace, failing(SAMPLING), failing(EVALUATING), (L::CkptStateGather, failing(SAVING))),
        trial(
            L::MetricGatherOnGpu,
            growing(Phase::Eval, 2),
            growing(Phase::Train, 1),
            (L::PerStepLeak, growing(Phase::Train, 1)),
        ),
        trial(
            L::Rank0AuxBuffers,
            lone_ema(),
            sites(&[("forward", 4000), ("update_ema", 3000)], &[("forward", 4000), ("update_ema", 3000)]),
            (L::DataparallelMaster, replicas()),
        ),
        trial(L::VariableShapeBatches, lengths(), equal_batches(), (L::SamplerMissingOrNoSetEpoch, epochs(0))),
        trial(L::SamplerMissingOrNoSetEpoch, epochs(0), epochs(1), (L::VariableShapeBatches, lengths())),
        trial(L::UnevenBatchSplit, samples(14), samples(8), (L::VariableShapeBatches, lengths())),
        trial(L::MoeRoutingImbalance, routed(20_700), routed(4_000), (L::VariableShapeBatches, lengths())),
        trial(
            L::PipelineStageImbalance,
            by_position(&[10_824, 8041, 8041, 10_980]),
            by_position(&[8041, 10_980, 8041, 8041]),
            (L::Rank0Eval, phases(Phase::Eval, 0, 11_000)),
        ),
        trial(
            L::EmbeddingTableSharding,
            with(by_position(&[20_000, 20_000, 33_000, 20_000]), torchrec()),
            with(by_position(&[20_000, 20_000, 20_000, 20_000]), torchrec()),
            (L::Rank0AuxBuffers, lone_ema()),
        ),
        trial(
            L::ColocatedEngineOrDeviceMap,
            beside("sglang::scheduler", 9000),
            beside("blender", 9000),
            (L::OtherTenant, beside("blender", 9000)),
        ),
        trial(
            L::OptimizerOrWrapOrder,
            early_optimizer(),
            fsdp("model = FSDP(model)\nopt = torch.optim.AdamW(model.parameters())\n"),
            (L::GradAccumOrCkptInconsistent, two_runs(9000)),
        ),
        trial(
            L::ShardedInitAsymmetry,
            reserved_from_the_start(23_700),
            reserved_from_the_start(79_900),
            (L::Rank0Eval, phases(Phase::Eval, 0, 11_000)),
        ),
        trial(L::AllocatorFragmentation, cached(), little_cached(), (L::StreamHeldBlocks, held(10))),
        trial(L::StreamHeldBlocks, held(10), held(0), (L::AllocatorFragmentation, cached())),
        trial(L::NcclNontorchBuffers, outside(96_030), outside(76_400), (L::AllocatorFragmentation, cached())),
        trial(
            L::CudnnWorkspace,
            spike(),
            readings(
                &[2210, 12_756, 12_756, 12_756, 12_756, 12_756, 12_756, 12_756, 12_756],
                &[2210, 12_756, 12_756, 12_756, 12_756, 12_756, 12_756, 12_756, 12_756],
            ),
            (L::PerStepLeak, growing(Phase::Train, 1)),
        ),
        trial(L::PerStepLeak, growing(Phase::Train, 1), lengths(), (L::VariableShapeBatches, staircase())),
        trial(
            L::GradAccumOrCkptInconsistent,
            two_runs(9000),
            two_runs(0),
            (L::OptimizerOrWrapOrder, early_optimizer()),
        ),
        trial(
            L::OtherTenant,
            beside("blender", 9000),
            beside("python", 9000),
            (L::ZombieLeftover, nameless("Unknown Error")),
        ),
        trial(
            L::ZombieLeftover,
            nameless("Unknown Error"),
            nameless("python"),
            (L::OtherTenant, beside("blender", 9000)),
        ),
        trial(L::HeterogeneousOrDisplayGpu, desktop(911), desktop(20), (L::DataparallelMaster, replicas())),
        trial(L::FrameworkPrealloc, taken(0), taken(99), (L::OtherTenant, beside("blender", 9000))),
    ]
}

#[test]
fn every_label_is_on_trial() {
    let tried: BTreeSet<CauseLabel> = trials().iter().map(|trial| trial.label).collect();
    // Controls name no cause; they have a test of their own.
    let controls = [L::Benign, L::Unresolved];
    let missing: Vec<_> = L::ALL.iter().filter(|label| !tried.contains(label) && !controls.contains(label)).collect();
    assert!(missing.is_empty(), "no trial of {missing:?}");
}

#[test]
fn every_label_wins_its_own_evidence_and_loses_without_its_trait_and_to_its_neighbour() {
    let shown = |diagnosis: &Diagnosis| {
        let causes = diagnosis.causes.iter().map(|cause| format!("{} {:.2}", cause.label, cause.confidence));
        format!("{:?} {}", diagnosis.verdict, causes.collect::<Vec<_>>().join(", "))
    };
    let mut wrong = Vec::new();
    for Trial { label, speaks, against, neighbour: (other, of_other) } in trials() {
        let (speaks, against, of_other) = (run(&speaks), run(&against), run(&of_other));
        let first = |diagnosis: &Diagnosis| diagnosis.causes.first().map(|cause| cause.label);
        if first(&speaks) != Some(label) || speaks.causes[0].why.is_empty() || speaks.causes[0].evidence.is_empty() {
            wrong.push(format!("{label}: does not win its own evidence: {}", shown(&speaks)));
        }
        if confidence(&against, label) + 0.1 > confidence(&speaks, label) {
            wrong.push(format!("{label}: is not weakened: {} -> {}", shown(&speaks), shown(&against)));
        }
        if other == label || first(&of_other) != Some(other) {
            wrong.push(format!("{label}: its neighbour {other} does not win: {}", shown(&of_other)));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn controls_accuse_nobody() {
    let cards: Vec<_> = (0..4).map(|g| (g, 31_600 + u64::from(g) * 9, 81_000, 99)).collect();
    let rows: Vec<_> =
        (0..4).flat_map(|g| (0..4).map(move |p| (g, 100 + p, "python", if p == g { 31_500 } else { 0 }))).collect();
    let benign = run(&smi().table(None, &cards, &rows).evidence);
    assert_eq!((benign.verdict, benign.causes.len()), (Verdict::Balanced, 0));
    // One card far above, no process listed, nothing else: told, and not explained.
    let unresolved =
        run(&smi().table(None, &[(0, 9000, 24_000, 90), (1, 21_000, 24_000, 90), (2, 9010, 24_000, 90)], &[]).evidence);
    assert_eq!(unresolved.verdict, Verdict::Imbalance);
    assert!(unresolved.causes.iter().all(|cause| cause.confidence < 0.5), "{:?}", unresolved.causes);
}
