"""`hvd.trace`: names sections of the user's code in traces."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

# A span's name and thread, and its begin and end on the monotonic clock.
Record = Callable[[str, int, int, int], None]


class Sink:
    """The destination of spans; None while no trace runs."""

    record: Record | None = None


class trace:
    """Name the ``with`` block in traces of this job: ``with hvd.trace("load"): ...``.

    The cost is negligible while no trace runs. While ``torch.profiler`` records, the block is also
    one of its ranges, as with ``torch.profiler.record_function``.

    Args:
        name: The displayed name; `sirtaki trace report` adds up blocks with the same name.
    """

    __slots__ = ("_begun", "_name", "_range")

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun = 0
        self._range: contextlib.AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and _profiles(torch):
            self._range = torch.profiler.record_function(self._name)
            self._range.__enter__()
        if Sink.record is not None and self._range is None:  # a profiler range is recorded anyway
            self._begun = time.monotonic_ns()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        record = Sink.record
        if self._begun and record is not None:
            record(self._name, threading.get_ident(), self._begun, time.monotonic_ns())
        self._begun = 0
        if self._range is not None:
            self._range.__exit__(kind, error, traceback)
            self._range = None


def _profiles(torch: object) -> bool:
    """Return whether PyTorch's profiler records; a partly imported module has none."""
    autograd = getattr(torch, "autograd", None)
    return bool(getattr(autograd, "_profiler_enabled", bool)())
