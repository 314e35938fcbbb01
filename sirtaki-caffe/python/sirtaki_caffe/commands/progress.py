"""A line on the terminal with the progress of training."""

from __future__ import annotations

import sys
import time

from sirtaki_caffe.commands.log import Log
from sirtaki_caffe.solver.solver import Solver

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
