"""Compression of tensors while they are sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.compiler import is_compiling

from sirtaki.core.operations import codecs
from sirtaki.core.operations.compression import (
    BlockCompressor,
    CastCompressor,
    Compressor,
    NoneCompressor,
    compress_for,
)
from sirtaki.torch.device.routes import devices

__all__ = ["Compression", "Compressor", "codec_of", "compress_for", "feeds_back"]


class _Cast(CastCompressor):
    float32 = torch.float32

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        """See `CastCompressor`."""
        return bool(tensor.dtype.is_floating_point)

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """See `CastCompressor`."""
        return tensor.to(dtype)


class FP16Compressor(_Cast):
    """Sends floating point tensors as float16."""

    dtype = torch.float16


class BF16Compressor(_Cast):
    """Sends floating point tensors as bfloat16: the range of float32 with 8 bits of precision."""

    dtype = torch.bfloat16


class Int8Compressor(_Cast, BlockCompressor):
    __doc__ = BlockCompressor.__doc__


class Compression:
    """The available compressions; any class with the methods of `Compressor` works as well."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8Compressor


# Exactly these: what a class derived from them does is its own.
_CODECS: Final[dict[type[Compressor], int]] = {
    FP16Compressor: codecs.NUMBERS["float16"],
    BF16Compressor: codecs.NUMBERS["bfloat16"],
    Int8Compressor: codecs.NUMBERS["int8"],
}


def codec_of(compression: type[Compressor], tensors: Sequence[torch.Tensor], op: int) -> int:
    """Return what the engine is to encode float32 tensors to for this compression."""
    codec = _CODECS.get(compression, codecs.NONE)
    if codec == codecs.NONE or (codec, op) not in codecs.REDUCED:
        return codecs.NONE
    served = is_compiling() or devices["cpu"] is None
    return codec if served and all(tensor.is_cpu for tensor in tensors) else codecs.NONE


def feeds_back(compression: type[Compressor]) -> bool:
    """Say whether the optimizer is to give back what this compression loses."""
    return compression is Int8Compressor
