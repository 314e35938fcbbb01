"""Compression of tensors for the time they are on the wire."""

from __future__ import annotations

from typing import Any, ClassVar

import torch


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
    """Sends floating point tensors in a narrower type; leaves all others alone."""

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
