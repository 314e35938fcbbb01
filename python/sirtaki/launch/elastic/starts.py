"""Starting the processes of an elastic job wherever some are missing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from sirtaki.launch.elastic.cooldown import Cooldowns
from sirtaki.launch.elastic.settings import Elastic
from sirtaki.launch.elastic.worlds import Worlds
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.environment import rank_environment
from sirtaki.launch.hosts.slots import Slot
from sirtaki.launch.processes.events import HostProcesses, Process
from sirtaki.launch.processes.outcome import Crew


class Hosts(Protocol):
    """What starts processes on hosts."""

    def reach(self, host: str, slots: int) -> HostProcesses:
        """Return the processes of a host, none of them yet. Raises LaunchError."""

    def process(self, process_id: int, rank: int, size: int, host: str, place: int) -> Process:
        """Describe a process that is to start. rank, size: of the world that is planned."""


def planned_slot(rank: int, size: int, host: str, place: int) -> Slot:
    """Return the place that a process is to have in the first world, as far as that is known."""
    size = max(size, rank + 1, place + 1)
    return Slot(rank, size, host, place, min(size, place + 1), 0, 1)


def own_variables(slot: Slot, process_id: int, store: str) -> dict[str, str]:
    """Return what makes a process one of an elastic job. store: the address where all meet."""
    own = {"HOROVOD_ELASTIC": "1", "SIRTAKI_PROCESS": str(process_id)}
    return {**rank_environment(slot, store), **own}


class Starts:
    """Starts processes, and knows the hosts that have some.

    planned: processes to be started when their host is ready. started: how many there have been,
    which is the next one's id. The other arguments are those of the driver.
    """

    def __init__(
        self, elastic: Elastic, hosts: Hosts, worlds: Worlds, cooldowns: Cooldowns
    ) -> None:
        self._elastic = elastic
        self._hosts = hosts
        self._worlds = worlds
        self._cooldowns = cooldowns
        self._open: dict[str, HostProcesses] = {}
        self.planned: dict[str, list[Process]] = {}
        self.started = 0

    def ready(self, host: HostProcesses, crew: Crew) -> None:
        """A host can take processes."""
        if planned := self.planned.pop(host.host, []):
            crew.launch(host, planned)

    def gone(self, host: HostProcesses) -> bool:
        """Nothing is left on a host; False where it has been reached anew."""
        if self._open.get(host.host) is not host:
            return False
        del self._open[host.host]
        return True

    def forget(self, host: str) -> None:
        """A host is lost."""
        self._open.pop(host, None)
        self.planned.pop(host, None)

    def fill(self, slots: Mapping[str, int], crew: Crew) -> list[tuple[str, str]]:
        """Start processes wherever some are missing and a host takes them.

        slots: of the hosts that the job may use. Returns the hosts that cannot be reached, and why.
        """
        now = time.monotonic()
        wanted = self._elastic.most + self._elastic.spares - len(self._worlds.alive)
        failed = []
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
            try:
                self._start(host, count, free, crew)
            except LaunchError as error:
                failed.append((host, str(error)))
        return failed

    def _takes(self, host: str) -> bool:
        """Whether a host can be given processes: not one whose last process has just ended."""
        if host not in self._open or host in self.planned:
            return True
        return any(member.host == host for member in self._worlds.alive.values())

    def _start(self, host: str, slots: int, places: Sequence[int], crew: Crew) -> None:
        processes = [self._process(host, place) for place in places]
        for process in processes:
            self._worlds.add(process.id, host, process.place)
        if host in self.planned:
            self.planned[host] += processes
        elif host in self._open:
            crew.launch(self._open[host], processes)
        else:
            self.planned[host] = processes
            self._open[host] = self._hosts.reach(host, slots)
            crew.add(self._open[host])

    def _process(self, host: str, place: int) -> Process:
        number, self.started = self.started, self.started + 1
        size = self._elastic.first
        return self._hosts.process(number, min(number, size - 1), size, host, place)
