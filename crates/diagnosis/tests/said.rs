//! That what is said is what is known: missing sizes are not zero, the gap opens where it opens, a snapshot without a
//! rank is not lost, and a later table without the gap is not explained by the script that cured it.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

mod support;

use rankscope_diagnosis::{Policy, diagnose, figures, next_step};
use rankscope_model::{
    ArtifactId, ArtifactKind, Bytes, CauseLabel, Diagnosis, Evidence, Frame, GIB, Item, ItemStatus, OomEvent, PartKind,
    Phase, Provenance, Quantity, Rank, SnapshotDevice, SnapshotEvidence, Subject, Verdict,
};
use support::{Build, mib, others, script, snapshot_device, status, stray_contexts, with};

fn run(evidence: &Evidence) -> Diagnosis {
    diagnose(evidence, &Policy::default())
}

fn smi(name: &str) -> Build {
    Build::default().file(name, ArtifactKind::NvidiaSmi)
}

fn ddp(bind: &str) -> String {
    format!(
        "import os, torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as \
         DDP\n\ndef main():\n    local = int(os.environ['LOCAL_RANK'])\n{bind}    dist.init_process_group('nccl')\n    \
         model = build().to(torch.device('cuda', local))\n    model = DDP(model)\n    opt = \
         torch.optim.AdamW(model.parameters())\n    for epoch in range(9):\n        for batch in loader:\n            \
         loss = model(batch).mean()\n            loss.backward()\n            opt.step()\n\nif __name__ == \
         '__main__':\n    main()\n"
    )
}

// ---- what fills one card explains no other ----

#[test]
fn rows_on_one_card_are_not_why_another_rank_stands_out() {
    let mut build = Build::default().file("train.log", ArtifactKind::StepLog);
    for step in 1..=12 {
        for rank in 0..4 {
            let peak = if rank == 2 { 18_000 } else { 11_000 };
            build = build.step(rank, Some(step), |record| {
                record.phase = Some(Phase::Train);
                record.peak_allocated = mib(peak);
            });
        }
    }
    let diagnosis = run(&with(stray_contexts(), build.evidence));
    if diagnosis.summary.starts_with("Rank 2") {
        assert!(!diagnosis.summary.contains("because"), "{}", diagnosis.summary);
        assert!(diagnosis.summary.contains("on GPU 0"), "{}", diagnosis.summary);
    } else {
        assert!(diagnosis.summary.starts_with("GPU 0"), "{}", diagnosis.summary);
    }
}

// ---- missing is not zero ----

#[test]
fn rows_without_sizes_are_held_against_no_gap() {
    let mut evidence = stray_contexts();
    evidence.device_tables[0].processes.iter_mut().for_each(|row| row.used = None);
    let diagnosis = run(&evidence);
    assert_eq!(diagnosis.verdict, Verdict::Imbalance);
    for cause in &diagnosis.causes {
        for reason in cause.why.iter().chain(&cause.against) {
            assert!(!reason.contains("0 B") && !reason.contains("cannot be the gap"), "{reason}");
        }
    }
    assert!(!diagnosis.summary.contains("explained"), "{}", diagnosis.summary);
    let cards = figures(&evidence, &diagnosis, &Policy::default()).composition;
    let kinds: Vec<PartKind> = cards[0].parts.iter().map(|part| part.kind).collect();
    assert_eq!(kinds, [PartKind::UnsizedProcesses]);
    assert_eq!(cards[0].used(), Bytes::from_mib(32268));
}

#[test]
fn one_row_without_a_size_leaves_the_sum_open() {
    let mut evidence = stray_contexts();
    evidence.device_tables[0].processes[3].used = None;
    let diagnosis = run(&evidence);
    let reasons = diagnosis.causes.iter().flat_map(|cause| cause.why.iter().chain(&cause.against));
    assert!(reasons.into_iter().all(|reason| !reason.contains("account for")), "{:#?}", diagnosis.causes);
    assert_eq!(diagnosis.imbalance.unwrap().explained_bytes, None);
}

// ---- the gap opens where it stays ----

#[test]
fn the_gap_opens_where_the_heaviest_leaves_the_others_for_good() {
    let peaks =
        [[4100, 4110, 4090, 4130], [4720, 4720, 4070, 4790], [4450, 3990, 4430, 3950], [4130, 6960, 4300, 3970]];
    let mut build = Build::default().file("train.log", ArtifactKind::StepLog);
    for (step, row) in peaks.iter().chain([&[4740, 4150, 4730, 4490]]).enumerate() {
        for (rank, peak) in row.iter().enumerate() {
            let rank = u32::try_from(rank).unwrap();
            build = build.step(rank, Some(step as u64), |record| record.peak_allocated = mib(*peak));
        }
    }
    let imbalance = run(&build.evidence).imbalance.unwrap();
    assert_eq!(imbalance.heaviest, [Subject::Rank(Rank(1))]);
    assert_eq!(imbalance.opens_at.unwrap().step, Some(3));
}

// ---- one step carries no more than itself ----

fn train_log(peaks: &[&[u64]], edit: impl Fn(&mut rankscope_model::StepRecord, u64)) -> Evidence {
    let mut build = Build::default().file("train.log", ArtifactKind::StepLog);
    for (step, row) in peaks.iter().enumerate() {
        for (rank, peak) in row.iter().enumerate() {
            build = build.step(u32::try_from(rank).unwrap(), Some(step as u64), |record| {
                record.phase = Some(Phase::Train);
                edit(record, *peak);
            });
        }
    }
    build.evidence
}

