import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

local_rank = int(os.environ["LOCAL_RANK"])
model = torch.nn.Linear(4096, 4096).cuda()      # GPU 0 in every process
dist.init_process_group("nccl")
torch.cuda.set_device(local_rank)
model = DistributedDataParallel(model.cuda(), device_ids=[local_rank])
optimizer = torch.optim.AdamW(model.parameters())
for step in range(100):
    model(torch.randn(64, 4096, device=f"cuda:{local_rank}")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
