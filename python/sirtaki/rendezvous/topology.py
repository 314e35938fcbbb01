"""A rank's place in its world."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Topology:
    """Where a rank stands: in the world, on its host, and among ranks of equal ``local_rank``.

    ``local_size`` 0 says that nobody has told which ranks share a host; they find out when they
    join.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1
