//! What the diagnosis says of evidence built by hand, one scenario a test.

#![allow(clippy::unwrap_used, clippy::float_cmp, reason = "a test fails loudly; an absent cause is exactly zero")]

mod support;

use rankscope_diagnosis::{Policy, diagnose, figures, next_step};
use rankscope_model::{
    ArtifactKind, Bytes, CauseLabel, Diagnosis, Evidence, Item, ItemStatus, MIB, PartKind, Phase, ProcessListing,
    SeriesAxis, Subject, Verdict,
};
use support::{Build, confidence, mib, others, snapshot_files, snapshot_of_sites, status};

fn run(evidence: &Evidence) -> Diagnosis {
    diagnose(evidence, &Policy::default())
}

fn top(diagnosis: &Diagnosis) -> Option<CauseLabel> {
    diagnosis.causes.first().map(|cause| cause.label)
}

fn smi() -> Build {
    Build::default().file("nvidia-smi.txt", ArtifactKind::NvidiaSmi)
}

fn log() -> Build {
    Build::default().file("train.log", ArtifactKind::StepLog)
}

// ---- stage 1: process rows ----

#[test]
fn rows_that_appear_before_any_work_point_to_the_binding() {
    let own = |used: u64| -> Vec<(u32, u64, u64, u8)> { (0..4).map(|g| (g, used, 24268, 0)).collect() };
    let rows: Vec<(u32, u32, &str, u64)> = (0..4).map(|g| (g, 500 + g, "python3", 1655)).collect();
    let mut later = rows.clone();
    later.extend((1..4).map(|g| (0, 500 + g, "python3", 521)));
    let mut cards = own(1659);
    cards[0].1 += 3 * 521;
    let evidence = smi().table(Some(0), &own(1659), &rows).table(Some(60), &cards, &later).evidence;
    let diagnosis = run(&evidence);
    assert_eq!(top(&diagnosis), Some(CauseLabel::CtxNoSetDevice));
    assert!(
        confidence(&diagnosis, CauseLabel::CtxNoSetDevice)
            > confidence(&run(&support::stray_contexts()), CauseLabel::CtxNoSetDevice)
    );
    let opens = diagnosis.imbalance.as_ref().unwrap().opens_at.as_ref().unwrap();
    assert_eq!(opens.text, "between 10:00:00 and 10:01:00");
    let timeline = figures(&evidence, &diagnosis, &Policy::default()).timeline.unwrap();
    assert_eq!((timeline.axis, timeline.lines.len()), (SeriesAxis::UnixMicros, 4));
    assert_eq!(timeline.marks[0].text, "gap opens");
}

#[test]
fn a_loop_of_readings_is_drawn_over_time_beside_a_monitor_that_tells_no_memory() {
    let rows: Vec<(u32, u32, &str, u64)> = (0..4).map(|g| (g, 500 + g, "python3", 0)).collect();
    let (mut gpus, mut monitor) = (smi(), smi());
    for second in 0..60 {
        let heavy = if second < 20 { 9_000 } else { 15_000 };
        let cards: Vec<(u32, u64, u64, u8)> =
            (0..4).map(|g| (g, if g == 2 { heavy } else { 9_000 }, 24_268, 97)).collect();
        if second < 30 {
            gpus = gpus.table(Some(second), &cards, &[]);
        }
        monitor = monitor.table(Some(second), &cards, &rows);
    }
    let mut evidence = gpus.evidence;
    for table in &mut monitor.evidence.device_tables {
        table.devices.iter_mut().for_each(|row| (row.used, row.total) = (None, None));
        table.processes.iter_mut().for_each(|row| row.used = None);
    }
    evidence.merge(monitor.evidence);
    let diagnosis = run(&evidence);
    let charts = figures(&evidence, &diagnosis, &Policy::default());
    let timeline = charts.timeline.unwrap();
    assert_eq!((timeline.axis, timeline.lines.len(), timeline.lines[2].x.len()), (SeriesAxis::UnixMicros, 4, 30));
    assert_eq!(timeline.marks.iter().map(|m| m.x).collect::<Vec<_>>(), [timeline.lines[2].x[20]]);
    assert_eq!(charts.peaks.unwrap().bars[2].peak, Bytes(15_000 * MIB));
    assert_eq!(charts.composition.len(), 4);
    assert_eq!(charts.composition[2].used(), Bytes(15_000 * MIB));
}

