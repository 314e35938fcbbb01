"""Settings of a script for all nets that it builds afterwards, its timer, and NCCL's absence."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from sirtaki_caffe.commands.flags import parse
from sirtaki_caffe.commands.log import Log
from sirtaki_caffe.errors import CaffeError

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


class NCCL:
    """Not available: processes average gradients through Sirtaki.

    Raises:
        CaffeError: Always; the message contains the replacement.
    """

    def __init__(self, solver: Any = None, uid: Any = None) -> None:
        del solver, uid
        raise CaffeError(_INSTEAD)

    @staticmethod
    def new_uid() -> str:
        """See the class."""
        raise CaffeError(_INSTEAD)


_INSTEAD = (
    "caffe.NCCL is not there, and not needed: start the script once for each GPU or host with "
    "`sirtaki run -np 4 python train.py`, call `sirtaki.torch.init()` at its beginning, leave out "
    "NCCL, set_solver_count, set_solver_rank and set_multiprocess, and call solver.step(n): "
    "gradients are averaged over the processes"
)


class Timer:
    """A timer that can be started and stopped.

    Attributes:
        ms: The milliseconds between the last start and stop.
    """

    def __init__(self) -> None:
        self._started: float | None = None
        self.ms = 0.0

    def start(self) -> None:
        """Start to measure."""
        self._started = time.perf_counter()

    def stop(self) -> None:
        """Stop; without a start nothing changes."""
        if self._started is not None:
            self.ms = (time.perf_counter() - self._started) * 1000
            self._started = None
