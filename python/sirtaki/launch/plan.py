"""Plans which ranks a job starts on which host, and how."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sirtaki.launch.cores.binding import describe_share, shares_here
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.settings import Hosts, Settings, uses_tls
from sirtaki.launch.hosts.addresses import all_addresses, own_addresses, require_interfaces
from sirtaki.launch.hosts.environment import base_environment, rank_environment, sent_environment
from sirtaki.launch.hosts.nodes import Nodes, leave_node
from sirtaki.launch.hosts.slots import Slot, is_local
from sirtaki.launch.hosts.torch_variables import default_environment, place_of
from sirtaki.launch.processes.channels import Channel
from sirtaki.launch.processes.events import HostJob, HostProcesses, Process
from sirtaki.launch.processes.local import LocalProcesses
from sirtaki.launch.processes.remote import RemoteProcesses
from sirtaki.launch.starters.allocation import Allocation
from sirtaki.launch.starters.ssh import Ssh, explain_end, ssh_command
from sirtaki.launch.starters.ssh_channel import SshChannel
from sirtaki.rendezvous.stores.store import LAUNCHED_HOSTS_KEY
from sirtaki.rendezvous.stores.unix_store import UnixStoreServer

if TYPE_CHECKING:
    from typing import TypeAlias

    from sirtaki.rendezvous.stores.tcp_store import TcpStoreServer

    JobServer: TypeAlias = UnixStoreServer | TcpStoreServer

SECRET_BYTES = 32
_LOOPBACK = "127.0.0.1"


class HostPlan(NamedTuple):
    """The ranks of one host.

    way: how it is reached, "" for this machine. argv: program and arguments for it alone.
    """

    host: str
    slots: list[Slot]
    way: str = ""
    argv: list[str] | None = None


def plan_host(settings: Settings, host: str, slots: Sequence[Slot]) -> HostPlan:
    """Return the plan of a host outside of allocations. Raises LaunchError."""
    key = settings.ssh.identity_file
    if is_local(host):
        return HostPlan(host, list(slots))
    if key is not None and not Path(key).is_file():
        raise LaunchError(f"the key for ssh, {key!r}, is not a file here")
    argv = ssh_command(settings.ssh, host, settings.start_timeout)
    return HostPlan(host, list(slots), "ssh", argv)


class Layout(NamedTuple):
    """Where the ranks of a job run.

    plans: of each host, in the order of their ranks. addresses: of the store here, none if this is
    the only host and starts all ranks. master: the address of rank 0's host for the others.
    """

    plans: list[HostPlan]
    addresses: list[str]
    master: str


def lay_out(settings: Settings) -> Layout:
    """Return where the ranks of a job of fixed size run. Raises LaunchError."""
    by_host, interfaces = settings.by_host(), settings.interfaces
    match settings.kind:
        case Nodes() as nodes:
            ways = ("", *["its own launcher"] * (len(by_host) - 1))
            plans = [HostPlan(*each, way) for each, way in zip(by_host.items(), ways, strict=True)]
            return Layout(plans, all_addresses(interfaces), nodes.address)
        case Allocation() as allocation:
            plans = [HostPlan(*each, allocation.starter) for each in by_host.items()]
            # A host's own name often resolves to loopback; ranks reach any address of their host.
            remote = [host for host in by_host if not is_local(host)]
            addresses = _addresses(remote, interfaces) or [_LOOPBACK]
            return Layout(plans, addresses, _LOOPBACK if len(plans) == 1 else plans[0].host)
        case _:
            plans = [plan_host(settings, *each) for each in by_host.items()]
            addresses = _addresses([plan.host for plan in plans if plan.way], interfaces)
            # IPv4 first, which every program understands.
            here = min(addresses, key=lambda address: ":" in address, default=_LOOPBACK)
            return Layout(plans, addresses, plans[0].host if plans[0].way else here)


def _addresses(remote: Sequence[str], interfaces: Sequence[str]) -> list[str]:
    """Return the addresses of this machine for other hosts, if there are any."""
    if remote:
        return own_addresses(remote, interfaces)
    if interfaces:
        require_interfaces(interfaces)
    return []


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
    """Return the processes of a host, started here or by ssh.

    job: see `host_job`. patience: see `RemoteProcesses`.
    """
    if plan.argv is None:
        return LocalProcesses(plan.host, planned, job)
    explain = partial(_explain, settings.ssh, plan.host)
    channel = SshChannel(plan.argv, explain, settings.start_timeout)
    return RemoteProcesses(plan.host, planned, channel, job, patience)


def _explain(ssh: Ssh, host: str, exit_code: int | None, lines: Sequence[str]) -> str:
    """Explain why ssh ended, with a fix if one is known."""
    why = explain_end(ssh, exit_code, lines)
    if not why.startswith("ssh could not connect"):
        return why
    from sirtaki.doctor.hosts.asked import fix_of  # hardly any job needs it

    return f"{why}; fix: {fix_of(host, why)}"


def host_job(
    settings: Settings, secret: bytes, plan: HostPlan, places: int, environ: Mapping[str, str]
) -> HostJob:
    """Return the job of a host, local or reached by ssh.

    places: how many processes share its cores. environ: our own variables.
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
    """Return the job of a host whose agent a scheduler's program starts; see `host_job`."""
    from sirtaki.launch.starters import scheduler

    assert isinstance(settings.kind, Allocation)
    cpus, gpus = scheduler.cpus_and_gpus(settings.kind, plan.host, environ)
    variables = scheduler.environment_of_ranks(settings.kind, settings, environ)
    job = host_job(settings, secret, plan, places, environ)
    return job._replace(environment=variables, cpus=cpus, gpus=gpus)


