//! Correct programs are left alone: several files with imports between them, a notebook, and things that are right
//! although they look odd. None fails an item; what is wrong in the same place does.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

mod support;

use rankscope_diagnosis::{Policy, diagnose};
use rankscope_model::{CauseLabel, Diagnosis, Evidence, Item, ItemStatus};
use support::{confidence, script, status, stray_contexts, with};

fn project(files: &[(&str, &str)]) -> Evidence {
    files.iter().fold(Evidence::default(), |evidence, (name, text)| with(evidence, script(name, text)))
}

fn run(evidence: &Evidence) -> Diagnosis {
    diagnose(evidence, &Policy::default())
}

fn shown(diagnosis: &Diagnosis) -> String {
    let entries = diagnosis.checklist.iter().map(|entry| {
        let claims: Vec<&str> =
            diagnosis.findings.iter().filter(|f| f.item == entry.item).map(|f| f.claim.as_str()).collect();
        format!("{} {:?} {claims:?}", entry.item.slug(), entry.status)
    });
    entries.collect::<Vec<_>>().join("\n")
}

fn assert_clean(name: &str, diagnosis: &Diagnosis) {
    for entry in &diagnosis.checklist {
        assert_ne!(entry.status, ItemStatus::Fail, "{name}\n{}", shown(diagnosis));
    }
    let top = diagnosis.causes.first().map_or(0.0, |cause| cause.confidence);
    assert!(top < 0.5, "{name}: {:?}", diagnosis.causes.first());
}

// ---- several files ----

const TRAIN: &str = r#"
import argparse
import torch
from engine.dist_utils import setup, is_main
from engine.data import make_loader
from engine.evaluation import evaluate
from torch.nn.parallel import DistributedDataParallel as DDP
from net import Net
from sets import Pairs


def main():
    args = argparse.ArgumentParser().parse_args()
    local_rank = setup()
    device = torch.device("cuda", local_rank)
    loader, sampler = make_loader(Pairs("train"), 32)
    model = DDP(Net().to(device), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        score = evaluate(model, device)
        if is_main():
            print(epoch, score)


if __name__ == "__main__":
    main()
"#;

const SETUP: &str = r#"
import os
import torch
import torch.distributed as dist


def setup():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    return local_rank


def is_main():
    return dist.get_rank() == 0
"#;

const DATA: &str = r"
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def make_loader(dataset, batch_size):
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler, num_workers=4, drop_last=True), sampler
";

const EVALUATION: &str = r#"
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from sets import Pairs


@torch.no_grad()
def evaluate(model, device):
    val = Pairs("val")
    val_loader = DataLoader(val, 32, sampler=DistributedSampler(val, shuffle=False))
    total = torch.zeros(1, device=device)
    for x, y in val_loader:
        total += torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
    dist.all_reduce(total)
    return total.item()
"#;

fn files(setup: &str, data: &str) -> Evidence {
    project(&[
        ("train.py", TRAIN),
        ("engine/dist_utils.py", setup),
        ("engine/data.py", data),
        ("engine/evaluation.py", EVALUATION),
    ])
}

#[test]
fn a_project_of_several_files_is_followed_through_its_imports() {
    let diagnosis = run(&files(SETUP, DATA));
    assert_clean("several files", &diagnosis);
    for item in [Item::DeviceVisibility, Item::DistributedInit, Item::DistributedSampler, Item::OptimizerState] {
        assert_eq!(status(&diagnosis, item), ItemStatus::Pass, "{}\n{}", item.slug(), shown(&diagnosis));
    }
    // The order of the uploads changes nothing.
    let turned = run(&project(&[
        ("engine/evaluation.py", EVALUATION),
        ("engine/data.py", DATA),
        ("engine/dist_utils.py", SETUP),
        ("train.py", TRAIN),
    ]));
    let statuses = |diagnosis: &Diagnosis| diagnosis.checklist.iter().map(|entry| entry.status).collect::<Vec<_>>();
    assert_eq!(statuses(&turned), statuses(&diagnosis), "{}", shown(&turned));
}

