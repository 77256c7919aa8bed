import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")
model = torch.nn.Linear(4096, 4096).to(f"cuda:{local_rank}")
model = DistributedDataParallel(model, device_ids=[local_rank])
state = torch.load("last.pt")
model.module.load_state_dict(state["model"])
optimizer = torch.optim.AdamW(model.parameters())
for step in range(100):
    model(torch.randn(64, 4096, device=f"cuda:{local_rank}")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
