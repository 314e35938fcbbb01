"""One elastic job from its settings to its outcome."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TextIO

from sirtaki.launch.elastic.discovery import Discovery, finder
from sirtaki.launch.elastic.driver import ABANDON, Driver
from sirtaki.launch.elastic.settings import Elastic
from sirtaki.launch.flags.settings import Settings
from sirtaki.launch.hosts.addresses import all_addresses, own_addresses
from sirtaki.launch.hosts.environment import rank_environment
from sirtaki.launch.hosts.slots import Slot, is_local
from sirtaki.launch.hosts.torch_variables import torch_environment
from sirtaki.launch.output.first_error import Errors
from sirtaki.launch.output.output import Outputs
from sirtaki.launch.plan import SECRET_BYTES, host_job, host_processes, make_server, plan_host
from sirtaki.launch.processes.events import HostProcesses, Process
from sirtaki.launch.processes.local import require_command, require_system
from sirtaki.launch.processes.open_files import STREAMS_OF_A_RANK, room_for
from sirtaki.launch.processes.outcome import Outcome
from sirtaki.launch.processes.signals import SignalWatch
from sirtaki.launch.processes.supervise import Supervisor
from sirtaki.rendezvous.stores.store import open_store

_STORE_SECONDS = 60.0


class ElasticHosts:
    """Starts the processes of an elastic job; see `driver.Hosts`.

    store: where they meet. silent_seconds: how long one of them may be silent.
    """

    def __init__(
        self, settings: Settings, secret: bytes, store: str, silent_seconds: float
    ) -> None:
        self._settings = settings
        self._silent_seconds = silent_seconds
        self._secret = secret
        self._store = store

    def reach(self, host: str, slots: int) -> HostProcesses:
        """See `Hosts`."""
        plan = plan_host(self._settings, host, [])
        job = host_job(self._settings, self._secret, plan, slots, os.environ)
        job = replace(job, silent_seconds=self._silent_seconds)
        return host_processes(self._settings, plan, [], job)

    def process(self, process_id: int, rank: int, size: int, host: str, place: int) -> Process:
        """See `Hosts`: what the variables say of the world is only planned."""
        size = max(size, rank + 1, place + 1)
        slot = Slot(rank, size, host, place, min(size, place + 1), 0, 1)
        own = {"HOROVOD_ELASTIC": "1", "SIRTAKI_PROCESS": str(process_id)}
        variables = {**rank_environment(slot, self._store), **own}
        return Process(process_id, place, variables, torch_environment(slot, host))


class ElasticJob:
    """An elastic job; entered, its store is served. Raises LaunchError.

    `server` is the store, `secret` the job's, `started` how many processes there have been.
    """

    def __init__(self, settings: Settings, elastic: Elastic) -> None:
        self._settings = settings
        self._elastic = elastic
        self._find = finder(elastic)
        self._hosts = dict(self._find())
        require_system()
        if any(is_local(host) for host in self._hosts):
            path = {**os.environ, **settings.forwarded}.get("PATH")
            require_command(settings.command, path)
        self.secret = secrets.token_bytes(SECRET_BYTES)
        addresses = _addresses(elastic, settings, list(self._hosts))
        self.server = make_server(settings, addresses, self.secret)
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
        outputs = Outputs(
            most,
            stdout,
            stderr,
            settings.output_directory,
            settings.timestamps,
            errors=Errors(settings.verbose),
            tee=settings.tee,
        )
        outputs.prepare()
        store = open_store(self.server.address, _STORE_SECONDS, self.secret)
        address = self.server.address
        hosts = ElasticHosts(settings, self.secret, address, elastic.unresponsive)
        driver = Driver(elastic, hosts, store, outputs.say)
        self.server.on_set = partial(self._take, driver)
        driver.on_hosts(self._hosts)
        discovery = Discovery(self._find, self._hosts, driver.on_hosts, driver.on_trouble)
        if elastic.may_change:
            discovery.start()
        supervisor = Supervisor(
            [],
            outputs,
            signals,
            settings.start_timeout,
            some_wait=lambda: False,
            verbose=settings.verbose,
            policy=driver,
        )
        outcome: Outcome | None = None
        try:
            with room_for(2 * STREAMS_OF_A_RANK * most + 3 * len(self._hosts)):
                outcome = supervisor.run()
                return outcome
        finally:
            if outcome != Outcome() and driver.last_checkpoint:
                outputs.say(f"{driver.last_checkpoint}.")
            discovery.end()
            self.server.on_set = None
            self.started = driver.started
            driver.end()
            store.close()

    def _take(self, driver: Driver, key: str, value: bytes) -> None:
        """Take what somebody has left in the store, in its thread."""
        if key == ABANDON:
            self.server.abandon(value.decode())
        else:
            driver.on_set(key, value)


def _addresses(elastic: Elastic, settings: Settings, hosts: Sequence[str]) -> list[str]:
    """Where processes meet: on this machine alone, or wherever hosts may come from."""
    if elastic.may_change:
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
