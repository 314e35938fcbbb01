"""The shared heap of this process: large blocks of memory that the host's other ranks can map."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sirtaki.core.config import Config

LIBRARY = Path(__file__).parents[2] / "libsirtaki_heap.so"
_MIB = 1 << 20


def load(config: Config) -> None:
    """Let this process have a shared heap, preloaded or not, unless the user does not want one."""
    from sirtaki import _core

    if config.shared_heap:
        _core.load_heap(str(LIBRARY))


@functools.cache
def _loaded_once() -> None:
    # Here, because the launcher only wants to know where the library is.
    from sirtaki.core.config import Config

    load(Config.from_env())


def block(bytes: int) -> Any:
    """Return so many bytes of it, an array that frees them.

    None: nothing is asked for, there is no heap, or it has no room.
    """
    from sirtaki import _core

    _loaded_once()
    return _core.heap_allocate(bytes) if bytes else None


def checked_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return the shape of an array as a tuple.

    Raises:
        TypeError: It is neither a whole number nor a sequence of them.
        ValueError: One of them is negative.
    """
    try:
        sizes = (index(shape),) if not isinstance(shape, Sequence) else tuple(map(index, shape))
    except TypeError:
        raise TypeError(f"a shape is a whole number or several, not {shape!r}") from None
    if any(size < 0 for size in sizes):
        raise ValueError(f"the shape {sizes} has a negative size")
    return sizes


def bytes_of(shape: tuple[int, ...], each: int) -> int:
    """Return how many bytes an array takes whose elements have `each`."""
    return prod(shape) * each


def describe(config: Config) -> str:
    """Say whether this process has one, why not, and what it holds."""
    from sirtaki import _core

    if not config.shared_heap:
        return "none; SIRTAKI_SHARED_HEAP=0"
    load(config)
    line = _core.heap_line().partition(": ")[2]
    figures = _core.heap_figures()
    if not figures["span"]:
        return line
    pages = "huge pages" if figures["huge_pages"] else "no huge pages"
    return (
        f"{line}; {pages}; {figures['live_bytes'] // _MIB} MiB in {figures['live_allocations']} "
        f"blocks, {figures['kept_bytes'] // _MIB} MiB kept, "
        f"{figures['held_bytes'] // _MIB} MiB held for forks, "
        f"{figures['returned_bytes'] // _MIB} MiB given back, {figures['fallbacks']} had no room"
    )
