"""The interface of every kind of database."""

from __future__ import annotations

import abc
from pathlib import Path

from sirtaki_caffe.errors import CaffeError

Record = tuple[bytes, bytes]  # key, value


class Cursor(abc.ABC):
    """Iterates over a database."""

    @abc.abstractmethod
    def first(self) -> bool:
        """Go to the first record; return False if there is none."""

    @abc.abstractmethod
    def next(self) -> bool:
        """Go to the next record; return False if there is none."""

    @abc.abstractmethod
    def record(self) -> Record:
        """Return the current record."""


class Index(abc.ABC):
    """Random access to the records of a database."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the number of records."""

    @abc.abstractmethod
    def record(self, place: int) -> Record:
        """Return a record."""


class Database(abc.ABC):
    """A database opened for reading."""

    @abc.abstractmethod
    def count(self) -> int | None:
        """Return the number of records; None: it can only be counted by iteration."""

    @abc.abstractmethod
    def cursor(self) -> Cursor:
        """Return a new cursor, without a position yet."""

    @abc.abstractmethod
    def index(self) -> Index:
        """Return a new index; creating it may read all keys."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close it; its cursors cannot be used afterwards."""


class Writer(abc.ABC):
    """Writes a new database, which exists after the `with` block only if that succeeded.

    Args:
        path: The folder of the database, which must not exist.

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
        """Finish the database, or remove it after an error."""
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
        """Write the remaining records and close."""
