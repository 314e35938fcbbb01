"""Tensors of an accelerator, which the fake one's process group moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from sirtaki.torch.device import layer
from sirtaki.torch.distributed import moved_by
from tests.parallel.device.fake_device import FakeDevice


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[FakeDevice]:
    """One for each rank, unless a test wants all to have the same one."""
    shared = getattr(request, "param", False)
    fake = FakeDevice("fake" if shared else f"fake {dist.get_rank()}", eager=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(layer.devices, "cpu", fake)
        yield fake


@pytest.fixture
def group(device: FakeDevice) -> Iterator[dist.ProcessGroup]:
    """A group that has not moved anything yet."""
    made = dist.new_group()
    yield made
    dist.destroy_process_group(made)


def test_an_inner_group_is_made_for_the_first_of_them(
    device: FakeDevice, group: dist.ProcessGroup
) -> None:
    assert device.groups == 0
    for _ in range(2):
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [dist.get_world_size()] * 3
    assert device.groups == 1
    assert moved_by(group) == device.backend


def test_collectives_have_the_forms_that_the_inner_group_knows(
    device: FakeDevice, group: dist.ProcessGroup
) -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    gathered = torch.empty(size)
    dist.all_gather_into_tensor(gathered, torch.tensor([float(rank)]), group=group)
    assert gathered.tolist() == list(range(size))
    scattered = torch.empty(1)
    dist.reduce_scatter_tensor(scattered, torch.ones(size), group=group)
    assert scattered.tolist() == [size]
    exchanged = torch.empty(size)
    dist.all_to_all_single(exchanged, torch.full((size,), float(rank)), group=group)
    assert exchanged.tolist() == list(range(size))
    parts = [torch.empty(1) for _ in range(size)]
    dist.gather(torch.tensor([float(rank)]), parts if rank == 0 else None, group=group)
    assert rank > 0 or [part.item() for part in parts] == list(range(size))
    dist.broadcast(exchanged, 0, group=group)
    assert device.groups == 1


def test_tensors_on_the_host_stay_with_our_engine(
    device: FakeDevice, group: dist.ProcessGroup
) -> None:
    with device.host_tensors():
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [dist.get_world_size()] * 3
    assert device.groups == 0


@pytest.mark.parametrize("device", [True], indirect=True)
def test_members_that_share_a_device_go_through_the_host(
    device: FakeDevice, group: dist.ProcessGroup
) -> None:
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [dist.get_world_size()] * 3
    assert device.groups == (dist.get_world_size() == 1)
    assert moved_by(group) == (device.backend if device.groups else "sirtaki")