#[test]
fn a_step_of_ranks_that_take_turns_is_no_peak_and_no_opening() {
    // Each rank is the heavy one once: over the record their peaks are equal.
    let turns: Vec<Vec<u64>> = (0..8)
        .map(|step| (0..4).map(|rank| if step % 4 == rank { 9000 } else { 6000 + step * 10 }).collect())
        .collect();
    let rows: Vec<&[u64]> = turns.iter().map(Vec::as_slice).collect();
    let evidence = train_log(&rows, |record, peak| record.peak_allocated = mib(peak));
    let diagnosis = run(&evidence);
    let imbalance = diagnosis.imbalance.as_ref().unwrap();
    assert_eq!(diagnosis.verdict, Verdict::Imbalance);
    assert_eq!(imbalance.opens_at, None);
    let at = imbalance.at.as_ref().unwrap();
    assert_eq!((at.step, at.text.as_str()), (Some(0), "at step 0"));
    assert!(diagnosis.summary.starts_with("At step 0 rank 0 is 50 % above the median rank"), "{}", diagnosis.summary);
    assert!(!diagnosis.summary.contains("at the peak"), "{}", diagnosis.summary);
    let drawn = figures(&evidence, &diagnosis, &Policy::default());
    assert_eq!(drawn.peaks.unwrap().at.as_deref(), Some("at step 0"));
    let marks: Vec<String> = drawn.timeline.unwrap().marks.into_iter().map(|mark| mark.text).collect();
    assert!(marks.contains(&"widest gap".to_owned()) && !marks.contains(&"gap opens".to_owned()), "{marks:?}");

    // A rank that is heavy throughout has a peak, and the gap opens.
    let steady: Vec<Vec<u64>> = (0..8).map(|_| vec![9000, 6000, 6000, 6000]).collect();
    let rows: Vec<&[u64]> = steady.iter().map(Vec::as_slice).collect();
    let evidence = train_log(&rows, |record, peak| record.peak_allocated = mib(peak));
    let diagnosis = run(&evidence);
    let imbalance = diagnosis.imbalance.as_ref().unwrap();
    assert!(imbalance.at.is_none() && imbalance.opens_at.is_some());
    assert!(diagnosis.summary.contains("above the median rank at the peak"), "{}", diagnosis.summary);
    assert_eq!(figures(&evidence, &diagnosis, &Policy::default()).peaks.unwrap().at, None);
}

#[test]
fn a_log_of_one_step_tells_of_no_opening() {
    let evidence = train_log(&[&[9000, 6000, 6000]], |record, peak| record.allocated = mib(peak));
    let diagnosis = run(&evidence);
    let imbalance = diagnosis.imbalance.as_ref().unwrap();
    assert_eq!(imbalance.opens_at, None);
    assert_eq!(imbalance.at.as_ref().unwrap().text, "at step 0");
    assert_eq!(figures(&evidence, &diagnosis, &Policy::default()).peaks.unwrap().at.as_deref(), Some("at step 0"));
}

// ---- the proof is asked for in the kind that showed the difference ----

fn proof_of(diagnosis: &Diagnosis) -> Vec<String> {
    let entry = diagnosis.checklist.iter().find(|entry| entry.item == Item::Verified).unwrap();
    entry.collect.iter().map(|collect| collect.command.clone()).collect()
}

#[test]
fn what_logs_showed_is_proven_by_logs_and_what_a_table_showed_by_a_table() {
    let lengths: [[u64; 4]; 6] = [
        [512, 498, 505, 934],
        [700, 480, 505, 600],
        [512, 1498, 505, 634],
        [312, 498, 505, 500],
        [400, 900, 500, 610],
        [512, 512, 640, 500],
    ];
    let rows: Vec<&[u64]> = lengths.iter().map(<[u64; 4]>::as_slice).collect();
    let logged = run(&train_log(&rows, |record, length| {
        record.batch_shape = Some(vec![8, length]);
        record.peak_allocated = mib(6000 + 4 * length);
    }));
    assert_eq!(logged.causes[0].label, CauseLabel::VariableShapeBatches);
    let (item, next) = next_step(&logged).unwrap();
    assert_eq!(item, Item::Verified);
    assert!(next.command.contains("max_memory_allocated"), "{}", next.command);
    assert!(proof_of(&logged).iter().all(|command| !command.contains("nvidia-smi")), "{:?}", proof_of(&logged));

    let tabled = run(&stray_contexts());
    assert!(proof_of(&tabled)[0].contains("nvidia-smi"), "{:?}", proof_of(&tabled));

    let heavy = |n| if n == 0 { 14_000 } else { 9_000 };
    let held = run(&pickles(4, |n| snapshot(n, n, heavy(n))));
    assert!(proof_of(&held)[0].contains("_dump_snapshot"), "{:?}", proof_of(&held));
}

#[test]
fn what_an_evaluation_showed_is_proven_by_an_evaluation() {
    let mut build = Build::default().file("train.log", ArtifactKind::StepLog);
    for (phase, step) in [(Phase::Train, 1), (Phase::Train, 2), (Phase::Eval, 2), (Phase::Train, 3)] {
        for rank in 0..4u32 {
            let peak = if phase == Phase::Eval && rank == 0 { 31_000 } else { 20_000 };
            build = build.step(rank, Some(step), |record| {
                record.phase = Some(phase);
                record.peak_allocated = mib(peak);
            });
        }
    }
    let proof = proof_of(&run(&build.evidence));
    assert!(proof[0].contains("[eval]") && proof[0].contains("[train]"), "{proof:?}");
}

// ---- a balanced run has nothing to mend ----

