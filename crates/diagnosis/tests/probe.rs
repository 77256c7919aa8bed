//! What the diagnosis makes of probe logs: facts built by hand, one scenario a test, and the probe's own samples.

#![allow(clippy::unwrap_used, clippy::float_cmp, reason = "a test fails loudly; an absent cause is exactly zero")]

use rankscope_diagnosis::{Policy, diagnose};
use rankscope_ingest::{Limits, read_upload};
use rankscope_model::{CauseLabel, Diagnosis, Evidence, Item, ItemStatus};
use std::fmt::Write as _;
use std::fs;
use std::io::Cursor;
use std::path::Path;

/// A log of one rank: its facts (members of the record, without braces) and `steps` training steps.
fn log(rank: u32, world_size: u32, facts: &str, steps: u64) -> String {
    let mut text = format!(
        r#"{{"type":"start","seq":0,"t":1,"format":"rankscope.probe/1","rank":{rank},"world_size":{world_size},"host":"a"}}"#
    );
    for n in 0..steps {
        let _ = write!(text, "\n{{\"type\":\"step\",\"seq\":1,\"t\":2,\"n\":{n},\"step\":{n},\"phase\":\"train\"}}");
    }
    let _ = write!(text, "\n{{\"type\":\"facts\",\"seq\":2,\"t\":3,\"n\":{steps},\"train_steps\":{steps},{facts}}}\n");
    text
}

fn read(logs: &[String]) -> Evidence {
    let mut evidence = Evidence::default();
    for (rank, log) in logs.iter().enumerate() {
        let mut input = Cursor::new(log.as_bytes());
        evidence.merge(read_upload(&format!("rankscope_x_rank{rank}.jsonl"), &mut input, &Limits::default()));
    }
    evidence
}

/// `facts` of each of four ranks.
fn run(facts: impl Fn(u32) -> String) -> Diagnosis {
    let logs: Vec<String> = (0..4).map(|rank| log(rank, 4, &facts(rank), 20)).collect();
    diagnose(&read(&logs), &Policy::default())
}

fn status(diagnosis: &Diagnosis, item: Item) -> ItemStatus {
    diagnosis.checklist.iter().find(|entry| entry.item == item).unwrap().status
}

fn confidence(diagnosis: &Diagnosis, label: CauseLabel) -> f64 {
    diagnosis.causes.iter().find(|cause| cause.label == label).map_or(0.0, |cause| cause.confidence)
}

fn claims(diagnosis: &Diagnosis, item: Item) -> String {
    let of_item = diagnosis.findings.iter().filter(|finding| finding.item == item);
    of_item.map(|finding| finding.claim.as_str()).collect::<Vec<_>>().join("\n")
}

fn loader(sampler: &str) -> String {
    format!(
        r#""loaders":[{{"class":"torch.utils.data.dataloader.DataLoader","dataset_len":98,"batches":6,"samplers":[{{"class":"torch.utils.data.sampler.BatchSampler"}}{sampler}]}}]"#
    )
}

fn sampler(replicas: u32, rank: u32, epoch: u32) -> String {
    format!(
        r#",{{"class":"torch.utils.data.distributed.DistributedSampler","num_replicas":{replicas},"rank":{rank},"shuffle":true,"drop_last":false,"epoch":{epoch},"has_set_epoch":true}}"#
    )
}

// ---- samplers ----

#[test]
fn a_loader_without_distributed_sampler_is_told() {
    let diagnosis = run(|_| loader(""));
    assert_eq!(status(&diagnosis, Item::DistributedSampler), ItemStatus::Fail);
    assert!(
        claims(&diagnosis, Item::DistributedSampler)
            .contains("ranks 0 to 3 has a distributed sampler: each walks all 98 samples")
    );
    assert!(confidence(&diagnosis, CauseLabel::SamplerMissingOrNoSetEpoch) > 0.0);
}

#[test]
fn one_process_needs_no_distributed_sampler() {
    let diagnosis = diagnose(&read(&[log(0, 1, &loader(""), 20)]), &Policy::default());
    assert_eq!(status(&diagnosis, Item::DistributedSampler), ItemStatus::Unknown);
}

