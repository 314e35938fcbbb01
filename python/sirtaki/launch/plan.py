"""Which ranks a job starts on which host, and how."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sirtaki.launch.cores.binding import describe_share, shares_here
from sirtaki.launch.cores.shared_heap import described
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.settings import Settings, uses_tls
from sirtaki.launch.hosts.addresses import all_addresses, own_addresses, require_interfaces
from sirtaki.launch.hosts.environment import base_environment, rank_environment, sent_environment
from sirtaki.launch.hosts.nodes import leave_node
from sirtaki.launch.hosts.slots import Slot, is_local
from sirtaki.launch.hosts.torch_variables import torch_environment
from sirtaki.launch.processes.channels import Channel, ProgramChannel
from sirtaki.launch.processes.events import HostJob, HostProcesses, Process
from sirtaki.launch.processes.local import LocalProcesses
from sirtaki.launch.processes.remote import RemoteProcesses
from sirtaki.launch.starters.ssh import explain_end, ssh_command
from sirtaki.records import dataclass, replace
from sirtaki.rendezvous.stores.store import LAUNCHED_HOSTS_KEY, UnixStoreServer

if TYPE_CHECKING:
    from typing import TypeAlias

    from sirtaki.rendezvous.stores.tcp_store import TcpStoreServer

    JobServer: TypeAlias = UnixStoreServer | TcpStoreServer

SECRET_BYTES = 32
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class HostPlan:
    """The ranks of one host.

    way: what reaches it, "" for this machine. argv: program and arguments for it alone.
    """

    host: str
    slots: list[Slot]
    way: str = ""
    argv: list[str] | None = None


def plan_hosts(settings: Settings) -> list[HostPlan]:
    """Say what is to be started where, hosts in the order of their ranks. Raises LaunchError."""
    plans = []
    for host, slots in settings.by_host().items():
        if settings.allocation is not None:
            plans.append(HostPlan(host, slots, settings.allocation.starter))
        elif settings.nodes is not None:
            plans.append(HostPlan(host, slots, "its own launcher" if plans else ""))
        else:
            plans.append(plan_host(settings, host, slots))
    return plans


def plan_host(settings: Settings, host: str, slots: Sequence[Slot]) -> HostPlan:
    """Say how processes are started on a host outside of allocations. Raises LaunchError."""
    key = settings.ssh.identity_file
    if is_local(host):
        return HostPlan(host, list(slots))
    if key is not None and not Path(key).is_file():
        raise LaunchError(f"the key for ssh, {key!r}, is not a file here")
    argv = ssh_command(settings.ssh, host, settings.start_timeout)
    return HostPlan(host, list(slots), "ssh", argv)


def store_addresses(settings: Settings, plans: Sequence[HostPlan]) -> list[str]:
    """Where on this machine the ranks can meet; nowhere when it is the only host and starts them.

    A scheduler's ranks reach any address of their own host.
    """
    if settings.nodes is not None:
        return all_addresses(settings.interfaces)
    remote = [plan.host for plan in plans if plan.way]
    if settings.allocation is not None:
        # The own name often means loopback.
        remote = [host for host in remote if not is_local(host)]
    if remote:
        return own_addresses(remote, settings.interfaces)
    if settings.interfaces:
        require_interfaces(settings.interfaces)
    return [] if settings.allocation is None else [_LOOPBACK]


def master_address(settings: Settings, first: HostPlan, addresses: Sequence[str]) -> str:
    """Return where the other ranks reach the host of rank 0. addresses: see `store_addresses`."""
    if settings.nodes is not None:
        return settings.nodes.address
    if settings.allocation is not None and len(first.slots) == len(settings.slots):
        return _LOOPBACK
    if first.way:
        return first.host
    # Sooner one that every program understands.
    return min(addresses, key=lambda address: ":" in address, default=_LOOPBACK)


def make_server(settings: Settings, addresses: list[str], secret: bytes) -> JobServer:
    """Make the store of a job, at these addresses of this machine. Raises LaunchError."""
    if not addresses:
        return UnixStoreServer()
    # Here, because a job on one host starts faster without it.
    from sirtaki.rendezvous.stores.tcp_store import TcpStoreServer

    try:
        return TcpStoreServer(addresses, secret, tls=uses_tls(settings, os.environ))
    except OSError as error:
        raise LaunchError(
            f"cannot listen on {', '.join(addresses)} for the ranks of other hosts: {error}"
        ) from None


def host_processes(
    settings: Settings,
    plan: HostPlan,
    planned: Sequence[Process],
    job: HostJob,
    patience: float | None = None,
) -> HostProcesses:
    """Return what starts processes on a host, here or by ssh.

    job: see `host_job`. patience: see `RemoteProcesses`.
    """
    if plan.argv is None:
        return LocalProcesses(plan.host, planned, job)
    channel = ProgramChannel(plan.argv, partial(explain_end, settings.ssh))
    return RemoteProcesses(plan.host, planned, channel, job, patience)


def host_job(
    settings: Settings, secret: bytes, plan: HostPlan, places: int, environ: Mapping[str, str]
) -> HostJob:
    """Describe what processes of a host, here or reached by ssh, have in common.

    places: how many share its cores. environ: what we have ourselves.
    """
    variables = {**settings.variables, **settings.forwarded}
    complete = base_environment if plan.argv is None else sent_environment
    return HostJob(
        command=settings.command,
        environment=complete(environ, variables),
        folder=working_folder(os.environ),
        places=places,
        secret=secret,
        grace=settings.grace,
        bind_to=settings.bind_to,
    )


def scheduled_job(
    settings: Settings, secret: bytes, plan: HostPlan, places: int, environ: Mapping[str, str]
) -> HostJob:
    """As `host_job`, of a host whose agent a scheduler's program starts."""
    from sirtaki.launch.starters import scheduler

    assert settings.allocation is not None
    cpus, gpus = scheduler.cpus_and_gpus(settings.allocation, plan.host, environ)
    variables = scheduler.environment_of_ranks(settings.allocation, settings, environ)
    job = host_job(settings, secret, plan, places, environ)
    return replace(job, environment=variables, cpus=cpus, gpus=gpus)


