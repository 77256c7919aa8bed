//! Training scripts: what is recognised, in which order, under which condition; and that hostile sources end in words.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use proptest::prelude::*;
use rankscope_ingest::{Limits, ReadContext, ReadError, python_script};
use rankscope_model::DeviceClass::{AskedCurrent, Auto, Cpu, Current, Literal, LocalRank, Rank};
use rankscope_model::{
    ArtifactId, ArtifactKind, CopyPlace, DeviceClass, Evidence, Fact, FactKind, FlowProcess, Framework, GuardKind,
    Kept, Launcher, LoaderRole, LoopKind, MapLocation, Place, RankWork, SamplerUse, ScriptEvidence, ScriptFact,
    SetDeviceHow,
};
use std::path::PathBuf;

fn try_read(name: &str, text: &[u8]) -> Result<Evidence, ReadError> {
    let limits = Limits::default();
    python_script::read(&mut &text[..], &ReadContext { artifact: ArtifactId(0), name, limits: &limits })
}

fn read(text: &str) -> ScriptEvidence {
    let mut evidence = try_read("train.py", text.as_bytes()).unwrap();
    assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new());
    evidence.scripts.remove(0)
}

/// Eight lines of imports, then `body`, which begins on line 9.
fn with_head(body: &str) -> ScriptEvidence {
    const HEAD: &str = "import os\nimport torch\nimport torch.distributed as dist\nimport torch.multiprocessing as mp\n\
        from torch.nn.parallel import DistributedDataParallel as DDP\nfrom torch.utils.data import DataLoader\n\
        from torch.utils.data.distributed import DistributedSampler\nfrom model import Net\n";
    read(&format!("{HEAD}{body}"))
}

fn one(script: &ScriptEvidence, kind: FactKind) -> &ScriptFact {
    let all: Vec<_> = script.all(kind).collect();
    assert_eq!(all.len(), 1, "{kind:?}: {all:#?}");
    all[0]
}

fn line(fact: &ScriptFact) -> u64 {
    match fact.at.place {
        Place::Line(line) | Place::Lines(line, _) => line,
        place @ Place::Offset(_) => panic!("{place:?}"),
    }
}

fn classes(script: &ScriptEvidence, kind: FactKind) -> Vec<DeviceClass> {
    let class = |fact: &ScriptFact| match &fact.what {
        Fact::SetDevice { device, .. } | Fact::ModelToDevice { device, .. } | Fact::NamedDevice { device, .. } => {
            device.class
        }
        other => panic!("{other:?}"),
    };
    script.all(kind).map(class).collect()
}

/// (line, what is kept, in training, emptied later) of each accumulation.
fn growths(script: &ScriptEvidence) -> Vec<(u64, Kept, bool, bool)> {
    let growth = |fact: &ScriptFact| match &fact.what {
        Fact::Accumulation { keeps, training, is_reset, .. } => (line(fact), *keeps, *training, *is_reset),
        other => panic!("{other:?}"),
    };
    script.all(FactKind::Accumulation).map(growth).collect()
}

#[test]
fn the_flow_is_followed_through_functions() {
    let script = with_head(
        "
def setup(rank):
    dist.init_process_group('nccl', rank=rank)

def main(rank, world):
    torch.cuda.set_device(rank)
    setup(rank)
    model = Net().to(rank)
    model = DDP(model, device_ids=[rank])
    opt = torch.optim.AdamW(model.parameters())

if __name__ == '__main__':
    mp.spawn(main, args=(8,), nprocs=8)
",
    );
    let kinds = [
        FactKind::SetDevice,
        FactKind::InitProcessGroup,
        FactKind::ModelToDevice,
        FactKind::WrapDdp,
        FactKind::OptimizerBuilt,
    ];
    let facts: Vec<&ScriptFact> = kinds.iter().map(|kind| one(&script, *kind)).collect();
    for pair in facts.windows(2) {
        assert_eq!(ScriptEvidence::precedes(pair[0], pair[1]), Some(true), "{:?}, {:?}", pair[0].what, pair[1].what);
    }
    assert!(facts.iter().all(|fact| fact.flow.process == FlowProcess::Spawned));
    assert_eq!(facts[1].function.as_deref(), Some("setup"));
    assert_eq!(script.launchers, [Launcher::Spawn]);
    assert!(script.is_entry && script.is_whole && script.is_distributed());
    assert!(script.uses(Framework::Ddp));
    assert_eq!(classes(&script, FactKind::ModelToDevice), [DeviceClass::LocalRank]);
    let Fact::InitProcessGroup { call, backend, local_rank, .. } = &facts[1].what else { panic!() };
    assert_eq!((call.as_str(), backend.as_deref()), ("torch.distributed.init_process_group", Some("nccl")));
    assert_eq!(local_rank.as_deref(), Some("rank"));
    let Fact::OptimizerBuilt { models, .. } = &facts[4].what else { panic!() };
    assert_eq!(models, &["model"]);
}

