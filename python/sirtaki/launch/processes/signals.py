"""Signals to the launcher: how it hears of them, and what it does."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from sirtaki.launch.output.destination import Waiter
from sirtaki.launch.processes.outcome import PASSED_ON, Outcome, signal_name

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


class Signalled(Protocol):
    """A job that can be signalled."""

    def pause(self) -> None:
        """Stop for a while, as for Ctrl-Z."""

    def pass_on(self, number: int) -> bool:
        """Send a signal to the ranks; False when none runs yet."""

    def end(self, number: int) -> None:
        """Let every rank end, with this signal first: SIGINT or SIGTERM."""

    def kill(self) -> None:
        """End every rank at once."""


def obey(
    signals: SignalWatch,
    outcome: Outcome,
    waiter: Waiter,
    report: Callable[[str], None],
    job: Signalled,
) -> None:
    """Take one signal, if there still is one: who waited to write may have taken it before.

    Ctrl-Z pauses, and what is for the ranks is passed on; the first of the others ends the job, a
    second kills it.
    """
    try:
        number = signals.reader.recv(1)[0]
    except BlockingIOError:
        return
    if number == signal.SIGTSTP:
        job.pause()
    elif number in PASSED_ON and job.pass_on(number):
        report(f"{signal_name(number)} received: passed on to the workers.")
    elif number in (signal.SIGUSR1, signal.SIGUSR2):
        report(f"{signal_name(number)} received: no worker runs yet that could take it.")
    elif outcome.signal_number is None:
        outcome.signal_number = number
        waiter.hurry()
        # First of all, because it may be that nobody reads what we say.
        job.end(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
        report(f"{signal_name(number)} received: terminating all workers (once more to kill them).")
    else:
        job.kill()
