"""What of MPI is asked where hardly anybody uses it: nothing is imported for an answer."""

from __future__ import annotations

NAME = "mpi"


def is_communicator(comm: object) -> bool:
    """Tell whether `comm` is an mpi4py communicator, without importing mpi4py."""
    return any(kind.__module__.startswith("mpi4py") for kind in type(comm).__mro__)
