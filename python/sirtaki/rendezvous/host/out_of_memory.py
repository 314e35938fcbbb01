"""Processes that the kernel killed because our control group ran out of memory."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sirtaki.rendezvous.host.control_groups import groups_with, own_membership

_UNLIMITED = 1 << 60
# By whether the group is of version 2.
_FILES = {
    True: ("memory.events", "memory.max"),
    False: ("memory.oom_control", "memory.limit_in_bytes"),
}


class Killed(NamedTuple):
    """How many processes of a control group the kernel has killed so far, and its limit in bytes.

    limit: None if the group has none of its own.
    """

    group: str
    kills: int
    limit: int | None

    def __str__(self) -> str:
        limit = "" if self.limit is None else f", which may have {self.limit / 2**20:.0f} MiB"
        return f"the control group {self.group}{limit}"


def own_killed() -> list[Killed]:
    """Return the counts of this process's control groups, of both versions."""
    return read_killed(Path("/sys/fs/cgroup"), own_membership())


def read_killed(mount: Path, membership: str) -> list[Killed]:
    """Return the counts of our control groups, [] if the kernel does not report them.

    See `groups_with`.
    """
    found = []
    for group in groups_with(mount, membership, "memory"):
        events, limit = _FILES[group.unified]
        own, *_, root = [*group.upwards(), group.root]
        folder = next((each for each in (own, root) if (each / events).exists()), None)
        if folder is not None:
            words = dict(line.split() for line in (folder / events).read_text().splitlines())
            found.append(Killed(group.path, int(words.get("oom_kill", 0)), _limit(folder / limit)))
    return found


def newly_killed(before: list[Killed]) -> Killed | None:
    """Return a control group in which the kernel has killed a process since `before`."""
    counts = {each.group: each.kills for each in before}
    try:
        now = own_killed()
    except (OSError, ValueError):
        return None
    return next((each for each in now if each.kills > counts.get(each.group, each.kills)), None)


def _limit(file: Path) -> int | None:
    try:
        limit = int(file.read_text())
    except (OSError, ValueError):  # "max"
        return None
    return limit if limit < _UNLIMITED else None
