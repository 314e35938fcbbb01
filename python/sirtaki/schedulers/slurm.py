"""Slurm: the job described by its variables, and the start of ranks with srun."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from sirtaki.schedulers.job_script import SubmitRequest, bash_script, given
from sirtaki.schedulers.scheduler import Agents, Names, Scheduler
from sirtaki.schedulers.start import Environ, Start, joined, placed, started

# Slurm would never write a list of nodes longer than this.
_MAX_NODES = 1 << 20
# Strings, because `re` compiles them at first use, and most jobs need none.
_PIECE = r"([A-Za-z0-9_.-]+)|\[([0-9,-]+)\]"
_RANGE = r"([0-9]{1,18})(?:-([0-9]{1,18}))?"
_COUNT = r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?"
# Steps that Slurm creates itself have numbers from here on.
_FIRST_SPECIAL_STEP = 0xFFFFFF00
# srun reads these as options, which would conflict with ours: the one task of a host has to get
# all resources that the job has there.
_OPTIONS = (
    *("SLURM_DISTRIBUTION", "SLURM_EXPORT_ENV", "SLURM_HOSTFILE", "SLURM_JOB_NUM_NODES"),
    *("SLURM_KILL_BAD_EXIT", "SLURM_LABELIO", "SLURM_NNODES", "SLURM_NPROCS", "SLURM_NTASKS"),
    *("SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_CORE", "SLURM_NTASKS_PER_SOCKET"),
    *("SLURM_NTASKS_PER_GPU", "SLURM_WAIT", "SLURM_EXACT", "SLURM_CORE_SPEC", "SLURM_THREAD_SPEC"),
    *("SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_CPU_BIND", "SLURM_CPUS_PER_GPU"),
    *("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_TRES_PER_TASK", "SLURM_TRES_BIND"),
    *("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE", "SLURM_MPI_TYPE"),
)
# A rank nevertheless gets the job's values of these.
_FOR_RANKS = ("SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_TASK")


def expand_nodes(text: str) -> list[str]:
    """Parse a list of nodes as Slurm writes it: "a1,rack[1-2]n[01-03,7]". Raises ValueError."""
    nodes: list[str] = []
    for item in _split(text):
        names = [""]
        for plain, ranges in _pieces(item):
            ends = [plain] if plain else _numbers(ranges)
            if len(names) * len(ends) + len(nodes) > _MAX_NODES:
                raise ValueError(f"the list of nodes {text!r} names more than {_MAX_NODES}")
            names = [name + end for name in names for end in ends]
        nodes += names
    return nodes


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    return re.split(r",(?![^\[]*\])", text)


def _pieces(item: str) -> list[tuple[str, str]]:
    pieces = []
    at = 0
    while at < len(item):
        found = re.match(_PIECE, item[at:])
        if found is None:
            break
        pieces.append((found[1] or "", found[2] or ""))
        at += found.end()
    if not pieces or at < len(item):
        raise ValueError(f"cannot read {item!r} in a list of nodes")
    return pieces


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        found = re.fullmatch(_RANGE, part)
        if found is None:
            raise ValueError(f"cannot read [{ranges}] in a list of nodes")
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last < first + _MAX_NODES:
            raise ValueError(f"the range {part} in a list of nodes runs the wrong way or too far")
        # Leading zeros are part of the names.
        numbers += [f"{number:0{len(found[1])}d}" for number in range(first, last + 1)]
    return numbers


def expand_counts(text: str) -> list[int]:
    """Parse numbers for consecutive nodes as Slurm writes them: "2(x3),1". Raises ValueError."""
    counts: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(_COUNT, part)
        if found is None:
            raise ValueError(f"cannot read {part!r} in the counts {text!r}")
        times = int(found[2] or 1)
        if len(counts) + times > _MAX_NODES:
            raise ValueError(f"the counts {text!r} are for more than {_MAX_NODES} nodes")
        counts += [int(found[1])] * times
    return counts


class Slurm(Scheduler):
    """A job of sbatch or salloc, and the tasks that srun starts in it."""

    name = "slurm"
    shown = ("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_PROCID")
    marks = ("SLURM_STEP_ID",)
    of_rank: ClassVar[Mapping[str, Names]] = {
        "rank": ("SLURM_PROCID",),
        "size": ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"),
        "local_rank": ("SLURM_LOCALID",),
    }
    job_variable = "SLURM_JOB_ID"
    slot = "task(s)"
    cure = "raise its --ntasks or --ntasks-per-node"
    outside = ("srun",)
    task = ("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    signals_all = True
    submit = ("sbatch",)

    def find_start(self, environ: Environ) -> Start | None:
        """Recognise a task of a step; the variables of a batch script look like those of task 0."""
        step = environ.get("SLURM_STEP_ID", "")
        if not step.isdigit() or int(step) >= _FIRST_SPECIAL_STEP:
            return None
        if environ.get("SLURM_STEP_NUM_TASKS", "1") == "1":
            return None
        names = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
        start = started(environ, "srun", *names, job=_name_of_step(environ))
        if start is None:
            return None
        node = environ.get("SLURM_NODEID", "")
        local_size = _tasks_here(environ, node)
        topology = start.topology
        if local_size and environ.get("SLURM_LOCALID", "").isdigit():
            local_rank = int(environ["SLURM_LOCALID"])
            topology = placed(topology.rank, topology.size, local_rank, local_size)
        return start._replace(topology=topology, node=node)

    def rank_variables(self, place: Any, counts: Sequence[int]) -> dict[str, str]:
        """See `Scheduler`."""
        text = ",".join(map(str, counts))
        names = ("SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE")
        return {**super().rank_variables(place, counts), **dict.fromkeys(names, text)}

    def job(self, environ: Environ) -> str | None:
        """See `Scheduler`."""
        return environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")

    def hosts(self, environ: Environ) -> dict[str, int]:
        """See `Scheduler`: a slot is a requested task."""
        nodes_variable = "SLURM_JOB_NODELIST"
        counts_variable = "SLURM_TASKS_PER_NODE"
        if "SLURM_JOB_NODELIST_HET_GROUP_0" in environ:
            raise ValueError(
                "this is a heterogeneous Slurm job, whose parts cannot be started as one job here: "
                "start the ranks with srun itself, srun python train.py : python train.py"
            )
        nodes_text = environ.get(nodes_variable) or environ.get("SLURM_NODELIST", "")
        counts_text = environ.get(counts_variable, "")
        try:
            nodes = expand_nodes(nodes_text)
            counts = expand_counts(counts_text)
        except ValueError as error:
            raise ValueError(
                f"the variables of Slurm job {self.job(environ)} cannot be understood: {error} "
                f"({nodes_variable}={nodes_text!r}, {counts_variable}={counts_text!r})"
            ) from None
        if len(nodes) != len(counts):
            raise ValueError(
                f"the variables of Slurm job {self.job(environ)} contradict each other: "
                f"{nodes_variable}={nodes_text!r} names {len(nodes)} nodes, "
                f"{counts_variable}={counts_text!r} has counts for {len(counts)}"
            )
        return dict(zip(nodes, counts, strict=True))

    def starter(self, environ: Environ) -> str:
        """See `Scheduler`."""
        return "srun"

    def require_launcher(self, environ: Environ) -> None:
        """See `Scheduler`: srun may have started this process as one of several."""
        # A batch script has SLURM_PROCID too, and an interactive step has one task.
        tasks = environ.get("SLURM_STEP_NUM_TASKS", "1")
        if "SLURM_STEP_ID" in environ and tasks.isdecimal() and int(tasks) > 1:
            raise ValueError(
                f"srun has started this launcher as one of {tasks} tasks; start it once, in the "
                "job's script, or let srun start the program itself"
            )

    def commands(self, agents: Agents) -> list[list[str]]:
        """Return srun with options for one task per host, on those of SLURM_HOSTFILE."""
        srun = [
            "srun",
            f"--jobid={agents.job}",
            f"--ntasks={len(agents.hosts)}",
            f"--nodes={len(agents.hosts)}",
            "--distribution=arbitrary",
            # An agent that fails ends the step, with SIGTERM first.
            "--kill-on-bad-exit=1",
            # An agent that has finished does not end the step.
            "--wait=0",
            "--export=ALL",
            "--input=none",
            # sirtaki run may itself be in a step, such as one started by salloc.
            "--overlap",
            # The ranks divide the step's resources of each host, and are not tasks of an MPI.
            "--mem=0",
            "--mpi=none",
        ]
        return [[*srun, *agents.program]]

    def starter_environment(self, environ: Mapping[str, str], hostfile: Path) -> dict[str, str]:
        """Remove the variables that srun reads as options, and set the host file."""
        kept = {name: value for name, value in environ.items() if name not in _OPTIONS}
        return {**kept, "SLURM_HOSTFILE": str(hostfile)}

    def kept_from_starter(self, environ: Environ) -> dict[str, str]:
        """See `Scheduler`."""
        return {name: environ[name] for name in _FOR_RANKS if name in environ}

    def cpus(self, environ: Environ, host: str) -> int | None:
        """See `Scheduler`."""
        try:
            nodes = expand_nodes(environ.get("SLURM_JOB_NODELIST", ""))
            counts = expand_counts(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
        except ValueError:
            return None
        return dict(zip(nodes, counts, strict=False)).get(host)

    def gpus(self, environ: Environ) -> int | None:
        """Return the GPUs requested per task: a number, or a type and a number."""
        text = environ.get("SLURM_GPUS_PER_TASK", "").rpartition(":")[2]
        return int(text) if text.isdecimal() else None

    def script(self, request: SubmitRequest, programs: Path) -> str:
        """See `Scheduler`."""
        options = [
            f"--job-name={request.name}",
            f"--nodes={request.nodes}",
            f"--ntasks-per-node={request.ranks_per_node}",
            f"--cpus-per-task={request.threads}",
            *([f"--gpus-per-node={request.gpus}"] if request.gpus else []),
            *given("--time=", request.time),
            *given("--account=", request.account),
            *given("--partition=", request.queue),
            *given("--output=", request.output),
        ]
        return bash_script("#SBATCH", options, 'cd "$SLURM_SUBMIT_DIR"', request, programs)


def _tasks_here(environ: Environ, node: str) -> int:
    """Return how many tasks of the step are on this node, 0 if unknown."""
    try:
        counts = expand_counts(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    except ValueError:
        return 0
    if node.isdigit() and int(node) < len(counts):
        return counts[int(node)]
    return 0


def _name_of_step(environ: Environ) -> str:
    restarts = environ.get("SLURM_RESTART_COUNT", "0")
    names = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID")
    return joined("slurm", *(environ.get(name) for name in names), restarts)


SLURM = Slurm()
