"""Tells Lightning the ranks of a world whose processes something else has started."""

from __future__ import annotations

import os
from typing import Any

from sirtaki.core.world import lifecycle, state
from sirtaki.lightning.library import fabric_module
from sirtaki.rendezvous.world.started_by import find_start

_environments: Any = fabric_module("plugins.environments")
_Base: Any = _environments.ClusterEnvironment


class SirtakiEnvironment(_Base):  # type: ignore[misc]
    """A `ClusterEnvironment` of the ranks of `hvd.init()`, which it calls.

    Raises:
        ValueError: As `hvd.init()` does.
    """

    def __init__(self) -> None:
        super().__init__()
        lifecycle.init()
        self._topology = state.current_world().topology

    @property
    def creates_processes_externally(self) -> bool:
        """Lightning starts no processes."""
        return True

    @property
    def main_address(self) -> str:
        """Where rank 0 is; nobody connects there, as our groups meet by themselves."""
        return "localhost"

    @property
    def main_port(self) -> int:
        """See `main_address`."""
        return 0

    @staticmethod
    def detect() -> bool:
        """Whether Lightning is to choose it by itself: never, a strategy has it."""
        return False

    def world_size(self) -> int:
        """Return the number of ranks."""
        return int(self._topology.size)

    def set_world_size(self, size: int) -> None:
        """Change nothing: `devices` and `num_nodes` of a Trainer start no processes."""

    def global_rank(self) -> int:
        """Return this process's rank."""
        return int(self._topology.rank)

    def set_global_rank(self, rank: int) -> None:
        """See `set_world_size`."""

    def local_rank(self) -> int:
        """Return the rank's number on its host."""
        return int(self._topology.local_rank)

    def node_rank(self) -> int:
        """Return the host's number."""
        return int(self._topology.cross_rank)


def spare_mpi() -> None:
    """Let Lightning start MPI only in processes that an mpirun may have started.

    It asks MPI for its world before it knows a strategy's environment. In a rank that something
    else has started that takes time, and fails where mpi4py finds no MPI.
    """
    theirs = _environments.MPIEnvironment.detect

    def detect() -> bool:
        try:
            return _has_starter() and bool(theirs())
        except RuntimeError:  # of mpi4py without an MPI; Lightning expects ImportError
            return False

    _environments.MPIEnvironment.detect = staticmethod(detect)


def _has_starter() -> bool:
    try:
        return find_start(os.environ) is not None
    except ValueError:
        return True
