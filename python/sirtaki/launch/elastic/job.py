"""One elastic job from its settings to its outcome."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from sirtaki.inspect.live import open_metrics
from sirtaki.inspect.postmortem import kept_if_it_fails
from sirtaki.launch.elastic.discovery import Discovery, Find, finder
from sirtaki.launch.elastic.driver import ABANDON, Driver
from sirtaki.launch.elastic.settings import Elastic
from sirtaki.launch.elastic.starts import PlannedPlace, own_variables
from sirtaki.launch.errors import JobError
from sirtaki.launch.flags.settings import Settings
from sirtaki.launch.hosts.addresses import all_addresses, own_addresses
from sirtaki.launch.hosts.sent import kept_back
from sirtaki.launch.hosts.slots import Host, allocate, is_local
from sirtaki.launch.hosts.torch_variables import default_environment
from sirtaki.launch.job import outputs_of
from sirtaki.launch.job_watch import watch_of
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
from sirtaki.launch.processes.channels import FILES_OF_A_HOST, STREAMS_OF_A_RANK, room_for_files
from sirtaki.launch.processes.events import HostProcesses, Process
from sirtaki.launch.processes.frames import SILENCE_SECONDS
from sirtaki.launch.processes.local import require_command, require_system
from sirtaki.launch.processes.outcome import Outcome
from sirtaki.launch.processes.remote import RemoteProcesses
from sirtaki.launch.processes.signals import SignalWatch
from sirtaki.launch.processes.supervise import Supervisor
from sirtaki.launch.starters.allocation import Allocation
from sirtaki.rendezvous.stores.store import open_store
from sirtaki.rendezvous.threads import begin

if TYPE_CHECKING:
    from sirtaki.launch.plan import JobServer

_STORE_SECONDS = 60.0


class ElasticHosts:
    """Starts the processes of an elastic job; see `starts.HostPool`.

    store: the address of the job's store. addresses: where agents that a scheduler starts can
    reach this process.
    """

    def __init__(
        self,
        settings: Settings,
        elastic: Elastic,
        secret: bytes,
        store: str,
        addresses: Sequence[str],
    ) -> None:
        self._settings = settings
        self._allocation = elastic.allocation
        self._silent_seconds = elastic.unresponsive
        self._secret = secret
        self._store = store
        self._addresses = addresses
        # By host, what to close when its agent has ended.
        self._ways: dict[str, contextlib.ExitStack] = {}

    def reach(self, host: str, slots: int) -> HostProcesses:
        """See `HostPool`."""
        allocation = self._allocation
        if allocation is not None and any(host == each.name for each in allocation.hosts):
            return self._reach_by_scheduler(allocation, host, slots)
        plan = plan_host(self._settings, host, [])
        job = host_job(self._settings, self._secret, plan, slots, os.environ)
        job = job._replace(silent_seconds=self._silent_seconds)
        return host_processes(self._settings, plan, [], job, self._settings.start_timeout)

    def _reach_by_scheduler(self, allocation: Allocation, host: str, slots: int) -> HostProcesses:
        """Start an agent on one host of the allocation with the scheduler's program."""
        from sirtaki.launch.starters import scheduler

        self._close(host)
        alone = allocation._replace(hosts=[Host(host, slots)])
        settings = self._settings._replace(slots=allocate(alone.hosts, slots), kind=alone)
        with contextlib.ExitStack() as way:
            (channel,) = way.enter_context(
                scheduler.called_agents(alone, settings, os.environ, self._secret, self._addresses)
            )
            plan = HostPlan(host, [], allocation.starter)
            job = scheduled_job(settings, self._secret, plan, slots, os.environ)
            job = job._replace(silent_seconds=self._silent_seconds)
            self._ways[host] = way.pop_all()
        return RemoteProcesses(host, [], channel, job, self._settings.start_timeout)

    def _close(self, host: str) -> None:
        if (way := self._ways.pop(host, None)) is not None:
            way.close()

    def close(self) -> None:
        """Close the connections to agents that a scheduler has started."""
        for host in list(self._ways):
            self._close(host)

    def process(
        self, process_id: int, host: str, place: int, planned: PlannedPlace | None
    ) -> Process:
        """See `HostPool`."""
        own = own_variables(planned, host, process_id, self._store)
        if planned is not None and self._allocation is not None:
            from sirtaki.launch.starters import scheduler

            hosts = {each.name: [planned.slot] * each.slots for each in self._allocation.hosts}
            own |= scheduler.variables_of_rank(self._allocation, planned.slot, hosts)
        defaults = default_environment(host)
        if self._silent_seconds < SILENCE_SECONDS:
            # When a host is cut off, the survivors must not wait longer than this in a collective.
            defaults["SIRTAKI_HOST_TIMEOUT_SECONDS"] = f"{self._silent_seconds:g}"
        return Process(process_id, place, own, defaults)