#[test]
fn what_is_missing_in_another_file_is_missing() {
    let unbound = SETUP.replace("    torch.cuda.set_device(local_rank)\n", "");
    let diagnosis = run(&with(stray_contexts(), files(&unbound, DATA)));
    assert_eq!(diagnosis.causes[0].label, CauseLabel::CtxNoSetDevice, "{}", shown(&diagnosis));
    let bound = run(&with(stray_contexts(), files(SETUP, DATA)));
    assert!(confidence(&bound, CauseLabel::CtxNoSetDevice) < 0.1, "{}", shown(&bound));
    let undealt = DATA.replace("sampler=sampler, ", "shuffle=True, ");
    assert_eq!(status(&run(&files(SETUP, &undealt)), Item::DistributedSampler), ItemStatus::Fail);
}

#[test]
fn the_order_of_two_files_is_that_of_the_calls() {
    // The model goes to its GPU before the call that makes the process group in the other file.
    let early = TRAIN
        .replace("    local_rank = setup()\n", "    model = Net().cuda()\n    local_rank = setup()\n")
        .replace("DDP(Net().to(device), ", "DDP(model, ");
    let files = |train: &str| {
        project(&[
            ("train.py", train),
            ("engine/dist_utils.py", SETUP),
            ("engine/data.py", DATA),
            ("engine/evaluation.py", EVALUATION),
        ])
    };
    let diagnosis = run(&files(&early));
    assert_eq!(status(&diagnosis, Item::DistributedInit), ItemStatus::Fail, "{}", shown(&diagnosis));
    assert_eq!(status(&run(&files(TRAIN)), Item::DistributedInit), ItemStatus::Pass);
}

#[test]
fn what_only_rank_zero_keeps_in_another_file_is_a_lone_buffer() {
    let saving = "import copy\n\ndef keep(model):\n    ema = copy.deepcopy(model)\n    return ema\n";
    let main = |call: &str| {
        format!(
            "import os, torch\nimport torch.distributed as dist\nfrom keeping import keep\nfrom net import Net\n\n\
             def main():\n    torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n    dist.init_process_group('nccl')\n    \
             rank = dist.get_rank()\n    model = Net().cuda()\n{call}\nif __name__ == '__main__':\n    main()\n"
        )
    };
    let lone =
        run(&project(&[("train.py", &main("    if rank == 0:\n        keep(model)\n")), ("keeping.py", saving)]));
    assert_eq!(status(&lone, Item::UnsyncedBuffers), ItemStatus::Suspect, "{}", shown(&lone));
    assert_eq!(status(&lone, Item::RankOnlyWork), ItemStatus::Unknown, "{}", shown(&lone));
    let all = run(&project(&[("train.py", &main("    keep(model)\n")), ("keeping.py", saving)]));
    assert_ne!(status(&all, Item::UnsyncedBuffers), ItemStatus::Suspect, "{}", shown(&all));
}

// ---- a notebook ----

fn notebook(cells: &[&str]) -> Evidence {
    let cell =
        |source: &&str| serde_json::json!({"cell_type": "code", "metadata": {}, "outputs": [], "source": source});
    let cells: Vec<serde_json::Value> = cells.iter().map(cell).collect();
    let text = serde_json::json!({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}).to_string();
    script("train.ipynb", &text)
}

#[test]
fn a_notebook_is_left_alone() {
    let diagnosis = run(&notebook(&[
        "!pip install accelerate\nimport torch\nfrom accelerate import Accelerator, notebook_launcher",
        "def train():\n    accelerator = Accelerator(mixed_precision='bf16')\n    model = Net()\n    optimizer = \
         torch.optim.AdamW(model.parameters())\n    loader = torch.utils.data.DataLoader(train_set, 32, shuffle=True)\n    \
         model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n    for epoch in range(3):\n        \
         for x, y in loader:\n            loss = criterion(model(x), y)\n            accelerator.backward(loss)\n            \
         optimizer.step()\n            optimizer.zero_grad()",
        "%matplotlib inline\nnotebook_launcher(train, num_processes=4)",
    ]));
    assert_clean("notebook", &diagnosis);
}

// ---- right although it looks odd ----

