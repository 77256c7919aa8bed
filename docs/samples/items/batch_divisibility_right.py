import os
import random

import torch
import torch.distributed as dist
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
lengths = [random.Random(i).choice([256, 384, 512, 640, 2048]) for i in range(4096)]
dataset = [torch.ones(length, dtype=torch.long) for length in lengths]


def pad(batch):
    return pad_sequence(batch, batch_first=True)


def token_batches(lengths, budget, rank, world_size, epoch):
    """Batches of at most `budget` tokens with padding; as many on every rank, and alike at every step."""
    batches, batch = [], []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > budget:
            batches.append(batch)
            batch = []
        batch.append(index)
    batches.append(batch)
    while len(batches) % world_size:                      # every rank must take as many steps
        batches.append(batches[-1])
    rounds = list(range(len(batches) // world_size))
    random.Random(epoch).shuffle(rounds)                  # the same order on every rank
    return [batches[turn * world_size + rank] for turn in rounds]


for epoch in range(3):
    mine = token_batches(lengths, 8192, dist.get_rank(), dist.get_world_size(), epoch)
    for step, batch in enumerate(DataLoader(dataset, batch_sampler=mine, collate_fn=pad)):
        print(f"rank={dist.get_rank()} step={step} shape={tuple(batch.shape)}", flush=True)
