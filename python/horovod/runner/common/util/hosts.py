"""Hosts with slots and the placement of ranks, as Horovod's classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sirtaki.launch.hosts import slots as own


@dataclass
class HostInfo:
    """A host and the number of its slots."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> HostInfo:
        """Parse "name:slots". Raises ValueError."""
        return parse_hosts(host_string)[0]


@dataclass
class SlotInfo:
    """The place of one rank."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int

    def to_response_string(self) -> str:
        """Return the numbers, separated by commas."""
        numbers = (self.rank, self.size, self.local_rank, self.local_size)
        return ",".join(map(str, (*numbers, self.cross_rank, self.cross_size)))


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """Parse "name:slots[,name:slots…]". Raises ValueError."""
    return [HostInfo(host.name, host.slots) for host in own.parse_hosts(hosts_string)]


def parse_host_files(filename: str) -> str:
    """Return the hosts of a hostfile as "name:slots[,name:slots…]". Raises ValueError."""
    return ",".join(f"{_bracketed(h.name)}:{h.slots}" for h in own.read_hostfile(filename))


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def get_host_assignments(
    hosts: Sequence[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """Place ranks, host by host, in all slots up to `max_num_proc`.

    max_num_proc: None for `min_num_proc`. Raises ValueError for fewer slots than `min_num_proc`.
    """
    slots = sum(host.slots for host in hosts)
    size = max(min_num_proc, min(slots, max_num_proc or min_num_proc))
    places = own.allocate([own.Host(host.hostname, host.slots) for host in hosts], size)
    return [
        SlotInfo(s.host, s.rank, s.local_rank, s.cross_rank, s.size, s.local_size, s.cross_size)
        for s in places
    ]
