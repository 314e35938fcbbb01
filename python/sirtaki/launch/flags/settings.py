"""A job's settings: flags, file and variables, combined and checked."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from sirtaki.launch.cores.shares import cpu_lists
from sirtaki.launch.elastic.settings import Elastic, elastic_settings
from sirtaki.launch.errors import LaunchError, reported
from sirtaki.launch.flags.flags import Flags
from sirtaki.launch.flags.options import ROWS, decimal
from sirtaki.launch.hosts.environment import forwarded_variables, take_assignments
from sirtaki.launch.hosts.nodes import Nodes
from sirtaki.launch.hosts.slots import (
    Host,
    Slot,
    allocate,
    is_local,
    join_local,
    ports_of,
    refuse_ports,
)
from sirtaki.launch.starters.allocation import Allocation
from sirtaki.launch.starters.ssh import Ssh
from sirtaki.rendezvous.files.private_folder import in_home
from sirtaki.rendezvous.words import truth
from sirtaki.schedulers import table

DEFAULT_START_TIMEOUT = 30.0
DEFAULT_GRACE = 5.0
DEFAULT_TOKEN_FILE = "~/.config/sirtaki/metrics-token"


class Mpi(NamedTuple):
    """A job that mpirun starts, with the user's arguments.

    hosts_given: whether -H or --hostfile was given.
    """

    binding: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    hosts_given: bool = False


class MetricSettings(NamedTuple):
    """The destinations of metrics.

    port: of the endpoint, or None. token_file: contains the token that a scraper sends. file: gets
    a line of JSON every `interval` seconds, or None.
    """

    port: int | None
    token_file: str
    file: str | None
    interval: float


class DebugRank(NamedTuple):
    """The rank that is attached to a terminal of this machine, and the terminal's path."""

    rank: int
    terminal: str


class Hosts(NamedTuple):
    """A job that this launcher starts, here and over ssh. debug: the rank with the terminal."""

    debug: DebugRank | None = None


Kind = Hosts | Allocation | Nodes | Mpi | Elastic


class Settings(NamedTuple):
    """A job to start.

    kind: who starts its ranks, and where. slots: one per rank, none in an elastic job. command:
    program and arguments. variables: set for the workers besides the environment and their place.
    forwarded: the same, from -x. ssh: how other hosts are reached. interfaces: the network
    interfaces to use, empty for those that lead to the hosts. bind_to: the value of --bind-to, None
    when it was not given. start_timeout, grace: seconds. output_directory, tee: where copies of the
    output go. output_ranks: whose output is shown, None for all. dry_run: only describe the job.
    metrics: where they go.
    """

    slots: list[Slot]
    command: list[str]
    kind: Kind = Hosts()
    variables: Mapping[str, str] = MappingProxyType({})
    forwarded: Mapping[str, str] = MappingProxyType({})
    ssh: Ssh = Ssh()
    interfaces: tuple[str, ...] = ()
    bind_to: str | None = None
    start_timeout: float = DEFAULT_START_TIMEOUT
    grace: float = DEFAULT_GRACE
    output_directory: str | None = None
    tee: str | None = None
    timestamps: bool = False
    output_ranks: frozenset[int] | None = None
    verbose: bool = False
    dry_run: bool = False
    metrics: MetricSettings | None = None

    def by_host(self) -> dict[str, list[Slot]]:
        """Return the slots of each host, hosts in the order of their ranks."""
        found: dict[str, list[Slot]] = {}
        for slot in self.slots:
            found.setdefault(slot.host, []).append(slot)
        return found


