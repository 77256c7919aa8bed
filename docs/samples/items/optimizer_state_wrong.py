import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(24))).cuda()
optimizer = torch.optim.AdamW(model.parameters())      # of the whole model
model = FSDP(model)
for step in range(100):
    model(torch.randn(64, 4096, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
