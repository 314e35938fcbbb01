"""Every rank runs these tests, the same ones in the same order: mpirun -np N python -m pytest …"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import sirtaki

MPI = pytest.importorskip("mpi4py.MPI")


@pytest.fixture
def mpi() -> Any:
    """The library; each test begins when all ranks are there."""
    MPI.COMM_WORLD.Barrier()
    return MPI


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A world whose collectives run on MPI."""
    monkeypatch.setenv("SIRTAKI_BACKEND", "mpi")
    sirtaki.init(process_sets="dynamic")
    yield
    sirtaki.shutdown()