#[test]
fn a_balanced_run_is_called_so_with_its_figure_and_has_no_cause() {
    let sample = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/samples/lengths-after.log");
    let evidence = support::upload("lengths-after.log", &std::fs::read_to_string(sample).unwrap());
    let diagnosis = run(&evidence);
    assert_eq!(diagnosis.verdict, Verdict::Balanced);
    assert_eq!(diagnosis.causes, []);
    assert!(
        diagnosis.summary.starts_with("Balanced in what was read: all four ranks are at 11.3 GiB"),
        "{}",
        diagnosis.summary
    );
    assert_eq!(status(&diagnosis, Item::BatchDivisibility), ItemStatus::Pass);
    let claim = diagnosis.findings.iter().find(|finding| finding.item == Item::BatchDivisibility).unwrap();
    assert!(claim.claim.contains("are within") && claim.claim.contains("of each other"), "{}", claim.claim);
    let (_, next) = next_step(&diagnosis).unwrap();
    assert!(!next.what.contains("after the fix"), "{}", next.what);
    assert!(proof_of(&diagnosis).iter().all(|command| !command.contains("after")), "{:?}", proof_of(&diagnosis));
    assert!(!diagnosis.summary.contains("prove"), "{}", diagnosis.summary);
}

#[test]
fn a_faulty_script_beside_a_balanced_table_is_told_and_is_no_cause() {
    let cards: Vec<_> = (0..4).map(|gpu| (gpu, 20_000 + u64::from(gpu) * 10, 32_510, 90)).collect();
    let rows: Vec<_> = (0..4).map(|gpu| (gpu, 700 + gpu, "python", 19_900)).collect();
    let table = smi("nvidia-smi.txt").table(None, &cards, &rows).evidence;
    let diagnosis = run(&with(table, script("train.py", &ddp(""))));
    assert_eq!(diagnosis.verdict, Verdict::Balanced);
    assert!(diagnosis.causes.iter().all(|cause| cause.label != CauseLabel::CtxNoSetDevice), "{:?}", diagnosis.causes);
    assert!(diagnosis.summary.contains("the highest under 1 % above the median"), "{}", diagnosis.summary);
    assert_ne!(status(&diagnosis, Item::DeviceVisibility), ItemStatus::Unknown);
}

#[test]
fn a_leak_on_all_ranks_stays_a_cause_although_they_are_equal() {
    let grows: Vec<Vec<u64>> = (0..12).map(|step| vec![2400 + 900 * step; 2]).collect();
    let rows: Vec<&[u64]> = grows.iter().map(Vec::as_slice).collect();
    let diagnosis = run(&train_log(&rows, |record, held| record.allocated = mib(held)));
    assert_eq!(diagnosis.verdict, Verdict::Balanced);
    assert_eq!(diagnosis.causes[0].label, CauseLabel::PerStepLeak);
}

// ---- snapshots without a rank in the name ----

fn snapshot(file: u32, device: u32, mib: u64) -> SnapshotEvidence {
    support::snapshot(file, None, vec![snapshot_device(device, Bytes::from_mib(mib))])
}

fn pickles(count: u32, of: impl Fn(u32) -> SnapshotEvidence) -> Evidence {
    support::snapshot_files(count, |n| format!("gpu{n}_snap.pickle"), of)
}

#[test]
fn snapshots_of_different_devices_are_compared_without_a_rank() {
    let heavy = |n| if n == 0 { 14_000 } else { 9_000 };
    let apart = run(&pickles(4, |n| snapshot(n, n, heavy(n))));
    assert_eq!(apart.imbalance.unwrap().heaviest, [Subject::Device(0)]);
    let mut one = snapshot(0, 0, 14_000);
    one.devices.extend((1..4).flat_map(|n| snapshot(0, n, 9_000).devices));
    let together = run(&pickles(1, |_| one.clone()));
    assert_eq!(together.imbalance.unwrap().heaviest, [Subject::Device(0)]);
    // All are device 0 of their process: only names could tell.
    let same = run(&pickles(4, |n| snapshot(n, 0, heavy(n))));
    assert!(same.imbalance.is_none());
    assert!(same.summary.contains("name them snapshot_rank0.pickle"), "{}", same.summary);
}

#[test]
fn a_snapshot_claims_nothing_outside_the_allocator() {
    let mut evidence = pickles(1, |n| snapshot(n, 0, 1000));
    evidence.snapshots[0].devices[0].allocated = Bytes::from_mib(610);
    evidence.snapshots[0].devices[0].active = Bytes::from_mib(610);
    let diagnosis = run(&evidence);
    assert_ne!(status(&diagnosis, Item::MemoryStats), ItemStatus::Pass);
    let claim = &diagnosis.findings.iter().find(|finding| finding.item == Item::MemoryStats).unwrap().claim;
    assert!(claim.contains("61 %") && !claim.contains("Nearly all"), "{claim}");
    assert!(claim.contains("outside its allocator is not told"), "{claim}");

    // A full cache between two steps is normal, and no fault.
    let device = &mut evidence.snapshots[0].devices[0];
    (device.reserved, device.allocated, device.active) = (Bytes(20 * GIB), Bytes(8 * GIB), Bytes(8 * GIB));
    assert_ne!(status(&run(&evidence), Item::MemoryStats), ItemStatus::Fail);
}

// ---- messages and headlines ----

#[test]
fn a_message_that_lists_contexts_of_others_has_a_headline() {
    let list: Vec<(u32, u64)> = (0..15).map(|n| (4100 + 7 * n, 1219)).collect();
    let log = Build::default().file("err.log", ArtifactKind::JobLog);
    let diagnosis = run(&log
        .oom(|oom| {
            oom.device = Some(0);
            oom.others = others(&list);
        })
        .evidence);
    assert!(
        diagnosis.summary.contains("15 other processes") || diagnosis.summary.contains("lists 15"),
        "{}",
        diagnosis.summary
    );
    let silent = Build::default().file("err.log", ArtifactKind::JobLog).oom(|_| {}).evidence;
    let summary = run(&silent).summary;
    assert!(summary.contains("an out-of-memory message without figures"), "{summary}");
}

