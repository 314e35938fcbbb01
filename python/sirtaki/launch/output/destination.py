"""Where output goes: a terminal, a pipe, a file or a notebook; all of it arrives, or it is said."""

from __future__ import annotations

import contextlib
import io
import os
import select
import time
from collections.abc import Callable
from typing import TextIO

from sirtaki.launch.errors import FAILED, LaunchError
from sirtaki.launch.output.colours import takes_colours

Wait = Callable[[int], bool]
# How long a reader who takes nothing is waited for when the job is to end.
_LAST_WORDS_SECONDS = 1.0


def wait_until_writable(descriptor: int) -> bool:
    """Wait for as long as it takes."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    poll.poll()
    return True


class Destination:
    """Text for one stream.

    target: the stream. wait: called with its descriptor before everything that could block; returns
    False when what is left is to be dropped.
    """

    def __init__(self, target: TextIO, wait: Wait = wait_until_writable) -> None:
        self.wait = wait
        self.coloured = takes_colours(target)
        self._target = target
        self._descriptor = _descriptor_of(target)
        self._encoding = target.encoding or "utf-8"

    def write(self, text: str) -> None:
        """Pass the text on; characters that the stream does not have are replaced.

        Raises BrokenPipeError when nobody reads, LaunchError when it cannot be written.
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
        """Show a line, if that is possible."""
        with contextlib.suppress(OSError, LaunchError):
            self.write(message + "\n")

    def _write(self, descriptor: int, data: bytes) -> None:
        # What its owner has printed before comes first.
        self._target.flush()
        rest = memoryview(data)
        while rest:
            if not self.wait(descriptor):
                return
            try:
                rest = rest[os.write(descriptor, rest[: _piece(data, len(data) - len(rest))]) :]
            except BlockingIOError:
                # Others may write there too and have been faster.
                continue


def _piece(data: bytes, start: int) -> int:
    """How many bytes from `start` a writable pipe takes without blocking: whole lines if it can."""
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
    """Waits for those who read the output, and meanwhile obeys signals.

    signals: readable when there is one, None where nobody watches for them. take_signal: takes it.
    """

    def __init__(self, signals: int | None, take_signal: Callable[[], None]) -> None:
        self._signals = signals
        self._take_signal = take_signal
        self._hurry = False
        self._unread = False

    def hurry(self) -> None:
        """From now on do not wait long for readers who take nothing."""
        self._hurry = True

    def wait(self, descriptor: int) -> bool:
        """Wait until the descriptor takes output; False when that is not worth it any more."""
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
