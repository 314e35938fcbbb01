"""This process's control groups, of both versions, as read from the kernel's files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class ControlGroup(NamedTuple):
    """A group of this process. unified: version 2. root: of its hierarchy. path: below root."""

    unified: bool
    root: Path
    path: str

    def upwards(self) -> Iterator[Path]:
        """Yield its folder and its parents; in a container only the root may exist."""
        folder = self.root / self.path.strip("/")
        # In a container the path may be that of another namespace.
        while folder != self.root and ".." not in folder.parts:
            yield folder
            folder = folder.parent
        yield self.root


def groups_with(mount: Path, membership: str, controller: str) -> Iterator[ControlGroup]:
    """Yield the groups of this process that have a controller.

    mount: where the control groups are. membership: of this process, as in /proc/self/cgroup.
    """
    for line in membership.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            yield ControlGroup(True, mount, path)
        elif controller in controllers.split(","):
            yield ControlGroup(False, mount / controller, path)


def own_membership() -> str:
    """Return this process's control groups as the kernel writes them."""
    return text_of(Path("/proc/self/cgroup"))


def text_of(file: Path) -> str:
    """Return the content of a kernel file, "" if it cannot be read."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def own_quota() -> float | None:
    """Return the CPUs that this process may use, None without a limit."""
    return read_quota(Path("/sys/fs/cgroup"), own_membership())


def read_quota(mount: Path, membership: str) -> float | None:
    """Return the lowest quota of our control groups and their parents, None without a limit.

    See `groups_with`.
    """
    granted = [
        _share_of_time(" ".join(text_of(folder / name) for name in names))
        for group in groups_with(mount, membership, "cpu")
        for names in [["cpu.max"] if group.unified else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]]
        for folder in group.upwards()
    ]
    least = min(granted, default=float("inf"))
    return None if least == float("inf") else least


def _share_of_time(text: str) -> float:
    """Parse "quota period"; anything else, such as "max 100000" or "-1 100000", is no limit."""
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return float("inf")
    return int(words[0]) / int(words[1])
