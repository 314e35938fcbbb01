"""Parquet data in a store, and the batches of a rank, read by pyarrow alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sirtaki.data.row_groups import Group, Span, groups_of, spans, total

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

Batch = dict[str, Any]


def files(fs: FileSystem, path: str) -> list[str]:
    """Return the Parquet files below a folder, sorted by name."""
    from pyarrow.fs import FileSelector, FileType

    found = fs.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
    return sorted(
        each.path for each in found if each.type == FileType.File and each.path.endswith(".parquet")
    )


def groups(fs: FileSystem, path: str) -> list[Group]:
    """Return the row groups of a dataset.

    Raises:
        ValueError: There are no rows.
    """
    found = groups_of(files(fs, path), fs)
    if not found:
        raise ValueError(f"No rows found in training dataset: {path}")
    return found


def column_names(fs: FileSystem, path: str) -> list[str]:
    """Return the columns of a dataset."""
    from pyarrow import parquet

    return list(parquet.read_schema(files(fs, path)[0], filesystem=fs).names)


def as_array(column: Any) -> np.ndarray[Any, Any]:
    """Return an Arrow column as a NumPy array, with one more dimension for lists.

    Doubles and decimals become float32, the type of models. Raises ValueError for missing values
    and for lists of different lengths.
    """
    from pyarrow import types

    if column.null_count:
        raise ValueError(f"{column.null_count} values are missing: fill them or drop their rows")
    kind, rows, shape = column.type, len(column), []
    while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        below = column.combine_chunks() if hasattr(column, "combine_chunks") else column
        column = below.flatten()
        count = len(below)
        length = len(column) // count if count else 0
        if not types.is_fixed_size_list(kind) and count:
            lengths = np.asarray(below.value_lengths())
            if (lengths != length).any():
                raise ValueError(
                    f"its lists have from {lengths.min()} to {lengths.max()} elements: all rows "
                    "must have equally many"
                )
        shape.append(length)
        kind = column.type
    if types.is_decimal(kind) or types.is_boolean(kind):
        column = column.cast("float32")
    array = np.array(column.to_numpy(zero_copy_only=False) if rows else [])
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    return array.reshape(rows, *shape)


@dataclass
class Reader:
    """The batches of one rank.

    Attributes:
        fs: The file system of the files.
        spans: The rank's rows.
        columns: The columns to read.
        batch_size: The rows in a batch.
        seed: The seed of the epochs' order; None: the order of the files.
        cached: Whether rows stay in memory after the first read.
        transform: Transforms the data, a pandas DataFrame; None: no transformation.
    """

    fs: FileSystem
    spans: Sequence[Span]
    columns: Sequence[str]
    batch_size: int
    seed: int | None = None
    cached: bool = False
    transform: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        self._kept: dict[Span, Batch] = {}
        self._files: dict[str, Any] = {}

    @property
    def rows(self) -> int:
        """The number of the rank's rows."""
        return sum(span.rows for span in self.spans)

    def once(self, epoch: int = 0) -> Iterator[Batch]:
        """Yield all rows once; the last batch may be smaller."""
        rest: Batch | None = None
        order = self.spans if self.seed is None else shuffled(self.spans, self.seed, epoch)
        for span in order:
            rows = self._mixed(self._rows(span), span, epoch)
            rest = rows if rest is None else _joined(rest, rows)
            count = _length(rest)
            whole = count - count % self.batch_size
            for start in range(0, whole, self.batch_size):
                yield _cut(rest, start, start + self.batch_size)
            rest = _cut(rest, whole, count)
        if rest is not None and _length(rest):
            yield rest

    def steps(self, epoch: int, count: int) -> Iterator[Batch]:
        """Yield this number of full batches, repeating the rank's rows if there are too few."""
        # Each epoch starts at its own position, so a rank that repeats reads its rows again.
        given, turn = 0, 0
        rest: Batch | None = None
        while given < count:
            before = given, 0 if rest is None else _length(rest)
            for batch in self.once(epoch * 1_000_003 + turn):
                rest = batch if rest is None else _joined(rest, batch)
                while _length(rest) >= self.batch_size and given < count:
                    yield _cut(rest, 0, self.batch_size)
                    rest = _cut(rest, self.batch_size, _length(rest))
                    given += 1
                if given == count:
                    return
            turn += 1
            if before == (given, 0 if rest is None else _length(rest)):
                raise ValueError("this rank has no rows to train on")

    def _mixed(self, rows: Batch, span: Span, epoch: int) -> Batch:
        if self.seed is None:
            return rows
        number = hash((self.seed, epoch, span.group.number, span.start)) % (1 << 32)
        order = np.random.default_rng(number).permutation(_length(rows))
        return {name: column[order] for name, column in rows.items()}

    def _rows(self, span: Span) -> Batch:
        if span in self._kept:
            return self._kept[span]
        from pyarrow import parquet

        path = span.group.path
        if path not in self._files:
            self._files[path] = parquet.ParquetFile(self.fs.open_input_file(path))
        table = self._files[path].read_row_group(span.group.number, columns=list(self.columns))
        table = table.slice(span.start, span.rows)
        rows = _transformed(table, self.transform)
        if self.cached:
            self._kept[span] = rows
        return rows


def _transformed(table: Any, transform: Callable[[Any], Any] | None) -> Batch:
    if transform is not None:
        import pyarrow

        table = pyarrow.Table.from_pandas(transform(table.to_pandas()), preserve_index=False)
    rows = {}
    for name in table.column_names:
        try:
            rows[name] = as_array(table.column(name))
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None
    return rows


def _length(rows: Mapping[str, Any]) -> int:
    return len(next(iter(rows.values())))


def _cut(rows: Batch, start: int, stop: int) -> Batch:
    return {name: column[start:stop] for name, column in rows.items()}


def _joined(one: Batch, other: Batch) -> Batch:
    return {name: np.concatenate([column, other[name]]) for name, column in one.items()}


def spans_of(groups: Sequence[Group], rank: int, size: int) -> list[Span]:
    """Return the rows of a rank: all rows divided equally, with a difference of at most one.

    A rank reads its own row groups, and shares at most the first and last with neighbours.
    """
    rows = total(groups)
    return list(spans(groups, rows * rank // size, rows * (rank + 1) // size))


def train_steps(rows: int, batch_size: int, size: int, given: int | None = None) -> int:
    """Return the training batches of each rank in an epoch, equally many on all ranks."""
    if given is not None:
        return given
    return max(1, rows // (batch_size * size))


def validation_steps(rows: int, batch_size: int, given: int | None = None) -> int:
    """Return the validation batches of a rank with this number of rows; the last one is smaller."""
    steps = -(-rows // batch_size)
    return steps if given is None else min(given, steps)


def shuffled(of_rank: Sequence[Span], seed: int, epoch: int) -> list[Span]:
    """Return the spans in the order of an epoch."""
    order = list(of_rank)
    random.Random(f"{seed}:{epoch}").shuffle(order)
    return order