#[test]
fn a_fuller_reading_of_a_loop_does_not_hide_the_table_that_lists_processes() {
    let cards: Vec<(u32, u64, u64, u8)> = (0..4).map(|g| (g, 9_000, 24_268, 97)).collect();
    let rows: Vec<(u32, u32, &str, u64)> = (0..4).map(|g| (g, 500 + g, "python3", 8_990)).collect();
    let mut full = cards.clone();
    full[0].1 = 15_000;
    let mut evidence = smi().table(Some(0), &cards, &rows).table(Some(60), &full, &[]).evidence;
    evidence.device_tables[1].listing = ProcessListing::Missing;
    let diagnosis = run(&evidence);
    // The peak counts, and the list says that all four cards are at work.
    assert_eq!(diagnosis.verdict, Verdict::Imbalance);
    assert_eq!(diagnosis.imbalance.unwrap().heaviest, [Subject::Device(0)]);
}

#[test]
fn rows_that_come_with_the_work_point_to_a_helper() {
    let before: Vec<_> = (0..4).map(|g| (g, 1881, 40537, 0)).collect();
    let rows: Vec<_> = (0..4).map(|g| (g, 77301 + g, "python", 1877)).collect();
    let mut after: Vec<_> = (0..4).map(|g| (g, 18211, 40537, 95)).collect();
    after[0].1 += 3 * 505;
    let mut later: Vec<_> = (0..4).map(|g| (g, 77301 + g, "python", 18207)).collect();
    later.extend((1..4).map(|g| (0, 77301 + g, "python", 505)));
    let diagnosis = run(&smi().table(Some(0), &before, &rows).table(Some(38), &after, &later).evidence);
    assert_eq!(top(&diagnosis), Some(CauseLabel::HelperThreadOrLibCtx));
}

#[test]
fn foreign_rows_of_state_size_are_tensors_not_contexts() {
    let diagnosis = run(&smi()
        .table(
            None,
            &[(0, 14266, 15360, 97), (1, 11878, 15360, 92)],
            &[(0, 11, "python", 11872), (0, 12, "python", 2386), (1, 12, "python", 11870)],
        )
        .evidence);
    assert_eq!(top(&diagnosis), Some(CauseLabel::HardcodedOrDefaultDevice));
    assert_eq!(confidence(&diagnosis, CauseLabel::CtxNoSetDevice), 0.0);
    assert!(diagnosis.summary.contains("also put tensors on it"), "{}", diagnosis.summary);
}

#[test]
fn all_processes_on_one_card_while_the_others_are_empty_is_a_mapping() {
    let mut cards = vec![(0, 16067, 16130, 100)];
    cards.extend((1..8).map(|g| (g, 11, 16130, 0)));
    let rows: Vec<_> = (0..8).map(|n| (0, 27001 + n, "python3", 2005)).collect();
    let diagnosis = run(&smi().table(None, &cards, &rows).evidence);
    assert_eq!(diagnosis.verdict, Verdict::Imbalance);
    assert_eq!(top(&diagnosis), Some(CauseLabel::RankGpuMapping));
    assert_eq!(status(&diagnosis, Item::DeviceVisibility), ItemStatus::Fail);
}

#[test]
fn small_rows_of_processes_without_a_card_of_their_own_are_workers() {
    let rows: Vec<_> = (0..12).map(|n| (0, 418_800 + 3 * n, "python", 312)).collect();
    let diagnosis = run(&smi().table(None, &[(0, 3748, 24576, 0), (1, 6, 24576, 0)], &rows).evidence);
    assert_eq!(top(&diagnosis), Some(CauseLabel::CtxInWorkerProcesses));
}

