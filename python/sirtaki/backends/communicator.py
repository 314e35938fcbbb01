"""The MPI check that rarely matters, answered without an import."""

from __future__ import annotations

NAME = "mpi"


def is_communicator(comm: object) -> bool:
    """Return whether `comm` is an mpi4py communicator, without importing mpi4py."""
    return any(kind.__module__.startswith("mpi4py") for kind in type(comm).__mro__)
