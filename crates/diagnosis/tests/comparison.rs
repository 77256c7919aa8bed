//! Two runs side by side, by hand-made evidence: one test per answer, and why an answer is withheld.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

mod support;

use proptest::prelude::*;
use rankscope_diagnosis::{Policy, Side, compare, diagnose, figures};
use rankscope_model::{
    ArtifactKind, CauseFate, CauseLabel, Comparison, Diagnosis, Evidence, Figures, Item, ItemStatus, Outcome, Phase,
    RunFacts, Subject, Verdict,
};
use support::{Build, mib};

/// A run as it is frozen.
fn freeze(evidence: &Evidence) -> (Diagnosis, Figures) {
    let policy = Policy::default();
    let diagnosis = diagnose(evidence, &policy);
    let figures = figures(evidence, &diagnosis, &policy);
    // As it comes back from the store.
    let json = serde_json::to_string(&(diagnosis, figures)).unwrap();
    serde_json::from_str(&json).unwrap()
}

fn held_frozen(base: &(Diagnosis, Figures), head: &(Diagnosis, Figures)) -> Comparison {
    compare(
        Side { diagnosis: &base.0, figures: &base.1 },
        Side { diagnosis: &head.0, figures: &head.1 },
        &Policy::default(),
    )
}

fn held(base: &Evidence, head: &Evidence) -> Comparison {
    held_frozen(&freeze(base), &freeze(head))
}

/// Eight V100 without strays.
fn bound(cards: u32, total: u64) -> Evidence {
    let cards: Vec<(u32, u64, u64, u8)> = (0..cards).map(|gpu| (gpu, 25990 + u64::from(gpu) * 5, total, 95)).collect();
    let rows: Vec<(u32, u32, &str, u64)> =
        cards.iter().map(|(gpu, used, ..)| (*gpu, 40100 + 3 * gpu, "/opt/conda/bin/python", used - 4)).collect();
    Build::default().file("after.txt", ArtifactKind::NvidiaSmi).table(Some(90 * 60), &cards, &rows).evidence
}

/// `lengths[step % n][rank]` as the second dimension of the batch; the peak follows it. Every tenth step is followed by
/// a validation line with `eval[rank]` MiB, if given.
fn log(steps: u64, lengths: &[[u64; 4]], eval: Option<[u64; 4]>) -> Evidence {
    let mut build = Build::default().file("job.log", ArtifactKind::StepLog);
    for step in 0..steps {
        let at = usize::try_from(step).unwrap() % lengths.len();
        for (rank, length) in (0..4).zip(lengths[at]) {
            // No epoch is in the same order as the one before.
            let length = length + length * (step * step % 23) / 400;
            build = build.step(rank, Some(step), |row| {
                row.phase = Some(Phase::Train);
                row.batch_shape = Some(vec![8, length]);
                row.peak_allocated = mib(10_000 + 10 * length);
            });
        }
        if let Some(eval) = eval.filter(|_| step % 10 == 9) {
            for (rank, peak) in (0..4).zip(eval) {
                build = build.step(rank, Some(step), |row| {
                    row.phase = Some(Phase::Eval);
                    row.peak_allocated = mib(peak);
                });
            }
        }
    }
    build.evidence
}

const UNEVEN: [[u64; 4]; 4] =
    [[512, 480, 500, 1834], [490, 512, 505, 1640], [600, 520, 540, 1720], [450, 470, 512, 1500]];
const EVEN: [[u64; 4]; 4] = [[812, 805, 810, 820], [790, 800, 795, 801], [830, 822, 826, 835], [700, 705, 702, 708]];
const EVAL: [u64; 4] = [9_000, 9_010, 9_005, 9_020];

#[test]
fn strays_that_are_gone_are_fixed() {
    let comparison = held(&support::stray_contexts(), &bound(8, 32510));
    assert_eq!(comparison.outcome, Outcome::Fixed, "{}", comparison.sentence);
    assert!(comparison.sentence.starts_with("Fixed: GPU 0 was"), "{}", comparison.sentence);
    assert!(comparison.sentence.contains("now all eight cards are"), "{}", comparison.sentence);
    assert_eq!(comparison.back_to, None);
    assert!(comparison.collect.is_empty());
    let first = &comparison.rows[0];
    assert_eq!((first.subject, first.base_accused, first.head_accused), (Subject::Device(0), true, false));
    assert!(first.difference().unwrap() < -6_000 * 1024 * 1024);
    let binding = comparison.causes.iter().find(|cause| cause.label == CauseLabel::CtxNoSetDevice).unwrap();
    assert_eq!(binding.fate, CauseFate::Gone);
    let (entry, finding) = comparison.verified();
    assert_eq!((entry.item, entry.status), (Item::Verified, ItemStatus::Pass));
    assert_eq!(finding.claim, comparison.sentence);
}