#[test]
fn every_process_on_every_card_is_an_object_collective_unless_the_rows_are_empty() {
    let cards: Vec<_> = (0..4).map(|g| (g, 33400, 81559, 95)).collect();
    let everywhere = |off: u64| -> Vec<(u32, u32, &str, u64)> {
        (0..4).flat_map(|g| (0..4).map(move |p| (g, 70101 + p, "python", if p == g { 31800 } else { off }))).collect()
    };
    let diagnosis = run(&smi().table(None, &cards, &everywhere(524)).evidence);
    assert_eq!(top(&diagnosis), Some(CauseLabel::ObjectCollectiveDevice));
    assert_eq!(confidence(&diagnosis, CauseLabel::CtxNoSetDevice), 0.0);
    let benign = run(&smi().table(None, &cards, &everywhere(0)).evidence);
    assert_eq!((benign.verdict, benign.causes.len()), (Verdict::Balanced, 0));
    assert_eq!(status(&benign, Item::DeviceVisibility), ItemStatus::Pass);
}

#[test]
fn one_process_on_all_cards_is_data_parallel_and_on_one_card_a_single_gpu_job() {
    let cards = [(0, 30942, 32480, 95), (1, 18974, 32480, 91), (2, 18974, 32480, 93)];
    let rows = [(0, 12877, "python", 30931), (1, 12877, "python", 18963), (2, 12877, "python", 18963)];
    let diagnosis = run(&smi().table(None, &cards, &rows).evidence);
    assert_eq!(top(&diagnosis), Some(CauseLabel::DataparallelMaster));
    assert_eq!(status(&diagnosis, Item::DistributedSampler), ItemStatus::NotApplicable);
    assert_eq!(next_step(&diagnosis).unwrap().0, Item::Verified);

    let cards = [(0, 76008, 81920, 100), (1, 408, 81920, 0), (2, 408, 81920, 0)];
    let rows = [(0, 5120, "python", 76000), (1, 5120, "python", 400), (2, 5120, "python", 400)];
    let diagnosis = run(&smi().table(None, &cards, &rows).evidence);
    assert_eq!(top(&diagnosis), Some(CauseLabel::SingleGpuJobIdleContexts));
}

#[test]
fn contexts_on_a_card_where_nobody_works_are_found() {
    let mut cards: Vec<_> = (0..8).map(|g| (g, 11, 10989, 0)).collect();
    cards[0].1 = 1165;
    (cards[5].1, cards[6].1) = (7011, 7011);
    let rows =
        [(0, 24510, "python", 577), (0, 24577, "python", 577), (5, 24510, "python", 7000), (6, 24577, "python", 7000)];
    let diagnosis = run(&smi().table(None, &cards, &rows).evidence);
    assert_eq!(diagnosis.verdict, Verdict::Imbalance);
    assert_eq!(diagnosis.imbalance.as_ref().unwrap().heaviest, [Subject::Device(0)]);
    assert_eq!(top(&diagnosis), Some(CauseLabel::CtxNoSetDevice));
}

#[test]
fn another_tenant_a_leftover_and_a_desktop_are_told_apart() {
    let tenant = run(&smi()
        .table(
            None,
            &[(0, 20000, 24000, 90), (1, 10000, 24000, 90), (2, 10000, 24000, 90)],
            &[(0, 5, "python", 9990), (0, 77, "blender", 10000), (1, 6, "python", 9990), (2, 7, "python", 9990)],
        )
        .evidence);
    assert_eq!(top(&tenant), Some(CauseLabel::OtherTenant));

    let nameless = run(&smi()
        .table(
            None,
            &[(0, 6382, 12287, 0), (1, 0, 12287, 0)],
            &[(0, 28114, "Unknown Error", 5371), (0, 28390, "Unknown Error", 1011)],
        )
        .evidence);
    assert_eq!(top(&nameless), Some(CauseLabel::ZombieLeftover));

    let survivor = run(&smi()
        .table(
            Some(0),
            &[(0, 29351, 32510, 99), (1, 29351, 32510, 89)],
            &[(0, 52573, "python3", 29347), (1, 52574, "python3", 29347)],
        )
        .table(Some(400), &[(0, 4, 32510, 0), (1, 29351, 32510, 100)], &[(1, 52574, "python3", 29347)])
        .evidence);
    assert_eq!(top(&survivor), Some(CauseLabel::ZombieLeftover));

    let desktop = run(&smi()
        .table(
            None,
            &[(0, 6862, 7982, 95), (1, 5955, 7982, 96)],
            &[
                (0, 1377, "/usr/lib/xorg/Xorg", 512),
                (0, 1619, "/usr/bin/gnome-shell", 399),
                (0, 9714, "python", 5940),
                (1, 9715, "python", 5940),
            ],
        )
        .evidence);
    assert_eq!(top(&desktop), Some(CauseLabel::HeterogeneousOrDisplayGpu));
    assert!(confidence(&desktop, CauseLabel::HeterogeneousOrDisplayGpu) > 0.8);
}

