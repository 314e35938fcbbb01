"""A status line on a terminal with what a job waits for before its ranks print."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.output.destination import Destination

# A job that starts sooner needs no line.
_FIRST_SECONDS = 0.7
_AGAIN_SECONDS = 0.25
_ERASE_REST = "\x1b[K"
_COLUMNS = 80


class Progress:
    """A line shown until a rank prints, all have joined, or the job ends; `shown`: whether it is.

    stderr: shows the line if it is a terminal. ranks, hosts: how many the job has. joined: returns
    how many ranks have called `init()`, or in a job of several hosts, on how many hosts all have.
    """

    def __init__(
        self,
        stderr: TextIO | None = None,
        ranks: int = 1,
        hosts: int = 1,
        joined: Callable[[], int] = int,
    ) -> None:
        self._ranks = ranks
        self._hosts = hosts
        self._joined = joined
        self._begin = time.monotonic()
        self._due = self._begin + _FIRST_SECONDS
        self.shown = False
        self._terminal = -1
        if stderr is not None and _is_terminal(stderr) and ranks > 1:
            self._terminal = stderr.fileno()
            self._line = Destination(stderr, _takes_output)

    def due(self) -> list[float]:
        """Return when (time.monotonic()) `update` has to be called, if ever."""
        return [self._due] if self._terminal >= 0 else []

    def update(self, absent: Sequence[str]) -> None:
        """Show what the job waits for, if it is time. absent: the hosts that have not answered."""
        now = time.monotonic()
        if self._terminal < 0 or now < self._due:
            return
        self._due = now + _AGAIN_SECONDS
        joined = 0 if absent else self._joined()
        if joined == (self._hosts if self._hosts > 1 else self._ranks):
            self.end()
        elif _in_foreground(self._terminal):
            self._show(f"{self._text(absent, joined)} ({now - self._begin:.0f} s)")
            self.shown = True

    def hide(self) -> None:
        """Remove the line, so that another can be printed."""
        if self.shown:
            self.shown = False
            self._show("")

    def end(self) -> None:
        """Remove the line for good."""
        self.hide()
        self._terminal = -1

    def _show(self, text: str) -> None:
        # The loss of the terminal is handled with its signal (SIGHUP).
        with contextlib.suppress(OSError, LaunchError):
            columns = os.get_terminal_size(self._terminal).columns or _COLUMNS
            self._line.write(f"\r{text[: columns - 1]}{_ERASE_REST}")

    def _text(self, absent: Sequence[str], joined: int) -> str:
        if absent:
            return f"waiting for {len(absent)} of {self._hosts} hosts: {', '.join(absent)}"
        if not joined:
            return f"starting {self._ranks} ranks, no output yet"
        if self._hosts > 1:
            return f"all ranks of {joined} of {self._hosts} hosts are in init()"
        return f"{joined} of {self._ranks} ranks are in init()"


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _takes_output(terminal: int) -> bool:
    """Return whether writing would not block, as it does after Ctrl-S."""
    poll = select.poll()
    poll.register(terminal, select.POLLOUT)
    return bool(poll.poll(0))


def _in_foreground(terminal: int) -> bool:
    """Return whether we are in the foreground: in the background a shell writes to the terminal."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        # Not our session's terminal, so no shell of the session writes there.
        return True
