"""The limit of open files, which a process that serves many ranks has to raise."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from sirtaki.launch.errors import FAILED, LaunchError

STREAMS_OF_A_RANK = 2
# The channel to an agent over ssh: two pairs of ends, and what ssh itself says.
FILES_OF_A_HOST = 5
_MARGIN = 32


def limit() -> int:
    """Return the soft limit of open files of this process."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@contextlib.contextmanager
def room_for(count: int) -> Iterator[None]:
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
