"""A program's tensors as memory that the engine works on, and its reduce operators as ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from sirtaki.core.operations import reduce_ops
from sirtaki.core.operations.reduce_ops import Max, Min
from sirtaki.torch.ops.tensors import (
    REDUCIBLE,
    TorchTensors,
    check_apart,
    check_dense,
    check_writable,
    host_copy,
    is_plain,
)

_tensors = TorchTensors()


class Buffer(NamedTuple):
    """A tensor in row order in CPU memory, and the program's tensor behind it."""

    memory: torch.Tensor
    tensor: torch.Tensor

    @property
    def address(self) -> int:
        """The address of its first element."""
        return self.memory.data_ptr()

    @property
    def elements(self) -> int:
        """The number of elements."""
        return self.memory.numel()

    @property
    def place(self) -> tuple[int, int]:
        """Its address and number of bytes."""
        return self.memory.data_ptr(), self.memory.nbytes

    @property
    def dtype(self) -> int:
        """The engine's code of its type."""
        return _tensors.view(self.memory)[2]

    def give_back(self) -> None:
        """Copy the memory to the program's tensor."""
        if self.memory is not self.tensor:
            with torch.no_grad():
                self.tensor.copy_(self.memory.view(self.tensor.shape))


def source(tensor: torch.Tensor) -> Buffer:
    """Return a tensor to read: itself, or a copy in row order in CPU memory."""
    tensor = check_dense(tensor).detach()
    return Buffer(_tensors.contiguous(host_copy(tensor)), tensor)


def target(tensor: torch.Tensor) -> Buffer:
    """Return a tensor to write; its current contents do not matter."""
    tensor = check_dense(tensor).detach()
    if is_plain(tensor):
        return Buffer(tensor, tensor)
    check_writable(tensor)
    return Buffer(torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu"), tensor)


def in_place(tensor: torch.Tensor) -> Buffer:
    """Return a tensor to read and then write."""
    tensor = check_dense(tensor).detach()
    return Buffer(tensor, tensor) if is_plain(tensor) else source(check_writable(tensor))


def joined(tensors: Sequence[torch.Tensor]) -> Buffer:
    """Return the elements of several tensors concatenated, to read."""
    flat = torch.cat([source(tensor).memory.reshape(-1) for tensor in tensors])
    return Buffer(flat, flat)


def room_for(tensors: Sequence[torch.Tensor]) -> tuple[Buffer, Callable[[], None]]:
    """Return a buffer for the elements of several tensors, and a function that distributes it."""
    checked = [check_writable(check_dense(tensor)).detach() for tensor in tensors]
    check_apart(checked)
    flat = torch.empty(
        sum(tensor.numel() for tensor in checked), dtype=checked[0].dtype, device="cpu"
    )

    def hand_out() -> None:
        parts = flat.split([tensor.numel() for tensor in checked])
        for tensor, part in zip(checked, parts, strict=True):
            tensor.copy_(part.view(tensor.shape))

    return Buffer(flat, flat), hand_out


def reducible(tensor: torch.Tensor, op: int) -> torch.Tensor:
    """Return a tensor that the engine can reduce with this operator.

    Raises:
        ValueError: The type cannot be reduced, or not with this operator.
    """
    if tensor.is_complex() and op in (Min, Max):
        raise ValueError("complex numbers have no minimum and no maximum")
    if tensor.layout is torch.strided and tensor.dtype not in REDUCIBLE:
        raise ValueError(
            f"tensors of type {tensor.dtype} can be sent, broadcast and gathered, but not reduced"
        )
    return tensor


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
