"""LSF, and jsrun on systems that have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from sirtaki.schedulers.scheduler import (
    Agents,
    Names,
    Scheduler,
    add_up,
    count_names,
    number_of,
    present,
    read_lines,
)
from sirtaki.schedulers.start import Environ, Start, joined, started

_LISTS = ("LSB_DJOB_HOSTFILE", "LSB_MCPU_HOSTS", "LSB_HOSTS")
_LAUNCH_NODE_PREFIXES = ("batch", "login", "launch")


class Lsf(Scheduler):
    """A job of bsub."""

    name = "lsf"
    shown = ("LSB_JOBID", "LSB_DJOB_HOSTFILE", "JSM_NAMESPACE_RANK")
    marks = ("JSM_NAMESPACE_RANK",)
    of_rank: ClassVar[Mapping[str, Names]] = {
        "rank": ("JSM_NAMESPACE_RANK",),
        "size": ("JSM_NAMESPACE_SIZE",),
        "local_rank": ("JSM_NAMESPACE_LOCAL_RANK",),
        "local_size": ("JSM_NAMESPACE_LOCAL_SIZE",),
    }
    job_variable = "LSB_JOBID"
    cure = "raise -n of its bsub"
    outside = ("jsrun",)
    fixed = ("jsrun",)
    task = ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE")

    def find_start(self, environ: Environ) -> Start | None:
        """Recognise a task of jsrun."""
        job = joined("jsm", environ.get("LSB_JOBID"), environ.get("PMIX_NAMESPACE"))
        names = (variables[0] for variables in self.of_rank.values())
        return started(environ, "jsrun", *names, job=job)

    def job(self, environ: Environ) -> str | None:
        """See `Scheduler`."""
        return environ.get("LSB_JOBID") if any(map(environ.get, _LISTS)) else None

    def hosts(self, environ: Environ) -> dict[str, int]:
        """See `Scheduler`."""
        hosts = _listed(environ)
        # With jsrun the first host is not a compute node; it only runs the script.
        if len(hosts) > 1 and (self.starter(environ) or _begins_with_launch_node(hosts)):
            del hosts[next(iter(hosts))]
        return hosts

    def starter(self, environ: Environ) -> str:
        """See `Scheduler`."""
        return present("jsrun", environ)

    def why_no_starter(self, environ: Environ) -> str:
        """See `Scheduler`."""
        job = self.job(environ)
        if not job:
            return "This is no LSF job"
        if not self.starter(environ):
            return f"This is LSF job {job}, but no jsrun is on the PATH"
        return f"The hosts asked for are not those of LSF job {job}"

    def spread(self, hosts: Mapping[str, int], size: int, starter: str) -> Mapping[str, int]:
        """Return the same number for every host, as jsrun places ranks."""
        if starter != "jsrun":
            return hosts
        each, left = divmod(size, len(hosts))
        if left:
            raise ValueError(
                f"jsrun starts the same number of ranks on every host, and {size} ranks do not "
                f"divide among {len(hosts)} hosts; change -np, or name fewer hosts with -H"
            )
        small = [f"{host} ({slots})" for host, slots in hosts.items() if slots < each]
        if small:
            raise ValueError(
                f"{size} ranks are {each} a host, more than the slots of {', '.join(small)}"
            )
        return dict.fromkeys(hosts, each)

    def commands(self, agents: Agents) -> list[list[str]]:
        """Return jsrun with options for one task per host; the slots of a host are its cores."""
        jsrun = [
            "jsrun",
            f"--nrs={len(agents.hosts)}",
            "--rs_per_host=1",
            "--tasks_per_rs=1",
            f"--cpu_per_rs={min(agents.slots.values())}",
            # The ranks divide the cores of the resource set.
            "--bind=rs",
        ]
        gpus = agents.ranks * (self.gpus(agents.environ) or 0)
        return [[*jsrun, *([f"--gpu_per_rs={gpus}"] if gpus else []), *agents.program]]

    def gpus(self, environ: Environ) -> int | None:
        """See `Scheduler`: only the user can provide it."""
        return number_of(environ, "SIRTAKI_GPUS_PER_RANK")


def _listed(environ: Environ) -> dict[str, int]:
    file, pairs, names = _LISTS
    if path := environ.get(file):
        return count_names(read_lines(path, file), file)
    if text := environ.get(pairs):
        return parse_mcpu_hosts(text)
    return count_names(environ.get(names, "").split(), names)


def parse_mcpu_hosts(text: str) -> dict[str, int]:
    """Parse "hostA 2 hostB 4": alternating names and slots. Raises ValueError."""
    words = text.split()
    names, numbers = words[::2], words[1::2]
    if len(names) != len(numbers) or not all(number.isdecimal() for number in numbers):
        raise ValueError(
            f"cannot understand LSB_MCPU_HOSTS={text!r}: expected names and numbers of slots in "
            "turn, for example 'node-a 4 node-b 4'"
        )
    return add_up(zip(names, map(int, numbers), strict=True), "LSB_MCPU_HOSTS")


def _begins_with_launch_node(hosts: Mapping[str, int]) -> bool:
    (first, slots), *others = hosts.items()
    named_so = first.startswith(_LAUNCH_NODE_PREFIXES)
    return named_so and slots == 1 and all(count != 1 for _, count in others)


LSF = Lsf()
