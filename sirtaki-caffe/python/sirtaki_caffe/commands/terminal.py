"""What a terminal shows and sends while a command runs: progress, SIGINT and SIGHUP."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from sirtaki_caffe.commands.log import Log
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.solver.solver import Request, Solver

_EFFECTS = {"stop": "stop", "snapshot": "snapshot", "none": ""}


@contextmanager
def watched(sigint_effect: str, sighup_effect: str) -> Iterator[Callable[[], Request]]:
    """Record signals within the context; yield a function that returns their requests, once.

    Args:
        sigint_effect: "stop", "snapshot" or "none".
        sighup_effect: The same for SIGHUP.

    Raises:
        CaffeError: An effect is none of these.
    """
    effects = {
        signal.SIGHUP: _effect("sighup_effect", sighup_effect),
        signal.SIGINT: _effect("sigint_effect", sigint_effect),
    }
    noted: set[str] = set()

    def note(number: int, _: FrameType | None) -> None:
        noted.add(effects[signal.Signals(number)])

    def take() -> Request:
        found = set(noted)
        noted.difference_update(found)  # keeps signals that arrive meanwhile
        return Request(stop="stop" in found, snapshot="snapshot" in found)

    before: dict[int, Any] = {number: signal.signal(number, note) for number in effects}
    try:
        yield take
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _effect(flag: str, word: str) -> str:
    if word not in _EFFECTS:
        raise CaffeError(f"--{flag}={word}: must be stop, snapshot or none")
    return _EFFECTS[word]


_INTERVAL = 0.2
_CLEAR = "\r\x1b[K"


class Progress:
    """A line below the log, if standard error is a terminal.

    Args:
        log: The log whose lines replace it.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._shown = False
        self._last = 0.0
        self._first: tuple[float, int] | None = None
        self._on = sys.stderr.isatty()
        if self._on:
            log.before_line = self._clear

    def show(self, solver: Solver) -> None:
        """Update the line."""
        now = time.monotonic()
        if not self._on:
            return
        if self._first is None:
            self._first = (now, solver.iter)
        if now - self._last < _INTERVAL:
            return
        self._last = now
        then, start = self._first
        speed = (solver.iter - start) / (now - then) if now > then else 0.0
        most = solver.param.max_iter
        left = f", {_duration((most - solver.iter) / speed)} left" if speed else ""
        line = f"{solver.iter}/{most} ({solver.iter / max(most, 1):.0%}), "
        line += f"loss {solver.window.mean:g}, {speed:.1f} iter/s{left}"
        sys.stderr.write(_CLEAR + line)
        sys.stderr.flush()
        self._shown = True

    def end(self) -> None:
        """Remove the line."""
        self._clear()
        self._log.before_line = None

    def _clear(self) -> None:
        if self._shown:
            sys.stderr.write(_CLEAR)
            self._shown = False


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