#[test]
fn files_of_one_process_ask_for_the_same_of_the_others() {
    let snapshot = run(&pickles(1, |n| snapshot(n, 0, 1000)));
    let (item, next) = next_step(&snapshot).unwrap();
    assert_eq!(item, Item::MemoryStats);
    assert!(next.command.contains("_dump_snapshot"), "{}", next.command);

    let mut log = Build::default().file("rank0.log", ArtifactKind::StepLog);
    for step in 1..=4 {
        log = log.step(0, Some(step), |record| record.peak_allocated = mib(9000));
    }
    let (item, next) = next_step(&run(&log.evidence)).unwrap();
    assert_eq!(item, Item::BatchDivisibility);
    assert!(next.command.contains("rank={dist.get_rank()}"), "{}", next.command);

    // With a table of cards beside it, who holds what is the question.
    let with_table = log.file("smi.txt", ArtifactKind::NvidiaSmi).table(None, &[(0, 20_000, 24_576, 90)], &[]);
    assert_ne!(next_step(&run(&with_table.evidence)).unwrap().0, Item::BatchDivisibility);
}

#[test]
fn every_card_that_one_process_visits_is_named() {
    let cards = [(0, 31_418, 32_768, 90), (1, 24_930, 32_768, 90), (2, 9_918, 32_768, 90), (3, 16_306, 32_768, 90)];
    let rows = [
        (0, 700, "python", 1635),
        (1, 700, "python", 535),
        (1, 801, "python", 24_395),
        (2, 700, "python", 535),
        (2, 802, "python", 9383),
        (3, 700, "python", 535),
        (3, 803, "python", 15_771),
    ];
    let diagnosis = run(&smi("nvidia-smi.txt").table(None, &cards, &rows).evidence);
    let claim = "One process at home on GPU 0 also holds 535 MiB each on GPUs 1 to 3.";
    assert!(diagnosis.findings.iter().any(|finding| finding.claim == claim), "{:#?}", diagnosis.findings);
}

#[test]
fn those_without_a_figure_are_not_among_the_balanced() {
    let mut log = Build::default().file("train.log", ArtifactKind::StepLog);
    for step in 1..=4 {
        for rank in 0..5 {
            log = log.step(rank, Some(step), |record| {
                record.batch_shape = Some(vec![8, 512]);
                record.peak_allocated = if rank < 2 { mib(9000) } else { None };
            });
        }
    }
    let summary = run(&log.evidence).summary;
    assert!(summary.starts_with("Balanced in what was read: two of five ranks are at"), "{summary}");
}

#[test]
fn one_full_card_among_many_is_not_said_to_be_taken_whole() {
    let cards: Vec<_> =
        (0..8).map(|gpu| if gpu == 4 { (gpu, 79_900, 81_559, 0) } else { (gpu, 50_000, 81_559, 93) }).collect();
    let rows: Vec<_> = cards.iter().map(|card| (card.0, 700 + card.0, "python", card.1 - 500)).collect();
    let diagnosis = run(&smi("nvidia-smi.txt").table(None, &cards, &rows).evidence);
    assert!(!diagnosis.summary.contains("took the whole card"), "{}", diagnosis.summary);
    assert!(diagnosis.findings.iter().all(|finding| finding.label != Some(CauseLabel::FrameworkPrealloc)));
}

#[test]
fn the_headline_names_the_next_step_also_for_one_snapshot_and_one_card() {
    let one_card = smi("nvidia-smi.txt")
        .table(None, &[(0, 20_000, 24_576, 90), (1, 4, 24_576, 0)], &[(0, 77, "python", 19_990)])
        .evidence;
    for evidence in [pickles(1, |n| snapshot(n, 0, 1000)), one_card.clone(), stray_contexts()] {
        let diagnosis = run(&evidence);
        let (_, collect) = next_step(&diagnosis).unwrap();
        if let Some((_, said)) = diagnosis.summary.split_once("What would settle it: ") {
            let clause = collect.what.split([';', ':', '.']).next().unwrap().to_lowercase();
            assert!(said.to_lowercase().starts_with(clause.trim()), "{} / {}", diagnosis.summary, collect.what);
        }
    }
    // The table is there; what it lacks is asked for.
    let (_, collect) = next_step(&run(&one_card)).unwrap();
    assert!(!collect.command.contains("nvidia-smi"), "{}", collect.command);
}

#[test]
fn growth_is_drawn_as_what_grows() {
    let mut build = Build::default().file("train.log", ArtifactKind::StepLog);
    for step in 0..12u64 {
        for rank in 0..2 {
            build = build.step(rank, Some(step), |row| {
                row.phase = Some(Phase::Eval);
                (row.allocated, row.peak_allocated) = (mib(2000 + 300 * step), mib(9000));
            });
        }
    }
    let diagnosis = run(&build.evidence);
    assert_eq!(diagnosis.causes[0].label, CauseLabel::MetricGatherOnGpu);
    let timeline = figures(&build.evidence, &diagnosis, &Policy::default()).timeline.unwrap();
    assert_eq!((timeline.quantity, timeline.lines[0].y.len()), (Quantity::Allocated, 12));
}

#[test]
fn no_text_asks_for_a_traceback_that_was_read() {
    let mut build = Build::default().file("train.log", ArtifactKind::StepLog);
    for step in 0..4u64 {
        for rank in 0..2 {
            build = build.step(rank, Some(step), |row| row.peak_allocated = mib(9000));
        }
    }
    let fail = |frames: Vec<Frame>| {
        let mut evidence = build.evidence.clone();
        evidence.ooms.push(rankscope_model::OomEvent {
            rank: Some(Rank(0)),
            allocated: mib(15_000),
            frames,
            ..support::empty_oom(Provenance::line(ArtifactId(0), 99, "CUDA out of memory"))
        });
        run(&evidence)
    };
    let says = |diagnosis: &Diagnosis| {
        diagnosis.causes.iter().flat_map(|cause| &cause.against).any(|text| text.contains("the traceback tells"))
    };
    assert!(says(&fail(vec![])));
    let frame = |function: &str| Frame { function: function.into(), file: "/srv/train.py".into(), line: 7 };
    let told = fail(vec![frame("forward"), frame("evaluate"), frame("main")]);
    assert!(!says(&told));
    assert_eq!(told.causes[0].label, CauseLabel::Rank0Eval);
    assert!(!says(&fail(vec![frame("inner"), frame("main")])));
}

