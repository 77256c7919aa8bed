//! What training scripts add: alone they point, with memory evidence they decide; and correct ones are left alone.

#![allow(clippy::unwrap_used, clippy::float_cmp, reason = "a test fails loudly; an absent cause is exactly zero")]

mod support;

use rankscope_diagnosis::{Policy, diagnose};
use rankscope_ingest::{Limits, read_upload};
use rankscope_model::{CauseLabel, Diagnosis, Evidence, Item, ItemStatus, Severity, Verdict};
use std::fs::{self, File};
use std::path::Path;
use support::{BOUND, OWN, UNBOUND, confidence, ddp, status, stray_contexts};

fn data(name: &str) -> Evidence {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/scripts").join(name);
    read_upload(name, &mut File::open(path).unwrap(), &Limits::default())
}

fn script(text: &str) -> Evidence {
    support::script("train.py", text)
}

fn together(mut memory: Evidence, script: Evidence) -> Diagnosis {
    memory.merge(script);
    diagnose(&memory, &Policy::default())
}

#[test]
fn correct_projects_are_left_alone() {
    for name in ["clean_ddp.py", "clean_fsdp.py", "clean_lightning.py", "clean_hf_trainer.py", "clean_deepspeed.py"] {
        let evidence = data(name);
        assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new(), "{name}");
        let diagnosis = diagnose(&evidence, &Policy::default());
        assert_eq!(diagnosis.verdict, Verdict::Inconclusive, "{name}");
        for entry in &diagnosis.checklist {
            let findings: Vec<&str> =
                diagnosis.findings.iter().filter(|f| f.item == entry.item).map(|f| f.claim.as_str()).collect();
            assert_ne!(entry.status, ItemStatus::Fail, "{name}: {}: {findings:?}", entry.item.slug());
            assert_ne!(entry.status, ItemStatus::Suspect, "{name}: {}: {findings:?}", entry.item.slug());
        }
        let sure: Vec<_> = diagnosis.causes.iter().filter(|cause| cause.confidence >= 0.3).collect();
        assert!(sure.is_empty(), "{name}: {sure:#?}");
        assert!(diagnosis.findings.iter().all(|finding| finding.severity == Severity::Info), "{name}");
    }
}

#[test]
fn a_correct_script_passes_what_a_script_can_pass() {
    let diagnosis = diagnose(&data("clean_ddp.py"), &Policy::default());
    for item in [
        Item::DeviceVisibility,
        Item::DistributedInit,
        Item::DistributedSampler,
        Item::OptimizerState,
        Item::RankOnlyWork,
    ] {
        assert_eq!(status(&diagnosis, item), ItemStatus::Pass, "{}", item.slug());
    }
    assert_eq!(status(&diagnosis, Item::MemoryStats), ItemStatus::Unknown);
    let quoted = diagnosis.findings.iter().flat_map(|finding| &finding.evidence);
    assert!(quoted.clone().count() >= 5);
    assert!(quoted.into_iter().all(|at| at.artifact == "clean_ddp.py" && at.line.is_some() && !at.quote.is_empty()));
}

#[test]
fn a_script_alone_points_but_never_makes_an_imbalance() {
    let diagnosis = diagnose(&data("faulty_everything.py"), &Policy::default());
    assert_eq!(diagnosis.verdict, Verdict::Inconclusive);
    assert!(diagnosis.imbalance.is_none());
    assert!(diagnosis.causes.iter().all(|cause| cause.confidence < 0.5), "{:#?}", diagnosis.causes);
    assert_eq!(status(&diagnosis, Item::DeviceVisibility), ItemStatus::Suspect);
    assert_eq!(status(&diagnosis, Item::DistributedSampler), ItemStatus::Fail);
    assert_eq!(status(&diagnosis, Item::RankOnlyWork), ItemStatus::Suspect);
    assert_eq!(status(&diagnosis, Item::MemoryStats), ItemStatus::Suspect);
    assert!(diagnosis.summary.contains("The script alone says"), "{}", diagnosis.summary);
}

#[test]
fn fixes_are_diffs_of_the_users_own_lines() {
    let remedies = |diagnosis: &Diagnosis, label| {
        diagnosis.causes.iter().find(|cause| cause.label == label).map(|cause| cause.remedy.clone()).unwrap()
    };
    let diagnosis = together(stray_contexts(), data("faulty_everything.py"));
    let bind = remedies(&diagnosis, CauseLabel::CtxNoSetDevice);
    assert!(bind.contains("In faulty_everything.py, line 22:"), "{bind}");
    assert!(
        bind.ends_with("\n\n+    torch.cuda.set_device(local_rank)\n     dist.init_process_group(\"nccl\")"),
        "{bind}"
    );
    let load = remedies(&diagnosis, CauseLabel::CkptNoMapLocation);
    assert!(
        load.ends_with(
            "-    state = torch.load(\"last.pt\")\n+    state = torch.load(\"last.pt\", map_location=\"cpu\")"
        ),
        "{load}"
    );
}

#[test]
fn foreign_rows_and_no_set_device_are_the_binding() {
    let without = confidence(&diagnose(&stray_contexts(), &Policy::default()), CauseLabel::CtxNoSetDevice);
    let diagnosis = together(stray_contexts(), ddp(UNBOUND, OWN, ""));
    let with = confidence(&diagnosis, CauseLabel::CtxNoSetDevice);
    assert!(with >= 0.8 && without < 0.5, "{without} -> {with}");
    assert_eq!(diagnosis.causes[0].label, CauseLabel::CtxNoSetDevice);
    assert!(diagnosis.causes[0].evidence.iter().any(|at| at.artifact == "train.py"));
}

