"""One elastic job from its settings to its outcome."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from sirtaki.launch.elastic.discovery import Discovery, Find, finder
from sirtaki.launch.elastic.driver import ABANDON, Driver
from sirtaki.launch.elastic.settings import Elastic
from sirtaki.launch.elastic.starts import own_variables, planned_slot
from sirtaki.launch.flags.settings import Settings
from sirtaki.launch.hosts.addresses import all_addresses, own_addresses
from sirtaki.launch.hosts.slots import Host, allocate, is_local
from sirtaki.launch.hosts.torch_variables import torch_environment
from sirtaki.launch.job import outputs_of
from sirtaki.launch.live import open_metrics
from sirtaki.launch.output.destination import Destination
from sirtaki.launch.plan import (
    SECRET_BYTES,
    HostPlan,
    host_job,
    host_processes,
    make_server,
    plan_host,
    scheduled_job,
)
from sirtaki.launch.processes.events import HostProcesses, Process
from sirtaki.launch.processes.frames import SILENCE_SECONDS
from sirtaki.launch.processes.local import require_command, require_system
from sirtaki.launch.processes.open_files import STREAMS_OF_A_RANK, room_for
from sirtaki.launch.processes.outcome import Outcome
from sirtaki.launch.processes.remote import RemoteProcesses
from sirtaki.launch.processes.signals import SignalWatch
from sirtaki.launch.processes.supervise import Supervisor
from sirtaki.launch.questions.job_watch import watch_of
from sirtaki.launch.questions.postmortem import kept_if_it_fails
from sirtaki.launch.starters.allocation import Allocation
from sirtaki.records import replace
from sirtaki.rendezvous.stores.store import open_store

if TYPE_CHECKING:
    from sirtaki.launch.plan import JobServer

_STORE_SECONDS = 60.0


class ElasticHosts:
    """Starts the processes of an elastic job; see `starts.Hosts`.

    store: where they meet. silent_seconds: how long one of them may be silent. addresses: where
    agents that a scheduler starts reach us.
    """

    def __init__(
        self,
        settings: Settings,
        secret: bytes,
        store: str,
        silent_seconds: float,
        addresses: Sequence[str],
    ) -> None:
        self._settings = settings
        self._silent_seconds = silent_seconds
        self._secret = secret
        self._store = store
        self._addresses = addresses
        # What is to be closed behind the agent of a host.
        self._ways: dict[str, contextlib.ExitStack] = {}

    def reach(self, host: str, slots: int) -> HostProcesses:
        """See `Hosts`."""
        allocation = self._settings.allocation
        if allocation is not None and any(host == each.name for each in allocation.hosts):
            return self._reach_by_scheduler(allocation, host, slots)
        plan = plan_host(self._settings, host, [])
        job = host_job(self._settings, self._secret, plan, slots, os.environ)
        job = replace(job, silent_seconds=self._silent_seconds)
        return host_processes(self._settings, plan, [], job, self._settings.start_timeout)

    def _reach_by_scheduler(self, allocation: Allocation, host: str, slots: int) -> HostProcesses:
        """Have the scheduler's program start an agent on one host of the allocation."""
        from sirtaki.launch.starters import scheduler

        self._close(host)
        alone = replace(allocation, hosts=[Host(host, slots)])
        settings = replace(self._settings, slots=allocate(alone.hosts, slots), allocation=alone)
        with contextlib.ExitStack() as way:
            (channel,) = way.enter_context(
                scheduler.called_agents(alone, settings, os.environ, self._secret, self._addresses)
            )
            plan = HostPlan(host, [], allocation.starter)
            job = scheduled_job(settings, self._secret, plan, slots, os.environ)
            job = replace(job, silent_seconds=self._silent_seconds)
            self._ways[host] = way.pop_all()
        return RemoteProcesses(host, [], channel, job, self._settings.start_timeout)

    def _close(self, host: str) -> None:
        if (way := self._ways.pop(host, None)) is not None:
            way.close()

    def close(self) -> None:
        """Close what leads to agents that a scheduler has started."""
        for host in list(self._ways):
            self._close(host)

    def process(self, process_id: int, rank: int, size: int, host: str, place: int) -> Process:
        """See `Hosts`: what the variables say of the world is only planned."""
        slot = planned_slot(rank, size, host, place)
        own = own_variables(slot, process_id, self._store)
        if (allocation := self._settings.allocation) is not None:
            from sirtaki.launch.starters import scheduler

            hosts = {each.name: [slot] * each.slots for each in allocation.hosts}
            own |= scheduler.variables_of_rank(allocation, slot, hosts)
        defaults = torch_environment(slot, 0, host)
        if self._silent_seconds < SILENCE_SECONDS:
            # The survivors of a host that is cut off are not to wait for longer in a collective.
            defaults["SIRTAKI_HOST_TIMEOUT_SECONDS"] = f"{self._silent_seconds:g}"
        return Process(process_id, place, own, defaults)


