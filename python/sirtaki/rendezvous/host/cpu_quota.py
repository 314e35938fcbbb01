"""The CPUs' worth of time that control groups grant: what `docker --cpus` and Kubernetes set."""

from __future__ import annotations

from pathlib import Path

from sirtaki.rendezvous.host.control_groups import groups_with, own_membership, text_of


def own_quota() -> float | None:
    """Return what this process may use, None without a limit."""
    return read_quota(Path("/sys/fs/cgroup"), own_membership())


def read_quota(mount: Path, membership: str) -> float | None:
    """Return the least that our control groups and those above them grant, None without a limit.

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
    """Read "quota period"; anything else, such as "max 100000" or "-1 100000", is no limit."""
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return float("inf")
    return int(words[0]) / int(words[1])
