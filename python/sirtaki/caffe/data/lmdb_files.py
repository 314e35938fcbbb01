"""LMDB databases."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, ClassVar

from sirtaki.caffe.data.databases import Cursor, Database, Writer
from sirtaki.caffe.data.packages import needed
from sirtaki.caffe.errors import CaffeError

_LARGEST = 1 << 40  # bytes of address space, of which a file takes what it needs
_RECORDS_AT_ONCE = 1000


class Lmdb(Database):
    """An LMDB that is read; a process opens a file once, however many nets read it.

    Args:
        path: Its folder, or its file.
    """

    _opened: ClassVar[dict[Path, Lmdb]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: Path) -> None:
        lmdb = needed("lmdb", "caffe")
        file = path / "data.mdb" if path.is_dir() else path
        try:
            self._env = lmdb.open(
                str(path), subdir=path.is_dir(), readonly=True, lock=False, max_readers=1
            )
        except lmdb.Error as error:
            raise CaffeError(f"{path} is not an LMDB: {error}") from error
        try:
            self._check_whole(file)
            self._transaction = self._env.begin()
        except CaffeError:
            self._env.close()
            raise
        self._path = path
        self._users = 0

    @classmethod
    def open(cls, path: Path) -> Lmdb:
        """The LMDB of a path, to be closed as often as it is opened."""
        path = path.resolve()
        with cls._lock:
            if path not in cls._opened:
                cls._opened[path] = cls(path)
            cls._opened[path]._users += 1
            return cls._opened[path]

    def count(self) -> int:
        """How many records it has."""
        return int(self._env.stat()["entries"])

    def cursor(self) -> Cursor:
        """A new cursor."""
        return _LmdbCursor(self._transaction.cursor())

    def get(self, key: bytes) -> bytes:
        """The value of a key that is there."""
        value = self._transaction.get(key)
        if value is None:
            raise CaffeError(f"{self._path} has no record {key!r}")
        return bytes(value)

    def close(self) -> None:
        """Give it back."""
        with self._lock:
            self._users -= 1
            if not self._users:
                del self._opened[self._path]
                self._transaction.abort()
                self._env.close()

    def _check_whole(self, file: Path) -> None:
        """A page beyond the file's end would end the process when it is read."""
        bytes_needed = (self._env.info()["last_pgno"] + 1) * self._env.stat()["psize"]
        size = file.stat().st_size
        if size < bytes_needed:
            raise CaffeError(f"{file} is cut short: it has {size} of {bytes_needed} bytes")


class _LmdbCursor(Cursor):
    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def first(self) -> bool:
        return bool(self._cursor.first())

    def next(self) -> bool:
        return bool(self._cursor.next())

    def key(self) -> bytes:
        return bytes(self._cursor.key())

    def value(self) -> bytes:
        return bytes(self._cursor.value())


class LmdbWriter(Writer):
    """Writes a new LMDB."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        lmdb = needed("lmdb", "caffe")
        self.beside.mkdir(parents=True)
        self._env = lmdb.open(str(self.beside), map_size=_LARGEST, sync=False, lock=False)
        self._records: list[tuple[bytes, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        """Add a record."""
        self._records.append((key, value))
        if len(self._records) == _RECORDS_AT_ONCE:
            self._write()

    def _write(self) -> None:
        with self._env.begin(write=True) as transaction:
            for key, value in self._records:
                transaction.put(key, value)
        self._records = []

    def _end(self) -> None:
        self._write()
        self._env.sync(True)
        self._env.close()
