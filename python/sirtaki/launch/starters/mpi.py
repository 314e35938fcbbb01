"""Starts a job with the system's mpirun: builds its command line and executes it."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from pathlib import Path

from sirtaki.launch.errors import NOT_FOUND, LaunchError
from sirtaki.launch.flags.settings import Mpi, Settings
from sirtaki.launch.hosts.addresses import require_interfaces
from sirtaki.launch.hosts.environment import base_environment, sent_environment
from sirtaki.launch.hosts.sent import kept_back
from sirtaki.launch.hosts.slots import is_local
from sirtaki.launch.output.output import create_directory
from sirtaki.launch.processes.guarding import mpi_rank
from sirtaki.schedulers import table
from sirtaki.schedulers.start import JOB

_VERSION_SECONDS = 60.0
# Open MPI starts its daemons in a tree; beyond this many hosts one by one is safer.
_MANY_HOSTS = 64
_BINDING = ("--bind-to", "none", "--map-by", "slot")
_SPECTRUM_BINDING = ("-bind-to", "socket", "-map-by", "socket")
_PARAMETER_FLAGS = ("mca", "gmca", "prtemca")
# Intel's mpirun is a script that dies of a signal without passing it to mpiexec.hydra. With this
# alias the script executes mpiexec.hydra in its place; bash expands aliases only with the option.
_BECOME_HYDRA = (
    "shopt -s expand_aliases 2>/dev/null; alias mpiexec.hydra='exec mpiexec.hydra'; . \"$0\""
)
# Flags of mpirun that the launcher's own flags determine.
_RESERVED = frozenset(
    (
        *("-np", "-n", "--np", "-ppn", "-perhost", "-H", "-host", "--host", "-hosts"),
        *("-hostfile", "--hostfile", "-machinefile", "--machinefile"),
    )
)


class MpiKind(Enum):
    """The families of mpirun, by their names in messages."""

    OPEN_MPI = "Open MPI 5"
    OPEN_MPI_4 = "Open MPI 4"
    SPECTRUM = "IBM Spectrum MPI"
    MPICH = "MPICH"
    INTEL = "Intel MPI"

    @property
    def is_hydra(self) -> bool:
        """Whether it is MPICH's launcher or descends from it."""
        return self in (MpiKind.MPICH, MpiKind.INTEL)


# Text in the output of `mpirun --version`; Intel's launcher calls itself HYDRA as well.
_MARKS = (
    ("Spectrum MPI", MpiKind.SPECTRUM),
    ("Open MPI", MpiKind.OPEN_MPI),
    ("OpenRTE", MpiKind.OPEN_MPI_4),
    ("Intel(R) MPI", MpiKind.INTEL),
    ("HYDRA", MpiKind.MPICH),
)


@dataclass(frozen=True)
class MpiLaunch:
    """A program to execute: its path, arguments and variables."""

    argv: list[str]
    variables: dict[str, str] = field(default_factory=dict)


def recognise(version: str) -> MpiKind:
    """Return which mpirun prints this text for --version. Raises LaunchError."""
    for mark, kind in _MARKS:
        if mark in version:
            return (
                kind if kind is not MpiKind.OPEN_MPI or _has_prrte(version) else MpiKind.OPEN_MPI_4
            )
    first = version.strip().splitlines()[:1]
    raise LaunchError(
        f"this mpirun is none of {', '.join(kind.value for kind in MpiKind)}: --version says "
        f"{first[0] if first else 'nothing'!r}; start the script with mpirun itself, its ranks "
        "find each other"
    )


def _has_prrte(version: str) -> bool:
    """Return whether this Open MPI uses PRRTE, which has parameters of its own."""
    found = re.search(r"Open MPI\) ([0-9]+)", version)
    return found is not None and int(found[1]) >= 5


def compose(
    kind: MpiKind, mpirun: str, settings: Settings, passed: Sequence[str], allocated: bool = False
) -> MpiLaunch:
    """Return the command line that starts the job.

    mpirun: its path. passed: names of the variables that ranks on other hosts get too. allocated: a
    scheduler gives mpirun the hosts, unless the user does. Raises LaunchError for settings that
    this mpirun does not support.
    """
    asked = _asked(settings)
    own = _RESERVED.intersection(asked.extra)
    if own:
        raise LaunchError(
            f"--mpi-args contains {', '.join(sorted(own))}: give the number of processes and the "
            "hosts to the launcher (-np, -H, --hostfile)"
        )
    hosts = {} if allocated and not asked.hosts_given else _counts(settings)
    if kind.is_hydra:
        return _compose_hydra(kind, mpirun, settings, hosts, passed)
    return _compose_open_mpi(kind, mpirun, settings, hosts, passed)


