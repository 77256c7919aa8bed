import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, models, transforms


def setup():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    return local_rank, dist.get_rank(), dist.get_world_size()


def loaders(args):
    to_tensor = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
    train = datasets.ImageFolder(os.path.join(args.data, "train"), to_tensor)
    val = datasets.ImageFolder(os.path.join(args.data, "val"), to_tensor)
    sampler = DistributedSampler(train, shuffle=True, drop_last=True)
    train_loader = DataLoader(train, args.batch_size, sampler=sampler, num_workers=8, pin_memory=True, drop_last=True)
    val_loader = DataLoader(val, args.batch_size, sampler=DistributedSampler(val, shuffle=False), num_workers=8)
    return train_loader, val_loader, sampler


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    hits = torch.zeros(2, device=device)
    for images, labels in loader:
        logits = model(images.to(device, non_blocking=True))
        hits[0] += (logits.argmax(1) == labels.to(device)).sum()
        hits[1] += labels.numel()
    dist.all_reduce(hits)
    return (hits[0] / hits[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="/data/imagenet")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--resume", default="")
    args = parser.parse_args()

    local_rank, rank, world = setup()
    device = torch.device("cuda", local_rank)
    train_loader, val_loader, sampler = loaders(args)
    model = models.resnet50().to(device)
    first = 0
    if args.resume:
        state = torch.load(args.resume, map_location="cpu")
        model.load_state_dict(state["model"])
        first = state["epoch"] + 1
        del state
    model = DDP(model, device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * world, momentum=0.9, weight_decay=1e-4)

    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        running = 0.0
        for images, labels in train_loader:
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            running += loss.item()
        accuracy = evaluate(model, val_loader, device)
        if rank == 0:
            print(f"epoch {epoch} loss {running / len(train_loader):.4f} top1 {accuracy:.4f}")
            torch.save({"model": model.module.state_dict(), "epoch": epoch}, "last.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
