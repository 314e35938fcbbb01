"""Limits of this process, its user and its control groups that can end or slow jobs."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from sirtaki.doctor.finding import NOTE, OK, WARNING, Finding
from sirtaki.rendezvous.host.control_groups import groups_with, read_quota, text_of
from sirtaki.rendezvous.host.out_of_memory import read_killed

# A PyTorch rank with loaders that share tensors as descriptors opens hundreds of files.
_FEW_FILES = 1024
_ENOUGH_FILES = 4096
# A rank has its own threads and those of BLAS, loaders and the framework.
_FEW_TASKS = 1024
_NEARLY_FULL = 0.9
_MUCH_THROTTLED = 0.1
_UNLIMITED = 1 << 60
_LIMITS = "/etc/security/limits.conf, the unit of the service, or --ulimit of the container"


def findings(proc: Path, sysfs: Path) -> list[Finding]:
    """Check all limits. proc, sysfs: where /proc and /sys are."""
    membership = text_of(proc / "self/cgroup")
    groups = sysfs / "fs/cgroup"
    soft = {name: resource.getrlimit(kind) for name, kind in _KINDS.items()}
    used = tasks_of(proc, os.getuid())
    return [
        open_files(*soft["nofile"]),
        locked_memory(soft["memlock"][0], any((sysfs / "class/infiniband").glob("*"))),
        processes(soft["nproc"][0], used, membership, groups, os.getuid() == 0),
        descriptors(text_of(proc / "sys/fs/file-nr")),
        cpu_group(groups, membership, len(os.sched_getaffinity(0))),
        memory_group(groups, membership),
    ]


_KINDS = {
    "nofile": resource.RLIMIT_NOFILE,
    "memlock": resource.RLIMIT_MEMLOCK,
    "nproc": resource.RLIMIT_NPROC,
}


def open_files(soft: int, hard: int) -> Finding:
    """Judge `ulimit -n`."""
    what = f"a process may open {shown(soft)} files, and raise that to {shown(hard)} (ulimit -n)"
    if not limited(soft) or soft >= _ENOUGH_FILES:
        return Finding("ulimit nofile", OK, what)
    can = not limited(hard) or hard >= _ENOUGH_FILES
    fix = f"ulimit -n {_ENOUGH_FILES}" if can else f"raise nofile in {_LIMITS}"
    level = WARNING if soft < _FEW_FILES else NOTE
    return Finding("ulimit nofile", level, f"{what}; loaders with many workers need more", fix)


def locked_memory(soft: int, infiniband: bool) -> Finding:
    """Judge `ulimit -l`, which matters for network cards with direct memory access."""
    amount = f"{soft >> 10} KiB" if limited(soft) else "any amount"
    what = f"a process may lock {amount} of memory (ulimit -l)"
    if not limited(soft) or not infiniband:
        return Finding("ulimit memlock", OK, what)
    return Finding(
        "ulimit memlock",
        WARNING,
        f"{what}; NCCL, UCX and MPI lock what they send over InfiniBand",
        f"set memlock to unlimited in {_LIMITS}",
    )


def processes(soft: int, used: int, membership: str, groups: Path, root: bool) -> Finding:
    """Judge the limits of threads: `ulimit -u` (not for root), and the control group's."""
    check = "ulimit nproc"
    limits = [] if root or not limited(soft) else [(soft - used, f"{soft} a user (ulimit -u)")]
    for folder in folders(groups, membership, "pids"):
        most = number_of(folder / "pids.max")
        if most is not None:
            left = most - (number_of(folder / "pids.current") or 0)
            limits.append((left, f"{most} in the control group"))
    if not limits:
        return Finding(check, OK, f"any number of threads may run; {used} are this user's")
    left, limit = min(limits)
    what = f"{max(0, left)} more threads may be started, of {limit}"
    if left >= _FEW_TASKS:
        return Finding(check, OK, what)
    fix = f"raise nproc in {_LIMITS}; in a container --pids-limit"
    return Finding(
        check, WARNING, f"{what}; a rank has dozens, and does not start without them", fix
    )


