"""Ways to an agent: bytes there and back, and whoever has started it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Sequence
from typing import Protocol

from sirtaki.launch.errors import LaunchError

READ_BYTES = 1 << 16
_END_SECONDS = 5.0
Explain = Callable[[int | None, Sequence[str]], str]


class Channel(Protocol):
    """The way to one agent.

    errors: the descriptor of lines for the user, None where they reach the user by themselves.
    """

    errors: int | None

    def open(self, host: str) -> list[int]:
        """Let the agent of a host be started; returns what to read. Raises LaunchError."""

    def read(self, descriptor: int) -> bytes:
        """Return what has arrived, nothing at the end. Raises BlockingIOError."""

    def write(self, data: bytes) -> None:
        """Send all of it, waiting for the other side. Raises OSError."""

    def flush(self, seconds: float) -> None:
        """Wait at most so long until what was written is out of this process."""

    def writing(self) -> contextlib.AbstractContextManager[object]:
        """End our direction, which the agent takes for the end of the job, when left."""

    def wait(self) -> int | None:
        """Wait a little for the end of what has started the agent; returns its exit code."""

    def explain(self, code: int | None, lines: Sequence[str]) -> str:
        """Say why the way has ended before the agent was ready, from the last lines printed."""

    def cut(self) -> None:
        """Break it off at once."""

    def close(self, patiently: bool) -> None:
        """Give everything back; patiently: let the agent end by itself."""


class ProgramChannel:
    """The standard streams of a program that runs an agent elsewhere, such as ssh.

    argv: program and arguments. explain: says why it has ended, see `Channel`.
    """

    def __init__(self, argv: Sequence[str], explain: Explain) -> None:
        self._argv = list(argv)
        self.explain = explain
        self.errors: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def open(self, host: str) -> list[int]:
        """Start the program, in a session of its own, out of Ctrl-C's reach."""
        try:
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchError(
                f"host {host} cannot be reached: {self._argv[0]!r} here: {error.strerror}"
            ) from None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.errors = self._process.stderr.fileno()
        opened = [self._process.stdout.fileno(), self.errors]
        for descriptor in opened:
            os.set_blocking(descriptor, False)
        return opened

    def read(self, descriptor: int) -> bytes:
        """See `Channel`."""
        return os.read(descriptor, READ_BYTES)

    def write(self, data: bytes) -> None:
        """See `Channel`."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def flush(self, seconds: float) -> None:
        """See `Channel`: the program has it."""

    def writing(self) -> contextlib.AbstractContextManager[object]:
        """See `Channel`."""
        assert self._process is not None
        assert self._process.stdin is not None
        return self._process.stdin

    def wait(self) -> int | None:
        """See `Channel`."""
        assert self._process is not None
        try:
            return self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def cut(self) -> None:
        """See `Channel`."""
        if self._process is not None:
            self._process.kill()

    def close(self, patiently: bool) -> None:
        """See `Channel`."""
        if self._process is None:
            return
        if not patiently:
            self._process.kill()
        self.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
