import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from corpus import Corpus
from model import Decoder


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    local_rank = int(os.environ["LOCAL_RANK"])

    model = Decoder(layers=24, width=2048).to(f"cuda:{local_rank}")
    model = DDP(model, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    data = Corpus("/data/corpus")
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)

    for epoch in range(3):
        sampler.set_epoch(epoch)
        for step, tokens in enumerate(loader):
            tokens = tokens.to(f"cuda:{local_rank}")
            loss = model(tokens)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            mib = 2**20
            print(
                f"[train] rank={rank} step={step} shape={tuple(tokens.shape)} "
                f"cur={torch.cuda.memory_allocated() / mib:.1f}MB "
                f"peak={torch.cuda.max_memory_allocated() / mib:.1f}MB "
                f"reserved={torch.cuda.memory_reserved() / mib:.1f}MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
