"""What a job is: flags, file and variables brought together and checked."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sirtaki.launch.cores.shared_heap import VARIABLE as SHARED_HEAP
from sirtaki.launch.cores.shares import cpu_lists
from sirtaki.launch.elastic.settings import Elastic, elastic_settings
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.options import KNOBS, LOG_TIME, SWITCHES, decimal
from sirtaki.launch.hosts.environment import forwarded_variables, take_assignments
from sirtaki.launch.hosts.nodes import Nodes
from sirtaki.launch.hosts.slots import Host, Slot, allocate, join_local, parse_hosts, read_hostfile
from sirtaki.launch.starters import lsf
from sirtaki.launch.starters.allocation import Allocation
from sirtaki.launch.starters.ssh import Ssh
from sirtaki.records import dataclass, field
from sirtaki.rendezvous.words import truth

DEFAULT_START_TIMEOUT = 30.0
# Images of other pods are fetched first.
START_TIMEOUT_IN_POD = 300.0
DEFAULT_GRACE = 5.0
DEFAULT_TOKEN_FILE = "~/.config/sirtaki/metrics-token"


@dataclass(frozen=True)
class MpiArguments:
    """What mpirun is told besides the job. hosts_given: -H or --hostfile say where to run."""

    binding: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    hosts_given: bool = False


@dataclass(frozen=True)
class MetricSettings:
    """Where metrics go.

    port: of the endpoint, None for none. token_file: whose content a scraper sends. file: gets a
    line of JSON every `interval` seconds, None for none.
    """

    port: int | None
    token_file: str
    file: str | None
    interval: float


@dataclass(frozen=True)
class Settings:
    """A job to be started.

    slots: one a rank. command: program and arguments. variables: what the workers see besides the
    environment and their place. forwarded: the same, of the user's choice. ssh: how other hosts are
    reached. interfaces: the network interfaces to use, none for those on the way to the hosts.
    bind_to: as --bind-to says, None when it was not given. start_timeout, grace: seconds.
    output_directory, tee: where copies of the output go. dry_run: only say what would be done. mpi:
    mpirun starts the job. allocation: of the scheduler whose program starts agents on the hosts,
    None where ssh does. nodes: that start their own ranks, if they do. elastic: how a job goes on
    whose processes come and go, which has no slots. metrics: where they go.
    """

    slots: list[Slot]
    command: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    forwarded: dict[str, str] = field(default_factory=dict)
    ssh: Ssh = field(default_factory=Ssh)
    interfaces: tuple[str, ...] = ()
    bind_to: str | None = None
    start_timeout: float = DEFAULT_START_TIMEOUT
    grace: float = DEFAULT_GRACE
    output_directory: str | None = None
    tee: str | None = None
    timestamps: bool = False
    verbose: bool = False
    dry_run: bool = False
    mpi: MpiArguments | None = None
    allocation: Allocation | None = None
    nodes: Nodes | None = None
    elastic: Elastic | None = None
    metrics: MetricSettings | None = None

    def by_host(self) -> dict[str, list[Slot]]:
        """The slots of each host, hosts in the order of their ranks."""
        found: dict[str, list[Slot]] = {}
        for slot in self.slots:
            found.setdefault(slot.host, []).append(slot)
        return found


def bring_in_config(args: argparse.Namespace, warn: Callable[[str], object]) -> None:
    """Set the flags that were not given to what the YAML file says.

    warn: told of keys that mean nothing here. Raises LaunchError.
    """
    if not args.config_file:
        return
    # Here, because reading YAML takes as long to import as everything else.
    from sirtaki.launch.flags.config_file import read_config

    for name, value in read_config(args.config_file, warn).items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def make_settings(
    args: argparse.Namespace,
    environ: Mapping[str, str],
    allocation: Allocation | None = None,
    nodes: Nodes | None = None,
) -> Settings:
    """Check the parsed flags. allocation, nodes: where the job runs. Raises LaunchError."""
    values = vars(args)
    if allocation is not None and args.controller == "jsrun":
        values = {**values, "controller": None}
    elastic = elastic_settings(values, environ, () if allocation is None else allocation.hosts)
    if elastic is not None and allocation is not None and allocation.starter == "jsrun":
        raise LaunchError(
            "this is a job of lsf, whose jsrun starts a fixed number of processes: give an elastic "
            "job a --host-discovery-script that prints the job's hosts, which are reached by ssh"
        )
    mpi = mpi_arguments(values)
    command = list(args.command)
    if command[:1] == ["--"]:
        del command[0]
    forwarded = forwarded_variables(args.forward or [], environ) | take_assignments(command)
    if args.num_proc is None:
        raise LaunchError("the number of processes is missing: give -np")
    if not command:
        raise LaunchError("the command to run is missing")
    variables = knob_variables(values)
    interfaces = interface_names(args.network_interfaces)
    variables.update(network_variables(interfaces, args.tcp, args.tls))
    if args.start_timeout is not None:
        variables["HOROVOD_START_TIMEOUT"] = f"{args.start_timeout:g}"
    if nodes is not None:
        slots = nodes.slots()
    else:
        slots = [] if elastic else place(args.num_proc, args.hosts, args.hostfile, allocation)
    return Settings(
        slots=slots,
        command=command,
        variables=variables,
        forwarded=forwarded,
        ssh=Ssh(args.ssh_port, args.ssh_identity_file, args.remote_python or sys.executable),
        interfaces=interfaces,
        bind_to=_binding(args.bind_to, slots, mpi),
        start_timeout=resolve_start_timeout(args.start_timeout, environ),
        grace=args.termination_grace_seconds,
        output_directory=args.output_filename,
        tee=args.tee,
        timestamps=args.prefix_timestamp,
        verbose=args.verbose,
        dry_run=args.dry_run,
        mpi=mpi,
        allocation=allocation,
        nodes=nodes,
        elastic=elastic,
        metrics=metric_settings(values),
    )


def metric_settings(values: Mapping[str, object]) -> MetricSettings | None:
    """Return where metrics go, None: nowhere. Raises LaunchError."""
    number, file = values.get("metrics_port"), values.get("metrics_file")
    token, interval = values.get("metrics_token_file"), values.get("metrics_interval")
    if token is not None and number is None:
        raise LaunchError("--metrics-token-file: it is of --metrics-port, which is not given")
    if interval is not None and file is None:
        raise LaunchError("--metrics-interval: it is of --metrics-file, which is not given")
    if number is None and file is None:
        return None
    if values.get("controller") == "mpi":
        raise LaunchError("--metrics-port, --metrics-file: with --mpi it is mpirun that stays")
    seconds = 10.0 if interval is None else float(str(interval))
    if not 0.1 <= seconds <= 3600:
        raise LaunchError(f"--metrics-interval {seconds:g}: not from 0.1 to 3600")
    return MetricSettings(
        port=None if number is None else int(str(number)),
        token_file=str(Path(str(token or DEFAULT_TOKEN_FILE)).expanduser()),
        file=None if file is None else str(file),
        interval=seconds,
    )


def mpi_arguments(values: Mapping[str, object]) -> MpiArguments | None:
    """Return what mpirun is told, None when it does not start the job. Raises LaunchError."""
    controller = values.get("controller")
    texts = {"--mpi-args": values.get("mpi_args"), "--binding-args": values.get("binding_args")}
    given = [flag for flag, text in texts.items() if text]
    if controller == "mpi":
        if values.get("tee") is not None:
            raise LaunchError("--tee: with --mpi it is mpirun that writes; give --output-filename")
        return MpiArguments(
            binding=_words("--binding-args", texts["--binding-args"]),
            extra=_words("--mpi-args", texts["--mpi-args"]),
            hosts_given=values.get("hosts") is not None or values.get("hostfile") is not None,
        )
    if controller == "jsrun":
        raise LaunchError(
            "--jsrun is not supported outside of LSF; leave it out or give --gloo "
            "to use the native transport"
        )
    if given and controller == "gloo":
        raise LaunchError(f"{', '.join(given)}: --gloo does not use mpirun")
    return None


def _binding(given: str | None, slots: Sequence[Slot], mpi: MpiArguments | None) -> str | None:
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


def _words(flag: str, text: object) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(str(text or "")))
    except ValueError as error:
        raise LaunchError(f"{flag}={text!r}: {error}") from None


def place(
    size: int, hosts: str | None, hostfile: str | None, allocation: Allocation | None = None
) -> list[Slot]:
    """Give every rank its place, on localhost unless told otherwise. Raises LaunchError.

    allocation: in which the job runs; what was given has narrowed it.
    """
    if allocation is not None:
        spread = lsf.jsrun_slots if allocation.starter == "jsrun" else allocate
        return spread(allocation.hosts, size)
    if hosts is not None:
        listed = parse_hosts(hosts)
    elif hostfile is not None:
        listed = read_hostfile(hostfile)
    else:
        listed = [Host("localhost", size)]
    allocate(listed, size)
    return allocate(join_local(listed), size)


def knob_variables(values: Mapping[str, object]) -> dict[str, str]:
    """Turn values by attribute name into the workers' variables; None and absent set nothing."""
    variables = {}
    for knob in KNOBS:
        given = values.get(knob.dest)
        if isinstance(given, (int, float, str)):
            variables[knob.variable] = knob.value(given)
    for switch in (*SWITCHES, LOG_TIME):
        if values.get(switch.dest) is not None:
            variables[switch.variable] = switch.value(bool(values[switch.dest]))
    if values.get("shared_heap") is not None:
        variables[SHARED_HEAP] = str(values["shared_heap"])
    if "HOROVOD_TIMELINE" not in variables:
        variables.pop("HOROVOD_TIMELINE_MARK_CYCLES", None)
    if values.get("controller") == "gloo":
        variables["HOROVOD_CONTROLLER"] = "gloo"
        variables["HOROVOD_CPU_OPERATIONS"] = "gloo"
    elif values.get("controller") == "mpi":
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
    """Whether the workers will encrypt what goes between hosts, by flag or by variable."""
    return truth({**environ, **settings.variables}.get("SIRTAKI_TLS", "")) is True


def resolve_start_timeout(given: float | None, environ: Mapping[str, str]) -> float:
    """Return the seconds for all processes to start. Raises LaunchError for a bad variable."""
    if given is not None:
        return given
    names = ("SIRTAKI_START_TIMEOUT", "HOROVOD_START_TIMEOUT")
    name = next((name for name in names if name in environ), names[0])
    text = environ.get(name, "").strip()
    if not text:
        in_pod = bool(environ.get("KUBERNETES_SERVICE_HOST"))
        return START_TIMEOUT_IN_POD if in_pod else DEFAULT_START_TIMEOUT
    try:
        return decimal(text)
    except argparse.ArgumentTypeError as error:
        raise LaunchError(f"{name}: {error}") from None
