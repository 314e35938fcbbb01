"""Access of the core to PyTorch tensors."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import cast

import torch

from sirtaki import _core
from sirtaki.core.operations import codes
from sirtaki.core.operations.reduction import check_reduction

# Not every version of PyTorch has the newest types.
_CODES: dict[torch.dtype, int] = {
    getattr(torch, name): code for name, code in codes.DTYPES.items() if hasattr(torch, name)
}
REDUCIBLE = frozenset(t for t, code in _CODES.items() if code in codes.REDUCED_DTYPES.values())
_STRIDED = torch.strided

# Instances of other classes may store their elements differently.
# A tuple, because the compiler of PyTorch 2.7 cannot look into a frozenset.
_PLAIN = (torch.Tensor, torch.nn.Parameter)
# How to send their contents, by class name, because their modules are slow to import.
_WHOLE = {
    "DTensor": "give x.to_local(), or x.full_tensor()",
    "MaskedTensor": "give x.to_tensor(0), and send x.get_mask() by itself where it matters",
    "NestedTensor": "give x.values(), and send x.offsets() by itself",
    "FakeTensor": "it has no data to exchange",
}

_DTYPES = {code: dtype for dtype, code in _CODES.items()}


def dtype_of(code: int) -> torch.dtype:
    """Return the type with this number in the core."""
    return _DTYPES[code]


def _is_ordinary(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's class stores its elements as PyTorch does."""
    kind = type(tensor)
    return kind in _PLAIN or kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def check_dense(tensor: object) -> torch.Tensor:
    """Return the tensor if a collective accepts it.

    Raises:
        TypeError: it is not a PyTorch tensor, or its class stores its elements differently.
        ValueError: its layout is sparse, its dtype is not supported, or it has no data.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a torch.Tensor, got {type(tensor).__name__}")
    if not _is_ordinary(tensor):
        kind = type(tensor).__name__
        cure = _WHOLE.get(kind, "give the plain tensors that it holds")
        raise TypeError(f"expected a plain torch.Tensor, got {kind}: {cure}")
    if tensor.is_nested:
        raise ValueError("a nested tensor has no one shape: give x.to_padded_tensor(0)")
    if tensor.layout is not torch.strided:
        raise ValueError(
            f"a tensor of layout {tensor.layout} cannot take part in this operation; convert it "
            "with to_dense(), or use sparse_allreduce_async"
        )
    if tensor.dtype not in _CODES:
        cure = ": give x.int_repr(), or x.dequantize()" if tensor.is_quantized else ""
        raise ValueError(f"tensors of type {tensor.dtype} are not supported{cure}")
    if tensor.is_meta:
        raise ValueError("a tensor on the meta device has no data to exchange")
    return tensor


def check_reducible(tensor: object, op: int) -> torch.Tensor:
    """Return the tensor if a collective can reduce it with this operator.

    Raises:
        TypeError: it is not a PyTorch tensor.
        ValueError: a collective does not accept it, or cannot reduce its dtype with this operator.
    """
    dense = check_dense(tensor)
    check_reduction(op, _CODES[dense.dtype])
    return dense


def _places() -> _core.Places | None:
    """Return where the core finds tensors by itself."""
    # Neither PyTorch before 2.10 nor a core in Python has this way.
    if not (hasattr(torch.Tensor, "__dlpack_c_exchange_api__") and hasattr(_core, "Places")):
        return None
    classes = (torch.Tensor, torch.nn.Parameter)
    return _core.Places(classes, torch.Tensor.is_neg, torch.Tensor.is_conj)


PLACES = _places()


class TorchTensors:
    """The core's view of PyTorch tensors in CPU memory; others are staged by `host_copy`."""

    def view(self, tensor: torch.Tensor) -> tuple[int, tuple[int, ...], int]:
        """Return the data pointer, shape and dtype code of a CPU tensor."""
        try:
            pointer = tensor.data_ptr()
            if not pointer and tensor.numel():
                raise ValueError("the tensor has no memory: it has been freed, or never made")
            return pointer, tensor.shape, _CODES[tensor.dtype]
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
        if type(tensor) not in _PLAIN:  # also objects that are not tensors
            check_dense(tensor)
        try:
            if tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj()):
                return tensor
            return tensor.contiguous().resolve_neg().resolve_conj()
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
        """Return alltoall's row counts from a 1-D int32 tensor or integers."""
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
        """Return received row counts as int32, on the device of the given splits."""
        device = like.device if isinstance(like, torch.Tensor) else "cpu"
        return torch.tensor(received, dtype=torch.int32, device=device)


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether the core can use the tensor in place: its elements are in CPU memory."""
    # In row order, without gaps, and with no pending negation or conjugation.
    return (
        tensor.is_cpu
        and (type(tensor) in _PLAIN or _is_ordinary(tensor))
        and tensor.layout is _STRIDED
        and tensor.is_contiguous()
        and not (tensor.is_neg() or tensor.is_conj())
    )


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself if it is in CPU memory, otherwise a copy that is.

    Accelerator tensors are staged in CPU memory; the caller moves the result back.
    """
    return tensor if tensor.is_cpu else check_dense(tensor).detach().cpu()


def check_writable(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor if its elements do not overlap, as required for writing.

    Raises:
        ValueError: Some may share memory, for example in an expanded tensor.
    """
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= reach:
            raise ValueError(
                f"elements of a tensor of shape {tuple(tensor.shape)} and strides "
                f"{tensor.stride()} share memory, so it cannot be written; give a clone()"
            )
        reach += stride * (size - 1)
    return tensor


def check_apart(tensors: Sequence[torch.Tensor]) -> None:
    """Raise ValueError if two of the tensors to be written share memory."""
    filled = [i for i, each in enumerate(tensors) if each.numel() and each.data_ptr()]
    filled.sort(key=lambda index: tensors[index].data_ptr())
    end = 0
    for index in filled:
        tensor = tensors[index]
        if tensor.data_ptr() < end:
            return _check_elements([tensors[each] for each in filled], filled)
        end = tensor.data_ptr() + _extent(tensor) * tensor.element_size()
    return None


def _check_elements(tensors: Sequence[torch.Tensor], numbers: Sequence[int]) -> None:
    """Do the same as `check_apart`, for tensors whose elements may be interleaved."""
    unit = tensors[0].element_size()
    places = [(each.data_ptr() - tensors[0].data_ptr()) // unit for each in tensors]
    room = max(place + _extent(each) for place, each in zip(places, tensors, strict=True))
    marks = torch.zeros(room, dtype=torch.bool)
    for number, place, tensor in zip(numbers, places, tensors, strict=True):
        own = marks.as_strided(tensor.shape, tensor.stride(), place)
        if tensor.element_size() != unit or own.any():
            raise ValueError(
                f"tensor {number} of the list shares memory with another one, so they cannot both "
                "be written; give tensors of their own"
            )
        own.fill_(True)


def _extent(tensor: torch.Tensor) -> int:
    """Return the number of elements from a tensor's first one past its last."""
    strides = zip(tensor.stride(), tensor.shape, strict=True)
    return 1 + sum(stride * (size - 1) for stride, size in strides)
