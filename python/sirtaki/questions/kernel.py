"""What the kernel reports about a process, its threads and this machine's cores."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from sirtaki.rendezvous.host.control_groups import text_of
from sirtaki.rendezvous.host.presence import stat_of

_NANO = 1e-9


def traced(pid: int) -> bool:
    """Return whether a debugger holds a process."""
    with contextlib.suppress(OSError):
        return status(pid).get("TracerPid", "0") != "0"
    return False


def done(pid: int) -> tuple[float, int]:
    """Return a process's seconds of processor time, and bytes read and written, so far."""
    moved = 0
    with contextlib.suppress(OSError, ValueError, KeyError):
        io = _fields(Path(f"/proc/{pid}/io"))
        moved = int(io["rchar"]) + int(io["wchar"])
    return stat_of(pid).cpu_seconds, moved


def resident(pid: int) -> int | None:
    """Return a process's resident bytes, None if they cannot be read."""
    with contextlib.suppress(OSError, ValueError, LookupError):
        return int(status(pid)["VmRSS"].split()[0]) << 10
    return None


def has_signal(process: int | str, mask: str, number: int) -> bool:
    """Return whether a signal is in a mask, such as SigCgt, which has the handled signals."""
    with contextlib.suppress(OSError, ValueError, LookupError):
        return bool(int(status(process)[mask], 16) >> (number - 1) & 1)
    return False


def status(process: int | str) -> dict[str, str]:
    """Return the fields of /proc/PROCESS/status. Raises OSError."""
    return _fields(Path(f"/proc/{process}/status"))


def scheduled(pid: int) -> dict[str, Any]:
    """Return scheduling times of a process and its machine so far, for JSON.

    Args:
        pid: Of the process.

    Returns:
        In seconds: ``cpu``, time of its threads on a core; ``queued``, time of the thread that was
        ready without a core for longest; ``awake``, the sum of both for its main thread; ``busy``,
        of all cores of the machine. And ``cores``: how many this process may use.
    """
    threads = {}
    for folder in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        threads[int(folder.name)] = schedstat(text_of(folder / "schedstat"))
    return {
        "cpu": sum(running for running, _ in threads.values()),
        "queued": max((queued for _, queued in threads.values()), default=0.0),
        "awake": sum(threads.get(pid, (0.0, 0.0))),
        "busy": busy_seconds(),
        "cores": len(os.sched_getaffinity(0)),
    }


def schedstat(text: str) -> tuple[float, float]:
    """Parse the seconds on a core and ready without one from a schedstat file."""
    words = text.split()
    if len(words) < 2 or not all(word.isdecimal() for word in words[:2]):
        return 0.0, 0.0
    return int(words[0]) * _NANO, int(words[1]) * _NANO


def busy_seconds() -> float:
    """Return the seconds of all cores since the machine's start that were not idle."""
    words = text_of(Path("/proc/stat")).partition("\n")[0].split()
    with contextlib.suppress(ValueError, IndexError):
        user, nice, system, _idle, _wait, irq, soft = map(int, words[1:8])
        return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _fields(file: Path) -> dict[str, str]:
    lines = file.read_text(errors="replace").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs}
