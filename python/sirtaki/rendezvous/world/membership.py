"""The members of a world as one value, from which ranks' places and the world's name follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from sirtaki.rendezvous.trust import digests

_UNKNOWN = -1


class Topology(NamedTuple):
    """A rank's place: in the world, on its host, and among ranks of equal ``local_rank``.

    ``local_size`` 0 means that it is unknown which ranks share a host; they determine that when
    they join.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1


class Member(NamedTuple):
    """A process of a world.

    id: its number by its starter. host: the number of its host. local_rank: its place there. The
    last two are -1 until the members have met.
    """

    id: int
    host: int = _UNKNOWN
    local_rank: int = _UNKNOWN


class Membership(NamedTuple):
    """The processes of a world in the order of their ranks: the same value on all of them.

    epoch: increased by the starter whenever it starts processes again.
    """

    epoch: int
    members: tuple[Member, ...]

    @classmethod
    def of(
        cls, epoch: int, ids: Iterable[int], hosts: Iterable[Hashable] | None = None
    ) -> Membership:
        """Make a membership from the members' ids and, if known, values that identify their hosts.

        Hosts are numbered by their lowest ranks, and local ranks follow the order of ranks.
        """
        if hosts is None:
            return cls(epoch, tuple(map(Member, ids)))
        numbers: dict[Hashable, int] = {}
        counts: Counter[int] = Counter()
        members = []
        for number, host_name in zip(ids, hosts, strict=True):
            host = numbers.setdefault(host_name, len(numbers))
            members.append(Member(number, host, counts[host]))
            counts[host] += 1
        return cls(epoch, tuple(members))

    def on(self, hosts: Iterable[Hashable]) -> Membership:
        """Return this membership with values that distinguish the members' hosts."""
        return Membership.of(self.epoch, self.ids, hosts)

    def choose(self, ids: Iterable[int]) -> Membership:
        """Return a world of some of the members, in another order; KeyError for an unknown id."""
        host_of = {member.id: member.host for member in self.members}
        chosen = tuple(ids)
        hosts = [host_of[number] for number in chosen]
        return Membership.of(self.epoch, chosen, None if _UNKNOWN in hosts else hosts)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.members)

    @property
    def ids(self) -> tuple[int, ...]:
        """The member of each rank."""
        return tuple(member.id for member in self.members)

    @property
    def host_of(self) -> list[int]:
        """The host of each rank."""
        return [member.host for member in self.members]

    @property
    def homogeneous(self) -> bool:
        """Whether every host has the same number of ranks."""
        return len(set(Counter(self.host_of).values())) == 1

    @property
    def name(self) -> str:
        """The name in a store's keys, which does not depend on the hosts."""
        plain = self.ids == tuple(range(self.size))
        ids = str(self.size) if plain else digests.sha256(repr(self.ids).encode()).hex()[:16]
        return f"{self.epoch}/{ids}"

    def topology(self, rank: int) -> Topology:
        """Return the place of a rank."""
        own = self.members[rank]
        if own.host == _UNKNOWN:
            return Topology(rank, self.size, 0, 0, 0, 0)
        beside = [member.host for member in self.members if member.local_rank == own.local_rank]
        here = self.host_of.count(own.host)
        cross_rank = beside.index(own.host)
        return Topology(rank, self.size, own.local_rank, here, cross_rank, len(beside))
