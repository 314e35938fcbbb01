"""Decides which processes form the next world of an elastic job, without starting any."""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass, field

from sirtaki.rendezvous.world.elastic import ADDED, REMOVED, Ready


@dataclass
class JobMember:
    """A running process.

    ready: it waits for a place. epoch: of its last world, -1 for none. ends: it reported that it
    ends, so nobody waits for it.
    """

    id: int
    host: str
    place: int
    ready: Ready | None = None
    epoch: int = -1
    ends: bool = False


@dataclass(frozen=True)
class NextWorld:
    """A new world: its members in the order of their ranks, and the processes that leave."""

    epoch: int
    members: list[JobMember]
    fresh: int
    leaving: list[JobMember] = field(default_factory=list)


class Worlds:
    """The processes of a job and its worlds. least, most: members of a world."""

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most
        self.epoch = -1
        self.alive: dict[int, JobMember] = {}
        # Processes that get no place any more, and those of them that have been dismissed.
        self.leaving: set[int] = set()
        self._dismissed: set[int] = set()
        self._order: list[int] = []
        self._updated = -1

    def add(self, process_id: int, host: str, place: int) -> None:
        """Add a started process."""
        self.alive[process_id] = JobMember(process_id, host, place)

    def take(self, ready: Ready) -> None:
        """Record that a process waits for a place."""
        if (member := self.alive.get(ready.id)) is not None:
            member.ready, member.ends = ready, False

    def remove(self, process_id: int) -> JobMember | None:
        """Remove and return a process that has ended."""
        self.leaving.discard(process_id)
        return self.alive.pop(process_id, None)

    @property
    def current(self) -> list[JobMember]:
        """The members of the current world that live, in the order of their ranks."""
        return [self.alive[number] for number in self._order if number in self.alive]

    @property
    def size(self) -> int:
        """The number of members of the current world, of which some may have ended."""
        return len(self._order)

    @property
    def newcomers(self) -> list[JobMember]:
        """The processes that wait for their first place."""
        return [member for member in self.alive.values() if member.epoch < 0 and member.ready]

    @property
    def starting(self) -> list[JobMember]:
        """The processes that have not asked for a place yet."""
        return [m for m in self.alive.values() if m.epoch < 0 and not m.ready and not m.ends]

    @property
    def is_running(self) -> bool:
        """Whether some members of the current world are not waiting for another one."""
        return any(not member.ready and not member.ends for member in self.current)

    def next_world(self, hosts: Container[str]) -> NextWorld | None:
        """Return the next world, None while none is possible.

        hosts: those that the job may use. The survivors of a world keep their order, so rank 0
        always has the state.
        """
        if self.is_running or (self.epoch < 0 and self.starting):
            return None
        members = self._next_members(hosts)
        if len(members) < max(1, self.least):
            return None
        self.epoch += 1
        fresh = sum(member.epoch < 0 for member in members)
        self._order = [member.id for member in members]
        return NextWorld(self.epoch, members, fresh, self.dismiss(hosts, set(self._order)))

    def _next_members(self, hosts: Container[str]) -> list[JobMember]:
        """Return the waiting processes that form the next world.

        If all processes with the state have to leave, they stay until others have it.
        """
        old = [member for member in self.current if member.ready]
        if self.current and not old:
            return []  # all are ending: whether their work is done is not known yet
        new = [member for member in self.newcomers if self._stays(member, hosts)]
        if self._has_heir(hosts):
            return [*(each for each in old if self._stays(each, hosts)), *new][: self.most]
        most = max(self.most, 2)
        return [*old[: max(1, most - len(new))], *new][:most]

    def _has_heir(self, hosts: Container[str]) -> bool:
        """Return whether some members of the current world stay, or it has no members."""
        current = self.current
        return not current or any(self._stays(each, hosts) and not each.ends for each in current)

    def expected(self, hosts: Container[str]) -> list[str]:
        """Return the hosts of the next world's members, if all started processes come."""
        heirs = self._has_heir(hosts)
        old = [m for m in self.current if not m.ends and (not heirs or self._stays(m, hosts))]
        new = [m for m in self.alive.values() if m.epoch < 0 and self._stays(m, hosts)]
        return [member.host for member in (*old, *new)]

    def staying(self, hosts: Container[str]) -> int:
        """Count the processes that stay."""
        return sum(self._stays(member, hosts) for member in self.alive.values())

    def _stays(self, member: JobMember, hosts: Container[str]) -> bool:
        return member.host in hosts and member.id not in self.leaving

    def dismiss(self, hosts: Container[str], kept: Collection[int] = ()) -> list[JobMember]:
        """Return the processes that wait for a place but get none any more, each once.

        hosts: those that the job may use. kept: processes that get a place all the same.
        """
        if not self._has_heir(hosts):
            kept = {*kept, *self._order}
        gone = [
            member
            for member in self.alive.values()
            if member.ready and not self._stays(member, hosts) and member.id not in self._dismissed
            if member.id not in kept
            # Running members may be about to ask for the same world.
            if member.epoch < 0 or not self.is_running
        ]
        told = {member.id for member in gone}
        self._dismissed |= told
        self.leaving |= told
        self._order = [number for number in self._order if number not in told]
        return gone

    @property
    def may_tell(self) -> bool:
        """Whether the members of the running world can still get an update."""
        return self._updated != self.epoch and self.is_running

    def tell(self) -> None:
        """Record that the members get an update other than that of `update`."""
        self._updated = self.epoch

    def placed(self, world: NextWorld) -> None:
        """Record that the members of a new world have their places."""
        for member in world.members:
            member.epoch, member.ready = world.epoch, None

    def update(self, hosts: Container[str]) -> int:
        """Return the update for the members of the running world, once per world; 0: none.

        Newcomers interrupt it only when they are ready and no other is about to be.
        """
        if not self.may_tell:
            return 0
        current = self.current
        usable = [member for member in self.newcomers if self._stays(member, hosts)]
        if self._has_heir(hosts):
            lost = any(not self._stays(member, hosts) for member in current)
            came = bool(usable) and len(current) < self.most and not self.starting
        else:
            lost, came = False, bool(usable)
        bits = (REMOVED if lost else 0) | (ADDED if came else 0)
        if bits:
            self._updated = self.epoch
        return bits
