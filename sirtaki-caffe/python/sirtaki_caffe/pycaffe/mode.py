"""Settings of a script for all nets that it builds afterwards."""

from __future__ import annotations

import os
import sys
import time

from sirtaki_caffe.commands.flags import parse
from sirtaki_caffe.commands.log import Log

_seed: int | None = None
_solvers = {"count": 1, "rank": 0}


def set_mode_cpu() -> None:
    """Do nothing: nets of scripts run on the CPU."""


def set_mode_gpu() -> None:
    """Do nothing, so that scripts run unchanged; their nets run on the CPU, like NumPy."""
    log("Nets of scripts run on the CPU; `caffe train -gpu` uses accelerators.")


def set_device(device: int) -> None:
    """Do nothing, like `set_mode_gpu`."""
    del device


def set_random_seed(seed: int) -> None:
    """Make random numbers of nets built from now on the same in every run."""
    global _seed
    _seed = int(seed)


def next_seed() -> int | None:
    """Return the seed of the next net; None: a random one."""
    global _seed
    if _seed is None:
        return None
    _seed += 1
    return _seed - 1


def init_log(level: int = 0, stderr: bool = True) -> None:
    """Do nothing: messages go to standard error anyway."""
    del level, stderr


def log(text: str) -> None:
    """Write a line to standard error in the format of Caffe's log."""
    now = time.time()
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now))
    micros = int(now % 1 * 1_000_000)
    print(f"I{stamp}.{micros:06d} {1:5d} pycaffe.py:1] {text}", file=sys.stderr)


def warn(source: str, text: str) -> None:
    """Write a warning to standard error, unless GLOG_minloglevel is higher."""
    Log(least=parse([], os.environ)[0].minloglevel).warning(source, text)


def has_nccl() -> bool:
    """Return whether Caffe's use of NCCL is available: no, processes average through Sirtaki."""
    return False


def solver_count() -> int:
    """Return the last number set; Sirtaki's processes are not counted."""
    return _solvers["count"]


def set_solver_count(count: int) -> None:
    """Store a number for `solver_count`; the launcher determines which processes train together."""
    _solvers["count"] = int(count)


def solver_rank() -> int:
    """Return the number last set by `set_solver_rank`, 0 at first."""
    return _solvers["rank"]


def set_solver_rank(rank: int) -> None:
    """Store a number for `solver_rank`."""
    _solvers["rank"] = int(rank)


def set_multiprocess(multiprocess: bool) -> None:
    """Do nothing: the launcher determines whether processes train together."""
    del multiprocess
