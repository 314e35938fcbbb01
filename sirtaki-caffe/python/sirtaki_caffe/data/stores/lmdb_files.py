"""LMDB databases.

They are read by their documented format, not by the library, which ends the process when a file is
damaged, or truncated during reading.
"""

from __future__ import annotations

import os
import struct
import weakref
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sirtaki_caffe.data.stores.interface import Cursor, Database, Index, Record, Writer
from sirtaki_caffe.errors import CaffeError, needed

_PAGE = struct.Struct("<QHHHH")  # number, unused, flags, lower, upper
_META = struct.Struct("<IIQQ")  # magic, version, address, size of the map
_TREE = struct.Struct("<IHHQQQQQ")  # page size, flags, depth, three counts of pages, entries, root
_LAST = struct.Struct("<QQ")  # last page, transaction
_NODE = struct.Struct("<HHHH")  # size or page: lower, upper; flags or page's top; size of the key
_NUMBER = struct.Struct("<Q")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF = 1, 2  # flags of pages
_ELSEWHERE = 1  # flag of a node: its value has pages of its own
_NO_ROOT = (1 << 64) - 1
_DEEPEST = 32
_MAP_BYTES = 1 << 40  # of address space for writing; the file takes what it needs
_RECORDS_AT_ONCE = 1000


class Lmdb(Database):
    """An LMDB opened for reading; later changes of others are invisible.

    Args:
        path: The folder of the database, or its file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        file = path / "data.mdb" if path.is_dir() else path
        try:
            self._descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise CaffeError(f"{path} is not an LMDB: {file}: {error.strerror}") from error
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self._size = os.fstat(self._descriptor).st_size
        self._tree = self._newest_tree()
        if self._size < (self._tree.last_page + 1) * self._tree.page_size:
            raise CaffeError(f"{path} is cut short: {file} has {self._size} bytes")
        self.leaves = self._find_leaves()

    def count(self) -> int:
        """Return the number of records."""
        return self._tree.entries

    def cursor(self) -> Cursor:
        """Return a new cursor."""
        return _LmdbCursor(self)

    def index(self) -> Index:
        """Return an index; reads all pages that contain keys."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return _LmdbIndex(self)

    def close(self) -> None:
        """Close it."""
        self._close()

    def leaf(self, number: int) -> _Page:
        """Return a page of records, by its index among these pages."""
        return self._page(self.leaves[number], _LEAF)

    def record(self, leaf: _Page, place: int) -> Record:
        """Return a record of such a page."""
        low, high, flags, key_size = leaf.node(place)
        key_at = leaf.pointers[place] + _NODE.size
        value_at, size = key_at + key_size, low | high << 16
        key = leaf.content[key_at:value_at]
        if flags & ~_ELSEWHERE:
            raise CaffeError(f"{self.path} has databases inside: none of Caffe's")
        if not flags:
            if value_at + size > len(leaf.content):
                raise self.damaged()
            return key, leaf.content[value_at : value_at + size]
        if value_at + _NUMBER.size > len(leaf.content):
            raise self.damaged()
        (page,) = _NUMBER.unpack_from(leaf.content, value_at)
        return key, self._read(page * self._tree.page_size + _PAGE.size, size)

    def damaged(self) -> CaffeError:
        """Return an error for the caller to raise."""
        return CaffeError(f"{self.path} is damaged")

    def _newest_tree(self) -> _Tree:
        """Return the tree of the later transaction, of the two in the file."""
        first = self._read_tree(0)
        second = self._read_tree(first.page_size)
        return max(first, second, key=lambda tree: tree.transaction)

    def _read_tree(self, start: int) -> _Tree:
        size = _PAGE.size + _META.size + 2 * _TREE.size + _LAST.size
        if start + size > self._size:
            raise CaffeError(f"{self.path} is not an LMDB: it is too short")
        content = self._read(start, size)
        magic, version, _, _ = _META.unpack_from(content, _PAGE.size)
        if magic != _MAGIC or version != _VERSION:
            raise CaffeError(f"{self.path} is not an LMDB of version {_VERSION}")
        at = _PAGE.size + _META.size
        page_size = _TREE.unpack_from(content, at)[0]
        _, flags, depth, _, _, _, entries, root = _TREE.unpack_from(content, at + _TREE.size)
        last, transaction = _LAST.unpack_from(content, at + 2 * _TREE.size)
        if page_size not in (1 << power for power in range(9, 17)) or depth > _DEEPEST:
            raise self.damaged()
        if flags & 4:
            raise CaffeError(f"{self.path} has several values for a key: none of Caffe's")
        return _Tree(page_size, depth, entries, root, last, transaction)

    def _find_leaves(self) -> list[int]:
        """Return the numbers of the pages of records, from the pages above them."""
        if self._tree.root == _NO_ROOT:
            return []
        level = [self._tree.root]
        for _ in range(self._tree.depth - 1):
            below: list[int] = []
            for number in level:
                below += self._page(number, _BRANCH).children()
                if len(below) > self._size // self._tree.page_size:
                    raise self.damaged()
            level = below
        return level

    def _page(self, number: int, kind: int) -> _Page:
        content = self._read(number * self._tree.page_size, self._tree.page_size)
        _, _, flags, lower, _ = _PAGE.unpack_from(content)
        if not flags & kind or not _PAGE.size <= lower <= len(content):
            raise self.damaged()
        pointers = struct.unpack_from(f"<{(lower - _PAGE.size) // 2}H", content, _PAGE.size)
        if any(pointer + _NODE.size > len(content) for pointer in pointers):
            raise self.damaged()
        return _Page(content, pointers)

    def _read(self, start: int, size: int) -> bytes:
        """Return all requested bytes of the file."""
        content = b""
        if start + size <= self._size:
            content = os.pread(self._descriptor, size, start)
        if len(content) != size:
            raise self.damaged()
        return content


