"""The CPUs' worth of time that control groups grant: what `docker --cpus` and Kubernetes set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def own_membership() -> str:
    """Return this process's control groups as the kernel writes them."""
    return _text(Path("/proc/self/cgroup"))


def own_quota() -> float | None:
    """Return what this process may use, None without a limit."""
    return read_quota(Path("/sys/fs/cgroup"), own_membership())


def read_quota(mount: Path, membership: str) -> float | None:
    """Return the least that our control groups and those above them grant, None without a limit.

    mount: where the control groups are. membership: ours, as in /proc/self/cgroup.
    """
    granted: list[float] = []
    for line in membership.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            granted += [_share_of_time(_text(each / "cpu.max")) for each in _upwards(mount, path)]
        elif "cpu" in controllers.split(","):
            for folder in _upwards(mount / "cpu", path):
                pair = f"{_text(folder / 'cpu.cfs_quota_us')} {_text(folder / 'cpu.cfs_period_us')}"
                granted.append(_share_of_time(pair))
    least = min(granted, default=float("inf"))
    return None if least == float("inf") else least


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """A control group's folder and those above it; in a container only the root may be there."""
    folder = root / path.strip("/")
    while folder != root:
        yield folder
        folder = folder.parent
    yield root


def _share_of_time(text: str) -> float:
    """Read "quota period"; anything else, such as "max 100000" or "-1 100000", is no limit."""
    words = text.split()
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:
        return float("inf")
    return int(words[0]) / int(words[1])


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
