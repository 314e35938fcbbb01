"""What the kernel reports about a process."""

from __future__ import annotations

import os
from typing import NamedTuple


class Stat(NamedTuple):
    """Fields of `/proc/PID/stat`.

    Attributes:
        state: The letter of the process's state; "": it is gone.
        parent: The process id of its parent.
        cpu_seconds: The processor time that it has used.
        started: When it was started, in the kernel's ticks.
    """

    state: str = ""
    parent: int = 0
    cpu_seconds: float = 0.0
    started: str = ""


def stat_of(pid: int | str) -> Stat:
    """Return the kernel's fields of a process."""
    try:
        # Without importing pathlib. The command in parentheses may contain any character.
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].decode().split()
        ticks = int(fields[11]) + int(fields[12])
        return Stat(fields[0], int(fields[1]), ticks / os.sysconf("SC_CLK_TCK"), fields[19])
    except (OSError, ValueError, IndexError):
        return Stat()