#[test]
fn memory_that_no_process_owns_is_shown_as_such() {
    let evidence = smi()
        .table(
            None,
            &[(0, 20000, 24000, 90), (1, 10010, 24000, 90), (2, 10010, 24000, 90)],
            &[(0, 5, "python", 9990), (1, 6, "python", 9990), (2, 7, "python", 9990)],
        )
        .evidence;
    let diagnosis = run(&evidence);
    assert_eq!(top(&diagnosis), Some(CauseLabel::ZombieLeftover));
    let charts = figures(&evidence, &diagnosis, &Policy::default());
    let parts: Vec<_> = charts.composition[0].parts.iter().map(|p| (p.kind, p.bytes)).collect();
    assert_eq!(parts, [(PartKind::OwnProcess, Bytes::from_mib(9990)), (PartKind::Unaccounted, Bytes::from_mib(10010))]);
    assert_eq!(charts.composition[0].source, "nvidia-smi.txt:2-5");
}

#[test]
fn full_cards_at_zero_utilisation_were_taken_at_start() {
    let cards: Vec<_> = (0..4).map(|g| (g, 15981, 16130, 0)).collect();
    let rows: Vec<_> = (0..4).flat_map(|g| [(g, 2101, "python", 211), (g, 2102, "python", 15337)]).collect();
    let diagnosis = run(&smi().table(None, &cards, &rows).evidence);
    assert_eq!(diagnosis.verdict, Verdict::UniformPressure);
    assert_eq!(top(&diagnosis), Some(CauseLabel::FrameworkPrealloc));
}

#[test]
fn equal_cards_of_two_nodes_are_not_one_series() {
    let node = |first: u32| -> Vec<(u32, u32, &str, u64)> { (0..2).map(|g| (g, first + g, "python", 20000)).collect() };
    let mut stray = node(100);
    stray.push((0, 101, "python", 600));
    let evidence = smi()
        .table(Some(0), &[(0, 20600, 24000, 90), (1, 20010, 24000, 90)], &stray)
        .table(Some(5), &[(0, 20010, 24000, 90), (1, 20010, 24000, 90)], &node(900))
        .evidence;
    let diagnosis = run(&evidence);
    assert_eq!(diagnosis.imbalance.as_ref().unwrap().max_bytes, Bytes::from_mib(20600));
    assert!(figures(&evidence, &diagnosis, &Policy::default()).timeline.is_none());
}

// ---- verdicts ----

#[test]
fn all_cards_equally_full_is_pressure_and_half_full_is_balanced() {
    let rows: Vec<_> = (0..4).map(|g| (g, 100 + g, "python", 31500)).collect();
    let full: Vec<_> = (0..4).map(|g| (g, 31600 + u64::from(g), 32510, 99)).collect();
    let diagnosis = run(&smi().table(None, &full, &rows).evidence);
    assert_eq!(diagnosis.verdict, Verdict::UniformPressure);
    assert!(diagnosis.causes.is_empty());
    let half: Vec<_> = (0..4).map(|g| (g, 31600 + u64::from(g), 81000, 99)).collect();
    let diagnosis = run(&smi().table(None, &half, &rows).evidence);
    assert_eq!(diagnosis.verdict, Verdict::Balanced);
    assert_eq!(diagnosis.imbalance.unwrap().heaviest, []);
}

