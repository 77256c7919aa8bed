//! Tracebacks, phases and launches through the real readers: what they say for and against causes.
#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use rankscope_diagnosis::{Policy, diagnose, figures};
use rankscope_ingest::{Limits, read_upload};
use rankscope_model::{CauseLabel, Diagnosis, Evidence, Item, ItemStatus, Severity};
use std::fmt::Write;
use std::io::Cursor;

fn run(files: &[(&str, String)]) -> Diagnosis {
    let mut evidence = Evidence::default();
    for (name, text) in files {
        evidence.merge(read_upload(name, &mut Cursor::new(text.as_bytes()), &Limits::default()));
    }
    diagnose(&evidence, &Policy::default())
}

fn top(diagnosis: &Diagnosis) -> Option<CauseLabel> {
    diagnosis.causes.first().map(|cause| cause.label)
}

fn confidence(diagnosis: &Diagnosis, label: CauseLabel) -> f64 {
    diagnosis.causes.iter().find(|cause| cause.label == label).map_or(0.0, |cause| cause.confidence)
}

fn status(diagnosis: &Diagnosis, item: Item) -> ItemStatus {
    diagnosis.checklist.iter().find(|entry| entry.item == item).unwrap().status
}

/// A message of one rank on one GPU, with a stack (file and function, outermost first) in front of it.
fn failure(rank: u32, gpu: u32, frames: &[(&str, &str)]) -> String {
    let mut text = format!("[rank{rank}]: Traceback (most recent call last):\n");
    for (file, function) in frames {
        writeln!(text, "[rank{rank}]:   File \"{file}\", line 9, in {function}\n[rank{rank}]:     x = y").unwrap();
    }
    text + &format!(
        "[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU {gpu} has a total capacity of 23.56 GiB of which 117.31 MiB is free. Including non-PyTorch memory, this process has 23.43 GiB memory in use. Of the allocated memory 22.31 GiB is allocated by PyTorch, and 411.00 MiB is reserved by PyTorch but unallocated.\n"
    )
}

fn failing(frames: &[(&str, &str)]) -> Diagnosis {
    run(&[("job.log", failure(0, 0, frames))])
}

#[test]
fn the_failing_call_names_the_work_beside_training() {
    let saving = failing(&[("train.py", "main"), ("/x/site-packages/torch/nn/modules/module.py", "state_dict")]);
    assert_eq!(top(&saving), Some(CauseLabel::CkptStateGather));
    assert_eq!(status(&saving, Item::RankOnlyWork), ItemStatus::Suspect);
    let why = &saving.causes[0].why[0];
    assert!(why.contains("state_dict (module.py:9), called from main (train.py:9)"), "{why}");
    assert!(saving.causes[0].evidence.iter().any(|at| at.artifact == "job.log"));
    let logging = failing(&[("train.py", "main"), ("cldm.py", "log_images"), ("attention.py", "forward")]);
    assert_eq!(top(&logging), Some(CauseLabel::Rank0LoggingOrTrace));
    let gathering = failing(&[("engine.py", "evaluate"), ("util/dist.py", "all_gather")]);
    assert_eq!(top(&gathering), Some(CauseLabel::MetricGatherOnGpu));
    let evaluating = failing(&[("train.py", "main"), ("train.py", "validate"), ("model.py", "forward")]);
    assert_eq!(top(&evaluating), Some(CauseLabel::Rank0Eval));
}

#[test]
fn a_checkpoint_that_lands_on_a_foreign_card_is_named() {
    let load = [
        ("train.py", "main"),
        ("/x/torch/serialization.py", "load"),
        ("/x/torch/serialization.py", "_cuda_deserialize"),
    ];
    let text = failure(5, 0, &load) + &failure(3, 0, &load);
    let found = run(&[("job.log", text)]);
    assert_eq!(top(&found), Some(CauseLabel::CkptNoMapLocation));
    assert_eq!(status(&found, Item::DeviceVisibility), ItemStatus::Suspect);
    assert!(confidence(&found, CauseLabel::CkptNoMapLocation) > 0.6);
}

