"""PyTorch's reduce operators in the engine's terms."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from sirtaki.core.operations import reduce_ops

# Its members are missing from the stubs.
_TYPES: Any = dist.ReduceOp.RedOpType
_NUMBERS = {
    _TYPES.SUM: reduce_ops.Sum,
    _TYPES.AVG: reduce_ops.Average,
    _TYPES.PRODUCT: reduce_ops.Product,
    _TYPES.MIN: reduce_ops.Min,
    _TYPES.MAX: reduce_ops.Max,
    _TYPES.BAND: reduce_ops.BitAnd,
    _TYPES.BOR: reduce_ops.BitOr,
    _TYPES.BXOR: reduce_ops.BitXor,
    _TYPES.PREMUL_SUM: reduce_ops.Sum,
}


class GroupReduction(NamedTuple):
    """An operator of the engine, and the factor applied to every tensor before it."""

    op: int
    factor: float = 1.0


def reduction_of(operator: Any) -> GroupReduction:
    """Return the reduction named by an options object.

    Raises:
        ValueError: There is no such operator.
    """
    kind = getattr(operator, "op", operator)
    if kind not in _NUMBERS:
        raise ValueError(f"the reduce operator {operator} is not known")
    if kind == _TYPES.PREMUL_SUM:
        return GroupReduction(reduce_ops.Sum, _factor_of(operator))
    return GroupReduction(_NUMBERS[kind])


def _factor_of(operator: Any) -> float:
    """Return the factor of a PREMUL_SUM; only its pickled state contains it in all versions."""
    factor = operator.__getstate__()[1]
    return float(factor.item() if isinstance(factor, torch.Tensor) else factor)
