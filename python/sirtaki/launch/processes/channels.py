"""Channels to agents: a socket, the program that started the agent, and room for their files."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from sirtaki.launch.errors import FAILED, LaunchError

END_SECONDS = 5.0
Explain = Callable[[int | None, Sequence[str]], str]


class Channel(Protocol):
    """The channel to one agent.

    errors: the descriptor of lines for the user, None if the user sees them directly.
    """

    errors: int | None

    def open(self, host: str) -> socket.socket:
        """Start the agent of a host; returns the socket that leads to it. Raises LaunchError."""

    def reached(self) -> None:
        """Record that the agent has answered."""

    def flush(self, sent: int, seconds: float) -> None:
        """Wait at most `seconds` until all bytes sent so far have left this process."""

    def wait(self) -> int | None:
        """Wait briefly for the end of the program that started the agent; returns its exit code."""

    def explain(self, code: int | None, lines: Sequence[str]) -> str:
        """Explain, from the last lines printed, why the channel closed before `reached`."""

    def cut(self) -> None:
        """Break the connection at once."""

    def close(self, patiently: bool) -> None:
        """Wait for the program that started the agent; patiently: let it end by itself."""


class ProgramChannel:
    """The standard streams of a program that runs an agent elsewhere, such as ssh.

    argv: program and arguments. explain: see `Channel`.
    """

    def __init__(self, argv: Sequence[str], explain: Explain) -> None:
        self._argv = list(argv)
        self.explain = explain
        self.errors: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def open(self, host: str) -> socket.socket:
        """Start the program in a session of its own, which Ctrl-C does not reach."""
        with contextlib.ExitStack() as failed:
            try:
                ours, theirs = map(failed.enter_context, socket.socketpair())
                self._process = subprocess.Popen(
                    self._argv,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                raise LaunchError(
                    f"host {host} cannot be reached: {self._argv[0]!r} here: {error.strerror}"
                ) from None
            failed.pop_all()
        theirs.close()
        assert self._process.stderr is not None
        self.errors = self._process.stderr.fileno()
        os.set_blocking(self.errors, False)
        return ours

    def reached(self) -> None:
        """See `Channel`: nothing waits for it."""

    def flush(self, sent: int, seconds: float) -> None:
        """See `Channel`: the program has the bytes already."""

    def wait(self) -> int | None:
        """See `Channel`."""
        assert self._process is not None
        try:
            return self._process.wait(END_SECONDS)
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


STREAMS_OF_A_RANK = 2
# The channel to an agent over ssh: two pairs of ends, and what ssh itself says.
FILES_OF_A_HOST = 5
_MARGIN = 32


def file_limit() -> int:
    """Return the soft limit of open files of this process."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@contextlib.contextmanager
def room_for_files(count: int) -> Iterator[None]:
    """Let this process open `count` more files than now. Raises LaunchError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(list(Path("/proc/self/fd").iterdir())) + count + _MARGIN
    if soft == resource.RLIM_INFINITY or needed <= soft:
        yield
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise LaunchError(
            f"the ranks of this job need {needed} open files on {os.uname().nodename}, and {hard} "
            "are allowed there: raise the limit (ulimit -n), or start fewer ranks on this host",
            FAILED,
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
