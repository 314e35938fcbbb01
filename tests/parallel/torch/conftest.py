"""Every rank runs these tests, the same ones in the same order: horovodrun -np N pytest …"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import sirtaki.torch as hvd


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Before any fixture, because conditions of skipif ask for the size."""
    hvd.init(process_sets="dynamic")


@pytest.fixture(scope="session", autouse=True)
def world() -> Iterator[None]:
    torch.set_num_threads(1)
    yield
    hvd.shutdown()


@pytest.fixture(autouse=True)
def same_start() -> None:
    """Tests begin with the same random numbers on all ranks, and together."""
    torch.manual_seed(7)
    hvd.barrier()


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