def make_settings(
    flags: Flags, environ: Mapping[str, str], found: Allocation | Nodes | None = None
) -> Settings:
    """Check the flags. found: where the job runs, unless they say. Raises LaunchError."""
    allocation = found if isinstance(found, Allocation) else None
    if allocation is not None and flags.controller == allocation.starter:
        flags = flags.but(controller=None)
    given = flags.given_hosts()
    if given is not None and flags.num_proc is None:
        flags = flags.but(num_proc=sum(host.slots for host in given))
    elastic = elastic_settings(flags, environ, allocation)
    mpi = mpi_arguments(flags)
    kind = elastic or mpi or found or Hosts()
    command = list(flags.command)
    if command[:1] == ["--"]:
        del command[0]
    forwarded = forwarded_variables(flags.forward or [], environ) | take_assignments(command)
    if flags.num_proc is None:
        raise LaunchError("the number of processes is missing: give -np")
    if not command:
        raise LaunchError("the command to run is missing")
    listed = [Host("localhost", flags.num_proc)] if given is None else given
    if mpi is not None:
        refuse_ports(listed, "mpirun")
    if isinstance(found, Nodes):
        slots = found.slots()
    else:
        slots = [] if elastic else place(flags.num_proc, listed, allocation)
    if flags.debug_rank is not None:
        kind = Hosts(_debug_rank(flags.debug_rank, slots, isinstance(kind, Hosts)))
    variables = knob_variables(flags)
    interfaces = interface_names(flags.network_interfaces)
    variables.update(network_variables(interfaces, flags.tcp, flags.tls))
    if flags.start_timeout is not None:
        variables["HOROVOD_START_TIMEOUT"] = f"{flags.start_timeout:g}"
    return Settings(
        slots=slots,
        command=command,
        kind=kind,
        variables=variables,
        forwarded=forwarded,
        ssh=Ssh(
            flags.ssh_port,
            flags.ssh_identity_file,
            flags.remote_python or sys.executable,
            ports_of(listed),
        ),
        interfaces=interfaces,
        bind_to=_binding(flags.bind_to, slots, mpi),
        start_timeout=resolve_start_timeout(flags.start_timeout, environ),
        grace=flags.termination_grace_seconds,
        output_directory=flags.output_filename,
        tee=flags.tee,
        timestamps=flags.prefix_timestamp,
        output_ranks=_output_ranks(flags, flags.num_proc if elastic is None else elastic.most),
        verbose=flags.verbose,
        dry_run=flags.dry_run,
        metrics=metric_settings(flags),
    )


def _output_ranks(flags: Flags, size: int) -> frozenset[int] | None:
    chosen = flags.output_ranks
    if chosen is None:
        return None
    if flags.controller == "mpi":
        raise LaunchError("--output-ranks: with --mpi it is mpirun that shows what ranks print")
    if max(chosen) >= size:
        raise LaunchError(f"--output-ranks: there is no rank {max(chosen)} among {size}")
    return chosen


def _debug_rank(rank: int, slots: Sequence[Slot], started_here: bool) -> DebugRank:
    """Give the rank our terminal. Raises LaunchError."""
    if not started_here:
        raise LaunchError(
            "--debug-rank: not with --mpi, in a scheduler's job or in an elastic one, where others "
            "start the ranks; try it with -np on one machine, or over ssh"
        )
    if rank >= len(slots):
        raise LaunchError(f"--debug-rank: there is no rank {rank} among {len(slots)}")
    if not is_local(slots[rank].host):
        raise LaunchError(
            f"--debug-rank: rank {rank} is on {slots[rank].host}, and the terminal is here; start "
            "the job there, or choose a rank of this host"
        )
    try:
        terminal = os.ttyname(0)
    except OSError:
        raise LaunchError(
            "--debug-rank: standard input is no terminal that a rank could have"
        ) from None
    return DebugRank(rank, terminal)


def metric_settings(flags: Flags) -> MetricSettings | None:
    """Return where metrics go, or None. Raises LaunchError."""
    number, file = flags.metrics_port, flags.metrics_file
    token, interval = flags.metrics_token_file, flags.metrics_interval
    if token is not None and number is None:
        raise LaunchError("--metrics-token-file: it is of --metrics-port, which is not given")
    if interval is not None and file is None:
        raise LaunchError("--metrics-interval: it is of --metrics-file, which is not given")
    if number is None and file is None:
        return None
    if flags.controller == "mpi":
        raise LaunchError("--metrics-port, --metrics-file: with --mpi it is mpirun that stays")
    seconds = 10.0 if interval is None else interval
    if not 0.1 <= seconds <= 3600:
        raise LaunchError(f"--metrics-interval {seconds:g}: not from 0.1 to 3600")
    wanted = "" if number is None else token or DEFAULT_TOKEN_FILE
    with reported():
        token_file = in_home(wanted, "--metrics-token-file")
    return MetricSettings(port=number, token_file=str(token_file), file=file, interval=seconds)


