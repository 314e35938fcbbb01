"""Compression of tensors for transmission."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sirtaki.core.operations.compression import CastCompressor, Compressions, Compressor, derive

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


class Compression(Compressions):
    """The available compressions; any class with the methods of `Compressor` works as well."""


derive(Compression, _Cast, tf)
FP16Compressor = Compression.fp16
NoneCompressor = Compression.none
