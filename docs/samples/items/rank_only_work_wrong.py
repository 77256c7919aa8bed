import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
model = DistributedDataParallel(torch.nn.Linear(512, 512).cuda(), device_ids=[local_rank])
torch.manual_seed(0)      # the same data set in every process
val_set = TensorDataset(torch.randn(4096, 512))


def evaluate():
    model.eval()
    outputs = []
    for (batch,) in DataLoader(val_set, batch_size=64):
        outputs.append(model.module(batch.cuda()))      # with its graph, on the GPU
    return torch.cat(outputs).mean()


if dist.get_rank() == 0:
    print(evaluate())