class _Tree(NamedTuple):
    page_size: int
    depth: int
    entries: int
    root: int
    last_page: int
    transaction: int


class _Page(NamedTuple):
    content: bytes
    pointers: tuple[int, ...]

    def node(self, place: int) -> tuple[int, ...]:
        return _NODE.unpack_from(self.content, self.pointers[place])

    def children(self) -> list[int]:
        """Return the pages below."""
        nodes = (self.node(place) for place in range(len(self.pointers)))
        return [low | high << 16 | top << 32 for low, high, top, _ in nodes]


class _LmdbCursor(Cursor):
    def __init__(self, database: Lmdb) -> None:
        self._database = database

    def first(self) -> bool:
        self._leaf = -1
        return self._next_leaf()

    def next(self) -> bool:
        self._place += 1
        return self._place < len(self._page.pointers) or self._next_leaf()

    def record(self) -> Record:
        return self._database.record(self._page, self._place)

    def _next_leaf(self) -> bool:
        self._place = 0
        while self._leaf + 1 < len(self._database.leaves):
            self._leaf += 1
            self._page = self._database.leaf(self._leaf)
            if self._page.pointers:
                return True
        return False


class _LmdbIndex(Index):
    def __init__(self, database: Lmdb) -> None:
        self._database = database
        leaves = range(len(database.leaves))
        self._ends = np.cumsum([len(database.leaf(leaf).pointers) for leaf in leaves])

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def record(self, place: int) -> Record:
        leaf = int(np.searchsorted(self._ends, place, "right"))
        page = self._database.leaf(leaf)
        return self._database.record(page, place - int(self._ends[leaf]) + len(page.pointers))


class LmdbWriter(Writer):
    """Writes a new LMDB."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        lmdb = needed("lmdb")
        self.beside.mkdir(parents=True)
        self._env = lmdb.open(str(self.beside), map_size=_MAP_BYTES, sync=False, lock=False)
        self._records: list[Record] = []

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