#[test]
fn loaders_that_deal_by_themselves_are_not_accused() {
    for facts in [
        r#""loaders":[{"class":"DataLoader","iterable":true,"samplers":[]}]"#,
        r#""loaders":[{"class":"accelerate.data_loader.DataLoaderDispatcher","samplers":[]}]"#,
        r#""loaders":[{"class":"DataLoader","error":"RuntimeError"}]"#,
        r#""loaders":[{"class":"DataLoader","samplers":[]}],"partial":true"#,
    ] {
        assert_eq!(status(&run(|_| facts.to_owned()), Item::DistributedSampler), ItemStatus::Unknown, "{facts}");
    }
}

#[test]
fn a_sampler_that_is_told_the_epoch_passes_and_says_what_happens_to_the_tail() {
    let diagnosis = run(|rank| loader(&sampler(4, rank, 2)));
    assert_eq!(status(&diagnosis, Item::DistributedSampler), ItemStatus::Pass);
    let claim = claims(&diagnosis, Item::DistributedSampler);
    assert!(claim.contains("reshuffled each epoch. 2 samples are dealt twice"), "{claim}");
    assert!(confidence(&diagnosis, CauseLabel::SamplerMissingOrNoSetEpoch) < 0.05);
}

#[test]
fn a_sampler_that_is_never_told_the_epoch_fails_only_after_the_first_pass() {
    let diagnosis = run(|rank| loader(&sampler(4, rank, 0)));
    assert_eq!(status(&diagnosis, Item::DistributedSampler), ItemStatus::Fail);
    assert!(claims(&diagnosis, Item::DistributedSampler).starts_with("set_epoch is never called: after 20 steps of 6"));
    let logs: Vec<String> = (0..4).map(|rank| log(rank, 4, &loader(&sampler(4, rank, 0)), 6)).collect();
    let early = diagnose(&read(&logs), &Policy::default());
    assert_eq!(status(&early, Item::DistributedSampler), ItemStatus::Unknown);
    assert!(claims(&early, Item::DistributedSampler).contains("only one pass was seen"));
}

#[test]
fn shards_of_another_number_of_ranks_or_the_same_shard_twice_fail() {
    let alone = run(|_| loader(&sampler(1, 0, 2)));
    assert_eq!(status(&alone, Item::DistributedSampler), ItemStatus::Fail);
    assert!(claims(&alone, Item::DistributedSampler).contains("deals to one rank in a job of 4 ranks"));
    let half = run(|rank| loader(&sampler(2, rank / 2, 2)));
    assert_eq!(status(&half, Item::DistributedSampler), ItemStatus::Suspect);
    let twice = run(|rank| loader(&sampler(4, rank.max(1), 2)));
    assert_eq!(status(&twice, Item::DistributedSampler), ItemStatus::Fail);
    assert!(claims(&twice, Item::DistributedSampler).contains("Ranks 0 and 1 draw the same shard, number 1"));
}

// ---- devices and wrappers ----

#[test]
fn data_parallel_gathers_on_one_card() {
    let facts =
        r#""wrappers":[{"kind":"data_parallel","class":"DataParallel","device_ids":[0,1,2,3],"output_device":0}]"#;
    let diagnosis = diagnose(&read(&[log(0, 1, facts, 20)]), &Policy::default());
    assert_eq!(diagnosis.causes[0].label, CauseLabel::DataparallelMaster);
    assert_eq!(status(&diagnosis, Item::RankOnlyWork), ItemStatus::Fail);
    assert_eq!(status(&diagnosis, Item::DistributedSampler), ItemStatus::NotApplicable);
    let one_card = run(|_| facts.replace("[0,1,2,3]", "[0]"));
    assert_eq!(confidence(&one_card, CauseLabel::DataparallelMaster), 0.0);
}