class ElasticJob:
    """An elastic job; its store is served while the job is entered. Raises LaunchError.

    `server` is the store, `secret` the job's, `started` the number of processes started so far,
    `summary` the line that ends a successful job.
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
        self.summary = ""

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
        if elastic.allocation is None and not all(map(is_local, self._hosts)):
            left = kept_back(os.environ, settings.forwarded)
            if left:
                outputs.say(left)
        store = open_store(self.server.address, _STORE_SECONDS, self.secret)
        address = self.server.address
        hosts = ElasticHosts(settings, elastic, self.secret, address, self._addresses)
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
            open_files = 2 * STREAMS_OF_A_RANK * most + FILES_OF_A_HOST * len(self._hosts)
            with (
                open_metrics(settings, address, outputs.say),
                room_for_files(open_files),
                kept_if_it_fails(settings, address, watch, outputs.say) as kept,
            ):
                outcome = kept(
                    drive(elastic, driver, self.server, supervisor, self._find, self._hosts)
                )
                return outcome
        finally:
            if (outcome is None or not outcome.success) and driver.last_checkpoint:
                outputs.say(f"{driver.last_checkpoint}.")
            self.started, self.summary = driver.started, driver.summary
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

    supervisor: has the driver as its policy. find: returns the hosts. known: the current ones.
    """

    def take(key: str, value: bytes) -> None:
        """Receive a value that was set in the store, in the store's thread."""
        if key == ABANDON:
            server.abandon(value.decode())
        else:
            server.discard(driver.on_set(key, value))

    server.on_set = take
    driver.on_hosts(dict(known))
    discovery = Discovery(find, known, driver.on_hosts, driver.on_trouble)
    if elastic.may_change:
        begin(discovery)
    try:
        return supervisor.run()
    except JobError as error:
        raise with_last_error(error, supervisor, driver) from None
    finally:
        discovery.end()
        server.on_set = None
        driver.end()


def with_last_error(error: JobError, supervisor: Supervisor, driver: Driver) -> JobError:
    """Return the error that ends a job, with the last one that a process has printed."""
    last = supervisor.errors.last(driver.failed)
    if last is None:
        return error
    kind, _, message = last.error.partition(":")
    if f"{kind.rpartition('.')[2]}:{message}" in str(error):
        return error
    text = f"{error}; the last error is that of process {last.rank}: {last.error}"
    return JobError(text, error.exit_code)


def _addresses(elastic: Elastic, settings: Settings, hosts: Sequence[str]) -> list[str]:
    """Return the store's addresses: none on this machine alone, all where new hosts may come."""
    if elastic.may_change or elastic.allocation is not None:
        return all_addresses(settings.interfaces)
    remote = [host for host in hosts if not is_local(host)]
    return own_addresses(remote, settings.interfaces) if remote else []


def describe_elastic(settings: Settings, elastic: Elastic) -> list[str]:
    """Return the lines that describe what a dry run would start. Raises LaunchError."""
    lines = [f"host {host}: {slots} slot(s)" for host, slots in finder(elastic)().items()]
    lines.append(f"processes: {elastic.first}, {elastic.least} to {elastic.most}")
    lines.append(f"spares: {elastic.spares}")
    lines += [f"variable {name}={value}" for name, value in sorted(settings.variables.items())]
    return [*lines, f"command: {' '.join(settings.command)}"]
