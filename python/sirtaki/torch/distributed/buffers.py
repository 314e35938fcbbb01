"""How tensors of a program become memory that the engine works on, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from sirtaki.core.operations.reduce_ops import Max, Min
from sirtaki.torch.ops.tensors import REDUCIBLE, TorchTensors, check_dense, host_copy, is_plain

_tensors = TorchTensors()


class Buffer(NamedTuple):
    """A tensor in row order in CPU memory, and the program's tensor that it stands for."""

    memory: torch.Tensor
    tensor: torch.Tensor

    @property
    def address(self) -> int:
        """Where its first element is."""
        return self.memory.data_ptr()

    @property
    def elements(self) -> int:
        """How many there are."""
        return self.memory.numel()

    @property
    def place(self) -> tuple[int, int]:
        """Where it is and its number of bytes."""
        return self.memory.data_ptr(), self.memory.nbytes

    @property
    def dtype(self) -> int:
        """The engine's number of its type."""
        return _tensors.view(self.memory)[2]

    def give_back(self) -> None:
        """Let the program's tensor have what is in the memory."""
        if self.memory is not self.tensor:
            with torch.no_grad():
                self.tensor.copy_(self.memory.view(self.tensor.shape))


def source(tensor: torch.Tensor) -> Buffer:
    """Return a tensor to be read: itself, or a copy in row order in CPU memory."""
    tensor = check_dense(tensor).detach()
    return Buffer(_tensors.contiguous(host_copy(tensor)), tensor)


def target(tensor: torch.Tensor) -> Buffer:
    """Return a tensor to be written, whatever it holds now."""
    tensor = check_dense(tensor).detach()
    if is_plain(tensor):
        return Buffer(tensor, tensor)
    return Buffer(torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu"), tensor)


def in_place(tensor: torch.Tensor) -> Buffer:
    """Return a tensor to be read and then written."""
    tensor = check_dense(tensor).detach()
    return Buffer(tensor, tensor) if is_plain(tensor) else source(tensor)


def joined(tensors: Sequence[torch.Tensor]) -> Buffer:
    """Return the elements of several tensors one after another, to be read."""
    flat = torch.cat([source(tensor).memory.reshape(-1) for tensor in tensors])
    return Buffer(flat, flat)


def room_for(tensors: Sequence[torch.Tensor]) -> tuple[Buffer, Callable[[], None]]:
    """Return room for the elements of several tensors, and what hands them out once written."""
    checked = [check_dense(tensor).detach() for tensor in tensors]
    flat = torch.empty(
        sum(tensor.numel() for tensor in checked), dtype=checked[0].dtype, device="cpu"
    )

    def hand_out() -> None:
        parts = flat.split([tensor.numel() for tensor in checked])
        for tensor, part in zip(checked, parts, strict=True):
            tensor.copy_(part.view(tensor.shape))

    return Buffer(flat, flat), hand_out


def reducible(tensor: torch.Tensor, op: int) -> torch.Tensor:
    """Return a tensor that the engine can reduce so.

    Raises:
        ValueError: The type cannot be reduced, or not so.
    """
    if tensor.is_complex() and op in (Min, Max):
        raise ValueError("complex numbers have no minimum and no maximum")
    if tensor.layout is torch.strided and tensor.dtype not in REDUCIBLE:
        raise ValueError(
            f"tensors of type {tensor.dtype} can be sent, broadcast and gathered, but not reduced"
        )
    return tensor
