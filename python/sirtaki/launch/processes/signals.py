"""How launcher and agents receive signals."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from typing import Any

from sirtaki.launch.processes.outcome import PASSED_ON

# How long the copies of a signal may take.
_COPY_SECONDS = 0.005
_MOST_SIGNALS = 4096
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP, *PASSED_ON)


class SignalWatch:
    """While entered, turns the signals that we handle into bytes readable at `reader`."""

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        self._previous: dict[int, Any] = {}
        self._previous_wakeup = -1

    def __enter__(self) -> SignalWatch:
        self._writer.setblocking(False)
        self.reader.setblocking(False)
        # Not by the handlers, which Python runs only after a wait has returned.
        descriptor = self._writer.fileno()
        self._previous_wakeup = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
        for number in _SIGNALS:
            # A signal ignored at our start (by nohup, in a shell's background) stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_wakeup)
        self.reader.close()
        self._writer.close()

    def take(self) -> int | None:
        """Return the next signal, None if it was taken meanwhile or is not ours."""
        try:
            number = self.reader.recv(1)[0]
        except BlockingIOError:
            return None
        if number in self._previous:
            return number
        # A signal of our caller's handler, such as asyncio's of SIGCHLD.
        if self._previous_wakeup >= 0:
            with contextlib.suppress(OSError):
                os.write(self._previous_wakeup, bytes([number]))
        return None

    def drop_copies(self, number: int) -> None:
        """Drop further signals of this number that have come with the one that was taken.

        timeout(1) and some shells signal a process, and then its group.
        """
        time.sleep(_COPY_SECONDS)
        with contextlib.suppress(BlockingIOError):
            came = self.reader.recv(_MOST_SIGNALS)
            if others := came.replace(bytes([number]), b""):
                self._writer.send(others)
