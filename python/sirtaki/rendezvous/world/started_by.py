"""A rank's place as told by what started it: torchrun, an mpirun, or a scheduler's own starter.

Nothing here reads the environment of this process: all functions take it as a mapping.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sirtaki.records import dataclass, replace
from sirtaki.rendezvous.world.membership import Topology

# Names a job of a starter that gives its jobs no names.
JOB = "SIRTAKI_JOB"
# Names, of a rank of our launcher, the variables that it has set for torch.distributed.
SET_FOR_TORCH = "SIRTAKI_SET_FOR_TORCH"

Environ = Mapping[str, str]
# Steps that Slurm makes by itself have numbers from here on.
_FIRST_SPECIAL_STEP = 0xFFFFFF00
_MAX_NODES = 1 << 20
_COUNT = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")
_MASTER = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_HERE = frozenset(("localhost", "127.0.0.1", "::1"))


@dataclass(frozen=True)
class Start:
    """How this process was started.

    topology: its place, with local_size 0 where the starter does not tell who shares a host. job:
    what all ranks of this start have in common with no other start, "" where there is no such
    thing. by: the starter, for people. node: tells hosts apart where the starter does, else "".
    master: "ADDRESS:PORT" of rank 0's host, "" unless given. mark: the variable "NAME=value" by
    which the starter tells this rank from the others, "" where there is none.
    """

    topology: Topology
    job: str = ""
    by: str = ""
    node: str = ""
    master: str = ""
    mark: str = ""


def find_start(environ: Environ) -> Start | None:
    """Return how this process was started among others, None when it was not.

    MPI's variables win over Slurm's, which are wrong under an mpirun inside a Slurm job. Raises
    ValueError for variables that contradict themselves.
    """
    for find in (_torchrun, _open_mpi, _hydra, _mvapich, _pals, _jsrun, _slurm, _flux, _pmi, _pmix):
        start = find(environ)
        if start is not None:
            return start
    return None


def _torchrun(environ: Environ) -> Start | None:
    ours = environ.get(SET_FOR_TORCH, "").split(",")
    if any(not environ.get(name) or name in ours for name in _MASTER):
        return None
    start = _start(environ, "MASTER_ADDR", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    address, port = environ["MASTER_ADDR"], environ["MASTER_PORT"]
    run = [environ.get(f"TORCHELASTIC_{name}", "") for name in ("RUN_ID", "RESTART_COUNT")]
    topology = start.topology
    if topology.local_size == 0 and address in _HERE:
        # Such a rank 0 can only be met by ranks beside it.
        topology = _place(topology.rank, topology.size, topology.rank, topology.size)
    bracketed = f"[{address}]" if ":" in address else address
    job = ":".join(("torch", address, port, *run))
    return replace(start, topology=topology, job=job, master=f"{bracketed}:{port}")


def _open_mpi(environ: Environ) -> Start | None:
    names = (f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
    return _started(environ, "Open MPI's mpirun", *names, job=_pmix_job)


def _hydra(environ: Environ) -> Start | None:
    if "MPI_LOCALRANKID" not in environ:
        return None
    names = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    return _started(environ, "MPICH's mpiexec", *names, job=_hydra_job)


def _mvapich(environ: Environ) -> Start | None:
    names = (f"MV2_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
    return _started(environ, "MVAPICH's mpirun", *names, job=lambda _: "")


def _pals(environ: Environ) -> Start | None:
    if "PALS_RANKID" not in environ:
        return None
    names = ("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE")
    return _started(environ, "PALS", *names, job=lambda e: _joined("pals", e.get("PALS_APID")))


def _jsrun(environ: Environ) -> Start | None:
    names = (f"JSM_NAMESPACE_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
    return _started(environ, "jsrun", *names, job=_jsrun_job)


def _slurm(environ: Environ) -> Start | None:
    """Recognise a task of a step; the variables of a batch script look like those of a task 0."""
    step = environ.get("SLURM_STEP_ID", "")
    if not step.isdigit() or int(step) >= _FIRST_SPECIAL_STEP:
        return None
    if environ.get("SLURM_STEP_NUM_TASKS", "1") == "1":
        return None
    start = _started(environ, "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", job=_slurm_job)
    if start is None:
        return None
    node = environ.get("SLURM_NODEID", "")
    local_size = _tasks_here(environ, node)
    topology = start.topology
    if local_size and environ.get("SLURM_LOCALID", "").isdigit():
        local_rank = int(environ["SLURM_LOCALID"])
        topology = _place(topology.rank, topology.size, local_rank, local_size)
    return replace(start, topology=topology, node=node)


def _tasks_here(environ: Environ, node: str) -> int:
    """How many tasks of the step are on this node, 0 if unknown."""
    try:
        counts = expand_counts(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    except ValueError:
        return 0
    if node.isdigit() and int(node) < len(counts):
        return counts[int(node)]
    return 0


def expand_counts(text: str) -> list[int]:
    """Read numbers for consecutive nodes as Slurm writes them: "2(x3),1". Raises ValueError."""
    counts: list[int] = []
    for part in text.split(","):
        found = _COUNT.fullmatch(part)
        if found is None:
            raise ValueError(f"cannot read {part!r} in the counts {text!r}")
        times = int(found[2] or 1)
        if len(counts) + times > _MAX_NODES:
            raise ValueError(f"the counts {text!r} are for more than {_MAX_NODES} nodes")
        counts += [int(found[1])] * times
    return counts


def _flux(environ: Environ) -> Start | None:
    """Recognise a task of `flux run`, which does not tell how many of them share a host."""
    names = ("FLUX_TASK_RANK", "FLUX_JOB_SIZE")
    return _started(environ, "Flux", *names, job=lambda e: _joined("flux", e.get("FLUX_JOB_ID")))


def _pmi(environ: Environ) -> Start | None:
    """Recognise any other process manager that speaks PMI and does not tell about hosts."""
    job = environ.get("PMI_JOBID", "")
    return _started(environ, "a PMI starter", "PMI_RANK", "PMI_SIZE", job=lambda _: job)


def _pmix(environ: Environ) -> Start | None:
    """Recognise any other starter that speaks PMIx, whose variables tell the rank alone."""
    if "PMIX_RANK" not in environ or environ.get("SLURM_STEP_NUM_TASKS") == "1":
        return None
    if not environ.get("WORLD_SIZE"):
        raise ValueError(
            f"PMIx says that this is rank {environ['PMIX_RANK']}, and not of how many: give all "
            "ranks their number in WORLD_SIZE (prterun -x WORLD_SIZE=4)"
        )
    return _started(environ, "a PMIx starter", "PMIX_RANK", "WORLD_SIZE", job=_pmix_job)


def _pmix_job(environ: Environ) -> str:
    return _joined("pmix", environ.get("PMIX_NAMESPACE"))


def _hydra_job(environ: Environ) -> str:
    # MPICH gives none: ours, where our launcher calls it, or the user's.
    own = environ.get("I_MPI_HYDRA_UUID") or environ.get("PMI_JOBID") or environ.get(JOB)
    return _joined("hydra", own)


def _jsrun_job(environ: Environ) -> str:
    return _joined("jsm", environ.get("LSB_JOBID"), environ.get("PMIX_NAMESPACE"))


def _slurm_job(environ: Environ) -> str:
    restarts = environ.get("SLURM_RESTART_COUNT", "0")
    names = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID")
    return _joined("slurm", *(environ.get(name) for name in names), restarts)


def _joined(kind: str, *parts: str | None) -> str:
    """Make one name of several, "" unless all are there."""
    return ".".join((kind, *map(str, parts))) if all(parts) else ""


def _started(
    environ: Environ, by: str, rank: str, *names: str, job: Callable[[Environ], str]
) -> Start | None:
    """Read a place where `rank` is set."""
    if rank not in environ:
        return None
    return replace(_start(environ, by, rank, *names), job=job(environ))


def _start(environ: Environ, by: str, *names: str) -> Start:
    found = ", ".join(f"{name}={environ[name]}" for name in names if name in environ)
    numbers = []
    for name in names:
        value = environ.get(name, "")
        if not (value.isascii() and value.isdigit() and len(value) < 10):
            break
        numbers.append(int(value))
    if len(numbers) < 2:
        raise ValueError(f"{by} describes this rank incompletely. Found: {found}")
    rank, size, *local = numbers
    place = _place(rank, size, *local) if len(local) == 2 else _place(rank, size, 0, 0)
    fits = place.local_size == 0 or place.local_rank < place.local_size <= size
    if rank >= size or not fits:
        raise ValueError(f"{by} contradicts itself. Found: {found}")
    return Start(place, by=by, mark=f"{names[0]}={rank}")


def _place(rank: int, size: int, local_rank: int, local_size: int) -> Topology:
    """Make a topology; where hosts are concerned it is completed when the ranks join."""
    if local_size == size:
        return Topology(rank, size, local_rank, local_size, 0, 1)
    return Topology(rank, size, local_rank, local_size, 0, 0)
