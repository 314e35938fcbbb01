"""Ways to an agent: a socket, and whoever has started it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Sequence
from typing import Protocol

from sirtaki.launch.errors import LaunchError

_END_SECONDS = 5.0
Explain = Callable[[int | None, Sequence[str]], str]


class Channel(Protocol):
    """The way to one agent.

    errors: the descriptor of lines for the user, None where they reach the user by themselves.
    """

    errors: int | None

    def open(self, host: str) -> socket.socket:
        """Let the agent of a host be started; returns where to talk to it. Raises LaunchError."""

    def flush(self, sent: int, seconds: float) -> None:
        """Wait at most so long until all bytes sent so far are out of this process."""

    def wait(self) -> int | None:
        """Wait a little for the end of what has started the agent; returns its exit code."""

    def explain(self, code: int | None, lines: Sequence[str]) -> str:
        """Say why the way has ended before the agent was ready, from the last lines printed."""

    def cut(self) -> None:
        """Break it off at once."""

    def close(self, patiently: bool) -> None:
        """Wait for the end of what has started the agent; patiently: let it end by itself."""


class ProgramChannel:
    """The standard streams of a program that runs an agent elsewhere, such as ssh.

    argv: program and arguments. explain: says why it has ended, see `Channel`.
    """

    def __init__(self, argv: Sequence[str], explain: Explain) -> None:
        self._argv = list(argv)
        self.explain = explain
        self.errors: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def open(self, host: str) -> socket.socket:
        """Start the program, in a session of its own, out of Ctrl-C's reach."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    self._argv,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise LaunchError(
                    f"host {host} cannot be reached: {self._argv[0]!r} here: {error.strerror}"
                ) from None
        assert self._process.stderr is not None
        self.errors = self._process.stderr.fileno()
        os.set_blocking(self.errors, False)
        return ours

    def flush(self, sent: int, seconds: float) -> None:
        """See `Channel`: the program has it."""

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
        if not patiently:
            self.cut()
        if self._process is not None and self._process.stderr is not None:
            self.wait()
            self._process.stderr.close()
