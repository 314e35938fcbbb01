"""Compression of arrays while they are sent."""

from __future__ import annotations

from typing import Any, Final

import jax.numpy as jnp

from sirtaki.core.operations import codecs
from sirtaki.core.operations.compression import (
    BlockCompressor,
    CastCompressor,
    Compressor,
    NoneCompressor,
    compress_for,
)

__all__ = ["Compression", "Compressor", "codec_of", "compress_for"]


class _Cast(CastCompressor):
    float32 = jnp.float32

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        """See `CastCompressor`."""
        return bool(jnp.issubdtype(tensor.dtype, jnp.floating))

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """See `CastCompressor`."""
        return tensor.astype(dtype)


class FP16Compressor(_Cast):
    """Sends floating point arrays as float16."""

    dtype = jnp.float16


class BF16Compressor(_Cast):
    """Sends floating point arrays as bfloat16: the range of float32 with 8 bits of precision."""

    dtype = jnp.bfloat16


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


def codec_of(compression: type[Compressor], op: int) -> int:
    """Return what the engine is to encode float32 to for this compression."""
    codec = _CODECS.get(compression, codecs.NONE)
    return codec if (codec, op) in codecs.REDUCED else codecs.NONE
