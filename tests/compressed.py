"""What compressions make of gradients, in NumPy: oracles that play all ranks."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
# Numbers that share a scale: of int8 and int4, and of top-k at most.
BLOCK = 60
WIDTH = 4096


def as_int8(blocks: Floats) -> Floats:
    """In steps of the largest's 127th."""
    most = np.abs(blocks).max(axis=1, keepdims=True, initial=0)
    steps = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most > 0)
    return np.rint(blocks * steps) * (most / np.float32(127))


def as_int4(blocks: Floats) -> Floats:
    """In steps of the largest's 8th, rounded to a bfloat16; the largest has -8, and 7 is most."""
    highest, lowest = blocks.max(axis=1, keepdims=True), blocks.min(axis=1, keepdims=True)
    scale = np.where(highest >= -lowest, highest, lowest) / np.float32(-8)
    bits = scale.view(np.uint32)
    scale = ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    return np.rint(np.minimum(blocks * inverse, np.float32(7))) * scale


def sent(numbers: Floats, codec: str = "int8") -> Floats:
    """What numbers are after they were encoded block by block."""
    flat = numbers.reshape(-1)
    blocks = np.zeros((-(-flat.size // BLOCK), BLOCK), np.float32)
    blocks.reshape(-1)[: flat.size] = flat
    seen = {"int8": as_int8, "int4": as_int4}[codec](blocks)
    return seen.reshape(-1)[: flat.size].reshape(numbers.shape)


def given(rank: int, step: int, shape: tuple[int, ...]) -> Array:
    random = np.random.default_rng((rank, step, *shape))
    return random.standard_normal(shape) * 10.0 ** random.integers(-1, 2, shape)


def approximations(name: str, shape: tuple[int, ...], rank: int, ranks: int) -> Iterator[Array]:
    """What PowerSGD makes of each step's gradients of one parameter, in float64."""
    rows, columns = shape[0], int(np.prod(shape[1:]))
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    factor = torch.randn(columns, rank, generator=generator).double().numpy()
    lost = [np.zeros((rows, columns)) for _ in range(ranks)]
    for step in range(99):
        wholes = [given(r, step, shape).reshape(rows, columns) + lost[r] for r in range(ranks)]
        left, _ = np.linalg.qr(np.mean([whole @ factor for whole in wholes], axis=0))
        lost = [whole - left @ (left.T @ whole) for whole in wholes]
        factor = np.mean(wholes, axis=0).T @ left
        yield (left @ factor.T).reshape(shape)


def largest(row: Array, density: float) -> Array:
    """What top-k sends of a row of float32."""
    width = min(WIDTH, row.size)
    count = max(1, round(density * width))
    blocks = np.zeros((-(-row.size // width), width), np.float32)
    blocks.reshape(-1)[: row.size] = row
    result = np.zeros_like(blocks)
    for block, found in zip(blocks, result, strict=True):
        places = np.argsort(-np.abs(block), kind="stable")[:count]
        scale = np.abs(block).max() / np.float32(7)
        if scale:
            found[places] = np.rint(block[places] * (np.float32(1) / scale)) * scale
    return result.reshape(-1)[: row.size]


def sums_of_largest(
    shapes: list[tuple[int, ...]], density: float, ranks: int
) -> Iterator[list[Array]]:
    """The averages that top-k makes of parameters that are sent together, step by step."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    lost = [np.zeros(sum(sizes), np.float32) for _ in range(ranks)]
    for step in range(99):
        mean = np.zeros(sum(sizes), np.float32)
        for r in range(ranks):
            rows = [given(r, step, shape).astype(np.float32).reshape(-1) for shape in shapes]
            whole = lost[r] + np.concatenate(rows)
            mean += largest(whole, density)
            lost[r] = whole - largest(whole, density)
        parts = np.split(mean * np.float32(1 / ranks), np.cumsum(sizes)[:-1])
        yield [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