#[test]
fn the_same_run_twice_is_not_fixed() {
    for evidence in [support::stray_contexts(), log(40, &UNEVEN, Some(EVAL))] {
        let comparison = held(&evidence, &evidence);
        assert_eq!(comparison.outcome, Outcome::NotFixed, "{}", comparison.sentence);
        assert!(comparison.sentence.contains("still"), "{}", comparison.sentence);
        assert!(comparison.sentence.contains("Go back to"), "{}", comparison.sentence);
        assert!(comparison.causes.iter().any(|cause| cause.fate == CauseFate::Remains));
        assert_eq!(comparison.verified().0.status, ItemStatus::Fail);
    }
}

#[test]
fn even_tokens_and_even_peaks_in_both_phases_are_fixed() {
    let comparison = held(&log(40, &UNEVEN, Some(EVAL)), &log(40, &EVEN, Some(EVAL)));
    assert_eq!(comparison.outcome, Outcome::Fixed, "{} {:?}", comparison.sentence, comparison.doubts);
    assert!(comparison.sentence.contains("in training and validation"), "{}", comparison.sentence);
    assert_eq!(comparison.input.is_even_now, Some(true));
    assert!(comparison.input.base_ratio.unwrap() > 3.0 && comparison.input.head_ratio.unwrap() < 1.1);
    let phases: Vec<_> = comparison.phases.iter().map(|phase| (phase.phase, phase.outcome)).collect();
    assert_eq!(phases, [(Some(Phase::Train), Some(Outcome::Fixed)), (Some(Phase::Eval), Some(Outcome::Fixed))]);
}

#[test]
fn a_phase_that_stays_uneven_is_partly() {
    let burden = [21_000, 9_010, 9_005, 9_020];
    let comparison = held(&log(40, &UNEVEN, Some(burden)), &log(40, &EVEN, Some([20_900, 9_010, 9_005, 9_020])));
    assert_eq!(comparison.outcome, Outcome::Partly, "{}", comparison.sentence);
    assert!(comparison.sentence.contains("training is even now, validation is not"), "{}", comparison.sentence);
    assert_eq!(comparison.verified().0.status, ItemStatus::Suspect);
}

#[test]
fn a_much_smaller_gap_is_partly_and_a_little_smaller_one_is_not() {
    let with = |other: u64, long: u64| {
        log(40, &[[other, other - 10, other + 5, long], [other - 50, other - 40, other - 45, long - 30]], Some(EVAL))
    };
    let partly = held(&with(700, 2000), &with(900, 1300));
    assert_eq!(partly.outcome, Outcome::Partly, "{}", partly.sentence);
    assert!(partly.sentence.contains("still"), "{}", partly.sentence);
    let hardly = held(&with(700, 2000), &with(720, 1900));
    assert_eq!(hardly.outcome, Outcome::NotFixed, "{}", hardly.sentence);
}

#[test]
fn a_shorter_run_proves_nothing() {
    let comparison = held(&log(40, &UNEVEN, Some(EVAL)), &log(10, &EVEN, Some(EVAL)));
    assert_eq!(comparison.outcome, Outcome::CannotTell, "{}", comparison.sentence);
    assert!(comparison.sentence.contains("10 steps of training"), "{}", comparison.sentence);
    assert!(comparison.sentence.contains("What was seen is even"), "{}", comparison.sentence);
    assert!(comparison.collect[0].what.contains("at least 40 steps"), "{:?}", comparison.collect);
    assert_eq!(comparison.verified().0.status, ItemStatus::Unknown);
}

