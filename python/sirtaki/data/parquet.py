"""The rows of Parquet files, by rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

import numpy as np

from sirtaki.data import plan
from sirtaki.data.row_groups import Group, groups_of, spans, total


class Rows(TypedDict):
    """The position in an epoch: the remaining rows, in the order of the epoch."""

    epoch: int
    left: list[plan.Range]


class ParquetShard:
    """This rank's batches of Parquet files: dictionaries of arrays by column name.

    Ranks divide rows, not files. So all ranks have the same number of batches, whatever the sizes
    of the files, and a rank reads only the row groups that contain its rows. Needs pyarrow. For a
    `DataLoader`, wrap it in `sirtaki.torch.data.IterableShard` and set ``batch_size=None``. In
    elastic training, pass it to the state as you pass a sampler.

    Args:
        paths: A file, a folder, or a list of files, in the same order on all ranks.
        batch_size: Rows of a batch; the last batch of an epoch may have fewer.
        columns: The names of the columns to read; None reads all.
        even: As for `ShardSampler`; with `"join"`, ranks differ by at most one row.
        shuffle: Whether each epoch has a new order of row groups and of the rows in them.
        seed: The seed of the order; the same on all ranks.
        filesystem: A file system of pyarrow; None is that of this machine.
        place: Rank and number of ranks, if different from the world's.

    Raises:
        ValueError: If there are no rows, or `even`, `place` or `batch_size` has an invalid value.
    """

    def __init__(
        self,
        paths: str | Sequence[str],
        batch_size: int,
        columns: Sequence[str] | None = None,
        even: plan.Even = "drop",
        shuffle: bool = True,
        seed: int = 0,
        filesystem: Any = None,
        place: tuple[int, int] | None = None,
    ) -> None:
        plan.require_even(even)
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: expected 1 or more")
        self.batch_size, self.even, self.shuffle, self.seed = batch_size, even, shuffle, seed
        self.epoch = 0
        self._left: list[plan.Range] = []
        self._begun: list[plan.Range] = []
        self._used = 0
        self._columns = None if columns is None else list(columns)
        self._filesystem, self._place = filesystem, place
        self._groups = _groups_of(paths, filesystem)
        if not self._groups:
            raise ValueError(f"there are no rows in {paths!r}")
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, with all rows unused.

        Args:
            epoch: The epoch's number, which with the seed determines the order.
        """
        self.load_state_dict({"epoch": epoch, "left": [(0, total(self._groups))]})

    def record_batch(self, batch_idx: int) -> None:
        """Record that all ranks have used one more batch; call it before ``state.commit()``.

        Only for shards read by the rank itself, without workers of a `DataLoader`.

        Args:
            batch_idx: Unused, as in `ShardSampler`.
        """
        self._used += self.batch_size
        self._left = plan.left(self._begun, self._at[1], self.even, self._used)

    def state_dict(self) -> Rows:
        """Return the position in the epoch."""
        return {"epoch": self.epoch, "left": list(self._left)}

    def load_state_dict(self, state_dict: Rows) -> None:
        """Continue from the position that `state_dict` returned, on any number of ranks."""
        self.epoch, self._left = state_dict["epoch"], list(state_dict["left"])
        self.reset()

    def reset(self) -> None:
        """Divide the rest of the epoch among the ranks of the current world."""
        self._at = plan.place_of(self._place)
        self._begun, self._used = self._left, 0

    def __len__(self) -> int:
        """Return the number of batches of this rank, if it reads them itself."""
        return -(-plan.length(self._cut(0, 1)) // self.batch_size)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.share(0, 1)

    def share(self, worker: int, workers: int) -> Iterator[dict[str, Any]]:
        """Yield the batches of one of the workers of this rank.

        Args:
            worker: The worker's number, from 0.
            workers: The number of workers of this rank; the same on all ranks.

        Returns:
            An iterator of batches: arrays by column name.
        """
        import pyarrow

        waiting: list[Any] = []
        for table in self._tables(self._cut(worker, workers)):
            waiting.append(table)
            while sum(map(len, waiting)) >= self.batch_size:
                whole = pyarrow.concat_tables(waiting)
                yield _arrays(whole.slice(0, self.batch_size))
                waiting = [whole.slice(self.batch_size)]
        if sum(map(len, waiting)):
            yield _arrays(pyarrow.concat_tables(waiting))

    def _cut(self, worker: int, workers: int) -> list[plan.Range]:
        rank, size = self._at
        return plan.cut(self._begun, rank * workers + worker, size * workers, self.even)

    def _tables(self, ranges: Sequence[plan.Range]) -> Iterator[Any]:
        """Yield the rows at these positions of the epoch, at most a row group at a time."""
        import pyarrow.parquet

        order = plan.order(len(self._groups), self.shuffle, (self.seed, self.epoch))
        groups = [self._groups[number] for number in order]
        numbers = dict(zip(groups, map(int, order), strict=True))
        for span in (span for each in ranges for span in spans(groups, *each)):
            group = span.group
            seed = (self.seed, self.epoch, numbers[group])
            rows = plan.order(group.rows, self.shuffle, seed)[span.start : span.stop]
            with pyarrow.parquet.ParquetFile(group.path, filesystem=self._filesystem) as file:
                table = file.read_row_group(group.number, columns=self._columns)
            yield table.take(rows)


def _groups_of(paths: str | Sequence[str], filesystem: Any) -> list[Group]:
    """Return the row groups of files with rows."""
    try:
        import pyarrow.dataset
    except ImportError as error:
        raise ImportError("ParquetShard needs pyarrow: pip install pyarrow") from error

    source = paths if isinstance(paths, str) else list(paths)
    files = pyarrow.dataset.dataset(source, format="parquet", filesystem=filesystem).files
    return groups_of(files, filesystem)


def _arrays(table: Any) -> dict[str, Any]:
    """Return columns as writable arrays; lists of equal length become rows."""
    return {name: _array(table.column(name).combine_chunks()) for name in table.column_names}


def _array(column: Any) -> Any:
    import pyarrow.types as kinds

    kind = column.type
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        lengths = set(column.value_lengths().to_pylist())
        if len(lengths) == 1 and None not in lengths:
            return _array(column.flatten()).reshape(len(column), -1)
    return np.array(column.to_numpy(zero_copy_only=False))
