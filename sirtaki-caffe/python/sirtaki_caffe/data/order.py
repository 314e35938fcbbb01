"""The order of records, and the random numbers of each.

Everything follows from a seed and an item's number, so neither threads nor the number of processes
change an item, and a run continues where another ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # its package imports the layers that use this module
    from sirtaki_caffe.layers.base import World


def seed_of(shared_seed: int, *names: object) -> int:
    """Return a 64-bit seed for one use of the seed that all processes share."""
    text = repr((shared_seed, *names)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def draws(seed: int, number: int) -> np.random.Generator:
    """Return the random generator of one item."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, number], np.uint64)))


class Deal:
    """The numbers of this process in the global sequence of items.

    Process r of P has r, r+P, r+2P, …; a source that names the process belongs to it alone.

    Args:
        source: As in the net's file; `%#` is this process, `%*` the number of processes.
        world: The processes.
    """

    def __init__(self, source: str, world: World) -> None:
        own = "%#" in source
        self.source = source.replace("%#", str(world.rank)).replace("%*", str(world.size))
        self._first = 0 if own else world.rank
        self._step = 1 if own else world.size

    def number(self, item: int) -> int:
        """Return the global number of an item of this process."""
        return self._first + item * self._step

    def item(self, number: int) -> int:
        """Return this process's item with a global number."""
        return (number - self._first) // self._step


class Order:
    """The order of records: sequential or shuffled, repeated without end.

    Args:
        count: The number of records.
        seed: The seed of each round's permutation; None: sequential.
    """

    def __init__(self, count: int, seed: int | None) -> None:
        self._count = count
        self._seed = seed
        self.round = -1  # of the last item, if shuffled
        self._permutation = np.zeros(0, np.int64)

    def record(self, number: int) -> int:
        """Return the record of an item of the global sequence."""
        turn, place = divmod(number, self._count)
        if self._seed is None:
            return place
        if turn != self.round:
            self._permutation = draws(self._seed, turn).permutation(self._count)
            self.round = turn
        return int(self._permutation[place])


class FileOrder:
    """The order of rows and files: one file after the other, repeated without end.

    Args:
        rows: The number of rows in each file.
        seed: The seed of each round's order of files, and of rows in each; None: sequential.
    """

    def __init__(self, rows: Sequence[int], seed: int | None) -> None:
        self._rows = np.array(rows)
        self._seed = seed
        self._round = -1
        self._file = -1

    def place(self, number: int) -> tuple[int, int]:
        """Return the file and the row of an item of the global sequence."""
        turn, place = divmod(number, int(self._rows.sum()))
        if turn != self._round:
            self._round, self._file = turn, -1
            self._files = self._permutation(len(self._rows), "files")
            self._ends = np.cumsum(self._rows[self._files])
        slot = int(np.searchsorted(self._ends, place, "right"))
        file = int(self._files[slot])
        if file != self._file:
            self._file = file
            self._order = self._permutation(int(self._rows[file]), file)
        return file, int(self._order[place - int(self._ends[slot]) + int(self._rows[file])])

    def _permutation(self, count: int, of: object) -> np.ndarray:
        if self._seed is None:
            return np.arange(count)
        return draws(seed_of(self._seed, of), self._round).permutation(count)