class PlannedJob:
    """The hosts, the secret and the store of one run.

    `server` must be started before the ranks and closed after them. Raises LaunchError.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.plans, self._addresses, self._master = lay_out(settings)
        self.secret = os.urandom(SECRET_BYTES)
        self.server = make_server(settings, self._addresses, self.secret)
        if self._addresses:
            self.server.put(LAUNCHED_HOSTS_KEY, launched_hosts(settings))

    @contextlib.contextmanager
    def hosts(self, environ: Mapping[str, str]) -> Iterator[list[HostProcesses]]:
        """Prepare the processes of all hosts. environ: our own variables."""
        # The starters are imported here, because jobs on one host start faster without them.
        match self.settings.kind:
            case Nodes() as nodes:
                from sirtaki.launch.starters.nodes import called_by_nodes

                with called_by_nodes(nodes, self._addresses) as channels:
                    yield self._of_nodes(channels, leave_node(environ))
            case Allocation() as allocation:
                from sirtaki.launch.starters.scheduler import called_agents

                addresses = self._addresses
                if addresses != [_LOOPBACK]:
                    addresses = all_addresses(self.settings.interfaces)
                agents = (allocation, self.settings, environ, self.secret, addresses)
                with called_agents(*agents) as channels:
                    yield self._of_allocation(allocation, channels, environ)
            case _:
                yield [self._processes(plan, environ) for plan in self.plans]

    def _of_allocation(
        self, allocation: Allocation, channels: Sequence[Channel], environ: Mapping[str, str]
    ) -> list[HostProcesses]:
        from sirtaki.launch.starters.scheduler import variables_of_rank

        hosts: list[HostProcesses] = []
        by_host = self.settings.by_host()
        for plan, channel in zip(self.plans, channels, strict=True):
            own = [variables_of_rank(allocation, slot, by_host) for slot in plan.slots]
            job = scheduled_job(self.settings, self.secret, plan, len(plan.slots), environ)
            hosts.append(RemoteProcesses(plan.host, self._planned(plan, own), channel, job))
        return hosts

    def _of_nodes(
        self, channels: Sequence[Channel], environ: Mapping[str, str]
    ) -> list[HostProcesses]:
        first, *others = self.plans
        hosts = [self._processes(first, environ)]
        for plan, channel in zip(others, channels, strict=True):
            # Each node has its own environment and gets only the variables from flags.
            job = host_job(self.settings, self.secret, plan, len(plan.slots), {})
            hosts.append(RemoteProcesses(plan.host, self._planned(plan), channel, job))
        return hosts

    def _processes(self, plan: HostPlan, environ: Mapping[str, str]) -> HostProcesses:
        job = host_job(self.settings, self.secret, plan, len(plan.slots), environ)
        return host_processes(self.settings, plan, self._planned(plan), job)

    def _planned(
        self, plan: HostPlan, more: Sequence[Mapping[str, str]] | None = None
    ) -> list[Process]:
        """Return the processes of a host. more: variables of each."""
        address, kind = self.server.address, self.settings.kind
        debug = kind.debug if isinstance(kind, Hosts) else None
        node, nodes = self.plans.index(plan), len(self.plans)
        return [
            Process(
                slot.rank,
                slot.local_rank,
                {
                    **rank_environment(slot, address),
                    **place_of(slot, node, nodes),
                    **(more[slot.local_rank] if more else {}),
                },
                default_environment(self._master),
                debug.terminal if debug is not None and slot.rank == debug.rank else "",
            )
            for slot in plan.slots
        ]


def _shares(plan: HostPlan, settings: Settings) -> list[str]:
    """Describe the share of each local rank; other hosts report theirs at the start."""
    environ = base_environment(os.environ, {**settings.variables, **settings.forwarded})
    shares = shares_here(len(plan.slots), settings.bind_to, environ)
    return [
        f"rank {slot.rank} on {plan.host}: {describe_share(share, environ)}"
        for slot, share in zip(plan.slots, shares, strict=True)
    ]


def launched_hosts(settings: Settings) -> bytes:
    """Return the host of each rank, so that ranks can name those that do not come."""
    return json.dumps([slot.host for slot in settings.slots]).encode()


def working_folder(environ: Mapping[str, str]) -> str:
    """Return the working folder by the name under which the shell entered it.

    Where home folders are links, other hosts share that name only. Raises LaunchError.
    """
    named = environ.get("PWD", "")
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise LaunchError(f"the current folder, {named!r}, has been removed: enter one") from None
    with contextlib.suppress(OSError):
        if named.startswith("/") and Path(named).samefile(here):
            return named
    return str(here)


def describe(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Return the lines that describe what a dry run would start. Raises LaunchError."""
    plans, addresses, _ = lay_out(settings)
    allocation = settings.kind if isinstance(settings.kind, Allocation) else None
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
        from sirtaki.launch.hosts.shared_folder import shared_directory
        from sirtaki.launch.starters import scheduler

        folder = shared_directory(environ) / "<job>"
        start = scheduler.plan_start(allocation, settings, environ, folder)
        lines += [f"start: {shlex.join(command)}" for command in start.commands]
    lines += [f"variable {name}={value}" for name, value in sorted(settings.variables.items())]
    # Values of -x may be secrets.
    lines += [f"variable {name} (-x)" for name in sorted(settings.forwarded)]
    lines.append(f"folder: {working_folder(environ)}")
    lines.append(f"command: {shlex.join(settings.command)}")
    return lines
