"""In which order records are taken, and what is drawn at random for each.

All of it follows from a seed and the number of an item, so that neither threads nor the number of
processes change what an item becomes, and a run continues where another ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # its package imports the layers that use this module
    from sirtaki_caffe.layers.base import World


def seed_of(shared_seed: int, *names: object) -> int:
    """A seed of 64 bits for one use of the seed that all processes share."""
    text = repr((shared_seed, *names)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def draws(seed: int, number: int) -> np.random.Generator:
    """The random numbers of one item."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, number], np.uint64)))


class Deal:
    """Which numbers of the common row of items this process has.

    Process r of P has r, r+P, r+2P, …; a source that names the process has its items to itself.

    Args:
        source: As written in the net's file; `%#` is this process, `%*` how many there are.
        world: The processes.
    """

    def __init__(self, source: str, world: World) -> None:
        own = "%#" in source
        self.source = source.replace("%#", str(world.rank)).replace("%*", str(world.size))
        self._first = 0 if own else world.rank
        self._step = 1 if own else world.size

    def number(self, item: int) -> int:
        """The number, in the common row, of an item of this process."""
        return self._first + item * self._step

    def item(self, number: int) -> int:
        """Which item of this process a number of the common row is."""
        return (number - self._first) // self._step


class Order:
    """Which record is the n-th: one after the other and round again, or shuffled.

    Args:
        count: How many records there are.
        seed: Each round has a permutation of its own by it; None: as they lie.
    """

    def __init__(self, count: int, seed: int | None) -> None:
        self._count = count
        self._seed = seed
        self.round = -1  # of the last item, where they are shuffled
        self._permutation = np.zeros(0, np.int64)

    def record(self, number: int) -> int:
        """The record that an item of the common row is."""
        turn, place = divmod(number, self._count)
        if self._seed is None:
            return place
        if turn != self.round:
            self._permutation = draws(self._seed, turn).permutation(self._count)
            self.round = turn
        return int(self._permutation[place])


class FileOrder:
    """Which row of which file the n-th item is: one file after the other, and round again.

    Args:
        rows: How many rows each file has.
        seed: Files, and rows within a file, change their order each round by it; None: as they lie.
    """

    def __init__(self, rows: Sequence[int], seed: int | None) -> None:
        self._rows = np.array(rows)
        self._seed = seed
        self._round = -1
        self._file = -1

    def place(self, number: int) -> tuple[int, int]:
        """The file, and the row in it, that an item of the common row is."""
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
