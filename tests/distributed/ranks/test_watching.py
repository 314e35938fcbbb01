"""The monitored barrier and the division of groups, by PyTorch's functions and by our own."""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType

import pytest
import torch
import torch.distributed as dist

import sirtaki.torch.distributed as ours
from sirtaki.core.errors import CollectiveTimeoutError

SHORT = timedelta(seconds=1)


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


@pytest.mark.parametrize("module", [dist, ours], ids=["PyTorch's", "ours"])
def test_everybody_passes_a_monitored_barrier(module: ModuleType) -> None:
    for _ in range(3):
        module.monitored_barrier(timeout=timedelta(seconds=60))


def test_a_monitored_barrier_leaves_nothing_at_the_store() -> None:
    store = dist.group.WORLD._store
    before = store.num_keys()
    for _ in range(5):
        dist.monitored_barrier()
    dist.barrier()
    assert store.num_keys() <= before + size() + 1


@pytest.mark.parametrize("everybody", [False, True], ids=["first", "all"])
def test_rank_0_names_the_ranks_that_do_not_come(everybody: bool) -> None:
    if size() == 1:
        pytest.skip("nobody can be missing")
    group = dist.new_group(list(range(size())))
    if rank() == 0:
        named = ", ".join(map(str, range(1, size()))) if everybody else "1"
        with pytest.raises(CollectiveTimeoutError, match=f"Ranks? {named} failed to pass"):
            dist.monitored_barrier(group, SHORT, wait_all_ranks=everybody)


@pytest.mark.parametrize("absent", [0, 1])
def test_the_others_name_who_does_not_come(absent: int) -> None:
    if size() < 3 - (absent == 0):
        pytest.skip("needs one who comes beside rank 0")
    group = dist.new_group(list(range(size())))
    if rank() == absent:
        return
    with pytest.raises(CollectiveTimeoutError, match=f"Ranks? {absent} f|Missing ranks: {absent}$"):
        dist.monitored_barrier(group, SHORT)


def test_a_monitored_barrier_of_gloo_is_gloos() -> None:
    gloo = dist.new_group(list(range(size())), backend="gloo")
    dist.monitored_barrier(gloo)
    with pytest.raises(ValueError, match="needs a group of the backend sirtaki"):
        ours.monitored_barrier(gloo)
    dist.destroy_process_group(gloo)


@pytest.mark.parametrize("module", [dist, ours], ids=["PyTorch's", "ours"])
def test_a_group_is_divided(module: ModuleType) -> None:
    lists = [list(range(0, size(), 2)), list(range(1, size(), 2))][: min(size(), 2)]
    part = module.split_group(split_ranks=lists)
    members = lists[rank() % 2]
    tensor = torch.tensor([float(rank())])
    dist.all_reduce(tensor, group=part)
    assert tensor.item() == sum(members)
    assert dist.get_process_group_ranks(part) == members
    dist.destroy_process_group(part)


def test_a_group_is_divided_where_a_rank_has_more_groups_than_others() -> None:
    if rank() == 0:
        dist.new_group([0], use_local_synchronization=True)
    for _ in range(2):
        part = dist.split_group(split_ranks=[list(range(size()))])
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=part)
        assert tensor.item() == size()
    halves = [list(range(0, size(), 2)), list(range(1, size(), 2))][: min(size(), 2)]
    part = dist.split_group(part, halves)
    dist.all_reduce(tensor, group=part)
    assert tensor.item() == size() * len(halves[rank() % 2])


def test_who_is_in_no_part_gets_no_group() -> None:
    part = dist.split_group(split_ranks=[[0]])
    assert (part is None) == (rank() != 0)


def test_a_part_is_divided_by_its_own_numbers() -> None:
    if size() < 3:
        pytest.skip("needs a part of two that does not begin with rank 0")
    part = dist.split_group(split_ranks=[[0], [1, 2]])
    if rank() == 1:
        alone = dist.split_group(part, [[0]])
        assert dist.get_process_group_ranks(alone) == [1]
    elif rank() == 2:
        assert dist.split_group(part, [[0]]) is None


@pytest.mark.parametrize("lists", [None, [], [[0], []], [[0], [0]], [[99]], [[-1]]], ids=str)
def test_lists_that_do_not_divide_the_group_are_refused(lists: list[list[int]] | None) -> None:
    with pytest.raises(ValueError, match="split_ranks="):
        dist.split_group(split_ranks=lists)


def test_a_part_has_the_backend_of_the_group() -> None:
    with pytest.raises(ValueError, match="cannot make a group of nccl from one of sirtaki"):
        dist.split_group(split_ranks=[[0]], backend="nccl")
