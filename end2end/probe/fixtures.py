"""Logs of a small job with the figures of a GPU, made with the stand-in: the sample that the probe and the reader agree on.

    python3 fixtures.py            writes crates/ingest/tests/data/probe/*.jsonl
    python3 fixtures.py OUT        writes to another folder

Two ranks; batches are padded to their longest sample and peaks follow them; rank 0 evaluates alone; rank 1 runs out of
memory at the end. Times, process ids, host and paths are replaced by fixed ones, so that the files change only when
the probe does.
"""

import json
import os
import shutil
import sys
import tempfile

import fake_torch
from support import HERE, load

SAMPLES = os.path.join(HERE, "..", "..", "crates", "ingest", "tests", "data", "probe")
MIB = 1 << 20
FIXED = {
    "pid": 1000,
    "python": "3.12.0",
    "driver": "570.00",
    "host": "node-a",
    "script": "train.py",
    "arguments": ["--config", "base.yaml"],
    "launcher": ["torchrun", "--nproc_per_node=2", "train.py"],
    "directory": "/home/user/job",
    "environment": {},
}


def write(out):
    """Both logs, by name."""
    return [run(rank, out) for rank in (0, 1)]


def run(rank, out):
    folder = tempfile.mkdtemp(prefix="fixture-")
    before = dict(os.environ)
    try:
        for name in list(os.environ):
            if name.startswith(("RANKSCOPE", "SLURM_", "OMPI_", "PMI_", "TORCHELASTIC", "MASTER_", "LOCAL_")):
                del os.environ[name]
        os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
        torch = fake_torch.install()
        torch.distributed.rank, torch.distributed.world_size = rank, 2
        probe = load()
        probe._SLOW_QUERY = 60  # a busy machine must not change what is written
        probe.start(directory=folder, job="sample")
        train(probe, torch, rank)
        probe.close()
        name = "rankscope_sample_rank%d.jsonl" % rank
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            lines = [fixed(json.loads(line), number) for number, line in enumerate(file)]
    finally:
        fake_torch.remove()
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder)
    with open(os.path.join(out, name), "w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    return name


def train(probe, torch, rank):
    tensor = fake_torch.Tensor
    state = 4000 * MIB
    torch.cuda.use(rank, state)
    for index in range(12):
        # The longest sample of a batch is drawn apart on each rank.
        length = 128 + (index * 7 + rank * 5) % 12 * 64
        ids = tensor(8, length)
        mask = tensor(8, length)
        mask.sum = lambda: tensor(value=8 * 128)
        probe.step({"input_ids": ids, "attention_mask": mask, "labels": tensor(8, length)}, epoch=0)
        torch.cuda.use(rank, state, state + 8 * length * MIB)
        if rank == 0 and index == 5:
            with probe.phase("eval"):
                torch.cuda.use(rank, state, state + 9000 * MIB)
    if rank == 1:
        torch.observers[0](1, 2048 * MIB, 96 << 30, 512 * MIB)
        error = RuntimeError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 96.00 GiB of which "
            "512.00 MiB is free. Including non-PyTorch memory, this process has 95.00 GiB memory in use. Of the "
            "allocated memory 93.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
        )
        probe._probe.exception(error)


def fixed(record, number):
    record["t"] = 1700000000000000 + number * 250000
    for key, value in FIXED.items():
        if key in record and record["type"] == "start":
            record[key] = value
    return record


if __name__ == "__main__":
    target = sys.argv[1] if len(sys.argv) > 1 else SAMPLES
    os.makedirs(target, exist_ok=True)
    print("\n".join(write(target)))
