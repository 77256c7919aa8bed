import functools
import os

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, DistributedSampler

from dataset import Tokens
from model import Block, Decoder


class Trainer:
    def __init__(self, local_rank: int):
        self.device = torch.device("cuda", local_rank)
        self.rank = dist.get_rank()
        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
        self.model = FSDP(
            Decoder(layers=32, width=4096),
            auto_wrap_policy=policy,
            mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
            device_id=self.device,
            use_orig_params=True,
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, betas=(0.9, 0.95))
        tokens = Tokens("/data/tokens.bin", length=4096)
        self.sampler = DistributedSampler(tokens, shuffle=True, drop_last=True)
        self.loader = DataLoader(tokens, batch_size=2, sampler=self.sampler, num_workers=2, drop_last=True)

    def fit(self, epochs: int):
        step = 0
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for ids in self.loader:
                ids = ids.to(self.device, non_blocking=True)
                loss = self.model(ids[:, :-1], labels=ids[:, 1:]).loss
                loss.backward()
                self.model.clip_grad_norm_(1.0)
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
                step += 1
                if step % 100 == 0 and self.rank == 0:
                    print(f"step {step} loss {loss.item():.3f}", flush=True)
            self.save(f"epoch{epoch}.pt")

    def save(self, path: str):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(self.model, options=options)
        if self.rank == 0:
            torch.save(state, path)


if __name__ == "__main__":
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    Trainer(local).fit(epochs=3)
    dist.destroy_process_group()