#[test]
fn foreign_rows_and_a_bound_script_are_a_helper() {
    let diagnosis = together(stray_contexts(), ddp(BOUND, OWN, ""));
    assert_eq!(diagnosis.causes[0].label, CauseLabel::HelperThreadOrLibCtx);
    assert!(confidence(&diagnosis, CauseLabel::CtxNoSetDevice) < 0.1);
}

#[test]
fn foreign_rows_and_a_load_without_map_location_are_the_checkpoint() {
    let load = "    model.load_state_dict(torch.load('last.pt'))\n";
    let diagnosis = together(stray_contexts(), ddp(BOUND, OWN, load));
    assert_eq!(diagnosis.causes[0].label, CauseLabel::CkptNoMapLocation);
    let safe = "    model.load_state_dict(torch.load('last.pt', map_location='cpu'))\n";
    let diagnosis = together(stray_contexts(), ddp(BOUND, OWN, safe));
    assert!(confidence(&diagnosis, CauseLabel::CkptNoMapLocation) < 0.1);
}

#[test]
fn foreign_rows_and_one_device_for_all_are_the_name() {
    let buffer = "    table = torch.zeros(1000, 1000, device='cuda:0')\n";
    let diagnosis = together(stray_contexts(), ddp(BOUND, OWN, buffer));
    assert_eq!(diagnosis.causes[0].label, CauseLabel::HardcodedOrDefaultDevice);
    // The current device is right once it was chosen.
    let current = "    table = torch.zeros(1000, 1000, device='cuda')\n";
    let diagnosis = together(stray_contexts(), ddp(BOUND, OWN, current));
    assert!(confidence(&diagnosis, CauseLabel::HardcodedOrDefaultDevice) < 0.1);
}

#[test]
fn a_helper_of_the_project_leaves_the_binding_open() {
    let start =
        "    from tools import setup_distributed\n    setup_distributed()\n    dist.init_process_group('nccl')\n";
    let diagnosis = together(stray_contexts(), ddp(start, OWN, ""));
    assert!(confidence(&diagnosis, CauseLabel::CtxNoSetDevice) < 0.6, "{:?}", diagnosis.causes);
}

#[test]
fn a_query_before_the_binding_is_too_late() {
    let start = "    print(torch.cuda.get_device_name())\n    torch.cuda.set_device(local_rank)\n    dist.init_process_group('nccl')\n";
    let diagnosis = together(stray_contexts(), ddp(start, OWN, ""));
    assert_eq!(diagnosis.causes[0].label, CauseLabel::CtxNoSetDevice);
    assert!(diagnosis.causes[0].why.iter().any(|why| why.contains("too late")), "{:?}", diagnosis.causes[0].why);
}

#[test]
fn a_missing_sampler_fails_and_a_framework_is_trusted() {
    let body = |loader: &str| {
        script(&format!(
            "import os\nimport torch\nimport torch.distributed as dist\nfrom torch.utils.data import DataLoader\n\
             torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\ndist.init_process_group('nccl')\n{loader}\
             for epoch in range(3):\n    for x in loader:\n        loss = model(x)\n        loss.backward()\n"
        ))
    };
    let missing = diagnose(&body("loader = DataLoader(train_set, 8, shuffle=True)\n"), &Policy::default());
    assert_eq!(status(&missing, Item::DistributedSampler), ItemStatus::Fail);
    let own =
        diagnose(&body("loader = DataLoader(train_set, batch_sampler=TokenBatches(lengths))\n"), &Policy::default());
    assert_ne!(status(&own, Item::DistributedSampler), ItemStatus::Fail);
}

#[test]
fn the_optimizer_of_a_sharded_model_is_built_behind_the_wrap() {
    let body = |lines: &str| {
        script(&format!(
            "import os\nimport torch\nimport torch.distributed as dist\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\
             from net import Net\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\ndist.init_process_group('nccl')\n\
             model = Net().cuda()\n{lines}for epoch in range(3):\n    for x in loader:\n        model(x).backward()\n"
        ))
    };
    let wrong = "opt = torch.optim.AdamW(model.parameters())\nmodel = FSDP(model)\n";
    let right = "model = FSDP(model)\nopt = torch.optim.AdamW(model.parameters())\n";
    let diagnosis = diagnose(&body(wrong), &Policy::default());
    assert_eq!(status(&diagnosis, Item::OptimizerState), ItemStatus::Fail);
    assert_eq!(diagnosis.causes[0].label, CauseLabel::OptimizerOrWrapOrder);
    let diagnosis = diagnose(&body(right), &Policy::default());
    assert_eq!(status(&diagnosis, Item::OptimizerState), ItemStatus::Pass);
    assert_eq!(confidence(&diagnosis, CauseLabel::OptimizerOrWrapOrder), 0.0);
}

#[test]
fn no_script_of_the_cases_makes_a_verdict_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases");
    if !root.is_dir() {
        println!("skipped: no folder shared/cases beside the workspace");
        return;
    }
    let mut count = 0;
    for folder in fs::read_dir(root).unwrap().flatten() {
        for file in fs::read_dir(folder.path().join("full")).into_iter().flatten().flatten() {
            if file.path().extension().is_some_and(|extension| extension == "py") {
                let evidence = read_upload("a.py", &mut File::open(file.path()).unwrap(), &Limits::default());
                let diagnosis = diagnose(&evidence, &Policy::default());
                assert_eq!(diagnosis.verdict, Verdict::Inconclusive);
                let top = diagnosis.causes.first().map_or(0.0, |cause| cause.confidence);
                assert!(top < 0.6, "{}: {:?}", file.path().display(), diagnosis.causes[0]);
                count += 1;
            }
        }
    }
    println!("{count} scripts");
}
