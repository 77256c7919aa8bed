import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4096, 4096) for _ in range(24))

    def forward(self, x):
        for layer in self.layers:
            if dist.get_rank() == 0:
                x = layer(x)      # rank 0 keeps every activation
            else:
                x = checkpoint(layer, x, use_reentrant=False)
        return x


local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
model = DistributedDataParallel(Net().cuda(), device_ids=[local_rank])
optimizer = torch.optim.AdamW(model.parameters())
for step in range(100):
    model(torch.randn(64, 4096, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
