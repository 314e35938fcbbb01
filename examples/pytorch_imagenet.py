"""Trains a ResNet on folders of images, the way ImageNet is trained with many processes.

    python examples/pytorch_imagenet.py --data-dir images --generate
    horovodrun -np 2 python examples/pytorch_imagenet.py --data-dir images --checkpoint best.pt

The data are images/train/<class>/* and images/val/<class>/*; `--generate` makes some.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from image_folder import ImageFolder, generate
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

DECAY_AT = (0.5, 0.75, 0.9)  # of the epochs: there the learning rate falls to a tenth


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        straight = before == after and stride == 1
        self.around = nn.Identity() if straight else nn.Conv2d(before, after, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.around(x))


def resnet(classes: int, width: int) -> nn.Module:
    """Return a ResNet of four blocks; `width` channels in the first."""
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    blocks = [Block(widths[i], widths[i + 1], 1 if i == 0 else 2) for i in range(4)]
    start = nn.Conv2d(3, width, 3, padding=1)
    end = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))
    return nn.Sequential(start, *blocks, *end)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--generate", action="store_true", help="make data there, and exit")
    parser.add_argument("--classes", type=int, default=4, help="for --generate")
    parser.add_argument("--images", type=int, default=64, help="per class, for --generate")
    parser.add_argument("--pixels", type=int, default=32, help="images get this height and width")
    parser.add_argument("--width", type=int, default=8, help="channels of the first block")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16, help="of each process")
    parser.add_argument("--batches-per-allreduce", type=int, default=1, help="gradients summed up")
    parser.add_argument("--base-lr", type=float, default=0.01, help="of one process and batch")
    parser.add_argument("--warmup-epochs", type=float, default=2)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--wd", type=float, default=5e-5, help="weight decay")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send float16")
    parser.add_argument("--checkpoint", type=Path, help="continued from, and kept up to date")
    return parser.parse_args()


class Mean:
    """A mean over the samples of all processes."""

    def __init__(self) -> None:
        self.sum = torch.zeros(2, dtype=torch.float64)

    def add(self, mean: torch.Tensor, count: int) -> None:
        self.sum += torch.tensor([mean.item() * count, count], dtype=torch.float64)

    def value(self, name: str) -> float:
        total, count = hvd.allreduce(self.sum, op=hvd.Sum, name=name).tolist()
        return total / count


def learning_rate(args: argparse.Namespace, epoch: float) -> float:
    """Return the rate at a time: from that of one process to that of all, then down in steps."""
    scale = hvd.size() * args.batches_per_allreduce
    if epoch < args.warmup_epochs:
        return args.base_lr * (1 + (scale - 1) * epoch / args.warmup_epochs)
    return args.base_lr * scale * 0.1 ** sum(epoch >= share * args.epochs for share in DECAY_AT)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader,
    epoch: int,
    args: argparse.Namespace,
) -> float:
    """Do one epoch; return its mean loss."""
    model.train()
    device = next(model.parameters()).device
    mean = Mean()
    for i, (images, labels) in enumerate(loader):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(args, epoch + i / len(loader))
        optimizer.zero_grad()
        # Backward passes add up their gradients; the last of them sends the sum.
        parts = args.batches_per_allreduce
        batches = images.split(args.batch_size), labels.split(args.batch_size)
        for part, answers in zip(*batches, strict=True):
            loss = functional.cross_entropy(model(part.to(device)), answers.to(device))
            mean.add(loss, len(part))
            (loss / parts).backward()
        optimizer.step()
    return mean.value("train loss")


@torch.no_grad()
def validate(model: nn.Module, loader: DataLoader) -> float:
    """Return the share of images recognised."""
    model.eval()
    device = next(model.parameters()).device
    mean = Mean()
    for images, labels in loader:
        hits = model(images.to(device)).argmax(1) == labels.to(device)
        mean.add(hits.float().mean(), len(labels))
    return mean.value("accuracy")


def resume(
    path: Path | None, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> int:
    """Start all processes from the first one's checkpoint, if there is one; return its epoch."""
    epoch = 0
    if path is not None and hvd.rank() == 0 and path.exists():
        saved = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        epoch = saved["epoch"]
    epoch = int(hvd.broadcast(torch.tensor(epoch), root_rank=0, name="epoch"))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return epoch


def share(folder: Path, batch: int, args: argparse.Namespace, shuffle: bool) -> DataLoader:
    """Load this process's part of the images."""
    dataset = ImageFolder(folder, args.pixels)
    sampler = DistributedSampler(dataset, hvd.size(), hvd.rank(), shuffle=shuffle)
    return DataLoader(dataset, batch, sampler=sampler, drop_last=shuffle)


def main() -> None:
    args = parse_arguments()
    if args.generate:
        generate(args.data_dir, args.classes, args.images, args.pixels)
        return print(f"Made images of {args.classes} classes in {args.data_dir}")
    hvd.init()
    torch.manual_seed(42)
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", hvd.local_rank()) if gpu else torch.device("cpu")
    parts = args.batches_per_allreduce
    train_loader = share(args.data_dir / "train", args.batch_size * parts, args, shuffle=True)
    val_loader = share(args.data_dir / "val", args.batch_size, args, shuffle=False)

    model = resnet(len(train_loader.dataset.classes), args.width).to(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(
            model.parameters(), lr=args.base_lr, momentum=args.momentum, weight_decay=args.wd
        ),
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        backward_passes_per_step=parts,
    )
    first = resume(args.checkpoint, model, optimizer, device)
    for epoch in range(first, args.epochs):
        train_loader.sampler.set_epoch(epoch)
        loss = train(model, optimizer, train_loader, epoch, args)
        accuracy = validate(model, val_loader)
        if hvd.rank() == 0:
            print(f"Epoch {epoch + 1}: loss {loss:.4f}, accuracy {accuracy:.1%}", flush=True)
            if args.checkpoint is not None:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "epoch": epoch + 1}, args.checkpoint)
    hvd.shutdown()


if __name__ == "__main__":
    main()
