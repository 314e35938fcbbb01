"""Writes output to a terminal, a pipe, a file or a notebook, completely or with an error."""

from __future__ import annotations

import contextlib
import io
import os
import select
import time
from collections.abc import Callable
from typing import TextIO

from sirtaki.launch.errors import FAILED, LaunchError

Wait = Callable[[int], bool]
# How long to wait, at the end of the job, for a reader that does not read.
_LAST_WORDS_SECONDS = 1.0


def wait_until_writable(descriptor: int) -> bool:
    """Wait, without a limit, until the descriptor is writable."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    poll.poll()
    return True


class Destination:
    """Text for one stream.

    target: the stream. wait: called with its descriptor before each write that could block; returns
    False when the rest has to be dropped.
    """

    def __init__(self, target: TextIO, wait: Wait = wait_until_writable) -> None:
        self.wait = wait
        self.coloured = takes_colours(target)
        self._target = target
        self._descriptor = _descriptor_of(target)
        self._encoding = target.encoding or "utf-8"

    def write(self, text: str) -> None:
        """Write the text; characters that the stream cannot encode are replaced.

        Raises BrokenPipeError when nobody reads, LaunchError when the stream cannot be written.
        """
        data = text.encode(self._encoding, "replace")
        try:
            if self._descriptor is None:
                self._target.write(data.decode(self._encoding))
                self._target.flush()
            else:
                self._write(self._descriptor, data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise LaunchError(f"cannot write the output: {error.strerror}", FAILED) from error

    def say(self, message: str) -> None:
        """Write a line, if possible."""
        with contextlib.suppress(OSError, LaunchError):
            self.write(message + "\n")

    def _write(self, descriptor: int, data: bytes) -> None:
        # Buffered output of the stream's owner comes first.
        self._target.flush()
        rest = memoryview(data)
        while rest:
            if not self.wait(descriptor):
                return
            try:
                rest = rest[os.write(descriptor, rest[: _piece(data, len(data) - len(rest))]) :]
            except BlockingIOError:
                # Another writer of the same pipe may have been faster.
                continue


def _piece(data: bytes, start: int) -> int:
    """Return how many bytes from `start` fit a writable pipe: whole lines if possible."""
    end = start + select.PIPE_BUF
    if end >= len(data):
        return len(data) - start
    return (data.rfind(b"\n", start, end) + 1 or end) - start


def _descriptor_of(target: TextIO) -> int | None:
    """Return the descriptor behind a stream; None when something else may be in between."""
    if not isinstance(target, io.TextIOWrapper):
        return None
    file = getattr(target.buffer, "raw", target.buffer)
    return file.fileno() if isinstance(file, io.FileIO) else None


class Waiter:
    """Waits for the readers of the output, and handles signals meanwhile.

    signals: readable when a signal is pending, None if nobody watches. take_signal: handles one.
    """

    def __init__(self, signals: int | None, take_signal: Callable[[], None]) -> None:
        self._signals = signals
        self._take_signal = take_signal
        self._hurry = False
        self._unread = False

    def hurry(self) -> None:
        """Wait only briefly, from now on, for readers that do not read."""
        self._hurry = True

    def wait(self, descriptor: int) -> bool:
        """Wait until the descriptor is writable; False when the wait was given up."""
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        if self._signals is not None:
            poll.register(self._signals, select.POLLIN)
        began = time.monotonic()
        while True:
            ready = [found for found, _ in poll.poll(self._patience_ms(began))]
            if self._signals in ready:
                self._take_signal()
                began = time.monotonic()
            elif ready:
                return True
            else:
                self._unread = True
                return False

    def _patience_ms(self, began: float) -> float | None:
        if not self._hurry:
            return None
        left = 0.0 if self._unread else began + _LAST_WORDS_SECONDS - time.monotonic()
        return max(0.0, left) * 1000


# Adjacent ranks differ; red and yellow are left for problems.
_OF_RANKS = (36, 35, 34, 32, 96, 95, 94, 92)
_OF_FINDINGS = {True: 32, False: 33}


def takes_colours(stream: TextIO) -> bool:
    """Return whether a stream is a colour terminal and its user wants colours (no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def in_colour_of_rank(rank: int, text: str) -> str:
    """Return the text in the colour of a rank."""
    return _coloured(_OF_RANKS[rank % len(_OF_RANKS)], text)


def in_colour_of_finding(works: bool, text: str) -> str:
    """Return the text in green if something works, in yellow if not."""
    return _coloured(_OF_FINDINGS[works], text)


def _coloured(number: int, text: str) -> str:
    return f"\x1b[{number}m{text}\x1b[0m"
