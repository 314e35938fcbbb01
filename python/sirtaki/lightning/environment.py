"""Finds Lightning under either name, and passes it the ranks of a world."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

from sirtaki.core.world import lifecycle, state
from sirtaki.schedulers.table import find_start

# Trainers of pytorch_lightning accept strategies from that package only.
_SEPARATE = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules


def trainer_module(name: str) -> ModuleType:
    """Import a module of Lightning's trainer, such as `strategies`."""
    return _import("pytorch_lightning" if _SEPARATE else "lightning.pytorch", name)


def fabric_module(name: str) -> ModuleType:
    """Import a module of Fabric, such as `strategies`."""
    return _import("lightning_fabric" if _SEPARATE else "lightning.fabric", name)


def _import(package: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name != package.partition(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"sirtaki.lightning needs Lightning, and there is no {error.name}: "
            "pip install 'sirtaki[lightning]'",
            name=error.name,
        ) from None


_environments: Any = fabric_module("plugins.environments")
_Base: Any = _environments.ClusterEnvironment


class SirtakiEnvironment(_Base):  # type: ignore[misc]
    """A `ClusterEnvironment` for the ranks of `hvd.init()`, which it calls.

    Raises:
        ValueError: As for `hvd.init()`.
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
        """The address of rank 0; nothing connects there, since our groups meet by themselves."""
        return "localhost"

    @property
    def main_port(self) -> int:
        """See `main_address`."""
        return 0

    @staticmethod
    def detect() -> bool:
        """Return whether Lightning selects it by itself: never, since a strategy provides it."""
        return False

    def world_size(self) -> int:
        """Return the number of ranks."""
        return int(self._topology.size)

    def set_world_size(self, size: int) -> None:
        """Do nothing: `devices` and `num_nodes` of a Trainer start no processes."""

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
    """Let Lightning start MPI only in processes that mpirun may have started.

    Lightning queries MPI's world before it knows a strategy's environment. In a rank with another
    starter this takes time, and fails if mpi4py finds no MPI.
    """
    theirs = _environments.MPIEnvironment.detect

    def detect() -> bool:
        try:
            return _has_starter() and bool(theirs())
        except RuntimeError:  # mpi4py without an MPI; Lightning expects ImportError
            return False

    _environments.MPIEnvironment.detect = staticmethod(detect)


def _has_starter() -> bool:
    try:
        return find_start(os.environ) is not None
    except ValueError:
        return True
