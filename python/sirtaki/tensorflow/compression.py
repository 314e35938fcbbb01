"""Compression of tensors for transmission."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sirtaki.core.operations.compression import (
    BlockCompressor,
    CastCompressor,
    Compressor,
    NoneCompressor,
)

__all__ = ["Compression", "Compressor"]


class _Cast(CastCompressor):
    float32 = tf.float32

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        """See `CastCompressor`."""
        return bool(tensor.dtype.is_floating)

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """See `CastCompressor`."""
        return tf.cast(tensor, dtype)


class FP16Compressor(_Cast, codec="float16"):
    """Sends floating-point tensors as float16."""

    dtype = tf.float16


class BF16Compressor(_Cast, codec="bfloat16"):
    """Sends floating-point tensors as bfloat16: the range of float32 with 8 bits of precision."""

    dtype = tf.bfloat16


class Int8Compressor(_Cast, BlockCompressor, codec="int8"):
    __doc__ = BlockCompressor.__doc__


class Compression:
    """The available compressions; any class with the methods of `Compressor` works as well."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8Compressor
