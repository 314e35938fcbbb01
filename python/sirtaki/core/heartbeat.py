"""The file in memory by which a process of an elastic job and its guardian know of each other.

The engine's watcher writes the time into it now and then, without the GIL. The guardian, who has
made the file, ends the process when the time stays the same, and says there that it does. Behind
that stands where the last checkpoint is, which the guardian says when the launcher is gone.
"""

from __future__ import annotations

import os
import re

_NAME = "/memfd:sirtaki-heartbeat"
_IN_MEMORY = re.compile(r"/proc/[0-9]+/fd/([0-9]{1,9})")
# Behind the time of the last beat.
_ENDING_AT = 8
_CHECKPOINT_AT = 16


class _Process:
    descriptor = -1


def descriptor(path: str) -> int:
    """Open the file, once; -1 where there is none.

    Args:
        path: Of the guardian's descriptor, which is read as our own when we have inherited it.
    """
    if _Process.descriptor < 0 and (found := _IN_MEMORY.fullmatch(path)) is not None:
        number = int(found[1])
        _Process.descriptor = number if _is_heartbeat(number) else _opened(path)
    return _Process.descriptor


def is_ending() -> bool:
    """Tell whether the guardian has begun to end this process."""
    return _Process.descriptor >= 0 and os.pread(_Process.descriptor, 1, _ENDING_AT) == b"\1"


def write_checkpoint(text: str) -> None:
    """Let the guardian know where the last checkpoint is."""
    if _Process.descriptor >= 0:
        data = text.encode()
        os.ftruncate(_Process.descriptor, _CHECKPOINT_AT + len(data))
        os.pwrite(_Process.descriptor, data, _CHECKPOINT_AT)


def _is_heartbeat(number: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}").startswith(_NAME)  # noqa: PTH115
    except OSError:
        return False


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return -1