def descriptors(file_nr: str) -> Finding:
    """Judge how many files are open on the whole machine, from /proc/sys/fs/file-nr."""
    check, words = "open descriptors", file_nr.split()
    if len(words) != 3 or not all(word.isdecimal() for word in words):
        return Finding(check, NOTE, "the kernel does not tell how many files are open")
    used, most = int(words[0]) - int(words[1]), int(words[2])
    what = f"{used} files are open on this machine, of {most}"
    if used <= most * _NEARLY_FULL:
        return Finding(check, OK, what)
    return Finding(
        check, WARNING, what, "find the processes that hold them (lsof), or raise fs.file-max"
    )


def cpu_group(groups: Path, membership: str, cpus: int) -> Finding:
    """Judge the CPU time that control groups grant, and how often it ran out."""
    check, quota = "cgroup cpu", read_quota(groups, membership)
    if quota is None or quota >= cpus:
        return Finding(check, OK, f"no control group limits the {cpus} CPUs")
    what = f"the control group grants {quota:g} of {cpus} CPUs"
    throttled = max(throttling(folder) for folder in folders(groups, membership, "cpu"))
    if throttled <= _MUCH_THROTTLED and quota >= 1:
        return Finding(check, NOTE, f"{what}; the launcher gives its ranks threads for that many")
    return Finding(
        check,
        WARNING,
        f"{what}, and has stopped its processes in {throttled:.0%} of the periods",
        "raise it (docker --cpus, resources.limits.cpu of a pod), or start fewer ranks and threads",
    )


def throttling(folder: Path) -> float:
    """Return the share of its periods in which a control group had no CPU time left."""
    words = fields(text_of(folder / "cpu.stat"))
    periods, throttled = words.get("nr_periods", 0), words.get("nr_throttled", 0)
    return throttled / periods if periods else 0.0


def memory_group(groups: Path, membership: str) -> Finding:
    """Judge the memory that control groups grant, the rest of it, and whether it ran out."""
    check = "cgroup memory"
    found = [
        (limit, _used(folder))
        for folder in folders(groups, membership, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (limit := number_of(folder / name)) is not None and limit < _UNLIMITED
    ]
    if not found:
        return Finding(check, OK, "no control group limits memory")
    limit, used = min(found, key=lambda pair: pair[0] - pair[1])
    what = f"the control group may have {mib(limit)}, of which {mib(used)} are in use"
    kills = sum(each.kills for each in read_killed(groups, membership))
    if kills:
        what += f"; the kernel has killed {kills} of its processes because memory ran out"
    elif used <= limit * _NEARLY_FULL:
        return Finding(check, NOTE, what)
    fix = "raise it (docker --memory, resources.limits.memory of a pod), or start fewer ranks here"
    return Finding(check, WARNING, what, fix)


def _used(folder: Path) -> int:
    """Return the bytes that cannot be reclaimed: without the page cache."""
    used = number_of(folder / "memory.current")
    if used is None:
        used = number_of(folder / "memory.usage_in_bytes") or 0
    stat = fields(text_of(folder / "memory.stat"))
    return max(0, used - stat.get("total_inactive_file", stat.get("inactive_file", 0)))


def folders(groups: Path, membership: str, controller: str) -> list[Path]:
    """Return the folders of our control groups with a controller, and of their parents."""
    found = groups_with(groups, membership, controller)
    return [folder for group in found for folder in group.upwards()]


def tasks_of(proc: Path, user: int) -> int:
    """Count the threads of a user."""
    total = 0
    for status in proc.glob("[0-9]*/status"):
        found = dict(line.split(":", 1) for line in text_of(status).splitlines() if ":" in line)
        if found.get("Uid", "").split()[:1] == [str(user)]:
            total += int(found.get("Threads", "0"))
    return total


def fields(text: str) -> dict[str, int]:
    """Parse lines "name number"; skip all others."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def number_of(file: Path) -> int | None:
    """Return the number in a kernel file; None for "max" and any other text."""
    words = text_of(file).split()
    return int(words[0]) if len(words) == 1 and words[0].isdecimal() else None


def limited(value: int) -> bool:
    """Return whether a limit of `resource` is not infinite."""
    return value != resource.RLIM_INFINITY


def shown(value: int) -> str:
    """Format a limit."""
    return str(value) if limited(value) else "any number of"


def mib(count: int) -> str:
    """Format a number of bytes."""
    return f"{count >> 20} MiB"