#[test]
fn devices_are_classified_through_variables_and_options() {
    let script = with_head(
        "
import argparse
p = argparse.ArgumentParser()
p.add_argument('--device', default='cuda')
p.add_argument('--local_rank', type=int, default=-1)
args = p.parse_args()
local = int(os.environ['LOCAL_RANK'])
rank = dist.get_rank()
a = torch.device(f'cuda:{local}')
b = torch.device('cuda', rank % torch.cuda.device_count())
c = 'cuda:%d' % rank
d = 'cuda:{}'.format(args.local_rank)
e = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
f = 'cuda:' + str(local)
model = Net()
model.to(a)
model.to(b)
model.to(c)
model.to(d)
model.to(e)
model.to(f)
model.cuda()
model.cuda(1)
model.cuda(args.local_rank)
model.to(args.device)
model.to('cpu')
model.to(torch.cuda.current_device())
model.half().to('cuda:0')
",
    );
    let first = [LocalRank, LocalRank, Rank, LocalRank, Current, LocalRank];
    let second = [Current, Literal(1), LocalRank, Current, Cpu, AskedCurrent, Literal(0)];
    assert_eq!(classes(&script, FactKind::ModelToDevice), [&first[..], &second[..]].concat());
    assert_eq!(script.launchers, [Launcher::Environment, Launcher::Argument]);
}

#[test]
fn of_two_branches_the_distributed_one_counts() {
    let script = with_head(
        "
def main(args):
    if args.distributed:
        torch.cuda.set_device(args.gpu)
        device = torch.device('cuda', args.gpu)
    else:
        device = torch.device('cuda')
    model = Net().to(device)
    if args.distributed:
        model = DDP(model, device_ids=[args.gpu])
    else:
        model = torch.nn.DataParallel(model)
main(x)
",
    );
    assert_eq!(classes(&script, FactKind::ModelToDevice), [DeviceClass::LocalRank]);
    let guard = |kind| one(&script, kind).guard.as_ref().map(|guard| guard.kind);
    assert_eq!(guard(FactKind::DataParallel), Some(GuardKind::SingleProcess));
    assert_eq!(guard(FactKind::WrapDdp), Some(GuardKind::Condition));
}

#[test]
fn devices_that_are_the_same_for_all_are_named() {
    let script = with_head(
        "
from transformers import AutoModelForCausalLM
x = torch.zeros(4, device='cuda')
y = torch.ones(4).cuda()
z = y.to('cuda:0')
m = AutoModelForCausalLM.from_pretrained('p', device_map={'': 0})
n = AutoModelForCausalLM.from_pretrained('p', device_map='auto')
pipe = build_pipe(device_id=0)
fine = torch.zeros(4, device=dist.get_rank())
",
    );
    let lines: Vec<u64> = script.all(FactKind::NamedDevice).map(line).collect();
    assert_eq!(lines, [11, 12, 13, 14, 15, 16]);
    assert_eq!(classes(&script, FactKind::NamedDevice), [Current, Current, Literal(0), Literal(0), Auto, Literal(0)]);
}

#[test]
fn checkpoints_say_where_they_are_revived() {
    let script = with_head(
        "
def resume(path, model, opt, local_rank):
    a = torch.load(path)
    model.load_state_dict(a['model'])
    opt.load_state_dict(a['opt'])
    torch.load(path, map_location='cpu')
    torch.load(path, map_location=f'cuda:{local_rank}')
    torch.load(path, map_location=lambda storage, loc: storage)
    torch.load(path, map_location={'cuda:0': 'cuda:%d' % local_rank})
    torch.load(path, 'cuda:0')
    torch.load(path, map_location=lambda storage, loc: storage.cuda(local_rank))
    torch.load(path, map_location=None)
    torch.load(path, **kwargs)
",
    );
    let place = |fact: &ScriptFact| match &fact.what {
        Fact::TorchLoad { map_location, .. } => match map_location {
            MapLocation::Absent => "absent",
            MapLocation::Cpu => "cpu",
            MapLocation::Rank(_) => "rank",
            MapLocation::Shared(_) => "shared",
            MapLocation::Other(_) => "other",
        },
        other => panic!("{other:?}"),
    };
    let places: Vec<&str> = script.all(FactKind::TorchLoad).map(place).collect();
    assert_eq!(places, ["absent", "cpu", "rank", "cpu", "rank", "shared", "rank", "absent", "other"]);
    let first = script.first(FactKind::TorchLoad).unwrap();
    assert!(matches!(&first.what, Fact::TorchLoad { into, .. } if into == &["model", "opt"]));
    assert_eq!(first.flow.process, FlowProcess::Uncalled);
}

#[test]
fn samplers_are_followed_to_their_loaders() {
    let script = with_head(
        "
def loaders(train_ds, val_ds):
    sampler = DistributedSampler(train_ds, shuffle=True, drop_last=True)
    train = DataLoader(train_ds, 32, sampler=sampler, num_workers=4, collate_fn=pad)
    val = DataLoader(val_ds, 32, shuffle=False)
    return train, val, sampler

train, val, sampler = loaders(make('train'), make('val'))
for epoch in range(3):
    sampler.set_epoch(epoch)
    for x in train:
        loss = model(x)
        loss.backward()
    with torch.no_grad():
        for x in val:
            model(x)
",
    );
    assert!(matches!(
        one(&script, FactKind::DistributedSampler).what,
        Fact::DistributedSampler {
            reaches_loader: true,
            has_set_epoch: true,
            shuffle: Some(true),
            drop_last: Some(true),
            ..
        }
    ));
    let loaders: Vec<&Fact> = script.all(FactKind::DataLoader).map(|fact| &fact.what).collect();
    assert!(matches!(
        loaders[0],
        Fact::DataLoader { sampler: SamplerUse::Distributed, role: LoaderRole::Train, num_workers: Some(4), collate: Some(pad), .. }
            if pad == "pad"
    ));
    assert!(matches!(loaders[1], Fact::DataLoader { sampler: SamplerUse::Absent, role: LoaderRole::Eval, .. }));
    assert_eq!(loaders.len(), 2);
    let set_epoch = one(&script, FactKind::SetEpoch);
    assert!(matches!(set_epoch.what, Fact::SetEpoch { in_epoch_loop: true, .. }));
    assert_eq!(set_epoch.in_loop, Some(LoopKind::Epoch));
    assert!(matches!(
        one(&script, FactKind::EvalLoop).what,
        Fact::EvalLoop { no_grad: true, sharded: Some(false), .. }
    ));
    assert!(script.is_entry, "it trains at top level");
}

