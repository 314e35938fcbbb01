"""The processor cores that this job may use on a host, as the kernel reports them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from sirtaki.rendezvous.host.control_groups import read_quota, text_of
from sirtaki.rendezvous.words import write_numbers

_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", re.ASCII)
_MOST_CPUS = 1 << 16


class Core(NamedTuple):
    """A physical core. cpus: its hardware threads that may be used, in order."""

    cpus: tuple[int, ...]
    node: int
    package: int


class Processors(NamedTuple):
    """The processors that may be used on a host.

    cores: ordered so that those of a NUMA node and of a package are adjacent. quota: the CPU time
    that the control group grants, in CPUs; None without a limit.
    """

    cores: tuple[Core, ...]
    quota: float | None = None

    @property
    def cpus(self) -> frozenset[int]:
        """The CPUs (hardware threads) of all cores."""
        return frozenset(cpu for core in self.cores for cpu in core.cpus)

    @property
    def limit(self) -> float | None:
        """The quota, if it is less than the number of CPUs."""
        return self.quota if self.quota is not None and self.quota < len(self.cpus) else None


def read_processors(sysfs: Path, affinity: Collection[int], membership: str) -> Processors:
    """Return the usable processors; a CPU whose core the kernel does not report counts as a core.

    sysfs: where /sys is. affinity: the CPUs that this process may run on. membership: its control
    groups, as in /proc/self/cgroup.
    """
    nodes = _nodes(sysfs / "devices/system/node")
    cores: list[Core] = []
    left = set(affinity)
    while left:
        cores.append(_core(sysfs / "devices/system/cpu", left.pop(), affinity, nodes))
        left.difference_update(cores[-1].cpus)
    cores.sort(key=lambda core: (core.package, core.node, core.cpus))
    return Processors(tuple(cores), read_quota(sysfs / "fs/cgroup", membership))


def parse_cpus(text: str) -> frozenset[int]:
    """Read "0-3,8" as the kernel writes it. Raises ValueError."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        found = _RANGE.fullmatch(part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last < _MOST_CPUS:
            raise ValueError(f"{text.strip()!r} is not a list of CPUs such as 0-3,8")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def format_cpus(cpus: Iterable[int]) -> str:
    """Write "0-3,8", the reverse of `parse_cpus`."""
    return write_numbers(sorted(cpus))


def _nodes(folder: Path) -> dict[int, int]:
    """Return the NUMA node of each CPU."""
    return {
        cpu: int(node.name.removeprefix("node"))
        for node in folder.glob("node[0-9]*")
        for cpu in _cpus_in(node / "cpulist")
    }


def _core(folder: Path, cpu: int, affinity: Collection[int], nodes: dict[int, int]) -> Core:
    topology = folder / f"cpu{cpu}" / "topology"
    siblings = _cpus_in(topology / "thread_siblings_list") | {cpu}
    package = text_of(topology / "physical_package_id")
    usable = tuple(sorted(siblings.intersection(affinity)))
    return Core(usable, nodes.get(cpu, 0), int(package or 0))


def _cpus_in(file: Path) -> frozenset[int]:
    """Return the CPUs that a file lists; the list of a node without CPUs is empty."""
    text = text_of(file)
    return parse_cpus(text) if text else frozenset()
