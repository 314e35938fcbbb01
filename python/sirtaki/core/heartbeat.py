"""The in-memory file shared by a process of an elastic job and its guardian.

The engine's watcher regularly writes the time into it, without the GIL. The guardian creates the
file, ends the process when the time stops changing, and marks the file then. The location of the
last checkpoint follows; the guardian reports it if the launcher is gone.
"""

from __future__ import annotations

import os
import re

_NAME = "/memfd:sirtaki-heartbeat"
_IN_MEMORY = re.compile(r"/proc/[0-9]+/fd/([0-9]{1,9})")
# After the time of the last beat.
_ENDING_AT = 8
_CHECKPOINT_AT = 16


class _Process:
    descriptor = -1


def descriptor(path: str) -> int:
    """Open the file once; return its descriptor, or -1 without a file.

    Args:
        path: The path of the guardian's descriptor; an inherited one is used directly.
    """
    if _Process.descriptor < 0 and (found := _IN_MEMORY.fullmatch(path)) is not None:
        number = int(found[1])
        _Process.descriptor = number if _is_heartbeat(number) else _opened(path)
    return _Process.descriptor


def is_ending() -> bool:
    """Return whether the guardian has begun to end this process."""
    return _Process.descriptor >= 0 and os.pread(_Process.descriptor, 1, _ENDING_AT) == b"\1"


def write_checkpoint(text: str) -> None:
    """Record the location of the last checkpoint for the guardian."""
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
