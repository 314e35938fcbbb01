"""A small convolutional network learns CIFAR-10 on one, two or three servers.

    horovodrun -np 3 python examples/pytorch_cifar10.py

On three servers add `-H 192.168.11.3:1,192.168.11.5:1,192.168.11.6:1 -p 12345` before `python`. To
see what more processes gain, let the script start them itself, once for each number:

    python examples/pytorch_cifar10.py --np 1 2 3 --hosts 192.168.11.3:1,192.168.11.5:1,...
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import torch
from cifar10_data import load_cifar10
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import horovod
import horovod.torch as hvd


@dataclass(frozen=True)
class Outcome:
    """A training: seconds for all epochs, and the share of the test images that is recognised."""

    rank: int
    processes: int
    seconds: float
    accuracy: float


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", help="cifar-10-batches-py; default: a few generated images")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=20, help="images a step and process")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one process")
    parser.add_argument("--np", type=int, nargs="+", help="start these numbers of processes")
    parser.add_argument("--hosts", help="for --np: name:slots, with commas between; default: here")
    parser.add_argument("--ssh-port", type=int, help="for --np: where the hosts' sshd listens")
    return parser.parse_args()


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def share(dataset: Dataset, batch_size: int, train: bool) -> DataLoader:
    """Load this process's part of the images."""
    sampler = DistributedSampler(dataset, hvd.size(), hvd.rank(), shuffle=train)
    return DataLoader(dataset, batch_size, sampler=sampler)


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader) -> float:
    """Train on this process's images; return the mean loss over all processes."""
    losses = []
    for images, labels in loader:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return hvd.allreduce(torch.stack(losses).mean(), name="loss").item()


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader) -> float:
    """Return the share of the test images that are recognised, over all processes."""
    hits = torch.cat([model(images).argmax(1) == labels for images, labels in loader])
    # To give all the same number, the sampler repeats images for some; those do not count.
    mine = range(hvd.rank(), len(loader.dataset), hvd.size())
    count = hvd.allreduce(hits[: len(mine)].sum(), op=hvd.Sum, name="hits")
    return count.item() / len(loader.dataset)


def train(args: argparse.Namespace) -> Outcome:
    """Train on all processes of this world."""
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    train_set, test_set, source = load_cifar10(args.data_dir)
    loader = share(train_set, args.batch_size, train=True)
    test_loader = share(test_set, 200, train=False)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    if hvd.rank() == 0:
        print(f"Data: {source}: {len(train_set)} to train, {len(test_set)} to test", flush=True)

    start = time.perf_counter()
    for epoch in range(args.epochs):
        loader.sampler.set_epoch(epoch)
        loss = train_epoch(model, optimizer, loader)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}/{args.epochs}: loss {loss:.4f}", flush=True)
    seconds = time.perf_counter() - start
    outcome = Outcome(hvd.rank(), hvd.size(), seconds, accuracy(model, test_loader))
    hvd.shutdown()
    return outcome


def table(outcomes: list[Outcome]) -> list[str]:
    """Return lines: for each number of processes the time, the speed-up and the accuracy."""
    first = outcomes[0]
    lines = ["  np   seconds  speed-up  accuracy"]
    for o in outcomes:
        speed_up = first.seconds / o.seconds
        lines.append(f"{o.processes:4}{o.seconds:10.2f}{speed_up:10.2f}{o.accuracy:10.2%}")
    return lines


def main() -> None:
    args = parse_arguments()
    if args.np is None:
        outcomes = [train(args)]
    else:
        outcomes = [
            horovod.run(train, (args,), num_proc=n, hosts=args.hosts, ssh_port=args.ssh_port)[0]
            for n in args.np
        ]
    if outcomes[0].rank == 0:
        print("\n".join(table(outcomes)), flush=True)


if __name__ == "__main__":
    main()
