"""LeNet-5 learns handwritten digits on any number of processes.

    horovodrun -np 2 python examples/pytorch_mnist.py

Without --data-dir it needs scikit-learn, which brings 1797 digits.

It differs from a script for one process where it says `hvd`; without horovodrun it is one.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from mnist_data import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd


class LeNet5(nn.Sequential):
    """LeCun's network of 1998, with today's activation, pooling and dropout."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 6, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(),
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, 10),
        )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", help="folder of MNIST's IDX files; default: small digits")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=16, help="images a step and process")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate of one process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="compute threads a process")
    parser.add_argument("--checkpoint", metavar="FILE", help="continued from, and kept up to date")
    parser.add_argument(
        "--compare-single",
        action="store_true",
        help="measure one process alone as well, and print the speed-up over it",
    )
    return parser.parse_args()


def share(dataset: Dataset, args: argparse.Namespace, train: bool) -> DataLoader:
    """Load this process's part of the images."""
    sampler = DistributedSampler(dataset, hvd.size(), hvd.rank(), shuffle=train, seed=args.seed)
    return DataLoader(dataset, args.batch_size if train else 256, sampler=sampler)


def sgd(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)


def learning_rate(args: argparse.Namespace, epoch: int) -> float:
    """Return the rate for this epoch: it rises for four epochs, then falls to zero.

    A step follows the average gradient of all processes, so it can be that many times longer.
    """
    fall = 0.5 * (1 + math.cos(math.pi * epoch / args.epochs))
    return args.lr * hvd.size() * min((epoch + 1) / 4, fall)


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader, title: str
) -> tuple[float, float]:
    """Train on all images of `loader`; return the mean loss and images/s of this process."""
    device = next(model.parameters()).device
    losses = []
    start = time.perf_counter()
    for images, labels in progress(loader, title):
        optimizer.zero_grad()
        output = model(images.to(device))
        # Smoothed labels: the digits are few, and learnt by heart otherwise.
        loss = functional.cross_entropy(output, labels.to(device), label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    mean = torch.stack(losses).mean().item()
    return mean, len(loader.sampler) / (time.perf_counter() - start)


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader) -> float:
    """Return the share of the test images that are recognised, over all processes."""
    device = next(model.parameters()).device
    model.eval()
    hits = torch.cat([model(i.to(device)).argmax(1).cpu() == labels for i, labels in loader])
    model.train()
    # To give all the same number, the sampler repeats images for some; those do not count.
    mine = range(hvd.rank(), len(loader.dataset), hvd.size())
    count = hvd.allreduce(hits[: len(mine)].sum(), op=hvd.Sum, name="hits")
    return count.item() / len(loader.dataset)


def progress(loader: DataLoader, title: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the batches; the first process draws a bar if it has a terminal."""
    draw = hvd.rank() == 0 and sys.stdout.isatty()
    for step, batch in enumerate(loader, 1):
        yield batch
        if draw:
            bar = "#" * (30 * step // len(loader))
            print(f"\r{title} [{bar:30}]", end="\r" if step == len(loader) else "", flush=True)


def typical(speeds: list[float]) -> float:
    """Return the median of all epochs but the first, which includes what happens only once."""
    return statistics.median(speeds[1:] or speeds)


def say(text: str) -> None:
    """Print on the first process only."""
    if hvd.rank() == 0:
        print(text, flush=True)


def load_checkpoint(path: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Continue from the checkpoint if there is one; return the number of epochs it has seen."""
    if not Path(path).exists():
        return 0
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epochs"]


def save_checkpoint(
    path: str, model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int
) -> None:
    """Replace the checkpoint, so that an interruption leaves the old or the new one."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epochs}
    new = Path(f"{path}.new")
    torch.save(state, new)
    new.replace(path)


def speed_alone(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader) -> float:
    """Return images/s of the first process alone; the others sleep, and return nan."""
    speed = train_epoch(model, optimizer, loader, "alone")[1] if hvd.rank() == 0 else math.nan
    hvd.barrier()
    return speed


def main() -> None:
    args = parse_arguments()
    hvd.init()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed + hvd.rank())  # dropout differs; weights are broadcast below
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
    train_set, test_set, source = load_digits(args.data_dir)
    train_loader = share(train_set, args, train=True)
    test_loader = share(test_set, args, train=False)
    say(f"Data: {source}: {len(train_set)} to train, {len(test_set)} to test")

    model = LeNet5().to(device)
    optimizer = sgd(model, learning_rate(args, 0))
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    first_epoch = 0
    if args.checkpoint and hvd.rank() == 0:
        first_epoch = load_checkpoint(args.checkpoint, model, optimizer)
    first_epoch = hvd.broadcast_object(first_epoch, root_rank=0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    single = LeNet5().to(device)
    single_optimizer = sgd(single, args.lr)
    speeds, alone = [], []
    for epoch in range(first_epoch, args.epochs):
        title = f"epoch {epoch + 1}/{args.epochs}"
        train_loader.sampler.set_epoch(epoch)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(args, epoch)
        loss, speed = train_epoch(model, optimizer, train_loader, title)
        loss = hvd.allreduce(torch.tensor(loss), name="loss").item()
        speeds.append(hvd.size() * speed)
        correct = accuracy(model, test_loader)
        say(f"{title}: loss {loss:.4f}, test accuracy {correct:.2%}, {speeds[-1]:.0f} images/s")
        if args.checkpoint and hvd.rank() == 0:
            save_checkpoint(args.checkpoint, model, optimizer, epoch + 1)
        if args.compare_single:
            alone.append(speed_alone(single, single_optimizer, train_loader))

    say(f"Test accuracy: {accuracy(model, test_loader):.2%}")
    if speeds:
        speed = typical(speeds)
        say(f"Speed: {speed:.0f} images/s over {hvd.size()} processes")
    if alone:
        ratio = speed / typical(alone)
        say(f"Speed-up: {ratio:.2f} over one process alone ({typical(alone):.0f} images/s)")
    hvd.shutdown()


if __name__ == "__main__":
    main()