#[test]
fn an_ordinary_step_accuses_nobody() {
    let found = failing(&[("train.py", "main"), ("model.py", "forward")]);
    assert!(found.causes.is_empty(), "{:?}", found.causes);
    let backward = failing(&[("train.py", "main"), ("/x/torch/autograd/__init__.py", "backward")]);
    assert!(backward.causes.is_empty(), "{:?}", backward.causes);
}

#[test]
fn more_processes_than_visible_gpus_share_cards() {
    let script = "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=4 train.py\n";
    let found = run(&[("run.sh", script.to_owned())]);
    assert_eq!(top(&found), Some(CauseLabel::RankGpuMapping));
    assert_eq!(status(&found, Item::DeviceVisibility), ItemStatus::Fail);
    let even = run(&[("run.sh", script.replace("=4", "=2"))]);
    assert!(even.causes.is_empty());
    // Another command's devices are not its own.
    let other = "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0 python prepare.py\ntorchrun --nproc_per_node=4 train.py\n";
    assert!(confidence(&run(&[("run.sh", other.to_owned())]), CauseLabel::RankGpuMapping) < f64::EPSILON);
}

#[test]
fn one_visible_gpu_for_each_rank_passes() {
    let environment = |rank: u32, gpu: u32| {
        (format!("env{rank}.txt"), format!("PATH=/bin\nRANK={rank}\nWORLD_SIZE=2\nCUDA_VISIBLE_DEVICES={gpu}\n"))
    };
    let files = |gpus: [u32; 2]| {
        let pair = [environment(0, gpus[0]), environment(1, gpus[1])];
        let files: Vec<(&str, String)> = pair.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
        run(&files)
    };
    assert_eq!(status(&files([0, 1]), Item::DeviceVisibility), ItemStatus::Pass);
    let shared = files([0, 0]);
    assert_eq!(status(&shared, Item::DeviceVisibility), ItemStatus::Suspect);
    assert_eq!(top(&shared), Some(CauseLabel::RankGpuMapping));
}

/// What the checklist asks each rank to print: its rank on the node, the GPUs that it sees, and its current one.
fn current(ranks: &[(u32, u32, &str, u32)]) -> Diagnosis {
    let line = |(rank, local, visible, device): &(u32, u32, &str, u32)| {
        format!("pid={} rank={rank} local={local} visible={visible} current={device}\n", 4711 + rank)
    };
    run(&[("which.log", ranks.iter().map(line).collect())])
}

#[test]
fn ranks_with_one_current_device_are_told() {
    let told = |found: &Diagnosis, words: &str| found.findings.iter().any(|f| f.claim == words);
    let all_on_first = current(&[(0, 0, "0,1,2,3", 0), (1, 1, "0,1,2,3", 0), (2, 2, "0,1,2,3", 0)]);
    assert_eq!(status(&all_on_first, Item::DeviceVisibility), ItemStatus::Suspect);
    assert!(
        told(&all_on_first, "All of three ranks have GPU 0 as their current device."),
        "{:?}",
        all_on_first.findings
    );
    assert!(confidence(&all_on_first, CauseLabel::CtxNoSetDevice) > 0.0);
    let apart = current(&[(0, 0, "0,1", 0), (1, 1, "0,1", 1)]);
    assert_eq!(status(&apart, Item::DeviceVisibility), ItemStatus::Pass);
    assert!(told(&apart, "Each of two ranks has a GPU of its own as its current device."), "{:?}", apart.findings);
    // Two of three share one, by the number among the GPUs that each sees.
    let two = current(&[(0, 0, "4,5", 1), (1, 1, "5,6", 0), (2, 2, "5,6", 1)]);
    assert!(told(&two, "Ranks 0 and 1 have GPU 5 as their current device."), "{:?}", two.findings);
    // Two nodes, with the same numbers on each.
    let nodes = current(&[(0, 0, "None", 0), (1, 1, "None", 1), (2, 0, "None", 0), (3, 1, "None", 1)]);
    assert_eq!(status(&nodes, Item::DeviceVisibility), ItemStatus::Pass);
    // One visible GPU each: its number among the visible ones says nothing.
    let bound = current(&[(0, 0, "0", 0), (1, 1, "1", 0)]);
    assert_eq!(status(&bound, Item::DeviceVisibility), ItemStatus::Pass);
    assert!(told(&bound, "Each of two ranks sees one GPU, and each another one."), "{:?}", bound.findings);
}

