"""Ways to sum a float32 array over all ranks in place, and the copy that bounds them."""

from __future__ import annotations

import ctypes
import importlib.util
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sirtaki.observe.machine import last_level_cache_bytes

Array = NDArray[np.float32]
# Takes the number of repeats; returns the seconds of each.
Run = Callable[[int], list[float]]
# Called with the array, once per size.
Contender = Callable[[Array], Run]

COPY = "memcpy"
_SMALLEST_POOL_BYTES = 128 << 20
_SLOT_BYTES = 4096


def timed(call: Callable[[], object]) -> Run:
    """Return a function that times each of several calls."""

    def run(repeats: int) -> list[float]:
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return seconds

    return run


def own_contenders() -> dict[str, Contender]:
    """Return Sirtaki's levels by name, from the core to PyTorch if that is installed."""
    levels: dict[str, Contender] = {"core": _core, "numpy": _numpy}
    if importlib.util.find_spec("torch") is not None:
        levels["torch"] = _torch
    return levels


def _core(data: Array) -> Run:
    from sirtaki.core.world.state import current_world

    engine = current_world().engine
    return lambda repeats: engine.time_allreduce(data.ctypes.data, data.size, repeats)


def _numpy(data: Array) -> Run:
    import sirtaki

    return timed(lambda: sirtaki.allreduce_(data, op=sirtaki.Sum))


def _torch(data: Array) -> Run:
    import torch

    import sirtaki.torch as hvd

    torch.set_num_threads(1)
    tensor = torch.from_numpy(data)
    return timed(lambda: hvd.allreduce_(tensor, op=hvd.Sum))


class Copy:
    """Copies the same number of bytes between buffers that no cache holds: the limit of streaming.

    largest: bytes of the largest array to copy.
    """

    def __init__(self, largest: int) -> None:
        self._bytes = max(_SMALLEST_POOL_BYTES, 4 * last_level_cache_bytes(), largest)
        self._source = np.ones(self._bytes, np.uint8)
        self._target = np.ones(self._bytes, np.uint8)

    def __call__(self, data: Array) -> Run:
        """Time copies of the size of `data`, each between different places."""
        size = data.nbytes
        stride = -(-size // _SLOT_BYTES) * _SLOT_BYTES
        end = self._bytes - size
        source, target = self._source.ctypes.data, self._target.ctypes.data
        offset = 0

        def copy() -> None:
            nonlocal offset
            ctypes.memmove(target + offset, source + offset, size)
            offset = offset + stride if offset + stride <= end else 0

        return timed(copy)
