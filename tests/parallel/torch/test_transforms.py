"""The collectives within torch.func: transforms give what autograd and loops give."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.func import grad, jvp, vjp, vmap

import sirtaki.torch as hvd

Operation = Callable[[torch.Tensor], torch.Tensor]


def _with_splits(x: torch.Tensor) -> torch.Tensor:
    return hvd.alltoall(x, [1] * hvd.size())[0]


OPERATIONS = {
    "average": hvd.allreduce,
    "sum": lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5),
    "grouped": lambda x: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum)[1],
    "compressed": lambda x: hvd.allreduce(x, compression=hvd.Compression.fp16),
    "allgather": hvd.allgather,
    "grouped allgather": lambda x: hvd.grouped_allgather([x, 2 * x])[1],
    "broadcast": lambda x: hvd.broadcast(x, hvd.size() - 1),
    "alltoall": hvd.alltoall,
    "alltoall with splits": _with_splits,
    "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Sum),
}

every_operation = pytest.mark.parametrize("name", OPERATIONS)
# In a backward pass of `grad`, PyTorch 2.4 to 2.7 cannot read the numbers of a tensor.
UNREADABLE = torch.__version__.startswith(("2.4.", "2.5.", "2.6.", "2.7."))
every_gradient = pytest.mark.parametrize(
    "name", [name for name in OPERATIONS if not (UNREADABLE and "allgather" in name)]
)


def mine(*before: int) -> torch.Tensor:
    shape = (*before, hvd.size(), 2)
    generator = torch.Generator().manual_seed(hvd.rank())
    # Few digits, so that half precision is exact.
    return torch.randint(-4, 5, shape, generator=generator).float()


def weighted(operation: Operation) -> Operation:
    """A loss that differs between ranks and elements."""

    def loss(x: torch.Tensor) -> torch.Tensor:
        y = operation(x)
        weights = torch.arange(1.0, y.numel() + 1).view_as(y) * (hvd.rank() + 1)
        return (y * weights).sum()

    return loss


def gradient(loss: Operation, x: torch.Tensor) -> torch.Tensor:
    """As autograd has it."""
    leaf = x.clone().requires_grad_()
    loss(leaf).backward()
    assert leaf.grad is not None
    return leaf.grad


@every_gradient
def test_grad_is_the_gradient_of_autograd(name: str) -> None:
    loss = weighted(OPERATIONS[name])
    torch.testing.assert_close(grad(loss)(mine()), gradient(loss, mine()))


@every_operation
def test_vjp_is_the_gradient_of_autograd(name: str) -> None:
    output, pull_back = vjp(OPERATIONS[name], mine())
    torch.testing.assert_close(output, OPERATIONS[name](mine()))
    (pulled,) = pull_back(torch.ones_like(output))
    expected = gradient(lambda x: OPERATIONS[name](x).sum(), mine())
    torch.testing.assert_close(pulled, expected)


@every_operation
def test_jvp_does_to_a_direction_what_the_operation_does(name: str) -> None:
    operation, direction = OPERATIONS[name], mine() + 1
    output, pushed = jvp(operation, (mine(),), (direction,))
    torch.testing.assert_close(output, operation(mine()))
    torch.testing.assert_close(pushed, operation(direction))


@every_operation
@pytest.mark.parametrize("dim", [0, 2])
def test_vmap_does_to_each_example_what_the_operation_does(name: str, dim: int) -> None:
    examples = mine(3)
    result = vmap(OPERATIONS[name], in_dims=dim)(examples.movedim(0, dim))
    expected = torch.stack([OPERATIONS[name](example) for example in examples])
    torch.testing.assert_close(result, expected)


@every_gradient
def test_gradients_of_each_example(name: str) -> None:
    loss, examples = weighted(OPERATIONS[name]), mine(3)
    expected = torch.stack([gradient(loss, example) for example in examples])
    torch.testing.assert_close(vmap(grad(loss))(examples), expected)


def test_members_of_a_group_may_be_the_same_for_all_examples() -> None:
    def summed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a, b = hvd.grouped_allreduce([x, y], op=hvd.Sum)
        return a + b

    result = vmap(summed, in_dims=(0, None))(torch.ones(3, 2), torch.ones(2))
    assert result.tolist() == [[2.0 * hvd.size()] * 2] * 3


def test_only_linear_reductions_have_forward_mode_derivatives() -> None:
    with pytest.raises(NotImplementedError, match="Average"):
        jvp(lambda x: hvd.allreduce(x, op=hvd.Max), (mine(),), (mine(),))


def test_adasum_is_not_mapped() -> None:
    with pytest.raises(NotImplementedError, match="Adasum"):
        vmap(lambda x: hvd.allreduce(x, op=hvd.Adasum))(mine())


@pytest.mark.parametrize(
    "operation",
    [
        hvd.allreduce_,
        hvd.allreduce_async,
        hvd.allgather_async,
        lambda x: hvd.broadcast_(x, 0),
        hvd.reducescatter_async,
    ],
    ids=["allreduce_", "allreduce_async", "allgather_async", "broadcast_", "reducescatter_async"],
)
def test_other_forms_say_that_the_plain_one_is_to_be_used(operation) -> None:
    with pytest.raises(ValueError, match="plain form"):
        vmap(operation)(mine())
