"""Which rows of a Parquet dataset each rank reads, as numbers alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sirtaki.data.row_groups import Group, Span, spans, total


def spans_of(groups: Sequence[Group], rank: int, size: int) -> list[Span]:
    """Return the rows of a rank: ranks have equally many, but for one, and together all.

    A rank reads row groups of its own; it shares at most its first and its last with neighbours.
    """
    rows = total(groups)
    return list(spans(groups, rows * rank // size, rows * (rank + 1) // size))


def train_steps(rows: int, batch_size: int, size: int, given: int | None = None) -> int:
    """Return how many batches each rank trains on in an epoch; all ranks equally many."""
    if given is not None:
        return given
    return max(1, rows // (batch_size * size))


def validation_steps(rows: int, batch_size: int, given: int | None = None) -> int:
    """Return how many batches a rank with that many rows validates on, the last one smaller."""
    steps = -(-rows // batch_size)
    return steps if given is None else min(given, steps)


def shuffled(of_rank: Sequence[Span], seed: int, epoch: int) -> list[Span]:
    """Return the spans in the order of an epoch."""
    order = list(of_rank)
    random.Random(f"{seed}:{epoch}").shuffle(order)
    return order
