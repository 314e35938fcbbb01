"""A rank's place, as its starter describes it (`table.find_start`), and as libraries read it.

No function here reads the environment of this process: all take it as a mapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sirtaki.rendezvous.world.membership import Topology

# The name of a job, for starters that do not name their jobs.
JOB = "SIRTAKI_JOB"
# Lists the variables that our launcher has set for torch.distributed in a rank.
SET_FOR_TORCH = "SIRTAKI_SET_FOR_TORCH"

Environ = Mapping[str, str]


class Start(NamedTuple):
    """How this process was started.

    topology: its place, with local_size 0 if it is unknown which ranks share a host. job: a name
    that all ranks of this start share with no other start, "" if there is none. by: the starter,
    for people. node: distinguishes hosts, if the starter provides that, else "". master:
    "ADDRESS:PORT" of rank 0's host, "" unless given. mark: the variable "NAME=value" that
    distinguishes this rank from the others, "" if there is none.
    """

    topology: Topology
    job: str = ""
    by: str = ""
    node: str = ""
    master: str = ""
    mark: str = ""


def joined(kind: str, *parts: str | None) -> str:
    """Join parts to one name, "" unless all are given."""
    return ".".join((kind, *map(str, parts))) if all(parts) else ""


def started(environ: Environ, by: str, rank: str, *names: str, job: str) -> Start | None:
    """Read a place if the variable `rank` is set.

    by: the starter, for people. names: variables with the size and, if there are any, the local
    rank and the local size. job: see `Start`. Raises ValueError.
    """
    if rank not in environ:
        return None
    return described(environ, by, rank, *names)._replace(job=job)


def described(environ: Environ, by: str, *names: str) -> Start:
    """Read a place from variables, in the order of `started`. Raises ValueError."""
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
    place = placed(rank, size, *local) if len(local) == 2 else placed(rank, size, 0, 0)
    fits = place.local_size == 0 or place.local_rank < place.local_size <= size
    if rank >= size or not fits:
        raise ValueError(f"{by} contradicts itself. Found: {found}")
    return Start(place, by=by, mark=f"{names[0]}={rank}")


def placed(rank: int, size: int, local_rank: int, local_size: int) -> Topology:
    """Make a topology; its values about hosts are completed when the ranks join."""
    return Topology(rank, size, local_rank, local_size, 0, int(local_size == size))


# From them other libraries read a rank's place: data loaders, loggers, trainers. torchrun sets most
# of them, and a few are those that single libraries read.
PLACE_VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    # The number of the host: torchrun's name, and that of Lightning and Accelerate.
    *("GROUP_RANK", "NODE_RANK"),
    # Litdata's names for the rank and for the number of hosts.
    *("GLOBAL_RANK", "NNODES"),
)


def place_variables(
    rank: int, size: int, local_rank: int, local_size: int, node: int, nodes: int
) -> dict[str, str]:
    """Return all of `PLACE_VARIABLES` of one rank.

    node: the number of its host among the job's. nodes: how many hosts there are.
    """
    values = (rank, size, local_rank, local_size, node, node, rank, nodes)
    return dict(zip(PLACE_VARIABLES, map(str, values), strict=True))


def completed(environ: Mapping[str, str], place: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that an environment lacks, so that no library reads half of a place.

    The result is empty if another launcher has set another rank or number of ranks: our ranks are
    then a part of its ranks, or vice versa.

    Args:
        environ: The environment, perhaps with variables that we have set.
        place: From `place_variables`.
    """
    ours = set(filter(None, environ.get(SET_FOR_TORCH, "").split(",")))
    theirs = {name for name in place if environ.get(name) and name not in ours}
    if any(environ[name] != place[name] for name in ("RANK", "WORLD_SIZE") if name in theirs):
        return {}
    added = {name: value for name, value in place.items() if name not in theirs}
    return {**added, SET_FOR_TORCH: names_of({*ours, *added})}


def names_of(names: Iterable[str]) -> str:
    """Return the value of the variable that lists the variables we have set."""
    return ",".join(sorted(names))