class PlannedJob:
    """What the ranks of one run have in common: the hosts, the secret, the store.

    `server` is to be started before the ranks and closed after them. Raises LaunchError.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.plans = plan_hosts(settings)
        self.secret = os.urandom(SECRET_BYTES)
        self._addresses = store_addresses(settings, self.plans)
        self._master = master_address(settings, self.plans[0], self._addresses)
        self.server = make_server(settings, self._addresses, self.secret)
        if self._addresses:
            self.server.put(LAUNCHED_HOSTS_KEY, launched_hosts(settings))

    @contextlib.contextmanager
    def hosts(self, environ: Mapping[str, str]) -> Iterator[list[HostProcesses]]:
        """Be ready for the processes of all hosts. environ: what we have ourselves."""
        allocation, settings = self.settings.allocation, self.settings
        if settings.nodes is not None:
            # Here, because jobs on one host start faster without it.
            from sirtaki.launch.starters.nodes import called_by_nodes

            with called_by_nodes(settings.nodes, self._addresses) as channels:
                yield self._of_nodes(channels, leave_node(environ))
            return
        if allocation is None:
            yield [self._processes(plan, environ) for plan in self.plans]
            return
        # Here, because jobs outside of allocations start faster without it.
        from sirtaki.launch.starters import scheduler

        addresses = self._addresses
        if addresses != [_LOOPBACK]:
            addresses = all_addresses(settings.interfaces)
        by_host = settings.by_host()
        with scheduler.called_agents(
            allocation, settings, environ, self.secret, addresses
        ) as channels:
            hosts: list[HostProcesses] = []
            for plan, channel in zip(self.plans, channels, strict=True):
                own = [scheduler.variables_of_rank(allocation, s, by_host) for s in plan.slots]
                job = scheduled_job(settings, self.secret, plan, len(plan.slots), environ)
                hosts.append(RemoteProcesses(plan.host, self._planned(plan, own), channel, job))
            yield hosts

    def _of_nodes(
        self, channels: Sequence[Channel], environ: Mapping[str, str]
    ) -> list[HostProcesses]:
        first, *others = self.plans
        hosts = [self._processes(first, environ)]
        for plan, channel in zip(others, channels, strict=True):
            # Each node has an environment of its own, and gets only what flags say.
            job = host_job(self.settings, self.secret, plan, len(plan.slots), {})
            hosts.append(RemoteProcesses(plan.host, self._planned(plan), channel, job))
        return hosts

    def _processes(self, plan: HostPlan, environ: Mapping[str, str]) -> HostProcesses:
        job = host_job(self.settings, self.secret, plan, len(plan.slots), environ)
        return host_processes(self.settings, plan, self._planned(plan), job)

    def _planned(
        self, plan: HostPlan, more: Sequence[Mapping[str, str]] | None = None
    ) -> list[Process]:
        """The processes of a host. more: variables of each."""
        address, node = self.server.address, self.plans.index(plan)
        return [
            Process(
                slot.rank,
                slot.local_rank,
                {**rank_environment(slot, address), **(more[slot.local_rank] if more else {})},
                torch_environment(slot, node, self._master),
            )
            for slot in plan.slots
        ]


def _shares(plan: HostPlan, settings: Settings) -> list[str]:
    """Say what each rank here gets; those elsewhere say it themselves when they start."""
    environ = base_environment(os.environ, {**settings.variables, **settings.forwarded})
    shares = shares_here(len(plan.slots), settings.bind_to, environ)
    return [
        f"rank {slot.rank} on {plan.host}: {describe_share(share, environ)}"
        + described({**environ, **rank_environment(slot, "")})
        for slot, share in zip(plan.slots, shares, strict=True)
    ]


def launched_hosts(settings: Settings) -> bytes:
    """Return the host of each rank, for the ranks to name those that do not come."""
    return json.dumps([slot.host for slot in settings.slots]).encode()


def working_folder(environ: Mapping[str, str]) -> str:
    """Return the folder we are in, by the name under which it was entered.

    Where home folders are links, that name is the one that other hosts have too.
    """
    named = environ.get("PWD", "")
    if named.startswith("/"):
        try:
            if Path(named).samefile(Path.cwd()):
                return named
        except OSError:
            pass
    return str(Path.cwd())


def describe(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Say in lines what a dry run would have started. Raises LaunchError."""
    plans = plan_hosts(settings)
    addresses = store_addresses(settings, plans)
    allocation = settings.allocation
    lines = [] if allocation is None else [f"{allocation.scheduler} job {allocation.job}"]
    for plan in plans:
        ranks = ", ".join(str(slot.rank) for slot in plan.slots)
        where = f"by {plan.way}" if plan.way else "this machine"
        if allocation is None:
            lines.append(f"host {plan.host}: ranks {ranks} ({where})")
        else:
            lines.append(f"host {plan.host} ({where}): ranks {ranks}")
        if settings.dry_run and not plan.way:
            lines += _shares(plan, settings)
    lines.append(f"interfaces: {', '.join(settings.interfaces) or 'those on the way to the hosts'}")
    where = f"tcp:{','.join(addresses)}, a free port" if addresses else "a Unix socket"
    lines.append(f"rendezvous: {where}")
    lines += [f"start: {shlex.join(plan.argv)}" for plan in plans if plan.argv is not None]
    if allocation is not None:
        from sirtaki.launch.starters import scheduler
        from sirtaki.launch.starters.shared_folder import shared_directory

        folder = shared_directory(environ) / "<job>"
        start = scheduler.plan_start(allocation, settings, environ, folder)
        lines += [f"start: {shlex.join(command)}" for command in start.commands]
    lines += [f"variable {name}={value}" for name, value in sorted(settings.variables.items())]
    # Their values may be secrets.
    lines += [f"variable {name} (-x)" for name in sorted(settings.forwarded)]
    lines.append(f"folder: {working_folder(environ)}")
    lines.append(f"command: {shlex.join(settings.command)}")
    return lines
