"""What the kernel says of a process's threads and of this machine's cores."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

_NANO = 1e-9


def scheduled(pid: int) -> dict[str, Any]:
    """Return what a process and its machine have done so far, as JSON has it.

    Args:
        pid: Of the process.

    Returns:
        Seconds: ``cpu`` of its threads on a core, ``queued`` of the thread that was ready for
        longest without one, ``awake`` of its main thread either, ``busy`` of all cores of the
        machine; and ``cores``, how many this process may use.
    """
    threads = {}
    for folder in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        threads[int(folder.name)] = schedstat(_text(folder / "schedstat"))
    return {
        "cpu": sum(running for running, _ in threads.values()),
        "queued": max((queued for _, queued in threads.values()), default=0.0),
        "awake": sum(threads.get(pid, (0.0, 0.0))),
        "busy": _busy(),
        "cores": len(os.sched_getaffinity(0)),
    }


def schedstat(text: str) -> tuple[float, float]:
    """Read the seconds on a core and ready without one from a schedstat file."""
    words = text.split()
    if len(words) < 2 or not all(word.isdecimal() for word in words[:2]):
        return 0.0, 0.0
    return int(words[0]) * _NANO, int(words[1]) * _NANO


def _busy() -> float:
    """Seconds of all cores since the start that were not idle."""
    words = _text(Path("/proc/stat")).partition("\n")[0].split()
    with contextlib.suppress(ValueError, IndexError):
        user, nice, system, _idle, _wait, irq, soft = map(int, words[1:8])
        return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
