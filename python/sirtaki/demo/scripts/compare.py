"""Train with PyTorch's DistributedDataParallel over Gloo and over Sirtaki, in turns.

sirtaki run -np 2 python compare.py
"""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

BACKENDS = ("gloo", "sirtaki")
TURNS, STEPS = 8, 5


def make_model(backend: str) -> nn.Module:
    """Return a network of 4.2 million parameters, whose gradients this backend averages."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024))
    return DistributedDataParallel(layers, process_group=dist.new_group(backend=backend))


def turn(model: nn.Module) -> float:
    """Run some steps; return the seconds per step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, labels = torch.randn(32, 1024), torch.randint(1024, (32,))
    start = time.perf_counter()
    for _ in range(STEPS):
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return (time.perf_counter() - start) / STEPS


def main() -> None:
    """Print the time of a step over each backend, and their ratio."""
    dist.init_process_group("gloo")
    models = {backend: make_model(backend) for backend in BACKENDS}
    for model in models.values():  # DDP arranges its buckets in the first steps
        turn(model)
    seconds: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    for _ in range(TURNS):
        for backend, model in models.items():
            seconds[backend].append(turn(model))
    gloo, sirtaki = (statistics.median(seconds[backend]) for backend in BACKENDS)
    if dist.get_rank() == 0:
        print(f"a step over Gloo:    {gloo * 1e3:6.1f} ms", flush=True)
        print(f"a step over Sirtaki: {sirtaki * 1e3:6.1f} ms", flush=True)
        print(f"a step takes {sirtaki / gloo:.2f} times as long as over Gloo", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
