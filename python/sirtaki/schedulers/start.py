"""A rank's place, as described by its starter; `table.find_start` returns it.

No function here reads the environment of this process: all take it as a mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    if local_size == size:
        return Topology(rank, size, local_rank, local_size, 0, 1)
    return Topology(rank, size, local_rank, local_size, 0, 0)