class ElasticJob:
    """An elastic job; entered, its store is served. Raises LaunchError.

    `server` is the store, `secret` the job's, `started` how many processes there have been.
    """

    def __init__(self, settings: Settings, elastic: Elastic) -> None:
        self._settings = settings
        self._elastic = elastic
        self._find = finder(elastic, self._warn)
        self._say: Callable[[str], object] = Destination(sys.stderr).say
        self._hosts = dict(self._find())
        require_system()
        if any(is_local(host) for host in self._hosts):
            path = {**os.environ, **settings.forwarded}.get("PATH")
            require_command(settings.command, path)
        self.secret = secrets.token_bytes(SECRET_BYTES)
        self._addresses = _addresses(elastic, settings, list(self._hosts))
        self.server = make_server(settings, self._addresses, self.secret)
        self.started = 0

    def __enter__(self) -> ElasticJob:
        self.server.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.close()

    def run(self, stdout: TextIO, stderr: TextIO, signals: SignalWatch | None) -> Outcome:
        """Start the processes and watch them to the end. Raises LaunchError.

        stdout, stderr: where their lines go. signals: see `job.run_job`.
        """
        settings, elastic = self._settings, self._elastic
        most = elastic.most + elastic.spares
        outputs = outputs_of(settings, most, stdout, stderr)
        store = open_store(self.server.address, _STORE_SECONDS, self.secret)
        address = self.server.address
        hosts = ElasticHosts(settings, self.secret, address, elastic.unresponsive, self._addresses)
        driver = Driver(elastic, hosts, store, outputs.say)
        self._say = driver.on_trouble
        watch = watch_of(settings, address, outputs.say)
        supervisor = Supervisor(
            [],
            outputs,
            signals,
            settings.start_timeout,
            some_wait=lambda: False,
            verbose=settings.verbose,
            policy=driver,
            watch=watch,
        )
        outcome: Outcome | None = None
        try:
            open_files = 2 * STREAMS_OF_A_RANK * most + 3 * len(self._hosts)
            with (
                open_metrics(settings, address, outputs.say),
                room_for(open_files),
                kept_if_it_fails(settings, address, watch, outputs.say) as kept,
            ):
                outcome = kept(
                    drive(elastic, driver, self.server, supervisor, self._find, self._hosts)
                )
                return outcome
        finally:
            if outcome != Outcome() and driver.last_checkpoint:
                outputs.say(f"{driver.last_checkpoint}.")
            self.started = driver.started
            hosts.close()
            store.close()

    def _warn(self, text: str) -> None:
        self._say(f"warning: {text}")


def drive(
    elastic: Elastic,
    driver: Driver,
    server: JobServer,
    supervisor: Supervisor,
    find: Find,
    known: Mapping[str, int],
) -> Outcome:
    """Watch an elastic job to its end, wherever its processes are. Raises LaunchError.

    supervisor: has the driver as its policy. find, known: the hosts, from now on and now.
    """

    def take(key: str, value: bytes) -> None:
        """Take what somebody has left in the store, in its thread."""
        if key == ABANDON:
            server.abandon(value.decode())
        else:
            driver.on_set(key, value)

    server.on_set = take
    driver.on_hosts(dict(known))
    discovery = Discovery(find, known, driver.on_hosts, driver.on_trouble)
    if elastic.may_change:
        discovery.start()
    try:
        return supervisor.run()
    finally:
        discovery.end()
        server.on_set = None
        driver.end()


def _addresses(elastic: Elastic, settings: Settings, hosts: Sequence[str]) -> list[str]:
    """Where processes meet: on this machine alone, or wherever hosts may come from."""
    if elastic.may_change or settings.allocation is not None:
        return all_addresses(settings.interfaces)
    remote = [host for host in hosts if not is_local(host)]
    return own_addresses(remote, settings.interfaces) if remote else []


def describe_elastic(settings: Settings, elastic: Elastic) -> list[str]:
    """Say in lines what a dry run would have started. Raises LaunchError."""
    lines = [f"host {host}: {slots} slot(s)" for host, slots in finder(elastic)().items()]
    lines.append(f"processes: {elastic.first}, {elastic.least} to {elastic.most}")
    lines.append(f"spares: {elastic.spares}")
    lines += [f"variable {name}={value}" for name, value in sorted(settings.variables.items())]
    return [*lines, f"command: {' '.join(settings.command)}"]
