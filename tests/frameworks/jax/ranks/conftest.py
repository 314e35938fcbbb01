"""Every rank runs these tests, the same ones in the same order: horovodrun -np N pytest …"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

# Before JAX is imported: one thread a rank computes.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import jax
import pytest

import sirtaki.jax as hvd
from tests.parallel.conftest import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]

jax.config.update("jax_num_cpu_devices", 2)


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
    """Tests begin together."""
    hvd.barrier()


@pytest.fixture(params=["eager", "jit"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """How a function of arrays is called: as it is, or compiled."""
    if request.param == "eager":
        return lambda function, *arrays: function(*arrays)
    return lambda function, *arrays: jax.jit(function)(*arrays)


@pytest.fixture
def pair() -> Iterator[hvd.ProcessSet]:
    """The first and the last rank, or the only one."""
    ranks = sorted({0, hvd.size() - 1})
    if len(ranks) == hvd.size():
        yield hvd.global_process_set
        return
    process_set = hvd.add_process_set(ranks)
    yield process_set
    hvd.remove_process_set(process_set)