#[test]
fn one_card_or_no_processes_is_inconclusive_and_accuses_nobody() {
    let one = run(&smi().table(None, &[(0, 20000, 24000, 90)], &[(0, 5, "python", 19990)]).evidence);
    assert_eq!((one.verdict, one.causes.len()), (Verdict::Inconclusive, 0));
    assert!(one.imbalance.is_none());
    let container =
        run(&smi().table(None, &[(0, 21530, 24576, 90), (1, 9714, 24576, 90), (2, 9718, 24576, 90)], &[]).evidence);
    // Two equal cards show that the three do the same work; one other card does not. What usually fills the first card
    // is named, each with little.
    assert_eq!(container.verdict, Verdict::Imbalance);
    assert!(container.causes.iter().all(|cause| cause.confidence < 0.25), "{:#?}", container.causes);
    let second =
        run(&smi().table(None, &[(0, 9714, 24576, 90), (1, 21530, 24576, 90), (2, 9718, 24576, 90)], &[]).evidence);
    assert_eq!((second.verdict, second.causes.len()), (Verdict::Imbalance, 0));
    let pair = run(&smi().table(None, &[(0, 20480, 40960, 90), (1, 30720, 40960, 90)], &[]).evidence);
    assert_eq!((pair.verdict, pair.causes.len()), (Verdict::Inconclusive, 0));
    assert!(pair.imbalance.is_some() && pair.summary.contains("lists no process"), "{}", pair.summary);
    assert!(container.summary.contains("not settled"), "{}", container.summary);
    assert_eq!(next_step(&container).unwrap().0, Item::DeviceVisibility);
}

#[test]
fn missing_is_not_zero() {
    let mut evidence =
        smi().table(None, &[(0, 10000, 24000, 90), (1, 10000, 24000, 90), (2, 10000, 24000, 90)], &[]).evidence;
    evidence.device_tables[0].devices[2].used = None;
    let diagnosis = run(&evidence);
    let imbalance = diagnosis.imbalance.as_ref().unwrap();
    assert_eq!(diagnosis.verdict, Verdict::Balanced);
    assert_eq!((imbalance.compared, imbalance.mean_bytes), (2, Bytes::from_mib(10000)));

    let records = log()
        .step(0, Some(1), |r| r.allocated = mib(9000))
        .step(1, Some(1), |r| r.allocated = mib(9000))
        .step(2, Some(1), |r| r.batch_samples = Some(8))
        .evidence;
    let diagnosis = run(&records);
    assert_eq!(diagnosis.verdict, Verdict::Balanced);
    assert!(diagnosis.findings.iter().any(|f| f.claim.contains("Rank 2 has no figure") && f.ranks == [2]));
}

#[test]
fn an_unexplained_gap_lists_no_placeholder_cause() {
    let mut evidence = log();
    for step in 0..4 {
        for rank in 0..4 {
            evidence =
                evidence.step(rank, Some(step), |r| r.peak_allocated = mib(if rank == 2 { 30000 } else { 20000 }));
        }
    }
    let diagnosis = run(&evidence.evidence);
    assert_eq!(diagnosis.verdict, Verdict::Imbalance);
    assert!(diagnosis.causes.iter().all(|c| !matches!(c.label, CauseLabel::Unresolved | CauseLabel::Benign)));
    assert!(diagnosis.summary.contains("not settled"));
    assert_eq!(diagnosis.imbalance.as_ref().unwrap().opens_at.as_ref().unwrap().step, Some(0));
}

// ---- stage 2: input ----

fn lengths(table: &[&[(u64, u64)]]) -> Evidence {
    let mut build = log();
    for (step, ranks) in table.iter().enumerate() {
        for (rank, (samples, length)) in ranks.iter().enumerate() {
            let (rank, step) = (u32::try_from(rank).unwrap(), u64::try_from(step).unwrap());
            build = build.step(rank, Some(step), |r| {
                r.phase = Some(Phase::Train);
                r.batch_shape = Some(vec![*samples, *length]);
                r.peak_allocated = mib(8000 + samples * length / 4);
            });
        }
    }
    build.evidence
}

