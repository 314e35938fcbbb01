"""pycaffe's support for several GPUs of one host, and its timer."""

from __future__ import annotations

import time
from typing import Any

from sirtaki_caffe.errors import CaffeError


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
