//! The probe's samples (tests/data/probe, see its README) read to the figures that the script which made them set.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails loudly")]

use rankscope_ingest::{Limits, read_upload};
use rankscope_model::{ArtifactKind, Bytes, Evidence, MIB, Phase, Rank, Subject};
use std::fs::File;
use std::path::Path;

fn sample(rank: u32) -> Evidence {
    let name = format!("rankscope_sample_rank{rank}.jsonl");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/probe").join(&name);
    read_upload(&name, &mut File::open(path).unwrap(), &Limits::default())
}

/// As `end2end/probe/fixtures.py` draws it.
fn length(rank: u64, step: u64) -> u64 {
    128 + (step * 7 + rank * 5) % 12 * 64
}

#[test]
fn each_step_has_its_own_shape_and_the_peak_that_follows_it() {
    for rank in 0..2u32 {
        let found = sample(rank);
        assert_eq!(found.artifacts[0].kind, ArtifactKind::ProbeLog);
        assert_eq!((found.artifacts[0].ranks.as_slice(), found.artifacts[0].warnings.len()), (&[rank][..], 0));
        let steps: Vec<_> = found.steps.iter().filter(|s| s.phase == Some(Phase::Train)).collect();
        assert_eq!(steps.len(), 12);
        for (index, step) in (0u64..).zip(&steps) {
            let length = length(u64::from(rank), index);
            assert_eq!((step.subject, step.step.unwrap().0), (Subject::Rank(Rank(rank)), index));
            assert_eq!(step.batch_shape, Some(vec![8, length]));
            assert_eq!((step.batch_tokens, step.batch_tokens_unpadded), (Some(8 * length), Some(1024)));
            assert_eq!(step.peak_allocated, Some(Bytes((4000 + 8 * length) * MIB)), "rank {rank} step {index}");
        }
    }
}

#[test]
fn the_evaluation_of_rank_0_has_a_peak_of_its_own() {
    let eval = |rank| -> Vec<Bytes> {
        let steps = sample(rank).steps;
        steps.iter().filter(|s| s.phase == Some(Phase::Eval)).filter_map(|s| s.peak_allocated).collect()
    };
    assert_eq!(eval(0), [Bytes::from_mib(13_000)]);
    assert!(eval(1).is_empty());
}

#[test]
fn the_failed_allocation_is_one_event_with_figures_and_text() {
    assert!(sample(0).ooms.is_empty());
    let found = sample(1);
    let [oom] = found.ooms.as_slice() else { panic!("{:?}", found.ooms) };
    assert_eq!((oom.rank, oom.device, oom.tried), (Some(Rank(1)), Some(1), Some(Bytes::from_mib(2048))));
    assert_eq!((oom.total, oom.free), (Some(Bytes(96 << 30)), Some(Bytes::from_mib(512))));
    assert_eq!(oom.this_process, Some(Bytes(95 << 30)), "from the exception's text");
    assert_eq!(oom.allocated, Some(Bytes::from_mib(4000)), "from memory_stats");
}

#[test]
fn who_and_where_are_kept() {
    let found = sample(1);
    let [probe] = found.probes.as_slice() else { panic!("one process") };
    assert_eq!((probe.rank, probe.start.world_size, probe.train_steps), (Rank(1), Some(2), 12));
    assert_eq!(probe.start.launcher.as_ref().unwrap()[0], "torchrun");
    assert!(probe.ended);
    let facts = probe.facts.as_ref().unwrap();
    assert_eq!(facts.devices[0].uuid.as_deref(), Some("GPU-0000-1"));
    assert_eq!(facts.dist.as_ref().unwrap().world_size, Some(2));
}
