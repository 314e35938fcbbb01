"""Accelerators that cannot talk to each other exchange tensors through CPU memory."""

from __future__ import annotations

import logging

import pytest
import torch

import sirtaki.torch as hvd
from tests.parallel.device.fake_device import FakeDevice


@pytest.mark.skipif("hvd.size() == 1", reason="a device of its own")
def test_ranks_on_one_device_say_so_once(
    shared_device: FakeDevice, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "sirtaki.device"):
        for name in ("a", "b"):
            tensor = shared_device.tensor(torch.ones(3))
            result = hvd.allreduce(tensor, op=hvd.Sum, name=name)
            assert shared_device.read(result).tolist() == [hvd.size()] * 3
    assert shared_device.groups == 0
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == (hvd.rank() == 0)
    assert all("members 0 and 1 use one device, fake" in line for line in lines)


def test_every_operation_goes_that_way(shared_device: FakeDevice) -> None:
    own = torch.full((hvd.rank() + 1, 2), float(hvd.rank()))
    everyones = torch.cat([torch.full((r + 1, 2), float(r)) for r in range(hvd.size())])
    gathered = hvd.allgather(shared_device.tensor(own))
    assert shared_device.read(gathered).equal(everyones)
    assert shared_device.read(hvd.broadcast(shared_device.tensor(own[:1]), 0)).equal(everyones[:1])
    spread = shared_device.tensor(torch.full((hvd.size(),), float(hvd.rank())))
    assert shared_device.read(hvd.alltoall(spread)).tolist() == list(range(hvd.size()))
    scattered = hvd.reducescatter(shared_device.tensor(torch.ones(hvd.size())), op=hvd.Sum)
    assert shared_device.read(scattered).tolist() == [hvd.size()]
    scaled = hvd.allreduce(shared_device.tensor(torch.ones(2)), op=hvd.Max, prescale_factor=3.0)
    assert shared_device.read(scaled).tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("variable", "value", "operation"),
    [
        ("HOROVOD_GPU_OPERATIONS", "MPI", "allreduce"),
        ("HOROVOD_GPU_ALLREDUCE", "HOST", "allreduce"),
        ("SIRTAKI_GPU_BROADCAST", "host", "broadcast"),
    ],
)
def test_a_switch_stages_an_operation(
    device: FakeDevice,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    operation: str,
) -> None:
    hvd.shutdown()
    monkeypatch.setenv(variable, value)
    hvd.init()
    if operation == "allreduce":
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2
    else:
        assert hvd.broadcast(torch.ones(2), 0).tolist() == [1.0, 1.0]
    assert device.groups == 0


def test_the_other_operations_stay_on_the_device(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    hvd.shutdown()
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "MPI")
    monkeypatch.setenv("HOROVOD_GPU_BROADCAST", "NCCL")
    hvd.init()
    assert device.read(hvd.broadcast(device.tensor(torch.ones(2)), 0)).tolist() == [1.0, 1.0]
    assert device.groups == 1
