import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
model = DistributedDataParallel(torch.nn.Linear(512, 1).cuda(), device_ids=[local_rank])
optimizer = torch.optim.AdamW(model.parameters())

torch.manual_seed(0)      # the same data set in every process
dataset = TensorDataset(torch.randn(4096, 512))
loader = DataLoader(dataset, batch_size=8, shuffle=True)      # every rank: all 4096 samples
for epoch in range(3):
    for (batch,) in loader:
        loss = model(batch.cuda()).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