#[test]
fn a_sampler_that_reaches_no_loader_is_told() {
    let script = with_head("sampler = DistributedSampler(ds)\nloader = DataLoader(ds, 8, shuffle=True)\n");
    assert!(matches!(
        one(&script, FactKind::DistributedSampler).what,
        Fact::DistributedSampler { reaches_loader: false, has_set_epoch: false, .. }
    ));
    assert!(matches!(
        one(&script, FactKind::DataLoader).what,
        Fact::DataLoader { sampler: SamplerUse::Absent, shuffle: Some(true), .. }
    ));
}

#[test]
fn work_of_one_rank_is_found_through_calls_and_early_returns() {
    let script = with_head(
        "
def is_main():
    return dist.get_rank() == 0

def save(model):
    torch.save(model.state_dict(), 'p')

def evaluate(model, loader):
    for x in loader:
        model(x)

def log(rank):
    if rank != 0:
        return
    writer.add_graph(model, x)

def main(rank):
    for epoch in range(9):
        if is_main() and epoch % 2 == 0:
            evaluate(model, val_loader)
            save(model)
        else:
            pass
        if rank == 0:
            print('epoch')
        log(rank)
        if rank == 0:
            dist.all_gather_object(out, preds)

main(dist.get_rank())
",
    );
    let branch = |fact: &ScriptFact| match &fact.what {
        Fact::RankBranch { work } => (line(fact), work.clone()),
        other => panic!("{other:?}"),
    };
    let mut branches: Vec<(u64, Vec<RankWork>)> = script.all(FactKind::RankBranch).map(branch).collect();
    branches.sort();
    let expected = [
        (21, vec![RankWork::GraphTrace]),
        (27, vec![RankWork::Eval, RankWork::Save, RankWork::Forward]),
        (32, vec![]),
        (35, vec![RankWork::ObjectGather]),
    ];
    assert_eq!(branches, expected);
    for kind in [FactKind::SaveState, FactKind::EvalLoop, FactKind::GraphTrace] {
        assert!(one(&script, kind).is_rank_only(), "{kind:?}");
    }
    assert_eq!(one(&script, FactKind::EvalLoop).in_loop, Some(LoopKind::Epoch));
}

#[test]
fn copies_of_the_weights_are_told_with_where_they_are_made() {
    let on_gpu = [
        "ema = copy.deepcopy(model)",
        "ema = copy.deepcopy(model.state_dict())",
        "ema = {k: v.clone() for k, v in model.state_dict().items()}",
        "ema = {k: v.detach().clone() for k, v in model.module.state_dict().items()}",
        "ema = [p.detach().clone() for p in model.parameters()]",
        "state = model.state_dict()\nema = {k: v.clone() for k, v in state.items()}",
        "ema = {}\nfor name, p in model.named_parameters():\n    if p.requires_grad:\n        ema[name] = p.data.clone()",
        "ema = []\nfor p in model.parameters():\n    ema.append(p.clone())",
        "ema = timm.utils.ModelEmaV2(model)",
    ];
    let through = [
        "ema = copy.deepcopy(model).cpu()",
        "ema = copy.deepcopy(model).to('cpu')",
        "ema = copy.deepcopy(model).eval().requires_grad_(False).cpu()",
        "ema = timm.utils.ModelEmaV2(model, device='cpu')",
    ];
    let on_host = [
        "ema = {k: v.detach().to('cpu', copy=True) for k, v in model.state_dict().items()}",
        "ema = {k: v.cpu().clone() for k, v in model.state_dict().items()}",
        "ema = {}\nfor k, v in model.state_dict().items():\n    ema[k] = v.clone().cpu()",
    ];
    let none = [
        "names = [k for k, v in model.state_dict().items()]",
        "norms = [p.grad.clone() for p in model.parameters()]",
        "kept = {k: v.clone() for k, v in batch.items()}",
        "count = sum(p.numel() for p in model.parameters())",
        "for k, v in model.state_dict().items():\n    print(k, v.shape)",
    ];
    let read = |line: &str| {
        let body = format!(
            "import copy, timm\nmodel = Net().cuda()\nif dist.get_rank() == 0:\n    {}\n",
            line.replace('\n', "\n    ")
        );
        with_head(&body)
    };
    let places = |script: &ScriptEvidence| -> Vec<CopyPlace> {
        let place = |fact: &ScriptFact| if let Fact::ModelCopy { place, .. } = &fact.what { *place } else { panic!() };
        script.all(FactKind::ModelCopy).map(place).collect()
    };
    let lists: [(&[&str], &[CopyPlace]); 4] = [
        (&on_gpu, &[CopyPlace::WithModel]),
        (&through, &[CopyPlace::ThroughGpu]),
        (&on_host, &[CopyPlace::Host]),
        (&none, &[]),
    ];
    for (lines, expected) in lists {
        for line in lines {
            let script = read(line);
            assert_eq!(places(&script), expected, "{line}");
            assert!(script.all(FactKind::ModelCopy).all(ScriptFact::is_rank_only), "{line}");
            let Fact::RankBranch { work } = &one(&script, FactKind::RankBranch).what else { panic!() };
            let is_open = expected.first().is_some_and(|place| *place != CopyPlace::Host);
            assert_eq!(work.contains(&RankWork::ModelCopy), is_open, "{line}: {work:?}");
        }
    }
}

