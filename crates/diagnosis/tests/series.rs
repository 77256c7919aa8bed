//! Rules that read series, on made ones: noise, resets, missing ranks. A verdict depends on what ranks do, not on what they
//! are called, how large the model is, or how many healthy ones stand beside them.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

mod support;

use proptest::prelude::*;
use rankscope_diagnosis::{Policy, diagnose};
use rankscope_model::{ArtifactKind, Bytes, CauseLabel, Diagnosis, Evidence, Phase};
use support::{Build, mib};

/// What one rank does over the run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Course {
    /// Stays where it is.
    Flat,
    /// Grows by so many MiB with every step.
    Leaks(u64),
    /// Has batches of changing length, of which its peak is a function.
    Varies,
}

/// A job: the courses of its ranks, its length, and the seed of its noise.
#[derive(Debug, Clone)]
struct Job {
    courses: Vec<Course>,
    steps: u64,
    base: u64,
    noise: u64,
    seed: u64,
}

/// A number that looks like chance and is the same each time.
fn chance(seed: u64, a: u64, b: u64) -> u64 {
    let mut x = seed ^ a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 30;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The step lines of the ranks, each under the name that `name` gives it, all bytes times `scale`.
fn log(job: &Job, name: impl Fn(usize) -> usize, scale: u64) -> Evidence {
    let mut build = Build::default().file("train.log", ArtifactKind::StepLog);
    let mut by_name: Vec<(usize, usize)> = (0..job.courses.len()).map(|rank| (name(rank), rank)).collect();
    by_name.sort_unstable();
    for step in 0..job.steps {
        for (name, rank) in &by_name {
            let jitter = chance(job.seed, *rank as u64, step) % job.noise.max(1);
            // No two ranks have the same, so that no name decides between equals.
            let length = 256 + chance(job.seed, step, *rank as u64 + 99) % 1024 * 8 + *rank as u64;
            let (allocated, shape) = match job.courses[*rank] {
                Course::Flat => (job.base + jitter, 512),
                Course::Leaks(each) => (job.base + each * step + jitter / 8, 512),
                Course::Varies => (job.base + 4 * length, length),
            };
            build = build.step(u32::try_from(*name).unwrap(), Some(step), |row| {
                row.phase = Some(Phase::Train);
                row.batch_shape = Some(vec![8, shape]);
                row.allocated = mib(allocated * scale);
                row.peak_allocated = mib((allocated + 2000) * scale);
            });
        }
    }
    build.evidence
}

fn run(evidence: &Evidence) -> Diagnosis {
    diagnose(evidence, &Policy::default())
}

fn first(diagnosis: &Diagnosis) -> Option<(CauseLabel, f64)> {
    diagnosis.causes.first().map(|cause| (cause.label, cause.confidence))
}

/// One leaking rank among flat ones, or ranks whose batches vary.
fn job() -> impl Strategy<Value = Job> {
    // A leak is well above the tenth from which growth counts, so that a little noise decides nothing.
    (3usize..7, 0usize..3, 12u64..40, 100u64..200, 4000u64..6000, any::<u64>()).prop_map(
        |(ranks, kind, steps, each, base, seed)| {
            let courses = match kind {
                0 => vec![Course::Flat; ranks],
                1 => (0..ranks).map(|n| if n == ranks / 2 { Course::Leaks(each) } else { Course::Flat }).collect(),
                _ => vec![Course::Varies; ranks],
            };
            // Below what counts as a difference.
            Job { courses, steps, base, noise: 50, seed }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn other_names_only_rename_the_answer(job in job(), turn in 1usize..6) {
        let count = job.courses.len();
        let renamed = |rank: usize| (rank + turn) % count;
        let (plain, turned) = (run(&log(&job, |rank| rank, 1)), run(&log(&job, renamed, 1)));
        prop_assert_eq!(plain.verdict, turned.verdict);
        prop_assert_eq!(first(&plain), first(&turned));
        let ranks = |diagnosis: &Diagnosis| diagnosis.causes.first().map(|cause| cause.ranks.clone()).unwrap_or_default();
        let mut expected: Vec<u32> =
            ranks(&plain).iter().map(|rank| u32::try_from(renamed(*rank as usize)).unwrap()).collect();
        expected.sort_unstable();
        prop_assert_eq!(ranks(&turned), expected);
    }

    #[test]
    fn a_larger_model_gets_the_same_answer(job in job(), scale in 2u64..5) {
        let (plain, larger) = (run(&log(&job, |rank| rank, 1)), run(&log(&Job { noise: 20, ..job.clone() }, |rank| rank, scale)));
        prop_assert_eq!(first(&plain).map(|f| f.0), first(&larger).map(|f| f.0));
        prop_assert_eq!(plain.verdict, larger.verdict);
    }

    #[test]
    fn a_healthy_rank_more_flips_no_confident_cause(job in job()) {
        let plain = run(&log(&job, |rank| rank, 1));
        let healthy = if job.courses.contains(&Course::Varies) { Course::Varies } else { Course::Flat };
        let mut more = job.clone();
        more.courses.push(healthy);
        let wider = run(&log(&more, |rank| rank, 1));
        if let Some((label, confidence)) = first(&plain).filter(|(_, confidence)| *confidence >= 0.66) {
            prop_assert_eq!(first(&wider).map(|f| f.0), Some(label), "{}", confidence);
        }
    }

    #[test]
    fn noise_and_plateaus_are_no_leak(job in job(), every in 3u64..9) {
        // Steps of a staircase: jumps every so many steps, level between.
        let mut build = Build::default().file("train.log", ArtifactKind::StepLog);
        for step in 0..job.steps {
            for rank in 0..3 {
                build = build.step(rank, Some(step), |row| {
                    row.allocated = mib(job.base + step / every * 700 + chance(job.seed, u64::from(rank), step) % 40);
                });
            }
        }
        let diagnosis = run(&build.evidence);
        prop_assert!(support::confidence(&diagnosis, CauseLabel::PerStepLeak) < 0.5, "{:?}", first(&diagnosis));
    }

    #[test]
    fn a_missing_rank_hides_no_leak_of_another(job in job(), missing in 0usize..2) {
        let leaks = Job { courses: vec![Course::Flat, Course::Flat, Course::Leaks(120), Course::Flat], ..job };
        let mut evidence = log(&leaks, |rank| rank, 1);
        evidence.steps.retain(|row| row.subject.rank() != Some(u32::try_from(missing).unwrap()));
        prop_assert_eq!(first(&run(&evidence)).map(|f| f.0), Some(CauseLabel::PerStepLeak));
    }
}

#[test]
fn what_is_given_back_again_and_again_is_no_leak_of_the_run() {
    // Three times from 4 to 8 GiB, and back: kept within an epoch, released at its end.
    let mut build = Build::default().file("train.log", ArtifactKind::StepLog);
    for step in 0..60u64 {
        for rank in 0..2 {
            build = build.step(rank, Some(step), |row| row.allocated = mib(4096 + step % 20 * 200));
        }
    }
    let diagnosis = run(&build.evidence);
    let leak = support::confidence(&diagnosis, CauseLabel::PerStepLeak);
    assert!(leak < 0.5, "{leak}");
}

#[test]
fn a_gap_that_grows_with_the_largest_batch_so_far_is_no_leak() {
    // Peaks that are never reset follow the largest batch: plateaus, not a slope.
    let mut build = Build::default().file("train.log", ArtifactKind::StepLog);
    let mut largest = [0u64; 4];
    for step in 0..80u64 {
        for rank in 0..4u32 {
            let length = 256 + chance(7, step, u64::from(rank)) % 1500;
            let top = &mut largest[rank as usize];
            *top = (*top).max(length);
            let peak = 9000 + 4 * *top;
            build = build.step(rank, Some(step), |row| {
                row.batch_shape = Some(vec![4, length]);
                row.peak_allocated = Some(Bytes::from_mib(peak));
            });
        }
    }
    let diagnosis = run(&build.evidence);
    assert_eq!(first(&diagnosis).map(|f| f.0), Some(CauseLabel::VariableShapeBatches));
}

/// Readings of four cards, a second apart.
fn readings(used: impl Fn(u32, u64) -> u64) -> Evidence {
    let mut build = Build::default().file("gpus.csv", ArtifactKind::NvidiaSmiCsv);
    for second in 0..90 {
        let cards: Vec<_> = (0..4).map(|card| (card, used(card, second), 81_559, 90)).collect();
        build = build.table(Some(i64::try_from(second).unwrap()), &cards, &[]);
    }
    build.evidence
}

#[test]
fn a_card_whose_lows_grow_leaks_though_all_wave_with_their_steps() {
    let wave = |card: u32, second: u64| 20_000 + 6_000 * ((second + u64::from(card)) % 4);
    let leaks = readings(|card, second| wave(card, second) + if card == 2 { 150 * second } else { 0 });
    let diagnosis = run(&leaks);
    let leak = diagnosis.causes.iter().find(|cause| cause.label == CauseLabel::PerStepLeak);
    assert!(
        leak.is_some_and(|cause| cause.why.iter().any(|why| why.contains("GPU 2 grows, at its lowest,"))),
        "{diagnosis:#?}"
    );
    // All of them grow: a longer batch, or a cache that fills.
    let all = run(&readings(|card, second| wave(card, second) + (150 + 90 * u64::from(card == 2)) * second));
    assert!(all.causes.iter().all(|cause| !cause.why.iter().any(|why| why.contains("at its lowest"))), "{all:#?}");
    // A jump is none, nor is a wave that is only higher.
    let jump = run(&readings(|card, second| wave(card, second) + if card == 2 && second > 45 { 9_000 } else { 0 }));
    let higher = run(&readings(|card, second| wave(card, second) * if card == 2 { 2 } else { 1 }));
    for other in [jump, higher] {
        assert!(
            other.causes.iter().all(|cause| !cause.why.iter().any(|why| why.contains("at its lowest"))),
            "{other:#?}"
        );
    }
}

#[test]
fn what_happened_to_cards_is_told_in_order_and_marked_in_the_timeline() {
    use rankscope_model::{ArtifactId, DeviceEvent, LiveStateKind, Place, Provenance, Subject, UnixMicros};
    let mut evidence = readings(|card, second| 20_000 + u64::from(card) + second * 200);
    let event = |second: i64, line, card, kind, text: &str| {
        let at = Provenance {
            artifact: ArtifactId(0),
            place: Place::Line(line),
            time: Some(UnixMicros(second * 1_000_000)),
            quote: text.to_owned(),
        };
        DeviceEvent { at, subject: Some(Subject::Device(card)), kind, text: text.to_owned() }
    };
    let xid = |second| event(second, 900 + second.unsigned_abs(), 3, LiveStateKind::Xid, "Xid 79 on GPU 3.");
    let lost = |second| event(second, 800, 3, LiveStateKind::Lost, "GPU 3 is lost.");
    let gone = event(41, 7, 3, LiveStateKind::RankGone, "Rank 3 (PID 9) on GPU 3 ended.");
    evidence.events = vec![lost(40), xid(39), lost(43), xid(42), gone];
    let diagnosis = run(&evidence);
    let told: Vec<(i64, &str, u32, Option<u64>)> = diagnosis
        .events
        .iter()
        .map(|event| (event.at.0 / 1_000_000, event.text.as_str(), event.times, event.evidence.line))
        .collect();
    assert_eq!(
        told,
        [
            (39, "Xid 79 on GPU 3.", 2, Some(939)),
            (40, "GPU 3 is lost.", 1, Some(800)),
            (41, "Rank 3 (PID 9) on GPU 3 ended.", 1, Some(7)),
        ]
    );
    assert_eq!(diagnosis.events[0].repeated().as_deref(), Some("2 times, last at 00:00:42"));
    assert_eq!(diagnosis.events[1].repeated(), None);
    let figures = rankscope_diagnosis::figures(&evidence, &diagnosis, &Policy::default());
    let marks = figures.timeline.unwrap().marks;
    let marks: Vec<(i64, &str)> = marks.iter().map(|mark| (mark.x / 1_000_000, mark.text.as_str())).collect();
    for mark in [(39, "GPU 3 Xid 79"), (40, "GPU 3 lost"), (41, "rank 3 ended")] {
        assert!(marks.contains(&mark), "{marks:?}");
    }
}
