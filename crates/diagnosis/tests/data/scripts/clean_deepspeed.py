import argparse
import json

import deepspeed
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from corpus import PackedCorpus
from decoder import Decoder


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--out", default="/out")
    return deepspeed.add_config_arguments(parser).parse_args()


def main():
    args = arguments()
    torch.cuda.set_device(args.local_rank)
    deepspeed.init_distributed(dist_backend="nccl")

    with open(args.deepspeed_config) as file:
        config = json.load(file)
    data = PackedCorpus("/data/corpus", length=4096)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, batch_size=config["train_micro_batch_size_per_gpu"], sampler=sampler, drop_last=True)
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = Decoder(layers=48, width=6144)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, ids in enumerate(loader):
            ids = ids.to(engine.device)
            loss = engine(ids[:, :-1], labels=ids[:, 1:])
            engine.backward(loss)
            engine.step()
            if step % 50 == 0 and dist.get_rank() == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
        engine.save_checkpoint(args.out, tag=f"epoch{epoch}")


if __name__ == "__main__":
    main()
