"""Which processes form the next world of an elastic job: decisions alone, without processes."""

from __future__ import annotations

from collections.abc import Container

from sirtaki.records import dataclass, field
from sirtaki.rendezvous.world.elastic import ADDED, REMOVED, Ready


@dataclass
class JobMember:
    """A process that runs. ready: it waits for a place. epoch: of its last world, -1 for none."""

    id: int
    host: str
    place: int
    ready: Ready | None = None
    epoch: int = -1


@dataclass(frozen=True)
class NextWorld:
    """A new world: its members in the order of their ranks, and who has no place in any."""

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
        # Who is to have no place any more; and who of them has been told.
        self.leaving: set[int] = set()
        self._dismissed: set[int] = set()
        self._order: list[int] = []
        self._updated = -1

    def add(self, process_id: int, host: str, place: int) -> None:
        """A process is started."""
        self.alive[process_id] = JobMember(process_id, host, place)

    def take(self, ready: Ready) -> None:
        """A process waits for a place."""
        if (member := self.alive.get(ready.id)) is not None:
            member.ready = ready

    def remove(self, process_id: int) -> JobMember | None:
        """A process has ended; returns what it was."""
        self.leaving.discard(process_id)
        return self.alive.pop(process_id, None)

    @property
    def current(self) -> list[JobMember]:
        """The members of the current world that live, in the order of their ranks."""
        return [self.alive[number] for number in self._order if number in self.alive]

    @property
    def newcomers(self) -> list[JobMember]:
        """Those who wait for their first place."""
        return [member for member in self.alive.values() if member.epoch < 0 and member.ready]

    @property
    def starting(self) -> list[JobMember]:
        """Those who have not asked for a place yet."""
        return [m for m in self.alive.values() if m.epoch < 0 and not m.ready]

    @property
    def is_running(self) -> bool:
        """Whether some members of the current world do not wait for another one."""
        return any(not member.ready for member in self.current)

    def next_world(self, hosts: Container[str], least: int | None = None) -> NextWorld | None:
        """Return the next world, None while there can be none.

        hosts: those that the job may use. least: members that it needs, default those of any world.
        The survivors of a world keep their order, so rank 0 always has the state.
        """
        least = self.least if least is None else least
        if self.is_running or (self.epoch < 0 and self.starting):
            return None
        waiting = [*self.current, *self.newcomers]
        usable = [member for member in waiting if self._stays(member, hosts)]
        if len(usable) < max(1, least):
            return None
        members = usable[: self.most]
        self.epoch += 1
        fresh = sum(member.epoch < 0 for member in members)
        world = NextWorld(self.epoch, members, fresh, self.dismiss(hosts))
        self._order = [member.id for member in members]
        return world

    def _stays(self, member: JobMember, hosts: Container[str]) -> bool:
        return member.host in hosts and member.id not in self.leaving

    def dismiss(self, hosts: Container[str]) -> list[JobMember]:
        """Return those who wait for a place and get none any more, each once.

        hosts: those that the job may use.
        """
        gone = [
            member
            for member in self.alive.values()
            if member.ready and not self._stays(member, hosts) and member.id not in self._dismissed
            # The others may be about to ask for the same world.
            if member.epoch < 0 or not self.is_running
        ]
        told = {member.id for member in gone}
        self._dismissed |= told
        self.leaving |= told
        self._order = [number for number in self._order if number not in told]
        return gone

    @property
    def may_tell(self) -> bool:
        """Whether the members of the running world can still be told something."""
        return self._updated != self.epoch and self.is_running

    def tell(self) -> None:
        """They are told something that `update` does not say."""
        self._updated = self.epoch

    def placed(self, world: NextWorld) -> None:
        """The members of a new world have been told."""
        for member in world.members:
            member.epoch, member.ready = world.epoch, None

    def update(self, hosts: Container[str]) -> int:
        """Return what the members of the running world are to be told, once a world; 0: nothing.

        Newcomers are worth an interruption when they are ready and no other is about to be.
        """
        if not self.may_tell:
            return 0
        current = self.current
        lost = any(not self._stays(member, hosts) for member in current)
        room = len(current) < self.most
        usable = [member for member in self.newcomers if self._stays(member, hosts)]
        came = bool(usable) and room and not self.starting
        bits = (REMOVED if lost else 0) | (ADDED if came else 0)
        if bits:
            self._updated = self.epoch
        return bits
