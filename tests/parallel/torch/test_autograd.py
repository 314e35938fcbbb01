"""Gradients of the collectives: Horovod's rules, by which training scripts are tuned."""

from __future__ import annotations

import pytest
import torch

import sirtaki.torch as hvd


def weight() -> float:
    """What this rank multiplies its output with before the backward pass."""
    return float(hvd.rank() + 1)


def mean_weight() -> float:
    return (hvd.size() + 1) / 2


def leaf(*shape: int) -> torch.Tensor:
    return torch.ones(shape, requires_grad=True)


def grad_of(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.grad is not None
    return tensor.grad


class TestAllreduce:
    def test_gradient_of_an_average_is_the_average_of_the_gradients(self) -> None:
        x = leaf(3)
        (hvd.allreduce(x) * weight()).sum().backward()
        assert grad_of(x).tolist() == [mean_weight()] * 3

    def test_gradient_of_a_sum_is_the_sum_of_the_gradients(self) -> None:
        x = leaf(3)
        (hvd.allreduce(x, op=hvd.Sum) * weight()).sum().backward()
        assert grad_of(x).tolist() == [mean_weight() * hvd.size()] * 3

    def test_scales_apply_to_the_gradient(self) -> None:
        x = leaf(3)
        y = hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=4.0)
        (y * weight()).sum().backward()
        assert grad_of(x).tolist() == [8 * mean_weight() * hvd.size()] * 3

    @pytest.mark.parametrize("op", [hvd.Min, hvd.Max], ids=["min", "max"])
    def test_gradients_of_min_and_max_are_reduced_by_the_same_op(self, op: int) -> None:
        x = leaf(3)
        (hvd.allreduce(x, op=op) * weight()).sum().backward()
        assert grad_of(x).tolist() == [{hvd.Min: 1.0, hvd.Max: float(hvd.size())}[op]] * 3

    def test_it_has_second_derivatives(self) -> None:
        x = leaf(3)
        y = hvd.allreduce(x, op=hvd.Sum)
        (grad,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
        grad.sum().backward()
        # d/dx of the sum over ranks of 3 s^2, with s the sum over ranks of x, is 6 s summed twice
        assert grad_of(x).tolist() == [6.0 * hvd.size() * hvd.size() ** 2] * 3

    def test_gradients_pass_through_compression(self) -> None:
        x = leaf(3)
        y = hvd.allreduce(x, compression=hvd.Compression.fp16)
        (y * weight()).sum().backward()
        assert grad_of(x).dtype == torch.float32
        assert grad_of(x).tolist() == [mean_weight()] * 3

    def test_each_member_of_a_group_gets_its_gradient(self) -> None:
        a, b = leaf(3), leaf(2, 2)
        y, z = hvd.grouped_allreduce([a, b], op=hvd.Sum)
        (y.sum() * weight() + 2 * z.sum() * weight()).backward()
        assert grad_of(a).tolist() == [mean_weight() * hvd.size()] * 3
        assert grad_of(b).tolist() == [[2 * mean_weight() * hvd.size()] * 2] * 2

    def test_an_unused_member_of_a_group_gets_zeros(self) -> None:
        a, b = leaf(3), leaf(2)
        hvd.grouped_allreduce([a, b], op=hvd.Sum)[0].sum().backward()
        assert grad_of(b).tolist() == [0.0, 0.0]


class TestAllgather:
    def expected(self, rows: int, before: int) -> torch.Tensor:
        """Row i of the result is multiplied with i by all, and with a weight by each rank."""
        return torch.arange(before, before + rows)[:, None] * mean_weight() * torch.ones(1, 2)

    def test_gradient_is_this_ranks_rows_of_the_average(self) -> None:
        x = leaf(hvd.rank() + 1, 2)
        y = hvd.allgather(x)
        (y * torch.arange(y.shape[0])[:, None] * weight()).sum().backward()
        before = sum(rank + 1 for rank in range(hvd.rank()))
        assert torch.equal(grad_of(x), self.expected(hvd.rank() + 1, before))

    def test_each_member_of_a_group_gets_its_gradient(self) -> None:
        a, b = leaf(hvd.rank() + 1, 2), leaf(3, 2)
        flags = torch.tensor([True])
        y, z, gathered = hvd.grouped_allgather([a, b, flags])
        loss = (y * torch.arange(y.shape[0])[:, None]).sum()
        loss = loss + (z * torch.arange(z.shape[0])[:, None]).sum()
        (loss * weight()).backward()
        before = sum(rank + 1 for rank in range(hvd.rank()))
        assert torch.equal(grad_of(a), self.expected(hvd.rank() + 1, before))
        assert torch.equal(grad_of(b), self.expected(3, 3 * hvd.rank()))
        assert gathered.all()


def test_gradient_of_broadcast_is_the_average_on_the_root_and_zero_elsewhere() -> None:
    root = hvd.size() - 1
    x = leaf(3)
    (hvd.broadcast(x, root) * weight()).sum().backward()
    assert grad_of(x).tolist() == [mean_weight() if hvd.rank() == root else 0.0] * 3


class TestAlltoall:
    def test_gradients_go_back_to_where_the_rows_came_from(self) -> None:
        """Every rank sends rank + 1 rows to each other rank, which multiplies with its weight."""
        size, rank = hvd.size(), hvd.rank()
        x = leaf(size * (rank + 1), 2)
        output, received = hvd.alltoall(x, [rank + 1] * size)
        assert not received.requires_grad
        (output * weight()).sum().backward()
        expected = torch.arange(1.0, size + 1).repeat_interleave(rank + 1)
        assert torch.equal(grad_of(x), expected[:, None].expand(-1, 2))

    def test_without_splits_as_well(self) -> None:
        x = leaf(hvd.size())
        (hvd.alltoall(x) * weight()).sum().backward()
        assert grad_of(x).tolist() == [rank + 1.0 for rank in range(hvd.size())]

    def test_rows_that_were_not_sent_get_zeros(self) -> None:
        x = leaf(hvd.size() + 2)
        output, _ = hvd.alltoall(x, [1] * hvd.size())
        output.sum().backward()
        assert grad_of(x).tolist() == [1.0] * hvd.size() + [0.0, 0.0]


class TestReducescatter:
    def expected(self, rows: int) -> torch.Tensor:
        """Row i of the input ends on a rank, and is multiplied with that rank's weight."""
        owners = torch.arange(hvd.size())
        counts = [len(part) for part in torch.tensor_split(torch.arange(rows), hvd.size())]
        return (owners + 1.0).repeat_interleave(torch.tensor(counts))

    def test_gradient_of_an_average_is_gathered(self) -> None:
        x = leaf(5)
        (hvd.reducescatter(x) * weight()).sum().backward()
        assert torch.equal(grad_of(x), self.expected(5))

    def test_gradient_of_a_sum_is_gathered_and_multiplied_by_the_number_of_ranks(self) -> None:
        x = leaf(5)
        (hvd.reducescatter(x, op=hvd.Sum) * weight()).sum().backward()
        assert torch.equal(grad_of(x), self.expected(5) * hvd.size())

    def test_scales_apply_to_the_gradient(self) -> None:
        x = leaf(5)
        y = hvd.reducescatter(x, prescale_factor=2.0, postscale_factor=4.0)
        (y * weight()).sum().backward()
        assert torch.equal(grad_of(x), self.expected(5) * 8)

    def test_each_member_of_a_group_gets_its_gradient(self) -> None:
        a, b = leaf(5), leaf(3)
        y, z = hvd.grouped_reducescatter([a, b])
        ((y.sum() + 2 * z.sum()) * weight()).backward()
        assert torch.equal(grad_of(a), self.expected(5))
        assert torch.equal(grad_of(b), 2 * self.expected(3))

    def test_the_gradient_that_came_in_is_left_alone(self) -> None:
        x = leaf(hvd.size())
        y = hvd.reducescatter(x, op=hvd.Sum)
        incoming = torch.ones_like(y)
        y.backward(incoming)
        assert torch.equal(incoming, torch.ones_like(y))


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: hvd.synchronize(hvd.allreduce_async(x)),
        lambda x: hvd.synchronize(hvd.allgather_async(x)),
        lambda x: hvd.synchronize(hvd.broadcast_async(x, 0)),
        lambda x: hvd.synchronize(hvd.alltoall_async(x))[0],
        lambda x: hvd.synchronize(hvd.reducescatter_async(x)),
    ],
    ids=["allreduce", "allgather", "broadcast", "alltoall", "reducescatter"],
)
def test_asynchronous_forms_are_not_differentiable(operation) -> None:
    assert not operation(leaf(hvd.size())).requires_grad


def test_nothing_is_recorded_without_grad_mode() -> None:
    with torch.no_grad():
        assert not hvd.allreduce(leaf(3)).requires_grad


def test_autograd_notices_that_a_saved_tensor_was_overwritten() -> None:
    x = torch.ones(3)
    y = (x * leaf(3)).sum()
    hvd.allreduce_(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
