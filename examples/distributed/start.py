"""How these examples begin and end: by torchrun, sirtaki run, or by themselves."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable

import torch.distributed as dist
import torch.multiprocessing as mp


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all examples have."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--backend", default="sirtaki", help="sirtaki, gloo, or nccl on GPUs")
    made.add_argument("--processes", type=int, default=2, help="how many, where nothing else says")
    made.add_argument(
        "--init-method",
        help="env:// (default under torchrun), tcp://host:port, file:///a/shared/new/file",
    )
    return made


def run(work: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> None:
    """Call `work` in every process of the group."""
    if "RANK" in os.environ:
        _work(int(os.environ["RANK"]), work, args)
        return
    with tempfile.TemporaryDirectory() as folder:
        args.init_method = args.init_method or f"file://{folder}/meeting"
        mp.spawn(_work, (work, args), nprocs=args.processes)


def _work(rank: int, work: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> None:
    if args.backend == "nccl":
        import torch

        torch.cuda.set_device(rank % torch.cuda.device_count())
    size = int(os.environ.get("WORLD_SIZE", args.processes))
    dist.init_process_group(args.backend, args.init_method, rank=rank, world_size=size)
    try:
        work(args)
    finally:
        dist.destroy_process_group()
