"""Operations of a group on tensors that share memory are right, or are refused."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

SIZES = (1, 5000, 300_000)


@pytest.mark.parametrize("elements", SIZES)
def test_a_tensor_in_flight_twice_is_reduced_twice(elements: int) -> None:
    for _ in range(5):
        tensor = torch.ones(elements)
        works = [dist.all_reduce(tensor, async_op=True) for _ in range(3)]
        for work in works:
            work.wait()
        assert (tensor == dist.get_world_size() ** 3).all()


def test_two_groups_take_turns_at_a_tensor() -> None:
    other = dist.new_group()
    for elements in SIZES:
        tensor = torch.ones(elements)
        works = [dist.all_reduce(tensor, group=g, async_op=True) for g in (None, other, None)]
        for work in works:
            work.wait()
        assert (tensor == dist.get_world_size() ** 3).all()
    dist.destroy_process_group(other)


@pytest.mark.parametrize("elements", SIZES)
def test_a_ranks_own_part_may_lie_in_the_whole(elements: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = torch.full((size * elements,), float(rank))
    own = whole[rank * elements : (rank + 1) * elements]
    dist.all_gather_into_tensor(whole, own)
    assert torch.equal(whole, torch.arange(size).repeat_interleave(elements).float())
    dist.reduce_scatter_tensor(own, whole)
    assert (own == rank * size).all()


def test_other_parts_of_the_whole_are_refused() -> None:
    size = dist.get_world_size()
    whole = torch.ones(size * 4 + 1)
    with pytest.raises(ValueError, match="share memory"):
        dist.all_gather_into_tensor(whole[: size * 4], whole[-4:])
    with pytest.raises(ValueError, match="share memory"):
        dist.reduce_scatter_tensor(whole[-4:], whole[: size * 4])
    with pytest.raises(ValueError, match="share memory"):
        dist.all_to_all_single(whole[: size * 4], whole[1:])


def test_lists_of_tensors_that_share_memory_are_refused() -> None:
    size = dist.get_world_size()
    same = torch.ones(3)
    if size > 1:
        with pytest.raises(ValueError, match="shares memory"):
            dist.all_gather([same] * size, torch.ones(3))
        with pytest.raises(ValueError, match="shares memory"):
            dist.all_to_all([same] * size, [torch.ones(3)] * size)
    with pytest.raises(ValueError, match="share memory"):
        dist.all_reduce_coalesced([same, same])
    with pytest.raises(ValueError, match="share memory"):
        dist.all_reduce(torch.ones(1).expand(3))


def test_columns_of_a_tensor_are_filled_side_by_side() -> None:
    size = dist.get_world_size()
    table = torch.zeros(3, size)
    dist.all_gather(list(table.unbind(1)), torch.full((3,), float(dist.get_rank())))
    assert torch.equal(table, torch.arange(size).float().expand(3, size))
