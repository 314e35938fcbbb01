"""The settings of elastic training, from its flags."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.flags import Flags
from sirtaki.launch.hosts.slots import Host, parse_hosts, read_hostfile, refuse_ports
from sirtaki.launch.starters.allocation import Allocation
from sirtaki.schedulers import table

DEFAULT_TIMEOUT = 600.0
DEFAULT_UNRESPONSIVE = 5.0
# Slurm kills 30 s after SIGTERM.
DEFAULT_LEAVE = 25.0
# Seconds for which a failed host gets no new process: at first, and at most.
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
# These flags make a job elastic; the others only configure it.
_ENTERING = ("host_discovery", "host_discovery_script", "min_num_proc")


class Elastic(NamedTuple):
    """A job that goes on when processes are lost.

    least, most: processes in a world. first: processes in the first world. spares: processes that
    wait beside a full world. timeout: seconds until enough processes are ready. reset_limit: how
    many new worlds may follow the first, None for any number. cooldown: seconds for which a failed
    host gets no new process, at first and at most; they double with each failure. script: prints
    the hosts; if "", they come from `hostfile`, which may change, or else from `hosts`.
    function: returns the hosts instead, or None. default_slots: of a host that the script prints
    without a number. unresponsive: seconds for which a process may be stopped or its engine silent.
    leave_seconds: how long processes may go on after a signal to the launcher asks them to leave.
    allocation: of the scheduler whose program starts agents on its hosts, None where ssh does.
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
    allocation: Allocation | None = None

    @property
    def may_change(self) -> bool:
        """Whether other hosts may be added while the job runs."""
        return bool(self.script or self.hostfile or self.function)


def elastic_settings(
    flags: Flags, environ: Mapping[str, str], allocation: Allocation | None = None
) -> Elastic | None:
    """Return the settings of an elastic job; None for a fixed-size job. Raises LaunchError.

    environ: of the launcher. allocation: the one in which the job runs, if any.
    """
    if all(getattr(flags, name) is None for name in _ENTERING):
        if asked := [flag for name, flag in FLAGS.items() if getattr(flags, name) is not None]:
            raise LaunchError(
                f"{', '.join(asked)}: only for elastic jobs, which --min-np or "
                "--host-discovery-script makes"
            )
        return None
    _require_launcher(flags, allocation)
    if flags.num_proc is None:
        raise LaunchError("the number of processes is missing: give -np")
    first = flags.num_proc
    least = first if flags.min_num_proc is None else flags.min_num_proc
    most = max(first, least) if flags.max_num_proc is None else flags.max_num_proc
    if not least <= most:
        raise LaunchError(f"--min-np {least} is more than --max-np {most}")
    if not least <= first <= most:
        raise LaunchError(f"-np {first} is not between --min-np {least} and --max-np {most}")
    spares = flags.spares or 0
    script, hostfile = flags.host_discovery_script or "", flags.hostfile or ""
    changes = bool(flags.host_discovery or script or hostfile)
    allocated = () if allocation is None else tuple(allocation.hosts)
    fixed = not changes and bool(flags.hosts or allocated)
    if not changes and not fixed:
        script = _discovery_script(environ)
    return Elastic(
        least=least,
        most=most,
        first=first,
        spares=spares,
        timeout=_timeout(flags.elastic_timeout, environ),
        reset_limit=flags.reset_limit,
        cooldown=_cooldown(flags.cooldown_range),
        script=script,
        function=flags.host_discovery,
        hostfile="" if script else hostfile,
        hosts=allocated or _hosts(flags.hosts, most + spares) if not (changes or script) else (),
        default_slots=_discovered_slots(environ) if flags.slots is None else flags.slots,
        unresponsive=float(flags.unresponsive or DEFAULT_UNRESPONSIVE),
        leave_seconds=float(flags.leave_seconds or DEFAULT_LEAVE),
        allocation=allocation,
    )


def _timeout(given: float | None, environ: Mapping[str, str]) -> float:
    name = "HOROVOD_ELASTIC_TIMEOUT"
    if given is not None:
        return float(given)
    try:
        seconds = float(environ.get(name, "").strip() or DEFAULT_TIMEOUT)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise LaunchError(f"{name}={environ[name]!r} is not a number of seconds")
    return seconds


def _discovery_script(environ: Mapping[str, str]) -> str:
    """Return the command that prints this job's hosts, "" if no scheduler provides one."""
    scripts = (each.discovery_script(environ) for each in table.here(environ))
    script = next(filter(None, scripts), None)
    # A mounted script need not be executable.
    return f"sh {shlex.quote(script)}" if script else ""


def _discovered_slots(environ: Mapping[str, str]) -> int:
    slots = (each.discovered_slots(environ) for each in table.here(environ))
    return next(filter(None, slots), 1)


def _hosts(text: str | None, most: int) -> tuple[Host, ...]:
    return tuple(parse_hosts(text)) if text else (Host("localhost", most),)


def _cooldown(given: object) -> tuple[float, float]:
    if given is None:
        return DEFAULT_COOLDOWN
    try:
        if not isinstance(given, (list, tuple)):  # such as one number in a file of flags
            raise ValueError(given)
        low, high = map(float, given)
        if not 0 < low <= high:
            raise ValueError(given)
    except (TypeError, ValueError):
        raise LaunchError("--blacklist-cooldown-range: expected 0 < MIN <= MAX") from None
    return low, high


def _require_launcher(flags: Flags, allocation: Allocation | None) -> None:
    if flags.controller in ("mpi", "jsrun"):
        raise LaunchError(
            f"--{flags.controller} starts a fixed number of processes: leave it out of an elastic "
            "job"
        )
    if allocation is not None and allocation.starter in table.named(allocation.scheduler).fixed:
        raise LaunchError(
            f"this is a job of {allocation.scheduler}, whose {allocation.starter} starts a fixed "
            "number of processes: give an elastic job a --host-discovery-script that prints the "
            "job's hosts, which are reached by ssh"
        )


def hosts_in_file(path: str) -> dict[str, int]:
    """Return the hosts that a file lists now, with their slots. Raises LaunchError."""
    hosts = read_hostfile(path)
    refuse_ports(hosts, "an elastic job")
    return {host.name: host.slots for host in hosts}
