"""The adapter for accelerators, on a fake one; every rank runs these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import sirtaki.torch as hvd
from sirtaki.torch.device import routes
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


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    """An accelerator of this rank's own."""
    fake = FakeDevice(f"fake {hvd.rank()}")
    monkeypatch.setitem(routes.devices, "cpu", fake)
    yield fake
    monkeypatch.undo()
    hvd.shutdown()  # the world's groups are on this device
