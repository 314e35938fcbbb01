"""Which scheduler gave us hosts, and which of them a job is to use."""

from __future__ import annotations

import argparse
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.slots import Host, is_local, parse_hosts, read_hostfile
from sirtaki.launch.output.destination import Destination
from sirtaki.launch.starters import lsf, pbs, slurm
from sirtaki.records import dataclass, replace

# What a slot is, and how a job gets more of them.
_IN_WORDS = {
    "slurm": ("task(s)", "raise its --ntasks or --ntasks-per-node"),
    "pbs": ("line(s) of $PBS_NODEFILE", "raise mpiprocs= in its -l select="),
    "lsf": ("slot(s)", "raise -n of its bsub"),
}


@dataclass(frozen=True)
class Allocation:
    """What a scheduler gave to this job.

    scheduler: "slurm", "pbs" or "lsf". job: its id there. hosts: with the ranks each may take.
    starter: the program that starts ranks inside the job: "srun", "pbsdsh", "jsrun", or "" where
    they are started over ssh.
    """

    scheduler: str
    job: str
    hosts: list[Host]
    starter: str


def find_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """Return the allocation that the variables describe, None outside of all.

    environ: of a process inside the job; the files that it names are read, and the programs of the
    scheduler are looked for on its PATH. Raises LaunchError when it cannot be understood.
    """
    if job := slurm.job_id(environ):
        return Allocation("slurm", job, slurm.hosts_of(environ), "srun")
    if job := pbs.job_id(environ):
        return Allocation("pbs", job, pbs.hosts_of(environ), _present("pbsdsh", environ))
    if job := lsf.job_id(environ):
        starter = _present("jsrun", environ)
        return Allocation("lsf", job, lsf.hosts_of(environ, starter == "jsrun"), starter)
    return None


def take_allocation(args: argparse.Namespace, environ: Mapping[str, str]) -> Allocation | None:
    """Return the allocation in which the job is to run, None when it starts its ranks itself.

    args: the parsed flags. Hosts that were given narrow the allocation; where its ranks are started
    over ssh, its hosts become the hosts given, and so does this machine where it is the only host
    of the allocation and has too few slots. Raises LaunchError.
    """
    found = _take_allocation(args, environ)
    if args.controller == "jsrun" and (found is None or found.starter != "jsrun"):
        raise LaunchError(
            "--jsrun is not supported here: in LSF jobs with jsrun on the PATH it is the default, "
            f"elsewhere it is refused. {_why_not_jsrun(environ)}; leave it out"
        )
    return found


def _why_not_jsrun(environ: Mapping[str, str]) -> str:
    job = lsf.job_id(environ)
    if not job:
        return "This is no LSF job"
    if not _present("jsrun", environ):
        return f"This is LSF job {job}, but no jsrun is on the PATH"
    return f"The hosts asked for are not those of LSF job {job}"


def _take_allocation(args: argparse.Namespace, environ: Mapping[str, str]) -> Allocation | None:
    wanted = _given_hosts(args)
    try:
        found = find_allocation(environ)
    except LaunchError:
        if wanted is None:
            raise
        return None
    if found is None or args.controller == "mpi" or args.host_discovery_script is not None:
        return None
    if wanted is not None and not is_part(found.hosts, wanted):
        return None
    if found.scheduler != "slurm" and found.starter != "jsrun" and not _is_here(found.hosts):
        return None  # variables of a job that ran elsewhere
    if found.scheduler == "slurm" and slurm.is_task_of_many(environ):
        raise LaunchError(
            f"srun has started this launcher as one of {environ['SLURM_STEP_NUM_TASKS']} tasks; "
            "start it once, in the job's script, or let srun start the program itself"
        )
    if wanted is not None:
        found = replace(found, hosts=narrow(found.hosts, wanted))
    if args.num_proc is None:
        args.num_proc = sum(host.slots for host in found.hosts)
    slots = sum(host.slots for host in found.hosts)
    if args.num_proc > slots:
        if wanted is not None or len(found.hosts) > 1 or not _is_here(found.hosts):
            raise LaunchError(_too_many(found, args.num_proc, slots))
        # The host is ours all the same: jobs often ask for cores and GPUs with a single task.
        Destination(sys.stderr).say(_why_here(found, args.num_proc, slots))
        args.hosts, args.hostfile = f"localhost:{args.num_proc}", None
        return None
    if found.starter:
        return found
    args.hosts, args.hostfile = as_flag(found.hosts), None
    return None


def _too_many(allocation: Allocation, size: int, slots: int) -> str:
    _, cure = _IN_WORDS[allocation.scheduler]
    return (
        f"Requested more processes ({size}) than there are available slots ({slots}) on "
        f"{', '.join(f'{host.name}:{host.slots}' for host in allocation.hosts)} of "
        f"{allocation.scheduler} job {allocation.job}: {cure}, or give -H localhost:{size} to "
        "start them all on this machine"
    )


def _why_here(allocation: Allocation, size: int, slots: int) -> str:
    slot, _ = _IN_WORDS[allocation.scheduler]
    starter = f" without {allocation.starter}" if allocation.starter else ""
    return (
        f"{allocation.scheduler} job {allocation.job} has {slots} {slot} on this one host, fewer "
        f"than -np {size}: starting the processes here{starter}"
    )


def _given_hosts(args: argparse.Namespace) -> list[Host] | None:
    if args.hosts is not None:
        return parse_hosts(args.hosts)
    return None if args.hostfile is None else read_hostfile(args.hostfile)


def as_flag(hosts: Sequence[Host]) -> str:
    """Write hosts as -H takes them."""
    return ",".join(f"{host.name}:{host.slots}" for host in hosts)


def _is_here(hosts: list[Host]) -> bool:
    here = [Host(socket.gethostname(), 1)]
    return is_part(hosts, here) or any(is_local(host.name) for host in hosts)


def _present(program: str, environ: Mapping[str, str]) -> str:
    return program if shutil.which(program, path=environ.get("PATH", "")) else ""


def narrow(hosts: Sequence[Host], wanted: Sequence[Host]) -> list[Host]:
    """Return the part of an allocation that was asked for, under the allocation's names.

    Names are the same when they are equal up to the first dot. Raises LaunchError for a host that
    is not in the allocation, or has fewer slots there.
    """
    given = {_short(host.name): host for host in hosts}
    narrowed = []
    for host in wanted:
        there = given.get(_short(host.name))
        if there is None:
            raise LaunchError(
                f"{host.name} is not one of the hosts of this job: "
                f"{', '.join(f'{known.name}:{known.slots}' for known in hosts)}"
            )
        if host.slots > there.slots:
            raise LaunchError(
                f"{host.slots} slots are asked for on {host.name}, and the scheduler gave "
                f"{there.slots}: ask it for more, or leave -H out"
            )
        narrowed.append(Host(there.name, host.slots))
    return narrowed


def is_part(hosts: Sequence[Host], wanted: Sequence[Host]) -> bool:
    """Whether any of the hosts wanted is in the allocation."""
    return bool({_short(host.name) for host in hosts} & {_short(host.name) for host in wanted})


def _short(name: str) -> str:
    return name.partition(".")[0].lower()