#[test]
fn what_a_branch_on_the_rank_does_beside_printing_is_named() {
    let work = |line: &str| {
        let script = with_head(&format!(
            "from torch.utils.checkpoint import checkpoint\nfrom tools import look, save_all\nmodel = Net().cuda()\nif dist.get_rank() == 0:\n    {line}\n"
        ));
        let Fact::RankBranch { work } = &one(&script, FactKind::RankBranch).what else { panic!() };
        work.clone()
    };
    assert_eq!(work("x = checkpoint(block, x)"), [RankWork::Checkpointing]);
    assert_eq!(work("y = model(x)"), [RankWork::Forward]);
    assert_eq!(work("look(model)"), [RankWork::Elsewhere]);
    assert_eq!(work("look(7)"), []);
    assert_eq!(work("save_all(model)"), []);
    assert_eq!(work("print(loss.item())"), []);
    assert_eq!(work("model.to('cpu')"), []);
}

#[test]
fn expressions_that_only_some_ranks_evaluate_are_branches_too() {
    let branch = |line: &str| {
        let script = with_head(&format!("import copy\nmodel = Net().cuda()\nrank = dist.get_rank()\n{line}\n"));
        let mut found = script.all(FactKind::RankBranch).map(|fact| {
            let Fact::RankBranch { work } = &fact.what else { panic!() };
            work.clone()
        });
        let first = found.next();
        assert_eq!(found.next(), None, "{line}");
        let does = [FactKind::SaveState, FactKind::ModelCopy].into_iter().flat_map(|kind| script.all(kind));
        let is_only: Vec<bool> = does.map(ScriptFact::is_rank_only).collect();
        (first, is_only)
    };
    let save = "torch.save(model.state_dict(), 'p')";
    for line in [
        format!("{save} if rank == 0 else None"),
        format!("None if rank != 0 else {save}"),
        format!("rank == 0 and {save}"),
        format!("rank == 0 and step % 9 == 0 and {save}"),
        format!("x = [{save} if rank == 0 else None]"),
    ] {
        assert_eq!(branch(&line), (Some(vec![RankWork::Save]), vec![true]), "{line}");
    }
    let copied = branch("ema = copy.deepcopy(model) if rank == 0 else None");
    assert_eq!(copied, (Some(vec![RankWork::ModelCopy]), vec![true]));
    // All ranks do it, or nobody knows which.
    for line in [format!("step == 0 and {save}"), format!("rank == 0 or {save}"), format!("{save} if step else None")] {
        assert_eq!(branch(&line), (None, vec![false]), "{line}");
    }
    assert_eq!(branch("n = 8 if rank == 0 else 4"), (None, vec![]));
}

#[test]
fn a_program_needs_neither_a_loop_nor_a_main_guard() {
    let programs = [
        "torch.cuda.set_device(0)\ndist.init_process_group('nccl')\n",
        "model = DDP(Net().cuda())\n",
        "def main():\n    torch.optim.AdamW(model.parameters())\n\nmain()\n",
        "from engine import main\nmain()\n",
        "import fire\nfrom engine import work\nfire.Fire(work)\n",
        "model = Net()\nmodel.cuda()\n",
    ];
    for text in programs {
        assert!(with_head(text).is_entry, "{text}");
    }
    let modules = [
        "def setup():\n    torch.cuda.set_device(0)\n    dist.init_process_group('nccl')\n",
        "class Net(torch.nn.Module):\n    def forward(self, x):\n        return self.layer(x).cuda()\n",
        "MEAN = torch.tensor([0.5, 0.5])\nNAMES = ['a', 'b']\ntorch.backends.cudnn.benchmark = True\n",
        "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n",
        "train_loader = DataLoader(ds, 8)\n",
    ];
    for text in modules {
        assert!(!with_head(text).is_entry, "{text}");
    }
}

#[test]
fn work_that_all_ranks_do_somewhere_is_not_that_of_one_rank() {
    let script = with_head(
        "
def save(model):
    torch.save(model.state_dict(), 'p')

if dist.get_rank() == 0:
    save(model)
save(model)
",
    );
    assert!(!one(&script, FactKind::SaveState).is_rank_only());
}

#[test]
fn sums_and_lists_that_keep_the_graph_are_found() {
    let script = with_head(
        "
def train(model, loader, criterion):
    total, losses, fine, host = 0, [], 0.0, []
    for epoch in range(3):
        epoch_loss = 0
        for x, y in loader:
            out = model(x)
            loss = criterion(out, y)
            loss.backward()
            total += loss
            epoch_loss += loss
            losses.append(loss)
            fine += loss.item()
            host.append(loss.detach().cpu())
            parts = 0
            for p in out:
                parts = parts + p.sum()
train(model, loader, nn.MSELoss())
",
    );
    let graph = Kept::Graph;
    assert_eq!(growths(&script), [(18, graph, true, false), (19, graph, true, true), (20, graph, true, false)]);
}

#[test]
fn a_meter_that_is_fed_with_the_loss_itself_is_found() {
    let script = with_head(
        "
class Meter:
    def __init__(self):
        self.sum = 0
    def update(self, value):
        self.sum += value

meter, other = Meter(), Meter()
for epoch in range(2):
    for batch in train_loader:
        loss = model(batch)
        loss.backward()
        meter.update(loss)
",
    );
    assert_eq!(growths(&script), [(14, Kept::Graph, true, false)]);
}

