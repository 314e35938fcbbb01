"""What every framework's collectives must give: one table for all of them, in NumPy's terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import sirtaki as hvd

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Case:
    """A collective at one rank: its inputs, its arguments, and what comes out.

    Attributes:
        verb: The function's name; of `grouped_` ones all arrays are given at once.
        inputs: The arrays of a rank among so many.
        expected: The results at a rank among so many.
        options: Keyword arguments.
        same_shapes: Whether all ranks' arrays have the same shapes and give them.
    """

    verb: str
    inputs: Callable[[int, int], Arrays]
    expected: Callable[[int, int], Arrays]
    options: dict[str, Any] = field(default_factory=dict)
    same_shapes: bool = True

    def __call__(self, rank: int, size: int) -> tuple[Arrays, Arrays]:
        return self.inputs(rank, size), self.expected(rank, size)


FLOATS = ("float16", "bfloat16", "float32", "float64")
UNSIGNED = ("uint16", "uint32", "uint64")
REDUCED = (*FLOATS, "uint8", "int8", "int16", "int32", "int64", *UNSIGNED)
COMPLEX = ("complex64", "complex128")
MOVED = (*REDUCED, "bool", *COMPLEX)


def dtype_of(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def values(rank: int, dtype: str, shape: tuple[int, ...] = (4, 3)) -> np.ndarray:
    """Small whole numbers, which every type holds and every sum keeps exactly."""
    count = int(np.prod(shape))
    numbers = (np.arange(count).reshape(shape) + rank) % 5
    return (numbers * (1 - 2j) if dtype in COMPLEX else numbers).astype(dtype_of(dtype))


def every(function: Callable[[int], np.ndarray], size: int) -> Arrays:
    return [function(rank) for rank in range(size)]


def _allreduce(dtype: str, op: int, combine: Callable[..., Any], **options: Any) -> Case:
    def expected(rank: int, size: int) -> Arrays:
        exact = "complex128" if dtype in COMPLEX else "float64"
        parts = np.stack(every(lambda r: values(r, dtype).astype(exact), size))
        return [combine(parts).astype(dtype_of(dtype))]

    return Case("allreduce", lambda r, n: [values(r, dtype)], expected, {"op": op, **options})


def _sum(parts: np.ndarray) -> np.ndarray:
    return parts.sum(0)


def _gathered(dtype: str) -> Case:
    return Case(
        "allgather",
        lambda r, n: [values(r, dtype)],
        lambda r, n: [np.concatenate(every(lambda o: values(o, dtype), n))],
    )


def _uneven_gathered() -> Case:
    def rows(rank: int) -> np.ndarray:
        return values(rank, "float32", (rank, 2))  # rank 0 has none

    return Case(
        "allgather",
        lambda r, n: [rows(r)],
        lambda r, n: [np.concatenate(every(rows, n))],
        same_shapes=False,
    )


def _broadcast(dtype: str) -> Case:
    return Case(
        "broadcast",
        lambda r, n: [values(r, dtype)],
        lambda r, n: [values(n - 1, dtype)],
        {"root_rank": -1},
    )


def _scattered(op: int, rows: int, combine: Callable[..., Any] = _sum) -> Case:
    def expected(rank: int, size: int) -> Arrays:
        total = combine(np.stack(every(lambda r: values(r, "float64", (rows, 2)), size)))
        return [np.array_split(total, size)[rank]]

    return Case(
        "reducescatter",
        lambda r, n: [values(r, "float64", (rows, 2))],
        expected,
        {"op": op},
        same_shapes=False,  # ranks get different numbers of rows where they do not divide
    )


def _exchanged(dtype: str) -> Case:
    def block(source: int, target: int) -> np.ndarray:
        return values(10 * source + target, dtype, (2, 2))

    return Case(
        "alltoall",
        lambda r, n: [np.concatenate(every(lambda t: block(r, t), n))],
        lambda r, n: [np.concatenate(every(lambda s: block(s, r), n))],
    )


def _group(verb: str, expected: Callable[[int, int], Arrays]) -> Case:
    def inputs(rank: int, size: int) -> Arrays:
        return [values(rank, "float32"), values(rank, "int32", (2,)), values(rank, "float32", (1,))]

    return Case(verb, inputs, expected, {"op": hvd.Sum} if verb == "grouped_allreduce" else {})


def _sums_of_group(rank: int, size: int) -> Arrays:
    return [
        _sum(np.stack(every(lambda r: values(r, "float32"), size))),
        _sum(np.stack(every(lambda r: values(r, "int32", (2,)), size))).astype("int32"),
        _sum(np.stack(every(lambda r: values(r, "float32", (1,)), size))),
    ]


def _rows_of_group(rank: int, size: int) -> Arrays:
    return [
        np.concatenate(every(lambda r: values(r, "float32"), size)),
        np.concatenate(every(lambda r: values(r, "int32", (2,)), size)),
        np.concatenate(every(lambda r: values(r, "float32", (1,)), size)),
    ]


CASES: dict[str, Case] = {
    **{f"sum {dtype}": _allreduce(dtype, hvd.Sum, _sum) for dtype in (*REDUCED, *COMPLEX)},
    **{
        f"average {dtype}": _allreduce(dtype, hvd.Average, lambda parts: parts.mean(0))
        for dtype in ("float32", "float64", "complex64")
    },
    "min": _allreduce("float32", hvd.Min, lambda parts: parts.min(0)),
    "max": _allreduce("int64", hvd.Max, lambda parts: parts.max(0)),
    "max uint16": _allreduce("uint16", hvd.Max, lambda parts: parts.max(0)),
    "product": _allreduce("float64", hvd.Product, lambda parts: parts.prod(0)),
    "product complex64": _allreduce("complex64", hvd.Product, lambda parts: parts.prod(0)),
    "scaled": _allreduce(
        "float32",
        hvd.Sum,
        lambda parts: parts.sum(0) * 2.0,
        prescale_factor=0.5,
        postscale_factor=4.0,
    ),
    "sum of a scalar": Case(
        "allreduce",
        lambda r, n: [np.float32(r + 1).reshape(())],
        lambda r, n: [np.float32(n * (n + 1) / 2).reshape(())],
        {"op": hvd.Sum},
    ),
    "sum of nothing": Case(
        "allreduce",
        lambda r, n: [np.zeros((0, 3), np.float32)],
        lambda r, n: [np.zeros((0, 3), np.float32)],
        {"op": hvd.Sum},
    ),
    **{f"allgather {dtype}": _gathered(dtype) for dtype in MOVED},
    "allgather of different rows": _uneven_gathered(),
    **{f"broadcast {dtype}": _broadcast(dtype) for dtype in MOVED},
    **{f"alltoall {dtype}": _exchanged(dtype) for dtype in ("float32", "int64", "complex64")},
    "reducescatter": _scattered(hvd.Sum, 12),
    "reducescatter average": _scattered(hvd.Average, 12, lambda parts: parts.mean(0)),
    "reducescatter min": _scattered(hvd.Min, 12, lambda parts: parts.min(0)),
    "reducescatter max": _scattered(hvd.Max, 12, lambda parts: parts.max(0)),
    "reducescatter product": _scattered(hvd.Product, 12, lambda parts: parts.prod(0)),
    "reducescatter of uneven rows": _scattered(hvd.Sum, 5),
    "grouped allreduce of two types": _group("grouped_allreduce", _sums_of_group),
    "grouped allgather of two types": _group("grouped_allgather", _rows_of_group),
}
