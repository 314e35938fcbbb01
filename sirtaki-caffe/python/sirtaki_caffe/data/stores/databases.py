"""LMDB and LevelDB: records in the order of their keys."""

from __future__ import annotations

import abc
from pathlib import Path

from sirtaki_caffe.data.order import Order
from sirtaki_caffe.errors import CaffeError

_TITLES = {"lmdb": "LMDB", "leveldb": "LevelDB"}
_FILES = {"lmdb": "data.mdb", "leveldb": "CURRENT"}  # of every such database

Record = tuple[bytes, bytes]  # key, value


class Cursor(abc.ABC):
    """Walks over a database."""

    @abc.abstractmethod
    def first(self) -> bool:
        """Go to the first record; False: there is none."""

    @abc.abstractmethod
    def next(self) -> bool:
        """Go to the next record; False: there is none."""

    @abc.abstractmethod
    def record(self) -> Record:
        """The record where it stands."""


class Index(abc.ABC):
    """Gives any record of a database by its place."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abc.abstractmethod
    def record(self, place: int) -> Record:
        """A record."""


class Database(abc.ABC):
    """A database that is read."""

    @abc.abstractmethod
    def count(self) -> int | None:
        """How many records it has; None: to be found out by walking."""

    @abc.abstractmethod
    def cursor(self) -> Cursor:
        """A new cursor, which stands nowhere yet."""

    @abc.abstractmethod
    def index(self) -> Index:
        """A new index; making it can mean to read all keys."""

    @abc.abstractmethod
    def close(self) -> None:
        """Give it back; its cursors must not be used any more."""


class Reader(abc.ABC):
    """Gives records by their number in the common row of items, which never ends."""

    _again = False

    def began_again(self) -> bool:
        """Whether the last record began another time round; says so once."""
        again, self._again = self._again, False
        return again

    @abc.abstractmethod
    def read(self, number: int) -> Record:
        """The record of an item; cheap where numbers grow."""


class InOrder(Reader):
    """Records as they lie, and round again.

    Raises:
        CaffeError: There are none.
    """

    def __init__(self, database: Database, source: str) -> None:
        self._cursor = database.cursor()
        if not self._cursor.first():
            raise CaffeError(f"{source} has no records")
        self._count = database.count()
        self._at = 0

    def read(self, number: int) -> Record:
        """As the base class says."""
        if not self._reach(number):
            self._count = self._at + 1
            self._reach(number)
        return self._cursor.record()

    def _reach(self, number: int) -> bool:
        """Go there; False: the end came first, which happens only while the count is unknown."""
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
    """Records in a permutation that is new each time round, the same for all processes.

    Raises:
        CaffeError: There are none.
    """

    def __init__(self, database: Database, source: str, seed: int) -> None:
        self._index = database.index()
        if not len(self._index):
            raise CaffeError(f"{source} has no records")
        self._order = Order(len(self._index), seed)
        self._round = -1

    def read(self, number: int) -> Record:
        """As the base class says."""
        place, round_before = self._order.record(number), self._round
        self._round = self._order.round
        self._again = self._round > round_before >= 0
        return self._index.record(place)


def open_database(backend: str, source: str) -> Database:
    """A database for reading.

    Args:
        backend: "lmdb" or "leveldb".
        source: Its folder.

    Raises:
        CaffeError: It is not there, is not whole, or the package that reads it is missing.
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


class Writer(abc.ABC):
    """Writes a new database, which is there when the `with` block has ended well, else not.

    Args:
        path: Its folder, which must not exist.

    Raises:
        CaffeError: The folder exists.
    """

    def __init__(self, path: Path) -> None:
        if path.exists():
            raise CaffeError(f"{path} is there already: remove it or name another")
        self.path = path
        self.beside = path.with_name(path.name + ".part")

    def __enter__(self) -> Writer:
        """Enter."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Finish, or remove what was begun."""
        self._end()
        if kind is None:
            self.beside.rename(self.path)
        else:
            for file in self.beside.iterdir():
                file.unlink()
            self.beside.rmdir()

    @abc.abstractmethod
    def put(self, key: bytes, value: bytes) -> None:
        """Add a record."""

    @abc.abstractmethod
    def _end(self) -> None:
        """Write what is left and close."""


def write_database(backend: str, path: Path) -> Writer:
    """A new database for writing, "lmdb" or "leveldb"."""
    if backend == "lmdb":
        from sirtaki_caffe.data.stores.lmdb_files import LmdbWriter

        return LmdbWriter(path)
    from sirtaki_caffe.data.stores.leveldb_files import LevelDbWriter

    return LevelDbWriter(path)