def mpi_arguments(flags: Flags) -> Mpi | None:
    """Return the arguments for mpirun, None if it does not start the job. Raises LaunchError."""
    texts = {"--mpi-args": flags.mpi_args, "--binding-args": flags.binding_args}
    given = [flag for flag, text in texts.items() if text]
    if flags.controller == "mpi":
        if flags.tee is not None:
            raise LaunchError("--tee: with --mpi it is mpirun that writes; give --output-filename")
        return Mpi(
            binding=_words("--binding-args", texts["--binding-args"]),
            extra=_words("--mpi-args", texts["--mpi-args"]),
            hosts_given=flags.hosts is not None or flags.hostfile is not None,
        )
    if flags.controller == "jsrun":
        raise LaunchError(
            "--jsrun is not supported outside of LSF; leave it out or give --gloo "
            "to use the native transport"
        )
    if given and flags.controller == "gloo":
        raise LaunchError(f"{', '.join(given)}: --gloo does not use mpirun")
    return None


def _binding(given: str | None, slots: Sequence[Slot], mpi: Mpi | None) -> str | None:
    if given is None:
        return None
    if mpi is not None:
        raise LaunchError(
            f"--bind-to {given}: with --mpi it is mpirun that binds its ranks; say how in "
            "--binding-args"
        )
    lists = len(cpu_lists(given))
    most = max((slot.local_size for slot in slots), default=lists)
    if lists not in (0, most):
        raise LaunchError(
            f"--bind-to {given}: {lists} list(s) of CPUs for up to {most} rank(s) a host; give one "
            "for each, separated by colons"
        )
    return given


def _words(flag: str, text: str | None) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text or ""))
    except ValueError as error:
        raise LaunchError(f"{flag}={text!r}: {error}") from None


def place(size: int, listed: Sequence[Host], allocation: Allocation | None = None) -> list[Slot]:
    """Give every rank its place. Raises LaunchError.

    listed: the hosts that were given. allocation: that of the job, already narrowed to them.
    """
    if allocation is not None:
        hosts = {host.name: host.slots for host in allocation.hosts}
        with reported():
            spread = table.named(allocation.scheduler).spread(hosts, size, allocation.starter)
        return allocate([Host(*host) for host in spread.items()], size)
    allocate(listed, size)
    return allocate(join_local(listed), size)


def knob_variables(flags: Flags) -> dict[str, str]:
    """Turn the flags of the tables into the workers' variables."""
    knobs = flags.knobs
    variables = {row.variable: row.value(knobs[row.dest]) for row in ROWS if row.dest in knobs}
    if "HOROVOD_TIMELINE" not in variables:
        variables.pop("HOROVOD_TIMELINE_MARK_CYCLES", None)
    if flags.controller == "gloo":
        variables["HOROVOD_CONTROLLER"] = "gloo"
        variables["HOROVOD_CPU_OPERATIONS"] = "gloo"
    elif flags.controller == "mpi":
        variables["HOROVOD_CONTROLLER"] = "mpi"
    return variables


def interface_names(given: Sequence[str] | None) -> tuple[str, ...]:
    """Split the lists of network interfaces. Raises LaunchError for an empty name."""
    names = tuple(name.strip() for text in given or () for name in text.split(","))
    if not all(names):
        raise LaunchError(f"an empty name among the network interfaces {', '.join(given or ())}")
    return names


def network_variables(
    interfaces: Sequence[str], tcp: bool = False, tls: bool = False
) -> dict[str, str]:
    """Turn network flags into the workers' variables."""
    variables = {}
    if interfaces:
        variables["HOROVOD_GLOO_IFACE"] = ",".join(interfaces)
        variables["SIRTAKI_IFACE"] = ",".join(interfaces)
        variables["NCCL_SOCKET_IFNAME"] = ",".join(interfaces)
    if tcp:
        variables["NCCL_IB_DISABLE"] = "1"
    if tls:
        variables["SIRTAKI_TLS"] = "1"
    return variables


def uses_tls(settings: Settings, environ: Mapping[str, str]) -> bool:
    """Return whether the workers will encrypt traffic between hosts, by flag or by variable."""
    return truth({**environ, **settings.variables}.get("SIRTAKI_TLS", "")) is True


def resolve_start_timeout(given: float | None, environ: Mapping[str, str]) -> float:
    """Return the seconds allowed for all processes to start. Raises LaunchError."""
    if given is not None:
        return given
    names = ("SIRTAKI_START_TIMEOUT", "HOROVOD_START_TIMEOUT")
    name = next((name for name in names if name in environ), names[0])
    text = environ.get(name, "").strip()
    if not text:
        return table.start_seconds(environ) or DEFAULT_START_TIMEOUT
    try:
        return decimal(text)
    except argparse.ArgumentTypeError as error:
        raise LaunchError(f"{name}: {error}") from None
