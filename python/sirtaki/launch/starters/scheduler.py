"""A job in a scheduler's allocation: the scheduler's program starts an agent on each host."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import sirtaki
from sirtaki.launch.errors import FAILED, NOT_FOUND, LaunchError, reported
from sirtaki.launch.flags.settings import Settings
from sirtaki.launch.hosts import shared_folder
from sirtaki.launch.hosts.environment import base_environment, is_private
from sirtaki.launch.hosts.slots import Slot
from sirtaki.launch.processes.agent_server import AgentServer, CallChannel
from sirtaki.launch.processes.channels import Channel
from sirtaki.launch.starters.allocation import Allocation
from sirtaki.launch.starters.starter import Starter
from sirtaki.schedulers import table
from sirtaki.schedulers.scheduler import Agents

_AGENT = Path(__file__).parents[1] / "processes" / "connecting_agent.py"
# The share of the start timeout, so that an agent can still report why it could not connect.
_CALL_SHARE = 0.8


@dataclass(frozen=True)
class AgentCommands:
    """The commands that start agents.

    commands: program and arguments, executed here; each starts the agent of one host, or a single
    one starts all. environ: their variables.
    """

    commands: list[list[str]]
    environ: dict[str, str]


def plan_start(
    allocation: Allocation, settings: Settings, environ: Mapping[str, str], folder: Path
) -> AgentCommands:
    """Return the commands to execute. folder: of the job. Raises LaunchError."""
    scheduler = table.named(allocation.scheduler)
    base = base_environment(environ, settings.variables)
    if scheduler.inherits:
        # The other hosts get it in clear text; private variables are sent encrypted instead.
        base = {n: v for n, v in base.items() if not is_private(n, v, settings.forwarded)}
    agents = Agents(
        job=allocation.job,
        program=[sys.executable, str(_AGENT), str(folder)],
        hosts=list(settings.by_host()),
        hostfile=folder / shared_folder.HOSTS,
        slots={host.name: host.slots for host in allocation.hosts},
        ranks=max(slot.local_size for slot in settings.slots),
        environ=environ,
    )
    with reported():
        commands = scheduler.commands(agents)
    return AgentCommands(commands, scheduler.starter_environment(base, agents.hostfile))


def environment_of_ranks(
    allocation: Allocation, settings: Settings, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of all ranks besides those of their agents."""
    scheduler = table.named(allocation.scheduler)
    given = {**settings.variables, **settings.forwarded}
    base = base_environment(environ, given)
    if not scheduler.inherits:
        return {name: value for name, value in base.items() if name not in scheduler.of_task}
    private = {n: value for n, value in base.items() if is_private(n, value, settings.forwarded)}
    of_job = scheduler.kept_from_starter(environ)
    return {**of_job, **private, **given, "PYTHONUNBUFFERED": "1"}


def variables_of_rank(
    allocation: Allocation, slot: Slot, hosts: Mapping[str, Sequence[Slot]]
) -> dict[str, str]:
    """Return the variables that a rank would have if the scheduler had started it."""
    return table.named(allocation.scheduler).rank_variables(slot, list(map(len, hosts.values())))


def cpus_and_gpus(
    allocation: Allocation, host: str, environ: Mapping[str, str]
) -> tuple[int | None, int | None]:
    """Return the job's CPUs on a host and its GPUs per rank, None if unknown."""
    scheduler = table.named(allocation.scheduler)
    return scheduler.cpus(environ, host), scheduler.gpus(environ)


@contextlib.contextmanager
def called_agents(
    allocation: Allocation,
    settings: Settings,
    environ: Mapping[str, str],
    secret: bytes,
    addresses: Sequence[str],
) -> Iterator[list[Channel]]:
    """Accept the agents of all hosts; yields the channel to each. Raises LaunchError.

    addresses: where agents can reach this machine.
    """
    _require_starter(allocation, environ)
    parent = shared_folder.shared_directory(environ)
    try:
        folder = shared_folder.create_folder(parent, f"{allocation.scheduler}-{allocation.job}")
    except OSError as error:
        raise LaunchError(
            f"cannot create a folder in {parent}: {error.strerror}; set SIRTAKI_SHARED_DIR to a "
            "folder on a file system that all hosts of the job share"
        ) from None
    hosts = list(settings.by_host())
    try:
        shared_folder.remove_leftovers(parent, folder.stat().st_mtime)
        start = plan_start(allocation, settings, environ, folder)
        server = AgentServer(
            addresses, secret, hosts, complete=partial(shared_folder.remove_folder, folder)
        )
        _fill(folder, hosts, settings, server.address, secret)
    except OSError as error:
        shared_folder.remove_folder(folder)
        raise LaunchError(f"cannot prepare the job in {folder}: {error}", FAILED) from error
    try:
        numbers = list(range(len(hosts)))
        starters = [
            Starter(command, start.environ, [n] if len(start.commands) > 1 else numbers)
            for n, command in enumerate(start.commands)
        ]
        with server:
            yield [CallChannel(server, n, starters[n % len(starters)]) for n in numbers]
    finally:
        shared_folder.remove_folder(folder)


def _fill(
    folder: Path, hosts: Sequence[str], settings: Settings, address: str, secret: bytes
) -> None:
    job = {
        "version": sirtaki.__version__,
        "address": address,
        "hosts": len(hosts),
        "seconds": settings.start_timeout * _CALL_SHARE,
    }
    shared_folder.write_private(folder / shared_folder.SECRET, secret)
    shared_folder.write_private(
        folder / shared_folder.HOSTS, "".join(f"{host}\n" for host in hosts).encode()
    )
    shared_folder.write_private(folder / shared_folder.JOB, json.dumps(job).encode())


def _require_starter(allocation: Allocation, environ: Mapping[str, str]) -> None:
    if shutil.which(allocation.starter, path=environ.get("PATH")) is None:
        raise LaunchError(
            f"this is job {allocation.job} of {allocation.scheduler}, but {allocation.starter}, "
            "which starts processes on its hosts, is not on the PATH; to start them on this "
            "machine alone give -H localhost:N",
            NOT_FOUND,
        )
