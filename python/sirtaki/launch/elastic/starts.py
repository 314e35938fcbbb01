"""Starts the processes of an elastic job on hosts with free slots."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sirtaki.launch.elastic.settings import Elastic
from sirtaki.launch.elastic.worlds import Worlds
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.environment import NAMES_OF_PLACE, rank_environment
from sirtaki.launch.hosts.slots import Slot
from sirtaki.launch.hosts.torch_variables import place_of
from sirtaki.launch.processes.events import HostProcesses, Process
from sirtaki.launch.processes.outcome import Crew
from sirtaki.rendezvous.world.membership import Membership


class HostPool(Protocol):
    """Starts processes on hosts."""

    def reach(self, host: str, slots: int) -> HostProcesses:
        """Return the processes of a host, which are none at first. Raises LaunchError."""

    def process(
        self, process_id: int, host: str, place: int, planned: PlannedPlace | None
    ) -> Process:
        """Describe a process to start. planned: its place, if it has one."""


@dataclass(frozen=True)
class PlannedPlace:
    """A place in the next world. node: the number of its host. nodes: how many hosts."""

    slot: Slot
    node: int
    nodes: int


def planned_places(there: Sequence[str], more: Sequence[str], most: int) -> list[PlannedPlace]:
    """Return the places of processes to start, for as many as fit into the next world.

    there: the hosts of the other members of the next world, in the order of their ranks. more:
    the hosts of the processes to start. most: members of a world.
    """
    hosts = [*there, *more][:most]
    membership = Membership.of(0, range(len(hosts)), hosts)
    found = []
    for rank in range(len(there), len(hosts)):
        at = membership.topology(rank)
        local, cross = (at.local_rank, at.local_size), (at.cross_rank, at.cross_size)
        slot = Slot(at.rank, at.size, hosts[rank], *local, *cross)
        found.append(PlannedPlace(slot, membership.host_of[rank], len(set(hosts))))
    return found


def own_variables(
    planned: PlannedPlace | None, host: str, process_id: int, store: str
) -> dict[str, str]:
    """Return the variables of a process of an elastic job.

    planned: its place in the next world, None for a spare: `init` writes its variables. host: where
    it runs. store: the address of the job's store.
    """
    own = {"HOROVOD_ELASTIC": "1", "SIRTAKI_PROCESS": str(process_id)}
    if planned is None:
        variables = rank_environment(Slot(0, 1, host, 0, 1, 0, 1), store)
        return {**{k: variables[k] for k in variables.keys() - NAMES_OF_PLACE}, **own}
    place = place_of(planned.slot, planned.node, planned.nodes)
    return {**rank_environment(planned.slot, store), **place, **own}


class Starts:
    """Starts processes, and keeps track of the hosts that have some.

    planned: processes to start when their host is ready. started: how many have been started,
    which is the next one's id. The other arguments are those of the driver.
    """

    def __init__(
        self, elastic: Elastic, hosts: HostPool, worlds: Worlds, cooldowns: Cooldowns
    ) -> None:
        self._elastic = elastic
        self._hosts = hosts
        self._worlds = worlds
        self._cooldowns = cooldowns
        self._open: dict[str, HostProcesses] = {}
        self.planned: dict[str, list[Process]] = {}
        self.started = 0
        self._places: dict[int, PlannedPlace] = {}

    def ready(self, host: HostProcesses, crew: Crew) -> None:
        """Start the planned processes of a host that is ready."""
        if planned := self.planned.pop(host.host, []):
            crew.launch(host, planned)

    def gone(self, host: HostProcesses) -> bool:
        """Forget a host with no process left; False if the host has been reached again."""
        if self._open.get(host.host) is not host:
            return False
        del self._open[host.host]
        return True

    def forget(self, host: str) -> None:
        """Forget a lost host."""
        self._open.pop(host, None)
        self.planned.pop(host, None)

    def fill(self, slots: Mapping[str, int], crew: Crew) -> list[tuple[str, str]]:
        """Start missing processes on hosts that accept them.

        slots: of the hosts that the job may use. Returns the unreachable hosts with the reasons.
        """
        wanted = self._elastic.most + self._elastic.spares - self._worlds.staying(slots)
        free = self._free(slots, wanted)
        more = [host for host, places in free.items() for _ in places]
        planned = planned_places(self._worlds.expected(slots), more, self._elastic.most)
        self._places = dict(enumerate(planned, self.started))
        failed = []
        for host, places in free.items():
            try:
                self._start(host, slots[host], places, crew)
            except LaunchError as error:
                failed.append((host, str(error)))
        return failed

    def _free(self, slots: Mapping[str, int], wanted: int) -> dict[str, list[int]]:
        """Return places for `wanted` processes on hosts that accept them now."""
        now = time.monotonic()
        found = {}
        for host, count in slots.items():
            if wanted <= 0:
                break
            if self._cooldowns.cools(host, now) or not self._takes(host):
                continue
            taken = {m.place for m in self._worlds.alive.values() if m.host == host}
            room = min(wanted, count - len(taken))
            free = [place for place in range(count) if place not in taken][: max(0, room)]
            if not free:
                continue
            wanted -= len(free)
            found[host] = free
        return found

    def _takes(self, host: str) -> bool:
        """Return whether a host accepts processes, unless its last process has just ended."""
        if host not in self._open or host in self.planned:
            return True
        return any(member.host == host for member in self._worlds.alive.values())

    def _start(self, host: str, slots: int, places: Sequence[int], crew: Crew) -> None:
        processes = [self._process(host, place) for place in places]
        for process in processes:
            self._worlds.add(process.id, host, process.place)
        if host in self.planned:
            self.planned[host] += processes
            return
        try:
            if host in self._open:
                crew.launch(self._open[host], processes)
            else:
                self.planned[host] = processes
                self._open[host] = self._hosts.reach(host, slots)
                crew.add(self._open[host])
        except LaunchError:
            for process in processes:
                self._worlds.remove(process.id)
            raise

    def _process(self, host: str, place: int) -> Process:
        number, self.started = self.started, self.started + 1
        return self._hosts.process(number, host, place, self._places.get(number))


class Cooldowns:
    """Failed hosts: each waits, twice as long after each failure. times: first, longest."""

    def __init__(self, times: tuple[float, float]) -> None:
        self._first, self._most = times
        self._failures: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def failed(self, host: str, now: float) -> float:
        """Record a failure; returns for how many seconds the host gets no new process."""
        count = self._failures[host] = self._failures.get(host, 0) + 1
        seconds = min(self._most, self._first * 2.0 ** min(count - 1, 32))
        self._until[host] = max(self._until.get(host, 0.0), now + seconds)
        return seconds

    def rest(self, host: str, now: float) -> None:
        """Start no process on a host that will soon go, for the longest time; not a failure."""
        self._until[host] = now + self._most

    def cools(self, host: str, now: float) -> bool:
        """Return whether a host gets no new process now."""
        return now < self._until.get(host, 0.0)

    @property
    def next_end(self) -> float | None:
        """When the next host accepts processes again, None if none waits.

        The time may be in the past until `look` is called.
        """
        return min(self._until.values(), default=None)

    def look(self, now: float) -> None:
        """Forget the hosts that have waited long enough: they accept processes now."""
        self._until = {host: until for host, until in self._until.items() if until > now}
