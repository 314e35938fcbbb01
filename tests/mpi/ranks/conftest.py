"""Every rank runs these tests, the same ones in the same order: mpirun -np N python -m pytest …"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

import sirtaki
from tests import needs
from tests.first_failure import show

MPI = needs.package("mpi4py.MPI")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Ends all ranks with the first failure: no time limit interrupts one that waits in MPI."""
    report = yield
    if report.failed:
        show(item, report, MPI.COMM_WORLD.Get_rank())
        MPI.COMM_WORLD.Abort(1)
    return report


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
