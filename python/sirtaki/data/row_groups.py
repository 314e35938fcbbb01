"""The row groups of Parquet files, and their assignment to ranges of rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any


@dataclass(frozen=True)
class Group:
    """A row group: its file, its number there, and its number of rows."""

    path: str
    number: int
    rows: int


@dataclass(frozen=True)
class Span:
    """Rows of one row group, from `start` to before `stop`."""

    group: Group
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.stop - self.start


def groups_of(files: Iterable[str], filesystem: Any = None) -> list[Group]:
    """Return the row groups with rows, according to the footers of the files."""
    from pyarrow import parquet

    found = []
    for path in files:
        data = parquet.read_metadata(path, filesystem=filesystem)
        counts = [data.row_group(number).num_rows for number in range(data.num_row_groups)]
        found += [Group(path, number, rows) for number, rows in enumerate(counts) if rows]
    return found


def total(groups: Iterable[Group]) -> int:
    """Return the number of rows."""
    return sum(group.rows for group in groups)


def spans(groups: Sequence[Group], start: int, stop: int) -> Iterator[Span]:
    """Yield the location of the rows from `start` to before `stop` in all these groups."""
    ends = list(accumulate(group.rows for group in groups))
    number = bisect_right(ends, start)
    while start < stop:
        begin = ends[number] - groups[number].rows
        end = min(stop, ends[number])
        yield Span(groups[number], start - begin, end - begin)
        start, number = end, number + 1
