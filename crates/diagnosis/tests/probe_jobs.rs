//! Jobs of four processes with the probe, from their logs to the checklist item: logs that are kept with the tests, and
//! real jobs over gloo where a Python with torch is at hand.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails loudly and says what it leaves out")]

use rankscope_diagnosis::{Policy, diagnose};
use rankscope_ingest::{Limits, read_upload};
use rankscope_model::{Diagnosis, Evidence, Item, ItemStatus, Phase, Subject};
use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A job of `end2end/probe/jobs.py`, and what its logs must say.
struct Job {
    name: &'static str,
    item: Item,
    status: ItemStatus,
    /// Part of a claim about the item.
    says: &'static str,
}

const JOBS: [Job; 5] = [
    Job {
        name: "correct",
        item: Item::DistributedSampler,
        status: ItemStatus::Pass,
        says: "Each of 4 ranks draws a shard of its own (DistributedSampler), reshuffled each epoch.",
    },
    Job {
        name: "no_sampler",
        item: Item::DistributedSampler,
        status: ItemStatus::Fail,
        says: "No loader of ranks 0 to 3 has a distributed sampler: each walks all 96 samples",
    },
    Job {
        name: "no_set_epoch",
        item: Item::DistributedSampler,
        status: ItemStatus::Fail,
        says: "set_epoch is never called",
    },
    Job {
        name: "variable_lengths",
        item: Item::BatchDivisibility,
        status: ItemStatus::Suspect,
        says: "Batches differ between ranks",
    },
    Job {
        name: "rank0_eval",
        item: Item::RankOnlyWork,
        status: ItemStatus::Suspect,
        says: "Only one of four ranks evaluated: rank 0.",
    },
];

fn check(job: &Job, evidence: &Evidence) {
    let warnings: Vec<_> = evidence.artifacts.iter().flat_map(|artifact| &artifact.warnings).collect();
    assert!(warnings.is_empty(), "{}: {warnings:?}", job.name);
    assert_eq!(evidence.probes.len(), 4, "{}", job.name);
    assert!(evidence.probes.iter().all(|probe| probe.ended && probe.train_steps == 18), "{}", job.name);
    let train: Vec<_> = evidence.steps.iter().filter(|step| step.phase == Some(Phase::Train)).collect();
    assert_eq!(train.len(), 4 * 18, "{}", job.name);
    assert!(train.iter().all(|step| step.batch_samples == Some(4) && step.batch_tokens.is_some()), "{}", job.name);
    let at_first: BTreeSet<_> = train.iter().filter(|step| step.step.unwrap().0 == 0).map(|s| s.batch_tokens).collect();
    assert_eq!(at_first.len() > 1, job.name == "variable_lengths", "{}: {at_first:?}", job.name);
    let evaluated: BTreeSet<Subject> = evidence
        .probes
        .iter()
        .filter(|p| p.phases.iter().any(|(phase, _)| *phase == Phase::Eval))
        .map(|p| Subject::Rank(p.rank))
        .collect();
    assert_eq!(evaluated.len(), if job.name == "rank0_eval" { 1 } else { 4 }, "{}", job.name);

    let diagnosis = diagnose(evidence, &Policy::default());
    let claims = claims(&diagnosis, job.item);
    assert!(claims.contains(job.says), "{}: {claims}", job.name);
    assert_eq!(status(&diagnosis, job.item), job.status, "{}: {claims}", job.name);
    for other in JOBS.iter().filter(|other| other.item != job.item && other.status != ItemStatus::Pass) {
        let status = status(&diagnosis, other.item);
        assert!(
            !matches!(status, ItemStatus::Fail | ItemStatus::Suspect),
            "{}: {:?} is {status:?}",
            job.name,
            other.item
        );
    }
    assert_eq!(status(&diagnosis, Item::OptimizerState), ItemStatus::Pass, "{}", job.name);
    assert_eq!(status(&diagnosis, Item::UnsyncedBuffers), ItemStatus::Pass, "{}", job.name);
}

fn status(diagnosis: &Diagnosis, item: Item) -> ItemStatus {
    diagnosis.checklist.iter().find(|entry| entry.item == item).unwrap().status
}

fn claims(diagnosis: &Diagnosis, item: Item) -> String {
    let of_item = diagnosis.findings.iter().filter(|finding| finding.item == item);
    of_item.map(|finding| finding.claim.as_str()).collect::<Vec<_>>().join("\n")
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn kept_logs_lead_to_the_right_item() {
    for job in &JOBS {
        let name = format!("{}.tar.gz", job.name);
        let path = workspace().join("crates/ingest/tests/data/probe/jobs").join(&name);
        let evidence = read_upload(&name, &mut File::open(path).unwrap(), &Limits::default());
        check(job, &evidence);
    }
}

#[test]
fn real_jobs_lead_to_the_right_item() {
    let Some(python) = env::var_os("RANKSCOPE_TORCH_PYTHON").filter(|value| !value.is_empty()) else {
        eprintln!("left out: RANKSCOPE_TORCH_PYTHON names no Python with torch (`cargo xtask test` sets it)");
        return;
    };
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("probe-jobs-{}", std::process::id()));
    let _ = fs::remove_dir_all(&out);
    let script = workspace().join("end2end/probe/jobs.py");
    let ran = Command::new(python).arg(script).arg(&out).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    for job in &JOBS {
        let mut evidence = Evidence::default();
        let mut paths: Vec<PathBuf> =
            fs::read_dir(out.join(job.name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            evidence.merge(read_upload(&name, &mut File::open(&path).unwrap(), &Limits::default()));
        }
        check(job, &evidence);
    }
    fs::remove_dir_all(&out).unwrap();
}