#[test]
fn predictions_kept_on_the_gpu_are_found() {
    let script = with_head(
        "
@torch.no_grad()
def evaluate(model, loader):
    preds, labels, small = None, [], []
    for batch in loader:
        logits = model(batch.to('cuda')).logits
        preds = logits if preds is None else torch.cat((preds, logits), dim=0)
        labels.append(logits.argmax(-1))
        small.append(logits.cpu())
    return preds
",
    );
    let gpu = Kept::GpuTensors;
    assert_eq!(growths(&script), [(15, gpu, false, true), (16, gpu, false, true)]);

    let script = with_head(
        "
import lightning as pl
class Lit(pl.LightningModule):
    def __init__(self):
        self.outputs = []
        self.never = []

    def validation_step(self, batch, batch_idx):
        logits = self(batch)
        self.outputs.append({'pred': logits})
        self.never.append(logits)

    def on_validation_epoch_end(self):
        self.outputs.clear()
",
    );
    assert_eq!(growths(&script), [(18, gpu, false, true), (19, gpu, false, false)]);
}

#[test]
fn object_collectives_know_what_they_carry() {
    let script = with_head(
        "
def run(model, loader, device):
    out = [None] * 8
    pred = model(x)
    dist.all_gather_object(out, {'pred': pred})
    dist.all_gather_object(out, pred.cpu())
    dist.gather_object('text', out)
    dist.all_gather(tensors, pred)
",
    );
    let carried = |fact: &ScriptFact| match &fact.what {
        Fact::ObjectCollective { on_gpu, .. } => *on_gpu,
        other => panic!("{other:?}"),
    };
    let found: Vec<Option<bool>> = script.all(FactKind::ObjectCollective).map(carried).collect();
    assert_eq!(found, [Some(true), Some(false), None]);
    let gather = &one(&script, FactKind::TensorGather).what;
    assert!(matches!(gather, Fact::TensorGather { payload, .. } if payload == "pred"));
}

#[test]
fn buffers_are_sized_where_their_shape_is_written_out() {
    let script = with_head(
        "
class Moco(torch.nn.Module):
    def __init__(self, dim=128, K=65536):
        super().__init__()
        self.register_buffer('queue', torch.randn(dim, K))
        self.register_buffer('ptr', torch.zeros(1, dtype=torch.long))
        self.register_buffer('other', torch.zeros(n))
        self.bank = torch.zeros(1 << 20, 128, dtype=torch.float16).cuda()
        self.small = torch.zeros(3)
",
    );
    let buffer = |fact: &ScriptFact| match &fact.what {
        Fact::RegisterBuffer { name, bytes, is_plain, .. } => (name.clone(), bytes.map(|b| b.0), *is_plain),
        other => panic!("{other:?}"),
    };
    let found: Vec<(String, Option<u64>, bool)> = script.all(FactKind::RegisterBuffer).map(buffer).collect();
    let expected = [
        ("queue".to_owned(), Some(128 * 65536 * 4), false),
        ("ptr".to_owned(), Some(8), false),
        ("other".to_owned(), None, false),
        ("bank".to_owned(), Some((1 << 20) * 256), true),
    ];
    assert_eq!(found, expected);
}

#[test]
fn workers_that_touch_cuda_are_found() {
    let script = with_head(
        "
from concurrent.futures import ProcessPoolExecutor
from torch.utils.data import Dataset

class Items(Dataset):
    def __init__(self):
        self.model = Net().cuda()
    def __getitem__(self, i):
        return self.table[i].cuda()

def collate(batch):
    return torch.stack(batch).cuda()

def work(path):
    return torch.load(path).to('cuda')

if __name__ == '__main__':
    loader = DataLoader(Items(), collate_fn=collate, num_workers=4)
    with ProcessPoolExecutor(8) as pool:
        pool.map(work, paths)
",
    );
    let worker = |fact: &ScriptFact| match &fact.what {
        Fact::WorkerCuda { worker, .. } => worker.clone(),
        other => panic!("{other:?}"),
    };
    let mut workers: Vec<String> = script.all(FactKind::WorkerCuda).map(worker).collect();
    workers.sort_unstable();
    assert_eq!(workers, ["Items.__getitem__", "collate", "work"]);
}

#[test]
fn what_a_thread_does_is_told_apart() {
    let script = with_head(
        "
import threading
def prefetch():
    batch.cuda()
torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
threading.Thread(target=prefetch).start()
",
    );
    assert_eq!(one(&script, FactKind::NamedDevice).flow.process, FlowProcess::Thread);
}

#[test]
fn visible_devices_are_read_with_their_place() {
    let script = with_head(
        "
x = torch.zeros(1).cuda()
def main():
    os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['SLURM_LOCALID']
    with torch.cuda.device(3):
        pass
if __name__ == '__main__':
    main()
",
    );
    let how = |fact: &ScriptFact| match &fact.what {
        Fact::SetDevice { how, .. } => *how,
        other => panic!("{other:?}"),
    };
    let hows: Vec<SetDeviceHow> = script.all(FactKind::SetDevice).map(how).collect();
    assert_eq!(hows, [SetDeviceHow::VisibleDevices, SetDeviceHow::WithDevice]);
    assert_eq!(classes(&script, FactKind::SetDevice), [DeviceClass::LocalRank, DeviceClass::Literal(3)]);
    let touched = one(&script, FactKind::NamedDevice);
    assert!(touched.flow.on_import);
    assert_eq!(ScriptEvidence::precedes(touched, script.first(FactKind::SetDevice).unwrap()), Some(true));
}

