"""Which ranks a job starts on which host, and how."""

from __future__ import annotations

import json
import os
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sirtaki.launch.cores.binding import describe_share, shares_here
from sirtaki.launch.cores.shared_heap import described
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.settings import Settings, uses_tls
from sirtaki.launch.hosts.addresses import own_addresses, require_interfaces
from sirtaki.launch.hosts.environment import base_environment, rank_environment, sent_environment
from sirtaki.launch.hosts.slots import Slot, is_local
from sirtaki.launch.hosts.torch_variables import torch_environment
from sirtaki.launch.processes.events import HostProcesses
from sirtaki.launch.processes.local import LocalProcesses
from sirtaki.launch.processes.remote import RemoteProcesses
from sirtaki.launch.starters.ssh import explain_end, ssh_command
from sirtaki.rendezvous.stores.store import LAUNCHED_HOSTS_KEY, UnixStoreServer

if TYPE_CHECKING:
    from typing import TypeAlias

    from sirtaki.rendezvous.stores.tcp_store import TcpStoreServer

    JobServer: TypeAlias = UnixStoreServer | TcpStoreServer

_SECRET_BYTES = 32


@dataclass(frozen=True)
class HostPlan:
    """The ranks of one host. argv: what reaches it, None for this machine."""

    host: str
    slots: list[Slot]
    argv: list[str] | None


def plan_hosts(settings: Settings) -> list[HostPlan]:
    """Say what is to be started where, hosts in the order of their ranks. Raises LaunchError."""
    plans = []
    key = settings.ssh.identity_file
    for host, slots in settings.by_host().items():
        argv = None
        if not is_local(host):
            if key is not None and not Path(key).is_file():
                raise LaunchError(f"the key for ssh, {key!r}, is not a file here")
            argv = ssh_command(settings.ssh, host, settings.start_timeout)
        plans.append(HostPlan(host, slots, argv))
    return plans


def store_addresses(settings: Settings, plans: Sequence[HostPlan]) -> list[str]:
    """Where on this machine the ranks can meet; nowhere when all of them are here."""
    remote = [plan.host for plan in plans if plan.argv is not None]
    if remote:
        return own_addresses(remote, settings.interfaces)
    if settings.interfaces:
        require_interfaces(settings.interfaces)
    return []


def master_address(first: HostPlan, addresses: Sequence[str]) -> str:
    """Return where the other ranks reach the host of rank 0. addresses: see `store_addresses`."""
    if first.argv is not None:
        return first.host
    # Sooner one that every program understands.
    return min(addresses, key=lambda address: ":" in address, default="127.0.0.1")


class Job:
    """What the ranks of one run have in common: the hosts, the secret, the store.

    `server` is to be started before the ranks and closed after them. Raises LaunchError.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.plans = plan_hosts(settings)
        self.secret = secrets.token_bytes(_SECRET_BYTES)
        addresses = store_addresses(settings, self.plans)
        self._master = master_address(self.plans[0], addresses)
        self.server = self._make_server(addresses)

    def _make_server(self, addresses: list[str]) -> JobServer:
        if not addresses:
            return UnixStoreServer()
        # Here, because a job on one host starts faster without it.
        from sirtaki.rendezvous.stores.tcp_store import TcpStoreServer

        try:
            server = TcpStoreServer(addresses, self.secret, tls=uses_tls(self.settings, os.environ))
        except OSError as error:
            raise LaunchError(
                f"cannot listen on {', '.join(addresses)} for the ranks of other hosts: {error}"
            ) from None
        server.put(LAUNCHED_HOSTS_KEY, launched_hosts(self.settings))
        return server

    def hosts(self, environ: Mapping[str, str]) -> list[HostProcesses]:
        """Make the processes of all hosts. environ: what we have ourselves."""
        return [self._processes(plan, environ) for plan in self.plans]

    def _processes(self, plan: HostPlan, environ: Mapping[str, str]) -> HostProcesses:
        settings = self.settings
        variables = {**settings.variables, **settings.forwarded}
        ranks = {slot.rank: rank_environment(slot, self.server.address) for slot in plan.slots}
        defaults = {slot.rank: torch_environment(slot, self._master) for slot in plan.slots}
        if plan.argv is None:
            base = base_environment(environ, variables)
            return LocalProcesses(
                plan.host,
                settings.command,
                base,
                ranks,
                defaults,
                settings.bind_to,
                self.secret,
                settings.grace,
            )
        job = {
            "command": settings.command,
            "environment": sent_environment(environ, variables),
            "ranks": ranks,
            "defaults": defaults,
            "folder": working_folder(environ),
            "bind_to": settings.bind_to,
            "secret": self.secret.hex(),
            "grace": settings.grace,
        }
        explain = partial(explain_end, settings.ssh)
        return RemoteProcesses(plan.host, list(ranks), plan.argv, job, explain)


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


def describe(settings: Settings) -> list[str]:
    """Say in lines what a dry run would have started."""
    plans = plan_hosts(settings)
    addresses = store_addresses(settings, plans)
    lines = []
    for plan in plans:
        ranks = ", ".join(str(slot.rank) for slot in plan.slots)
        way = "this machine" if plan.argv is None else "by ssh"
        lines.append(f"host {plan.host}: ranks {ranks} ({way})")
        if settings.dry_run and plan.argv is None:
            lines += _shares(plan, settings)
    lines.append(f"interfaces: {', '.join(settings.interfaces) or 'those on the way to the hosts'}")
    where = f"tcp:{','.join(addresses)}, a free port" if addresses else "a Unix socket"
    lines.append(f"rendezvous: {where}")
    lines += [f"start: {shlex.join(plan.argv)}" for plan in plans if plan.argv is not None]
    lines += [f"variable {name}={value}" for name, value in sorted(settings.variables.items())]
    # Their values may be secrets.
    lines += [f"variable {name} (-x)" for name in sorted(settings.forwarded)]
    lines.append(f"folder: {working_folder(os.environ)}")
    lines.append(f"command: {shlex.join(settings.command)}")
    return lines
