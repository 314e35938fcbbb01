"""What has no arithmetic is moved bit by bit and refused by reductions; complex numbers have it."""

from __future__ import annotations

import pytest
import torch

import sirtaki.torch as hvd
from sirtaki.core.operations.codes import DTYPES, REDUCED_DTYPES

# The last ones are not in every version of PyTorch.
ALL = [getattr(torch, name) for name in list(DTYPES)[DTYPES["uint16"] :] if hasattr(torch, name)]

REFUSED = [dtype for dtype in ALL if str(dtype).removeprefix("torch.") not in REDUCED_DTYPES]

every_dtype = pytest.mark.parametrize("dtype", ALL, ids=str)


def bits(rank: int, dtype: torch.dtype, rows: int = 3) -> torch.Tensor:
    """Any bits at all, NaNs among them."""
    generator = torch.Generator().manual_seed(rank)
    shape = (rows, 4 * dtype.itemsize)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8).view(dtype)


def assert_same_bits(mine: torch.Tensor, expected: list[torch.Tensor]) -> None:
    assert mine.dtype == expected[0].dtype
    assert torch.equal(
        mine.contiguous().view(torch.uint8), torch.cat([t.view(torch.uint8) for t in expected])
    )


@every_dtype
class TestMoved:
    def test_allgather(self, dtype: torch.dtype) -> None:
        result = hvd.allgather(bits(hvd.rank(), dtype, hvd.rank() + 1))
        assert_same_bits(result, [bits(rank, dtype, rank + 1) for rank in range(hvd.size())])

    def test_grouped_allgather(self, dtype: torch.dtype) -> None:
        numbers, moved = hvd.grouped_allgather([torch.ones(1), bits(hvd.rank(), dtype)])
        assert numbers.tolist() == [1.0] * hvd.size()
        assert_same_bits(moved, [bits(rank, dtype) for rank in range(hvd.size())])

    def test_broadcast(self, dtype: torch.dtype) -> None:
        root = hvd.size() - 1
        assert_same_bits(hvd.broadcast(bits(hvd.rank(), dtype), root), [bits(root, dtype)])

    def test_broadcast_in_place(self, dtype: torch.dtype) -> None:
        mine = bits(hvd.rank(), dtype)
        assert hvd.synchronize(hvd.broadcast_async_(mine, 0)) is mine
        assert_same_bits(mine, [bits(0, dtype)])

    def test_alltoall(self, dtype: torch.dtype) -> None:
        size, rank = hvd.size(), hvd.rank()
        output, received = hvd.alltoall(bits(rank, dtype, size), [1] * size)
        assert received.tolist() == [1] * size
        assert_same_bits(output, [bits(r, dtype, size)[rank : rank + 1] for r in range(size)])


REDUCTIONS = [
    lambda tensors, name: hvd.allreduce(tensors[-1], name=name),
    lambda tensors, name: hvd.allreduce_(tensors[-1], name=name),
    lambda tensors, name: hvd.allreduce_async(tensors[-1], name=name),
    lambda tensors, name: hvd.allreduce_async_(tensors[-1], name=name),
    lambda tensors, name: hvd.grouped_allreduce(tensors, name=name),
    lambda tensors, name: hvd.grouped_allreduce_async_(tensors, name=name),
    lambda tensors, name: hvd.reducescatter(tensors[-1], name=name),
    lambda tensors, name: hvd.grouped_reducescatter_async(tensors, name=name),
]