#[test]
fn trainers_and_options_are_read() {
    let script = read(
        "
import lightning as L
from transformers import Trainer, TrainingArguments
from accelerate import Accelerator
from torch.utils.data import DataLoader
args = TrainingArguments(output_dir='o', gradient_accumulation_steps=8, gradient_checkpointing=True)
Trainer(model=m, args=args).train()
t = L.Trainer(devices=4, strategy='ddp', callbacks=[])
acc = Accelerator()
model, opt, loader = acc.prepare(model, opt, DataLoader(ds, shuffle=True))
if acc.is_main_process:
    acc.save_state('x')
conf = {'zero_optimization': {'stage': 3, 'stage3_gather_16bit_weights_on_model_save': True}}
",
    );
    for framework in [Framework::Lightning, Framework::HfTrainer, Framework::Accelerate] {
        assert!(script.uses(framework), "{framework:?}");
    }
    assert!(script.launchers.contains(&Launcher::Trainer));
    assert!(script.has(FactKind::GradAccumulation) && script.has(FactKind::Checkpointing));
    assert!(one(&script, FactKind::SaveState).is_rank_only());
    assert!(script.has(FactKind::FullStateDict));
    let group = &script.first(FactKind::InitProcessGroup).unwrap().what;
    assert!(matches!(group, Fact::InitProcessGroup { binds_device: true, .. }));
    let options = script.all(FactKind::TrainerBuilt).find_map(|fact| match &fact.what {
        Fact::TrainerBuilt { class, options } if class == "lightning.Trainer" => Some(options.clone()),
        _ => None,
    });
    let expected = [("devices".to_owned(), "4".to_owned()), ("strategy".to_owned(), "'ddp'".to_owned())];
    assert_eq!(options.unwrap(), expected);
}

#[test]
fn strategies_and_starts_of_other_frameworks_are_read() {
    let mirrored = read(
        "import tensorflow as tf\nstrategy = tf.distribute.MirroredStrategy()\nwith strategy.scope():\n    model = build()\n",
    );
    let Fact::TrainerBuilt { class, .. } = &one(&mirrored, FactKind::TrainerBuilt).what else { panic!() };
    assert_eq!(class, "tensorflow.distribute.MirroredStrategy");
    assert!(mirrored.uses(Framework::TensorFlow) && !mirrored.is_distributed(), "one process drives all cards");
    let workers = read("import tensorflow as tf\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\n");
    assert!(workers.is_distributed());

    let jax = read("import jax\njax.distributed.initialize()\nif jax.process_index() == 0:\n    print('first')\n");
    let Fact::InitProcessGroup { binds_device, .. } = &one(&jax, FactKind::InitProcessGroup).what else { panic!() };
    assert!(binds_device);
    let branch = one(&jax, FactKind::RankBranch);
    assert!(jax.uses(Framework::Jax) && matches!(&branch.what, Fact::RankBranch { work } if work.is_empty()));
}

#[test]
fn accumulation_without_communication_is_read_in_its_forms() {
    let script = with_head(
        "
from accelerate import Accelerator
accelerator = Accelerator(gradient_accumulation_steps=4)
for i, x in enumerate(loader):
    with model.no_sync():
        model(x).backward()
    model.set_requires_gradient_sync(False)
    model.set_requires_gradient_sync(True)
    with accelerator.accumulate(model):
        model(x).backward()
",
    );
    assert_eq!(script.all(FactKind::NoSync).map(line).collect::<Vec<_>>(), [13, 15]);
    assert!(script.all(FactKind::GradAccumulation).any(|fact| line(fact) == 17));
}

#[test]
fn order_of_optimizer_and_wrapping_is_told() {
    let script = with_head(
        "
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = Net().cuda()
opt = torch.optim.AdamW([{'params': model.parameters()}], lr=1e-4)
model = FSDP(model, device_id=0, sync_module_states=True)
",
    );
    let optimizer = one(&script, FactKind::OptimizerBuilt);
    let wrap = one(&script, FactKind::WrapFsdp);
    assert_eq!(ScriptEvidence::precedes(optimizer, wrap), Some(true));
    assert!(matches!(
        &wrap.what,
        Fact::WrapFsdp { syncs_states: true, device_id: Some(device), .. } if device.class == DeviceClass::Literal(0)
    ));
    assert!(matches!(&optimizer.what, Fact::OptimizerBuilt { models, .. } if models == &["model"]));
}

#[test]
fn weights_on_one_rank_only_are_told() {
    let script = with_head(
        "
from accelerate import init_empty_weights
if dist.get_rank() == 0:
    model = Llama.from_pretrained(path)
else:
    with torch.device('meta'):
        model = Llama(config)
",
    );
    assert_eq!(line(one(&script, FactKind::RankDependentInit)), 11);
}

#[test]
fn notebooks_are_read_by_their_code_cells() {
    let json = r#"{"nbformat": 4, "cells": [
        {"cell_type": "code", "source": ["%load_ext autoreload\n", "import torch\n"]},
        {"cell_type": "markdown", "source": "text"},
        {"cell_type": "code", "source": ["!nvidia-smi\n", "model = torch.nn.DataParallel(model)\n"]}]}"#;
    let evidence = try_read("a.ipynb", json.as_bytes()).unwrap();
    assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new());
    let fact = one(&evidence.scripts[0], FactKind::DataParallel);
    assert_eq!((line(fact), fact.at.quote.as_str()), (4, "[cell 3] model = torch.nn.DataParallel(model)"));
    assert!(matches!(try_read("a.ipynb", b"import torch"), Err(ReadError::Malformed { .. })));
}

