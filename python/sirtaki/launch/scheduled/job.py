"""A job inside a scheduler's allocation: its ranks are started by the scheduler's own program."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sirtaki.launch.errors import NOT_FOUND, LaunchError
from sirtaki.launch.flags.settings import Settings, make_settings, uses_tls
from sirtaki.launch.hosts.addresses import own_addresses
from sirtaki.launch.hosts.environment import base_environment, rank_environment
from sirtaki.launch.hosts.slots import allocate, is_local
from sirtaki.launch.hosts.torch_variables import free_port, torch_environment
from sirtaki.launch.output.destination import Destination
from sirtaki.launch.plan import launched_hosts, working_folder
from sirtaki.launch.processes.outcome import Outcome
from sirtaki.launch.processes.signals import SignalWatch
from sirtaki.launch.scheduled.folder import (
    HOSTS,
    JOB,
    SECRET,
    create_folder,
    remove_folder,
    remove_leftovers,
    shared_directory,
    write_private,
)
from sirtaki.launch.scheduled.watch import Follower
from sirtaki.launch.starters import lsf, pbs, slurm
from sirtaki.launch.starters.allocation import Allocation
from sirtaki.rendezvous.stores.store import LAUNCHED_HOSTS_KEY
from sirtaki.rendezvous.stores.tcp_store import TcpStoreServer
from sirtaki.rendezvous.world.membership import Membership

_TASK = Path(__file__).with_name("task.py")
_SECRET_BYTES = 32


@dataclass(frozen=True)
class ScheduledPlan:
    """How the ranks of a job are started.

    commands: executed here, together they start every rank. environ: their variables. given: what
    every rank has besides the environment that its task comes with. listen: whether tasks must hear
    from the launcher itself that they are to end.
    """

    commands: list[list[str]]
    environ: dict[str, str]
    given: dict[str, str]
    listen: bool


def scheduled_settings(
    allocation: Allocation, args: argparse.Namespace, environ: Mapping[str, str]
) -> Settings:
    """Check the flags of a job in an allocation; its slots are there. Raises LaunchError."""
    if args.bind_to is not None:
        raise LaunchError(
            f"--bind-to {args.bind_to}: in a job of {allocation.scheduler} the ranks are bound as "
            f"the scheduler's own {allocation.starter} does; leave it out"
        )
    place = lsf.jsrun_slots if allocation.starter == "jsrun" else allocate
    slots = place(allocation.hosts, args.num_proc)
    args.hosts, args.hostfile = f"localhost:{args.num_proc}", None
    if args.controller == "jsrun":
        args.controller = None
    return replace(make_settings(args, environ), slots=slots)


def run_scheduled(
    allocation: Allocation,
    settings: Settings,
    environ: Mapping[str, str],
    errors: Destination,
    signals: SignalWatch | None,
) -> Outcome:
    """Start the ranks and watch them to the end.

    environ: of the launcher. errors: takes sentences for the user. signals: the watched signals of
    this process. Raises LaunchError.
    """
    _require_starter(allocation, environ)
    parent = shared_directory(environ)
    try:
        folder = create_folder(parent, f"{allocation.scheduler}-{allocation.job}")
    except OSError as error:
        raise LaunchError(
            f"cannot create a folder in {parent}: {error.strerror}; set SIRTAKI_SHARED_DIR to a "
            "folder on a file system that all hosts of the job share"
        ) from None
    remove_leftovers(parent, folder.stat().st_mtime)
    try:
        plan = make_plan(allocation, settings, environ, folder)
        secret = secrets.token_bytes(_SECRET_BYTES)
        tls = uses_tls(settings, environ)
        server = TcpStoreServer(_addresses(settings), secret, tls=tls)
        server.put(LAUNCHED_HOSTS_KEY, launched_hosts(settings))
        with server:
            _write_job(folder, settings, plan, server.address, secret)
            if settings.verbose:
                for line in describe(allocation, settings, environ):
                    errors.say(line)
            some_wait = partial(server.forms_world, Membership.of(0, range(len(settings.slots))))
            return Follower(plan, folder, settings, errors, signals, some_wait).run()
    except OSError as error:
        raise LaunchError(f"cannot prepare the job in {folder}: {error}", exit_code=1) from error
    finally:
        remove_folder(folder)


def _require_starter(allocation: Allocation, environ: Mapping[str, str]) -> None:
    if shutil.which(allocation.starter, path=environ.get("PATH")) is None:
        raise LaunchError(
            f"this is job {allocation.job} of {allocation.scheduler}, but {allocation.starter}, "
            "which starts processes on its hosts, is not on the PATH; to start them on this "
            "machine alone give -H localhost:N",
            NOT_FOUND,
        )


def make_plan(
    allocation: Allocation, settings: Settings, environ: Mapping[str, str], folder: Path
) -> ScheduledPlan:
    """Say what is to be executed. folder: of the job. Raises LaunchError."""
    given = {**settings.variables, **settings.forwarded}
    base = base_environment(environ, given)
    task = [sys.executable, str(_TASK), str(folder)]
    slots = settings.slots
    if allocation.starter == "srun":
        command = slurm.srun_command(allocation.job, slots, environ)
        variables = slurm.srun_environment(base, str(folder / HOSTS))
        return ScheduledPlan([[*command, *task]], variables, given, listen=False)
    if allocation.starter == "jsrun":
        gpus = environ.get("SIRTAKI_GPUS_PER_RANK", "0")
        command = lsf.jsrun_command(allocation.hosts, slots, int(gpus) if gpus.isdecimal() else 0)
        return ScheduledPlan([[*command, *task]], base, given, listen=True)
    lines = pbs.lines_of_ranks(pbs.read_node_lines(environ), [slot.host for slot in slots])
    commands = [[*pbs.pbsdsh_command(line), *task, str(rank)] for rank, line in enumerate(lines)]
    # A task of pbsdsh has the environment in which the job was submitted, not ours.
    ours = {name: value for name, value in base.items() if name not in pbs.OF_A_TASK}
    return ScheduledPlan(commands, base, ours, listen=True)


def _addresses(settings: Settings) -> list[str]:
    hosts = sorted({slot.host for slot in settings.slots})
    # The own name often means loopback; ranks here reach any address of their host.
    remote = [host for host in hosts if not is_local(host)]
    return own_addresses(remote, settings.interfaces) if remote else ["127.0.0.1"]


def _write_job(
    folder: Path, settings: Settings, plan: ScheduledPlan, address: str, secret: bytes
) -> None:
    directory = working_folder(os.environ)
    where = {"SIRTAKI_SECRET_FILE": str(folder / SECRET)}
    hosts = settings.by_host()
    master = "127.0.0.1" if len(hosts) == 1 else settings.slots[0].host
    # Free here, and seldom used elsewhere: this is the host of rank 0 unless a user started us on
    # another by hand, and tasks that start by themselves cannot wait to be told.
    port = {"MASTER_PORT": str(free_port())}
    job = {
        "command": settings.command,
        "directory": directory,
        "environment": {**plan.given, "PYTHONUNBUFFERED": "1"},
        "environments": [{**rank_environment(slot, address), **where} for slot in settings.slots],
        "defaults": [{**torch_environment(slot, master), **port} for slot in settings.slots],
        "grace": settings.grace,
        "listen": plan.listen,
        "output": settings.output_directory and str(Path(directory) / settings.output_directory),
        "timestamps": settings.timestamps,
        "verbose": settings.verbose,
    }
    write_private(folder / JOB, json.dumps(job).encode())
    write_private(folder / SECRET, secret)
    write_private(folder / HOSTS, "".join(f"{slot.host}\n" for slot in settings.slots).encode())


def describe(allocation: Allocation, settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Say in lines what a dry run would have started. Raises LaunchError."""
    folder = shared_directory(environ) / "<job>"
    plan = make_plan(allocation, settings, environ, folder)
    lines = [f"{allocation.scheduler} job {allocation.job}"]
    for host, slots in settings.by_host().items():
        ranks = ", ".join(str(slot.rank) for slot in slots)
        lines.append(f"host {host} (by {allocation.starter}): ranks {ranks}")
    lines.append(f"interfaces: {', '.join(settings.interfaces) or 'those on the way to the hosts'}")
    lines.append(f"rendezvous: tcp:{','.join(_addresses(settings))}, a free port")
    lines += [f"start: {shlex.join(command)}" for command in plan.commands]
    lines += [f"variable {name}={value}" for name, value in sorted(settings.variables.items())]
    # Their values may be secrets.
    lines += [f"variable {name} (-x)" for name in sorted(settings.forwarded)]
    lines.append(f"folder: {working_folder(environ)}")
    lines.append(f"command: {shlex.join(settings.command)}")
    return lines