#[test]
fn peaks_that_follow_lengths_are_variable_shapes() {
    let evidence = lengths(&[
        &[(8, 512), (8, 498), (8, 505), (8, 934)],
        &[(8, 700), (8, 480), (8, 505), (8, 600)],
        &[(8, 512), (8, 1498), (8, 505), (8, 634)],
        &[(8, 312), (8, 498), (8, 505), (8, 500)],
    ]);
    let diagnosis = run(&evidence);
    assert_eq!(diagnosis.verdict, Verdict::Imbalance);
    assert_eq!(top(&diagnosis), Some(CauseLabel::VariableShapeBatches));
    assert!(diagnosis.causes[0].confidence > 0.8);
    assert_eq!(status(&diagnosis, Item::BatchDivisibility), ItemStatus::Fail);
    assert!(diagnosis.causes[0].why[0].contains("r = 1.00"), "{:?}", diagnosis.causes[0].why);
    // The peaks are an exact function of the lengths: the slope explains the whole gap.
    let imbalance = diagnosis.imbalance.unwrap();
    let gap = imbalance.max_bytes.0 - imbalance.median_bytes.0;
    assert!(imbalance.explained_bytes.unwrap().0.abs_diff(gap) < MIB);
    assert!(diagnosis.findings.iter().any(|f| f.claim.starts_with("Uneven input")));
}

#[test]
fn a_rank_that_always_gets_more_samples_is_an_uneven_split() {
    let steps: Vec<Vec<(u64, u64)>> = (0..4).map(|_| vec![(14, 256), (8, 256), (8, 256), (8, 256)]).collect();
    let table: Vec<&[(u64, u64)]> = steps.iter().map(Vec::as_slice).collect();
    let diagnosis = run(&lengths(&table));
    assert_eq!(top(&diagnosis), Some(CauseLabel::UnevenBatchSplit), "{:?}", diagnosis.causes);
}

#[test]
fn equal_batches_pass_and_speak_against_the_input() {
    let mut build = log();
    for step in 0..4 {
        for rank in 0..4 {
            build = build.step(rank, Some(step), |r| {
                r.batch_shape = Some(vec![8, 512]);
                r.peak_allocated = mib(if rank == 0 { 30000 } else { 20000 });
            });
        }
    }
    let diagnosis = run(&build.evidence);
    assert_eq!(status(&diagnosis, Item::BatchDivisibility), ItemStatus::Pass);
    assert!(diagnosis.findings.iter().any(|f| f.claim.starts_with("Uneven burden")));
    assert_eq!(confidence(&diagnosis, CauseLabel::VariableShapeBatches), 0.0);
}

#[test]
fn batches_that_repeat_every_epoch_were_never_reshuffled() {
    let mut build = log();
    for epoch in 0..2 {
        for step in 0..6u64 {
            for rank in 0..2u32 {
                let length = 400 + (step * 7 + u64::from(rank) * 3) % 11 * 60;
                build = build.step(rank, Some(step), |r| {
                    r.batch_shape = Some(vec![16, length]);
                    r.peak_allocated = mib(4000 + length * 4 + epoch);
                });
            }
        }
    }
    let diagnosis = run(&build.evidence);
    assert_eq!(top(&diagnosis), Some(CauseLabel::SamplerMissingOrNoSetEpoch));
    assert_eq!(status(&diagnosis, Item::DistributedSampler), ItemStatus::Fail);
    assert!(confidence(&diagnosis, CauseLabel::VariableShapeBatches) > 0.0);
}

#[test]
fn equal_shapes_with_unequal_tokens_are_dealt_inside_the_model() {
    let mut build = log();
    for step in 0..5 {
        for rank in 0..4u32 {
            let tokens = if rank == 2 { 20768 } else { 4000 + step * 10 + u64::from(rank) };
            build = build.step(rank, Some(step), |r| {
                r.batch_shape = Some(vec![1, 4096]);
                r.batch_tokens = Some(tokens);
                r.peak_allocated = mib(36000 + tokens * 2);
            });
        }
    }
    assert_eq!(top(&run(&build.evidence)), Some(CauseLabel::MoeRoutingImbalance));
}

