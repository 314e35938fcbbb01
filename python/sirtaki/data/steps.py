"""Equal numbers of steps on all ranks, for data of unknown length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Literal

import numpy as np

from sirtaki.core.operations import reduce_ops
from sirtaki.core.world import state
from sirtaki.numpy import ops


def equal_steps(
    batches: Iterable[Any],
    even: Literal["drop", "pad"] = "drop",
    look_ahead: int = 8,
    name: str = "equal_steps",
) -> Iterator[Any]:
    """Yield the same number of batches on all ranks.

    All ranks call it together, and their loops end together. One allreduce of two numbers for every
    `look_ahead` batches determines the end, so that this number of batches is kept in memory.

    Args:
        batches: The batches of this rank: a loader, a dataset or a generator.
        even: With `"drop"` the loops end when the first rank has no batch left, with `"pad"` when
            the last one has none; then the other ranks repeat their last batch.
        look_ahead: The batches that a rank reads before each allreduce; the same on all ranks.
        name: The name of the allreduce; concurrent loops need different names.

    Returns:
        An iterator of the batches.

    Raises:
        ValueError: If an argument has an invalid value, or a rank has no batch to repeat.
    """
    if even not in ("drop", "pad"):
        raise ValueError(f"even={even!r}: expected 'drop' or 'pad'; with join, nothing is needed")
    if look_ahead < 1:
        raise ValueError(f"look_ahead={look_ahead}: expected 1 or more")
    iterator = iter(batches)
    last: list[Any] = []
    while True:
        ready = list(islice(iterator, look_ahead))
        fewest, most = _extremes(len(ready), f"sirtaki.data.{name}")
        last = ready[-1:] or last
        if even == "drop":
            yield from ready[:fewest]
        elif fewest == 0 < most and not last:
            raise ValueError(f"{_who()} has no batch at all, so there is none that it can repeat")
        else:
            yield from ready + last * (most - len(ready))
        if (fewest if even == "drop" else most) < look_ahead:
            return


def _extremes(number: int, name: str) -> tuple[int, int]:
    """Return the minimum and the maximum of all ranks' numbers."""
    if not state.is_initialized():
        return number, number
    found = ops.allreduce(np.array([number, -number]), op=reduce_ops.Min, name=name)
    return int(found[0]), -int(found[1])


def _who() -> str:
    return f"rank {state.rank()}" if state.is_initialized() else "this process"