/// A DDP program with one line of each part replaced.
fn odd(edits: &[(&str, &str)]) -> Evidence {
    const RIGHT: &str = r#"
import argparse
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from net import Net
from sets import Pairs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume")
    args = parser.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = Net().cuda()
    if args.resume:
        model.load_state_dict(torch.load(args.resume, map_location="cpu"))
    model = DDP(model, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters())
    train = Pairs("train")
    sampler = DistributedSampler(train)
    loader = DataLoader(train, 32, sampler=sampler)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        dist.barrier()


if __name__ == "__main__":
    main()
"#;
    let text = edits.iter().fold(RIGHT.to_owned(), |text, (line, other)| {
        assert!(text.contains(line), "{line}");
        text.replacen(line, other, 1)
    });
    script("train.py", &text)
}

#[test]
fn odd_but_right_programs_fail_nothing() {
    let local = "    local_rank = int(os.environ[\"LOCAL_RANK\"])\n";
    let parse = "    args = parser.parse_args()\n";
    let load = "torch.load(args.resume, map_location=\"cpu\")";
    let sampler = "    sampler = DistributedSampler(train)\n    loader = DataLoader(train, 32, sampler=sampler)\n";
    let barrier = "        dist.barrier()\n";
    let group = "    torch.cuda.set_device(local_rank)\n    dist.init_process_group(\"nccl\")\n";
    let variations: &[(&str, &[(&str, &str)])] = &[
        ("as it stands", &[]),
        (
            "the local rank through argparse",
            &[
                (local, ""),
                (
                    parse,
                    "    parser.add_argument(\"--local-rank\", type=int, default=int(os.environ.get(\"LOCAL_RANK\", 0)))\n    args = parser.parse_args()\n    local_rank = args.local_rank\n",
                ),
            ],
        ),
        (
            "a local rank of the global one",
            &[(local, "    local_rank = int(os.environ[\"RANK\"]) % torch.cuda.device_count()\n")],
        ),
        (
            "one visible GPU for each process",
            &[(
                group,
                "    os.environ[\"CUDA_VISIBLE_DEVICES\"] = str(local_rank)\n    local_rank = 0\n    torch.cuda.set_device(0)\n    dist.init_process_group(\"nccl\")\n",
            )],
        ),
        (
            "the group before the binding",
            &[(group, "    dist.init_process_group(\"nccl\")\n    torch.cuda.set_device(local_rank)\n")],
        ),
        (
            "the group with its device",
            &[(
                group,
                "    torch.cuda.set_device(local_rank)\n    dist.init_process_group(\"nccl\", device_id=torch.device(f\"cuda:{local_rank}\"))\n",
            )],
        ),
        ("a lambda as map_location", &[(load, "torch.load(args.resume, map_location=lambda storage, loc: storage)")]),
        (
            "a dictionary as map_location",
            &[(load, "torch.load(args.resume, map_location={\"cuda:0\": f\"cuda:{local_rank}\"})")],
        ),
        (
            "weights only, on the host",
            &[(load, "torch.load(args.resume, weights_only=True, map_location=torch.device(\"cpu\"))")],
        ),
        (
            "a batch sampler around a distributed one",
            &[(
                sampler,
                "    sampler = DistributedSampler(train)\n    loader = DataLoader(train, batch_sampler=torch.utils.data.BatchSampler(sampler, 32, True))\n",
            )],
        ),
        (
            "a batch sampler of its own",
            &[(
                sampler,
                "    sampler = TokenBatches(train.lengths, rank, dist.get_world_size())\n    loader = DataLoader(train, batch_sampler=sampler)\n",
            )],
        ),
        (
            "a small evaluation on one rank, and a barrier",
            &[(barrier, "        if rank == 0:\n            evaluate(model.module, small)\n        dist.barrier()\n")],
        ),
        (
            "a save of one rank from the host",
            &[(
                barrier,
                "        if rank == 0:\n            torch.save({k: v.cpu() for k, v in model.module.state_dict().items()}, \"last.pt\")\n        dist.barrier()\n",
            )],
        ),
        (
            "accumulation on all ranks",
            &[("            optimizer.step()\n", "            if epoch % 4 == 0:\n                optimizer.step()\n")],
        ),
        (
            "losses as numbers",
            &[(
                "            optimizer.step()\n",
                "            optimizer.step()\n            losses.append(loss.item())\n",
            )],
        ),
    ];
    for (name, edits) in variations {
        assert_clean(name, &run(&odd(edits)));
    }
}