#[test]
fn files_that_contradict_each_other_are_told_in_any_order() {
    let lines = |devices: [u32; 2]| {
        let line =
            |rank: u32| format!("pid=1 rank={rank} local={rank} visible=0,1 current={}\n", devices[rank as usize]);
        line(0) + &line(1)
    };
    let files = [("a.log", lines([0, 0])), ("b.log", lines([0, 1]))];
    let reversed = [files[1].clone(), files[0].clone()];
    let claims = |found: &Diagnosis| found.findings.iter().map(|f| f.claim.clone()).collect::<Vec<_>>();
    let (one, other) = (run(&files), run(&reversed));
    assert_eq!(claims(&one), claims(&other));
    assert!(claims(&one)[0].starts_with("a.log and b.log tell different current devices"), "{:?}", claims(&one));
    assert_eq!(status(&one, Item::DeviceVisibility), ItemStatus::Unknown);
}

#[test]
fn gpus_of_several_hosts_are_told_apart() {
    let line = |host: &str, rank: u32, bus: &str| {
        format!(
            "{host}:1{rank}:11 [0] NCCL INFO ncclCommInitRank comm 0x55d0 rank {rank} nranks 3 cudaDev 0 nvmlDev 0 busId {bus} commId 0xabc - Init COMPLETE\n"
        )
    };
    let apart = run(&[("a.log", line("a", 0, "1a000") + &line("b", 1, "1a000") + &line("c", 2, "1a000"))]);
    assert_eq!(status(&apart, Item::DeviceVisibility), ItemStatus::Pass);
    assert!(apart.causes.is_empty(), "{:?}", apart.causes);
    let shared = run(&[("a.log", line("a", 0, "1a000") + &line("a", 1, "1a000") + &line("b", 2, "1a000"))]);
    assert!(
        shared.findings[0].claim.starts_with("Two ranks work on the GPU with bus id 1a000"),
        "{:?}",
        shared.findings
    );
    // One visible GPU each, on nodes of their own.
    let nodes = current(&[(0, 0, "0", 0), (1, 0, "0", 0), (2, 0, "0", 0)]);
    assert_eq!(status(&nodes, Item::DeviceVisibility), ItemStatus::Pass);
    let by_name = current(&[(0, 0, "GPU-aa1", 0), (1, 1, "GPU-aa2", 0)]);
    assert_eq!(status(&by_name, Item::DeviceVisibility), ItemStatus::Pass);
}

#[test]
fn equal_batches_are_shown_where_batches_are_told() {
    let log = |rank: u32| {
        let step = |step| format!("rank={rank} step={step} shape=(8, 512) peak=1000.0MB\n");
        (format!("train_rank{rank}.log"), (0..30).map(step).collect::<String>())
    };
    let bare = |rank: u32| {
        let step = |step| format!("rank={rank} step={step} allocated=900.0MB\n");
        (format!("memory_rank{rank}.out"), (0..30).map(step).collect::<String>())
    };
    let files = [bare(0), bare(1), log(0), log(1)];
    let found = run(&files.each_ref().map(|(name, text)| (name.as_str(), text.clone())));
    let equal = found.findings.iter().find(|f| f.claim.contains("have equal batches at each of 30 steps")).unwrap();
    assert!(
        !equal.evidence.is_empty() && equal.evidence.iter().all(|at| at.artifact.starts_with("train_")),
        "{equal:?}"
    );
}

