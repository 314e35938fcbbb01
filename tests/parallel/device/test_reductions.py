"""Allreduce on an accelerator: launched in the agreed order, waited for on the stream."""

from __future__ import annotations

import torch

import sirtaki.torch as hvd
from tests.parallel.device.fake_device import FakeDevice


def ranks_sum(values: torch.Tensor) -> torch.Tensor:
    """What the sum of values + rank over all ranks is."""
    return values * hvd.size() + sum(range(hvd.size()))


def test_an_operation_reads_what_was_computed_before_it_and_is_read_after_it(
    device: FakeDevice,
) -> None:
    values = torch.arange(5.0)
    tensor = device.tensor(values + hvd.rank())
    handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="x")
    assert hvd.synchronize(handle) is tensor
    assert device.read(tensor).equal(ranks_sum(values))


def test_nothing_is_done_before_the_script_waits_for_it(device: FakeDevice) -> None:
    tensor = device.tensor(torch.ones(3))
    hvd.allreduce_(tensor, op=hvd.Sum)
    assert tensor.tolist() == [0.0] * 3
    assert device.read(tensor).tolist() == [hvd.size()] * 3
