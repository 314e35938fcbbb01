"""The process that started all ranks of a host, where their starter gives them no other name."""

from __future__ import annotations

import os
from pathlib import Path

from sirtaki.rendezvous.world.started_by import Start


def ancestor(start: Start) -> str:
    """Name the process that the ranks of a host have in common.

    That is the first one above this rank without the rank's own variable: a wrapper script that the
    starter started as a rank has it too. Raises ValueError when that process cannot be seen.
    """
    if not Path("/proc/self/stat").exists():
        raise ValueError(
            f"rank {start.topology.rank}: /proc is not mounted, so what started the ranks "
            f"({start.by}) cannot be seen: mount it (mount -t proc proc /proc), or set "
            "SIRTAKI_RENDEZVOUS=file:/folder, a folder of this job alone"
        )
    pid = os.getppid()
    while _has(pid, start.mark):
        pid = _parent(pid)
    if pid == 0:
        raise ValueError(
            f"rank {start.topology.rank}: what started the ranks ({start.by}) is in another PID "
            "namespace: set SIRTAKI_RENDEZVOUS=file:/folder, a folder of this job alone"
        )
    return f"started by {pid} at {_fields(pid)[19]}"


def _has(pid: int, mark: str) -> bool:
    """Whether a process was started with this variable."""
    try:
        return bool(mark) and mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(
            b"\0"
        )
    except OSError:
        # Another user's, as a scheduler's starter is, or another namespace's.
        return False


def _parent(pid: int) -> int:
    return int(_fields(pid)[1])


def _fields(pid: int) -> list[str]:
    """Read what the kernel says of a process, from its state on."""
    # The name in parentheses before may contain anything.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
