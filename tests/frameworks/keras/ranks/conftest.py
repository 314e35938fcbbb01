"""Every rank runs these tests, in the same order: KERAS_BACKEND=… horovodrun -np N pytest …"""

from __future__ import annotations

import os
from collections.abc import Iterator

# Before the backend is imported: one thread a rank computes.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest

import sirtaki
import sirtaki.keras as hvd
from tests.parallel.conftest import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Before any fixture, because conditions of skipif ask for the size."""
    hvd.init(process_sets="dynamic")


@pytest.fixture(scope="session", autouse=True)
def world() -> Iterator[None]:
    yield
    hvd.shutdown()


@pytest.fixture(autouse=True)
def together() -> None:
    """Tests begin together, with the same numbers."""
    hvd.init(process_sets="dynamic")
    sirtaki.barrier()
