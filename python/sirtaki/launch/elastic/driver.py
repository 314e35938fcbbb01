"""The policy of elastic jobs: lost processes are replaced, and new worlds made of who is ready."""

from __future__ import annotations

import contextlib
import os
import queue
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from sirtaki.launch.elastic.cooldown import Cooldowns
from sirtaki.launch.elastic.program_errors import ProgramErrors
from sirtaki.launch.elastic.settings import Elastic
from sirtaki.launch.elastic.worlds import Member, World, Worlds
from sirtaki.launch.errors import JobError, LaunchError
from sirtaki.launch.processes.events import HostProcesses, Process
from sirtaki.launch.processes.outcome import failure_of
from sirtaki.launch.processes.policy import Crew, Policy, Verdict
from sirtaki.rendezvous.stores.store import Store
from sirtaki.rendezvous.world import elastic as messages

_WAKE_BYTES = 1 << 16
# The key by which the store's thread hears which other keys nobody is to wait for.
ABANDON = "elastic/abandon"


class Hosts(Protocol):
    """What starts processes on hosts."""

    def reach(self, host: str, slots: int) -> HostProcesses:
        """Return the processes of a host, none of them yet. Raises LaunchError."""

    def process(self, process_id: int, rank: int, size: int, host: str, place: int) -> Process:
        """Describe a process that is to start. rank, size: of the world that is planned."""