#[test]
fn one_card_that_grows_with_time_is_a_leak_and_is_drawn_with_its_table() {
    let mut build = smi("loop.txt");
    for minute in 0..20u64 {
        let cards: Vec<_> =
            (0..4).map(|gpu| (gpu, if gpu == 0 { 6_130 + 180 * minute } else { 6_126 }, 11_264, 95)).collect();
        build = build.table(Some(60 * i64::try_from(minute).unwrap()), &cards, &[]);
    }
    let diagnosis = run(&build.evidence);
    assert_eq!(diagnosis.causes[0].label, CauseLabel::PerStepLeak);
}

#[test]
fn tokens_dealt_by_a_router_are_its_imbalance() {
    let mut build = Build::default().file("train.log", ArtifactKind::StepLog);
    for step in 0..6u64 {
        for rank in 0..4u32 {
            let tokens = if rank == 2 { 20_700 + 40 * step } else { 3_900 + 50 * u64::from(rank) + 17 * step };
            build = build.step(rank, Some(step), |row| {
                (row.batch_shape, row.routed_tokens) = (Some(vec![1, 4096]), Some(tokens));
                row.peak_allocated = mib(36_000 + tokens * 18 / 10);
            });
        }
    }
    let diagnosis = run(&build.evidence);
    assert_eq!(diagnosis.causes[0].label, CauseLabel::MoeRoutingImbalance);
}

// ---- after the fix ----

/// The same job with every process on its own card, as other processes.
fn mended(name: &str, seconds: Option<i64>) -> Evidence {
    let cards: Vec<_> = (0..8).map(|gpu| (gpu, 26_300 + u64::from(gpu), 32_510, 95)).collect();
    let rows: Vec<_> = (0..8).map(|gpu| (gpu, 51_000 + 3 * gpu, "/opt/conda/bin/python", 26_290)).collect();
    smi(name).table(seconds, &cards, &rows).evidence
}

#[test]
fn a_later_table_without_the_gap_is_told_and_the_mended_script_accuses_nobody() {
    let unbound = ddp("");
    let bound = ddp("    torch.cuda.set_device(local)\n");
    let before = run(&stray_contexts());
    for with_old_script in [true, false] {
        let mut evidence = stray_contexts();
        if with_old_script {
            evidence.merge(script("train.py", &unbound));
        }
        evidence.merge(mended("nvidia-smi-after.txt", Some(90 * 60)));
        evidence.merge(script("train_fixed.py", &bound));
        let diagnosis = run(&evidence);
        assert_eq!(diagnosis.causes[0].label, CauseLabel::CtxNoSetDevice);
        if !with_old_script {
            let confidences = |diagnosis: &Diagnosis| diagnosis.causes.iter().map(|c| c.label).collect::<Vec<_>>();
            assert_eq!(confidences(&diagnosis), confidences(&before));
        }
        assert!(diagnosis.summary.contains("in nvidia-smi-after.txt the gap is"), "{}", diagnosis.summary);
        let closing = diagnosis.findings.iter().filter(|finding| finding.item == Item::Verified);
        assert!(closing.into_iter().any(|f| f.claim.contains("make it a new run to compare")));
        assert_eq!(next_step(&diagnosis).unwrap().0, Item::Verified);
        // One reading is no proof: that takes two runs side by side.
        assert_eq!(status(&diagnosis, Item::Verified), ItemStatus::Unknown);
    }
}

#[test]
fn an_earlier_table_without_the_gap_is_no_cure() {
    let mut evidence = mended("nvidia-smi-fresh.txt", Some(5 * 60));
    evidence.merge(stray_contexts());
    let diagnosis = run(&evidence);
    assert_ne!(status(&diagnosis, Item::Verified), ItemStatus::Pass);
    assert!(!diagnosis.summary.contains("new run"), "{}", diagnosis.summary);
}

#[test]
fn of_two_versions_of_a_script_the_first_one_ran() {
    let mut evidence = stray_contexts();
    evidence.merge(script("train.py", &ddp("")));
    let alone = run(&evidence);
    evidence.merge(script("train_fixed.py", &ddp("    torch.cuda.set_device(local)\n")));
    let diagnosis = run(&evidence);
    assert_eq!(diagnosis.causes[0].label, CauseLabel::CtxNoSetDevice);
    assert!((diagnosis.causes[0].confidence - alone.causes[0].confidence).abs() < 1e-9);
    assert!(
        diagnosis.findings.iter().any(|f| f.item == Item::Verified && f.claim.contains("later version of train.py"))
    );
}

// ---- remedies ----

#[test]
fn a_call_over_several_lines_is_quoted_and_mended() {
    let text = "import os, torch\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n\ndef \
                main():\n    model = AutoModelForCausalLM.from_pretrained(\n        \"m\", device_map={\"\": 0})\n    \
                Trainer(model, TrainingArguments(\"out\")).train()\n\nif __name__ == \"__main__\":\n    main()\n";
    let mut evidence = stray_contexts();
    evidence.merge(script("dpo.py", text));
    let diagnosis = run(&evidence);
    let cause = diagnosis.causes.iter().find(|c| c.label == CauseLabel::HardcodedOrDefaultDevice).unwrap();
    assert!(cause.evidence.iter().any(|at| at.quote.contains("device_map={\"\": 0}")), "{:#?}", cause.evidence);
    assert!(cause.remedy.contains("In dpo.py, lines 5 to 6:"), "{}", cause.remedy);
    assert!(
        cause.remedy.ends_with("+        \"m\", device_map={\"\": int(os.environ[\"LOCAL_RANK\"])})"),
        "{}",
        cause.remedy
    );
}

