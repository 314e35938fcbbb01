"""Slurm: what its variables say about a job, and how ranks are started with srun."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.slots import Host, Slot
from sirtaki.rendezvous.world.started_by import expand_counts

# A list of nodes longer than this comes from nothing that Slurm would write.
_MAX_NODES = 1 << 20
# Strings, which `re` compiles at their first use: most jobs start without it.
_PIECE = r"([A-Za-z0-9_.-]+)|\[([0-9,-]+)\]"
_RANGE = r"([0-9]{1,18})(?:-([0-9]{1,18}))?"
# srun takes these for options of its own; what we say about the step must not meet them, and the
# one task of a host is to have all that the job has there.
_OPTIONS = (
    *("SLURM_DISTRIBUTION", "SLURM_EXPORT_ENV", "SLURM_HOSTFILE", "SLURM_JOB_NUM_NODES"),
    *("SLURM_KILL_BAD_EXIT", "SLURM_LABELIO", "SLURM_NNODES", "SLURM_NPROCS", "SLURM_NTASKS"),
    *("SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_CORE", "SLURM_NTASKS_PER_SOCKET"),
    *("SLURM_NTASKS_PER_GPU", "SLURM_WAIT", "SLURM_EXACT", "SLURM_CORE_SPEC", "SLURM_THREAD_SPEC"),
    *("SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_CPU_BIND", "SLURM_CPUS_PER_GPU"),
    *("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_TRES_PER_TASK", "SLURM_TRES_BIND"),
    *("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE", "SLURM_MPI_TYPE"),
)
# Of these a rank gets the job's value all the same.
_FOR_RANKS = ("SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_TASK")


def expand_nodes(text: str) -> list[str]:
    """Read a list of nodes as Slurm writes it: "a1,rack[1-2]n[01-03,7]". Raises ValueError."""
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
    """Cut at the commas that stand outside brackets."""
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
        # Zeros in front are part of the names.
        numbers += [f"{number:0{len(found[1])}d}" for number in range(first, last + 1)]
    return numbers


def job_id(environ: Mapping[str, str]) -> str | None:
    """Return the id of the Slurm job that these variables describe, None outside of one."""
    return environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")


def is_task_of_many(environ: Mapping[str, str]) -> bool:
    """Whether this process is one of several that srun has started."""
    # A batch script has SLURM_PROCID too, and an interactive step has one task.
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "1")
    return "SLURM_STEP_ID" in environ and tasks.isdecimal() and int(tasks) > 1


def hosts_of(environ: Mapping[str, str]) -> list[Host]:
    """Return the hosts of the allocation with their slots: the tasks that were asked for.

    Raises LaunchError naming the variable that cannot be understood.
    """
    nodes_variable = "SLURM_JOB_NODELIST"
    counts_variable = "SLURM_TASKS_PER_NODE"
    if "SLURM_JOB_NODELIST_HET_GROUP_0" in environ:
        raise LaunchError(
            "this is a heterogeneous Slurm job, whose parts cannot be started as one job here: "
            "start the ranks with srun itself, srun python train.py : python train.py"
        )
    nodes_text = environ.get(nodes_variable) or environ.get("SLURM_NODELIST", "")
    counts_text = environ.get(counts_variable, "")
    try:
        nodes = expand_nodes(nodes_text)
        counts = expand_counts(counts_text)
    except ValueError as error:
        raise LaunchError(
            f"the variables of Slurm job {job_id(environ)} cannot be understood: {error} "
            f"({nodes_variable}={nodes_text!r}, {counts_variable}={counts_text!r})"
        ) from None
    if len(nodes) != len(counts):
        raise LaunchError(
            f"the variables of Slurm job {job_id(environ)} contradict each other: "
            f"{nodes_variable}={nodes_text!r} names {len(nodes)} nodes, "
            f"{counts_variable}={counts_text!r} has counts for {len(counts)}"
        )
    return [Host(node, count) for node, count in zip(nodes, counts, strict=True)]


def cpus_of(environ: Mapping[str, str]) -> dict[str, int]:
    """Return how many CPUs the job has on each of its hosts; nothing where Slurm does not say."""
    try:
        nodes = expand_nodes(environ.get("SLURM_JOB_NODELIST", ""))
        counts = expand_counts(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    except ValueError:
        return {}
    return dict(zip(nodes, counts, strict=False))


def gpus_per_rank(environ: Mapping[str, str]) -> int | None:
    """Return how many GPUs the job asked for for each task, None where it did not."""
    count = environ.get("SLURM_GPUS_PER_TASK", "").rpartition(":")[2]
    return int(count) if count.isdecimal() else None


def srun_command(job: str, hosts: int) -> list[str]:
    """Return srun with its options for one task a host; the program is to be appended.

    job: the id of the job. hosts: how many; they stand in the file that SLURM_HOSTFILE names, see
    `srun_environment`.
    """
    return [
        "srun",
        f"--jobid={job}",
        f"--ntasks={hosts}",
        f"--nodes={hosts}",
        "--distribution=arbitrary",
        # One agent that cannot do its work ends the step, with SIGTERM first.
        "--kill-on-bad-exit=1",
        # One that is done with its work does not.
        "--wait=0",
        "--export=ALL",
        "--input=none",
        # A plain sirtaki run may stand in a step of its own, as salloc can start one.
        "--overlap",
        # The ranks share out what the step has of each host, and are no tasks of an MPI.
        "--mem=0",
        "--mpi=none",
    ]


def srun_environment(environ: Mapping[str, str], hostfile: str) -> dict[str, str]:
    """Return the variables for srun: `environ` less what srun would take for options.

    hostfile: a file with the name of each host on a line.
    """
    kept = {name: value for name, value in environ.items() if name not in _OPTIONS}
    return {**kept, "SLURM_HOSTFILE": hostfile}


def variables_of_job(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a rank has that srun must not see."""
    return {name: environ[name] for name in _FOR_RANKS if name in environ}


def variables_of_rank(slot: Slot, hosts: Mapping[str, Sequence[Slot]]) -> dict[str, str]:
    """Return what a rank would have as a task of srun, for programs that read it."""
    counts = ",".join(str(len(slots)) for slots in hosts.values())
    return {
        "SLURM_PROCID": str(slot.rank),
        "SLURM_LOCALID": str(slot.local_rank),
        **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"), str(slot.size)),
        **dict.fromkeys(("SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"), counts),
    }
