"""How the core reads and makes PyTorch tensors."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import cast

import torch

from sirtaki.core.operations import dtypes
from sirtaki.core.operations.reduction import check_reduction

# The youngest are not in every version of PyTorch.
_CODES: dict[torch.dtype, int] = {
    getattr(torch, name): code for name, code in dtypes.CODES.items() if hasattr(torch, name)
}
REDUCIBLE = frozenset(t for t, code in _CODES.items() if code in dtypes.REDUCED.values())
# Only these can be conjugates.
_COMPLEX = frozenset(dtype for dtype in _CODES if dtype.is_complex)

_DTYPES = {code: dtype for dtype, code in _CODES.items()}


def dtype_of(code: int) -> torch.dtype:
    """Return the type that the core knows by this number."""
    return _DTYPES[code]


def check_dense(tensor: object) -> torch.Tensor:
    """Return the tensor if a collective can take it.

    Raises:
        TypeError: it is not a PyTorch tensor.
        ValueError: its layout is sparse, its dtype is not supported, or it has no data.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a torch.Tensor, got {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise ValueError(
            f"a tensor of layout {tensor.layout} cannot take part in this operation; convert it "
            "with to_dense(), or use sparse_allreduce_async"
        )
    if tensor.dtype not in _CODES:
        raise ValueError(f"tensors of type {tensor.dtype} are not supported")
    if tensor.is_meta:
        raise ValueError("a tensor on the meta device has no data to exchange")
    return tensor


def check_reducible(tensor: object, op: int) -> torch.Tensor:
    """Return the tensor if a collective can reduce it so.

    Raises:
        TypeError: it is not a PyTorch tensor.
        ValueError: a collective cannot take it, or cannot reduce its dtype so.
    """
    dense = check_dense(tensor)
    check_reduction(op, _CODES[dense.dtype])
    return dense


class TorchTensors:
    """The core's view of PyTorch tensors in CPU memory; others are staged by `host_copy`."""

    def view(self, tensor: torch.Tensor) -> tuple[int, tuple[int, ...], int]:
        """Return the data pointer, shape and dtype code of a CPU tensor."""
        try:
            return tensor.data_ptr(), tensor.shape, _CODES[tensor.dtype]
        except (AttributeError, KeyError, RuntimeError):
            check_dense(tensor)
            if torch._C._are_functorch_transforms_active():
                raise ValueError(
                    "within torch.func transforms use the plain form of the operation, neither "
                    "the asynchronous nor the in-place one"
                ) from None
            raise

    def contiguous(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor itself if its memory holds its elements in row order, else a copy."""
        try:
            tensor = tensor.contiguous().resolve_neg()
            return tensor.resolve_conj() if tensor.dtype in _COMPLEX else tensor
        except (AttributeError, RuntimeError):
            check_dense(tensor)
            raise

    def empty_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a contiguous tensor of the same shape, dtype and device, not initialised."""
        return torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)

    def from_buffer(
        self, buffer: object, like: torch.Tensor, shape: tuple[int, ...]
    ) -> torch.Tensor:
        """Return a tensor of this shape and `like`'s dtype over the buffer's own memory."""
        if 0 in shape:  # torch.frombuffer refuses empty buffers
            return torch.empty(shape, dtype=like.dtype, device="cpu")
        return torch.frombuffer(buffer, dtype=like.dtype).view(shape)

    def splits(self, splits: object) -> list[int]:
        """Return alltoall's row counts, given as a 1-D int32 tensor or as integers."""
        if isinstance(splits, torch.Tensor):
            if splits.dtype != torch.int32 or splits.dim() != 1:
                raise ValueError(
                    "alltoall: splits must be a 1-D tensor of int32, got "
                    f"{splits.dtype} of shape {tuple(splits.shape)}"
                )
            return cast("list[int]", splits.tolist())
        try:
            return [operator.index(rows) for rows in cast("Iterable[int]", splits)]
        except TypeError:
            raise ValueError(f"alltoall: splits must be integers, got {splits!r}") from None

    def wrap_splits(self, received: list[int], like: object) -> torch.Tensor:
        """Return received row counts as int32, on the device of the splits that were given."""
        device = like.device if isinstance(like, torch.Tensor) else "cpu"
        return torch.tensor(received, dtype=torch.int32, device=device)


def is_plain(tensor: torch.Tensor) -> bool:
    """Say whether the core can work on the tensor in place: its elements are in CPU memory."""
    # In row order, without gaps, and neither to be negated nor conjugated when they are read.
    return (
        tensor.is_cpu
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not (tensor.dtype in _COMPLEX and tensor.is_conj())
    )


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself if it is in CPU memory, otherwise a copy that is.

    Accelerators are served through CPU memory; the caller moves the result back.
    """
    return tensor if tensor.is_cpu else check_dense(tensor).detach().cpu()
