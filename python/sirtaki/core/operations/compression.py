"""Compression of tensors for transmission, for every framework with a cast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from sirtaki.core.operations import codes


class Compressor:
    """Interface of a compression: two static methods, so that the class itself is passed.

    `compress` may return any context that `decompress` needs on the same rank. All ranks must
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
    """Sends floating-point tensors in a narrower type; other tensors are unchanged.

    Float32 allreduces in CPU memory need no cast: the engine rounds the data that it sends, and
    accumulates in float32.
    """

    # The framework's narrower type, and float32.
    dtype: ClassVar[Any]
    float32: ClassVar[Any]

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        """Return whether a tensor has floating-point elements."""
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """Return a tensor converted to another type."""
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """Return the tensor in the narrower type, and its original type."""
        narrow = cls.cast(tensor, cls.dtype) if cls.is_floating(tensor) else tensor
        return narrow, tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """Return the tensor in its original type."""
        return cls.cast(tensor, ctx)


class BlockCompressor(CastCompressor):
    """Sends floating-point tensors in blocks, which the engine encodes.

    It applies only to allreduces in CPU memory with Sum and Average: the engine encodes what it
    sends, and accumulates in float32. Tensors that are not floating-point are unchanged.
    PyTorch's optimizer adds this loss of a gradient to the next one; others do not.
    """

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """Return a tensor that is not floating-point; the engine encodes all others."""
        if cls.is_floating(tensor):
            raise ValueError(
                f"{cls.__qualname__} is for allreduce with Sum or Average, of tensors in CPU "
                "memory; choose Compression.bf16, fp16 or none for this one"
            )
        return tensor, tensor.dtype


_CODECS: dict[type[Compressor], int] = {}


class Compressions:
    """Base of `Compression`, whose classes `derive` makes."""

    none = NoneCompressor
    fp16 = CastCompressor
    bf16 = CastCompressor
    int8 = BlockCompressor
    int4 = BlockCompressor


def derive(compressions: type[Compressions], cast: type[CastCompressor], framework: Any) -> None:
    """Give `Compression` of a framework, which has the dtypes, a class for each codec."""
    for number, (codec, form) in enumerate(codes.FORMATS.items()):
        if number == codes.NO_CODEC:
            continue
        name = {"float16": "fp16", "bfloat16": "bf16"}.get(codec, codec)
        base = getattr(compressions, name, BlockCompressor)
        _, _, rest = str(base.__doc__).partition("\n")
        members = {
            "__module__": compressions.__module__,
            "__qualname__": f"{compressions.__qualname__}.{name}",
            "__doc__": f"Sends floating-point tensors as {form}.\n{rest}",
            "dtype": getattr(framework, codec, None),
        }
        made = type(name, (cast, base), members)
        setattr(compressions, name, made)
        _CODECS[made] = number


def feeds_back(compression: type[Compressor]) -> bool:
    """Return whether PyTorch's optimizer adds the loss of this compression to later gradients."""
    return compression in _CODECS and issubclass(compression, BlockCompressor)


def codec_of(compression: type[Compressor], op: int) -> int:
    """Return the engine's codec of float32 for a compression and a reduction."""
    codec = _CODECS.get(compression, codes.NO_CODEC)
    return codec if (codec, op) in codes.CODED_REDUCTIONS else codes.NO_CODEC


def compress_all(
    codec: int, compression: Any, tensors: Iterable[Any]
) -> tuple[list[Any], list[Any]]:
    """Return the results of `compress_for` for several tensors, and their contexts."""
    if compression is NoneCompressor:
        unchanged = list(tensors)
        return unchanged, [None] * len(unchanged)
    pairs = [compress_for(codec, compression, tensor) for tensor in tensors]
    return [sent for sent, _ in pairs], [context for _, context in pairs]


def decompress_all(compression: Any, results: Iterable[Any], contexts: Sequence[Any]) -> list[Any]:
    """Return reduced tensors in their original form."""
    if compression is NoneCompressor:
        return list(results)
    return [
        compression.decompress(result, context)
        for result, context in zip(results, contexts, strict=True)
    ]


def compress_for(codec: int, compression: Any, tensor: Any) -> tuple[Any, Any]:
    """Return the tensor for the engine, which encodes for `codec`, and a context for `decompress`.

    Args:
        codec: None, or the codec of `compression`, which is then a `CastCompressor`.
        compression: The user's choice.
        tensor: A tensor of the framework.
    """
    if codec == codes.NO_CODEC:
        compressed: tuple[Any, Any] = compression.compress(tensor)
        return compressed
    if tensor.dtype == compression.float32:
        return tensor, tensor.dtype
    if issubclass(compression, BlockCompressor) and compression.is_floating(tensor):
        return compression.cast(tensor, compression.float32), tensor.dtype
    narrow: tuple[Any, Any] = compression.compress(tensor)
    return narrow
