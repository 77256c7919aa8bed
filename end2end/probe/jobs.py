"""Small training jobs over gloo on the CPU, one per way in which ranks come to differ.

    python3 jobs.py OUT [JOB ...]     runs each job in 4 processes; the logs go to OUT/JOB/

correct           a DistributedSampler with set_epoch, equal batches, evaluation on all ranks
no_sampler        every rank walks the whole data set
no_set_epoch      a DistributedSampler that is never told the epoch
variable_lengths  batches padded to their longest sample
rank0_eval        evaluation on rank 0 only
"""

import os
import socket
import subprocess
import sys

WORLD_SIZE = 4
HERE = os.path.dirname(os.path.abspath(__file__))
JOBS = ("correct", "no_sampler", "no_set_epoch", "variable_lengths", "rank0_eval")


def train(job):
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, Dataset
    from torch.utils.data.distributed import DistributedSampler

    import rankscope_probe as probe

    class Sentences(Dataset):
        def __len__(self):
            return 96

        def __getitem__(self, index):
            length = 8 + (index * 37) % 56 if job == "variable_lengths" else 32
            return torch.full((length,), index % 100)

    def collate(samples):
        width = max(len(sample) for sample in samples)
        ids = torch.zeros(len(samples), width, dtype=torch.long)
        mask = torch.zeros(len(samples), width, dtype=torch.long)
        for row, sample in enumerate(samples):
            ids[row, : len(sample)] = sample
            mask[row, : len(sample)] = 1
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.clone()}

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(128, 16)
            self.head = torch.nn.Linear(16, 128)
            self.register_buffer("positions", torch.arange(64))

        def forward(self, input_ids, attention_mask, labels):
            scores = self.head(self.embed(input_ids))
            return torch.nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())

    probe.start()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = Sentences()
    sampler = None if job == "no_sampler" else DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=4, sampler=sampler, shuffle=sampler is None, collate_fn=collate)
    for epoch in range(3):
        if sampler is not None and job != "no_set_epoch":
            sampler.set_epoch(epoch)
        for index, batch in enumerate(loader):
            if index == 6:
                break
            probe.step(batch, epoch=epoch)
            optimizer.zero_grad()
            model(**batch).backward()
            optimizer.step()
        if job != "rank0_eval" or rank == 0:
            with probe.phase("eval"), torch.no_grad():
                for batch in DataLoader(data, batch_size=16, collate_fn=collate):
                    model.module(**batch)
        dist.barrier()


def run(job, out):
    """Runs a job in processes of its own; gives back what went wrong."""
    os.makedirs(out, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for rank in range(WORLD_SIZE):
        environment = dict(
            os.environ,
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(WORLD_SIZE),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            OMP_NUM_THREADS="1",
            GLOO_SOCKET_IFNAME="lo",
            RANKSCOPE_DIR=out,
            RANKSCOPE_JOB=job,
            PYTHONDONTWRITEBYTECODE="1",
            PYTHONPATH=os.path.join(HERE, "..", "..", "public"),
        )
        command = [sys.executable, os.path.abspath(__file__), "--train", job]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, universal_newlines=True))
    wrong = []
    for rank, process in enumerate(processes):
        try:
            _, said = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
            said += "\nkilled after 120 s"
        if process.returncode != 0 or "rankscope probe" in said:
            wrong.append("%s rank %d (%s): %s" % (job, rank, process.returncode, said))
    return wrong


if __name__ == "__main__":
    if sys.argv[1] == "--train":
        train(sys.argv[2])
    else:
        failed = []
        for name in sys.argv[2:] or JOBS:
            failed += run(name, os.path.join(sys.argv[1], name))
        if failed:
            sys.exit("\n".join(failed))
