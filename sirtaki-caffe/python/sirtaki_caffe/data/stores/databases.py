"""LMDB and LevelDB: records in the order of their keys."""

from __future__ import annotations

import abc
from pathlib import Path

from sirtaki_caffe.data.order import Order
from sirtaki_caffe.data.stores.interface import Database, Record, Writer
from sirtaki_caffe.errors import CaffeError

_TITLES = {"lmdb": "LMDB", "leveldb": "LevelDB"}
_FILES = {"lmdb": "data.mdb", "leveldb": "CURRENT"}  # a file in every such database


class Reader(abc.ABC):
    """Returns records by their number in the global sequence of items, which never ends."""

    _again = False

    def began_again(self) -> bool:
        """Return, once, whether the last record began another round."""
        again, self._again = self._again, False
        return again

    @abc.abstractmethod
    def read(self, number: int) -> Record:
        """Return the record of an item; fast for increasing numbers."""


class InOrder(Reader):
    """Records in their stored order, repeated without end.

    Raises:
        CaffeError: There are no records.
    """

    def __init__(self, database: Database, source: str) -> None:
        self._cursor = database.cursor()
        if not self._cursor.first():
            raise CaffeError(f"{source} has no records")
        self._count = database.count()
        self._at = 0

    def read(self, number: int) -> Record:
        """See the base class."""
        if not self._reach(number):
            self._count = self._at + 1
            self._reach(number)
        return self._cursor.record()

    def _reach(self, number: int) -> bool:
        """Move to a record; return False if the end came first, while the count is unknown."""
        place = number % self._count if self._count else number
        if place < self._at:
            self._again = True
            self._cursor.first()
            self._at = 0
        while self._at < place:
            if not self._cursor.next():
                return False
            self._at += 1
        return True


class Shuffled(Reader):
    """Records in a permutation that is new in each round, the same for all processes.

    Raises:
        CaffeError: There are no records.
    """

    def __init__(self, database: Database, source: str, seed: int) -> None:
        self._index = database.index()
        if not len(self._index):
            raise CaffeError(f"{source} has no records")
        self._order = Order(len(self._index), seed)
        self._round = -1

    def read(self, number: int) -> Record:
        """See the base class."""
        place, round_before = self._order.record(number), self._round
        self._round = self._order.round
        self._again = self._round > round_before >= 0
        return self._index.record(place)


def open_database(backend: str, source: str) -> Database:
    """Return a database for reading.

    Args:
        backend: "lmdb" or "leveldb".
        source: The folder of the database.

    Raises:
        CaffeError: It is missing or incomplete, or the package that reads it is missing.
    """
    if not Path(source).exists():
        raise CaffeError(f"{source}: no such {_TITLES[backend]}")
    found = next((name for name, file in _FILES.items() if Path(source, file).exists()), backend)
    if found != backend:
        raise CaffeError(
            f"{source} is of the kind {_TITLES[found]}, not {_TITLES[backend]}: give backend: "
            f"{found.upper()}, or to a tool --backend={found}"
        )
    if backend == "lmdb":
        from sirtaki_caffe.data.stores.lmdb_files import Lmdb

        return Lmdb(Path(source))
    from sirtaki_caffe.data.stores.leveldb_files import LevelDb

    return LevelDb(Path(source))


def write_database(backend: str, path: Path) -> Writer:
    """Return a new database for writing, "lmdb" or "leveldb"."""
    if backend == "lmdb":
        from sirtaki_caffe.data.stores.lmdb_files import LmdbWriter

        return LmdbWriter(path)
    from sirtaki_caffe.data.stores.leveldb_files import LevelDbWriter

    return LevelDbWriter(path)
