"""How launcher and agents hear of signals."""

from __future__ import annotations

import signal
import socket
from types import FrameType
from typing import Any

from sirtaki.launch.processes.outcome import PASSED_ON

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP, *PASSED_ON)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Be a handler."""


class SignalWatch:
    """While entered, turns the signals that we obey into bytes readable at `reader`."""

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        self._previous: dict[int, Any] = {}
        self._previous_wakeup = -1

    def __enter__(self) -> SignalWatch:
        self._writer.setblocking(False)
        self.reader.setblocking(False)
        # Not by the handlers: Python runs them only once it is back from waiting.
        descriptor = self._writer.fileno()
        self._previous_wakeup = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
        for number in _SIGNALS:
            # Whoever started us with a signal ignored (nohup, a shell's background) wants it so.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, _do_nothing)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_wakeup)
        self.reader.close()
        self._writer.close()

    def take(self) -> int | None:
        """Return the next signal, None where it has been taken meanwhile."""
        try:
            return self.reader.recv(1)[0]
        except BlockingIOError:
            return None