#[test]
fn no_remedy_removes_a_line_that_nobody_has_written() {
    for cause in run(&stray_contexts()).causes {
        assert!(cause.remedy.lines().all(|line| !line.starts_with('-')), "{}", cause.remedy);
    }
}

#[test]
fn a_rank_that_draws_the_large_batches_most_often_is_not_said_to_take_turns() {
    let log = |heavy: fn(u32) -> u32| {
        let mut build = Build::default().file("train.log", ArtifactKind::StepLog);
        for step in 0..20 {
            for rank in 0..4 {
                let tokens = if rank == heavy(step) { 4000 } else { 1000 + u64::from(rank + step % 3) };
                build = build.step(rank, Some(u64::from(step)), |record| {
                    record.phase = Some(Phase::Train);
                    record.batch_shape = Some(vec![1, tokens]);
                    record.peak_allocated = mib(6000 + 3 * tokens);
                });
            }
        }
        let diagnosis = run(&build.evidence);
        let cause = diagnosis.causes.into_iter().find(|cause| cause.label == CauseLabel::VariableShapeBatches).unwrap();
        [cause.why, cause.against].concat().join("\n")
    };
    let turns = log(|step| step % 4);
    assert!(turns.contains("four ranks have it in turn"), "{turns}");
    let often = log(|step| if step % 4 == 0 { step % 3 } else { 3 });
    assert!(!often.contains("in turn"), "{often}");
    assert!(often.contains("Rank 3 has the largest batch at 15 of 20 uneven steps"), "{often}");
}

#[test]
fn a_line_of_one_rank_is_seen_though_it_is_as_small_as_the_smallest_of_the_others() {
    let of = |rank: u32, unlisted: u64| {
        let common = [("build", 900), ("init", 900)];
        let own = [common[0], common[1], ("ema_update", 900)];
        let mut snapshot = support::snapshot_of_sites(rank, if rank == 0 { &own } else { &common });
        let device = &mut snapshot.devices[0];
        if rank > 0 {
            device.allocated = Bytes(device.allocated.0 + Bytes::from_mib(unlisted).0);
        }
        snapshot
    };
    // The lists are whole: what is not in them is not there.
    let whole = run(&support::snapshot_files(4, |n| format!("snap_rank{n}.pickle"), |rank| of(rank, 0)));
    assert_eq!(status(&whole, Item::UnsyncedBuffers), ItemStatus::Fail);
    let cause = whole.causes.first().unwrap();
    assert_eq!(cause.label, CauseLabel::Rank0AuxBuffers);
    assert!(cause.why.join("\n").contains("no other rank holds anything there"), "{:?}", cause.why);

    // As much as that is not listed on the others: nothing is passed, and nothing is claimed.
    let cut = run(&support::snapshot_files(4, |n| format!("snap_rank{n}.pickle"), |rank| of(rank, 900)));
    assert_eq!(status(&cut, Item::UnsyncedBuffers), ItemStatus::Unknown);
}

/// Ray sets the visible devices of an actor itself, and no `LOCAL_RANK`.
#[test]
fn an_actor_of_ray_is_told_how_ray_gives_it_a_gpu() {
    let log = "INFO worker.py:1908 -- Connecting to existing Ray cluster at address: 127.0.0.1:6379...\n";
    let shared = "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1a000\n";
    let remedy = |more: &str| {
        let evidence = support::upload("ray_job.log", &format!("{log}{more}{shared}"));
        let diagnosis = run(&evidence);
        let found = diagnosis.causes.iter().find(|cause| cause.label == CauseLabel::RankGpuMapping);
        found.unwrap().remedy.clone()
    };
    let own = remedy("");
    assert!(own.contains("num_gpus=1") && own.contains("LOCAL_RANK is not set in actors"), "{own}");
    assert!(!own.contains("environ"), "{own}");
    let all = remedy("export RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1\n");
    assert!(all.contains("+ torch.cuda.set_device(int(ray.get_gpu_ids()[0]))"), "{all}");
    assert!(all.contains("+ unset RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"), "{all}");
}

// ---- what all do, or each in turn, is not said of one ----

#[test]
fn cards_that_take_turns_are_not_accused_by_the_readings_that_happen_to_be_highest() {
    // Another card is far above the others at every second reading; cards 3 and 5 reach highest.
    let mut build = smi("smi.txt");
    for reading in 0..14u32 {
        let heavy = (reading % 2 == 0).then_some(reading / 2);
        let used = |card: u32| if heavy == Some(card) { 9_000 + 700 * u64::from(card % 4) } else { 5_000 };
        let cards: Vec<_> = (0..8).map(|card| (card, used(card), 11_000, 90)).collect();
        build = build.table(Some(i64::from(reading) * 3), &cards, &[]);
    }
    let diagnosis = run(&build.evidence);
    assert!(diagnosis.summary.starts_with("At 7 of 14 readings one card is far above"), "{}", diagnosis.summary);
    assert!(diagnosis.summary.contains("seven cards take turns"), "{}", diagnosis.summary);
    let drawn = figures(&build.evidence, &diagnosis, &Policy::default());
    assert!(drawn.peaks.unwrap().bars.iter().all(|bar| !bar.accused));
    assert!(drawn.timeline.unwrap().lines.iter().all(|line| !line.accused));
}