@pytest.mark.parametrize("dtype", REFUSED, ids=str)
def test_none_of_8_bits_or_less_can_be_reduced(dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    for reduce in REDUCTIONS:
        with pytest.raises(ValueError, match=f"{name} cannot be reduced"):
            reduce([torch.ones(3, 4), bits(0, dtype)], "refused")


def test_nothing_of_a_group_is_sent_if_a_part_of_it_is_refused() -> None:
    if hvd.rank() == 0:  # the others know nothing of it, so what is sent would be waited for
        refused = [torch.ones(2), torch.tensor([1 + 2j])]
        for op in (hvd.Min, hvd.Max, hvd.Adasum):
            with pytest.raises(ValueError, match="complex64"):
                hvd.grouped_allreduce_async(refused, name="g", op=op)
    both = [torch.ones(2), torch.ones(2, dtype=torch.float64)]
    handle = hvd.grouped_allreduce_async(both, name="g", op=hvd.Sum)
    assert [t.tolist() for t in hvd.synchronize(handle)] == [[hvd.size()] * 2] * 2


@pytest.mark.skipif("hvd.size() == 1", reason="one rank cannot disagree with itself")
def test_types_of_one_size_are_not_taken_for_each_other() -> None:
    dtype = torch.complex64 if hvd.rank() == 0 else torch.float64
    with pytest.raises(hvd.MismatchError, match=r"complex64.*float64"):
        hvd.broadcast(torch.zeros(2, dtype=dtype), 0, name="sizes")


class TestComplexNumbers:
    def mine(self) -> torch.Tensor:
        return torch.tensor([[1 + 2j, 3 - 1j]]) * (hvd.rank() + 1)

    def test_conjugates_are_sent_as_what_they_are(self) -> None:
        result = hvd.allgather(self.mine().conj())
        first = torch.tensor([1 - 2j, 3 + 1j])
        assert torch.equal(result, torch.stack([first * (r + 1) for r in range(hvd.size())]))

    def test_a_conjugate_is_filled_in_place(self) -> None:
        base = self.mine()
        hvd.broadcast_(base.conj(), root_rank=0)
        assert torch.equal(base, torch.tensor([[1 + 2j, 3 - 1j]]))

    def test_gradients_are_averaged_by_parts(self) -> None:
        x = self.mine().requires_grad_()
        weight = torch.tensor([1 + 1j, 2j]) * (hvd.rank() + 1)
        (hvd.allgather(x) * weight.conj()).sum().real.backward()
        assert x.grad is not None
        expected = torch.tensor([[1 + 1j, 2j]]) * (hvd.size() + 1) / 2
        torch.testing.assert_close(x.grad, expected)

    @pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128], ids=str)
    def test_are_summed_averaged_and_multiplied(self, dtype: torch.dtype) -> None:
        ranks = torch.stack([torch.tensor([1 + 1j, 2 - 1j]) + r for r in range(hvd.size())])
        mine = ranks[hvd.rank()]
        # PyTorch itself can do little with complex32.
        for op, given, expected in (
            (hvd.Sum, mine, ranks.sum(0)),
            (hvd.Average, mine * hvd.size(), ranks.sum(0)),
            (hvd.Product, mine, ranks.prod(0)),
        ):
            result = hvd.allreduce(given.to(dtype), op=op)
            assert result.dtype == dtype
            assert torch.equal(result.to(torch.complex64), expected)

    def test_are_scaled(self) -> None:
        result = hvd.allreduce(self.mine(), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
        assert torch.equal(result, torch.tensor([[1 + 2j, 3 - 1j]]) * hvd.size() * (hvd.size() + 1))

    def test_a_conjugate_is_reduced_as_what_it_is(self) -> None:
        total = torch.tensor([[1 - 2j, 3 + 1j]]) * hvd.size() * (hvd.size() + 1) / 2
        assert torch.equal(hvd.allreduce(self.mine().conj(), op=hvd.Sum), total)
        base = self.mine()
        hvd.allreduce_(base.conj(), op=hvd.Sum)
        assert torch.equal(base, total.conj())

    def test_the_gradient_of_a_sum_is_the_sum_of_the_gradients(self) -> None:
        x = self.mine().requires_grad_()
        weight = torch.tensor([1 + 1j, 2j]) * (hvd.rank() + 1)
        (hvd.allreduce(x, op=hvd.Sum) * weight.conj()).sum().real.backward()
        assert x.grad is not None
        expected = torch.tensor([[1 + 1j, 2j]]) * hvd.size() * (hvd.size() + 1) / 2
        torch.testing.assert_close(x.grad, expected)

    def test_blocks_of_rows_are_reduced(self) -> None:
        rows = self.mine().expand(hvd.size(), 2)
        total = torch.tensor([[1 + 2j, 3 - 1j]]) * hvd.size() * (hvd.size() + 1) / 2
        assert torch.equal(hvd.reducescatter(rows, op=hvd.Sum), total)
