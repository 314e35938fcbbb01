"""Streams of data, by rank and by worker of a `DataLoader`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from sirtaki.data import plan


class IterableShard(torch.utils.data.IterableDataset[Any]):
    """The part of a stream for this rank, or for this worker of its `DataLoader`.

    A `sirtaki.data.ParquetShard` reads only its own part. Any other stream is read completely by
    every worker, which keeps every n-th item, so put costly steps after this one. All ranks must
    have the same number of workers.

    Args:
        stream: Yields the same items in the same order on all ranks.
        even: As for `sirtaki.data.ShardSampler`; ignored for a `ParquetShard`.
        place: Rank and number of ranks, if different from the world's.

    Raises:
        ValueError: If `even` or `place` has an invalid value.
    """

    def __init__(
        self,
        stream: Iterable[Any],
        even: plan.Even = "drop",
        place: tuple[int, int] | None = None,
    ) -> None:
        plan.require_even(even)
        self._stream, self._even, self._place = stream, even, place
        self.reset()

    def reset(self) -> None:
        """Use the shard of the current world; call it before workers start."""
        # Computed here, because workers that are not forked are in no world.
        self._at = plan.place_of(self._place)
        if hasattr(self._stream, "reset"):
            self._stream.reset()

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        if hasattr(self._stream, "share"):
            yield from self._stream.share(worker, workers)
            return
        rank, size = self._at
        yield from plan.rounds(self._stream, rank * workers + worker, size * workers, self._even)
