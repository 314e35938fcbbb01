"""Compression of tensors that are sent, for every framework that supplies a cast."""

from __future__ import annotations

from typing import Any, ClassVar

from sirtaki.core.operations import codecs


class Compressor:
    """Interface of a compression: two static methods, so that the class itself is passed around.

    `compress` may keep in its context whatever `decompress` needs on the same rank. All ranks must
    compress a tensor to the same dtype and shape, and the compressed form must add up.
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
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor itself."""
        return tensor


class CastCompressor(Compressor):
    """Sends floating point tensors in a narrower type; leaves all others alone.

    An allreduce of float32 in CPU memory needs no cast: there the engine rounds what it sends, and
    sums it up in float32.
    """

    # Of a framework: the type that is sent, and float32.
    dtype: ClassVar[Any]
    float32: ClassVar[Any]

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        """Tell whether a tensor has floating point numbers."""
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """Return a tensor in another type."""
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """Return the tensor in the narrower type, and its own type."""
        narrow = cls.cast(tensor, cls.dtype) if cls.is_floating(tensor) else tensor
        return narrow, tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """Return the tensor in its own type."""
        return cls.cast(tensor, ctx)


class BlockCompressor(CastCompressor):
    """Sends floating point tensors as whole numbers up to 127 and a scale for every 60 of them.

    Only allreduce with Sum and Average does, of tensors in CPU memory: the engine encodes what it
    sends, and adds it up in float32. Other tensors than floating point ones are left alone.
    PyTorch's optimizer adds what this loses of a gradient to the next one; others do not.
    """

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """Return a tensor that is not of floating point: the others are the engine's."""
        if cls.is_floating(tensor):
            raise ValueError(
                "Compression.int8 is for allreduce with Sum or Average, of tensors in CPU memory; "
                "choose Compression.bf16, fp16 or none for this one"
            )
        return tensor, tensor.dtype


def compress_for(codec: int, compression: Any, tensor: Any) -> tuple[Any, Any]:
    """Return what to give the engine that encodes for `codec`, and a context for `decompress`.

    Args:
        codec: None, or the one of `compression`, which is then a `CastCompressor`.
        compression: What the user asked for.
        tensor: A framework's.
    """
    if codec == codecs.NONE:
        compressed: tuple[Any, Any] = compression.compress(tensor)
        return compressed
    if tensor.dtype == compression.float32:
        return tensor, tensor.dtype
    if issubclass(compression, BlockCompressor) and compression.is_floating(tensor):
        return compression.cast(tensor, compression.float32), tensor.dtype
    narrow: tuple[Any, Any] = compression.compress(tensor)
    return narrow