/// Rank 3 pads one long sample per batch; `real` are its tokens without padding, the others have 4000 of 4096.
fn padded(steps: u64, all: u64, real: u64) -> Diagnosis {
    let mut build = log();
    for step in 0..steps {
        for rank in 0..4u32 {
            let (all, real) = if rank == 3 { (all, real) } else { (4096, 4000) };
            build = build.step(rank, Some(step), |r| {
                r.phase = Some(Phase::Train);
                r.batch_tokens = Some(all);
                r.batch_tokens_unpadded = Some(real);
                r.peak_allocated = mib(6000 + all);
            });
        }
    }
    run(&build.evidence)
}

#[test]
fn padding_on_one_rank_is_told_with_its_share() {
    let told =
        |diagnosis: &Diagnosis| diagnosis.findings.iter().find(|f| f.claim.starts_with("Padding is uneven")).cloned();
    let uneven = padded(4, 8192, 4096);
    let finding = told(&uneven).unwrap();
    assert_eq!(
        finding.claim,
        "Padding is uneven: 50 % of the tokens of rank 3, 2 % of those of rank 0; without it the ranks are near each other."
    );
    assert_eq!((finding.item, finding.ranks.as_slice()), (Item::BatchDivisibility, [3].as_slice()));
    assert_eq!(finding.label, Some(CauseLabel::VariableShapeBatches));
    assert!(finding.evidence.iter().any(|at| at.line.is_some()));
    // Where the real tokens differ as well, padding is not all of it.
    let both = told(&padded(4, 16_384, 8192)).unwrap();
    assert!(both.claim.ends_with("2 % of those of rank 0."), "{}", both.claim);
    // Nearly as much padding on all ranks, or too few steps: nothing to tell.
    assert!(told(&padded(4, 4400, 4000)).is_none());
    assert!(told(&padded(2, 8192, 4096)).is_none());
}

// ---- stages 3 and 4 ----

#[test]
fn a_rank_that_is_heavy_in_evaluation_only_evaluates_alone() {
    let mut build = log();
    for (phase, step) in [(Phase::Train, 1), (Phase::Train, 2), (Phase::Eval, 2), (Phase::Train, 3)] {
        for rank in 0..4u32 {
            let peak = if phase == Phase::Eval && rank == 0 { 31000 } else { 20000 };
            build = build.step(rank, Some(step), |r| {
                r.phase = Some(phase);
                r.batch_shape = Some(vec![8, 128]);
                r.peak_allocated = mib(peak);
            });
        }
    }
    let diagnosis = run(&build.evidence);
    assert_eq!(top(&diagnosis), Some(CauseLabel::Rank0Eval));
    assert_eq!(diagnosis.causes[0].ranks, [0]);
    assert_eq!(status(&diagnosis, Item::RankOnlyWork), ItemStatus::Fail);
    let opens = diagnosis.imbalance.unwrap().opens_at.unwrap();
    assert_eq!((opens.phase, opens.text.as_str()), (Some(Phase::Eval), "at step 2 (eval)"));
}

#[test]
fn memory_that_grows_with_every_record_leaks() {
    let mut build = log();
    for step in 0..10 {
        for rank in 0..2 {
            build = build.step(rank, Some(step), |r| r.allocated = mib(2400 + 1840 * step));
        }
    }
    let diagnosis = run(&build.evidence);
    assert_eq!(top(&diagnosis), Some(CauseLabel::PerStepLeak));
    assert_eq!(diagnosis.causes[0].ranks, [0, 1]);
}

#[test]
fn every_rank_but_zero_higher_from_the_start_is_an_asymmetric_init() {
    let mut build = log();
    for rank in 0..8 {
        build = build.step(rank, Some(1), |r| r.reserved = mib(if rank == 0 { 23700 } else { 79900 }));
    }
    let diagnosis = run(&build.evidence);
    assert_eq!(diagnosis.verdict, Verdict::Imbalance);
    assert_eq!(top(&diagnosis), Some(CauseLabel::ShardedInitAsymmetry));
    assert_eq!(diagnosis.imbalance.unwrap().heaviest.len(), 7);
}

