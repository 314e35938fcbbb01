"""Sums on the cores of one host beside PyTorch's Gloo, by turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from check_speed import shared_store

import sirtaki.torch as hvd

SIZES = {"4_B": 1, "4_KiB": 1 << 10, "256_KiB": 1 << 16, "4_MiB": 1 << 20, "64_MiB": 1 << 24}
ROUNDS = 5
#: Of one turn.
SECONDS = 0.1


def microseconds(work: Callable[[], object], calls: int) -> float:
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - begin) * 1e6 / calls


def enough(work: Callable[[], object]) -> int:
    """Return how many calls last as long as a turn should, the same on all ranks."""
    calls = 5
    while True:
        taken = torch.tensor([microseconds(work, calls) * calls / 1e6])
        dist.broadcast(taken, 0)
        if float(taken) >= SECONDS or calls >= 2000:
            return calls
        calls *= 2


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    dist.init_process_group("gloo", rank=hvd.rank(), world_size=hvd.size(), store=shared_store())
    for name, count in SIZES.items():
        tensor = torch.zeros(count)
        ways = {
            "gloo": lambda tensor=tensor: dist.all_reduce(tensor),
            "sirtaki": lambda tensor=tensor: hvd.allreduce_(tensor, op=hvd.Sum, name="x"),
        }
        calls = {way: enough(work) for way, work in ways.items()}
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, work in ways.items():
                times[way].append(microseconds(work, calls[way]))
        medians = {way: statistics.median(taken) for way, taken in times.items()}
        if hvd.rank() == 0:
            for way, median in medians.items():
                print(f"figure us_of_{way}_{name} {median:.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
