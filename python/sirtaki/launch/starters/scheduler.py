"""A job in a scheduler's allocation: its own program starts an agent on each host."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import sirtaki
from sirtaki.launch.errors import FAILED, NOT_FOUND, LaunchError
from sirtaki.launch.flags.settings import Settings
from sirtaki.launch.hosts.environment import base_environment, is_private
from sirtaki.launch.hosts.slots import Slot
from sirtaki.launch.processes.agent_server import AgentServer, CallChannel
from sirtaki.launch.processes.channels import Channel
from sirtaki.launch.starters import lsf, pbs, shared_folder, slurm
from sirtaki.launch.starters.allocation import Allocation
from sirtaki.launch.starters.starter import Starter
from sirtaki.records import dataclass

_AGENT = Path(__file__).parents[1] / "processes" / "connecting_agent.py"
# Of the time for the start, so that an agent can still say itself why it did not get through.
_CALL_SHARE = 0.8


@dataclass(frozen=True)
class AgentCommands:
    """How agents are started.

    commands: program and arguments, executed here; each starts the agent of one host, the only one
    those of all. environ: their variables.
    """

    commands: list[list[str]]
    environ: dict[str, str]


def plan_start(
    allocation: Allocation, settings: Settings, environ: Mapping[str, str], folder: Path
) -> AgentCommands:
    """Say what is to be executed. folder: of the job. Raises LaunchError."""
    base = base_environment(environ, settings.variables)
    hosts = list(settings.by_host())
    agent = [sys.executable, str(_AGENT), str(folder)]
    if allocation.starter == "pbsdsh":
        lines = pbs.read_node_lines(environ)
        first = [pbs.line_of(lines, host) for host in hosts]
        commands = [[*pbs.pbsdsh_command(n), *agent, str(i)] for i, n in enumerate(first)]
        return AgentCommands(commands, base)
    # It goes to the other hosts as it is; what is nobody's business travels encrypted.
    shown = {name: base[name] for name in base if not is_private(name, settings.forwarded)}
    if allocation.starter == "srun":
        command = slurm.srun_command(allocation.job, len(hosts))
        shown = slurm.srun_environment(shown, str(folder / shared_folder.HOSTS))
    else:
        most = max(slot.local_size for slot in settings.slots)
        gpus = most * (lsf.gpus_per_rank(environ) or 0)
        command = lsf.jsrun_command(allocation.hosts, len(hosts), gpus)
    return AgentCommands([[*command, *agent]], shown)


def environment_of_ranks(
    allocation: Allocation, settings: Settings, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return what all ranks have besides what their agents come with."""
    given = {**settings.variables, **settings.forwarded}
    base = base_environment(environ, given)
    if allocation.starter == "pbsdsh":
        # A task of pbsdsh has the environment in which the job was submitted, not ours.
        return {name: value for name, value in base.items() if name not in pbs.OF_A_TASK}
    private = {name: base[name] for name in base if is_private(name, settings.forwarded)}
    of_job = slurm.variables_of_job(environ) if allocation.starter == "srun" else {}
    return {**of_job, **private, **given, "PYTHONUNBUFFERED": "1"}


def variables_of_rank(
    allocation: Allocation, slot: Slot, hosts: Mapping[str, Sequence[Slot]]
) -> dict[str, str]:
    """Return what a rank would have if the scheduler had started it."""
    if allocation.starter == "srun":
        return slurm.variables_of_rank(slot, hosts)
    return lsf.variables_of_rank(slot) if allocation.starter == "jsrun" else {}


def cpus_and_gpus(
    allocation: Allocation, host: str, environ: Mapping[str, str]
) -> tuple[int | None, int | None]:
    """Return how many CPUs the job has on a host and GPUs for each rank, None where unknown."""
    if allocation.starter == "srun":
        return slurm.cpus_of(environ).get(host), slurm.gpus_per_rank(environ)
    if allocation.starter == "jsrun":
        return None, lsf.gpus_per_rank(environ)
    return pbs.cpus_per_host(environ), None


@contextlib.contextmanager
def called_agents(
    allocation: Allocation,
    settings: Settings,
    environ: Mapping[str, str],
    secret: bytes,
    addresses: Sequence[str],
) -> Iterator[list[Channel]]:
    """Be ready for the agents of all hosts; gives the way to each. Raises LaunchError.

    addresses: where agents may reach this machine.
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
