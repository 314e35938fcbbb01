"""Allgather, broadcast, alltoall and reducescatter on an accelerator."""

from __future__ import annotations

import pytest
import torch

import sirtaki.torch as hvd
from tests.parallel.device.fake_device import FakeDevice

MOVED = (torch.bool, torch.int16, torch.bfloat16, torch.float64, torch.complex64)


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_allgather_puts_equal_parts_behind_each_other(
    device: FakeDevice, dtype: torch.dtype
) -> None:
    own = torch.full((2, 3), hvd.rank()).to(dtype)
    result = device.read(hvd.allgather(device.tensor(own)))
    expected = torch.cat([torch.full((2, 3), rank).to(dtype) for rank in range(hvd.size())])
    assert result.equal(expected)


def test_allgather_takes_different_numbers_of_rows(device: FakeDevice) -> None:
    own = device.tensor(torch.full((hvd.rank(), 2), float(hvd.rank())))
    expected = torch.cat([torch.full((rank, 2), float(rank)) for rank in range(hvd.size())])
    assert device.read(hvd.allgather(own)).equal(expected)


def test_a_group_of_tensors_is_gathered(device: FakeDevice) -> None:
    tensors = [device.tensor(torch.full((rows,), float(hvd.rank()))) for rows in (1, 2)]
    first, second = hvd.grouped_allgather(tensors)
    assert device.read(first).tolist() == list(range(hvd.size()))
    assert device.read(second).tolist() == [r for r in range(hvd.size()) for _ in range(2)]


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_broadcast_gives_the_roots_tensor(device: FakeDevice, dtype: torch.dtype) -> None:
    root = hvd.size() - 1
    own = device.tensor(torch.full((3,), hvd.rank()).to(dtype))
    result = hvd.broadcast(own, root)
    assert device.read(result).equal(torch.full((3,), root).to(dtype))
    assert own.equal(torch.full((3,), hvd.rank()).to(dtype))


def test_broadcast_in_place_fills_the_tensor(device: FakeDevice) -> None:
    own = device.tensor(torch.full((3,), float(hvd.rank() + 1)))
    assert hvd.broadcast_(own, 0) is own
    assert device.read(own).tolist() == [1.0] * 3


def test_the_root_of_a_process_set_is_a_rank_of_the_world(device: FakeDevice) -> None:
    last = hvd.size() - 1
    process_set = hvd.add_process_set([last]) if last else hvd.global_process_set
    if process_set.included():
        own = device.tensor(torch.full((2,), 5.0))
        assert device.read(hvd.broadcast(own, last, process_set=process_set)).tolist() == [5.0] * 2
    hvd.remove_process_set(process_set)


def test_alltoall_sends_rows(device: FakeDevice) -> None:
    """Rank r sends r + 1 rows to each rank, and ignores a last one."""
    rows = hvd.rank() + 1
    own = device.tensor(torch.full((rows * hvd.size() + 1, 2), float(hvd.rank())))
    result, received = hvd.alltoall(own, [rows] * hvd.size())
    expected = torch.cat([torch.full((rank + 1, 2), float(rank)) for rank in range(hvd.size())])
    assert device.read(result).equal(expected)
    assert received.tolist() == list(range(1, hvd.size() + 1))


def test_alltoall_of_nothing_is_nothing(device: FakeDevice) -> None:
    assert device.read(hvd.alltoall(device.tensor(torch.zeros(0, 4)))).shape == (0, 4)


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average, hvd.Max])
def test_reducescatter_gives_each_rank_its_rows(device: FakeDevice, op: int, extra: int) -> None:
    values = torch.arange(2.0 * (2 * hvd.size() + extra)).view(-1, 2) * (hvd.rank() + 1)
    with device.host_tensors():
        expected = hvd.reducescatter(values, op=op, name="host")
    own = device.tensor(values)
    result = hvd.reducescatter(own, op=op, name="device")
    torch.testing.assert_close(device.read(result), expected)
    assert own.equal(values)
