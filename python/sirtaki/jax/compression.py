"""Compression of arrays for the time they are on the wire."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import jax
import jax.numpy as jnp

from sirtaki.core import wires
from sirtaki.core.reduce_ops import Adasum


class Compressor:
    """Interface of a compression: two static methods, so that the class itself is passed around.

    `compress` may keep in its context whatever `decompress` needs on the same rank. All ranks must
    compress an array to the same dtype and shape, and the compressed form must add up.
    """

    @staticmethod
    def compress(array: jax.Array) -> tuple[jax.Array, Any]:
        """Return the array to send, and a context for `decompress`."""
        raise NotImplementedError

    @staticmethod
    def decompress(array: jax.Array, ctx: Any) -> jax.Array:
        """Return the reduced array in its original form."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends arrays as they are."""

    @staticmethod
    def compress(array: jax.Array) -> tuple[jax.Array, None]:
        """Return the array itself."""
        return array, None

    @staticmethod
    def decompress(array: jax.Array, ctx: Any) -> jax.Array:
        """Return the array itself."""
        return array


class _CastCompressor(Compressor):
    """Sends floating point arrays in a narrower type; leaves all others alone."""

    dtype: ClassVar[Any]

    @classmethod
    def compress(cls, array: jax.Array) -> tuple[jax.Array, Any]:
        """Return the array in the narrower type, and its own type."""
        if jnp.issubdtype(array.dtype, jnp.floating):
            return array.astype(cls.dtype), array.dtype
        return array, array.dtype

    @staticmethod
    def decompress(array: jax.Array, ctx: Any) -> jax.Array:
        """Return the array in its own type."""
        return array.astype(ctx)


class FP16Compressor(_CastCompressor):
    """Sends floating point arrays as float16."""

    dtype = jnp.float16


class BF16Compressor(_CastCompressor):
    """Sends floating point arrays as bfloat16: the range of float32 with 8 bits of precision."""

    dtype = jnp.bfloat16


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
    """Return what the engine is to round float32 arrays to in place of this compression."""
    return wires.NONE if op == Adasum else _WIRES.get(compression, wires.NONE)


def compress_for(
    wire: int, compression: type[Compressor], array: jax.Array
) -> tuple[jax.Array, Any]:
    """Return what to give the engine that rounds to `wire`, and a context for `decompress`."""
    if wire != wires.NONE and array.dtype == jnp.float32:
        return array, array.dtype
    return compression.compress(array)