#[test]
fn tensors_on_a_second_card_and_two_ranks_on_one_card_are_told() {
    let device = |index: u32, uuid: u32, reserved: u64| {
        format!(r#"{{"index":{index},"uuid":"GPU-{uuid}","reserved":{reserved}}}"#)
    };
    let own = |rank: u32| format!(r#""devices":[{}]"#, device(rank, rank, 8 << 30));
    let clean = run(own);
    assert_eq!(status(&clean, Item::DeviceVisibility), ItemStatus::Unknown, "contexts do not show in the allocator");
    let stray = run(|rank| {
        if rank == 0 {
            own(0)
        } else {
            format!(r#""devices":[{},{}]"#, device(0, 0, 1 << 30), device(rank, rank, 8 << 30))
        }
    });
    assert_eq!(status(&stray, Item::DeviceVisibility), ItemStatus::Fail);
    assert!(
        claims(&stray, Item::DeviceVisibility)
            .contains("Rank 1 works on GPU 1 and also holds 1.0 GiB of tensors on GPU 0")
    );
    assert!(confidence(&stray, CauseLabel::HardcodedOrDefaultDevice) > 0.3);
    let shared = run(|rank| format!(r#""devices":[{}]"#, device(0, rank.min(2), 8 << 30)));
    assert_eq!(shared.causes[0].label, CauseLabel::RankGpuMapping);
    assert!(claims(&shared, Item::DeviceVisibility).contains("Ranks 2 and 3"));
}

// ---- state ----

fn optimizer(gib: u64, device: &str) -> String {
    format!(r#""optimizers":[{{"class":"AdamW","parameters":10,"state_bytes":{{"{device}":{}}}}}]"#, gib << 30)
}

#[test]
fn equal_optimizer_state_passes_and_a_heavier_rank_fails() {
    let equal = run(|_| optimizer(4, "cuda:0"));
    assert_eq!(status(&equal, Item::OptimizerState), ItemStatus::Pass);
    let uneven = run(|rank| optimizer(if rank == 0 { 12 } else { 4 }, "cuda:0"));
    assert_eq!(status(&uneven, Item::OptimizerState), ItemStatus::Fail);
    assert!(
        claims(&uneven, Item::OptimizerState)
            .contains("Rank 0 holds 12.0 GiB of optimizer state on its card, the median rank 4.0 GiB")
    );
    assert_eq!(uneven.causes[0].label, CauseLabel::OptimizerOrWrapOrder);
    let on_cpu = run(|rank| optimizer(if rank == 0 { 12 } else { 4 }, "cpu"));
    assert_eq!(confidence(&on_cpu, CauseLabel::OptimizerOrWrapOrder), 0.0, "host memory fills no card");
}

#[test]
fn an_optimizer_over_parameters_of_no_module_is_suspect() {
    let facts = |stray: u32| {
        format!(r#""modules":[{{"class":"Net"}}],"optimizers":[{{"class":"AdamW","parameters":10,"stray":{stray}}}]"#)
    };
    assert_eq!(status(&run(|_| facts(10)), Item::OptimizerState), ItemStatus::Suspect);
    assert_eq!(status(&run(|_| facts(1)), Item::OptimizerState), ItemStatus::Unknown);
}

fn module(class: &str, digest: &str, buffer_gib: u64) -> String {
    format!(
        r#"{{"class":"m.{class}","parameters":{{"digest":"{digest}"}},"groups":[{{"name":"head","bytes":1048576,"digest":"{digest}"}}],"buffers":{{"digest":"b{buffer_gib}","bytes":{{"cuda:0":{0}}},"largest":[{{"name":"table","bytes":{0},"device":"cuda:0"}}]}}}}"#,
        buffer_gib << 30
    )
}

#[test]
fn buffers_of_one_rank_are_named() {
    let diagnosis = run(|rank| format!(r#""modules":[{}]"#, module("Net", "a", if rank == 2 { 6 } else { 1 })));
    assert_eq!(status(&diagnosis, Item::UnsyncedBuffers), ItemStatus::Fail);
    let claim = claims(&diagnosis, Item::UnsyncedBuffers);
    assert!(
        claim.contains("Rank 2 holds 6.0 GiB of buffers on its card") && claim.contains("table of Net, 6.0 GiB"),
        "{claim}"
    );
    assert_eq!(diagnosis.causes[0].label, CauseLabel::Rank0AuxBuffers);
    assert_eq!(diagnosis.causes[0].ranks, [2]);
}

#[test]
fn equal_modules_pass_and_a_module_of_one_rank_is_told() {
    let equal = run(|_| format!(r#""modules":[{}]"#, module("Net", "a", 1)));
    assert_eq!(status(&equal, Item::UnsyncedBuffers), ItemStatus::Pass);
    let teacher = run(|rank| {
        let own = module("Net", "a", 1);
        if rank == 0 {
            format!(r#""modules":[{own},{}]"#, module("Ema", "a", 3))
        } else {
            format!(r#""modules":[{own}]"#)
        }
    });
    assert_eq!(status(&teacher, Item::UnsyncedBuffers), ItemStatus::Fail);
    assert!(claims(&teacher, Item::UnsyncedBuffers).contains("Only rank 0 has Ema (3.0 GiB on its card)"));
}

#[test]
fn parameters_without_twin_are_named_and_stages_of_a_pipeline_are_not_accused() {
    let one = run(|rank| format!(r#""modules":[{}]"#, module("Net", if rank == 3 { "b" } else { "a" }, 1)));
    assert_eq!(status(&one, Item::UnsyncedBuffers), ItemStatus::Suspect);
    assert!(
        claims(&one, Item::UnsyncedBuffers).contains("Parameters of Net head (1 MiB) on rank 3 have no twin on rank 0")
    );
    let stages = run(|rank| format!(r#""modules":[{}]"#, module("Stage", &format!("d{rank}"), 1)));
    assert_eq!(status(&stages, Item::UnsyncedBuffers), ItemStatus::Unknown);
}

#[test]
fn evaluation_on_one_rank_is_suspect_without_any_memory_figure() {
    let eval = "{\"type\":\"phase\",\"seq\":9,\"t\":9,\"n\":20,\"step\":19,\"phase\":\"eval\",\"event\":\"begin\"}\n";
    let logs = |ranks: u32| -> Vec<String> {
        (0..4).map(|rank| log(rank, 4, r#""why":"step""#, 20) + if rank < ranks { eval } else { "" }).collect()
    };
    let one = diagnose(&read(&logs(1)), &Policy::default());
    assert_eq!(status(&one, Item::RankOnlyWork), ItemStatus::Suspect);
    assert!(claims(&one, Item::RankOnlyWork).contains("Only one of four ranks evaluated: rank 0"));
    let all = diagnose(&read(&logs(4)), &Policy::default());
    assert_eq!(status(&all, Item::RankOnlyWork), ItemStatus::Unknown);
}

#[test]
fn a_rank_that_was_started_again_counts_once() {
    let mut logs: Vec<String> = (0..4).map(|rank| log(rank, 4, &loader(""), 20)).collect();
    logs.extend((0..4).map(|rank| log(rank, 4, &loader(&sampler(4, rank, 2)), 20).replace("\"t\":1,", "\"t\":9,")));
    let mut evidence = Evidence::default();
    for log in &logs {
        evidence.merge(read_upload("rank", &mut Cursor::new(log.as_bytes()), &Limits::default()));
    }
    let diagnosis = diagnose(&evidence, &Policy::default());
    assert_eq!(status(&diagnosis, Item::DistributedSampler), ItemStatus::Pass);
}

// ---- the probe's own samples ----

#[test]
fn peaks_of_the_samples_follow_their_batches() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ingest/tests/data/probe");
    let mut evidence = Evidence::default();
    for rank in 0..2 {
        let name = format!("rankscope_sample_rank{rank}.jsonl");
        let bytes = fs::read(folder.join(&name)).unwrap();
        evidence.merge(read_upload(&name, &mut Cursor::new(bytes), &Limits::default()));
    }
    let diagnosis = diagnose(&evidence, &Policy::default());
    let labels: Vec<CauseLabel> = diagnosis.causes.iter().map(|cause| cause.label).collect();
    assert!(labels.contains(&CauseLabel::VariableShapeBatches), "{labels:?}");
    assert!(labels.contains(&CauseLabel::Rank0Eval), "{labels:?}");
    let divisibility = claims(&diagnosis, Item::BatchDivisibility);
    assert!(divisibility.contains("Batches differ between ranks at 12 of 12 steps"), "{divisibility}");
    assert_eq!(status(&diagnosis, Item::RankOnlyWork), ItemStatus::Fail);
}