def _asked(settings: Settings) -> Mpi:
    assert isinstance(settings.kind, Mpi)
    return settings.kind


def _counts(settings: Settings) -> dict[str, int]:
    counts = {host: len(slots) for host, slots in settings.by_host().items()}
    for host in counts:
        if ":" in host:
            raise LaunchError(
                f"mpirun cannot be given the IPv6 address {host}: use the host's name"
            )
    return counts


def _compose_open_mpi(
    kind: MpiKind, mpirun: str, settings: Settings, hosts: Mapping[str, int], passed: Sequence[str]
) -> MpiLaunch:
    asked = _asked(settings)
    spectrum = kind is MpiKind.SPECTRUM
    argv = [mpirun, "--allow-run-as-root", "--tag-output"]
    if settings.timestamps:
        argv.append("--timestamp-output")
    argv += ["-np", str(len(settings.slots))]
    if hosts:
        argv += ["-H", ",".join(f"{host}:{count}" for host, count in hosts.items())]
    argv += asked.binding or (_SPECTRUM_BINDING if spectrum else _BINDING)
    if spectrum and settings.variables.get("NCCL_IB_DISABLE") == "1":
        argv.append("-tcp")
    parameters = {} if spectrum else {"pml": "ob1", "btl": "^openib"}
    if settings.interfaces:
        parameters["btl_tcp_if_include"] = ",".join(settings.interfaces)
    argv += _parameters("-mca", parameters, asked.extra)
    prrte = kind is MpiKind.OPEN_MPI
    starter = _starting_parameters("plm_ssh" if prrte else "plm_rsh", settings, len(hosts))
    argv += _parameters("--prtemca" if prrte else "-mca", starter, asked.extra)
    if settings.output_directory is not None:
        argv += ["--output-filename", settings.output_directory]
    for name in passed:
        argv += ["-x", name]
    return MpiLaunch([*argv, *asked.extra, *settings.command])


def _starting_parameters(component: str, settings: Settings, hosts: int) -> dict[str, str]:
    """Return the parameters with which Open MPI's `component` starts daemons on other hosts."""
    parameters = {}
    ssh = _ssh_arguments(settings, hosts)
    if ssh:
        parameters[f"{component}_args"] = ssh
    if hosts >= _MANY_HOSTS:
        parameters[f"{component}_no_tree_spawn"] = "true"
        parameters[f"{component}_num_concurrent"] = str(hosts)
    return parameters


def _parameters(flag: str, parameters: Mapping[str, str], extra: Sequence[str]) -> list[str]:
    """Return flags for the parameters that the user has not set: two values are an error."""
    given = {name for word, name in pairwise(extra) if word.lstrip("-") in _PARAMETER_FLAGS}
    return [
        word
        for name, value in parameters.items()
        if name not in given
        for word in (flag, name, value)
    ]


def _compose_hydra(
    kind: MpiKind, mpirun: str, settings: Settings, hosts: Mapping[str, int], passed: Sequence[str]
) -> MpiLaunch:
    asked = _asked(settings)
    if settings.timestamps:
        raise LaunchError(f"--prefix-output-with-timestamp: {kind.value} has no such output")
    if len(settings.interfaces) > 1:
        raise LaunchError(
            f"{kind.value} takes one network interface, not {', '.join(settings.interfaces)}"
        )
    argv = [mpirun, "-l", "-np", str(len(settings.slots)), *_hydra_hosts(kind, hosts)]
    for interface in settings.interfaces:
        argv += ["-iface", interface]
    argv += asked.binding
    variables = {}
    ssh = _ssh_arguments(settings, len(hosts))
    asks_for_ssh = settings.ssh.port is not None or settings.ssh.identity_file is not None
    if kind is MpiKind.INTEL and asks_for_ssh:
        argv += ["-bootstrap", "ssh", "-bootstrap-exec-args", ssh]
    elif kind is MpiKind.MPICH and ssh:
        variables["HYDRA_LAUNCHER_EXTRA_ARGS"] = ssh
    if settings.output_directory is not None:
        folder = Path(settings.output_directory)
        argv += ["-outfile-pattern", str(folder / "rank.%r.stdout")]
        argv += ["-errfile-pattern", str(folder / "rank.%r.stderr")]
    if passed:
        argv += ["-genvlist", ",".join(passed)]
    return MpiLaunch([*argv, *asked.extra, *settings.command], variables)


