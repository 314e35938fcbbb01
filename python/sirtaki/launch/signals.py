"""Signals to the launcher: how it hears of them, and what it does."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

from sirtaki.launch.outcome import Outcome, signal_name
from sirtaki.launch.sink import Waiter

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Be a handler."""


class SignalWatch:
    """While entered, turns SIGINT, SIGTERM, SIGHUP and SIGTSTP into bytes readable at `reader`."""

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        self._previous: dict[int, Any] = {}
        self._previous_wakeup = -1

    def __enter__(self) -> SignalWatch:
        self._writer.setblocking(False)
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


def obey(
    signals: SignalWatch,
    outcome: Outcome,
    waiter: Waiter,
    report: Callable[[str], None],
    pause: Callable[[], None],
    end: Callable[[], None],
    kill: Callable[[], None],
) -> None:
    """Take one signal: Ctrl-Z pauses, the first of the others ends the job, a second kills it."""
    number = signals.reader.recv(1)[0]
    if number == signal.SIGTSTP:
        pause()
    elif outcome.signal_number is None:
        outcome.signal_number = number
        waiter.hurry()
        # First of all, because it may be that nobody reads what we say.
        end()
        report(f"{signal_name(number)} received: terminating all workers (once more to kill them).")
    else:
        kill()
