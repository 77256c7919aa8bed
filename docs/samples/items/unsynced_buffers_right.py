import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
model = DistributedDataParallel(torch.nn.Linear(4096, 4096).cuda(), device_ids=[local_rank])
optimizer = torch.optim.AdamW(model.parameters())
if dist.get_rank() == 0:
    ema = {name: value.detach().cpu() for name, value in model.module.state_dict().items()}      # in host memory
for step in range(100):
    model(torch.randn(64, 4096, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        for name, value in model.module.state_dict().items():
            ema[name].lerp_(value.cpu(), 0.001)