def _hydra_hosts(kind: MpiKind, hosts: Mapping[str, int]) -> list[str]:
    counts = list(hosts.values())
    if not counts:
        return []
    # The last host may have slots left.
    if all(count == counts[0] for count in counts[:-1]) and counts[-1] <= counts[0]:
        return ["-ppn", str(counts[0]), "-hosts", ",".join(hosts)]
    if kind is MpiKind.MPICH:
        return ["-hosts", ",".join(f"{host}:{count}" for host, count in hosts.items())]
    raise LaunchError(
        f"{kind.value} puts equally many processes on each host, not "
        + ", ".join(f"{count} on {host}" for host, count in hosts.items())
    )


def _ssh_arguments(settings: Settings, hosts: int) -> str:
    # As in our own calls of ssh: mpirun has no terminal at which to ask.
    arguments = ["-o", "StrictHostKeyChecking=accept-new"] if hosts > 1 else []
    if settings.ssh.port is not None:
        arguments += ["-p", str(settings.ssh.port)]
    if settings.ssh.identity_file is not None:
        if len(settings.ssh.identity_file.split()) != 1:
            raise LaunchError("mpirun cannot be given a key for ssh with spaces in its path")
        arguments += ["-i", settings.ssh.identity_file]
    return " ".join(arguments)


def prepare(settings: Settings, environ: Mapping[str, str]) -> MpiLaunch:
    """Return the command line that starts the job here, with its whole environment.

    environ: our own variables. Raises LaunchError.
    """
    mpirun = shutil.which("mpirun", path=environ.get("PATH"))
    if mpirun is None:
        raise LaunchError(
            "--mpi: there is no mpirun on the PATH; install Open MPI or MPICH, load its module, "
            "or leave --mpi out to use the launcher's own way",
            NOT_FOUND,
        )
    kind = recognise(_version_of(mpirun))
    variables = {**settings.variables, **settings.forwarded}
    if kind is MpiKind.MPICH:
        variables[JOB] = secrets.token_hex(16)
    environment = base_environment(environ, variables)
    passed = sorted({*sent_environment(environ, variables), *settings.forwarded})
    allocated = any(each.job_variable in environ for each in table.here(environ))
    if settings.interfaces and not allocated and all(map(is_local, settings.by_host())):
        require_interfaces(settings.interfaces)
    command = list(settings.command)
    if kind.is_hydra:
        command = [sys.executable, "-I", "-S", mpi_rank.__file__, *command]
    launch = compose(kind, mpirun, settings._replace(command=command), passed, allocated)
    if kind is MpiKind.INTEL:
        launch = replace(launch, argv=[*_without_the_script(mpirun), *launch.argv[1:]])
    if settings.output_directory is not None and not settings.dry_run:
        create_directory(settings.output_directory)
    return replace(launch, variables={**environment, **launch.variables})


def _without_the_script(mpirun: str) -> list[str]:
    """Return the command that turns this mpirun of Intel's into mpiexec.hydra."""
    with Path(mpirun).open("rb") as file:
        first = file.readline(256)
    shell = first[2:].decode(errors="replace").split()
    return [*shell, "-c", _BECOME_HYDRA, mpirun] if first.startswith(b"#!") else [mpirun]


def run(settings: Settings, environ: Mapping[str, str]) -> int:
    """Replace this process by mpirun, so that output, signals and the exit code are its own.

    Returns 0 after a dry run, which only prints the command. Raises LaunchError.
    """
    launch = prepare(settings, environ)
    if settings.dry_run or settings.verbose:
        print(f"start: {shlex.join(launch.argv)}", file=None if settings.dry_run else sys.stderr)
    if settings.dry_run:
        return 0
    left = kept_back(environ, settings.forwarded)
    if left and not all(map(is_local, settings.by_host())):
        print(f"horovodrun: {left}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(launch.argv[0], launch.argv, launch.variables)


def _version_of(mpirun: str) -> str:
    try:
        done = subprocess.run(
            [mpirun, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{mpirun} --version does not work: {error}") from None
    return done.stdout.decode(errors="replace")
