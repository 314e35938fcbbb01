"""Compression of tensors for the time they are on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import torch
from torch.compiler import is_compiling

from sirtaki.core import wires
from sirtaki.core.reduce_ops import Adasum
from sirtaki.torch.device.routes import devices


class Compressor:
    """Interface of a compression: two static methods, so that the class itself is passed around.

    `compress` may keep in its context whatever `decompress` needs on the same rank. All ranks must
    compress a tensor to the same dtype and shape, and the compressed form must add up.
    """

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor to send, and a context for `decompress`."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the reduced tensor in its original form."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor itself."""
        return tensor


class _CastCompressor(Compressor):
    """Sends floating point tensors in a narrower type; leaves all others alone.

    An allreduce of float32 in CPU memory needs no cast: there the engine rounds what it sends, and
    sums it up in float32.
    """

    dtype: ClassVar[torch.dtype]

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        """Return the tensor in the narrower type, and its own type."""
        if tensor.dtype.is_floating_point:
            return tensor.to(cls.dtype), tensor.dtype
        return tensor, tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype) -> torch.Tensor:
        """Return the tensor in its own type."""
        return tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """Sends floating point tensors as float16."""

    dtype = torch.float16


class BF16Compressor(_CastCompressor):
    """Sends floating point tensors as bfloat16: the range of float32 with 8 bits of precision."""

    dtype = torch.bfloat16


class Compression:
    """The compressions there are; any class with the methods of `Compressor` will do as well."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


# Exactly these: what a class derived from them does is its own.
_WIRES: Final[dict[type[Compressor], int]] = {
    FP16Compressor: wires.F16,
    BF16Compressor: wires.BF16,
}


def wire_of(compression: type[Compressor], tensors: Sequence[torch.Tensor], op: int) -> int:
    """Return what the engine is to round float32 tensors to in place of this compression."""
    wire = _WIRES.get(compression, wires.NONE)
    if wire == wires.NONE or op == Adasum:
        return wires.NONE
    served = is_compiling() or devices["cpu"] is None
    return wire if served and all(tensor.is_cpu for tensor in tensors) else wires.NONE


def compress_for(
    wire: int, compression: type[Compressor], tensor: torch.Tensor
) -> tuple[torch.Tensor, Any]:
    """Return what to give the engine that rounds to `wire`, and a context for `decompress`."""
    if wire != wires.NONE and tensor.dtype == torch.float32:
        return tensor, tensor.dtype
    return compression.compress(tensor)
