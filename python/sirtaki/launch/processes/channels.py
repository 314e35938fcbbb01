"""Channels to agents: a socket, the program that started the agent, and room for their files."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from sirtaki.launch.errors import FAILED, LaunchError

Explain = Callable[[int | None, Sequence[str]], str]


class Channel(Protocol):
    """The channel to one agent.

    errors: the descriptor of lines for the user, None if the user sees them directly.
    """

    errors: int | None = None

    def open(self, host: str) -> socket.socket:
        """Start the agent of a host; returns the socket that leads to it. Raises LaunchError."""

    def reached(self) -> None:
        """Record that the agent has answered."""
        return

    def flush(self, sent: int, seconds: float) -> None:
        """Wait at most `seconds` until all bytes sent so far have left this process."""
        return

    def wait(self) -> int | None:
        """Wait briefly for the end of the program that started the agent; returns its exit code."""
        return None

    def explain(self, code: int | None, lines: Sequence[str]) -> str:
        """Explain, from the last lines printed, why the channel closed before `reached`."""

    def cut(self) -> None:
        """Break the connection at once."""

    def close(self, patiently: bool) -> None:
        """Wait for the program that started the agent; patiently: let it end by itself."""
        return


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
