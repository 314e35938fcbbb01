"""Leaving between two steps when a signal asks this process to end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from sirtaki.core import elastic, heartbeat

# The first ends a process where schedulers and people want it, the second warns of an end.
_SIGNALS = ("SIGTERM", "SIGUSR1")


@contextlib.contextmanager
def on_signals() -> Iterator[None]:
    """Leave on signals that the program itself does nothing about, and tell the driver of it."""
    taken = []
    if elastic.is_elastic():
        # Only the main thread may.
        with contextlib.suppress(ValueError):
            for number in (getattr(signal, name) for name in _SIGNALS):
                if signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, _Handler(os.getpid()))
                    taken.append(number)
        elastic.say_training(taken)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            for number in taken:
                signal.signal(number, signal.SIG_DFL)


class _Handler:
    """Takes a signal. pid: of the process that leaves; a child of it has this handler, too."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __call__(self, number: int, _frame: object) -> None:
        if os.getpid() == self._pid and not heartbeat.is_ending():
            elastic.leave(number)
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
