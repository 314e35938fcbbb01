"""LevelDB databases."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from sirtaki_caffe.data.stores.interface import Cursor, Database, Index, Record, Writer
from sirtaki_caffe.errors import CaffeError, needed


class LevelDb(Database):
    """A LevelDB that is read through a folder of links.

    LevelDB lets only one process open a folder, and writes to it even when it only reads. With
    links to the tables, any number of processes can read it, and it stays unchanged.

    Args:
        path: The folder of the database.
    """

    def __init__(self, path: Path) -> None:
        self._plyvel = needed("plyvel")
        self._path = path
        self._links = tempfile.TemporaryDirectory(prefix="sirtaki-leveldb-")
        try:
            _link(path, Path(self._links.name))
            self._database = self._plyvel.DB(self._links.name, paranoid_checks=True)
        except (OSError, self._plyvel.Error) as error:
            self._links.cleanup()
            raise CaffeError(f"{path} is not a LevelDB: {error}") from error

    def count(self) -> None:
        """Return None: LevelDB does not count records."""
        return

    def cursor(self) -> Cursor:
        """Return a new cursor."""
        return _LevelDbCursor(self._plyvel, self._database, self._path)

    def index(self) -> Index:
        """Return an index; reads all keys."""
        return _LevelDbIndex(self)

    def keys(self) -> list[bytes]:
        """Return all keys, in order."""
        with self._database.iterator(include_value=False, verify_checksums=True) as iterator:
            return list(iterator)

    def get(self, key: bytes) -> bytes:
        """Return the value of a key."""
        value = self._database.get(key, verify_checksums=True)
        if value is None:
            raise CaffeError(f"{self._path} has no record {key!r}")
        return bytes(value)

    def close(self) -> None:
        """Close it."""
        self._database.close()
        self._links.cleanup()


class _LevelDbCursor(Cursor):
    def __init__(self, plyvel: Any, database: Any, path: Path) -> None:
        self._plyvel = plyvel
        self._iterator = database.iterator(verify_checksums=True)
        self._path = path
        self._record: Record | None = None

    def first(self) -> bool:
        self._iterator.seek_to_start()
        return self.next()

    def next(self) -> bool:
        try:
            self._record = next(self._iterator, None)
        except self._plyvel.Error as error:
            raise CaffeError(f"{self._path} is damaged: {error}") from error
        return self._record is not None

    def record(self) -> Record:
        assert self._record is not None
        return self._record


class _LevelDbIndex(Index):
    def __init__(self, database: LevelDb) -> None:
        self._database = database
        keys = database.keys()
        self._keys = b"".join(keys)  # one object instead of a million
        self._ends = np.cumsum([len(key) for key in keys], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def record(self, place: int) -> Record:
        start = int(self._ends[place - 1]) if place else 0
        key = self._keys[start : int(self._ends[place])]
        return key, self._database.get(key)


class LevelDbWriter(Writer):
    """Writes a new LevelDB."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        plyvel = needed("plyvel")
        self.beside.mkdir(parents=True)
        self._database = plyvel.DB(str(self.beside), create_if_missing=True, error_if_exists=True)

    def put(self, key: bytes, value: bytes) -> None:
        """Add a record."""
        self._database.put(key, value)

    def _end(self) -> None:
        self._database.close()


def _link(path: Path, folder: Path) -> None:
    """Link the tables, and copy the few small files that LevelDB changes."""
    for file in path.resolve().iterdir():
        if file.suffix in (".ldb", ".sst"):
            (folder / file.name).symlink_to(file)
        elif file.name == "CURRENT" or file.name.startswith("MANIFEST-") or file.suffix == ".log":
            shutil.copyfile(file, folder / file.name)