#[test]
fn of_two_equal_logs_neither_is_the_copy() {
    let text = (0..5).fold(String::new(), |text, step| text + &format!("rank=0 step={step} peak=1000.0MB\n"));
    let said = |names: [&str; 2]| {
        let found = run(&names.map(|name| (name, text.clone())));
        found.findings.iter().find(|f| f.claim.contains("count once")).unwrap().claim.clone()
    };
    assert_eq!(said(["a.log", "b.log"]), said(["b.log", "a.log"]));
    assert_eq!(said(["a.log", "b.log"]), "a.log and b.log hold the same records, which count once.");
}

#[test]
fn an_engine_of_the_same_launch_is_no_stranger() {
    let script = "#!/bin/bash\nCUDA_VISIBLE_DEVICES=1 vllm serve m --gpu_memory_utilization 0.9 &\npython train.py\n";
    let log = failure(0, 1, &[("train.py", "main")]);
    let found = run(&[("run.sh", script.to_owned()), ("job.log", log.clone())]);
    assert_eq!(top(&found), Some(CauseLabel::ColocatedEngineOrDeviceMap));
    let apart = script.replace("\npython", "\nCUDA_VISIBLE_DEVICES=0 python");
    assert!(
        confidence(&run(&[("run.sh", apart), ("job.log", log)]), CauseLabel::ColocatedEngineOrDeviceMap) < f64::EPSILON
    );
}

#[test]
fn a_global_batch_must_divide_over_the_ranks() {
    let log = |global: u32| {
        (
            "job.log",
            format!("world size: 8\n  Total train batch size (w. parallel, distributed & accumulation) = {global}\n"),
        )
    };
    let uneven = run(&[log(100)]);
    assert_eq!(status(&uneven, Item::BatchDivisibility), ItemStatus::Suspect);
    assert_eq!(status(&run(&[log(64)]), Item::BatchDivisibility), ItemStatus::Unknown);
    assert!(run(&[log(64)]).findings.iter().any(|f| f.claim.contains("divides evenly")));
}

#[test]
fn a_phase_that_the_log_announced_hints_at_its_work() {
    let oom = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 MiB (GPU 1; 8.00 GiB total capacity; 7.00 GiB already allocated; 1.00 MiB free; 7.10 GiB reserved in total by PyTorch)\n";
    let found = run(&[("job.log", format!("***** Running Evaluation *****\n{oom}"))]);
    assert!(confidence(&found, CauseLabel::Rank0Eval) > 0.0);
    let over = format!("***** Running Evaluation *****\n[train] rank=0 step=3 cur=1.0MB peak=2.0MB\n{oom}");
    let reasons = run(&[("job.log", over)]);
    assert!(reasons.causes.iter().all(|c| c.why.iter().all(|why| !why.contains("evaluating"))));
}

/// What every rank keeps is how the job works; what one keeps is a difference.
#[test]
fn a_cache_that_all_ranks_share_is_no_cause_and_one_that_stands_out_is() {
    let text = |reserved_of: fn(u32) -> u32| -> String {
        let lines = (0..20).flat_map(|step| (0..4).map(move |rank| (step, rank)));
        let line = |(step, rank)| {
            let reserved = reserved_of(rank);
            format!("rank={rank} step={step} allocated=20000MiB peak=21000MiB peak_reserved={reserved}MiB\n")
        };
        lines.map(line).collect()
    };
    let log = |reserved_of| run(&[("job.log", text(reserved_of))]);
    let label = CauseLabel::AllocatorFragmentation;
    let (alike, apart) = (log(|_| 34_000), log(|rank| if rank == 2 { 34_000 } else { 22_000 }));
    assert_eq!(status(&apart, Item::MemoryStats), ItemStatus::Suspect);
    assert_ne!(status(&alike, Item::MemoryStats), ItemStatus::Suspect);
    assert!(confidence(&alike, label) < confidence(&apart, label) / 2.0, "{}", confidence(&alike, label));
    assert_ne!(top(&alike), Some(label));
    // Where segments may grow already, that speaks against it, and is not advised again.
    let uneven = text(|rank| if rank == 2 { 34_000 } else { 22_000 });
    let env = "PATH=/usr/bin\nHOME=/root\nRANK=2\nWORLD_SIZE=4\nPYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n";
    let set = run(&[("job.log", uneven), ("env.txt", env.to_owned())]);
    let cause = set.causes.iter().find(|cause| cause.label == label).unwrap();
    assert!(cause.confidence < confidence(&apart, label));
    assert!(cause.against.iter().any(|reason| reason.contains("already expandable")), "{:?}", cause.against);
    assert!(!cause.remedy.contains("+ export"), "{}", cause.remedy);
}