#[test]
fn growth_on_all_ranks_is_said_of_all_and_marked_as_what_it_is() {
    let line = |phase: &str, rank: u32, step: u32, cur: u32| {
        format!("[{phase}] rank={rank} step={step} shape=(8, 128) cur={cur}.0MB peak=8127.4MB\n")
    };
    let log = |growing: &[u32]| {
        let mut text = String::new();
        for step in 0..5 {
            (0..2).for_each(|rank| text += &line("train", rank, step * 500, 5441));
        }
        for step in 0..12 {
            let cur = |rank| if growing.contains(&rank) { 5442 + 84 * step } else { 5442 };
            (0..2).for_each(|rank| text += &line("eval", rank, step * 500, cur(rank)));
        }
        support::upload("train.log", &text)
    };
    let (both, one) = (log(&[0, 1]), log(&[1]));
    let claim = |evidence: &Evidence| {
        let found = run(evidence).findings.into_iter().find(|finding| finding.claim.contains(" grows in evaluation"));
        found.unwrap().claim
    };
    assert!(
        claim(&both).starts_with("Allocated memory of both ranks grows in evaluation, on rank "),
        "{}",
        claim(&both)
    );
    assert!(claim(&one).starts_with("Allocated memory of rank 1 grows in evaluation from "), "{}", claim(&one));
    let marks = |evidence: &Evidence| {
        let drawn = figures(evidence, &run(evidence), &Policy::default());
        drawn.timeline.unwrap().marks.into_iter().map(|mark| mark.text).collect::<Vec<_>>().join(", ")
    };
    assert!(!marks(&both).contains("one rank only"), "{}", marks(&both));
    assert!(marks(&both).contains("predictions pile up"), "{}", marks(&both));
}

/// Two recordings a minute apart would leave most of one clock empty.
#[test]
fn recordings_of_different_times_are_drawn_from_their_own_start() {
    let recorded = |start: i64| {
        let live = rankscope_model::Series {
            axis: rankscope_model::SeriesAxis::UnixMicros,
            x: (0..10).map(|n| start + n * 100_000).collect(),
            y: (0..10).map(|n| (n + 1) << 20).collect(),
        };
        rankscope_model::SnapshotDevice { live: Some(live), ..snapshot_device(0, Bytes::from_mib(10)) }
    };
    let axis = |second: i64| {
        let starts = [1_764_500_000_000_000, 1_764_500_000_000_000 + second];
        let evidence = support::snapshot_files(
            2,
            |rank| format!("rank{rank}.pickle"),
            |rank| support::snapshot(rank, Some(rank), vec![recorded(starts[rank as usize])]),
        );
        let timeline = figures(&evidence, &run(&evidence), &Policy::default()).timeline.unwrap();
        (timeline.axis, timeline.lines.iter().map(|line| (line.x[0], *line.x.last().unwrap())).collect::<Vec<_>>())
    };
    let (apart, places) = axis(60_000_000);
    assert_eq!((apart, places), (rankscope_model::SeriesAxis::SinceStart, vec![(0, 900_000), (0, 900_000)]));
    assert_eq!(axis(500_000).0, rankscope_model::SeriesAxis::UnixMicros);
}

#[test]
fn a_surplus_that_is_cache_is_said_to_be_cache() {
    let of = |rank: u32, in_use: u64, reserved: u64| {
        let device = rankscope_model::SnapshotDevice {
            allocated: Bytes::from_mib(in_use),
            active: Bytes::from_mib(in_use),
            ..snapshot_device(0, Bytes::from_mib(reserved))
        };
        support::snapshot(rank, Some(rank), vec![device])
    };
    let two = |one: (u64, u64), other: (u64, u64)| {
        let name = |rank: u32| format!("snapshot_rank{rank}.pickle");
        let evidence = support::snapshot_files(2, name, |rank| {
            let (in_use, reserved) = if rank == 0 { one } else { other };
            of(rank, in_use, reserved)
        });
        run(&evidence)
    };
    // 1.8 of 12 GiB: too little of the whole to be called a large cache, and all of the difference.
    let cached = two((10_000, 10_200), (10_010, 12_000));
    assert_eq!(status(&cached, Item::MemoryStats), ItemStatus::Suspect, "{}", cached.summary);
    let claim =
        "Rank 1 reserves 1.8 GiB more than the other one, and 1.7 GiB of that are cached: what is in use is alike.";
    assert!(cached.findings.iter().any(|finding| finding.claim == claim), "{:?}", cached.findings);
    assert_eq!(next_step(&cached).map(|(item, _)| item), Some(Item::MemoryStats));
    let used = two((10_000, 10_200), (11_800, 12_000));
    assert!(!used.findings.iter().any(|finding| finding.claim.contains("of that are cached")), "{:?}", used.findings);
}

// ---- what one allocator holds, and what others hold beside it ----

