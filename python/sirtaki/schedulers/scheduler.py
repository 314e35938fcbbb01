"""The interface of schedulers and of starters such as an mpirun, and their lists of hosts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from sirtaki.schedulers.job_script import Flag, SubmitRequest
    from sirtaki.schedulers.start import Environ, Start


Names = tuple[str, ...]


class Agents(NamedTuple):
    """The agents of a job to start, one on each host.

    job: its id. program: an agent's program and arguments, to which the number of its host may be
    added. hosts: their names, in the order of their numbers. hostfile: lists them, one per line.
    slots: of all hosts of the job. ranks: the most on one host. environ: of the launcher.
    """

    job: str
    program: list[str]
    hosts: Sequence[str]
    hostfile: Path
    slots: Mapping[str, int]
    ranks: int
    environ: Environ


class Scheduler:
    """A scheduler or a starter; each subclass, in a file of its own, overrides what it supports.

    `environ` is always the environment of a process inside a job. Functions raise ValueError with
    the name of a variable that they cannot parse.
    """

    # The name in messages and for `sirtaki submit --scheduler`.
    name = ""
    # The variables that `sirtaki doctor` shows.
    shown: ClassVar[Names] = ()

    # ---- Ranks that it starts itself ----

    # Every such rank has one of these.
    marks: ClassVar[Names] = ()
    # The variables of a rank's place: by "rank", "size", "local_rank" and "local_size".
    of_rank: ClassVar[Mapping[str, Names]] = {}

    def find_start(self, environ: Environ) -> Start | None:
        """Return how this process was started as one of several ranks, None if it was not."""
        return None

    def rank_variables(self, place: Any, counts: Sequence[int]) -> dict[str, str]:
        """Return the variables that a rank of our launcher would have if this had started it.

        place: has the attributes of `of_rank`. counts: of the ranks on each host.
        """
        return {
            variable: str(getattr(place, what))
            for what, variables in self.of_rank.items()
            for variable in variables
        }

    # ---- Jobs in which our launcher runs ----

    # Set in a job whose hosts an mpirun gets from the scheduler.
    job_variable = ""
    # For messages: what a slot is, and how a job gets more of them.
    slot = "slot(s)"
    cure = ""
    # The values of `starter` that a launcher may run outside the hosts of the job.
    outside: ClassVar[Names] = ()
    # Those that start a fixed number of processes, requested by a flag of the same name.
    fixed: ClassVar[Names] = ()

    def job(self, environ: Environ) -> str | None:
        """Return the id of the job, None outside a job."""
        return None

    def hosts(self, environ: Environ) -> dict[str, int]:
        """Return the hosts of the job with their slots: how many ranks each may take."""
        raise NotImplementedError

    def starter(self, environ: Environ) -> str:
        """Return the program that starts processes on the hosts, "" if ssh has to."""
        return ""

    def require_launcher(self, environ: Environ) -> None:
        """Raise ValueError if no launcher may run here."""

    def why_no_starter(self, environ: Environ) -> str:
        """Explain why this job does not have the requested starter."""
        raise NotImplementedError

    def spread(self, hosts: Mapping[str, int], size: int, starter: str) -> Mapping[str, int]:
        """Return how many of `size` ranks each host may take."""
        return hosts

    # ---- Information for a launcher that reaches the hosts by itself ----

    def start_seconds(self, environ: Environ) -> float | None:
        """Return how long ranks may take to start, if that is longer than usual."""
        return None

    def hostfile(self, environ: Environ) -> str | None:
        """Return the file that lists a launcher's hosts, None if there is none."""
        return None

    def discovery_script(self, environ: Environ) -> str | None:
        """Return the path of a shell script that prints the current hosts."""
        return None

    def discovered_slots(self, environ: Environ) -> int | None:
        """Return the slots of a host that such a script prints without a number."""
        return None

    # ---- Agents of our launcher, which `starter` starts ----

    # Whether agents have the launcher's environment.
    inherits = True
    # Variables that an agent keeps if it does not inherit the launcher's environment.
    of_task: ClassVar[Names] = ()
    # If one command starts all agents, the variables of each: one that only these tasks have, the
    # task's number, and the number of tasks.
    task: ClassVar[Names] = ()
    # Whether a signal to the job reaches all processes of an agent.
    signals_all = False

    def has_task(self, environ: Environ) -> bool:
        """Return whether this process is an agent that knows its number."""
        return bool(self.task) and self.task[0] in environ

    def commands(self, agents: Agents) -> list[list[str]]:
        """Return the commands that start the agents: one for each, or one for all of them."""
        raise NotImplementedError

    def starter_environment(self, environ: Mapping[str, str], hostfile: Path) -> dict[str, str]:
        """Return the variables for `commands`, out of those of the launcher."""
        return dict(environ)

    def kept_from_starter(self, environ: Environ) -> dict[str, str]:
        """Return variables of ranks that `commands` must not see."""
        return {}

    def cpus(self, environ: Environ, host: str) -> int | None:
        """Return how many CPUs the job has on a host, None if unknown."""
        return None

    def gpus(self, environ: Environ) -> int | None:
        """Return how many GPUs each rank has, None if unknown."""
        return None

    # ---- Job scripts ----

    # The command that reads a script from standard input; `sirtaki submit` needs it.
    submit: ClassVar[Names] = ()
    # Flags of `sirtaki submit` for this scheduler only.
    flags: ClassVar[tuple[Flag, ...]] = ()

    def script(self, request: SubmitRequest, programs: Path) -> str:
        """Return the job script. programs: the folder of the `sirtaki` to run."""
        raise NotImplementedError


def present(program: str, environ: Environ) -> str:
    """Return the program if it is on the PATH, else ""."""
    import shutil  # ranks start faster without it

    return program if shutil.which(program, path=environ.get("PATH", "")) else ""


def number_of(environ: Environ, name: str) -> int | None:
    """Return the number in a variable, None if there is none."""
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else None


# A name that no shell or ssh can mistake, such as for an option. It is a string because `re`
# compiles it at first use, and most jobs need none.
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"


def read_lines(path: str, variable: str) -> list[str]:
    """Return the lines of a scheduler's list of hosts, without blank ones.

    variable: the one with the file's name, for messages. Raises ValueError.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise ValueError(
            f"cannot read {path!r}, named by {variable}: {error.strerror}; the variable may be "
            "left from another job, or this host does not have the file"
        ) from None
    except (UnicodeDecodeError, ValueError):
        raise ValueError(f"{path!r}, named by {variable}, is not a text file") from None
    return [line.strip() for line in lines if line.strip()]


def count_names(names: Iterable[str], source: str) -> dict[str, int]:
    """Return each host with one slot per occurrence, in order of first appearance.

    source: the origin of the names, for messages. Raises ValueError.
    """
    return add_up(((name, 1) for name in names), source)


def add_up(hosts: Iterable[tuple[str, int]], source: str) -> dict[str, int]:
    """Return the sum of the slots of each host. See `count_names`."""
    slots: dict[str, int] = {}
    for name, count in hosts:
        if re.fullmatch(NAME, name) is None:
            raise ValueError(f"{source} has {name!r} where the name of a host is expected")
        slots[name] = slots.get(name, 0) + count
    if not slots:
        raise ValueError(f"{source} names no host")
    return slots
