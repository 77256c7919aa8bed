import os
import random

import torch
import torch.distributed as dist
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
lengths = [random.Random(i).choice([256, 384, 512, 640, 2048]) for i in range(4096)]
dataset = [torch.ones(length, dtype=torch.long) for length in lengths]


def pad(batch):
    return pad_sequence(batch, batch_first=True)


# Eight samples on every rank at every step; the longest of them decides the memory.
sampler = DistributedSampler(dataset, drop_last=True)
loader = DataLoader(dataset, batch_size=8, sampler=sampler, collate_fn=pad)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for step, batch in enumerate(loader):
        print(f"rank={dist.get_rank()} step={step} shape={tuple(batch.shape)}", flush=True)
