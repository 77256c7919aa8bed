import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from model import Net
from pairs import Pairs


def evaluate(model, loader):
    outputs = []
    with torch.no_grad():
        for x, y in loader:
            outputs.append(model(x.cuda()))
    return torch.cat(outputs)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = Net().cuda()
    state = torch.load("last.pt")
    model.load_state_dict(state["model"])
    model = DistributedDataParallel(model, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters())
    train, val = Pairs("train"), Pairs("val")
    sampler = DistributedSampler(train)
    loader = DataLoader(train, 32, sampler=sampler)
    val_loader = DataLoader(val, 32)
    total = 0
    for epoch in range(10):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss
        if rank == 0:
            evaluate(model.module, val_loader)


if __name__ == "__main__":
    main()
