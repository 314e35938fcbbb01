"""Tells Lightning the ranks of a world whose processes something else has started."""

from __future__ import annotations

from typing import Any

from sirtaki.core.world import lifecycle, state
from sirtaki.lightning.library import fabric_module

_Base: Any = fabric_module("plugins.environments").ClusterEnvironment


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