#[test]
fn contexts_of_others_are_not_why_one_allocator_holds_more() {
    let log = |heavy: u64, others: u64| {
        let steps: Vec<Vec<u64>> = (0..6).map(|_| vec![heavy, others, others, others]).collect();
        let rows: Vec<&[u64]> = steps.iter().map(Vec::as_slice).collect();
        train_log(&rows, |record, held| record.peak_allocated = mib(held))
    };
    let table = |visit: u64| {
        let full = 19_200 + 3 * visit;
        let cards: Vec<_> = (0..4).map(|g| (g, if g == 0 { full } else { 12_200 }, 40_960, 90)).collect();
        let mut rows = vec![(0, 700, "python", 19_200)];
        rows.extend((1..4).flat_map(|g| [(0, 700 + g, "python", visit), (g, 700 + g, "python", 12_190)]));
        smi("nvidia-smi.txt").table(None, &cards, &rows).evidence
    };
    let diagnosis = run(&with(log(17_800, 10_800), table(871)));
    assert!(diagnosis.summary.contains("why is not settled"), "{}", diagnosis.summary);
    assert!(!diagnosis.summary.contains("explained"), "{}", diagnosis.summary);
    assert_eq!(diagnosis.imbalance.as_ref().unwrap().explained_bytes, None);
    assert!(diagnosis.summary.contains("Beside it: "), "{}", diagnosis.summary);
    assert!(diagnosis.causes.is_empty(), "{:?}", diagnosis.causes);
    let named = CauseLabel::HardcodedOrDefaultDevice;
    let against = |diagnosis: &Diagnosis| {
        let mut claims = diagnosis.findings.iter().map(|finding| &finding.claim);
        claims.any(|claim| claim.contains("put no more than") && claim.contains("cannot be this gap"))
    };
    assert!(against(&diagnosis), "{:?}", diagnosis.findings);
    // What they hold stays a finding, and the next step looks into the process that holds more.
    let visits = |claim: &str| claim.contains("also hold 871 MiB each on GPU 0");
    let told = diagnosis.findings.iter().filter(|finding| finding.item == Item::DeviceVisibility);
    assert!(told.clone().any(|finding| visits(&finding.claim)), "{:?}", diagnosis.findings);
    assert_eq!(told.filter(|finding| finding.claim.contains("cannot be this gap")).count(), 1);
    let (item, next) = next_step(&diagnosis).unwrap();
    assert_eq!(item, Item::BatchDivisibility, "{}", next.what);

    // A script that never binds its ranks is no better a reason for what one allocator holds.
    let text = "import torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\nmodel = torch.nn.Linear(8, 8).cuda()\n";
    let unbound = run(&with(with(log(17_800, 10_800), table(871)), script("train.py", text)));
    assert!(unbound.causes.is_empty(), "{:?}", unbound.causes);
    assert_eq!(next_step(&unbound).map(|(item, _)| item), Some(Item::BatchDivisibility));

    // The same code puts as much there in the process at home: then it can be.
    let tensors = run(&with(log(17_800, 10_800), table(2_000)));
    assert!(!against(&tensors) && support::confidence(&tensors, named) > 0.3, "{:?}", tensors.causes);
    // Each process has its own part, and no more than one part is in the gap.
    let explained = tensors.imbalance.unwrap().explained_bytes.unwrap();
    assert!(explained <= Bytes::from_mib(2_000), "{explained}");
}

#[test]
fn where_nothing_speaks_for_a_cause_the_lines_are_shown_and_only_what_is_missing_is_asked_for() {
    let steps: Vec<Vec<u64>> = (0..6).map(|step| vec![9_000 + step, 9_010, 14_000 + step * 10, 9_020]).collect();
    let rows: Vec<&[u64]> = steps.iter().map(Vec::as_slice).collect();
    let diagnosis = run(&train_log(&rows, |record, held| record.peak_allocated = mib(held)));
    assert!(diagnosis.causes.is_empty(), "{:?}", diagnosis.causes);
    let finding = diagnosis.findings.iter().find(|finding| finding.claim.starts_with("The highest lines")).unwrap();
    assert!(
        finding.claim.contains("rank 2 13.7 GiB at step 5") && finding.claim.contains("rank 1 8.8 GiB"),
        "{}",
        finding.claim
    );
    assert_eq!(finding.ranks, [2]);
    assert!(!finding.evidence.is_empty());
    let (_, next) = next_step(&diagnosis).unwrap();
    assert!(next.what.starts_with("The shape of each rank's batch"), "{}", next.what);
    assert!(!diagnosis.summary.contains("allocated and peak of every rank"), "{}", diagnosis.summary);
}

#[test]
fn turns_without_a_word_about_batches_are_looked_into_before_a_fix() {
    let steps: Vec<Vec<u64>> =
        (0..12).map(|step| (0..4).map(|rank| if step % 4 == rank { 14_000 } else { 9_000 }).collect()).collect();
    let rows: Vec<&[u64]> = steps.iter().map(Vec::as_slice).collect();
    let diagnosis = run(&train_log(&rows, |record, held| record.peak_allocated = mib(held)));
    assert_eq!(diagnosis.causes[0].label, CauseLabel::VariableShapeBatches);
    assert!(diagnosis.summary.contains("possibly because batches differ in size"), "{}", diagnosis.summary);
    assert_eq!(diagnosis.imbalance.as_ref().unwrap().opens_at, None, "no one rank's gap opens");
    let (item, next) = next_step(&diagnosis).unwrap();
    assert_eq!((item, next.what.starts_with("The shape of each rank's batch")), (Item::BatchDivisibility, true));
}

#[test]
fn a_failure_that_only_a_snapshot_recorded_is_told() {
    let failed = |device: SnapshotDevice| SnapshotDevice {
        ooms: vec![(7, Bytes::from_mib(1), Bytes::from_mib(1)), (9, Bytes::from_mib(4096), Bytes::from_mib(123))],
        ..device
    };
    let of = |n: u32| snapshot_device(n, Bytes::from_mib(9_000));
    let evidence = pickles(2, |n| support::snapshot(n, Some(n), vec![if n == 1 { failed(of(n)) } else { of(n) }]));
    let said = "Rank 1 ran out of memory: 4.0 GiB were asked for, 123 MiB were free.";
    let diagnosis = run(&evidence);
    assert!(diagnosis.summary.contains(said), "{}", diagnosis.summary);
    let finding = diagnosis.findings.iter().find(|finding| finding.claim == said).unwrap();
    assert_eq!(finding.ranks, [1]);
    assert!(finding.evidence[0].artifact.contains('1'), "{:?}", finding.evidence);

    // Its own message tells more, and is told instead.
    let mut with_message = evidence;
    let at = with_message.snapshots[1].at.clone();
    let message = OomEvent { rank: Some(Rank(1)), tried: Some(Bytes::from_mib(2048)), ..OomEvent::new(at, "F5") };
    with_message.ooms.push(message);
    let summary = run(&with_message).summary;
    assert!(summary.contains("2.0 GiB were asked for") && !summary.contains("4.0 GiB"), "{summary}");
}
