"""Maps each reduction to one that PyTorch's process groups support, with our results."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.distributed import ReduceOp

from sirtaki.core.operations.reduce_ops import Average, Max, Min, Product, Sum
from sirtaki.torch.ops import integers

_OPERATORS = {
    Average: ReduceOp.SUM,
    Sum: ReduceOp.SUM,
    Min: ReduceOp.MIN,
    Max: ReduceOp.MAX,
    Product: ReduceOp.PRODUCT,
}
# For bools, sum and maximum mean "or"; product and minimum mean "and".
_BOOLS = {
    Average: ReduceOp.MAX,
    Sum: ReduceOp.MAX,
    Max: ReduceOp.MAX,
    Min: ReduceOp.MIN,
    Product: ReduceOp.MIN,
}
# Groups do not reduce the left types; sums wrap around alike in the wider type.
_CARRIERS = {torch.int16: torch.int32, torch.bool: torch.uint8}


@dataclass(frozen=True)
class Arithmetic:
    """The group's operator, the factors before and after it, and the type in which it works.

    whole: The number of members, if integers are averaged.
    """

    operator: ReduceOp.RedOpType
    before: float
    after: float
    carrier: torch.dtype
    whole: int = 0

    def carried(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the tensor that the group reduces in place: `target`, or one of another type."""
        if target is not source:
            target.copy_(source)
        scale(target, self.before)
        if self.whole:
            return integers.shares(target, self.whole)
        return target if self.carrier == target.dtype else target.to(self.carrier)

    def deliver(self, reduced: torch.Tensor, target: torch.Tensor) -> None:
        """Write the result of a reduction to its destination."""
        if self.whole:
            target.copy_(integers.average(reduced, self.whole, self.after, target.dtype))
            return
        if reduced is not target:
            target.copy_(reduced)
        scale(target, self.after)


def arithmetic_of(
    op: int, before: float, after: float, dtype: torch.dtype, members: int, averages: bool
) -> Arithmetic:
    """Return how to perform a reduction.

    Args:
        op: The operator, by our number.
        before: Factor of the inputs.
        after: Factor of the outputs.
        dtype: The tensors' type.
        members: The number of members.
        averages: Whether the group has an operator that averages floats.
    """
    carrier = _CARRIERS.get(dtype, dtype)
    if dtype == torch.bool:
        return Arithmetic(_BOOLS[op], 1.0, 1.0, carrier)
    operator = _OPERATORS[op]
    if op == Average and not dtype.is_floating_point:
        return Arithmetic(operator, before, after, torch.int64, whole=members)
    if op == Average and averages:
        operator = ReduceOp.AVG
    elif op == Average:
        before /= members  # before the sum, which might overflow 16 bits
    return Arithmetic(operator, before, after, carrier)


def scale(tensor: torch.Tensor, factor: float) -> None:
    """Multiply in place; integers are truncated toward zero, and stay in their type's range."""
    if factor == 1.0:
        return
    if tensor.dtype.is_floating_point:
        tensor.mul_(factor)
        return
    tensor.copy_(integers.clamped((tensor.double() * factor).trunc_(), tensor.dtype))
