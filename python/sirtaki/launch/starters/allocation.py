"""The scheduler's allocation, and the part of it that a job uses."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sirtaki.launch.errors import LaunchError, reported
from sirtaki.launch.flags.flags import Flags
from sirtaki.launch.hosts.slots import Host, is_local, merged
from sirtaki.launch.output.destination import Destination
from sirtaki.schedulers import table


class Allocation(NamedTuple):
    """The resources that a scheduler allocated to this job.

    scheduler: its name, see `table`. job: its id there. hosts: with the number of ranks for each.
    starter: the program that starts processes inside the job, "" if ssh does.
    """

    scheduler: str
    job: str
    hosts: list[Host]
    starter: str


def find_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """Return the allocation that the variables describe, None without one.

    environ: of a process inside the job; files that it names are read, and the scheduler's programs
    are searched on its PATH. Raises LaunchError when the variables cannot be understood.
    """
    for each in table.here(environ):
        if job := each.job(environ):
            with reported():
                hosts = [Host(*host) for host in each.hosts(environ).items()]
            return Allocation(each.name, job, hosts, each.starter(environ))
    return None


def take_allocation(flags: Flags, environ: Mapping[str, str]) -> tuple[Flags, Allocation | None]:
    """Return the allocation whose starter runs the job, None if ranks start without it.

    Given hosts narrow the allocation. The returned flags have the number of processes that it
    determines. If its ranks are started over ssh, its hosts replace the given ones; so does this
    machine if it is the allocation's only host and has too few slots. Raises LaunchError.
    """
    flags, found = _take_allocation(flags, environ)
    if flags.controller == "jsrun" and (found is None or found.starter != flags.controller):
        raise LaunchError(
            "--jsrun is not supported here: in LSF jobs with jsrun on the PATH it is the default, "
            f"elsewhere it is refused. {table.named('lsf').why_no_starter(environ)}; leave it out"
        )
    return flags, found


def _take_allocation(flags: Flags, environ: Mapping[str, str]) -> tuple[Flags, Allocation | None]:
    wanted = flags.given_hosts()
    try:
        found = find_allocation(environ)
    except LaunchError:
        if wanted is None:
            raise
        return flags, None
    if found is None or flags.controller == "mpi" or flags.host_discovery_script is not None:
        return flags, None
    if wanted is not None and not is_part(found.hosts, wanted):
        return flags, None
    scheduler = table.named(found.scheduler)
    if found.starter not in scheduler.outside and not _is_here(found.hosts):
        return flags, None  # variables of a job that ran elsewhere
    with reported():
        scheduler.require_launcher(environ)
    if wanted is not None:
        found = found._replace(hosts=narrow(found.hosts, wanted, scheduler.cure))
    slots = sum(host.slots for host in found.hosts)
    size = slots if flags.num_proc is None else flags.num_proc
    flags = flags.but(num_proc=size)
    if size > slots:
        if wanted is not None or len(found.hosts) > 1 or not _is_here(found.hosts):
            raise LaunchError(_too_many(found, size, slots))
        # The host is ours nevertheless: jobs often request cores and GPUs with a single task.
        Destination(sys.stderr).say(_why_here(found, size, slots))
        return flags.but(hosts=f"localhost:{size}", hostfile=None), None
    if found.starter:
        return flags, found
    return flags.but(hosts=as_flag(found.hosts), hostfile=None), None


def _too_many(allocation: Allocation, size: int, slots: int) -> str:
    cure = table.named(allocation.scheduler).cure
    return (
        f"Requested more processes ({size}) than there are available slots ({slots}) on "
        f"{', '.join(f'{host.name}:{host.slots}' for host in allocation.hosts)} of "
        f"{allocation.scheduler} job {allocation.job}: {cure}, or give -H localhost:{size} to "
        "start them all on this machine"
    )


def _why_here(allocation: Allocation, size: int, slots: int) -> str:
    slot = table.named(allocation.scheduler).slot
    starter = f" without {allocation.starter}" if allocation.starter else ""
    return (
        f"{allocation.scheduler} job {allocation.job} has {slots} {slot} on this one host, fewer "
        f"than -np {size}: starting the processes here{starter}"
    )


def as_flag(hosts: Sequence[Host]) -> str:
    """Format hosts as a value of -H."""
    return ",".join(
        f"{host.name}:{host.slots}" + (f"@{host.port}" if host.port else "") for host in hosts
    )


def _is_here(hosts: list[Host]) -> bool:
    here = [Host(socket.gethostname(), 1)]
    return is_part(hosts, here) or any(is_local(host.name) for host in hosts)


def narrow(hosts: Sequence[Host], wanted: Sequence[Host], cure: str = "") -> list[Host]:
    """Return the requested part of an allocation, with the allocation's names.

    Names are the same when they are equal up to the first dot. Raises LaunchError for a host that
    is not in the allocation, or has fewer slots there. cure: how the job gets more slots.
    """
    given = {_short(host.name): host for host in hosts}
    named = (
        host._replace(name=given[_short(host.name)].name) if _short(host.name) in given else host
        for host in wanted
    )
    narrowed = []
    for host in merged(named):
        there = given.get(_short(host.name))
        if there is None:
            raise LaunchError(
                f"{host.name} is not one of the hosts of this job: "
                f"{', '.join(f'{known.name}:{known.slots}' for known in hosts)}"
            )
        if host.slots > there.slots:
            raise LaunchError(
                f"{host.slots} slots are asked for on {host.name}, and the scheduler gave "
                f"{there.slots}: {cure or 'ask it for more'}, or ask for fewer slots there"
            )
        narrowed.append(Host(there.name, host.slots))
    return narrowed


def is_part(hosts: Sequence[Host], wanted: Sequence[Host]) -> bool:
    """Return whether any of the wanted hosts is in the allocation."""
    return bool({_short(host.name) for host in hosts} & {_short(host.name) for host in wanted})


def _short(name: str) -> str:
    first = name.partition(".")[0].lower()
    return name if first.isdecimal() else first  # an address has no short form