class Driver(Policy):
    """Decides in an elastic job.

    elastic: what the user wants. hosts: starts processes. store: the job's. say: takes sentences
    for the user. `started`: how many processes there have been, which is the next one's id.
    """

    def __init__(
        self, elastic: Elastic, hosts: Hosts, store: Store, say: Callable[[str], None]
    ) -> None:
        self._elastic = elastic
        self._hosts = hosts
        self._store = store
        self._say = say
        self._worlds = Worlds(elastic.least, elastic.most)
        self._cooldowns = Cooldowns(elastic.cooldown)
        self._errors = ProgramErrors()
        self._slots: dict[str, int] = {}
        self._open: dict[str, HostProcesses] = {}
        # Processes to be started when their host is ready.
        self._planned: dict[str, list[Process]] = {}
        self.started = 0
        self._has_ended_well = False
        self._is_over = False
        self._incomplete_since: float | None = time.monotonic()
        self._inbox: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._crew: Crew | None = None

    # ---- Called by other threads ----

    def on_set(self, key: str, value: bytes) -> None:
        """Take what a process has left in the store."""
        try:
            said = messages.parse_said(key, value)
        except ValueError as error:
            text = str(error)
            self._post(lambda: self._say(text))
            return
        if isinstance(said, messages.Ready):
            self._post(lambda: self._worlds.take(said))
        elif said is not None:
            self._post(lambda: self._errors.take(said))

    def on_hosts(self, hosts: dict[str, int]) -> None:
        """Take the hosts that there are now."""
        self._post(lambda: self._take_hosts(hosts))

    def on_trouble(self, text: str) -> None:
        """Take a sentence for the user."""
        self._post(lambda: self._say(text))

    def _post(self, call: Callable[[], object]) -> None:
        self._inbox.put(call)
        with contextlib.suppress(BlockingIOError):  # then it is readable already
            os.write(self._wake_writer, b"\0")

    # ---- See Policy ----

    def begin(self, crew: Crew) -> int | None:
        """See `Policy`."""
        self._crew = crew
        return self._wake_reader

    def end(self) -> None:
        """Close what it has opened."""
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def ready(self, host: HostProcesses) -> None:
        """See `Policy`."""
        assert self._crew is not None
        if planned := self._planned.pop(host.host, []):
            self._crew.launch(host, planned)

    def refused(self, host: str, why: str) -> Verdict | None:
        """See `Policy`."""
        return self._lose_host(host, why)

    def lost(self, host: str, ranks: Sequence[int], how: str) -> Verdict | None:
        """See `Policy`."""
        return self._lose_host(host, how)

    def gone(self, host: HostProcesses) -> Verdict | None:
        """See `Policy`."""
        if self._open.get(host.host) is not host:
            return self._decide()
        del self._open[host.host]
        if any(member.host == host.host for member in self._worlds.alive.values()):
            return self._lose_host(host.host, "the process that watches the workers was killed")
        return self._decide()

    def ended(self, rank: int, host: str, code: int) -> Verdict | None:
        """See `Policy`."""
        self._take_inbox()
        member = self._worlds.remove(rank)
        if member is None:
            return self._decide()
        self._abandon(member)
        if code == 0:
            self._has_ended_well |= not member.ready
            return self._decide()
        return self._take_failure(member, code) or self._decide()

    def deadline(self) -> float | None:
        """See `Policy`."""
        now = time.monotonic()
        times = [self._cooldowns.next_end(now)]
        if self._incomplete_since is not None:
            times.append(self._incomplete_since + self._elastic.timeout)
        return min((at for at in times if at is not None), default=None)

    def look(self) -> Verdict | None:
        """See `Policy`."""
        self._take_inbox()
        return self._decide()

    @property
    def goes_on(self) -> bool:
        """See `Policy`."""
        return not self._is_over

    # ---- Decisions ----

    def _take_inbox(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_reader, _WAKE_BYTES)
        while not self._inbox.empty():
            self._inbox.get()()

    def _take_hosts(self, hosts: dict[str, int]) -> None:
        for host in hosts.keys() - self._slots.keys():
            if self._slots:
                self._say(f"host {host} has come with {hosts[host]} slot(s)")
        for host in self._slots.keys() - hosts.keys():
            self._say(f"host {host} has gone from the list of hosts")
        self._slots = dict(hosts)

    def _take_failure(self, member: Member, code: int) -> Verdict | None:
        """A process has ended badly."""
        failure = failure_of(member.id, code)
        how = failure.signal_name or f"code {code}"
        symptom = f"process {member.id} on {member.host} ended with {how}"
        hosts = {other.host for other in self._worlds.alive.values()} | {member.host}
        if why := self._errors.ended(member.id, member.host, hosts):
            return Verdict(symptom, JobError(f"{symptom}; {why}"))
        if self._worlds.epoch < 0 and not self._worlds.alive and not self._planned:
            return Verdict(symptom, JobError(f"{symptom}, and no process came to a world"))
        seconds = self._cooldowns.failed(member.host, time.monotonic())
        self._say(
            f"{symptom}; the job goes on with {len(self._worlds.alive)} process(es), and its host "
            f"takes a new one in {seconds:g} s"
        )
        return None

    def _lose_host(self, host: str, how: str) -> Verdict | None:
        """No process of a host is left."""
        self._open.pop(host, None)
        self._planned.pop(host, None)
        lost = [member for member in self._worlds.alive.values() if member.host == host]
        for member in lost:
            self._worlds.remove(member.id)
            self._abandon(member)
        seconds = self._cooldowns.failed(host, time.monotonic())
        ids = ", ".join(str(member.id) for member in lost) or "none"
        self._say(
            f"host {host} (processes {ids}) was lost: {how}; it is tried again in {seconds:g} s"
        )
        return self._decide()

    def _decide(self) -> Verdict | None:
        """Do what follows from the present state."""
        assert self._crew is not None
        if self._is_over:
            return None
        worlds = self._worlds
        left = worlds.alive if worlds.epoch < 0 else worlds.current
        if self._has_ended_well and not left:
            # What has not come to a world by now, and spares, have nothing left to do.
            self._is_over = True
            self._crew.finish()
            return None
        if not self._has_ended_well:
            self._fill()
        if verdict := self._make_world():
            return verdict
        if bits := worlds.update(self._slots):
            self._publish(messages.update_key(worlds.epoch), messages.update_now(bits))
        return self._check_patience()

    def _make_world(self) -> Verdict | None:
        worlds = self._worlds
        # At the start all that are wanted are waited for, as long as they may come.
        world = worlds.next_world(self._slots)
        if world is None:
            return self._judge_rest()
        limit = self._elastic.reset_limit
        if limit is not None and world.epoch > limit:
            text = (
                "Horovod was shutdown because number of resets during elastic job exceeded limit: "
                f"{limit}"
            )
            return Verdict(text, JobError(text))
        self._place(world)
        return None

    def _judge_rest(self) -> Verdict | None:
        """End a job whose last processes ask for a world after others have finished."""
        worlds = self._worlds
        waiting = [member for member in worlds.current if member.ready]
        if not self._has_ended_well or worlds.is_running or not waiting:
            return None
        ids = ", ".join(str(member.id) for member in waiting)
        text = (
            f"processes {ids} lost the others, who have ended with exit code 0, and are fewer than "
            f"--min-np {self._elastic.least}"
        )
        return Verdict(text, JobError(text))

    def _place(self, world: World) -> None:
        """Tell the members of a new world their places."""
        hosts = [member.host for member in world.members]
        ids = [member.id for member in world.members]
        told = messages.places(ids, hosts, world.epoch, world.fresh)
        for member, place in zip(world.members, told, strict=True):
            assert member.ready is not None
            self._publish(messages.place_key(member.ready), place)
        for member in world.leaving:
            assert member.ready is not None
            self._publish(messages.place_key(member.ready), messages.Place(-1))
        self._worlds.placed(world)
        self._incomplete_since = None
        if world.epoch > 0:
            self._say(f"world {world.epoch}: {len(ids)} process(es), {world.fresh} of them new")

    def _check_patience(self) -> Verdict | None:
        """End the job when too few processes have been there for too long."""
        if self._worlds.is_running or self._has_ended_well:
            self._incomplete_since = None
            return None
        now = time.monotonic()
        if self._incomplete_since is None:
            self._incomplete_since = now
        if now < self._incomplete_since + self._elastic.timeout:
            return None
        there = sum(member.ready is not None for member in self._worlds.alive.values())
        text = (
            f"within {self._elastic.timeout:g} s (--elastic-timeout) {there} process(es) of the "
            f"{self._elastic.least} that --min-np wants were ready"
        )
        return Verdict(text, JobError(text))

    def _abandon(self, member: Member) -> None:
        """Let nobody wait for a process that has ended while its world meets."""
        if member.epoch == self._worlds.epoch >= 0:
            self._store.set(ABANDON, messages.keys_of_world(member.epoch).encode())

    def _publish(self, key: str, message: messages.Place | messages.Update) -> None:
        self._store.set(key, messages.pack(message))

    # ---- Starting processes ----

    def _fill(self) -> None:
        """Start processes wherever some are missing and a host takes them."""
        now = time.monotonic()
        wanted = self._elastic.most + self._elastic.spares - len(self._worlds.alive)
        for host, slots in self._slots.items():
            if wanted <= 0:
                return
            if self._cooldowns.cools(host, now) or not self._takes(host):
                continue
            taken = {m.place for m in self._worlds.alive.values() if m.host == host}
            free = [place for place in range(slots) if place not in taken][:wanted]
            if free:
                wanted -= len(free)
                self._start(host, slots, free)

    def _takes(self, host: str) -> bool:
        """Whether a host can be given processes: not one whose last process has just ended."""
        if host not in self._open or host in self._planned:
            return True
        return any(member.host == host for member in self._worlds.alive.values())

    def _start(self, host: str, slots: int, places: Sequence[int]) -> None:
        assert self._crew is not None
        processes = [self._process(host, place) for place in places]
        for process in processes:
            self._worlds.add(process.id, host, process.place)
        if host in self._planned:
            self._planned[host] += processes
        elif host in self._open:
            self._crew.launch(self._open[host], processes)
        else:
            self._planned[host] = processes
            try:
                self._open[host] = self._hosts.reach(host, slots)
                self._crew.add(self._open[host])
            except LaunchError as error:
                self._lose_host(host, str(error))

    def _process(self, host: str, place: int) -> Process:
        number, self.started = self.started, self.started + 1
        size = self._elastic.first
        return self._hosts.process(number, min(number, size - 1), size, host, place)