#[test]
fn another_world_another_card_another_figure_or_a_missing_phase_prove_nothing() {
    let base = support::stray_contexts();
    let says = |comparison: &Comparison, words: &str| {
        assert_eq!(comparison.outcome, Outcome::CannotTell, "{}", comparison.sentence);
        assert!(comparison.sentence.contains(words), "{}", comparison.sentence);
        assert!(!comparison.collect.is_empty());
    };
    says(&held(&base, &bound(4, 32510)), "8 cards, the run after 4");
    says(&held(&base, &bound(8, 81920)), "cards differ");
    says(
        &held(&base, &log(40, &EVEN, None)),
        "different figures, device used per card before and peak allocated per rank after",
    );
    says(&held(&log(40, &UNEVEN, Some(EVAL)), &log(40, &EVEN, None)), "shows validation, the run after does not");
    let silent = {
        let mut evidence = log(40, &EVEN, Some(EVAL));
        evidence.steps.iter_mut().for_each(|row| row.batch_shape = None);
        evidence
    };
    says(&held(&log(40, &UNEVEN, Some(EVAL)), &silent), "does not print batch shapes or tokens");
    says(&held(&base, &Evidence::default()), "does not settle");
}

#[test]
fn a_smaller_batch_is_no_cure() {
    let light = EVEN.map(|row| row.map(|length| length / 4));
    let comparison = held(&log(40, &UNEVEN, Some(EVAL)), &log(40, &light, Some(EVAL)));
    assert_eq!(comparison.outcome, Outcome::CannotTell, "{}", comparison.sentence);
    assert!(comparison.sentence.contains("smaller batch hides"), "{}", comparison.sentence);
    // Halving every batch halves the bytes of the gap, but not its share.
    let halved = UNEVEN.map(|row| row.map(|length| length / 2));
    let comparison = held(&log(40, &UNEVEN, Some(EVAL)), &log(40, &halved, Some(EVAL)));
    assert_ne!(comparison.outcome, Outcome::Fixed);
}

#[test]
fn a_balanced_run_has_nothing_to_prove_and_can_only_get_worse() {
    let even = bound(8, 32510);
    let comparison = held(&even, &even);
    assert_eq!(comparison.outcome, Outcome::CannotTell);
    assert!(comparison.sentence.contains("no imbalance"), "{}", comparison.sentence);
    let worse = held(&even, &support::stray_contexts());
    assert_eq!(worse.outcome, Outcome::NotFixed);
    assert!(worse.sentence.starts_with("Worse"), "{}", worse.sentence);
    assert!(worse.causes.iter().all(|cause| cause.fate == CauseFate::New));
}

#[test]
fn reports_from_before_the_facts_were_kept_are_compared_by_their_charts() {
    let (mut base, mut head) = (freeze(&support::stray_contexts()), freeze(&bound(8, 32510)));
    base.1.facts = RunFacts::default();
    head.1.facts = RunFacts::default();
    let comparison = held_frozen(&base, &head);
    assert_eq!(comparison.outcome, Outcome::Fixed, "{}", comparison.sentence);
    assert_eq!(comparison.rows.len(), 8);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_run_is_fixed_beside_itself_and_every_answer_is_sound(
        peaks in proptest::collection::vec(proptest::array::uniform4(8_000..40_000u64), 1..30),
        after in proptest::collection::vec(proptest::array::uniform4(8_000..40_000u64), 1..30),
        lengths in proptest::collection::vec(proptest::array::uniform4(1..2_000u64), 1..6),
    ) {
        let run = |peaks: &[[u64; 4]]| {
            let mut build = Build::default().file("job.log", ArtifactKind::StepLog);
            for (step, row) in peaks.iter().enumerate() {
                for (rank, peak) in (0..4).zip(row) {
                    build = build.step(rank, Some(step as u64), |record| {
                        record.peak_allocated = mib(*peak);
                        record.batch_shape = Some(vec![8, lengths[step % lengths.len()][usize::try_from(rank).unwrap()]]);
                    });
                }
            }
            build.evidence
        };
        let (base, head) = (run(&peaks), run(&after));
        prop_assert_ne!(held(&base, &base).outcome, Outcome::Fixed);
        let comparison = held(&base, &head);
        prop_assert!(!comparison.sentence.contains("NaN") && !comparison.sentence.is_empty());
        prop_assert_eq!(comparison.collect.is_empty(), comparison.outcome == Outcome::Fixed);
        if comparison.outcome == Outcome::Fixed {
            prop_assert!(comparison.head.as_ref().unwrap().is_even());
            prop_assert!(!comparison.base.as_ref().unwrap().is_even());
            prop_assert!(comparison.doubts.iter().all(|doubt| !doubt.forbids_proof));
            prop_assert_eq!(freeze(&head).0.verdict, Verdict::Balanced);
        }
        let json = serde_json::to_string(&comparison).unwrap();
        prop_assert_eq!(serde_json::from_str::<Comparison>(&json).unwrap(), comparison);
    }
}
