"""What the flags of elastic training say."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.slots import Host, parse_hosts, read_hostfile
from sirtaki.records import dataclass

DEFAULT_TIMEOUT = 600.0
DEFAULT_UNRESPONSIVE = 5.0
# Slurm kills 30 s after SIGTERM.
DEFAULT_LEAVE = 25.0
# What a host that failed waits for, in seconds: at first, and at most.
DEFAULT_COOLDOWN = (1.0, 60.0)
FindHosts = Callable[[], Mapping[str, int]]
FLAGS = {
    "host_discovery": "host_discovery",
    "host_discovery_script": "--host-discovery-script",
    "min_num_proc": "--min-np",
    "max_num_proc": "--max-np",
    "slots": "--slots-per-host",
    "spares": "--spares",
    "unresponsive": "--unresponsive-seconds",
    "leave_seconds": "--leave-seconds",
    "elastic_timeout": "--elastic-timeout",
    "reset_limit": "--reset-limit",
    "cooldown_range": "--blacklist-cooldown-range",
}
# Those that make a job elastic; the others say how.
_ENTERING = ("host_discovery", "host_discovery_script", "min_num_proc")
# Kubeflow's MPI Operator keeps it beside the list of hosts that it mounts.
_PODS = "discover_hosts.sh"


@dataclass(frozen=True)
class Elastic:
    """How an elastic job goes on.

    least, most: processes in a world. first: of the first world. spares: processes that wait beside
    a full world. timeout: seconds until enough processes are there. reset_limit: how many new
    worlds there may be after the first, None for any number. cooldown: seconds that a host which
    failed takes no new process, at first and at most; they double with each failure. script: prints
    the hosts, "" for those of `hosts` or, where it is given, of `hostfile`, which may change.
    function: returns them instead, None where there is none.
    default_slots: of a host that the script prints without a number. unresponsive: seconds for
    which a process may be stopped or its engine silent. leave_seconds: for which all processes may
    go on when a signal to the launcher asks them to leave.
    """

    least: int
    most: int
    first: int
    spares: int = 0
    timeout: float = DEFAULT_TIMEOUT
    reset_limit: int | None = None
    cooldown: tuple[float, float] = DEFAULT_COOLDOWN
    script: str = ""
    function: FindHosts | None = None
    hostfile: str = ""
    hosts: tuple[Host, ...] = ()
    default_slots: int = 1
    unresponsive: float = DEFAULT_UNRESPONSIVE
    leave_seconds: float = DEFAULT_LEAVE

    @property
    def may_change(self) -> bool:
        """Whether other hosts may come while the job runs."""
        return bool(self.script or self.hostfile or self.function)


def elastic_settings(
    values: Mapping[str, object], environ: Mapping[str, str], allocated: Sequence[Host] = ()
) -> Elastic | None:
    """Return what the parsed flags say; None for a job of a fixed size. Raises LaunchError.

    environ: of the launcher. allocated: the hosts that a scheduler gave to the job, if any.
    """
    given = {name: values.get(name) for name in FLAGS}
    if all(given[name] is None for name in _ENTERING):
        if asked := [FLAGS[name] for name, value in given.items() if value is not None]:
            raise LaunchError(
                f"{', '.join(asked)}: only for elastic jobs, which --min-np or "
                "--host-discovery-script makes"
            )
        return None
    _require_launcher(values)
    first = _number(values, "num_proc", None)
    least = _number(values, "min_num_proc", first)
    most = _number(values, "max_num_proc", max(first, least))
    if not least <= most:
        raise LaunchError(f"--min-np {least} is more than --max-np {most}")
    if not least <= first <= most:
        raise LaunchError(f"-np {first} is not between --min-np {least} and --max-np {most}")
    spares = _number(values, "spares", 0)
    script, hostfile = str(given["host_discovery_script"] or ""), str(values.get("hostfile") or "")
    changes = bool(given["host_discovery"] or script or hostfile)
    fixed = not changes and bool(values.get("hosts") or allocated)
    if not changes and not fixed:
        script = _pods(environ)
    return Elastic(
        least=least,
        most=most,
        first=first,
        spares=spares,
        timeout=_timeout(given["elastic_timeout"], environ),
        reset_limit=given["reset_limit"],  # type: ignore[arg-type]
        cooldown=_cooldown(given["cooldown_range"]),
        script=script,
        function=given["host_discovery"],  # type: ignore[arg-type]
        hostfile="" if script else hostfile,
        hosts=tuple(allocated) or _hosts(values.get("hosts"), most + spares)
        if not (changes or script)
        else (),
        default_slots=_number(values, "slots", _slots_of_pods(environ)),
        unresponsive=float(given["unresponsive"] or DEFAULT_UNRESPONSIVE),  # type: ignore[arg-type]
        leave_seconds=float(given["leave_seconds"] or DEFAULT_LEAVE),  # type: ignore[arg-type]
    )


def _timeout(given: object, environ: Mapping[str, str]) -> float:
    name = "HOROVOD_ELASTIC_TIMEOUT"
    if given is not None:
        return float(given)  # type: ignore[arg-type]
    try:
        seconds = float(environ.get(name, "").strip() or DEFAULT_TIMEOUT)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise LaunchError(f"{name}={environ[name]!r} is not a number of seconds")
    return seconds


def _pods(environ: Mapping[str, str]) -> str:
    """Return the script that prints an MPIJob's pods, "" outside of its launcher's pod."""
    hostfile = environ.get("OMPI_MCA_orte_default_hostfile", "")
    script = Path(hostfile).with_name(_PODS) if hostfile else None
    if environ.get("K_MPI_JOB_ROLE") != "launcher" or script is None or not script.is_file():
        return ""
    # What is mounted need not be executable.
    return f"sh {shlex.quote(str(script))}"


def _slots_of_pods(environ: Mapping[str, str]) -> int:
    slots = environ.get("OMPI_MCA_orte_set_default_slots", "")
    return int(slots) if environ.get("K_MPI_JOB_ROLE") and slots.isdecimal() and int(slots) else 1


def _number(values: Mapping[str, object], name: str, default: int | None) -> int:
    value = values.get(name)
    if isinstance(value, int):
        return value
    if default is None:
        raise LaunchError("the number of processes is missing: give -np")
    return default


def _hosts(text: object, most: int) -> tuple[Host, ...]:
    return tuple(parse_hosts(str(text))) if text else (Host("localhost", most),)


def _cooldown(given: object) -> tuple[float, float]:
    if given is None:
        return DEFAULT_COOLDOWN
    assert isinstance(given, (list, tuple))
    low, high = map(float, given)
    if not 0 < low <= high:
        raise LaunchError("--blacklist-cooldown-range: expected 0 < MIN <= MAX")
    return low, high


def _require_launcher(values: Mapping[str, object]) -> None:
    controller = values.get("controller")
    if controller in ("mpi", "jsrun"):
        raise LaunchError(
            f"--{controller} starts a fixed number of processes: leave it out of an elastic job"
        )


def hosts_in_file(path: str) -> dict[str, int]:
    """Return the hosts that a file names now, with their slots. Raises LaunchError."""
    return {host.name: host.slots for host in read_hostfile(path)}