#[test]
fn the_ends_of_a_pipeline_that_the_launch_names_hold_more_by_design() {
    let log = |head: &str, peak_of: fn(u32) -> u32| {
        let lines = (0..8).map(|rank| format!("rank={rank} step=20 peak={}MiB\n", peak_of(rank)));
        run(&[("job.log", format!("{head}\n{}", lines.collect::<String>()))])
    };
    let named =
        "using world size: 8, data-parallel size: 1, tensor-model-parallel size: 2, pipeline-model-parallel size: 4";
    let ends = |rank| if (2..6).contains(&rank) { 20_000 } else { 24_000 };
    let told = log(named, ends);
    assert!(
        told.summary.contains("because the ends of its four pipeline stages hold more by design"),
        "{}",
        told.summary
    );
    let cause = &told.causes[0];
    assert_eq!((cause.label, cause.ranks.as_slice()), (CauseLabel::PipelineStageImbalance, &[0, 1, 6, 7][..]));
    let finding = told.findings.iter().find(|finding| finding.label == Some(cause.label)).unwrap();
    assert_eq!((finding.severity, finding.evidence[0].line), (Severity::Info, Some(1)));
    assert!(told.is_by_design() && told.verdict_title() == "Different by design");
    // Where the stages are not named, or one rank of an end stands out alone, it stays a guess.
    assert!(!log("", ends).is_by_design());
    assert!(confidence(&log("", ends), cause.label) < cause.confidence - 0.2);
    let one = log(named, |rank| if rank == 0 { 24_000 } else { 20_000 });
    assert_ne!(top(&one), Some(cause.label), "{}", one.summary);
    assert!(!one.is_by_design());
}

/// Nothing in the pictures is hot where nothing is wrong.
#[test]
fn charts_of_a_difference_by_design_accuse_nobody() {
    let head = "using world size: 4, data-parallel size: 1, pipeline-model-parallel size: 4\n";
    let log = |head: &str| {
        let lines: Vec<String> = (0..3)
            .flat_map(|step| (0..4u32).map(move |rank| (step, rank)))
            .map(|(step, rank)| {
                let peak = if rank == 0 || rank == 3 { 24_000 } else { 20_000 };
                format!("rank={rank} step={step} peak={peak}MiB\n")
            })
            .collect();
        let text = format!("{head}{}", lines.concat());
        let evidence = read_upload("job.log", &mut Cursor::new(text.as_bytes()), &Limits::default());
        let policy = Policy::default();
        let diagnosis = diagnose(&evidence, &policy);
        let drawn = figures(&evidence, &diagnosis, &policy);
        let lines = drawn.timeline.iter().flat_map(|timeline| timeline.lines.iter().map(|line| line.accused));
        let bars = drawn.peaks.iter().flat_map(|peaks| peaks.bars.iter().map(|bar| bar.accused));
        lines.chain(bars).filter(|accused| *accused).count()
    };
    assert_eq!(log(head), 0);
    assert!(log("") > 0);
}
