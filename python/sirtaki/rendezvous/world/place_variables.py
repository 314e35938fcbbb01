"""The variables from which other libraries read a rank's place: data loaders, loggers, trainers.

They are the variables that torchrun sets, and a few that single libraries read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sirtaki.schedulers.start import SET_FOR_TORCH

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
