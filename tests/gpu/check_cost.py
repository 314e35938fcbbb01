"""Memory and time of a step beside DDP over NCCL and plain PyTorch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from check_speed import shared_store

import sirtaki.torch as hvd

LAYERS, WIDTH, BATCH = 8, 2048, 512
STEPS, ROUNDS = 200, 5
#: Of DDP's peak, with its defaults: a bucket beside each gradient.
MEMORY_LIMIT = 1.10
TIME_LIMIT = 1.02


def build() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    return torch.nn.Sequential(*layers).cuda()


def stepper(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    inputs = torch.randn(BATCH, WIDTH, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def plain() -> Callable[[], None]:
    model = build()
    return stepper(model, torch.optim.SGD(model.parameters(), lr=1e-4))


def ours() -> Callable[[], None]:
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    names = model.named_parameters()
    return stepper(model, hvd.DistributedOptimizer(optimizer, named_parameters=names))


def ddp() -> Callable[[], None]:
    model = torch.nn.parallel.DistributedDataParallel(build())
    return stepper(model, torch.optim.SGD(model.parameters(), lr=1e-4))


def peak(make: Callable[[], Callable[[], None]]) -> tuple[int, int]:
    """Return peak and reserved MiB of 200 steps."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step = make()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    found = torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved()
    return found[0] >> 20, found[1] >> 20


def milliseconds(step: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(50):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1000 / 50


def main() -> None:
    hvd.init()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    dist.init_process_group("nccl", rank=hvd.rank(), world_size=hvd.size(), store=shared_store())
    memory = {make.__name__: peak(make) for make in (plain, ddp, ours)}
    steps = {make.__name__: make() for make in (plain, ddp, ours)}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS + 1):
        for name, step in steps.items():
            times[name].append(milliseconds(step))
    medians = {name: statistics.median(taken[1:]) for name, taken in times.items()}
    ratio = medians["ours"] / medians["plain"]
    share = memory["ours"][0] / memory["ddp"][0]
    if hvd.rank() == 0:
        print(f"peak and reserved MiB: {memory}; ms of a step: {medians}", flush=True)
        print(f"figure step_to_plain_step {ratio:.3f}", flush=True)
        print(f"figure step_to_ddp_step {medians['ours'] / medians['ddp']:.3f}", flush=True)
        print(f"figure peak_memory_to_ddp {share:.3f}", flush=True)
        print(f"figure reserved_to_ddp {memory['ours'][1] / memory['ddp'][1]:.3f}", flush=True)
    dist.destroy_process_group()
    if share > MEMORY_LIMIT:
        raise AssertionError(f"{share:.2f} of DDP's peak memory, more than {MEMORY_LIMIT}")
    if hvd.size() == 1 and ratio > TIME_LIMIT:
        raise AssertionError(f"{ratio:.3f} times plain PyTorch's step, more than {TIME_LIMIT}")


if __name__ == "__main__":
    main()
