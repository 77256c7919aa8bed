import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Net


def main():
    rank = int(os.environ["RANK"])
    local_rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("nccl")
    net = Net().to(f"cuda:{local_rank}")
    state = torch.load("last.pt")
    net.load_state_dict(state["model"])
    net = DDP(net, device_ids=[local_rank])
    for step, batch in enumerate(loader(rank)):
        net(batch).backward()


if __name__ == "__main__":
    main()