#[test]
fn out_of_memory_messages_are_split_into_cache_outside_and_others() {
    let oom = |edit: fn(&mut rankscope_model::OomEvent)| {
        run(&Build::default().file("oom.txt", ArtifactKind::OomMessage).oom(edit).evidence)
    };
    let cached = oom(|o| {
        (o.tried, o.total, o.allocated, o.reserved) = (mib(648), mib(40540), mib(23511), mib(37058));
    });
    assert_eq!(top(&cached), Some(CauseLabel::AllocatorFragmentation));
    assert_eq!(cached.verdict, Verdict::Inconclusive);
    let outside = oom(|o| {
        (o.this_process, o.allocated, o.reserved_unallocated) = (mib(96030), mib(75694), mib(8304));
    });
    assert_eq!(top(&outside), Some(CauseLabel::NcclNontorchBuffers));
    let shared = oom(|o| {
        (o.device, o.this_process, o.allocated, o.reserved_unallocated) = (Some(0), mib(10834), mib(9789), mib(534));
        o.others = others(&[(1_871_202, 10127), (1_871_203, 35870), (1_871_204, 24360)]);
    });
    assert_eq!(top(&shared), Some(CauseLabel::RankGpuMapping));
    let plain = oom(|o| {
        (o.this_process, o.allocated, o.reserved_unallocated) = (mib(23992), mib(22845), mib(411));
    });
    assert_eq!(status(&plain, Item::MemoryStats), ItemStatus::Pass);
    assert!(plain.causes.is_empty());
}

#[test]
fn a_call_site_on_one_rank_only_is_named() {
    let heavy = [("forward", 4000), ("update_ema", 3000), ("adam_step", 2000), ("small", 10)];
    let light = [("forward", 4000), ("adam_step", 2000), ("small", 10)];
    let name = |rank: u32| format!("snapshot_rank{rank}.pickle");
    let evidence = snapshot_files(2, name, |rank| snapshot_of_sites(rank, if rank == 0 { &heavy } else { &light }));
    let diagnosis = run(&evidence);
    assert_eq!(top(&diagnosis), Some(CauseLabel::Rank0AuxBuffers));
    assert_eq!(diagnosis.causes[0].ranks, [0]);
    assert_eq!(status(&diagnosis, Item::UnsyncedBuffers), ItemStatus::Fail);
    assert_eq!(status(&diagnosis, Item::OptimizerState), ItemStatus::Pass);

    let equal = |rank| snapshot_of_sites(rank, &[("forward", 4000), ("adam_step", 2000)]);
    let diagnosis = run(&snapshot_files(2, name, equal));
    assert_eq!((diagnosis.verdict, diagnosis.causes.len()), (Verdict::Balanced, 0));
    assert_eq!(status(&diagnosis, Item::UnsyncedBuffers), ItemStatus::Pass);
}

#[test]
fn many_ranks_and_steps_stay_quick_and_bounded() {
    let mut build = log();
    for step in 0..800 {
        for rank in 0..32 {
            build = build.step(rank, Some(step), |r| {
                r.batch_shape = Some(vec![8, 100 + (step * 31 + u64::from(rank) * 17) % 400]);
                r.peak_allocated = mib(10000 + (step * 31 + u64::from(rank) * 17) % 400);
            });
        }
    }
    let policy = Policy { timeline_points: 500, ..Policy::default() };
    let diagnosis = diagnose(&build.evidence, &policy);
    let charts = figures(&build.evidence, &diagnosis, &policy);
    let timeline = charts.timeline.unwrap();
    assert_eq!(timeline.lines.len(), 32);
    assert!(timeline.lines.iter().all(|line| line.x.len() <= policy.timeline_points));
    assert!(diagnosis.causes.iter().all(|cause| cause.evidence.len() <= 200));
}
