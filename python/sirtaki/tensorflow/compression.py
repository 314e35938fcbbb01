"""Compression of tensors for the time they are on the wire."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import tensorflow as tf

from sirtaki.core import wires
from sirtaki.core.reduce_ops import Adasum


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


# Exactly these: what a class derived from them does is its own.
_WIRES: Final[dict[type[Compressor], int]] = {
    FP16Compressor: wires.F16,
    BF16Compressor: wires.BF16,
}


def wire_of(compression: type[Compressor], op: int) -> int:
    """Return what the engine is to round float32 tensors to in place of this compression."""
    return wires.NONE if op == Adasum else _WIRES.get(compression, wires.NONE)


def compress_for(wire: int, compression: type[Compressor], tensor: Any) -> tuple[Any, Any]:
    """Return what to give the engine that rounds to `wire`, and a context for `decompress`."""
    if wire != wires.NONE and tensor.dtype == tf.float32:
        return tensor, tensor.dtype
    return compression.compress(tensor)