#[test]
fn the_same_places_fail_where_they_are_wrong() {
    let sampler = "    sampler = DistributedSampler(train)\n    loader = DataLoader(train, 32, sampler=sampler)\n";
    let wrong: &[(Item, &[(&str, &str)])] = &[
        (
            Item::DistributedSampler,
            &[(
                sampler,
                "    sampler = DistributedSampler(train)\n    train_loader = loader = DataLoader(train, 32, shuffle=True)\n",
            )],
        ),
        (Item::DistributedSampler, &[("        sampler.set_epoch(epoch)\n", "")]),
        (
            Item::DistributedInit,
            &[(
                "    torch.cuda.set_device(local_rank)\n    dist.init_process_group(\"nccl\")\n",
                "    model = Net().cuda()\n    dist.init_process_group(\"nccl\")\n    torch.cuda.set_device(local_rank)\n",
            )],
        ),
    ];
    for (item, edits) in wrong {
        let diagnosis = run(&odd(edits));
        assert_eq!(status(&diagnosis, *item), ItemStatus::Fail, "{}\n{}", item.slug(), shown(&diagnosis));
    }
}

// ---- work of one rank: passed only where it is light ----

fn alone(lines: &str) -> Evidence {
    let barrier = "        dist.barrier()\n";
    let branch = format!("        if rank == 0:\n            {}\n{barrier}", lines.replace('\n', "\n            "));
    odd(&[
        ("import os\n", "import copy\nimport os\nfrom torch.utils.checkpoint import checkpoint\n"),
        (barrier, &branch),
    ])
}

#[test]
fn a_copy_of_the_weights_on_one_rank_is_a_lone_buffer_and_never_passes() {
    for lines in [
        "ema = {k: v.clone() for k, v in model.state_dict().items()}",
        "ema = {}\nfor k, v in model.module.state_dict().items():\n    ema[k] = v.detach().clone()",
        "ema = copy.deepcopy(model)",
        "ema = copy.deepcopy(model.state_dict())",
    ] {
        let diagnosis = run(&alone(lines));
        assert_eq!(status(&diagnosis, Item::UnsyncedBuffers), ItemStatus::Suspect, "{lines}\n{}", shown(&diagnosis));
        let claim = diagnosis.findings.iter().find(|f| f.item == Item::UnsyncedBuffers).unwrap();
        assert_eq!(claim.label, Some(CauseLabel::Rank0AuxBuffers));
        assert!(claim.claim.contains("keeps a copy of the weights on one rank only"), "{}", claim.claim);
        assert_eq!(status(&diagnosis, Item::RankOnlyWork), ItemStatus::Unknown, "{lines}\n{}", shown(&diagnosis));
        let why = diagnosis.findings.iter().find(|f| f.item == Item::RankOnlyWork).unwrap();
        assert!(why.claim.contains("a copy of the weights"), "{}", why.claim);
    }
    // The same on all ranks is no lone buffer.
    let barrier = "        dist.barrier()\n";
    let all = run(&odd(&[(
        barrier,
        "        ema = {k: v.clone() for k, v in model.state_dict().items()}\n        dist.barrier()\n",
    )]));
    assert_ne!(status(&all, Item::UnsyncedBuffers), ItemStatus::Suspect, "{}", shown(&all));
}

#[test]
fn a_copy_that_passes_through_the_gpu_is_told_as_such() {
    let diagnosis = run(&alone("ema = copy.deepcopy(model).cpu()"));
    assert_eq!(status(&diagnosis, Item::UnsyncedBuffers), ItemStatus::Suspect, "{}", shown(&diagnosis));
    let claim = diagnosis.findings.iter().find(|f| f.item == Item::UnsyncedBuffers).unwrap();
    assert!(claim.claim.contains("before the copy goes to the host"), "{}", claim.claim);
}

