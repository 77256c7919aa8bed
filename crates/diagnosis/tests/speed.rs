//! How long a diagnosis takes: a pasted table with a script, and many ranks over a long run. The bars hold for an optimised
//! build (`cargo xtask bench diagnosis`); otherwise the figures are printed and held to far looser ones.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

mod support;

use rankscope_diagnosis::{Policy, diagnose, figures};
use rankscope_model::{ArtifactKind, CauseLabel, Phase};
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use support::{Build, mib, upload};

/// The bar, times twenty where nothing is optimised.
fn bar(optimised: Duration) -> Duration {
    if cfg!(debug_assertions) { optimised * 20 } else { optimised }
}

/// A table as `nvidia-smi` prints it: eight cards, and seven contexts on the first.
fn pasted() -> String {
    let mut text = String::from(
        "Wed Dec 16 10:41:07 2020\n+-----------------------------------------------------------------------------+\n\
         | NVIDIA-SMI 460.32.03    Driver Version: 460.32.03    CUDA Version: 11.2     |\n\
         |-------------------------------+----------------------+----------------------+\n\
         | GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |\n\
         | Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |\n\
         |===============================+======================+======================|\n",
    );
    for gpu in 0..8 {
        let used = if gpu == 0 { 32268 } else { 26000 + gpu * 5 };
        let _ = write!(
            text,
            "|   {gpu}  Tesla V100-SXM2...  On   | 00000000:1{gpu}:00.0 Off |                    0 |\n\
             | N/A   52C    P0   270W / 300W |  {used}MiB / 32510MiB |     95%      Default |\n\
             +-------------------------------+----------------------+----------------------+\n"
        );
    }
    text.push_str(
        "\n+-----------------------------------------------------------------------------+\n\
         | Processes:                                                                  |\n\
         |  GPU   GI   CI        PID   Type   Process name                  GPU Memory |\n\
         |        ID   ID                                                   Usage      |\n\
         |=============================================================================|\n",
    );
    for gpu in 0..8 {
        let own = if gpu == 0 { 26167 } else { 25986 + gpu * 5 };
        let _ = writeln!(
            text,
            "|    {gpu}   N/A  N/A     {}      C   /opt/conda/bin/python           {own}MiB |",
            30412 + gpu
        );
        if gpu > 0 {
            let _ = writeln!(
                text,
                "|    0   N/A  N/A     {}      C   /opt/conda/bin/python             871MiB |",
                30412 + gpu
            );
        }
    }
    text.push_str("+-----------------------------------------------------------------------------+\n");
    text
}

/// A training script of at least 300 lines, most of them model code.
fn long_script() -> String {
    let mut text = String::from(
        "import os\nimport torch\nimport torch.nn as nn\nimport torch.distributed as dist\n\
         from torch.nn.parallel import DistributedDataParallel as DDP\nfrom torch.utils.data import DataLoader, DistributedSampler\n\n",
    );
    for block in 0..28 {
        let _ = write!(
            text,
            "\nclass Block{block}(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n        \
             self.norm = nn.LayerNorm(dim)\n        self.attn = nn.MultiheadAttention(dim, 8)\n        \
             self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))\n\n    def forward(self, x):\n        \
             x = x + self.attn(x, x, x)[0]\n        return x + self.mlp(self.norm(x))\n"
        );
    }
    text.push_str(
        "\n\ndef main():\n    local_rank = int(os.environ['LOCAL_RANK'])\n    dist.init_process_group('nccl')\n    \
         model = nn.Sequential(*[Block0(512) for _ in range(4)]).to(torch.device('cuda', local_rank))\n    \
         model = DDP(model, device_ids=[local_rank])\n    opt = torch.optim.AdamW(model.parameters())\n    \
         sampler = DistributedSampler(data)\n    loader = DataLoader(data, 32, sampler=sampler)\n    for epoch in range(9):\n        \
         sampler.set_epoch(epoch)\n        for x in loader:\n            loss = model(x).mean()\n            loss.backward()\n            \
         opt.step()\n\n\nif __name__ == '__main__':\n    main()\n",
    );
    text
}

#[test]
fn a_pasted_table_and_a_script_are_told_at_once() {
    let (table, script) = (pasted(), long_script());
    assert!(script.lines().count() >= 300);
    let mut slowest = Duration::ZERO;
    for _ in 0..3 {
        let start = Instant::now();
        let mut evidence = upload("nvidia-smi.txt", &table);
        evidence.merge(upload("train.py", &script));
        let read = start.elapsed();
        let diagnosis = diagnose(&evidence, &Policy::default());
        figures(&evidence, &diagnosis, &Policy::default());
        slowest = slowest.max(start.elapsed());
        assert_eq!(diagnosis.causes[0].label, CauseLabel::CtxNoSetDevice);
        println!(
            "a pasted table and {} lines of script: read in {read:?}, all in {:?}",
            script.lines().count(),
            start.elapsed()
        );
    }
    assert!(slowest < bar(Duration::from_millis(100)), "{slowest:?}");
}

/// As many records as the readers keep of one upload, over 64 ranks and 100 000 steps.
#[test]
fn many_ranks_over_a_long_run_are_told_in_seconds() {
    const KEPT: u64 = 300_000;
    let steps = if cfg!(debug_assertions) { KEPT / 64 / 10 } else { KEPT / 64 };
    let mut build = Build::default().file("train.log", ArtifactKind::StepLog);
    for n in 0..steps {
        let step = n * 100_000 / steps;
        for rank in 0..64u32 {
            let length = 100 + (step ^ (u64::from(rank) << 17)).wrapping_mul(0x9e37_79b9_7f4a_7c15) % 397;
            build = build.step(rank, Some(step), |row| {
                row.phase = Some(Phase::Train);
                row.batch_shape = Some(vec![8, length]);
                (row.allocated, row.peak_allocated) = (mib(9000), mib(10_000 + 4 * length));
            });
        }
    }
    let evidence = build.evidence;
    let start = Instant::now();
    let diagnosis = diagnose(&evidence, &Policy::default());
    let told = start.elapsed();
    let charts = figures(&evidence, &diagnosis, &Policy::default());
    println!(
        "{} records of 64 ranks: diagnosed in {told:?}, with figures in {:?}",
        evidence.steps.len(),
        start.elapsed()
    );
    assert_eq!(diagnosis.causes[0].label, CauseLabel::VariableShapeBatches);
    assert_eq!(charts.timeline.unwrap().lines.len(), 64);
    assert!(start.elapsed() < bar(Duration::from_secs(2)), "{:?}", start.elapsed());
}
