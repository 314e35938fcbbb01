"""Ranges of `torch.profiler.record_function` in traces, as PyTorch's optimizers open them too."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from sirtaki.core.tracing.spans import Record


def watch_ranges(record: Record) -> Callable[[], None]:
    """Record them from now on, whether or not a profiler runs; without PyTorch do nothing.

    Args:
        record: Takes each.

    Returns:
        What ends it.
    """
    profiler = sys.modules.get("torch.autograd.profiler")
    ranges: Any = getattr(profiler, "record_function", None)
    if ranges is None:
        return lambda: None
    enter, leave = ranges.__enter__, ranges.__exit__
    begun: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def timed_enter(one: Any) -> Any:
        begun[one] = time.monotonic_ns()
        return enter(one)

    def timed_leave(one: Any, *error: Any) -> Any:
        since = begun.pop(one, 0)
        if since:
            record(str(one.name), threading.get_ident(), since, time.monotonic_ns())
        return leave(one, *error)

    def end() -> None:
        ranges.__enter__, ranges.__exit__ = enter, leave

    ranges.__enter__, ranges.__exit__ = timed_enter, timed_leave
    return end
