"""What a script sets for all nets that it builds afterwards."""

from __future__ import annotations

import os
import sys
import time

from sirtaki_caffe.commands.flags import parse
from sirtaki_caffe.commands.log import Log

_seed: int | None = None
_solvers = {"count": 1, "rank": 0}


def set_mode_cpu() -> None:
    """Nets of scripts run on the CPU: nothing to do."""


def set_mode_gpu() -> None:
    """Accepted, so that scripts run as they are; their nets run on the CPU, where NumPy is."""
    log("Nets of scripts run on the CPU; `caffe train -gpu` uses accelerators.")


def set_device(device: int) -> None:
    """Accepted, as `set_mode_gpu` is."""
    del device


def set_random_seed(seed: int) -> None:
    """Make what is random in nets built from now on the same from run to run."""
    global _seed
    _seed = int(seed)


def next_seed() -> int | None:
    """The seed of the next net; None: another each time."""
    global _seed
    if _seed is None:
        return None
    _seed += 1
    return _seed - 1


def init_log(level: int = 0, stderr: bool = True) -> None:
    """Accepted: messages go to standard error anyway."""
    del level, stderr


def log(text: str) -> None:
    """Write a line to standard error as Caffe's log does."""
    now = time.time()
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now))
    micros = int(now % 1 * 1_000_000)
    print(f"I{stamp}.{micros:06d} {1:5d} pycaffe.py:1] {text}", file=sys.stderr)


def warn(source: str, text: str) -> None:
    """Write a warning to standard error, unless GLOG_minloglevel is above it."""
    Log(least=parse([], os.environ)[0].minloglevel).warning(source, text)


def has_nccl() -> bool:
    """Whether Caffe's own use of NCCL is there: no, processes average by Sirtaki."""
    return False


def solver_count() -> int:
    """How many solvers train one net; those of other processes are Sirtaki's, and not counted."""
    return _solvers["count"]


def set_solver_count(count: int) -> None:
    """Remember a number for `solver_count`; what trains together is what the launcher starts."""
    _solvers["count"] = int(count)


def solver_rank() -> int:
    """The number last set by `set_solver_rank`, 0 at first."""
    return _solvers["rank"]


def set_solver_rank(rank: int) -> None:
    """Remember a number for `solver_rank`."""
    _solvers["rank"] = int(rank)


def set_multiprocess(multiprocess: bool) -> None:
    """Accepted: whether processes train together is for the launcher to say."""
    del multiprocess
