"""The adapter for accelerators, on a fake one; every rank runs these tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

import sirtaki.torch as hvd
from sirtaki.torch.device import layer
from tests.parallel.device.fake_device import FakeDevice


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


@contextmanager
def installed(fake: FakeDevice) -> Iterator[FakeDevice]:
    """Have it serve all tensors, in a world of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(layer.devices, "cpu", fake)
        yield fake
    hvd.shutdown()


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    """An accelerator of this rank's own."""
    with installed(FakeDevice(f"fake {hvd.rank()}")) as fake:
        yield fake


@pytest.fixture
def eager_device() -> Iterator[FakeDevice]:
    """One on which things are done at once, for those who compute on its tensors."""
    with installed(FakeDevice(f"fake {hvd.rank()}", eager=True)) as fake:
        yield fake


@pytest.fixture
def shared_device() -> Iterator[FakeDevice]:
    """One that is every rank's."""
    with installed(FakeDevice("fake")) as fake:
        yield fake
