"""Compression of tensors for the time they are on the wire."""

from __future__ import annotations

from typing import Any, ClassVar

import tensorflow as tf


class Compressor:
    """Interface of a compression: two static methods, so that the class itself is passed around.

    All ranks must compress a tensor to the same dtype and shape, and the compressed form must add
    up.
    """

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor to send, and a context for `decompress`."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the reduced tensor in its original form."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, None]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor itself."""
        return tensor


class _CastCompressor(Compressor):
    """Sends floating point tensors in a narrower type; leaves all others alone."""

    dtype: ClassVar[Any]

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """Return the tensor in the narrower type, and its own type."""
        own = tensor.dtype
        return (tf.cast(tensor, cls.dtype) if own.is_floating else tensor), own

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor in its own type."""
        return tf.cast(tensor, ctx)


class FP16Compressor(_CastCompressor):
    """Sends floating point tensors as float16."""

    dtype = tf.float16


class BF16Compressor(_CastCompressor):
    """Sends floating point tensors as bfloat16: the range of float32 with 8 bits of precision."""

    dtype = tf.bfloat16


class Compression:
    """The compressions there are; any class with the methods of `Compressor` will do as well."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
