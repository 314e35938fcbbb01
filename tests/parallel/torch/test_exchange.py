"""Allgather, broadcast, alltoall."""

from __future__ import annotations

import pytest
import torch

import sirtaki.torch as hvd

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


def filled(rows: int, rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full((rows, 2, 3), rank % 2 if dtype == torch.bool else rank, dtype=dtype)


class TestAllgather:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_tensors_are_concatenated_in_order_of_rank(self, dtype: torch.dtype) -> None:
        result = hvd.allgather(filled(2, hvd.rank(), dtype))
        expected = torch.cat([filled(2, rank, dtype) for rank in range(hvd.size())])
        assert result.dtype == dtype
        assert torch.equal(result, expected)

    def test_first_dimensions_may_differ_and_be_zero(self) -> None:
        result = hvd.allgather(filled(hvd.rank() * 2, hvd.rank()))
        expected = torch.cat([filled(rank * 2, rank) for rank in range(hvd.size())])
        assert torch.equal(result, expected)

    def test_nothing_from_anybody_is_an_empty_tensor(self) -> None:
        assert hvd.allgather(torch.empty(0, 3)).shape == (0, 3)

    def test_a_transposed_tensor_is_gathered_by_position(self) -> None:
        mine = torch.arange(6.0).reshape(2, 3).t() + hvd.rank()
        expected = torch.cat(
            [torch.arange(6.0).reshape(2, 3).t() + rank for rank in range(hvd.size())]
        )
        assert torch.equal(hvd.allgather(mine), expected)

    def test_asynchronous_operations_are_matched_by_name(self) -> None:
        names = ["a", "b"] if hvd.rank() % 2 else ["b", "a"]
        rows = {"a": 1, "b": 3}
        handles = {
            name: hvd.allgather_async(filled(rows[name], hvd.rank()), name) for name in names
        }
        assert hvd.synchronize(handles["a"]).shape[0] == hvd.size()
        assert hvd.synchronize(handles["b"]).shape[0] == 3 * hvd.size()

    def test_a_group_is_gathered_tensor_by_tensor(self) -> None:
        tensors = [filled(hvd.rank() + 1, hvd.rank()), filled(2, hvd.rank(), torch.int64)]
        first, second = hvd.grouped_allgather(tensors, name="group")
        assert torch.equal(first, torch.cat([filled(r + 1, r) for r in range(hvd.size())]))
        assert torch.equal(
            second, torch.cat([filled(2, r, torch.int64) for r in range(hvd.size())])
        )

    def test_a_group_has_one_handle(self) -> None:
        handle = hvd.grouped_allgather_async([filled(1, 0), filled(2, 0)])
        assert [t.shape[0] for t in hvd.synchronize(handle)] == [hvd.size(), 2 * hvd.size()]


class TestBroadcast:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_every_rank_gets_the_tensor_of_the_root(self, dtype: torch.dtype) -> None:
        for root in range(hvd.size()):
            mine = filled(2, hvd.rank(), dtype)
            assert torch.equal(hvd.broadcast(mine, root), filled(2, root, dtype))
            assert torch.equal(mine, filled(2, hvd.rank(), dtype))

    def test_in_place_overwrites_and_returns_the_tensor(self) -> None:
        root = hvd.size() - 1
        mine = filled(2, hvd.rank())
        assert hvd.broadcast_(mine, root) is mine
        assert torch.equal(mine, filled(2, root))

    def test_a_number_without_dimensions_can_be_broadcast(self) -> None:
        assert hvd.broadcast(torch.tensor(hvd.rank() + 5), root_rank=0).item() == 5

    def test_in_place_fills_a_view_and_nothing_around_it(self) -> None:
        base = torch.full((4, 4), float(hvd.rank()))
        hvd.broadcast_(base[:, 1:3], root_rank=0)
        assert torch.equal(base[:, 1:3], torch.zeros(4, 2))
        assert torch.equal(base[:, 0], torch.full((4,), float(hvd.rank())))

    def test_asynchronous_forms_give_the_same(self) -> None:
        mine = filled(2, hvd.rank())
        functional = hvd.broadcast_async(mine, 0, name="functional")
        assert torch.equal(hvd.synchronize(functional), filled(2, 0))
        in_place = hvd.broadcast_async_(mine, 0, name="in_place")
        assert hvd.synchronize(in_place) is mine
        assert torch.equal(mine, filled(2, 0))


class TestAlltoall:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_equal_parts_without_splits(self, dtype: torch.dtype) -> None:
        mine = torch.cat([filled(2, hvd.rank() + rank, dtype) for rank in range(hvd.size())])
        expected = torch.cat([filled(2, hvd.rank() + rank, dtype) for rank in range(hvd.size())])
        result = hvd.alltoall(mine)
        assert isinstance(result, torch.Tensor)
        assert torch.equal(result, expected)

    def test_splits_say_how_many_rows_go_where(self) -> None:
        """Rank r sends i + 1 rows of its number to rank i."""
        size, rank = hvd.size(), hvd.rank()
        splits = torch.arange(1, size + 1, dtype=torch.int32)
        output, received = hvd.alltoall(filled(int(splits.sum()), rank), splits)
        assert torch.equal(output, torch.cat([filled(rank + 1, r) for r in range(size)]))
        assert received.dtype == torch.int32
        assert received.tolist() == [rank + 1] * size

    def test_splits_may_be_a_list(self) -> None:
        output, received = hvd.alltoall(filled(hvd.size(), hvd.rank()), [1] * hvd.size())
        assert torch.equal(output, torch.cat([filled(1, r) for r in range(hvd.size())]))
        assert received.tolist() == [1] * hvd.size()

    def test_rows_beyond_the_splits_are_not_sent(self) -> None:
        output, received = hvd.alltoall(filled(hvd.size() + 3, hvd.rank()), [1] * hvd.size())
        assert output.shape[0] == hvd.size()
        assert received.sum() == hvd.size()

    def test_a_rank_may_send_and_receive_nothing(self) -> None:
        """Only the last rank sends, and only to rank 0."""
        size, rank = hvd.size(), hvd.rank()
        splits = [0] * size
        if rank == size - 1:
            splits[0] = 4
        output, received = hvd.alltoall(filled(sum(splits), rank), splits)
        assert torch.equal(output, filled(4 if rank == 0 else 0, size - 1))
        assert received.tolist() == [0] * (size - 1) + [4 if rank == 0 else 0]

    def test_the_asynchronous_form_always_gives_the_pair(self) -> None:
        output, received = hvd.synchronize(hvd.alltoall_async(filled(hvd.size(), hvd.rank())))
        assert output.shape[0] == hvd.size()
        assert received.tolist() == [1] * hvd.size()


def test_autograd_is_told_that_a_broadcast_changed_its_tensor() -> None:
    tensor = torch.ones(3)
    before = tensor._version
    hvd.synchronize(hvd.broadcast_async_(tensor, 0))
    assert tensor._version > before
