"""Compression of tensors for transmission."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch.compiler import is_compiling

from sirtaki.core.operations import codes
from sirtaki.core.operations import compression as core
from sirtaki.core.operations.compression import (
    CastCompressor,
    Compressions,
    Compressor,
    derive,
    feeds_back,
)
from sirtaki.torch.device.layer import devices

__all__ = ["Compression", "Compressor", "TransformingCompressor", "codec_of", "feeds_back"]


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


class TransformingCompressor(Compressor):
    """Transforms gradients, with collectives of its own; see `Compression.powersgd` and `topk`."""

    # The transformation's name, and its argument.
    kind: ClassVar[str]
    argument: ClassVar[Any]

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """Raise ValueError: what it sends is not a tensor that is reduced."""
        raise ValueError(
            f"{cls.__qualname__} is for hvd.DistributedOptimizer, and topk for hvd.DiLoCo and "
            "hvd.LocalSGD; choose Compression.int4, int8, bf16, fp16 or none for this one"
        )

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor itself, whose contents the transformation has replaced."""
        return tensor


class Compression(Compressions):
    """The available compressions; any class with the methods of `Compressor` works as well."""

    @staticmethod
    def powersgd(rank: int = 2) -> type[Compressor]:
        """Return the compression that sends two thin matrices for each matrix of gradients.

        It is for `DistributedOptimizer` with Average or Sum, which adds what is lost of a gradient
        to the next one. Gradients with one dimension, and others that would not become smaller, are
        sent as they are. Vogels et al., "PowerSGD" (arXiv 1905.13727).

        Args:
            rank: The columns of the two matrices; the same on all ranks.

        Raises:
            ValueError: `rank` is not a positive integer.
        """
        if not isinstance(rank, int) or rank < 1:
            raise ValueError(
                f"Compression.powersgd: rank={rank!r} must be an integer of at least 1"
            )

        return _transforming("powersgd", rank, f"rank={rank}")

    @staticmethod
    def topk(density: float = 1 / 64) -> type[Compressor]:
        """Return the compression that sends the largest numbers of each block of 4,096.

        A sent number takes two bytes, and all ranks receive those of each. It is for
        `DistributedOptimizer` with Average or Sum, `DiLoCo` and `LocalSGD`, which add what is lost
        to the next gradient or change. Blocks and feedback are those of "SparseLoCo" (arXiv
        2508.15706).

        Args:
            density: Which share of the numbers is sent; the same on all ranks.

        Raises:
            ValueError: `density` is not above 0 and at most 1.
        """
        if not 0 < density <= 1:
            raise ValueError(f"Compression.topk: density={density} must be above 0 and at most 1")

        return _transforming("topk", density, f"density={density:g}")


def _transforming(kind: str, argument: Any, shown: str) -> type[Compressor]:
    members = {
        "__module__": __name__,
        "__qualname__": f"{Compression.__qualname__}.{kind}({shown})",
        "kind": kind,
        "argument": argument,
    }
    return type(kind, (TransformingCompressor,), members)


derive(Compression, _Cast, torch)
FP16Compressor = Compression.fp16
NoneCompressor = Compression.none


def codec_of(compression: type[Compressor], tensors: Sequence[torch.Tensor], op: int) -> int:
    """Return the engine's codec of float32 tensors for this compression."""
    codec = core.codec_of(compression, op)
    if codec == codes.NO_CODEC:
        return codes.NO_CODEC
    served = is_compiling() or devices["cpu"] is None
    return codec if served and all(tensor.is_cpu for tensor in tensors) else codes.NO_CODEC
