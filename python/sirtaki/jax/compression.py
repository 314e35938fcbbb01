"""Compression of arrays for transmission."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from sirtaki.core.operations.compression import (
    BlockCompressor,
    CastCompressor,
    Compressor,
    NoneCompressor,
)

__all__ = ["Compression", "Compressor"]


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


class FP16Compressor(_Cast, codec="float16"):
    """Sends floating-point arrays as float16."""

    dtype = jnp.float16


class BF16Compressor(_Cast, codec="bfloat16"):
    """Sends floating-point arrays as bfloat16: the range of float32 with 8 bits of precision."""

    dtype = jnp.bfloat16


class Int8Compressor(_Cast, BlockCompressor, codec="int8"):
    __doc__ = BlockCompressor.__doc__


class Compression:
    """The available compressions; any class with the methods of `Compressor` works as well."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8Compressor
