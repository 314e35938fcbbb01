"""How a reduction becomes one that a process group of PyTorch's has, with our results."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.distributed import ReduceOp

from sirtaki.core.operations.reduce_ops import Average, Max, Min, Product, Sum

_OPERATORS = {
    Average: ReduceOp.SUM,
    Sum: ReduceOp.SUM,
    Min: ReduceOp.MIN,
    Max: ReduceOp.MAX,
    Product: ReduceOp.PRODUCT,
}
# Of bools sum and maximum are "or", product and minimum are "and".
_BOOLS = {
    Average: ReduceOp.MAX,
    Sum: ReduceOp.MAX,
    Max: ReduceOp.MAX,
    Min: ReduceOp.MIN,
    Product: ReduceOp.MIN,
}
# Groups do not reduce the first; sums wrap around alike in the wider type.
_CARRIERS = {torch.int16: torch.int32, torch.bool: torch.uint8}
# The largest double that an int64 holds.
_LARGEST = float((1 << 63) - 1024)


@dataclass(frozen=True)
class Arithmetic:
    """The group's operator, factors before and after it, and the type in which it works."""

    operator: ReduceOp.RedOpType
    before: float
    after: float
    carrier: torch.dtype

    def carried(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return what the group is to reduce in place: `target`, or a tensor of another type."""
        if target is not source:
            target.copy_(source)
        scale(target, self.before)
        return target if self.carrier == target.dtype else target.to(self.carrier)

    def deliver(self, reduced: torch.Tensor, target: torch.Tensor) -> None:
        """Write the result of a reduction to where it belongs."""
        if reduced is not target:
            target.copy_(reduced)
        scale(target, self.after)


def arithmetic_of(
    op: int, before: float, after: float, dtype: torch.dtype, members: int, averages: bool
) -> Arithmetic:
    """Return how a reduction is done.

    Args:
        op: The operator, with our number.
        before: Factor of what goes in.
        after: Factor of what comes out.
        dtype: Of the tensors.
        members: How many there are.
        averages: Whether the group has an operator for averages of floats.
    """
    carrier = _CARRIERS.get(dtype, dtype)
    if dtype == torch.bool:
        return Arithmetic(_BOOLS[op], 1.0, 1.0, carrier)
    operator = _OPERATORS[op]
    if op == Average and not dtype.is_floating_point:
        after *= 1.0 / members
    elif op == Average and averages:
        operator = ReduceOp.AVG
    elif op == Average:
        before /= members  # before the sum, which might exceed what 16 bits hold
    return Arithmetic(operator, before, after, carrier)


def scale(tensor: torch.Tensor, factor: float) -> None:
    """Multiply in place; integers are truncated toward zero, and stay in their type's range."""
    if factor == 1.0:
        return
    if tensor.dtype.is_floating_point:
        tensor.mul_(factor)
        return
    limits = torch.iinfo(tensor.dtype)
    product = (tensor.double() * factor).trunc_()
    tensor.copy_(product.clamp_(float(limits.min), min(float(limits.max), _LARGEST)))