#[test]
fn branches_that_only_save_and_print_pass_and_others_are_left_open() {
    for lines in [
        "print(epoch)",
        "torch.save(model.module.state_dict(), 'last.pt')",
        "ema = {k: v.detach().to('cpu', copy=True) for k, v in model.state_dict().items()}",
    ] {
        let diagnosis = run(&alone(lines));
        assert_eq!(status(&diagnosis, Item::RankOnlyWork), ItemStatus::Pass, "{lines}\n{}", shown(&diagnosis));
        assert_ne!(status(&diagnosis, Item::UnsyncedBuffers), ItemStatus::Suspect, "{lines}\n{}", shown(&diagnosis));
    }
    for (lines, reason) in [
        ("y = checkpoint(model.module.block, x)", "activation checkpointing"),
        ("y = model(x)", "a forward pass"),
        ("look(model)", "a call of code that was not read"),
    ] {
        let diagnosis = run(&alone(lines));
        assert_eq!(status(&diagnosis, Item::RankOnlyWork), ItemStatus::Unknown, "{lines}\n{}", shown(&diagnosis));
        let why = diagnosis.findings.iter().find(|f| f.item == Item::RankOnlyWork).unwrap();
        assert!(why.claim.contains(reason), "{}", why.claim);
    }
    // Checkpointing that depends on the rank has an item of its own.
    let diagnosis = run(&alone("y = checkpoint(model.module.block, x)"));
    assert_eq!(status(&diagnosis, Item::AccumulationCheckpointing), ItemStatus::Suspect, "{}", shown(&diagnosis));
}

#[test]
fn what_is_offered_against_a_lone_copy_is_not_held_against_who_takes_it() {
    let faulty = run(&alone("ema = copy.deepcopy(model)"));
    let remedy = rankscope_diagnosis::item_remedy(Item::UnsyncedBuffers, &[]).text;
    let added: Vec<&str> = remedy.lines().filter_map(|line| line.strip_prefix("+ ")).collect();
    assert!(!added.is_empty(), "{remedy}");
    assert_eq!(status(&faulty, Item::UnsyncedBuffers), ItemStatus::Suspect);
    let mended = run(&alone(&added.join("\n")));
    assert_ne!(status(&mended, Item::UnsyncedBuffers), ItemStatus::Suspect, "{}", shown(&mended));
    assert_eq!(status(&mended, Item::RankOnlyWork), ItemStatus::Pass, "{}", shown(&mended));
}

#[test]
fn a_program_without_loop_and_guard_is_taken_as_the_program() {
    let text = "import torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as \
                DDP\nfrom net import Net\nfrom engine import fit\n\ndist.init_process_group('nccl')\nmodel = \
                DDP(Net().to('cuda'))\nfit(model)\n";
    let diagnosis = run(&with(stray_contexts(), script("train.py", text)));
    assert_eq!(diagnosis.causes[0].label, CauseLabel::CtxNoSetDevice, "{}", shown(&diagnosis));
    let why = &diagnosis.causes[0].why;
    assert!(why.iter().any(|why| why.contains("Nothing in the script makes a GPU current")), "{why:?}");
    // A module of the same lines in functions proves nothing: who calls it may bind the process.
    let module = "import torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as \
                  DDP\n\ndef setup(model):\n    dist.init_process_group('nccl')\n    return DDP(model)\n";
    let alone = run(&with(stray_contexts(), script("setup.py", module)));
    let label = CauseLabel::CtxNoSetDevice;
    assert!(confidence(&alone, label) + 0.1 < confidence(&diagnosis, label), "{:?}", alone.causes[0]);
}

// ---- the samples of the documentation ----

#[test]
fn what_the_documentation_shows_as_right_is_left_alone_and_as_wrong_never_passes() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/samples/items");
    for item in Item::ALL.iter().filter(|item| **item != Item::Verified) {
        let read = |side: &str| {
            let name = format!("{}_{side}.py", item.slug());
            let text = std::fs::read_to_string(folder.join(&name)).unwrap();
            run(&script(&name, &text))
        };
        let right = read("right");
        let own = status(&right, *item);
        assert!(!matches!(own, ItemStatus::Fail | ItemStatus::Suspect), "{} right\n{}", item.slug(), shown(&right));
        let wrong = read("wrong");
        assert_ne!(status(&wrong, *item), ItemStatus::Pass, "{} wrong\n{}", item.slug(), shown(&wrong));
    }
}
