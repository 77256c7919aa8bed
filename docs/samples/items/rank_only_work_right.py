import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
model = DistributedDataParallel(torch.nn.Linear(512, 512).cuda(), device_ids=[local_rank])
torch.manual_seed(0)      # the same data set in every process
val_set = TensorDataset(torch.randn(4096, 512))


@torch.inference_mode()
def evaluate():
    model.eval()
    sums = torch.zeros(2, device="cuda")      # sum and count, whatever the size of the set
    for (batch,) in DataLoader(val_set, batch_size=64, sampler=DistributedSampler(val_set, shuffle=False)):
        output = model.module(batch.cuda())
        sums += torch.stack([output.sum(), torch.tensor(float(output.numel()), device="cuda")])
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


mean = evaluate()
if dist.get_rank() == 0:
    print(mean)