#[test]
fn damaged_sources_give_what_they_hold() {
    let python_2 = "import torch\nprint 'hello'\nmodel = torch.nn.DataParallel(model)\nexec 'x'\n";
    let evidence = try_read("a.py", python_2.as_bytes()).unwrap();
    let warning = &evidence.artifacts[0].warnings[0];
    assert!(warning.starts_with("line 2 ") && warning.contains("Python 2"), "{warning}");
    assert!(evidence.scripts[0].has(FactKind::DataParallel) && !evidence.scripts[0].is_whole);

    let cut = "import torch\ntorch.cuda.empty_cache()\nmodel = torch.nn.DataParallel(model, devi";
    let evidence = try_read("a.py", cut.as_bytes()).unwrap();
    assert!(evidence.artifacts[0].warnings[0].starts_with("line 3 "), "{:?}", evidence.artifacts[0].warnings);
    assert!(evidence.scripts[0].has(FactKind::EmptyCache));

    let plain = "import torch\ntorch.cuda.empty_cache()\n";
    let utf16: Vec<u8> = b"\xff\xfe".iter().copied().chain(plain.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    assert!(try_read("a.py", &utf16).unwrap().scripts[0].has(FactKind::EmptyCache));
}

#[test]
fn hostile_sources_end_in_words() {
    let refused = |text: String| match try_read("a.py", text.as_bytes()) {
        Err(error @ ReadError::OverLimit { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused(format!("x = {}1{}", "(".repeat(10_000), ")".repeat(10_000))).contains("line 1"));
    assert!(refused(format!("\nx = {}1", "-".repeat(100_000))).contains("line 2"));
    refused(format!("x = {}1", "not ".repeat(100_000)));
    refused("a = 1\n".repeat(1_000_000));

    // Deep but within the bound: the walk must have the stack for it.
    let has_load = |text: String| try_read("a.py", text.as_bytes()).unwrap().scripts[0].has(FactKind::TorchLoad);
    assert!(has_load(format!("import torch\nx = {}torch.load(p){}\n", "f(".repeat(600), ")".repeat(600))));
    assert!(has_load(format!("import torch\nx = {}torch.load(p)\n", "a + ".repeat(980))));
    let blocks: Vec<String> = (0..100).map(|n| format!("{}while x:\n", " ".repeat(n))).collect();
    let blocks = blocks.concat();
    try_read("a.py", format!("{blocks}{}pass\n", " ".repeat(100)).as_bytes()).unwrap();
}

#[test]
fn calls_into_calls_are_bounded() {
    // Each function calls the next twice: 2^2000 paths if followed each time.
    let define = |n| format!("def f{n}():\n    f{m}()\n    f{m}()\n", m = n + 1);
    let functions: Vec<String> = (0..2000).map(define).collect();
    let text = format!("import torch\n{}def f2000():\n    torch.cuda.empty_cache()\nf0()\n", functions.concat());
    let evidence = try_read("a.py", text.as_bytes()).unwrap();
    assert!(evidence.scripts[0].has(FactKind::EmptyCache));
    // Recursion, and classes that are each other's base.
    read("def f(x):\n    return f(f(x))\nf(f)\nclass A(A):\n    def m(self):\n        self.m()\nA().m()\n");
    read("class B(C):\n    pass\nclass C(B):\n    pass\nclass B(C):\n    pass\nB().missing()\n");
}

#[test]
fn many_facts_are_cut_with_a_word() {
    let text = format!("import torch\n{}", "torch.cuda.empty_cache()\n".repeat(20_000));
    let evidence = try_read("a.py", text.as_bytes()).unwrap();
    assert!(evidence.scripts[0].facts.len() <= 5000);
    assert!(!evidence.scripts[0].is_whole && evidence.artifacts[0].warnings[0].contains("left out"));
}

#[test]
fn the_cases_are_read_without_a_warning() {
    let cases = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases");
    let Ok(folders) = std::fs::read_dir(&cases) else {
        eprintln!("skipped: no cases beside this checkout");
        return;
    };
    let mut count = 0;
    for folder in folders.flatten() {
        for file in std::fs::read_dir(folder.path().join("full")).into_iter().flatten().flatten() {
            let path = file.path();
            if path.extension().is_some_and(|extension| extension == "py") {
                let evidence = try_read("case.py", &std::fs::read(&path).unwrap()).unwrap();
                assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new(), "{}", path.display());
                assert!(evidence.scripts[0].is_whole);
                count += 1;
            }
        }
    }
    println!("{count} scripts");
    assert!(count >= 30);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_text_is_survived(text in "\\PC{0,400}") {
        let _ = try_read("a.py", text.as_bytes());
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = try_read("a.py", &bytes);
        let _ = try_read("a.ipynb", &bytes);
    }

    #[test]
    fn any_mixture_of_pieces_is_survived(
        pieces in proptest::collection::vec(
            prop::sample::select(vec![
                "import torch\n", "from torch import *\n", "def f(rank, x=1):\n    ", "class A(Dataset):\n  ",
                "if rank == 0:\n    ", "else:\n    ", "for x in loader:\n    ", "while True:\n  ", "return f(x)\n",
                "model = ", "DDP(model, device_ids=[rank])\n", "torch.load(p)\n", "x += loss\n", "self.x = ",
                "mp.spawn(f, args=(1,))\n", "with torch.no_grad():\n  ", "lambda: ", "(", ")", "[", "]", "{", "}", ":",
                ",", "\n", "    ", "f'cuda:{rank}'", "'cuda:%d' % rank", "os.environ['RANK']", "A()", ".cuda()", ".to(",
                "try:\n  ", "except:\n  ", "match x:\n  case 1:\n    ", "@f\n", "await ", "*", "**", "=",
            ]),
            0..60,
        ),
    ) {
        let _ = try_read("a.py", pieces.concat().as_bytes());
    }
}

#[test]
fn uploads_reach_the_reader_and_keep_what_it_refuses() {
    let upload = |name: &str, text: &str| {
        rankscope_ingest::read_upload(name, &mut std::io::Cursor::new(text.as_bytes()), &Limits::default())
    };
    let script = upload("train.py", "import torch\ntorch.cuda.empty_cache()\n");
    assert_eq!(script.artifacts[0].kind, ArtifactKind::PythonScript);
    assert!(script.scripts[0].has(FactKind::EmptyCache) && script.artifacts[0].bytes > 0);

    let cell = r#"{"cells": [{"cell_type": "code", "source": ["import torch\n", "torch.cuda.empty_cache()"]}]}"#;
    let notebook = upload("train.ipynb", cell);
    assert_eq!(notebook.artifacts[0].kind, ArtifactKind::PythonScript);
    assert!(notebook.scripts[0].has(FactKind::EmptyCache));

    let refused = upload("train.py", &format!("x = {}1", "-".repeat(100_000)));
    assert_eq!(refused.artifacts[0].kind, ArtifactKind::PythonScript);
    assert!(refused.artifacts[0].warnings[0].contains("nesting"), "{:?}", refused.artifacts[0].warnings);
    assert!(refused.scripts.is_empty());
}

/// Each of these took hours or gigabytes once. What they cost is counted, so they end, and say so.
#[test]
fn small_scripts_that_unfold_end_in_words() {
    use std::fmt::Write;
    let tower = |step: &str| format!("a=1\n{}", step.repeat(60));
    let mut sources = vec![
        tower("a=a,a\n"),
        tower("a=[*a,*a]\n"),
        tower("a=(a,a)\n"),
        tower("(a:=(a,a))\n"),
        tower("a=zip(a,a)\n"),
        format!("a=1\n{}", "a=a,\n".repeat(12_000)),
        format!("from functools import partial\ndef f(): pass\na=f\n{}", "a=partial(a,a)\n".repeat(200)),
        format!("{}if x: c=a\nelse: c=b\n", tower("a=a,a\n") + &tower("b=b,b\n").replacen('a', "b", 1)),
    ];
    // Many targets of one long value.
    sources.push(format!("{}[{}]\n", "a=b=".repeat(450), "c,".repeat(12_000)));
    sources.push(format!("for i in x:\n {}[{}]\n", "a=b=".repeat(450), "c,".repeat(12_000)));
    // Calls within calls, each asked what its arguments mention.
    sources.push(format!("x={}{}{}", "cat(".repeat(300), "loss,".repeat(20_000), ")".repeat(300)));
    // Rank branches within each other, and a function that every line calls.
    let exits = "if rank != 0:\n    return\n".repeat(3000);
    sources.push(format!(
        "def f():\n    x.save()\ndef g():\n    {}\n    {}",
        exits.replace('\n', "\n    "),
        "f();".repeat(3000)
    ));
    let mut branches = String::from("if rank == 0: pass\n");
    (0..7000).for_each(|_| branches.push_str("elif rank == 1: pass\n"));
    sources.push(branches);
    // A function of very many parameters, given by name.
    let names: Vec<String> = (0..7000).map(|n| format!("p{n}")).collect();
    let mut called = format!("def f({}): pass\nf(", names.join(","));
    for name in &names {
        write!(called, "{name}=1,").unwrap();
    }
    sources.push(called + ")\n");
    // Many classes, and many calls of a method that none of them has.
    sources.push((0..3000).map(|n| format!("class C{n}: pass\nx.m{n}()\n")).collect::<Vec<_>>().concat());
    for source in sources {
        assert!(source.len() < 1 << 20);
        let evidence = try_read("train.py", source.as_bytes()).unwrap();
        assert_eq!(evidence.scripts.len(), 1);
    }
}

#[test]
fn work_that_one_script_is_not_worth_ends_with_what_was_found() {
    let source = format!(
        "import torch\ntorch.load('a.pt')\nx={}{}{}",
        "cat(".repeat(300),
        "loss,".repeat(60_000),
        ")".repeat(300)
    );
    let evidence = try_read("train.py", source.as_bytes()).unwrap();
    assert!(evidence.artifacts[0].warnings[0].contains("too large"), "{:?}", evidence.artifacts[0].warnings);
    assert_eq!(evidence.scripts[0].all(FactKind::TorchLoad).count(), 1);
    assert!(!evidence.scripts[0].is_whole);
}

#[test]
fn blocks_nest_as_deep_as_in_python_and_stay_small() {
    use std::fmt::Write as _;

    let nested = |blocks: usize, head: &str| {
        let headers: Vec<String> = (0..blocks).map(|depth| format!("{}{head}:\n", " ".repeat(depth))).collect();
        let mut source = headers.concat();
        source.push_str(&" ".repeat(blocks));
        for n in 0..6000 {
            write!(source, "a{n}=1;").unwrap();
        }
        source.push('\n');
        source
    };
    for head in ["for i in x", "while x", "if x", "with x"] {
        let error = try_read("train.py", nested(900, head).as_bytes()).unwrap_err().to_string();
        assert!(error.contains("at line 102") && error.contains("100 levels of indentation"), "{error}");
    }
    let evidence = try_read("train.py", nested(98, "for i in x").as_bytes()).unwrap();
    assert!(evidence.artifacts[0].warnings[0].contains("left out"));
    let evidence = try_read("train.py", nested(98, "if x").as_bytes()).unwrap();
    assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new());
}
