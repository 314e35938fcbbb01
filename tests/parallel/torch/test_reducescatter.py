from __future__ import annotations

import pytest
import torch

import sirtaki.torch as hvd


def mine(rows: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(rows * 3).reshape(rows, 3) % 7 + hvd.rank()).to(dtype)


def block(rows: int, dtype: torch.dtype = torch.float32, rank: int | None = None) -> torch.Tensor:
    """What this rank gets of the sum: one row more on the first ranks where it does not divide."""
    size = hvd.size()
    rank = hvd.rank() if rank is None else rank
    numbers = torch.arange(rows * 3).reshape(rows, 3) % 7
    total = numbers * size + sum(range(size))
    return torch.tensor_split(total, size)[rank].to(dtype)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.int8,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    ],
    ids=str,
)
def test_each_rank_gets_its_block_of_the_sum(dtype: torch.dtype) -> None:
    rows = 2 * hvd.size()
    result = hvd.reducescatter(mine(rows, dtype), op=hvd.Sum)
    assert result.dtype == dtype
    assert torch.equal(result, block(rows, dtype))


@pytest.mark.parametrize("rows", [0, 1, 3, 5, 10])
def test_the_first_ranks_get_one_row_more(rows: int) -> None:
    assert torch.equal(hvd.reducescatter(mine(rows), op=hvd.Sum), block(rows))


def test_average_is_what_happens_by_default() -> None:
    rows = hvd.size()
    assert torch.equal(hvd.reducescatter(mine(rows) * hvd.size()), block(rows))


def test_prescale_multiplies_before_and_postscale_after() -> None:
    rows = hvd.size()
    result = hvd.reducescatter(mine(rows), op=hvd.Sum, prescale_factor=0.5, postscale_factor=8.0)
    assert torch.equal(result, block(rows) * 4)


def test_compression_restores_the_type() -> None:
    rows = hvd.size()
    result = hvd.reducescatter(mine(rows), op=hvd.Sum, compression=hvd.Compression.fp16)
    assert result.dtype == torch.float32
    assert torch.equal(result, block(rows))


@pytest.mark.parametrize("op", [hvd.Average, hvd.Min, hvd.Max, hvd.Product])
def test_every_other_reduction_can_be_scattered(op: int) -> None:
    total = hvd.allreduce(mine(7), op=op)
    expected = torch.tensor_split(total, hvd.size())[hvd.rank()]
    assert torch.equal(hvd.reducescatter(mine(7), op=op), expected)


def test_a_transposed_tensor_is_scattered_by_position() -> None:
    values = mine(4).t()  # 3 rows
    total = hvd.allreduce(values, op=hvd.Sum)
    expected = torch.tensor_split(total, hvd.size())[hvd.rank()]
    assert torch.equal(hvd.reducescatter(values, op=hvd.Sum), expected)


def test_the_input_is_left_alone() -> None:
    values = mine(5)
    before = values.clone()
    hvd.reducescatter(values, op=hvd.Sum)
    assert torch.equal(values, before)


def test_the_asynchronous_form_gives_the_same() -> None:
    handle = hvd.reducescatter_async(mine(5), op=hvd.Sum, name="async")
    assert torch.equal(hvd.synchronize(handle), block(5))


def test_a_group_is_scattered_tensor_by_tensor() -> None:
    first, second = hvd.grouped_reducescatter([mine(5), mine(8, torch.int32)], op=hvd.Sum)
    assert torch.equal(first, block(5))
    assert torch.equal(second, block(8, torch.int32))


def test_a_group_has_one_handle() -> None:
    handle = hvd.grouped_reducescatter_async([mine(5), mine(8)], op=hvd.Sum)
    first, second = hvd.synchronize(handle)
    assert torch.equal(first, block(5))
    assert torch.equal(second, block(8))
